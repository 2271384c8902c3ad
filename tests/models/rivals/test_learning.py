"""Rivals that have learned a little on half of the world answer about the other half."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest
import torch

from refactorgnn.data.loading import load_pair
from refactorgnn.evaluation.protocols import evaluate_ranking
from refactorgnn.seeds import combined_seed
from tests.training.settings import make

# Settings, steps of Adam, and the least MRR on the unseen graph; that of the untrained models is below 0.06.
LEARNED = {
    "nbfnet": ({"layers": 3, "dim": 8, "batch_size": 16, "learning_rate": 0.01}, 80, 0.45),
    "grail": ({"dropout": 0.0, "dim": 16, "learning_rate": 0.01}, 240, 0.2),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LEARNED)
def test_it_learns_what_holds_on_an_unseen_graph(name: str) -> None:
    settings, num_steps, least = LEARNED[name]
    pair = load_pair("countries_part", progress=False)
    regime = make(pair.train, model=name, **settings)
    before = _mrr_on_unseen(regime, pair)
    optimizer = torch.optim.Adam(regime.model.parameters(), lr=regime.config.learning_rate)
    torch.manual_seed(0)
    for number, batch in enumerate(islice(regime.train().batches(1), num_steps)):
        optimizer.zero_grad()
        regime(batch).backward()
        optimizer.step()
        torch.manual_seed(combined_seed(0, number))
    after = _mrr_on_unseen(regime, pair)
    assert before < 0.06 < least < after, (before, after)


def _mrr_on_unseen(regime: Any, pair: Any) -> float:
    bound = regime.model.eval().bind(pair.unseen)
    return evaluate_ranking(bound, pair.unseen, "test", confidence=False).metrics["mrr"]
