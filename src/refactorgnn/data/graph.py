"""Knowledge graphs: vocabularies, triples by split, reciprocals, and the grouped-query index over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from torch import Tensor

from refactorgnn.data.queries import QueryIndex
from refactorgnn.data.vocabulary import Vocabulary
from refactorgnn.errors import UserError, closest_names, unknown_name

SPLITS = ("train", "valid", "test")


@dataclass(frozen=True)
class KnowledgeGraph:
    """A knowledge graph: ``(head, relation, tail)`` triples in splits, over named entities and relations.

    Every question is a tail question: relation ``r + num_relations`` is the reciprocal ``r⁻¹`` of ``r``, and
    ``(?, r, t)`` is asked as ``(t, r⁻¹, ?)``.

    Args:
        name: What to call the graph in messages and results.
        entities: The entity names.
        relations: The relation names, without reciprocals.
        splits: Triples of ids by split name, each of shape ``(num_triples, 3)``.
        texts: Human label and description of each entity (columns ``entity``, ``label``, ``description``, one row for
            each entity, in id order), if known.
        notes: Remarks made while reading: duplicates dropped, literals skipped, …
    """

    name: str
    entities: Vocabulary
    relations: Vocabulary
    splits: Mapping[str, Tensor]
    texts: pa.Table | None = None
    notes: tuple[str, ...] = ()
    _indices: dict[tuple[str, ...], QueryIndex] = field(default_factory=dict, repr=False, compare=False)

    @property
    def num_entities(self) -> int:
        """The number of entities."""
        return len(self.entities)

    @property
    def num_relations(self) -> int:
        """The number of relations, reciprocals not counted."""
        return len(self.relations)

    @property
    def num_triples(self) -> int:
        """The number of triples of all splits."""
        return sum(len(triples) for triples in self.splits.values())

    def triples(self, *splits: str) -> Tensor:
        """The triples of the named splits, of all if none is named; shape ``(num_triples, 3)``."""
        chosen = [self.splits[self._known_split(split)] for split in splits or self.splits]
        return torch.cat(chosen) if chosen else torch.empty(0, 3, dtype=torch.int64)

    def with_reciprocals(self, triples: Tensor) -> Tensor:
        """``triples`` followed by their reciprocals ``(tail, relation + num_relations, head)``."""
        return torch.cat([triples, reciprocal(triples, self.num_relations)])

    def queries(self, *splits: str) -> QueryIndex:
        """The grouped-query index of the named splits (of all if none is named), reciprocals included.

        It is built once for each set of splits and then shared.
        """
        chosen = tuple(sorted({self._known_split(split) for split in splits or self.splits}))
        if chosen not in self._indices:
            triples = self.with_reciprocals(self.triples(*chosen))
            self._indices[chosen] = QueryIndex.from_triples(triples, self.num_entities, 2 * self.num_relations)
        return self._indices[chosen]

    def relation_name(self, relation: int) -> str:
        """The name of a relation id; that of a reciprocal ends in ``⁻¹``."""
        base = self.relations[relation % self.num_relations]
        return base if relation < self.num_relations else f"{base}⁻¹"

    def label(self, entity: int) -> str:
        """The human label of an entity, or its name where no label is known."""
        if self.texts is None:
            return self.entities[entity]
        label: str = self.texts["label"][entity].as_py()
        return label

    def entity_id(self, name: str) -> int:
        """The id of the entity of that name, or else of that label if just one entity bears it."""
        if name in self.entities or self.texts is None:
            return self.entities.id(name)
        bearers = np.flatnonzero(self.texts["label"].to_numpy() == name)
        if len(bearers) > 1:
            named = ", ".join(repr(self.entities[bearer]) for bearer in bearers[:5])
            raise UserError(f"several entities are labelled {name!r}: choose one of them by its name, {named}.")
        if len(bearers) == 0:
            known = list(dict.fromkeys([*self.entities, *self.texts["label"].to_pylist()]))
            raise unknown_name("entity", name, known, list_all=False)
        return int(bearers[0])

    def named_triples(self, split: str) -> pa.Table:
        """The triples of a split as a table of names (``head``, ``relation``, ``tail``)."""
        head, relation, tail = self.triples(split).numpy().T
        return pa.table(
            {
                "head": self.entities.names_of(head),
                "relation": self.relations.names_of(relation),
                "tail": self.entities.names_of(tail),
            }
        )

    def with_relations(self, relations: Vocabulary) -> KnowledgeGraph:
        """The same graph with its relations renumbered as in another vocabulary, that of a training graph.

        Raises:
            UserError: if this graph has a relation that the other vocabulary does not know.
        """
        if relations == self.relations:
            return self
        translation = torch.from_numpy(relations.ids(self.relations.names))
        if bool((translation < 0).any()):
            unknown = [name for name, new in zip(self.relations, translation.tolist(), strict=True) if new < 0]
            closest = closest_names(unknown[0], relations)
            hint = f" (the closest known: {', '.join(map(repr, closest))})" if closest else ""
            raise UserError(
                f"graph {self.name!r} has {len(unknown)} relation(s) unseen in training, such as {unknown[0]!r}{hint}: "
                "remove or rename their triples, or train on a graph that has them."
            )
        splits = {}
        for split, triples in self.splits.items():
            head, relation, tail = triples.unbind(1)
            splits[split] = torch.stack([head, translation[relation], tail], dim=1)
        return replace(self, relations=relations, splits=splits, _indices={})

    def only(self, entities: Tensor) -> KnowledgeGraph:
        """These entities with their texts, and no facts."""
        names = self.entities.names.take(pa.array(entities.cpu().numpy()))
        texts = None if self.texts is None else self.texts.take(pa.array(entities.cpu().numpy()))
        return replace(self, entities=Vocabulary(names, "entity"), splits={}, texts=texts, _indices={})

    def grown(self, names: Sequence[str], facts: Tensor, texts: Sequence[tuple[str, str]]) -> KnowledgeGraph:
        """The graph with more entities, numbered behind the old ones, and more facts in its train split.

        Args:
            names: The names of the new entities.
            facts: Triples of ids, old and new; shape ``(num_facts, 3)``.
            texts: Label and description of each new entity.
        """
        table = self.texts
        if table is None and any(text != (name, "") for name, text in zip(names, texts, strict=True)):
            table = pa.table(
                {"entity": self.entities.names, "label": self.entities.names, "description": [""] * self.num_entities}
            )
        if table is not None:
            labels, descriptions = [label for label, _ in texts], [description for _, description in texts]
            columns = {"entity": list(names), "label": labels, "description": descriptions}
            more = pa.table({name: pa.array(column, pa.string()) for name, column in columns.items()})
            table = pa.concat_tables([table.cast(more.schema), more]).combine_chunks()
        entities = Vocabulary(pa.concat_arrays([self.entities.names, pa.array(names, pa.string())]), "entity")
        splits = {**self.splits, "train": torch.cat([self.triples("train"), facts])}
        return replace(self, entities=entities, splits=splits, texts=table, _indices={})

    def _known_split(self, split: str) -> str:
        if split not in self.splits:
            have = ", ".join(self.splits) or "none"
            raise UserError(f"graph {self.name!r} has no split {split!r}: choose one of {have}.")
        return split

    def __repr__(self) -> str:
        sizes = ", ".join(f"{split} {len(triples):,}" for split, triples in self.splits.items())
        return (
            f"KnowledgeGraph({self.name!r}: {self.num_entities:,} entities, {self.num_relations:,} relations; {sizes})"
        )


@dataclass(frozen=True)
class InductivePair:
    """A training graph and an unseen graph over the same relations.

    A model learns on ``train``, passes messages over the train split of ``unseen`` and answers its test split.
    Selection uses ``train``'s validation split only.

    Args:
        train: The graph to learn on.
        unseen: The graph to answer on; its relations are renumbered as in ``train``.
    """

    train: KnowledgeGraph
    unseen: KnowledgeGraph

    def __post_init__(self) -> None:
        object.__setattr__(self, "unseen", self.unseen.with_relations(self.train.relations))

    @property
    def num_shared_entities(self) -> int:
        """How many entity names occur in both graphs; 0 in a fully inductive pair."""
        return int((self.train.entities.ids(self.unseen.entities.names) >= 0).sum())


def reciprocal(triples: Tensor, num_relations: int) -> Tensor:
    """``(tail, relation + num_relations, head)`` for each triple."""
    head, relation, tail = triples.unbind(1)
    return torch.stack([tail, relation + num_relations, head], dim=1)


def graph_from_tables(
    name: str,
    tables: Mapping[str, pa.Table],
    texts: pa.Table | None = None,
    notes: Sequence[str] = (),
) -> KnowledgeGraph:
    """Build a graph from tables of names.

    Entities and relations are numbered in the sorted order of their names over all splits, so the ids depend on the set
    of triples alone. A triple that occurs twice in a split is kept once, and counted in the notes.

    Args:
        name: The graph's name.
        tables: One table for each split with the columns ``head``, ``relation`` and ``tail``.
        texts: Entity texts (``entity``, ``label``, ``description``) in any order, not necessarily for all entities.
        notes: Remarks to carry along.
    """
    columns = {split: _single_chunks(table) for split, table in tables.items()}
    entities = Vocabulary.sorted_union(
        (column for heads, _, tails in columns.values() for column in (heads, tails)), "entity"
    )
    relations = Vocabulary.sorted_union((relation for _, relation, _ in columns.values()), "relation")
    splits, remarks = {}, list(notes)
    for split, (heads, relation, tails) in columns.items():
        ids = np.stack([entities.ids(heads), relations.ids(relation), entities.ids(tails)], axis=1)
        unique = _first_occurrences(ids, len(entities), len(relations))
        if len(unique) < len(ids):
            remarks.append(f"{len(ids) - len(unique):,} duplicate triples in {split} were dropped")
        splits[split] = torch.from_numpy(ids[unique])
    return KnowledgeGraph(name, entities, relations, splits, align_texts(entities, texts), tuple(remarks))


def align_texts(entities: Vocabulary, texts: pa.Table | None) -> pa.Table | None:
    """One row of text for each entity in id order; an entity without text is labelled with its own name."""
    if texts is None:
        return None
    rows = Vocabulary(texts["entity"].combine_chunks(), "entity").ids(entities.names)
    labels, descriptions = texts["label"].to_pylist(), texts["description"].to_pylist()
    return pa.table(
        {
            "entity": entities.names,
            "label": [labels[row] if row >= 0 else name for row, name in zip(rows, entities, strict=True)],
            "description": [descriptions[row] if row >= 0 else "" for row in rows],
        }
    )


def _single_chunks(table: pa.Table) -> tuple[pa.Array, pa.Array, pa.Array]:
    head, relation, tail = (
        column if isinstance(column, pa.Array) else column.combine_chunks()
        for column in (table["head"], table["relation"], table["tail"])
    )
    return head, relation, tail


def _first_occurrences(ids: npt.NDArray[np.int64], num_entities: int, num_relations: int) -> npt.NDArray[np.int64]:
    """The row numbers of the distinct triples, in file order."""
    if num_entities * num_relations * num_entities < 2**63:
        keys = (ids[:, 0] * num_relations + ids[:, 1]) * num_entities + ids[:, 2]
        first = np.unique(keys, return_index=True)[1]
    else:
        first = np.unique(ids, axis=0, return_index=True)[1]
    return np.sort(first)
