"""Settings of personalised PageRank."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from refactorgnn.models.rivals.ppr import Neighbours, RelationRange
from refactorgnn.training.rivals.gradient_free import GradientFreeConfig


class PPRConfig(GradientFreeConfig):
    """How to walk; nothing is learned."""

    model: Annotated[Literal["ppr"], Field(description="The kind of model.")] = "ppr"
    epochs: Annotated[int, Field(ge=0)] = 0
    restart: Annotated[float, Field(gt=0, lt=1, description="The probability of a return to the subject.")] = 0.15
    tolerance: Annotated[
        float, Field(gt=0, lt=1, description="The most that the probabilities of a subject may be off, in all.")
    ] = 1e-6
    relation_range: Annotated[
        RelationRange,
        Field(description="Rank entities seen as objects of the relation before the others (first), or not (any)."),
    ] = "any"
    neighbours: Annotated[
        Neighbours,
        Field(description="Take any entity linked to the subject, or not those whose links exclude the relation."),
    ] = "any"
