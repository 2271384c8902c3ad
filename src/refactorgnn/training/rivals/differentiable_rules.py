"""The settings of Neural-LP and DRUM."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.models.rivals.drum import DRUM
from refactorgnn.models.rivals.neural_lp import NeuralLP
from refactorgnn.training.rivals.base import QuestionConfig


class DifferentiableRulesConfig(QuestionConfig):
    """What models share that learn rules by attention; an epoch is one pass over all facts, asked from both ends."""

    unused: ClassVar[tuple[str, ...]] = (*QuestionConfig.unused, "dropout")

    dim: Annotated[int, Field(ge=1)] = 128
    learning_rate: Annotated[float, Field(gt=0)] = 1e-3
    batch_size: Annotated[int, Field(ge=1)] = 64
    rule_length: Annotated[int, Field(ge=1, le=8, description="The most relations in the body of a rule.")] = 3


class NeuralLPConfig(DifferentiableRulesConfig):
    """How to train Neural-LP."""

    model: Annotated[Literal["neural-lp"], Field(description="The kind of model.")] = "neural-lp"

    def build(self, graph: KnowledgeGraph) -> NeuralLP:
        """The model with its initial weights."""
        model = NeuralLP(graph.relations, self.dim, self.rule_length, seed=self.seed, memory_budget=self.memory_budget)
        model.look_at(graph)
        return model


class DRUMConfig(DifferentiableRulesConfig):
    """How to train DRUM."""

    model: Annotated[Literal["drum"], Field(description="The kind of model.")] = "drum"
    rank: Annotated[int, Field(ge=1, description="Products of attention that are added up.")] = 3

    def build(self, graph: KnowledgeGraph) -> DRUM:
        """The model with its initial weights."""
        model = DRUM(
            graph.relations, self.dim, self.rule_length, self.rank, seed=self.seed, memory_budget=self.memory_budget
        )
        model.look_at(graph)
        return model
