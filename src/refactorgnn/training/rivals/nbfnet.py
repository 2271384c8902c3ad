"""The settings of NBFNet."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.models.rivals.nbfnet import NBFNet
from refactorgnn.training.rivals.base import QuestionConfig


class NBFNetConfig(QuestionConfig):
    """How to train NBFNet; an epoch asks each training fact once, for its tail or for its head."""

    unused: ClassVar[tuple[str, ...]] = (*QuestionConfig.unused, "dropout")

    model: Annotated[Literal["nbfnet"], Field(description="The kind of model.")] = "nbfnet"
    learning_rate: Annotated[float, Field(gt=0)] = 0.005
    batch_size: Annotated[int, Field(ge=1)] = 64
    layers: Annotated[int, Field(ge=1)] = 6
    dependent: Annotated[bool, Field(description="Let the relations of a layer depend on the one asked for.")] = True
    negatives: Annotated[int, Field(ge=1, description="Wrong answers drawn for each question.")] = 32
    temperature: Annotated[
        float, Field(gt=0, description="Of the weights of wrong answers: the lower, the more the best count.")
    ] = 0.5
    remove_one_hop: Annotated[
        bool,
        Field(
            description="While training, remove all facts between a subject and the candidates, right or wrong ones."
        ),
    ] = True

    def build(self, graph: KnowledgeGraph) -> NBFNet:
        """The model with its initial weights."""
        return NBFNet(
            graph.relations,
            self.dim,
            num_layers=self.layers,
            dependent=self.dependent,
            seed=self.seed,
            memory_budget=self.memory_budget,
        )
