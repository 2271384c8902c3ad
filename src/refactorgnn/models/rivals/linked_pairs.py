"""What the relations that link two entities say against a further one.

Many relations exclude each other: a station that is affiliated with a network is no part of it, a hypernym is no
meronym. Whoever ranks candidates by nearness alone puts all neighbours of the subject first, and most of them are
linked to it by a relation that rules out the one asked for.
"""

from __future__ import annotations

import torch
from torch import Tensor

from refactorgnn.data.queries import QueryIndex
from refactorgnn.ops.sparse import SparsePattern

# A relation excludes another if fewer of the pairs it links are linked by the other as well.
_LEAST_SHARE = 0.005


def excluding(facts: Tensor, num_entities: int, num_relations: int) -> Tensor:
    """Which relations exclude which: ``[r, s]`` if next to no pair that ``r`` links is linked by ``s``.

    Args:
        facts: Shape ``(num_facts, 3)``.
        num_entities: Heads and tails are below it.
        num_relations: Relations are below it.

    Returns:
        Shape ``(num_relations, num_relations)``. A relation without facts excludes nothing.
    """
    heads, relations, tails = facts.unbind(1)
    links = torch.unique((heads * num_entities + tails) * num_relations + relations)
    _, counts = torch.unique_consecutive(links // num_relations, return_counts=True)
    by_pair = SparsePattern.from_counts(counts, links % num_relations, num_relations)
    both = by_pair.take_rows(by_pair.rows)  # each link beside all links of its pair, itself among them
    places = by_pair.columns[both.rows] * num_relations + both.columns
    shared = torch.bincount(places, minlength=num_relations**2).view(num_relations, num_relations)
    return shared < _LEAST_SHARE * shared.diagonal()[:, None]


class LinkedPairs:
    """The entities that facts link, and by which relations.

    Args:
        queries: The facts and their reciprocals.
    """

    def __init__(self, queries: QueryIndex) -> None:
        self._queries = queries
        self.excluding = excluding(torch.stack(queries.facts, dim=1), queries.num_entities, queries.num_relations)

    def silence_(self, scores: Tensor, subjects: Tensor, relations: Tensor) -> None:
        """Set to 0 the scores of entities that are linked to the subject by nothing but what excludes the relation.

        Args:
            scores: Shape ``(num_questions, num_entities)``.
            subjects: Shape ``(num_questions,)``.
            relations: Shape ``(num_questions,)``.
        """
        links = self._queries.links_from(subjects)
        rows, columns = links.objects.rows, links.objects.columns
        is_excluded = self.excluding[links.relations, relations[rows]]
        allowed = rows[~is_excluded], columns[~is_excluded]
        kept = scores[allowed]
        scores[rows[is_excluded], columns[is_excluded]] = 0.0
        scores[allowed] = kept
