"""Settings of RuleN."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from refactorgnn.models.rivals.rule_aggregation import Aggregation
from refactorgnn.models.rivals.rule_mining import MiningOptions
from refactorgnn.training.rivals.gradient_free import GradientFreeConfig


class RuleNConfig(GradientFreeConfig):
    """How to mine rules; it takes one epoch."""

    model: Annotated[Literal["rulen"], Field(description="The kind of model.")] = "rulen"
    epochs: Annotated[int, Field(ge=0)] = 1
    rule_length: Annotated[int, Field(ge=1, le=3, description="The most steps of a path rule.")] = 3
    facts_per_relation: Annotated[
        int, Field(ge=1, description="The most facts of a relation between whose ends paths are drawn.")
    ] = 1000
    paths_per_fact: Annotated[int, Field(ge=1, description="Paths of each length drawn for a fact.")] = 300
    body_samples: Annotated[
        int, Field(ge=1, description="The most first entities of a body's groundings that are counted.")
    ] = 1000
    min_support: Annotated[int, Field(ge=1, description="The fewest facts that a rule must predict rightly.")] = 2
    min_confidence: Annotated[float, Field(ge=0, lt=1, description="The least confidence of a rule.")] = 0.0
    laplace: Annotated[
        float, Field(gt=0, description="Added to the groundings of a body: support / (groundings + laplace).")
    ] = 5.0
    rules_per_relation: Annotated[int, Field(ge=1, description="The most path rules of a relation.")] = 1000
    constant_rules_per_relation: Annotated[
        int, Field(ge=0, description="The most rules with constants of a relation and of its reciprocal; 0: none.")
    ] = 100
    aggregation: Annotated[
        Aggregation,
        Field(description="Of an answer's rules: the best, ties by the next best (max), or all together (noisy-or)."),
    ] = "max"

    @property
    def mining(self) -> MiningOptions:
        """How to mine path rules."""
        return MiningOptions(
            self.rule_length, self.facts_per_relation, self.paths_per_fact, self.body_samples, self.min_support
        )
