"""Settings of the member that tells linked entities from others."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from refactorgnn.training.rivals.gradient_free import GradientFreeConfig


class UnlinkedConfig(GradientFreeConfig):
    """Nothing is learned, and nothing is to be set."""

    model: Annotated[Literal["unlinked"], Field(description="The kind of model.")] = "unlinked"
    epochs: Annotated[int, Field(ge=0)] = 0
