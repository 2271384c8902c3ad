"""Graphs of any size, drawn at random: what costs are measured on."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.data.vocabulary import Vocabulary
from refactorgnn.errors import UserError

# The k-th most frequent entity or relation is drawn in proportion to k^-SKEW, so that few occur often and many seldom.
SKEW = 0.75


def synthetic_graph(num_entities: int, num_relations: int, num_triples: int, seed: int = 0) -> KnowledgeGraph:
    """A graph of just these sizes: every entity occurs, no triple twice and none from an entity to itself.

    A first lot of triples goes through all entities and all relations once; heads, relations and tails of the others
    are drawn by frequencies that fall as a power law. All triples are in the split ``train``.

    Args:
        num_entities: At least 2.
        num_relations: At least 1.
        num_triples: At least half the entities and as many as relations; at most a quarter of all triples there can be.
        seed: The same seed gives the same graph.

    Raises:
        UserError: if there is no such graph.
    """
    _check_sizes(num_entities, num_relations, num_triples)
    draw = _Draw(num_entities, num_relations, np.random.default_rng(seed))
    keys = draw.covering()
    while len(keys) < num_triples:
        keys = _distinct(np.concatenate([keys, draw.skewed(2 * (num_triples - len(keys)) + 16)]))
    triples = np.stack(draw.split(keys[:num_triples]), axis=1)
    return KnowledgeGraph(
        f"synthetic-{num_entities}-{num_relations}-{num_triples}-{seed}",
        Vocabulary([f"e{number:0{len(str(num_entities))}}" for number in range(num_entities)], "entity"),
        Vocabulary([f"r{number:0{len(str(num_relations))}}" for number in range(num_relations)], "relation"),
        {"train": torch.from_numpy(triples)},
    )


class _Draw:
    """Triples ``(head, relation, tail)`` as numbers ``(head · |R| + relation) · |V| + tail``, drawn at random."""

    def __init__(self, num_entities: int, num_relations: int, generator: np.random.Generator) -> None:
        self.num_entities = num_entities
        self.num_relations = num_relations
        self.generator = generator
        self.entity_shares = self._shares(num_entities)
        self.relation_shares = self._shares(num_relations)

    def covering(self) -> npt.NDArray[np.int64]:
        """The fewest triples in which every entity and every relation occurs; they are distinct."""
        count = _fewest(self.num_entities, self.num_relations)
        order = np.resize(self.generator.permutation(self.num_entities), 2 * count)  # begins again where it ends
        relations = np.resize(self.generator.permutation(self.num_relations), count)
        return self._keys(order[0::2], relations, order[1::2])

    def skewed(self, count: int) -> npt.NDArray[np.int64]:
        """At most ``count`` triples, in the order they were drawn."""
        heads, tails = (self.generator.choice(self.num_entities, count, p=self.entity_shares) for _ in range(2))
        relations = self.generator.choice(self.num_relations, count, p=self.relation_shares)
        is_proper = heads != tails
        return self._keys(heads[is_proper], relations[is_proper], tails[is_proper])

    def split(self, keys: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], ...]:
        """Heads, relations and tails."""
        rest, tails = np.divmod(keys, self.num_entities)
        return *np.divmod(rest, self.num_relations), tails

    def _keys(
        self, heads: npt.NDArray[np.int64], relations: npt.NDArray[np.int64], tails: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        keys: npt.NDArray[np.int64] = (heads * self.num_relations + relations) * self.num_entities + tails
        return keys

    def _shares(self, count: int) -> npt.NDArray[np.float64]:
        """How often each of ``count`` things occurs, in a random order."""
        weights = self.generator.permutation(np.arange(1.0, count + 1) ** -SKEW)
        shares: npt.NDArray[np.float64] = weights / weights.sum()
        return shares


def _distinct(keys: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Each number once, in the order of their first occurrences."""
    return keys[np.sort(np.unique(keys, return_index=True)[1])]


def _fewest(num_entities: int, num_relations: int) -> int:
    """The fewest triples in which all of them can occur."""
    return max((num_entities + 1) // 2, num_relations)


def _check_sizes(num_entities: int, num_relations: int, num_triples: int) -> None:
    if num_entities < 2 or num_relations < 1:
        raise UserError("a synthetic graph needs 2 entities and 1 relation at least: ask for more.")
    fewest = _fewest(num_entities, num_relations)
    most = max(fewest, num_relations * num_entities * (num_entities - 1) // 4)
    if not fewest <= num_triples <= most:
        raise UserError(
            f"a synthetic graph of {num_entities:,} entities and {num_relations:,} relations cannot have "
            f"{num_triples:,} triples: ask for {fewest:,} to {most:,}."
        )
