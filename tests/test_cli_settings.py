"""The options of ``refactorgnn train``: there is one for every setting, of its type, and it reaches the run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import torch
import typer
import yaml
from pydantic import Field
from typer.testing import CliRunner

from refactorgnn import Run
from refactorgnn.cli.settings import setting_options, with_setting_options
from refactorgnn.data import KnowledgeGraph, TextFeatures
from refactorgnn.errors import UserError
from refactorgnn.training.config import CONFIGS, ReFactorConfig, TrainConfig, settings_by_name
from refactorgnn.training.setting_types import SettingType, shown
from tests.conftest import Cli

# Texts that a setting accepts and that are not its default; a setting of type str needs one here.
TEXTS = {"scorer": "complex", "features": "text", "devices": "2", "log": "csv", "text_encoder": "mine"}
SMALLER = {"rule_length": 2}  # its default is the most that there is
# What else must be set for a setting to have a meaning.
SAMPLING = {name: {"sampler": "ladies"} for name in ("sample_width", "sample_batch", "sample_passes", "sample_workers")}
BESIDE: dict[str, dict[str, Any]] = SAMPLING | {
    "text_encoder": {"features": "text"},
    "strategy": {"devices": "2"},
    "induced": {"parts": 2},
    "links": {"mask_by": "fact"},
    "n3_weighting": {"n3": 0.5},
    "through": {"layers": "inf"},
}
BESIDE_OF_MODEL: dict[tuple[str, str], dict[str, Any]] = {
    ("refactor", "steps_per_epoch"): {"regime": "unrolled"},
    ("refactor", "relation_loss"): {"layers": "inf"},
    ("gat", "heads"): {"dim": 40},
    ("gat", "dim"): {"heads": 2},
}
# Nothing is learned there: the option is refused, as tests/test_bad_input.py shows.
FIXED = {
    "epochs",
    "optimizer",
    "learning_rate",
    "weight_decay",
    "average",
    "clip",
    "dropout",
    "validate_every",
    "patience",
}
CASES = [
    (model, name)
    for model, config in CONFIGS.items()
    for name in config.model_fields
    if name != "dataset" and not (model == "no-pretrain" and name in FIXED) and name not in config.unused
]


MACHINE = {
    *("accelerator", "devices", "strategy", "precision", "threads", "memory_budget_mb", "tf32", "replay", "log"),
}


def another_value(model: str, name: str) -> Any:
    """A value of the setting that is valid and not its default; the model has only one."""
    field = CONFIGS[model].model_fields[name]
    kind, default = SettingType.of([field]), field.get_default(call_default_factory=True)
    if name == "model":
        return model
    if name in TEXTS:
        return TEXTS[name]
    if name in SMALLER:
        return SMALLER[name]
    if kind.takes(bool):
        return not default
    if int in kind.types:
        return default + 2 if isinstance(default, int) else 2
    if float in kind.types:
        return default / 2 if default else 0.125
    others = [choice for choice in kind.choices if choice != default]
    assert others, f"add a value of {name} to TEXTS"
    return [others[0]] if kind.is_list else others[0]


def as_option(name: str, value: Any) -> list[str]:
    dashed = name.replace("_", "-")
    return [f"--{'' if value else 'no-'}{dashed}"] if isinstance(value, bool) else [f"--{dashed}", shown(value)]


@pytest.fixture
def stop_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run is made, with its settings, on whatever devices and with whatever encoder; then training is refused."""

    def refuse(*_: object, **__: object) -> None:
        raise UserError("stopped here.")

    def encode(graph: KnowledgeGraph, *_: object) -> TextFeatures:
        return TextFeatures(torch.zeros(graph.num_entities, 256), 0, {})

    monkeypatch.setattr("refactorgnn.api.training.make_fabric", lambda config: None)
    monkeypatch.setattr("refactorgnn.api.training.launch", refuse)
    monkeypatch.setattr("refactorgnn.data.text_features.encode_texts", encode)


@pytest.mark.usefixtures("stop_before_training")
@pytest.mark.parametrize(("model", "name"), CASES)
def test_every_setting_has_an_option_that_reaches_the_run(
    model: str, name: str, cli: Cli, tiny: Path, tmp_path: Path
) -> None:
    changed = BESIDE.get(name, {}) | BESIDE_OF_MODEL.get((model, name), {}) | {name: another_value(model, name)}
    options = [part for each, value in changed.items() for part in as_option(each, value)]
    cli("train", tiny, "--model", model, *options, "--out", tmp_path / "run").refused("stopped here")
    expected = CONFIGS[model](dataset=str(tiny)).model_dump() | changed
    assert changed[name] != CONFIGS[model](dataset=str(tiny)).model_dump()[name] or name == "model"
    assert yaml.safe_load((tmp_path / "run" / "config.yaml").read_text()) == expected
    assert Run.open(tmp_path / "run").config.model_dump() == expected


@pytest.mark.usefixtures("stop_before_training")
@pytest.mark.parametrize("layers", ["inf", "6", "2"])
def test_a_depth_is_written_and_read_as_what_it_is(layers: str, cli: Cli, tiny: Path, tmp_path: Path) -> None:
    """A number or the word, never the number infinity, through options, through a file, and back from the run."""
    depth = "inf" if layers == "inf" else int(layers)
    file = tmp_path / "mine.yaml"
    file.write_text(f"model: refactor\nlayers: {layers}\n")
    for name, options in (("option", ("--model", "refactor", "--layers", layers)), ("file", ("--config", file))):
        run = tmp_path / name
        cli("train", tiny, *options, "--out", run).refused("stopped here")
        written = yaml.safe_load((run / "config.yaml").read_text())["layers"]
        assert (written, type(written)) == (depth, type(depth))
        read = Run.open(run).config
        assert isinstance(read, ReFactorConfig)
        assert (read.layers, type(read.layers)) == (depth, type(depth))
        assert TrainConfig.from_yaml(run / "config.yaml") == read


# What help says of them ------------------------------------------------------------------------------------------


def test_help_tells_every_default_in_the_panel_of_its_models(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    panels = {}
    for block in cli("train", "-h").out.split("╭─ ")[1:]:
        title, _, lines = block.partition(" ─")
        panels[title] = lines.splitlines()
    for name, fields in settings_by_name().items():
        if name in ("dataset", "model"):
            continue
        title = "Settings of every model" if len(fields) == len(CONFIGS) else f"Only for {', '.join(fields)}"
        if len(fields) == len(CONFIGS) - 1:
            (missing,) = set(CONFIGS) - set(fields)
            title = f"For every model but {missing}"
        if name in MACHINE:
            title = "Devices and logs"
        lines = panels["The model" if name == "scorer" else title]
        (line,) = (line for line in lines if line.startswith(f"│ --{name.replace('_', '-')} "))
        defaults = line.partition("[default: ")[2].partition("]")[0]
        for model, field in fields.items():
            told = [part for part in defaults.split("; ")[1:] if model in part.partition(": ")[0].split(", ")]
            default = told[0].partition(": ")[2] if told else defaults.split("; ")[0]
            assert default == (shown(field.get_default(call_default_factory=True)) or "empty"), (name, model)
    assert list(panels)[:5] == ["Arguments", "Options", "The model", "Settings of every model", "Devices and logs"]
    assert all(f" {model}" in " ".join(panels["The model"]) for model in CONFIGS)


def test_help_fits_a_hundred_columns(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    lines = cli("train", "--help").out.splitlines()
    assert max(map(len, lines)) == 100
    assert not any("…" in line.replace(",…", "") for line in lines)  # nothing is cut off


# Types that a setting may have, on a model made for the purpose -----------------------------------------------------


class OddConfig(TrainConfig):
    model: Literal["odd"] = "odd"
    dim: int = 384
    depth: Annotated[Annotated[int, Field(ge=1)] | Literal["inf"], Field(description="A depth.")] = 3
    shuffle: Annotated[bool, Field(description="A flag.")] = True
    limit: Annotated[int | None, Field(description="May be none.")] = 7
    bits: Annotated[Literal[16, 32], Field(description="Numbers to choose from.")] = 32
    hops: Annotated[tuple[str, ...], Field(description="Texts.")] = ("a", "b")
    fanout: Annotated[list[int] | None, Field(description="Numbers.")] = None
    verbose: Annotated[bool | None, Field(description="Three values.")] = None
    note: Annotated[str, Field(description="Any text.")] = "x"


@pytest.fixture
def odd(monkeypatch: pytest.MonkeyPatch) -> Callable[..., TrainConfig]:
    """Read the options of a command of a model with settings of every type."""
    monkeypatch.setitem(CONFIGS, "odd", OddConfig)
    seen: list[TrainConfig] = []

    @with_setting_options
    def command(other: bool = False, **settings: Any) -> None:
        assert other is False
        seen.append(TrainConfig.from_dict({"dataset": "d", "model": "odd", **settings}))

    app = typer.Typer()
    app.command()(command)

    def read(*arguments: str) -> TrainConfig:
        result = CliRunner().invoke(app, list(arguments))
        if result.exception is not None:
            raise result.exception
        return seen[-1]

    return read


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], {}),
        (["--depth", "inf"], {"depth": "inf"}),
        (["--depth", "12"], {"depth": 12}),
        (["--no-shuffle"], {"shuffle": False}),
        (["--shuffle"], {"shuffle": True}),
        (["--limit", "none"], {"limit": None}),
        (["--limit", "9"], {"limit": 9}),
        (["--bits", "16"], {"bits": 16}),
        (["--hops", "a, c,d"], {"hops": ("a", "c", "d")}),
        (["--hops", ""], {"hops": ()}),
        (["--fanout", "10,5"], {"fanout": [10, 5]}),
        (["--fanout", "none"], {"fanout": None}),
        (["--verbose", "false"], {"verbose": False}),
        (["--note", "none"], {"note": "none"}),
        (["--dim", "8", "--init-scale", "1e-4"], {"dim": 8, "init_scale": 1e-4}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_values_of_every_type(arguments: list[str], expected: dict[str, Any], odd: Callable[..., TrainConfig]) -> None:
    assert odd(*arguments) == OddConfig(dataset="d", **expected)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--depth", "deep"], "setting depth cannot be 'deep': it should be a valid integer, .*, or should be 'inf'"),
        (["--depth", "0"], "setting depth cannot be '0': it should be greater than or equal to 1, or should be 'inf'"),
        (["--bits", "8"], "setting bits cannot be '8': it should be 16 or 32"),
        (["--fanout", "10,x"], "setting fanout cannot be 'x': it should be a valid integer"),
        (["--limit", "many"], "setting limit cannot be 'many': it should be a valid integer"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_values_that_do_not_fit(arguments: list[str], message: str, odd: Callable[..., TrainConfig]) -> None:
    with pytest.raises(UserError, match=message):
        odd(*arguments)


@pytest.mark.usefixtures("odd")
def test_what_help_calls_the_values() -> None:
    options = setting_options()
    assert {name: options[name].metavar for name in (*OddConfig.__annotations__, "scorer", "optimizer")} == {
        "model": "NAME", "dim": None, "depth": "INT|inf", "shuffle": None, "limit": "INT|none",
        "bits": "16|32", "hops": "STR,…", "fanout": "INT,…|none", "verbose": "BOOL|none", "note": None,
        "scorer": "NAME", "optimizer": "adagrad|adam|sgd",
    }  # fmt: skip


@pytest.mark.usefixtures("odd")
def test_models_with_the_same_default_are_named_together() -> None:
    options = setting_options()
    assert options["dim"].default_text == (
        "default: 256; refactor, rgcn, gat, no-pretrain, odd: 384; neural-lp, drum: 128; nbfnet, grail: 32"
    )
    assert options["layers"].default_text == "default: 6; gat, grail: 3; rgcn: 2"
    assert options["seed"].default_text == "default: 0"
    assert options["hops"].default_text == "default: a,b"
    assert options["shuffle"].default_text == "default: true"
    assert options["fanout"].default_text == "default: none"
    assert options["text_encoder"].default_text == "default: empty"
    assert (options["dim"].panel, options["hops"].panel) == ("Settings of every model", "Only for odd")


@pytest.mark.parametrize("annotation", [dict[str, int], list[int] | int, Path, list[int | None]])
def test_a_type_without_a_form_on_the_command_line_is_refused(annotation: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Strange(TrainConfig):
        strange: Annotated[annotation, Field(description="Strange.")] = None

    monkeypatch.setitem(CONFIGS, "strange", Strange)
    with pytest.raises(TypeError, match="a setting"):
        with_setting_options(lambda **settings: None)


def test_a_setting_cannot_take_the_name_of_an_option_of_the_command() -> None:
    with pytest.raises(ValueError, match="'dim'"):
        with_setting_options(lambda dim, **settings: None)
