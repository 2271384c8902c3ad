"""Training GraIL: facts are to score a margin above wrong ones."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from refactorgnn.models.rivals.enclosing import Surroundings
from refactorgnn.models.rivals.grail import GraIL
from refactorgnn.training.regimes.asking import AskedFacts, AskingRegime
from refactorgnn.training.rivals.grail import GraILConfig


class GraILRegime(AskingRegime):
    """A fact is not in the sub-graph it is judged by; the other facts of a batch stay, as the paper has it."""

    model: GraIL
    config: GraILConfig

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.surroundings = Surroundings(self.known.to(self.device), self.config.radius)

    def total_loss(self, mine: AskedFacts, batch: AskedFacts) -> Tensor:  # noqa: D102
        num_questions, num_negatives = mine.negatives.shape
        wrong = mine.questions.repeat_interleave(num_negatives, dim=0)
        wrong[:, 2] = mine.negatives.clamp(min=0).flatten()
        scores = self.model(self.surroundings, torch.cat([mine.questions, wrong]))
        truth, others = scores[:num_questions], scores[num_questions:].view(num_questions, num_negatives)
        return margin_loss(truth, others, mine.negatives >= 0, self.config.margin)


def margin_loss(truth: Tensor, others: Tensor, is_real: Tensor, margin: float) -> Tensor:
    """``Σ_ij max(0, margin − truth_i + others_ij)``, over the wrong answers that are real."""
    return (torch.relu(margin - truth[:, None] + others) * is_real).sum()
