"""What GraIL is asked while it learns."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from refactorgnn import UserError
from refactorgnn.data import load_graph
from refactorgnn.training.config import TrainConfig
from refactorgnn.training.processes import Share
from refactorgnn.training.regimes.grail import margin_loss
from tests.training.settings import TRAININGS, make


def test_the_loss_is_its_formula_and_leaves_out_what_is_not_there() -> None:
    truth, others = torch.tensor([3.0, 20.0]), torch.tensor([[1.0, 9.0], [5.0, 12.0]])
    is_real = torch.tensor([[True, False], [True, True]])
    assert float(margin_loss(truth, others, is_real, 10.0)) == 8.0 + 0.0 + 2.0


def test_a_step_compares_each_fact_with_its_own_wrong_answers_and_shares_them(tiny: Path) -> None:
    """The loss is that of triples scored one by one, and that of two processes averages to it."""
    regime = make(load_graph(str(tiny), progress=False), **TRAININGS["grail"] | {"dropout": 0.0, "negatives": 3})
    torch.manual_seed(3)
    batch = next(iter(regime.batches(1)))
    model, around = regime.model, regime.surroundings
    expected = 0.0
    for question, wrong in zip(batch.questions, batch.negatives, strict=True):
        for other in wrong.tolist():
            pair = torch.stack([question, torch.tensor([*question[:2].tolist(), other])])
            truth, worse = model(around, pair).tolist()
            expected += max(0.0, 10.0 - truth + worse)
    whole = regime(batch)
    assert float(whole.detach()) == pytest.approx(expected / len(batch.questions), rel=1e-5)
    shares = []
    for rank in range(2):
        regime.share = Share(rank, 2)
        shares.append(regime(batch))
    torch.testing.assert_close(torch.stack(shares).mean(), whole)


@pytest.mark.parametrize("setting", [{"scorer": "complex"}, {"init_scale": 0.7}], ids=str)
def test_settings_without_a_meaning_are_refused(setting: dict[str, object]) -> None:
    with pytest.raises(UserError, match="does nothing for grail"):
        TrainConfig.from_dict({"dataset": "x", "model": "grail", **setting})


def test_a_process_without_a_question_takes_part_in_the_gradient(tiny: Path) -> None:
    regime = make(load_graph(str(tiny), progress=False), **TRAININGS["grail"] | {"batch_size": 1})
    regime.share = Share(1, 2)
    loss = regime(next(iter(regime.batches(1))))
    loss.backward()
    assert float(loss.detach()) == 0.0
    assert all(torch.equal(p.grad, torch.zeros_like(p)) for p in regime.model.parameters())
