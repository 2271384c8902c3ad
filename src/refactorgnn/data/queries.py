"""The grouped-query index: one CSR over ``(subject, relation)`` that the layer, the loss and the filters share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from refactorgnn.errors import UserError
from refactorgnn.ops.sparse import SparsePattern


@dataclass(frozen=True)
class QueryIndex:
    """Triples grouped by ``(subject, relation)``: query ``i`` asks ``(subjects[i], relations[i], ?)``.

    Queries are sorted by subject, then relation; the objects of a query are sorted. Repeated triples stay repeated, so
    that a sum over the index is a sum over the triples.

    Args:
        subjects: Shape ``(num_queries,)``.
        relations: Shape ``(num_queries,)``.
        answers: The matrix ``A`` of the equations: row ``i`` holds the objects of query ``i``.
        num_relations: Relation ids are below this (reciprocals included where there are any).
    """

    subjects: Tensor
    relations: Tensor
    answers: SparsePattern
    num_relations: int

    @classmethod
    def from_triples(cls, triples: Tensor, num_entities: int, num_relations: int) -> QueryIndex:
        """Group ``triples`` of shape ``(num_triples, 3)``; as they are, no reciprocals are added."""
        head, relation, tail = triples.to(torch.int64).unbind(1)
        _check_range("entity", torch.cat([head, tail]), num_entities)
        _check_range("relation", relation, num_relations)
        key = head * num_relations + relation
        if num_entities * num_entities * num_relations < 2**63:
            key, order = torch.sort(key * num_entities + tail)
            tail, key = key % num_entities, key // num_entities
        else:  # the three ids do not fit one integer: two stable sorts instead of one
            order = torch.argsort(tail, stable=True)
            order = order[torch.argsort(key[order], stable=True)]
            tail, key = tail[order], key[order]
        unique, counts = torch.unique_consecutive(key, return_counts=True)
        offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        answers = SparsePattern(offsets, tail, num_entities)
        return cls(unique // num_relations, unique % num_relations, answers, num_relations)

    @property
    def num_queries(self) -> int:
        """The number of distinct ``(subject, relation)`` pairs."""
        return self.subjects.numel()

    @property
    def num_entities(self) -> int:
        """The number of entities of the graph."""
        return self.answers.num_columns

    @property
    def num_triples(self) -> int:
        """The number of triples, repeated ones counted each time."""
        return self.answers.num_edges

    @cached_property
    def keys(self) -> Tensor:
        """``subject * num_relations + relation``, ascending: what :meth:`find` searches."""
        return self.subjects * self.num_relations + self.relations

    @cached_property
    def by_subject(self) -> SparsePattern:
        """The queries of each entity, as a sparse ``num_entities × num_queries`` matrix: sums queries into subjects."""
        counts = torch.bincount(self.subjects, minlength=self.num_entities)
        offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        return SparsePattern(offsets, torch.argsort(self.subjects, stable=True), self.num_queries)

    @cached_property
    def occurrences(self) -> Tensor:
        """How often each entity is subject or object of a triple; shape ``(num_entities,)``."""
        as_subject = torch.bincount(self.subjects[self.answers.rows], minlength=self.num_entities)
        return as_subject + torch.bincount(self.answers.columns, minlength=self.num_entities)

    @cached_property
    def self_loops(self) -> Tensor:
        """How often each query is answered by its own subject; shape ``(num_queries,)``."""
        is_loop = self.answers.columns == self.subjects[self.answers.rows]
        return torch.bincount(self.answers.rows[is_loop], minlength=self.num_queries)

    @cached_property
    def distinct_answers(self) -> SparsePattern:
        """The different objects of each query: ``answers`` with repeated triples counted once."""
        rows, columns = self.answers.rows, self.answers.columns
        is_new = torch.ones_like(columns, dtype=torch.bool)  # objects are sorted: a repeated one follows itself
        is_new[1:] = (columns[1:] != columns[:-1]) | (rows[1:] != rows[:-1])
        counts = torch.bincount(rows[is_new], minlength=self.num_queries)
        offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        return SparsePattern(offsets, columns[is_new], self.num_entities)

    def distinct_counts(self, rows: Tensor) -> Tensor:
        """The number of different objects of the queries ``rows``; 0 where a row is −1."""
        if self.num_queries == 0:
            return torch.zeros_like(rows)
        return torch.where(rows >= 0, self.distinct_answers.counts[rows.clamp(min=0)], 0)

    def find(self, subjects: Tensor, relations: Tensor) -> Tensor:
        """The row of each ``(subject, relation)``, or −1 where the index has no such query."""
        if self.num_queries == 0:
            return torch.full_like(subjects, -1)
        key = subjects * self.num_relations + relations
        row = torch.searchsorted(self.keys, key).clamp_(max=self.num_queries - 1)
        return torch.where(self.keys[row] == key, row, -1)

    def objects_of(self, subjects: Tensor, relations: Tensor) -> SparsePattern:
        """The known objects of each asked ``(subject, relation)``, none where there is no such query.

        Row ``i`` of the result belongs to ``(subjects[i], relations[i])``; its columns are sorted.
        """
        return self.answers.take_rows(self.find(subjects, relations))

    def take(self, rows: Tensor) -> QueryIndex:
        """The index restricted to the queries ``rows``, in that order: a batch, on which :meth:`find` does not work."""
        answers = self.answers.take_rows(rows)
        return QueryIndex(self.subjects[rows], self.relations[rows], answers, self.num_relations)

    def induced(self) -> tuple[Tensor, QueryIndex]:
        """The entities that occur in the triples, sorted, and the same triples numbered by their place among them."""
        entities = torch.cat([self.subjects, self.answers.columns]).unique()
        columns = torch.searchsorted(entities, self.answers.columns)
        answers = SparsePattern(self.answers.offsets, columns, len(entities))
        subjects = torch.searchsorted(entities, self.subjects)
        return entities, QueryIndex(subjects, self.relations, answers, self.num_relations)

    def partition(self, num_parts: int, generator: torch.Generator | None = None) -> list[QueryIndex]:
        """The queries cut at random into mini-batches whose sizes differ by one at most; none of them is empty.

        Args:
            num_parts: How many; fewer if there are not as many queries.
            generator: Where the randomness comes from, on the CPU; torch's default generator if not given.
        """
        if num_parts < 1:
            raise UserError(f"num_parts={num_parts} cannot hold the queries: choose 1 or more.")
        order = torch.randperm(self.num_queries, generator=generator).to(self.subjects.device)
        return [self.take(rows) for rows in order.tensor_split(max(1, min(num_parts, self.num_queries)))]

    def to(self, device: torch.device | str) -> QueryIndex:
        """The same index on another device."""
        return QueryIndex(
            self.subjects.to(device), self.relations.to(device), self.answers.to(device), self.num_relations
        )


def _check_range(kind: str, ids: Tensor, count: int) -> None:
    if ids.numel() and (int(ids.min()) < 0 or int(ids.max()) >= count):
        bad = int(ids.max()) if int(ids.max()) >= count else int(ids.min())
        raise UserError(
            f"{kind} id {bad} is outside 0…{count - 1}: pass the right number of {kind} ids or renumber them."
        )
