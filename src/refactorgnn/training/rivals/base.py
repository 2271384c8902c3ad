"""What the settings of rivals share."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from refactorgnn.training.config import OptimizerName, TrainConfig, refuse_changed

# They have their own decoders, and initial values as their authors'.
UNUSED = ("scorer", "init_scale", "dropout")


class QuestionConfig(TrainConfig):
    """What models share that read the graph anew for each question: no entity states, no registered scorer."""

    dim: Annotated[int, Field(ge=1)] = 32
    optimizer: OptimizerName = "adam"
    epochs: Annotated[int, Field(ge=0)] = 20
    validate_every: Annotated[int, Field(ge=1)] = 1

    @model_validator(mode="after")
    def _has_no_scorer(self) -> QuestionConfig:
        refuse_changed(self, UNUSED, f"does nothing for {self.model}")
        return self
