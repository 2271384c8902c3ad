"""The strongest rules, found without listing all chains, are those found by listing them."""

from __future__ import annotations

from itertools import product

import pytest
import torch

from refactorgnn.data.vocabulary import Vocabulary
from refactorgnn.errors import UserError
from refactorgnn.models.rivals.rule_extraction import Alignment, strongest_rules
from refactorgnn.models.rivals.rules_protocol import LearnedRule

NUM_RELATIONS = 5


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


def all_rules(alignments: list[Alignment]) -> dict[tuple[int, ...], float]:
    totals: dict[tuple[int, ...], float] = {}
    for alignment in alignments:
        for body in product(range(NUM_RELATIONS), repeat=len(alignment.attentions)):
            value = alignment.weight
            for step, relation in enumerate(body):
                value *= float(alignment.attentions[step, relation])
            totals[body] = totals.get(body, 0.0) + value
    return totals


@pytest.mark.parametrize("sharpness", [0.0, 0.3, 3.0])
@pytest.mark.parametrize("limit", [1, 4, 30, 1000])
def test_they_are_those_of_enumeration(limit: int, sharpness: float) -> None:
    for seed in range(10):
        alignments = drawn([3, 3, 3, 2, 2, 1, 0], seed, sharpness)
        totals = all_rules(alignments)
        assert sum(totals.values()) == pytest.approx(1)
        del totals[()]  # that nothing moves is no rule
        found = strongest_rules(alignments, limit)
        best = sorted(totals.values(), reverse=True)[:limit]
        assert [rule.confidence for rule in found] == pytest.approx(best, abs=1e-12)
        assert len({rule.body for rule in found}) == len(found) == min(limit, 155)
        for rule in found:
            assert rule.confidence == pytest.approx(totals[rule.body], abs=1e-12)


def test_a_rule_that_is_best_in_no_alignment_can_be_the_best_of_all() -> None:
    """Second everywhere, first in the sum: one look at each alignment's best would miss it."""
    one = Alignment(0.5, torch.tensor([[0.5, 0.4, 0.1]], dtype=torch.float64))
    other = Alignment(0.5, torch.tensor([[0.1, 0.4, 0.5]], dtype=torch.float64))
    assert strongest_rules([one, other], 1) == [LearnedRule((1,), pytest.approx(0.4))]


def test_attention_without_a_peak_is_refused_before_it_fills_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("refactorgnn.models.rivals.rule_extraction._MOST_NUMBERS", 20)
    with pytest.raises(UserError, match="spread too evenly over the relations"):
        strongest_rules(drawn([3, 3], 0, 0.1), 4)


def test_a_rule_in_words() -> None:
    relations = Vocabulary(["born in", "capital of", "lives in"], "relation")
    rule = LearnedRule((0, 1, 5), 0.25)
    assert rule.in_words(2, relations) == "lives in(X, Y) ← born in(X, A), capital of(A, B), lives in(Y, B)"
    assert LearnedRule((4,), 1.0).in_words(3, relations) == "born in(Y, X) ← capital of(Y, X)"
