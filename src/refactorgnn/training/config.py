"""The settings of a training run: typed, documented, refused when unknown or out of range."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic.fields import FieldInfo

from refactorgnn.errors import FileError, UserError, joined_names, unknown_name
from refactorgnn.layers import N3Weighting, Optimizer
from refactorgnn.likelihood import NTerm
from refactorgnn.models.features import RANDOM_SCALE, feature_names
from refactorgnn.models.forgetting import LEARNED_FEATURES
from refactorgnn.models.gnn import check_heads
from refactorgnn.scorers import SCORERS, DotScorer, make_scorer
from refactorgnn.training.facts import MaskBy
from refactorgnn.training.setting_errors import (
    first_problem,
    models_in_words,
    refuse_changed,
    refuse_learned,
    refuse_unless_bilinear,
    refuse_unused_by_features,
)
from refactorgnn.training.strict_yaml import read_mapping

OptimizerName = Literal["adagrad", "adam", "sgd"]
N3 = Annotated[float, Field(ge=0, description="The weight of the N3 regulariser.")]
RelationLoss = Annotated[
    float, Field(ge=0, description="The weight of predicting the relation of each fact as well; 0: objects only.")
]
LOGGERS = ("csv", "tensorboard")


def logger_names(names: str) -> list[str]:
    """The names joined in ``names``, once it is certain that each is known and named once."""
    return joined_names("log", names.split("+") if names else [], LOGGERS)


class TrainConfig(BaseModel):
    """How to train a model: what all kinds of models share; each kind has a class of its own below.

    Every field can be given to :func:`refactorgnn.train` by name and to ``refactorgnn train`` as an option.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)
    # Settings that are shared by all kinds and have no meaning for this one, which refuses others than the default.
    unused: ClassVar[tuple[str, ...]] = ()

    dataset: Annotated[str, Field(description="Dataset name, folder with train/valid/test, or file of triples.")]
    model: Annotated[str, Field(description="The kind of model.")]
    scorer: Annotated[str, Field(description="The score function.")] = "distmult"
    dim: Annotated[int, Field(ge=1, description="The width of an entity state, in real numbers.")] = 256
    seed: Annotated[int, Field(ge=0, lt=2**63, description="Seeds initial values, order, dropout, file splits.")] = 0
    epochs: Annotated[
        int, Field(ge=0, description="The most epochs; what one is depends on the model. 0: keep the initial values.")
    ] = 100
    optimizer: Annotated[OptimizerName, Field(description="The optimiser.")] = "adagrad"
    learning_rate: Annotated[float, Field(gt=0, description="The optimiser's step size.")] = 0.1
    weight_decay: Annotated[float, Field(ge=0, description="The optimiser's weight decay.")] = 0.0
    average: Annotated[
        float, Field(ge=0, lt=1, description="What a running average of the weights keeps an epoch; 0: no average.")
    ] = 0.0
    clip: Annotated[float, Field(ge=0, description="The largest norm of a gradient; 0: any.")] = 0.0
    dropout: Annotated[float, Field(ge=0, lt=1, description="Dropout on subject and relation.")] = 0.0
    init_scale: Annotated[float, Field(gt=0, description="Standard deviation of the initial values.")] = 1e-3
    validate_every: Annotated[int, Field(ge=1, description="Epochs between two validations.")] = 3
    patience: Annotated[int, Field(ge=1, description="Validations without a better MRR before stopping.")] = 5
    accelerator: Annotated[
        Literal["auto", "cpu", "gpu", "cuda", "mps"], Field(description="Where to compute; auto: on the best there is.")
    ] = "auto"
    devices: Annotated[str, Field(description="How many, such as 2 or auto, or which, such as '3,' or '0,1'.")] = "1"
    strategy: Annotated[
        Literal["auto", "ddp", "ddp_spawn", "ddp_fork"],
        Field(description="How several processes begin: by this command again (ddp), by a fork, or spawned (auto)."),
    ] = "auto"
    precision: Annotated[
        Literal["32-true", "bf16-mixed"],
        Field(description="Of matrix products: float32, or bfloat16 with float32 sums."),
    ] = "32-true"
    tf32: Annotated[
        bool, Field(description="On a GPU: round the factors of float32 products to TF32, several times as fast.")
    ] = False
    replay: Annotated[
        bool,
        Field(description="On a GPU: record an epoch whose tensors keep their shapes as a CUDA graph, then replay it."),
    ] = True
    log: Annotated[str, Field(description="Logs beside metrics.jsonl: csv, tensorboard, joined with +.")] = ""
    threads: Annotated[int, Field(ge=0, description="CPU threads; 0: as many as there are cores.")] = 0
    memory_budget_mb: Annotated[
        int, Field(ge=0, description="MiB of temporaries; 0: 128 on a CPU, 432 on a GPU (nbfnet 1,024, rulen 240).")
    ] = 0

    @property
    def kind(self) -> list[str]:
        """What to call the model by: its name, and the scorer's if it has one."""
        return [self.model] if "scorer" in self.unused else [self.model, self.scorer]

    @field_validator("scorer")
    @classmethod
    def _known_scorer(cls, name: str) -> str:
        if name not in SCORERS:
            raise unknown_name("scorer", name, list(SCORERS))
        return name

    @field_validator("log")
    @classmethod
    def _known_loggers(cls, names: str) -> str:
        return "+".join(logger_names(names))

    @field_validator("devices", mode="before")
    @classmethod
    def _countable_devices(cls, devices: Any) -> str:
        text = str(devices)  # YAML and Python have numbers
        if text != "auto" and not re.fullmatch(r"[1-9]\d*|\d+(,\d+)+|\d+,", text):
            raise UserError(
                f"setting devices cannot be {text!r}: give how many, such as 2 or auto, "
                "or which, such as '3,' or '0,1'."
            )
        return text

    @model_validator(mode="after")
    def _strategy_is_used(self) -> TrainConfig:
        if self.devices == "1" or self.devices.endswith(","):
            refuse_changed(self, ("strategy",), "needs several devices")
        return self

    @classmethod
    def from_dict(cls, settings: dict[str, Any], source: str | Path | None = None) -> TrainConfig:
        """Check settings; the error names the setting, what is wrong with it, and the nearest known name."""
        try:
            config = _config_class(settings).model_validate(settings)
            make_scorer(config.scorer, config.dim)  # refuses a width the scorer cannot use
        except (ValidationError, UserError) as error:
            message = first_problem(error, settings_by_name()) if isinstance(error, ValidationError) else str(error)
            raise (
                UserError(message) if source is None else FileError(source, message.rstrip(".?"), "correct it")
            ) from error
        return config

    @classmethod
    def from_yaml(cls, path: str | Path) -> TrainConfig:
        """Read the settings of a run; a file that a user wrote is read by :mod:`refactorgnn.training.config_files`."""
        settings = read_mapping(path, remedy="restore it or train again")
        return cls.from_dict(settings, source=path)

    @property
    def memory_budget(self) -> int | None:
        """Bytes of temporaries of the score products; None: by the device."""
        return self.memory_budget_mb * 2**20 or None

    def to_yaml(self) -> str:
        """The settings as YAML, in the order of the fields."""
        return yaml.safe_dump(self.model_dump(), sort_keys=False, allow_unicode=True)


class LookupConfig(TrainConfig):
    """How to train a lookup (factorisation) model; an epoch is one pass over the training questions."""

    model: Annotated[Literal["lookup"], Field(description="The kind of model.")] = "lookup"
    batch_size: Annotated[int, Field(ge=1, description="Questions (subject, relation) in a batch.")] = 256
    n3: N3 = 1e-2
    relation_loss: RelationLoss = 0.0

    @model_validator(mode="after")
    def _relations_can_be_predicted(self) -> LookupConfig:
        refuse_unless_bilinear(self, self.scorer, self.dim)
        return self


class FeatureConfig(TrainConfig):
    """What models share whose states start from features."""

    features: Annotated[
        str, Field(description="Where states start: random, text, signature or learned (for one graph), joined with +.")
    ] = "random"
    feature_scale: Annotated[
        float, Field(gt=0, description="Standard deviation of random features, and of learned ones at first.")
    ] = RANDOM_SCALE
    text_encoder: Annotated[
        str, Field(description="Sentence-transformers model that reads texts; empty: all-MiniLM-L6-v2.")
    ] = ""

    @field_validator("features")
    @classmethod
    def _known_features(cls, names: str) -> str:
        return "+".join(feature_names(names))

    @model_validator(mode="after")
    def _features_use_their_settings(self) -> FeatureConfig:
        refuse_unused_by_features(self, self.features.split("+"))
        return self


class ForgettingConfig(FeatureConfig):
    """How to train with active forgetting; an epoch is one life of the table, from the features to the reset."""

    model: Annotated[Literal["forgetting"], Field(description="The kind of model.")] = "forgetting"
    batch_size: Annotated[int, Field(ge=0, description="Questions (subject, relation) in a batch; 0: all.")] = 256
    n3: N3 = 1e-2
    forget_every: Annotated[int, Field(ge=1, description="Steps between two resets of the states.")] = 100

    @field_validator("features")
    @classmethod
    def _not_learned(cls, names: str) -> str:
        if {"signature", "learned"} & set(names.split("+")):
            raise UserError(LEARNED_FEATURES)
        return names


class EncoderConfig(FeatureConfig):
    """What models share that compute states from features and facts."""

    dim: Annotated[int, Field(ge=1)] = 384
    optimizer: OptimizerName = "adam"
    learning_rate: Annotated[float, Field(gt=0)] = 0.01
    init_scale: Annotated[float, Field(gt=0)] = 0.1
    validate_every: Annotated[int, Field(ge=1)] = 10
    draws: Annotated[int, Field(ge=1, description="Random draws of the features averaged when answering.")] = 1


class NoPretrainConfig(EncoderConfig):
    """The features and the decoder as they are before any training."""

    model: Annotated[Literal["no-pretrain"], Field(description="The kind of model.")] = "no-pretrain"
    epochs: Annotated[int, Field(ge=0)] = 0

    @model_validator(mode="after")
    def _nothing_is_learned(self) -> NoPretrainConfig:
        names = "epochs", "optimizer", "learning_rate", "weight_decay", "average", "clip", "dropout", "validate_every"
        refuse_changed(self, (*names, "patience"), "does nothing without training")
        refuse_learned(self.features, "would stay as drawn without training")
        return self


class MessagePassingConfig(EncoderConfig):
    """What models share that learn to compute states from messages, on the whole graph or on sampled sub-graphs."""

    mask: Annotated[float, Field(ge=0, lt=1, description="Share of facts held out as targets; 0: as the paper.")] = 0.3
    mask_by: Annotated[MaskBy, Field(description="What is held out together: a fact, or all of two entities.")] = "pair"
    relation_n3: Annotated[
        float, Field(ge=0, description="The weight of an N3 regulariser on the relations of the facts to predict.")
    ] = 0.0
    validation_facts: Annotated[float, Field(gt=0, le=1, description="Share of the facts a validation knows.")] = 1.0
    steps_per_epoch: Annotated[
        int, Field(ge=1, description="Steps of an epoch that is neither layer-wise nor of sub-graphs.")
    ] = 6
    sampler: Annotated[
        Literal["none", "ladies", "saint"],
        Field(description="Learn on sub-graphs sampled around mini-batches of facts; none: on the whole graph."),
    ] = "none"
    sample_width: Annotated[
        int, Field(ge=1, description="Entities sampled a hop; there are as many hops as layers, one for inf.")
    ] = 256
    sample_batch: Annotated[int, Field(ge=1, description="Facts to predict in a sub-graph.")] = 256
    sample_passes: Annotated[int, Field(ge=1, description="Passes over all facts that are sampled.")] = 20
    sample_workers: Annotated[int, Field(ge=0, description="Processes that read sub-graphs ahead.")] = 0

    @model_validator(mode="after")
    def _sampling_is_used(self) -> MessagePassingConfig:
        if self.sampler == "none":
            names = "sample_width", "sample_batch", "sample_passes", "sample_workers"
            refuse_changed(self, names, "needs a sampler")
        else:
            refuse_changed(self, ("steps_per_epoch",), "is not for sub-graphs, an epoch of which is a pass")
            refuse_changed(self, ("mask_by",), "is not for sub-graphs, whose targets are drawn with them")
        if not self.mask:
            refuse_changed(self, ("mask_by",), "needs mask above 0")
        return self


class GNNConfig(MessagePassingConfig):
    """What the message-passing rivals share; an epoch is ``steps_per_epoch`` steps over the whole graph."""

    # A layer is no gradient step here but scales with its input: from small features it would hardly learn.
    feature_scale: Annotated[float, Field(gt=0)] = 1.0
    layers: Annotated[int, Field(ge=1)] = 3


class RGCNConfig(GNNConfig):
    """How to train an R-GCN."""

    model: Annotated[Literal["rgcn"], Field(description="The kind of model.")] = "rgcn"
    layers: Annotated[int, Field(ge=1)] = 2
    bases: Annotated[int, Field(ge=1, description="Matrices that those of the relations are made of.")] = 30


class GATConfig(GNNConfig):
    """How to train a graph attention network."""

    model: Annotated[Literal["gat"], Field(description="The kind of model.")] = "gat"
    heads: Annotated[int, Field(ge=1, description="Attention heads; dim must be a multiple of them.")] = 8
    combine: Annotated[bool, Field(description="Combine the outputs of all layers.")] = False

    @model_validator(mode="after")
    def _heads_share_the_width(self) -> GATConfig:
        check_heads(self.dim, self.heads)
        return self


class ReFactorConfig(MessagePassingConfig):
    """How to train a ReFactor GNN; an epoch is one cycle of its layers, one layer if it never ends."""

    model: Annotated[Literal["refactor"], Field(description="The kind of model.")] = "refactor"
    n3: N3 = 0.0
    layers: Annotated[
        Annotated[int, Field(ge=1)] | Literal["inf"],
        Field(description="The number L of layers; inf: a cache that is never cleared, for one graph only."),
    ] = 6
    regime: Annotated[
        Literal["layerwise", "unrolled"], Field(description="Learn through one layer at a time, or through all.")
    ] = "layerwise"
    alpha: Annotated[float, Field(gt=0, description="The step size of a layer.")] = 0.03
    learned_steps: Annotated[bool, Field(description="Learn a step size for each layer, from alpha on.")] = False
    layer_optimizer: Annotated[Optimizer, Field(description="The optimiser whose step a layer is.")] = "adagrad"
    n_term: Annotated[NTerm, Field(description="The global term of a layer.")] = "exact"
    parts: Annotated[
        int, Field(ge=1, description="Mini-batches that the edges of a layer are partitioned into; 1: exact.")
    ] = 1

    induced: Annotated[bool, Field(description="Let a mini-batch see its own entities only, as the paper.")] = False
    layer_dropout: Annotated[float, Field(ge=0, lt=1, description="Dropout inside a layer, while training.")] = 0.0
    n3_weighting: Annotated[
        N3Weighting, Field(description="Count an entity once in the layer's N3, or once for each triple.")
    ] = "entity"
    through: Annotated[
        bool, Field(description="With layers inf: learn relations through the layer, or only on its outcome.")
    ] = True
    relation_loss: RelationLoss = 0.0
    links: Annotated[
        bool, Field(description="Learn also what facts between two entities say about others; mask_by must be fact.")
    ] = False
    samples: Annotated[
        int, Field(ge=0, description="Candidates that n[v] is estimated from while training; 0: all, exact.")
    ] = 0

    @model_validator(mode="after")
    def _fits_together(self) -> ReFactorConfig:
        if self.layers != "inf":
            refuse_changed(self, ("through",), "needs layers inf: features are learned through the layers")
            refuse_changed(self, ("relation_loss",), "needs layers inf, or a lookup model")
        else:
            refuse_changed(
                self, ("regime", "learned_steps", "draws", "validation_facts", "links"), "needs a finite depth"
            )
            refuse_learned(self.features, "would stay as drawn with layers inf, whose cache is what is learned")
            if self.sampler != "none":
                refuse_changed(self, ("devices",), "would give each process a cache of its own with layers inf")
        if self.regime == "layerwise":
            refuse_changed(self, ("steps_per_epoch",), "is not for layer-wise training, an epoch of which is a cycle")
        if not self.n3:
            refuse_changed(self, ("n3_weighting",), "needs n3 above 0")
        if not isinstance(make_scorer(self.scorer, self.dim), DotScorer):
            reason = f"needs a dot-product scorer, which {self.scorer!r} is not"
            refuse_changed(self, ("samples", "layer_dropout", "links"), reason)
        refuse_unless_bilinear(self, self.scorer, self.dim)
        if self.mask_by != "fact":
            refuse_changed(self, ("links",), "needs mask_by fact")
        if self.parts == 1:
            refuse_changed(self, ("induced",), "needs parts above 1")
        if self.sampler != "none":
            refuse_changed(self, ("parts",), "is not for sub-graphs, which are mini-batches")
            refuse_changed(self, ("relation_loss",), "is not for sub-graphs")
        return self


# Those of the rivals are added by refactorgnn.training.rivals.
CONFIGS: dict[str, type[TrainConfig]] = {
    "lookup": LookupConfig,
    "refactor": ReFactorConfig,
    "rgcn": RGCNConfig,
    "gat": GATConfig,
    "no-pretrain": NoPretrainConfig,
    "forgetting": ForgettingConfig,
}


def settings_by_name() -> dict[str, dict[str, FieldInfo]]:
    """Every setting, with the models that have it and what it is there."""
    found: dict[str, dict[str, FieldInfo]] = {}
    for model, config in CONFIGS.items():
        for name, field in config.model_fields.items():
            found.setdefault(name, {})[model] = field
    return found


def _config_class(settings: dict[str, Any]) -> type[TrainConfig]:
    model = settings.get("model", "lookup")
    if not isinstance(model, str) or model not in CONFIGS:
        raise unknown_name("model", str(model), list(CONFIGS))
    owners = settings_by_name()
    for name in settings:
        if name in owners and model not in owners[name]:
            raise UserError(f"setting {name!r} belongs to {models_in_words(owners[name])}: leave it out for {model}.")
    return CONFIGS[model]
