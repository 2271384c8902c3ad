"""The strongest rules, found without listing all chains, are those found by listing them."""

from __future__ import annotations

from itertools import pairwise, product

import pytest
import torch
from torch import Tensor

from refactorgnn.data.vocabulary import Vocabulary
from refactorgnn.errors import UserError
from refactorgnn.models.rivals.rule_extraction import Alignment, Followable, strongest_rules
from refactorgnn.models.rivals.rules_protocol import LearnedRule

NUM_RELATIONS = 6


def drawn(lengths: list[int], seed: int, sharpness: float) -> list[Alignment]:
    generator = torch.Generator().manual_seed(seed)
    weights = torch.rand(len(lengths), generator=generator, dtype=torch.float64)
    return [
        Alignment(
            float(weight),
            (sharpness * torch.randn(length, NUM_RELATIONS, generator=generator, dtype=torch.float64)).softmax(1),
        )
        for weight, length in zip(weights / weights.sum(), lengths, strict=True)
    ]


def chains_between(meets: Tensor, relation: int, length: int) -> list[tuple[int, ...]]:
    """All chains that lead from a subject of ``relation`` to an object of it, one by one."""
    back = (relation + NUM_RELATIONS // 2) % NUM_RELATIONS
    bodies = product(range(NUM_RELATIONS), repeat=length)
    return [body for body in bodies if all(meets[a, b] for a, b in pairwise((back, *body, back)))]


def all_rules(alignments: list[Alignment], meets: Tensor, relation: int) -> dict[tuple[int, ...], float]:
    totals: dict[tuple[int, ...], float] = {}
    for alignment in alignments:
        for body in chains_between(meets, relation, len(alignment.attentions)) if len(alignment.attentions) else []:
            value = alignment.weight
            for step, one in enumerate(body):
                value *= float(alignment.attentions[step, one])
            totals[body] = totals.get(body, 0.0) + value
    return totals


ANY = torch.ones(NUM_RELATIONS, NUM_RELATIONS, dtype=torch.float64)


@pytest.mark.parametrize("density", [1.0, 0.5, 0.2])
@pytest.mark.parametrize("sharpness", [0.0, 0.3, 3.0])
@pytest.mark.parametrize("limit", [1, 4, 30, 1000])
def test_they_are_those_of_enumeration(limit: int, sharpness: float, density: float) -> None:
    for seed in range(6):
        alignments = drawn([3, 3, 3, 2, 2, 1, 0], seed, sharpness)
        meets = (torch.rand(ANY.shape, generator=torch.Generator().manual_seed(seed)) < density).double()
        totals = all_rules(alignments, meets, relation=seed)
        whole = sum(totals.values())
        found = strongest_rules(alignments, Followable.between(meets, seed), limit)
        best = [weight / whole for weight in sorted(totals.values(), reverse=True)[:limit]]
        assert [rule.confidence for rule in found] == pytest.approx(best, abs=1e-12)
        assert len({rule.body for rule in found}) == len(found) == min(limit, len(totals))
        for rule in found:
            assert rule.confidence == pytest.approx(totals[rule.body] / whole, abs=1e-12)


def test_a_rule_that_is_best_in_no_alignment_can_be_the_best_of_all() -> None:
    """Second everywhere, first in the sum: one look at each alignment's best would miss it."""
    one = Alignment(0.5, torch.tensor([[0.5, 0.4, 0.1, 0.0]], dtype=torch.float64))
    other = Alignment(0.5, torch.tensor([[0.1, 0.4, 0.5, 0.0]], dtype=torch.float64))
    chosen = Followable.between(ANY[:4, :4], 0)
    assert strongest_rules([one, other], chosen, 1) == [LearnedRule((1,), pytest.approx(0.4))]


def test_attention_without_a_peak_is_refused_before_it_fills_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("refactorgnn.models.rivals.rule_extraction._MOST_NUMBERS", 4 * NUM_RELATIONS**2)
    with pytest.raises(UserError, match="spread too evenly over the relations"):
        strongest_rules(drawn([3, 3], 0, 0.1), Followable.between(ANY, 0), 4)
    with pytest.raises(UserError, match=r"5 rules of so many relations .* ask for fewer"):
        strongest_rules(drawn([3, 3], 0, 0.1), Followable.between(ANY, 0), 5)


def test_a_rule_in_words() -> None:
    relations = Vocabulary(["born in", "capital of", "lives in"], "relation")
    rule = LearnedRule((0, 1, 5), 0.25)
    assert rule.in_words(2, relations) == "lives in(X, Y) ← born in(X, A), capital of(A, B), lives in(Y, B)"
    assert LearnedRule((4,), 1.0).in_words(3, relations) == "born in(Y, X) ← capital of(Y, X)"
