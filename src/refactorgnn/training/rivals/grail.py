"""The settings of GraIL."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.models.rivals.grail import GraIL
from refactorgnn.training.rivals.base import QuestionConfig


class GraILConfig(QuestionConfig):
    """How to train GraIL; an epoch asks each training fact once, for its tail or for its head."""

    model: Annotated[Literal["grail"], Field(description="The kind of model.")] = "grail"
    learning_rate: Annotated[float, Field(gt=0)] = 0.01
    weight_decay: Annotated[float, Field(ge=0)] = 5e-4
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.5
    validate_every: Annotated[int, Field(ge=1)] = 10
    batch_size: Annotated[int, Field(ge=1)] = 16
    layers: Annotated[int, Field(ge=1)] = 3
    bases: Annotated[int, Field(ge=1)] = 4
    negatives: Annotated[int, Field(ge=1)] = 1
    radius: Annotated[int, Field(ge=1, description="Hops that a sub-graph reaches from both ends of a link.")] = 2
    validation_negatives: Annotated[
        int, Field(ge=0, description="Wrong answers that a validation ranks the right one among; 0: all entities.")
    ] = 49
    margin: Annotated[float, Field(gt=0, description="What a fact is to score above a wrong one.")] = 10.0

    def build(self, graph: KnowledgeGraph) -> GraIL:
        """The model with its initial weights."""
        return GraIL(
            graph.relations,
            self.dim,
            num_layers=self.layers,
            num_hops=self.radius,
            num_bases=self.bases,
            edge_dropout=self.dropout,
            seed=self.seed,
            memory_budget=self.memory_budget,
        )
