"""The settings of an ensemble: its members, each with its weight and the settings it was trained with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SerializeAsAny, ValidationError

from refactorgnn.errors import FileError, UserError
from refactorgnn.training.config import TrainConfig
from refactorgnn.training.strict_yaml import read_mapping


def _member_settings(settings: Any) -> TrainConfig:
    if isinstance(settings, TrainConfig):
        return settings
    if not isinstance(settings, dict):
        raise UserError("its settings are missing.")
    return TrainConfig.from_dict(settings)


class MemberConfig(BaseModel):
    """A member of an ensemble."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    run: Annotated[str, Field(description="The run it comes from; it need not be there any more.")]
    weight: Annotated[float, Field(gt=0, description="The factor of its scores.")]
    # As the kind of settings it is: plain, only what all kinds share would be written.
    settings: Annotated[SerializeAsAny[TrainConfig], BeforeValidator(_member_settings)]


class EnsembleConfig(BaseModel):
    """The members of an ensemble; see :class:`refactorgnn.models.ensemble.Ensemble`."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    unused: ClassVar[tuple[str, ...]] = ()

    model: Literal["ensemble"] = "ensemble"
    members: Annotated[tuple[MemberConfig, ...], Field(min_length=1)]

    @property
    def scorer(self) -> str:
        """The score functions of the members."""
        return "+".join(member.settings.scorer for member in self.members)

    @property
    def dim(self) -> int:
        """The width of an entity's concatenated states."""
        return sum(member.settings.dim for member in self.members)

    @property
    def weights(self) -> list[float]:
        """The weights of the members."""
        return [member.weight for member in self.members]

    @classmethod
    def from_dict(cls, settings: dict[str, Any], source: str | Path) -> EnsembleConfig:
        """Check what was read from ``source``; the error names the place and what is wrong there."""
        try:
            return cls.model_validate(settings)
        except ValidationError as error:
            raise FileError(source, _first_problem(error), "correct it") from error

    def to_yaml(self) -> str:
        """The settings as YAML, in the order of the fields."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


RunConfig: TypeAlias = TrainConfig | EnsembleConfig


def setting_of(config: RunConfig, name: str) -> Any:
    """A setting, or None if it has no meaning for such a model."""
    return None if name in config.unused else getattr(config, name)


def read_config(path: Path) -> RunConfig:
    """The settings of a run folder."""
    return config_from(read_mapping(path, remedy="restore it or train again"), path)


def config_from(settings: dict[str, Any], source: Path) -> RunConfig:
    """The settings that were read from ``source``, checked."""
    if settings.get("model") == "ensemble":
        return EnsembleConfig.from_dict(settings, source)
    return TrainConfig.from_dict(settings, source=source)


def _first_problem(error: ValidationError) -> str:
    problem = error.errors()[0]
    place = ".".join(map(str, problem["loc"]))
    cause = problem.get("ctx", {}).get("error")
    if isinstance(cause, UserError):
        return f"{place}: {str(cause).rstrip('.?')}"
    return f"{place}: {problem['msg'].lower()}"
