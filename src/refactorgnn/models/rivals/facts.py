"""Facts as an index that paths are walked on: by subject and relation, and by pairs of entities."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import torch
from torch import Tensor

# Paths alive at once, for each step, if no budget says otherwise.
MOST_PATHS = 2**20
# Of a path: five numbers of eight bytes, and as many while they are sorted out, for each of three steps.
_BYTES_OF_PATH = 3 * 2 * 5 * 8


class FactIndex:
    """Directed facts, each followed by its reciprocal; loops ``(x, r, x)`` are left out, for no simple path has one.

    Args:
        triples: Facts with their reciprocals, shape ``(num_facts, 3)``; repeated ones count once.
        num_entities: ``|V|``.
        num_relations: Relations, reciprocals included.
        memory_budget: Bytes of the paths that are walked at once; None: 240 MiB. What is found does not depend on it.
    """

    def __init__(
        self, triples: Tensor, num_entities: int, num_relations: int, memory_budget: int | None = None
    ) -> None:
        self.most_paths = MOST_PATHS if memory_budget is None else max(1, memory_budget // _BYTES_OF_PATH)
        self.num_entities = num_entities
        self.num_relations = num_relations
        triples = torch.unique(triples[triples[:, 0] != triples[:, 2]], dim=0)  # sorted by subject, relation, object
        self.subjects, self.relations, self.objects = triples.unbind(1)
        self.num_facts = len(triples)
        self.query_keys, counts = torch.unique_consecutive(
            self.subjects * num_relations + self.relations, return_counts=True
        )
        self.query_counts = counts
        self.query_starts = counts.cumsum(0) - counts
        self.query_relations = self.query_keys % num_relations
        self.degrees = torch.bincount(self.subjects, minlength=num_entities)
        self.fact_starts = self.degrees.cumsum(0) - self.degrees
        self.subject_queries = torch.bincount(self.query_keys // num_relations, minlength=num_entities)
        self.subject_starts = self.subject_queries.cumsum(0) - self.subject_queries

    @property
    def device(self) -> torch.device:
        """Where the index is."""
        return self.subjects.device

    @cached_property
    def _by_pair(self) -> tuple[Tensor, Tensor]:
        keys, order = torch.sort(self.subjects * self.num_entities + self.objects, stable=True)
        return keys, self.relations[order]

    def between(self, subjects: Tensor, objects: Tensor) -> tuple[Tensor, Tensor]:
        """Every relation from ``subjects[i]`` to ``objects[i]``: the places ``i``, and the relations."""
        keys, relations = self._by_pair
        wanted = subjects * self.num_entities + objects
        first = torch.searchsorted(keys, wanted)
        counts = torch.searchsorted(keys, wanted, right=True) - first
        places, offsets = expanded(counts)
        return places, relations[first[places] + offsets]

    def drawn(self, subjects: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """A random fact of each subject, all of which must have one: its relation and its object."""
        uniform = torch.rand(len(subjects), generator=generator, dtype=torch.float64).to(self.device)
        facts = self.fact_starts[subjects] + (uniform * self.degrees[subjects]).long()
        return self.relations[facts], self.objects[facts]


def expanded(counts: Tensor) -> tuple[Tensor, Tensor]:
    """``counts[i]`` times ``i``, and beside it ``0 … counts[i] − 1``."""
    places = torch.repeat_interleave(torch.arange(len(counts), device=counts.device), counts)
    firsts = counts.cumsum(0) - counts
    return places, torch.arange(len(places), device=counts.device) - firsts[places]


def pieces(counts: Tensor, most: int) -> Iterator[slice]:
    """Slices of ``counts`` whose sums are at most ``most``, or of a single count that is larger."""
    ends = counts.cumsum(0)
    start, done = 0, 0
    while start < len(counts):
        end = int(torch.searchsorted(ends, done + most, right=True))
        end = max(end, start + 1)
        yield slice(start, end)
        start, done = end, int(ends[end - 1])


def found(keys: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """Which of ``wanted`` are among the sorted ``keys``, and the places of those there."""
    places = torch.searchsorted(keys, wanted).clamp(max=max(0, len(keys) - 1))
    is_there = keys[places] == wanted if len(keys) else torch.zeros_like(wanted, dtype=torch.bool)
    return is_there, places[is_there]
