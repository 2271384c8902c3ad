"""What the settings of rivals share."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from refactorgnn.training.config import OptimizerName, TrainConfig
from refactorgnn.training.setting_errors import refuse_changed


class QuestionConfig(TrainConfig):
    """What models share that read the graph anew for each question: no entity states, no registered scorer.

    Decoders and initial values are the models' own.
    """

    unused: ClassVar[tuple[str, ...]] = ("scorer", "init_scale")

    dim: Annotated[int, Field(ge=1)] = 32
    optimizer: OptimizerName = "adam"
    epochs: Annotated[int, Field(ge=0)] = 20
    validate_every: Annotated[int, Field(ge=1)] = 1

    @model_validator(mode="after")
    def _unused_are_left_out(self) -> QuestionConfig:
        refuse_changed(self, self.unused, f"does nothing for {self.model}")
        return self
