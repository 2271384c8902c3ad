"""The grouped-query index: one CSR over ``(subject, relation)`` that the layer, the loss and the filters share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from refactorgnn.errors import UserError
from refactorgnn.ops.sparse import SparsePattern


@dataclass(frozen=True)
class Links:
    """The facts around the subjects of some questions.

    Args:
        objects: Row ``i`` holds the entities that facts link to subject ``i``, an entity once for each fact.
        relations: The relation of each fact; shape ``(num_facts,)``.
        edges: Which edge of the index each fact is; shape ``(num_facts,)``.
    """

    objects: SparsePattern
    relations: Tensor
    edges: Tensor


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
        weights: How much each edge of ``answers`` counts, shape ``(num_edges,)``; None: 1 each. A triple of weight 0 is
            as if it were not there, so other facts can be chosen for each step of a training without any tensor
            changing its shape (:meth:`weighted`).
    """

    subjects: Tensor
    relations: Tensor
    answers: SparsePattern
    num_relations: int
    weights: Tensor | None = None

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
        answers = SparsePattern.from_counts(counts, tail, num_entities)
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

    @property
    def facts(self) -> tuple[Tensor, Tensor, Tensor]:
        """Subject, relation and object of each triple, in the order of the edges; gathered anew."""
        rows = self.answers.rows
        return self.subjects[rows], self.relations[rows], self.answers.columns

    def weighted(self, weights: Tensor) -> QueryIndex:
        """The same triples counted otherwise; what was found out about their structure is shared."""
        index = replace(self, weights=weights)
        vars(index).update(keys=self.keys, by_subject=self.by_subject, _links=self._links)
        return index

    @cached_property
    def counts(self) -> Tensor:
        """The number of answers of each query, ``c_i`` of the equations, each counted by its weight."""
        if self.weights is None:
            return self.answers.counts
        return self._summed(self.answers.rows, self.num_queries)

    @cached_property
    def total(self) -> Tensor | int:
        """The number of triples, each counted by its weight."""
        return self.num_triples if self.weights is None else self.weights.sum()

    def _summed(self, places: Tensor, num_places: int, chosen: Tensor | None = None) -> Tensor:
        """The weights of the edges (of those ``chosen`` by a mask) summed into their ``places``."""
        if self.weights is None:
            return torch.bincount(places if chosen is None else places[chosen], minlength=num_places)
        weights = self.weights if chosen is None else self.weights * chosen
        return weights.new_zeros(num_places).index_add_(0, places, weights)

    @cached_property
    def keys(self) -> Tensor:
        """``subject * num_relations + relation``, ascending: what :meth:`find` searches."""
        return self.subjects * self.num_relations + self.relations

    @cached_property
    def by_subject(self) -> SparsePattern:
        """The queries of each entity, as a sparse ``num_entities × num_queries`` matrix: sums queries into subjects."""
        counts = torch.bincount(self.subjects, minlength=self.num_entities)
        return SparsePattern.from_counts(counts, torch.argsort(self.subjects, stable=True), self.num_queries)

    @cached_property
    def occurrences(self) -> Tensor:
        """How often each entity is subject or object of a triple, by weight; shape ``(num_entities,)``."""
        as_subject = self._summed(self.subjects[self.answers.rows], self.num_entities)
        return as_subject + self._summed(self.answers.columns, self.num_entities)

    @cached_property
    def self_loops(self) -> Tensor:
        """How often each query is answered by its own subject, by weight; shape ``(num_queries,)``."""
        is_loop = self.answers.columns == self.subjects[self.answers.rows]
        return self._summed(self.answers.rows, self.num_queries, is_loop)

    @cached_property
    def distinct_answers(self) -> SparsePattern:
        """The different objects of each query: ``answers`` with repeated triples counted once."""
        rows, columns = self.answers.rows, self.answers.columns
        is_new = torch.ones_like(columns, dtype=torch.bool)  # objects are sorted: a repeated one follows itself
        is_new[1:] = (columns[1:] != columns[:-1]) | (rows[1:] != rows[:-1])
        return SparsePattern.from_rows(rows[is_new], columns[is_new], self.num_queries, self.num_entities)

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

    def links_from(self, subjects: Tensor) -> Links:
        """The facts that each of ``subjects`` is a subject of; found once as long as the tensor lives.

        A validation asks the same questions again and again, and on a GPU what depends on data cannot be found out
        while a graph of kernels is recorded.
        """
        if subjects not in self._links:
            own = self.by_subject.take_rows(subjects)
            facts = self.answers.take_edges(own.columns)
            counts = torch.zeros_like(subjects).index_add_(0, own.rows, facts.counts)
            edges = facts.columns
            objects = SparsePattern.from_counts(counts, self.answers.columns[edges], self.num_entities)
            self._links[subjects] = Links(objects, self.relations[self.answers.rows[edges]], edges)
        found: Links = self._links[subjects]
        return found

    @cached_property
    def _links(self) -> WeakIdKeyDictionary:
        return WeakIdKeyDictionary()

    def take(self, rows: Tensor) -> QueryIndex:
        """The index restricted to the queries ``rows``, in that order: a batch, on which :meth:`find` does not work."""
        assert self.weights is None, "batches are taken of triples that count once"
        answers = self.answers.take_rows(rows)
        return QueryIndex(self.subjects[rows], self.relations[rows], answers, self.num_relations)

    def in_order(self, num_rows: int) -> Iterator[QueryIndex]:
        """Batches of at most ``num_rows`` queries, one after the other; the index itself if that is all of them."""
        if self.num_queries <= num_rows:
            yield self
            return
        for rows in torch.arange(self.num_queries, device=self.subjects.device).split(num_rows):
            yield self.take(rows)

    def induced(self, more: Tensor | None = None) -> tuple[Tensor, QueryIndex]:
        """The entities that occur in the triples, or in ``more``, and the same triples numbered by their place there.

        Returns:
            The entities, sorted, and the triples.
        """
        entities = torch.cat([self.subjects, self.answers.columns, *([] if more is None else [more])]).unique()
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
        """The same index on another device; its copy is made once, for what is found out about it is worth keeping."""
        device = torch.device(device)
        if device == self.subjects.device:
            return self
        if device not in self._copies:
            subjects, relations = self.subjects.to(device), self.relations.to(device)
            weights = None if self.weights is None else self.weights.to(device)
            self._copies[device] = QueryIndex(subjects, relations, self.answers.to(device), self.num_relations, weights)
        return self._copies[device]

    @cached_property
    def _copies(self) -> dict[torch.device, QueryIndex]:
        return {}


def _check_range(kind: str, ids: Tensor, count: int) -> None:
    if ids.numel() and (int(ids.min()) < 0 or int(ids.max()) >= count):
        bad = int(ids.max()) if int(ids.max()) >= count else int(ids.min())
        raise UserError(
            f"{kind} id {bad} is outside 0…{count - 1}: pass the right number of {kind} ids or renumber them."
        )
