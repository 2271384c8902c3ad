"""The rules that attention over relation operators stands for, and how much weight each has.

A model that multiplies weighted sums of operators gives a chain of relations ``b_1, …, b_k`` a weight that is a sum
over the ways in which its steps can take the chain (which rank, which steps move): each way is an :class:`Alignment`
and contributes ``weight · Π_i attention_i[b_i]``. The score of an answer is the sum over chains of this total times
the number of paths of that kind, so the total is what the model makes of the rule, exactly.
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
class Alignment:
    """One way in which the steps of a model take a chain.

    Args:
        weight: What the steps that do not move, and the choices between them, contribute.
        attentions: The attention of each step that moves; shape ``(length, num_relations)``, float64, not negative.
    """

    weight: float
    attentions: Tensor

    def strongest(self, count: int) -> tuple[Tensor, Tensor]:
        """The ``count`` chains of largest product, and the products, descending; fewer if there are not as many.

        Exact: a chain whose beginning is not among the ``count`` best beginnings has ``count`` at least as good ones.
        """
        num_relations = self.attentions.shape[1]
        products = torch.tensor([self.weight], dtype=torch.float64)
        chains = torch.empty(1, 0, dtype=torch.int64)
        for attention in self.attentions:
            longer = (products[:, None] * attention).flatten()
            products, best = longer.topk(min(count, len(longer)))
            chains = torch.cat([chains[best // num_relations], (best % num_relations)[:, None]], dim=1)
        return chains, products

    def products(self, chains: Tensor) -> Tensor:
        """The products of the given chains; shape ``(num_chains,)``."""
        steps = torch.arange(chains.shape[1])
        return self.weight * self.attentions[steps, chains].prod(dim=1)


def strongest_rules(alignments: Sequence[Alignment], limit: int) -> list[LearnedRule]:
    """The ``limit`` chains of at least one relation with the largest total over the alignments, best first.

    Lists of the strongest chains of each alignment are read to a depth at which no chain outside them can have a total
    above the ``limit``-th found: its share in each alignment is at most that of the last chain read there.

    Args:
        alignments: All ways to take a chain, of any lengths.
        limit: How many rules, at least 1.
    """
    by_length: dict[int, list[Alignment]] = {}
    for alignment in alignments:
        by_length.setdefault(len(alignment.attentions), []).append(alignment)
    by_length.pop(0, None)
    found = [rule for group in by_length.values() for rule in _strongest_of_one_length(group, limit)]
    return sorted(found, key=_order)[:limit]


def _strongest_of_one_length(alignments: Sequence[Alignment], limit: int) -> list[LearnedRule]:
    length, num_relations = alignments[0].attentions.shape
    depth = limit
    while True:
        _check_depth(depth, num_relations)
        lists = [alignment.strongest(depth) for alignment in alignments]
        chains = torch.unique(torch.cat([chains for chains, _ in lists]), dim=0)
        totals = torch.stack([alignment.products(chains) for alignment in alignments]).sum(0)
        unseen = sum(float(products[-1]) for _, products in lists)
        enough = min(limit, len(totals))
        if depth >= num_relations**length or float(totals.topk(enough).values[-1]) >= unseen:
            found = zip(chains.tolist(), totals.tolist(), strict=True)
            return sorted((LearnedRule(tuple(chain), total) for chain, total in found), key=_order)[:limit]
        depth *= 2


def _order(rule: LearnedRule) -> tuple[float, tuple[int, ...]]:
    return -rule.confidence, rule.body


def _check_depth(depth: int, num_relations: int) -> None:
    if depth * num_relations > _MOST_NUMBERS:
        raise UserError(
            "the attention is spread too evenly over the relations to tell its strongest rules apart: "
            "ask for fewer rules, or train the model for longer."
        )
