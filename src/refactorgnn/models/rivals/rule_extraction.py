"""The rules that attention over relation operators stands for, and how much weight each has.

A model that multiplies weighted sums of operators gives a chain of relations ``b_1, …, b_k`` a weight that is a sum
over the ways in which its steps can take the chain (which rank, which steps move): each way is an :class:`Alignment`
and contributes ``weight · Π_i attention_i[b_i]``. The score of an answer is the sum over chains of this total times the
number of paths of that kind, so the total is what the model makes of the rule, exactly.

Attention to a chain that no path follows costs nothing and means nothing: where a person is asked about, the attention
to the capitals of countries is whatever the initial weights left. Such chains are no rules (:class:`Followable`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from refactorgnn.errors import UserError
from refactorgnn.models.rivals.rules_protocol import LearnedRule

# Numbers that the search for the strongest chains may hold at once.
_MOST_NUMBERS = 2**26


@dataclass(frozen=True)
class Followable:
    """Which chains can be followed, as far as pairs of relations tell.

    Args:
        first: Which relations may begin a chain; shape ``(num_relations,)``, 0 or 1, float64.
        then: ``then[a, b]``: whether ``b`` may follow ``a``; shape ``(num_relations, num_relations)``.
        last: Which relations may end a chain; shape ``(num_relations,)``.
    """

    first: Tensor
    then: Tensor
    last: Tensor

    @classmethod
    def between(cls, meets: Tensor, relation: int) -> Followable:
        """The chains from a subject of ``relation`` to an object of it.

        Args:
            meets: ``meets[a, b]``: whether some entity is an object of ``a`` and a subject of ``b``, reciprocals among
                the relations.
            relation: The relation.
        """
        reciprocal = (relation + len(meets) // 2) % len(meets)
        return cls(meets[reciprocal], meets, meets[:, reciprocal])


@dataclass(frozen=True)
class Alignment:
    """One way in which the steps of a model take a chain.

    Args:
        weight: What the steps that do not move, and the choices between them, contribute.
        attentions: The attention of each step that moves; shape ``(length, num_relations)``, float64, not negative.
    """

    weight: float
    attentions: Tensor

    def strongest(self, count: int, chosen: Followable) -> tuple[Tensor, Tensor]:
        """The ``count`` chains of largest product, and the products, descending; fewer if there are not as many.

        Exact: of the beginnings that end with the same relation only the ``count`` best can be needed.
        """
        num_relations = self.attentions.shape[1]
        products = (self.weight * self.attentions[0] * chosen.first)[:, None]  # (last relation, best of them)
        chains = torch.arange(num_relations)[:, None, None]
        for attention in self.attentions[1:]:
            longer = (products * chosen.then.T[:, :, None]).flatten(1)  # (next relation, chain so far)
            best, places = longer.topk(min(count, longer.shape[1]), dim=1)
            products = best * attention[:, None]
            ends = torch.arange(num_relations)[:, None, None].expand(-1, places.shape[1], -1)
            chains = torch.cat([chains.flatten(0, 1)[places], ends], dim=2)
        products = (products * chosen.last[:, None]).flatten()
        best, places = products.topk(min(count, int((products > 0).sum())))
        return chains.flatten(0, 1)[places], best

    def products(self, chains: Tensor) -> Tensor:
        """The products of the given chains; shape ``(num_chains,)``."""
        steps = torch.arange(chains.shape[1])
        return self.weight * self.attentions[steps, chains].prod(dim=1)

    def total(self, chosen: Followable) -> float:
        """The sum of the products of all chains."""
        reached = self.attentions[0] * chosen.first
        for attention in self.attentions[1:]:
            reached = (reached @ chosen.then) * attention
        return self.weight * float(reached @ chosen.last)


def strongest_rules(alignments: Sequence[Alignment], chosen: Followable, limit: int) -> list[LearnedRule]:
    """The ``limit`` chains of at least one relation with the largest share of the attention, best first.

    The share is in that of all such chains that can be followed.

    Args:
        alignments: All ways to take a chain, of any lengths.
        chosen: Which chains can be followed.
        limit: How many rules, at least 1.
    """
    by_length: dict[int, list[Alignment]] = {}
    for alignment in alignments:
        by_length.setdefault(len(alignment.attentions), []).append(alignment)
    by_length.pop(0, None)
    total = sum(alignment.total(chosen) for group in by_length.values() for alignment in group)
    found = [pair for group in by_length.values() for pair in _strongest_of_one_length(group, chosen, limit)]
    found.sort(key=lambda pair: (-pair[1], pair[0]))
    return [LearnedRule(body, weight / total) for body, weight in found[:limit]]


def _strongest_of_one_length(
    alignments: Sequence[Alignment], chosen: Followable, limit: int
) -> list[tuple[tuple[int, ...], float]]:
    """At least the ``limit`` chains of largest sum over the alignments, if there are as many.

    Lists of the strongest chains of each alignment are read to a depth at which no chain outside them can have a sum
    above the ``limit``-th found: its share in each alignment is at most that of the last chain read there.
    """
    depth = limit
    _check_size(depth, chosen, f"{limit} rules of so many relations are more than can be told apart: ask for fewer")
    while True:
        lists = [alignment.strongest(depth, chosen) for alignment in alignments]
        chains = torch.unique(torch.cat([chains for chains, _ in lists]), dim=0)
        sums = torch.stack([alignment.products(chains) for alignment in alignments]).sum(0)
        unseen = sum(float(products[-1]) for _, products in lists if len(products) == depth)
        if unseen == 0 or float(sums.topk(limit).values[-1]) >= unseen:
            return [(tuple(chain), weight) for chain, weight in zip(chains.tolist(), sums.tolist(), strict=True)]
        depth *= 2
        _check_size(
            depth,
            chosen,
            "the attention is spread too evenly over the relations to tell its strongest rules apart: "
            "ask for fewer rules, or train the model for longer",
        )


def _check_size(depth: int, chosen: Followable, problem: str) -> None:
    if depth * len(chosen.first) ** 2 > _MOST_NUMBERS:
        raise UserError(f"{problem}.")
