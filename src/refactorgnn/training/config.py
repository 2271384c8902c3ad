"""The settings of a training run: typed, documented, refused when unknown or out of range."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from refactorgnn.errors import FileError, UserError, closest_names, unknown_name
from refactorgnn.scorers import SCORERS, make_scorer


class TrainConfig(BaseModel):
    """How to train a model.

    Every field can be given to :func:`refactorgnn.train` by name and to ``refactorgnn train`` as an option.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)

    dataset: Annotated[str, Field(description="Dataset name, folder with train/valid/test, or file of triples.")]
    model: Annotated[Literal["lookup"], Field(description="The kind of model.")] = "lookup"
    scorer: Annotated[str, Field(description="The score function.")] = "distmult"
    dim: Annotated[int, Field(ge=1, description="The width of an entity state, in real numbers.")] = 256
    seed: Annotated[int, Field(ge=0, lt=2**63, description="Seeds initial values, order, dropout, file splits.")] = 0
    epochs: Annotated[int, Field(ge=1, description="The most passes over the training triples.")] = 100
    batch_size: Annotated[int, Field(ge=1, description="Questions (subject, relation) in a batch.")] = 256
    optimizer: Annotated[Literal["adagrad", "adam"], Field(description="The optimiser.")] = "adagrad"
    learning_rate: Annotated[float, Field(gt=0, description="The optimiser's step size.")] = 0.1
    n3: Annotated[float, Field(ge=0, description="The weight of the N3 regulariser.")] = 1e-2
    dropout: Annotated[float, Field(ge=0, lt=1, description="Dropout on subject and relation.")] = 0.0
    init_scale: Annotated[float, Field(gt=0, description="Standard deviation of the initial values.")] = 1e-3
    validate_every: Annotated[int, Field(ge=1, description="Epochs between two validations.")] = 3
    patience: Annotated[int, Field(ge=1, description="Validations without a better MRR before stopping.")] = 5
    device: Annotated[str, Field(description="Where to compute: cpu, cuda, cuda:1, …")] = "cpu"
    threads: Annotated[int, Field(ge=0, description="CPU threads; 0: as many as there are cores.")] = 0
    memory_budget_mb: Annotated[int, Field(ge=1, description="MiB of temporaries of the score products.")] = 128

    @field_validator("scorer")
    @classmethod
    def _known_scorer(cls, name: str) -> str:
        if name not in SCORERS:
            raise unknown_name("scorer", name, list(SCORERS))
        return name

    @classmethod
    def from_dict(cls, settings: dict[str, Any], source: str | Path | None = None) -> TrainConfig:
        """Check settings; the error names the setting, what is wrong with it, and the nearest known name."""
        try:
            config = cls.model_validate(settings)
            make_scorer(config.scorer, config.dim)  # refuses a width the scorer cannot use
        except (ValidationError, UserError) as error:
            message = _first_problem(error) if isinstance(error, ValidationError) else str(error)
            raise (
                UserError(message) if source is None else FileError(source, message.rstrip(".?"), "correct it")
            ) from error
        return config

    @classmethod
    def from_yaml(cls, path: str | Path) -> TrainConfig:
        """Read settings from a YAML file."""
        try:
            settings = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise FileError(path, "this is not a YAML file", "restore it or train again") from error
        if not isinstance(settings, dict):
            raise FileError(path, "this YAML file holds no settings", "restore it or train again")
        return cls.from_dict(settings, source=path)

    def to_yaml(self) -> str:
        """The settings as YAML, in the order of the fields."""
        return yaml.safe_dump(self.model_dump(), sort_keys=False, allow_unicode=True)


def _first_problem(error: ValidationError) -> str:
    problem = error.errors()[0]
    name = str(problem["loc"][0]) if problem["loc"] else "setting"
    if problem["type"] == "missing":
        return f"setting {name!r} is missing."
    if problem["type"] == "extra_forbidden":
        closest = closest_names(name, TrainConfig.model_fields)
        hint = f"did you mean {closest[0]!r}?" if closest else f"known are {', '.join(TrainConfig.model_fields)}."
        return f"unknown setting {name!r}: {hint}"
    cause = problem.get("ctx", {}).get("error")
    if isinstance(cause, UserError):
        return str(cause)
    reason = problem["msg"].removeprefix("Input ")
    return f"setting {name} cannot be {problem['input']!r}: it {reason}."
