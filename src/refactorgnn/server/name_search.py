"""Names that a person is about to type: found by any part of name or label, whatever the case and the accents."""

from __future__ import annotations

import unicodedata
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import torch

from refactorgnn.data.graph import KnowledgeGraph


@dataclass(frozen=True)
class Found:
    """An entity or a relation.

    Args:
        name: Its name, as in the data: what a question is asked with.
        label: Its label for people.
        description: What is said of it, or nothing.
        num_facts: In how many facts of the train split it is.
    """

    name: str
    label: str
    description: str
    num_facts: int

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


class NameIndex:
    """Finds names by what is typed.

    Args:
        names: The names.
        labels: The label of each.
        descriptions: The description of each.
        num_facts: In how many facts each is.
    """

    def __init__(
        self, names: list[str], labels: list[str], descriptions: list[str], num_facts: npt.NDArray[np.int64]
    ) -> None:
        self._names, self._labels, self._descriptions, self._num_facts = names, labels, descriptions, num_facts
        columns = [labels] if names == labels else [labels, names]
        # A blank before and after, so that the start of a word and the whole of a name are substrings as well.
        self._keys = [pa.array([f" {folded(text)} " for text in column], pa.large_string()) for column in columns]

    @classmethod
    def of_entities(cls, graph: KnowledgeGraph) -> NameIndex:
        """Of the entities of a graph."""
        names = list(graph.entities)
        labels = names if graph.texts is None else graph.texts["label"].to_pylist()
        descriptions = [""] * len(names) if graph.texts is None else graph.texts["description"].to_pylist()
        ends = graph.triples("train")[:, [0, 2]].flatten()
        return cls(names, labels, descriptions, torch.bincount(ends, minlength=len(names)).numpy())

    @classmethod
    def of_relations(cls, graph: KnowledgeGraph) -> NameIndex:
        """Of the relations of a graph."""
        names = list(graph.relations)
        counts = torch.bincount(graph.triples("train")[:, 1], minlength=len(names)).numpy()
        return cls(names, names, [""] * len(names), counts)

    def search(self, text: str, limit: int) -> list[Found]:
        """The best ``limit`` names that contain ``text``: the whole name, then its start, a word's start, any part.

        Among equals those of most facts come first; without text, these are all there is to go by.
        """
        wanted = folded(text)
        quality = np.full(len(self._names), 4)
        for keys in self._keys:
            for grade, hits in (
                (3, pc.match_substring(keys, wanted)),
                (2, pc.match_substring(keys, f" {wanted}")),
                (1, pc.starts_with(keys, f" {wanted}")),
                (0, pc.equal(keys, f" {wanted} ")),
            ):
                quality = np.where(hits.to_numpy(zero_copy_only=False), np.minimum(quality, grade), quality)
        matching = np.flatnonzero(quality < 4)
        order = np.lexsort((matching, -self._num_facts[matching], quality[matching]))
        return [self._found(place) for place in matching[order[:limit]].tolist()]

    def _found(self, place: int) -> Found:
        return Found(self._names[place], self._labels[place], self._descriptions[place], int(self._num_facts[place]))


def folded(text: str) -> str:
    """Without case and accents, and with single blanks."""
    plain = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
    return " ".join(plain.casefold().split())
