"""What the settings share of models that no gradient is taken of."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from refactorgnn.training.config import TrainConfig
from refactorgnn.training.setting_errors import refuse_changed


class GradientFreeConfig(TrainConfig):
    """How to make a model without gradients: whatever says how to descend, or how wide states are, is refused."""

    unused: ClassVar[tuple[str, ...]] = (
        "scorer", "dim", "epochs", "optimizer", "learning_rate", "weight_decay", "average", "clip", "dropout",
        "init_scale", "validate_every", "patience", "devices", "strategy", "precision",
    )  # fmt: skip

    validate_every: Annotated[int, Field(ge=1)] = 1

    @model_validator(mode="after")
    def _nothing_is_descended(self) -> GradientFreeConfig:
        refuse_changed(self, self.unused, f"does nothing for {self.model}, which has neither states nor gradients")
        return self
