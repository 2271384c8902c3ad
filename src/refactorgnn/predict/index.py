"""An index of vectors for the largest inner products: a compressed scan finds a shortlist, exact scores order it.

Each candidate is kept as a code of two bits a coordinate (product quantisation, Jégou et al., 2011, of what is left
after the nearest of √n centroids), and faiss compares a query with the codes of the nearest centroids, 32 at a time.
The best of them, the *shortlist*, are then scored exactly, so an answer's score is the model's own; what an index can
do wrong is to miss an answer.

An inner product is no metric: a long vector is near to every query. Two things keep that right. Codes are trained on,
and compared by, inner products, never distances. And candidates are divided into **shells** of similar norm, each a
factor 2 wide, with codes of its own: one codebook over all norms would spend its values on the long vectors or lose
them. As ``q·x ≤ ‖q‖ ‖x‖``, a shell is skipped once enough answers are better than its longest vector can be.

How many centroids are visited and how long the shortlist is, is **chosen by measuring**: on questions of the graph,
with the exact answers beside. Other questions then tell the recall; an index that does not reach :data:`LEAST_RECALL`
is refused.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from refactorgnn.errors import UserError
from refactorgnn.ops.chunked import chunks, rows_within
from refactorgnn.progress import Counter, counting
from refactorgnn.seeds import combined_seed

LEAST_RECALL = 0.95
# The recall of the ten best that settings are chosen for; above what is promised, since other questions differ.
_WANTED_RECALL = 0.985
_TOP = 10
NUM_QUESTIONS = 256
_LONGEST_SHORTLIST = 16_384
_SHARES = (1 / 256, 1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)
# Nanoseconds on one core at 2.8 GHz: to compare the code of one sub-vector, to rank, to score one coordinate exactly.
_COST_OF_CODE, _COST_OF_RANK, _COST_OF_COORDINATE = 0.07, 150.0, 3.0
_NUM_SHELLS = 12
# A shell of fewer candidates is scored exactly; so are candidates that were added.
_SMALLEST_SHELL = 1024
_MOST_APART = 20_000
# Candidates of a shell that are looked at whatever the effort: few lists divide a small shell badly.
_ALWAYS_SCANNED = 32_768
_TRAINED_ON = 65_536
_COORDINATES_A_CODE = 2
_BLOCK = 32_768
_NOWHERE = 2**62
_BUDGET = 256 * 2**20
_SEED = combined_seed(0, 0x1DE)
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Effort:
    """How hard an index looks, and what that finds.

    Args:
        share: The share of the centroids whose candidates are looked at, in shells that are not small.
        shortlist: How many candidates are scored exactly for ten answers.
        recall: The share of the ten best answers that is found, on questions that the effort was not chosen by.
    """

    share: float
    shortlist: int
    recall: float


@dataclass(frozen=True)
class Shell:
    """Candidates of similar norm.

    Args:
        entities: Their ids, in the order of the codes.
        longest: The largest norm.
        scan: faiss's index of their codes.
    """

    entities: npt.NDArray[np.int64]
    longest: float
    scan: Any

    def visited(self, share: float) -> float:
        """The share of the centroids that is visited where ``share`` is enough in large shells."""
        return min(1.0, max(share, _ALWAYS_SCANNED / len(self.entities)))


class VectorIndex:
    """Finds candidates with large inner products.

    Args:
        shells: From the longest vectors to the shortest.
        apart: The ids of candidates that have no codes: they are on every shortlist.
        num_entities: The number of all candidates.
        effort: How hard to look.
    """

    def __init__(self, shells: Sequence[Shell], apart: Tensor, num_entities: int, effort: Effort) -> None:
        self.shells = list(shells)
        self.apart = apart
        self.num_entities = num_entities
        self.effort = effort

    @classmethod
    def build(cls, candidates: Tensor, questions: Tensor, *, progress: bool = False) -> VectorIndex:
        """Index candidates and choose the effort.

        Args:
            candidates: Shape ``(num_entities, C)``.
            questions: Queries like those that will be asked, shape ``(num_questions, C)``: one half to choose by, the
                other to measure on.
            progress: Show a bar.

        Raises:
            UserError: if faiss is missing, or the index finds too little.
        """
        faiss_library()  # or say at once what is missing
        vectors = candidates.detach().to("cpu", torch.float32)
        with counting("building the index", len(vectors), enabled=progress) as bar:
            shells, apart = _build_shells(vectors, bar)
        index = cls(shells, apart, len(vectors), Effort(1.0, _LONGEST_SHORTLIST, 0.0))
        index.effort = _choose_effort(index, vectors, questions.detach().to("cpu", torch.float32))
        if index.effort.recall < LEAST_RECALL:
            raise UserError(
                f"an index finds only {index.effort.recall:.1%} of the best answers of this model, less than "
                f"{LEAST_RECALL:.0%}: use the index 'exact'."
            )
        return index

    def grown(self, num_entities: int) -> VectorIndex | None:
        """The index with candidates added behind the old ones; None if they are so many that it must be built anew."""
        new = torch.arange(self.num_entities, num_entities)
        if len(self.apart) + len(new) > _MOST_APART:
            return None
        return VectorIndex(self.shells, torch.cat([self.apart, new]), num_entities, self.effort)

    def shortlist(self, query: Tensor, num_wanted: int, at_least: int = 0) -> Tensor | None:
        """Distinct ids among which the ``num_wanted`` best candidates are likely to be, in no order.

        None if that would be so many that scoring all candidates is no more work.

        Args:
            query: Shape ``(C,)``.
            num_wanted: How many are wanted, the known answers that will be left out included.
            at_least: Make it this long even if fewer would do.
        """
        size = max(at_least, math.ceil(self.effort.shortlist * max(1.0, num_wanted / _TOP)))
        if size > max(_LONGEST_SHORTLIST, self.num_entities // 8):
            return None
        found = self._scan(query.detach().to("cpu", torch.float32).numpy()[None], size, num_wanted, self.effort.share)
        return torch.cat([torch.from_numpy(found[0]), self.apart])

    def _scan(self, queries: Floats, size: int, num_wanted: int, share: float) -> list[npt.NDArray[np.int64]]:
        """The ``size`` ids of the best codes for each query, best first."""
        scores = np.full((len(queries), 0), -np.inf, dtype=np.float32)
        ids = np.full((len(queries), 0), -1, dtype=np.int64)
        lengths = np.linalg.norm(queries, axis=1)
        for shell in self.shells:
            rows = np.arange(len(queries))
            if scores.shape[1] >= num_wanted:  # is there anything in here that could be better?
                rows = np.flatnonzero(lengths * shell.longest >= scores[:, num_wanted - 1])
            if len(rows):
                scores, ids = _merged(scores, ids, rows, *_search(shell, queries[rows], size, share), size)
        return [row[row >= 0] for row in ids]


def faiss_library() -> Any:
    """The package faiss, whose types are not those of Python.

    Raises:
        UserError: if it is not installed.
    """
    if importlib.util.find_spec("faiss") is None:
        raise UserError(
            "an index of vectors needs faiss, which is not installed: pip install 'refactorgnn[ann]', or use the "
            "index 'exact'."
        )
    return importlib.import_module("faiss")


def _build_shells(vectors: Tensor, bar: Counter) -> tuple[list[Shell], Tensor]:
    norms = torch.linalg.vector_norm(vectors, dim=1)
    longest = float(norms.max())
    # The shell of norm in (longest / 2^(n+1), longest / 2^n] is number n; zeros are in the last.
    number = torch.log2(longest / norms.clamp(min=1e-30)).clamp(0, _NUM_SHELLS - 1).long()
    shells, apart = [], []
    for shell in range(_NUM_SHELLS):
        entities = torch.nonzero(number == shell).flatten()
        if len(entities) < _SMALLEST_SHELL:
            apart.append(entities)
            bar.advance(len(entities))
            continue
        shells.append(Shell(entities.numpy(), float(norms[entities].max()), _trained_scan(vectors, entities, bar)))
    return shells, torch.cat(apart) if apart else torch.empty(0, dtype=torch.int64)


def _trained_scan(vectors: Tensor, entities: Tensor, bar: Counter) -> Any:
    faiss = faiss_library()
    width = _padded_width(vectors.shape[1])
    num_lists = math.isqrt(len(entities))
    scan = faiss.IndexIVFPQFastScan(
        faiss.IndexFlatIP(width), width, num_lists, width // _COORDINATES_A_CODE, 4, faiss.METRIC_INNER_PRODUCT
    )
    scan.by_residual = True
    for settings in (scan.cp, scan.pq.cp):
        settings.seed, settings.niter = 1, 10
        settings.min_points_per_centroid, settings.max_points_per_centroid = 1, max(64, _TRAINED_ON // num_lists)
    generator = torch.Generator().manual_seed(_SEED)
    sample = entities[torch.randperm(len(entities), generator=generator)[:_TRAINED_ON]].sort().values
    scan.train(_padded(vectors[sample].numpy()))
    for part in chunks(len(entities), _BLOCK):
        scan.add(_padded(vectors[entities[part]].numpy()))
        bar.advance(part.stop - part.start)
    return scan


def _padded_width(width: int) -> int:
    """Codes are of whole sub-vectors, an even number of them."""
    return math.ceil(width / (2 * _COORDINATES_A_CODE)) * 2 * _COORDINATES_A_CODE


def _padded(vectors: Floats) -> Floats:
    missing = _padded_width(vectors.shape[1]) - vectors.shape[1]
    return np.ascontiguousarray(np.pad(vectors, ((0, 0), (0, missing))) if missing else vectors)


def _search(shell: Shell, queries: Floats, size: int, share: float) -> tuple[Floats, npt.NDArray[np.int64]]:
    faiss = faiss_library()
    settings = faiss.IVFSearchParameters(nprobe=math.ceil(shell.visited(share) * shell.scan.nlist))
    scores, places = shell.scan.search(_padded(queries), min(size, len(shell.entities)), params=settings)
    ids = np.where(places >= 0, shell.entities[places], -1)
    return np.where(places >= 0, scores, -np.inf), ids


def _merged(
    scores: Floats,
    ids: npt.NDArray[np.int64],
    rows: npt.NDArray[np.int64],
    new_scores: Floats,
    new_ids: npt.NDArray[np.int64],
    size: int,
) -> tuple[Floats, npt.NDArray[np.int64]]:
    """The best of what was found before and of what ``rows`` found now, best first."""
    if not scores.shape[1] and len(rows) == len(scores):  # faiss returns the best first
        return new_scores, new_ids
    wide_scores = np.full((len(scores), new_scores.shape[1]), -np.inf, dtype=np.float32)
    wide_ids = np.full(wide_scores.shape, -1, dtype=np.int64)
    wide_scores[rows], wide_ids[rows] = new_scores, new_ids
    scores, ids = np.concatenate([scores, wide_scores], axis=1), np.concatenate([ids, wide_ids], axis=1)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :size]
    return np.take_along_axis(scores, order, axis=1), np.take_along_axis(ids, order, axis=1)


def _choose_effort(index: VectorIndex, vectors: Tensor, questions: Tensor) -> Effort:
    """The least work that finds :data:`_WANTED_RECALL` of the best answers to every other question."""
    top = min(_TOP, index.num_entities)
    best = torch.cat([(part @ vectors.T).topk(top).indices for part in questions.split(_rows(index))]).numpy()
    exact_cost = _COST_OF_RANK + vectors.shape[1] * _COST_OF_COORDINATE
    choices: list[tuple[float, float, Effort]] = []
    least, before = math.inf, -1.0
    for share in _SHARES:
        scanned = _scan_cost(index, share, vectors.shape[1])
        if scanned == before or scanned > least:  # the same candidates again, or more work than need be
            continue
        before, places = scanned, _places(index, questions.numpy(), best, share)
        needed = np.sort(places[::2].flatten())[math.ceil(_WANTED_RECALL * places[::2].size) - 1]
        size = int(min(_LONGEST_SHORTLIST, max(4 * _TOP, needed + 1)))
        recall = float(((places[1::2] if len(places) > 1 else places) < size).mean())
        is_enough, work = needed < _LONGEST_SHORTLIST, scanned + size * exact_cost
        # An effort that does not find enough is chosen last, and then the one that finds most.
        choices.append((0.0 if is_enough else 1 - recall, work, Effort(share, size, recall)))
        least = min(least, work) if is_enough else least
    return min(choices, key=lambda choice: choice[:2])[2]


def _scan_cost(index: VectorIndex, share: float, width: int) -> float:
    num_scanned = sum(shell.visited(share) * len(shell.entities) for shell in index.shells)
    return num_scanned * width / _COORDINATES_A_CODE * _COST_OF_CODE


def _rows(index: VectorIndex) -> int:
    return rows_within(_BUDGET, index.num_entities, 2, device=torch.device("cpu"))


def _places(index: VectorIndex, queries: Floats, best: npt.NDArray[np.int64], share: float) -> npt.NDArray[np.int64]:
    """Where the longest shortlist has each of the best answers, from 0 on; far beyond its end if it has not."""
    apart = index.apart.numpy()
    places = np.full(best.shape, _NOWHERE, dtype=np.int64)
    for row, answers in enumerate(best):
        found = index._scan(queries[row : row + 1], _LONGEST_SHORTLIST, best.shape[1], share)[0]
        order = np.argsort(found)
        spot = np.searchsorted(found, answers, sorter=order).clip(max=max(0, len(found) - 1))
        if len(found):
            hit = found[order[spot]] == answers
            places[row, hit] = order[spot][hit]
        places[row, np.isin(answers, apart)] = 0
    return places
