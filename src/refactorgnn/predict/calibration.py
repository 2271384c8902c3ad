"""From scores to probabilities: Platt scaling of log-odds, fitted on one half of validation and measured on the other.

What a probability means: of the entities that are not known to answer a question like those of the validation split,
and that stand as high as this one, the share that the validation split says are right. The softmax's log-odds ``x`` of
a candidate (:func:`~refactorgnn.predict.candidates.log_odds`) become ``σ(a x + b)``, with ``a`` and ``b`` for tail
questions and for head questions. ``a = 1, b = 0`` is the model's own softmax; ``a < 1`` a model too sure of itself.

Every candidate of the questions counts but the subject, where that is no answer: true ones by the validation split, the
others as negatives unless another split knows them. A graph is never complete, so some negatives are facts nobody wrote
down: probabilities err on the low side. They are about questions that have an answer still to be found, as one that
somebody asks may have; for all questions that can be asked, see :mod:`refactorgnn.predict.open_questions`.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.errors import FileError
from refactorgnn.models.base import QueryScorer
from refactorgnn.predict.candidates import MOST_LOG_ODDS, dense, irreflexive, scored_questions
from refactorgnn.runs import Run
from refactorgnn.storage import write_text

METHOD = "Platt scaling of the softmax's log-odds, for each direction"
FILE = "calibration.json"
FORMAT = "refactorgnn-calibration-2"
# Validation triples below which a curve would be fitted to accidents.
FEWEST_TRIPLES = 20
# Questions that are scored: beyond these a two-parameter curve does not move any more.
MOST_QUESTIONS = 4000
_BIN = 0.005
NUM_BINS = round(2 * MOST_LOG_ODDS / _BIN)
Counts = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Curve:
    """``σ(slope · x + offset)``, never falling."""

    slope: float
    offset: float

    def __call__(self, x: Tensor) -> Tensor:
        """The probability at log-odds ``x``."""
        return torch.sigmoid(self.slope * x + self.offset)


@dataclass(frozen=True)
class Calibration:
    """The curves of both directions, and how they did on the half of validation that they were not fitted on.

    Args:
        tail: For questions ``(head, relation, ?)``.
        head: For questions ``(?, relation, tail)``.
        brier: The mean squared difference between probability and truth over all candidates.
        ece: The mean difference between the probabilities of candidates and the share of them that is true, over
            fifteen classes of probability weighted by their size (expected calibration error).
        top_ece: The same over the best candidate of each question, where probabilities are not all near 0.
        share_true: The share of all candidates that is true: what a map without knowledge would say.
        num_questions: How many questions the curves were fitted on, and measured on.
    """

    tail: Curve
    head: Curve
    brier: float
    ece: float
    top_ece: float
    share_true: float
    num_questions: tuple[int, int]

    def probabilities(self, odds: Tensor, is_head_question: Tensor) -> Tensor:
        """The probability of each candidate; ``odds`` has a row for each question."""
        rows = is_head_question.to(odds.device).reshape(-1, *[1] * (odds.ndim - 1))
        return torch.where(rows, self.head(odds), self.tail(odds))

    def to_dict(self) -> dict[str, Any]:
        """For JSON, with the method."""
        return {"method": METHOD, **asdict(self)}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Calibration:
        """What :meth:`to_dict` wrote."""
        values = {name: content[name] for name in cls.__dataclass_fields__}
        curves = {name: Curve(**values[name]) for name in ("tail", "head")}
        return cls(**values | curves | {"num_questions": tuple(values["num_questions"])})


def fit_calibration(bound: QueryScorer, graph: KnowledgeGraph) -> Calibration | None:
    """Fit the curves on the validation split; None where there is none, or too small a one.

    Deterministic: which questions are taken, and which half they belong to, depends on their number alone.

    Args:
        bound: The model, bound to ``graph`` with the train split for messages.
        graph: The graph.
    """
    if "valid" not in graph.splits or len(graph.triples("valid")) < FEWEST_TRIPLES:
        return None
    asked = graph.queries("valid")
    order = torch.randperm(asked.num_queries, generator=torch.Generator().manual_seed(0))[:MOST_QUESTIONS]
    fitted, measured = (_Histogram.of(bound, graph, order[half::2]) for half in (0, 1))
    tail, head = (fit_curve(*fitted.counts[direction]) for direction in (0, 1))
    pairs = [_by_probability(curve, counts) for curve, counts in zip((tail, head), measured.counts, strict=True)]
    tops = [_by_probability(curve, counts) for curve, counts in zip((tail, head), measured.tops, strict=True)]
    probability, false, true = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
    best, wrong, right = (np.concatenate(parts) for parts in zip(*tops, strict=True))
    total = false.sum() + true.sum()
    return Calibration(
        tail=tail,
        head=head,
        brier=float((true * (1 - probability) ** 2 + false * probability**2).sum() / total),
        ece=_calibration_error(probability, false, true),
        top_ece=_calibration_error(best, wrong, right),
        share_true=float(true.sum() / total),
        num_questions=(fitted.num_questions, measured.num_questions),
    )


def calibration_of(run: Run, bound: QueryScorer) -> Calibration | None:
    """The calibration of a run, kept in its folder for the weights it was fitted with; None as above.

    A folder that cannot be written is no mistake: the curves are then fitted each time.
    """
    weights = hashlib.sha256(run.weights_path.read_bytes()).hexdigest()
    path = run.path / FILE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if (content["format"], content["weights_sha256"]) == (FORMAT, weights):
            return Calibration.from_dict(content["calibration"])
    except (OSError, ValueError, KeyError, TypeError):  # missing or damaged: it can always be made again
        pass
    calibration = fit_calibration(bound, run.graph)
    if calibration is None:
        return None
    content = {"format": FORMAT, "weights_sha256": weights, "calibration": calibration.to_dict()}
    try:
        write_text(path, json.dumps(content, indent=2) + "\n")
    except FileError as error:
        warnings.warn(f"{error} The probabilities will have to be fitted again next time.", stacklevel=3)
    return calibration


@dataclass(frozen=True)
class _Histogram:
    """How many false and true candidates have which log-odds, for tail and for head questions.

    Args:
        counts: Shape ``(2 directions, 2: false and true, num_bins)``.
        tops: The same of the best candidate of each question.
        num_questions: How many questions were asked.
    """

    counts: Counts
    tops: Counts
    num_questions: int

    @classmethod
    def of(cls, bound: QueryScorer, graph: KnowledgeGraph, rows: Tensor) -> _Histogram:
        asked, others = graph.queries("valid"), [name for name in graph.splits if name != "valid"]
        subjects, relations = asked.subjects[rows], asked.relations[rows]
        about_others = irreflexive(graph.queries("train"))
        counts, tops = np.zeros((2, 2, NUM_BINS)), np.zeros((2, 2, NUM_BINS))
        for part in scored_questions(bound, graph.queries(*others), subjects, relations, about_others):
            left_out, odds = (part.known | part.itself).cpu(), part.log_odds.cpu()
            true = dense(asked.answers.take_rows(rows[part.places])) & ~left_out
            best = part.scores.cpu().masked_fill(left_out, -torch.inf).argmax(1, keepdim=True)
            is_head = relations[part.places] >= graph.num_relations
            for direction in (0, 1):
                mine = is_head == bool(direction)
                counted = mine[:, None] & ~left_out
                counts[direction] += binned(odds[counted], true[counted])
                tops[direction] += binned(odds.gather(1, best)[mine, 0], true.gather(1, best)[mine, 0])
        return cls(counts, tops, len(rows))


def binned(odds: Tensor, true: Tensor) -> Counts:
    """How many false and how many true candidates have log-odds in each bin; shape ``(2, NUM_BINS)``."""
    place = ((odds + MOST_LOG_ODDS) / _BIN).long().clamp(max=NUM_BINS - 1) + NUM_BINS * true.long()
    return torch.bincount(place, minlength=2 * NUM_BINS).numpy().reshape(2, NUM_BINS).astype(np.float64)


def _centres() -> Counts:
    return (np.arange(NUM_BINS, dtype=np.float64) + 0.5) * _BIN - MOST_LOG_ODDS


def fit_curve(false: Counts, true: Counts) -> Curve:
    """The curve of greatest likelihood, by Newton's method; targets as in Platt (1999), so that it stays finite.

    Args:
        false: How many false candidates are in each bin of log-odds.
        true: How many true ones.
    """
    x, total = _centres(), false + true
    high, low = (true.sum() + 1) / (true.sum() + 2), 1 / (false.sum() + 2)
    target = true * high + false * low
    design = np.stack([x, np.ones_like(x)])

    def loss(parameters: Counts) -> float:
        logits = parameters @ design
        return float((total * np.logaddexp(0, logits) - target * logits).sum())

    parameters = np.array([1.0, 0.0])
    for _ in range(100):
        p = np.exp(-np.logaddexp(0, -(parameters @ design)))
        gradient = design @ (total * p - target)
        hessian = (design * (total * p * (1 - p))) @ design.T + 1e-9 * np.eye(2)
        step, size = np.linalg.solve(hessian, gradient), 1.0
        while size > 1e-8 and loss(parameters - size * step) > loss(parameters):
            size /= 2
        parameters = parameters - size * step
        if np.abs(size * step).max() < 1e-10:
            break
    if parameters[0] < 0:  # scores that mislead say nothing: the same probability for all
        share = target.sum() / total.sum()
        return Curve(0.0, float(np.log(share / (1 - share))))
    return Curve(float(parameters[0]), float(parameters[1]))


def _by_probability(curve: Curve, counts: Counts) -> tuple[Counts, Counts, Counts]:
    return curve(torch.from_numpy(_centres())).numpy(), counts[0], counts[1]


def _calibration_error(probability: Counts, false: Counts, true: Counts, num_classes: int = 15) -> float:
    of_class = np.minimum((probability * num_classes).astype(np.int64), num_classes - 1)
    said, came = (np.bincount(of_class, weights, num_classes) for weights in (probability * (false + true), true))
    return float(np.abs(said - came).sum() / (false.sum() + true.sum()))
