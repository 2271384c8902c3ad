"""The settings of a training run: typed, documented, refused when unknown or out of range."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic.fields import FieldInfo

from refactorgnn.errors import FileError, UserError, closest_names, unknown_name
from refactorgnn.layers import NTerm, Optimizer
from refactorgnn.models.features import feature_names
from refactorgnn.scorers import SCORERS, make_scorer


class TrainConfig(BaseModel):
    """How to train a model: what all kinds of models share; each kind has a class of its own below.

    Every field can be given to :func:`refactorgnn.train` by name and to ``refactorgnn train`` as an option.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)

    dataset: Annotated[str, Field(description="Dataset name, folder with train/valid/test, or file of triples.")]
    model: Annotated[str, Field(description="The kind of model.")]
    scorer: Annotated[str, Field(description="The score function.")] = "distmult"
    dim: Annotated[int, Field(ge=1, description="The width of an entity state, in real numbers.")] = 256
    seed: Annotated[int, Field(ge=0, lt=2**63, description="Seeds initial values, order, dropout, file splits.")] = 0
    epochs: Annotated[
        int, Field(ge=1, description="The most epochs: passes over the questions, or cycles of L layers.")
    ] = 100
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
            config = _config_class(settings).model_validate(settings)
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
        return cls.from_dict(read_settings(path), source=path)

    def to_yaml(self) -> str:
        """The settings as YAML, in the order of the fields."""
        return yaml.safe_dump(self.model_dump(), sort_keys=False, allow_unicode=True)


class LookupConfig(TrainConfig):
    """How to train a lookup (factorisation) model."""

    model: Annotated[Literal["lookup"], Field(description="The kind of model.")] = "lookup"
    batch_size: Annotated[int, Field(ge=1, description="Questions (subject, relation) in a batch.")] = 256


class ReFactorConfig(TrainConfig):
    """How to train a ReFactor GNN; an epoch is one cycle of as many steps as there are layers."""

    model: Annotated[Literal["refactor"], Field(description="The kind of model.")] = "refactor"
    dim: Annotated[int, Field(ge=1)] = 384
    optimizer: Literal["adagrad", "adam"] = "adam"
    learning_rate: Annotated[float, Field(gt=0)] = 0.01
    n3: Annotated[float, Field(ge=0)] = 0.0
    init_scale: Annotated[float, Field(gt=0)] = 0.1
    validate_every: Annotated[int, Field(ge=1)] = 10
    layers: Annotated[int, Field(ge=1, description="The number L of layers.")] = 6
    features: Annotated[str, Field(description="Where states start: random, text, signature, joined with +.")] = (
        "random"
    )
    alpha: Annotated[float, Field(gt=0, description="The step size of a layer.")] = 0.03
    layer_optimizer: Annotated[Optimizer, Field(description="The optimiser whose step a layer is.")] = "adagrad"
    n_term: Annotated[NTerm, Field(description="The global term of a layer.")] = "exact"
    mask: Annotated[float, Field(ge=0, lt=1, description="Share of facts held out as targets; 0: as the paper.")] = 0.3
    draws: Annotated[int, Field(ge=1, description="Random draws of the features averaged when answering.")] = 1

    @field_validator("features")
    @classmethod
    def _known_features(cls, names: str) -> str:
        return "+".join(feature_names(names))


CONFIGS: dict[str, type[TrainConfig]] = {"lookup": LookupConfig, "refactor": ReFactorConfig}


def read_settings(path: str | Path) -> dict[str, Any]:
    """The settings in a YAML file, not yet checked."""
    try:
        settings = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise FileError(path, "this is not a YAML file", "restore it or train again") from error
    if not isinstance(settings, dict):
        raise FileError(path, "this YAML file holds no settings", "restore it or train again")
    return settings


def settings_by_name() -> dict[str, dict[str, FieldInfo]]:
    """Every setting, with the models that have it and what it is there."""
    found: dict[str, dict[str, FieldInfo]] = {}
    for model, config in CONFIGS.items():
        for name, field in config.model_fields.items():
            found.setdefault(name, {})[model] = field
    return found


def _config_class(settings: dict[str, Any]) -> type[TrainConfig]:
    model = settings.get("model", "lookup")
    if model not in CONFIGS:
        raise unknown_name("model", str(model), list(CONFIGS))
    owners = settings_by_name()
    for name in settings:
        if name in owners and model not in owners[name]:
            raise UserError(
                f"setting {name!r} belongs to model {' and '.join(owners[name])}: leave it out for {model}."
            )
    return CONFIGS[model]


def _first_problem(error: ValidationError) -> str:
    problem = error.errors()[0]
    name = str(problem["loc"][0]) if problem["loc"] else "setting"
    if problem["type"] == "missing":
        return f"setting {name!r} is missing."
    if problem["type"] == "extra_forbidden":
        known = list(settings_by_name())
        closest = closest_names(name, known)
        hint = f"did you mean {closest[0]!r}?" if closest else f"known are {', '.join(known)}."
        return f"unknown setting {name!r}: {hint}"
    cause = problem.get("ctx", {}).get("error")
    if isinstance(cause, UserError):
        return str(cause)
    reason = problem["msg"].removeprefix("Input ")
    return f"setting {name} cannot be {problem['input']!r}: it {reason}."
