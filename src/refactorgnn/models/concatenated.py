"""Several bound models as one: a weighted sum of scores is one dot product of concatenated vectors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from refactorgnn.models.base import DotProductScorer, EmbeddingScorer, QueryScorer
from refactorgnn.ops.chunked import matmul
from refactorgnn.scorers import DotScorer


class ConcatenatedScorer:
    """The weighted sum of the scores of several models over the same entities.

    Where model ``m`` scores by ``q_m · k_m``, the sum is again a dot product, of concatenated vectors:

        Σ_m w_m q_m · k_m = [w_1 q_1, …, w_M q_M] · [k_1, …, k_M]

    so models of any widths and scorers are answered with in one product. The scores of models that are no dot products
    (RotatE) are computed one by one and added: the same sum.

    Args:
        members: The models, bound to the same graph.
        weights: ``w_m``, one for each.
    """

    def __init__(self, members: Sequence[QueryScorer], weights: Sequence[float]) -> None:
        self.parts = list(_flattened(members, weights))
        self._products: list[tuple[float, DotScorer, EmbeddingScorer]] = []
        self._others: list[tuple[float, QueryScorer]] = []
        for weight, part in self.parts:
            if isinstance(part, EmbeddingScorer) and isinstance(part.scorer, DotScorer):
                self._products.append((weight, part.scorer, part))
            else:
                self._others.append((weight, part))
        vectors = [scorer.candidates(part.states) for _, scorer, part in self._products]
        self.candidates = torch.cat(vectors, dim=1) if vectors else None

    @property
    def is_dot_product(self) -> bool:
        """Whether all members are dot products, so that nothing has to be added to the one of ``candidates``."""
        return not self._others

    @property
    def num_entities(self) -> int:
        """The number of candidates."""
        return self.parts[0][1].num_entities

    @property
    def device(self) -> torch.device:
        """Where questions must be put."""
        return self.parts[0][1].device

    def queries(self, subjects: Tensor, relations: Tensor) -> Tensor:
        """``[w_1 q_1, …, w_M q_M]`` of the members that are dot products; shape ``(num_questions, Σ C_m)``."""
        vectors = (
            weight * scorer.query(part.states[subjects], part.relations[relations])
            for weight, scorer, part in self._products
        )
        return torch.cat(list(vectors), dim=1)

    def scores(self, subjects: Tensor, relations: Tensor) -> Tensor:
        """The summed scores of all entities; shape ``(num_questions, num_entities)``."""
        total: Tensor | None = None
        if self.candidates is not None:
            total = matmul(self.queries(subjects, relations), self.candidates.T)
        for weight, part in self._others:
            scores = part.scores(subjects, relations).mul_(weight)
            total = scores if total is None else total.add_(scores)
        assert total is not None, "there is at least one member"
        return total


def dot_product(bound: QueryScorer) -> DotProductScorer | None:
    """``bound`` itself if its scores are the dot products of queries and candidates, else None."""
    if isinstance(bound, ConcatenatedScorer):
        return bound if bound.is_dot_product else None
    return bound if isinstance(bound, EmbeddingScorer) and bound.candidates is not None else None


def _flattened(members: Sequence[QueryScorer], weights: Sequence[float]) -> Iterator[tuple[float, QueryScorer]]:
    """The weighted members, each that is itself such a sum replaced by its parts."""
    for member, weight in zip(members, weights, strict=True):
        if isinstance(member, ConcatenatedScorer):
            yield from ((weight * inner, part) for inner, part in member.parts)
        else:
            yield weight, member
