"""What regimes share that ask about facts and wrong answers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from refactorgnn.data.graph import reciprocal
from refactorgnn.training.negatives import strict_negatives
from refactorgnn.training.regimes.base import Regime
from refactorgnn.training.rivals.grail import GraILConfig
from refactorgnn.training.rivals.nbfnet import NBFNetConfig


@dataclass(frozen=True)
class AskedFacts:
    """A batch.

    Args:
        questions: Facts to predict the tails of, reciprocal where the head is asked for; shape ``(num_questions, 3)``.
        negatives: Wrong answers, −1 where there are no more; shape ``(num_questions, num_negatives)``.
    """

    questions: Tensor
    negatives: Tensor

    @property
    def candidates(self) -> Tensor:
        """The truth and the wrong answers, the truth again where there are no more; ``(num_questions, 1 + …)``."""
        truth = self.questions[:, 2:]
        return torch.cat([truth, torch.where(self.negatives >= 0, self.negatives, truth)], dim=1)

    def share(self, rank: int, world_size: int) -> AskedFacts:
        """Every ``world_size``-th question."""
        return AskedFacts(self.questions[rank::world_size], self.negatives[rank::world_size])


class AskingRegime(Regime[AskedFacts]):
    """An epoch is one pass over the facts; of a batch, half are asked for their tails and half for their heads."""

    config: NBFNetConfig | GraILConfig

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.facts = self.graph.triples("train")
        self.known = self.graph.queries("train")

    def batches(self, epoch: int) -> Iterator[AskedFacts]:  # noqa: D102
        for chosen in torch.randperm(len(self.facts)).split(self.config.batch_size):
            tails, heads = self.facts[chosen].tensor_split(2)
            questions = torch.cat([tails, reciprocal(heads, self.graph.num_relations)])
            negatives = strict_negatives(self.known, questions, self.config.negatives)
            yield AskedFacts(questions.to(self.device), negatives.to(self.device))

    def forward(self, batch: AskedFacts) -> Tensor:  # noqa: D102
        mine = batch.share(self.share.rank, self.share.world_size)
        return self.total_loss(mine, batch) * self.share.world_size / len(batch.questions)

    @abstractmethod
    def total_loss(self, mine: AskedFacts, batch: AskedFacts) -> Tensor:
        """The summed loss of the questions ``mine``, this process's share of ``batch``."""

    def num_targets(self, batch: AskedFacts) -> int:  # noqa: D102
        return len(batch.questions)
