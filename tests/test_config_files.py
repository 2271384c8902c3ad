"""``refactorgnn train --config FILE.yaml``: what a file may say, what goes before what, and every slip in it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

import refactorgnn
from refactorgnn.errors import UserError
from refactorgnn.training.config import CONFIGS, settings_by_name
from refactorgnn.training.config_files import DESCRIPTION, ConfigFile
from tests.conftest import QUICK, Cli, contents

QUICK_LINES = "".join(f"{name}: {value}\n" for name, value in QUICK.items())


def write(folder: Path, content: str | bytes) -> Path:
    path = folder / "mine.yaml"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def settings_of(run: Path) -> dict[str, object]:
    return yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))


def test_a_run_from_a_file_is_the_run_from_options(cli: Cli, tiny: Path, tmp_path: Path) -> None:
    """Every setting comes from the file, and the weights are the same to the last bit."""
    path = write(tmp_path, f"description: |\n  A tiny [b]\n  experiment.\ndataset: {tiny}\nn3: 1e-3\n{QUICK_LINES}")
    outcome = cli("train", "--config", path, "--out", tmp_path / "file")
    assert outcome.code == 0
    assert outcome.err.splitlines()[0] == "A tiny [b] experiment."
    run = refactorgnn.train(tiny, n3=1e-3, out=tmp_path / "options", progress=False, **QUICK)
    assert settings_of(tmp_path / "file") == settings_of(run.path) == CONFIGS["lookup"](
        dataset=str(tiny), n3=1e-3, **QUICK
    ).model_dump()  # fmt: skip
    assert contents(tmp_path / "file")["model.safetensors"] == contents(run.path)["model.safetensors"]


def test_options_override_the_file_and_the_file_overrides_defaults(cli: Cli, tiny: Path, tmp_path: Path) -> None:
    path = write(tmp_path, f"dataset: countries\nscorer: complex\npatience: 2\n{QUICK_LINES}")
    options = ["--dim", "4", "--scorer", "cp", "--out", tmp_path / "run", "--json"]
    outcome = cli("train", tiny, "--config", path, *options)
    assert (outcome.code, outcome.err) == (0, "")
    settings = settings_of(tmp_path / "run")
    assert [settings[name] for name in ("dataset", "dim", "scorer", "patience", "batch_size", "learning_rate")] == [
        str(tiny), 4, "cp", 2, QUICK["batch_size"], 0.1,
    ]  # fmt: skip
    cli("train", tiny, "--config", path, *options[2:], "--resume").refused("other settings (dim was 4)")
    assert cli("train", tiny, "--config", path, *options, "--resume").code == 0


def test_from_python(tiny: Path, tmp_path: Path) -> None:
    path = write(tmp_path, f"dataset: {tiny}\n{QUICK_LINES}")
    run = refactorgnn.train(config=path, epochs=1, out=tmp_path / "run", progress=False)
    assert (run.config.dataset, run.config.epochs, run.config.dim) == (str(tiny), 1, QUICK["dim"])
    with pytest.raises(UserError, match=r"missing argument dataset: give a dataset name, .* or a config file"):
        refactorgnn.train(dim=8)
    with pytest.raises(UserError, match="setting epochs cannot be -1"):
        refactorgnn.train(config=path, epochs=-1)


def test_a_dataset_is_needed_from_somewhere(cli: Cli, tiny: Path, tmp_path: Path) -> None:
    path = write(tmp_path, "description: No data.\n" + QUICK_LINES)
    cli("train", "--config", path).refused(path, "this file names no dataset", "add a line such as dataset: UMLS")
    cli("train").refused("missing argument dataset", "or a config file that names one", "refactorgnn train --help")
    assert cli("train", tiny, "--config", path, "--out", tmp_path / "run").code == 0


@pytest.mark.parametrize(
    ("content", "fragments"),
    [
        ("dimm: 8\n", ["unknown setting 'dimm'", "did you mean 'dim'"]),
        ("learning-rate: 0.1\n", ["unknown setting 'learning-rate'", "did you mean 'learning_rate'"]),
        ("zzz: 8\n", ["unknown setting 'zzz'", "known are dataset, model, scorer, dim"]),
        ("descripton: x\n", ["unknown setting 'descripton'", "did you mean 'description'"]),
        ("dim: wide\n", ["setting dim cannot be 'wide'", "it should be a valid integer"]),
        ("dim: 1.5\n", ["setting dim cannot be 1.5", "integer"]),
        ("dim:\n", ["setting dim cannot be None", "integer"]),
        ("dim: [8]\n", ["setting dim cannot be [8]", "integer"]),
        ("dim: yes\n", ["setting dim cannot be True", "truth values in YAML", "in quotes"]),
        ("optimizer: off\n", ["setting optimizer cannot be False", "truth values in YAML"]),
        ("optimizer: adamw\n", ["setting optimizer cannot be 'adamw'", "'adagrad', 'adam' or 'sgd'"]),
        ("device: cpu\n", ["unknown setting 'device'", "did you mean 'devices'"]),
        ("devices: 0\n", ["setting devices cannot be '0'", "give how many"]),
        ("devices: [0, 1]\n", ["setting devices cannot be '[0, 1]'", "give how many"]),
        ("devices: yes\n", ["setting devices cannot be True", "truth values in YAML"]),
        ("model: gat\ndim: 20\n", ["dim=20 cannot be shared by 8 heads", "correct it"]),
        ("model: refactor\nlayers: .inf\n", ["setting layers cannot be inf", "or should be 'inf'"]),
        ("model: refactor\nlayers: inf\ndraws: 3\n", ["setting draws=3 needs a finite depth"]),
        ("model: refactor\ntext_encoder: x\n", ["text_encoder is 'x', but features 'random' read no texts"]),
        ("n3: .nan\n", ["setting n3 cannot be nan", "finite"]),
        ("dataset: 237\n", ["setting dataset cannot be 237", "string"]),
        ("model: gcnn\n", ["unknown model 'gcnn'"]),
        ("model: [refactor]\n", ["unknown model \"['refactor']\""]),
        ("scorer: dismult\n", ["unknown scorer 'dismult'", "did you mean 'distmult'"]),
        ("scorer: complex\ndim: 7\n", ["scorer 'complex' cannot use dim=7"]),
        (
            "layers: 3\n",
            ["setting 'layers' belongs to models refactor, rgcn, gat, nbfnet and grail", "leave it out for lookup"],
        ),
        ("description: [a, b]\n", ["the description cannot be ['a', 'b']", "write a sentence"]),
        ("description:\n", ["the description cannot be None", "write a sentence"]),
        ("dim: 8\nseed: 1\ndim: 9\n", [", line 3: 'dim' is given twice, first in line 1; keep one"]),
        ("dim: 8\n7: 9\n", [", line 2: the key 7 is not a name"]),
        ("dim: 8\n? [a, b]\n: 9\n", [", line 2: the key ['a', 'b'] is not a name"]),
        ("dim: 8\nn3: [1, 2\n", [", line 3: this is not a YAML file (", "write one setting on each line"]),
        ("dim: 8\nn3: 'a\n", ["this is not a YAML file (", "write one setting on each line"]),
        ("dim: 8\n\tn3: 1\n", [", line 2: this is not a YAML file ("]),
        ("dim: !!python/name:os.system\n", [", line 1: this is not a YAML file ("]),
        ("dim: 2024-99-99\n", ["this is not a YAML file"]),
        ("dim: 8\n---\ndim: 9\n", ["this is not a YAML file ("]),
        ("[" * 500, ["this is not a YAML file"]),
        ("\0", ["this is not a YAML file"]),
        (b"description: caf\xe9\n", ["this is not a YAML file (it is not UTF-8)"]),
        ("", ["this YAML file holds no settings", "write one setting on each line, such as dim: 256"]),
        ("- dim\n- 8\n", ["this YAML file holds no settings"]),
    ],
    ids=lambda value: repr(value)[:40] if isinstance(value, str | bytes) else "",
)
def test_a_file_with_a_slip(content: str | bytes, fragments: list[str], cli: Cli, tiny: Path, tmp_path: Path) -> None:
    path = write(tmp_path, content)
    for options in ([], ["--dim", "8"]):  # the file is wrong by itself, whatever else is given
        outcome = cli("train", tiny, "--config", path, *options, "--out", tmp_path / "run")
        outcome.refused(path, *fragments)
        assert "train again" not in outcome.err
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_cannot_be_read(cli: Cli, tiny: Path, tmp_path: Path) -> None:
    cli("train", tiny, "--config", tmp_path / "no.yaml").refused(tmp_path / "no.yaml", "no such file", "check the path")
    cli("train", tiny, "--config", tmp_path).refused(tmp_path, "the file cannot be read (is a directory)")


def test_a_mistake_in_the_options_beside_a_file(cli: Cli, tiny: Path, tmp_path: Path) -> None:
    """The sentence is about the option, not about the file, and the description is not in its way."""
    path = write(tmp_path, f"description: D.\ndataset: {tiny}\nmodel: refactor\nlayers: 2\nscorer: complex\n")
    outcome = cli("train", "--config", path, "--dim", "0")
    outcome.refused("setting dim cannot be 0")
    assert str(path) not in outcome.err
    cli("train", "--config", path, "--dim", "7").refused("scorer 'complex' cannot use dim=7")
    cli("train", "--config", path, "--batch-size", "7").refused("'batch_size' belongs to models lookup, forgetting")
    cli("train", "--config", path, "--model", "refactr").refused("unknown model 'refactr'", "did you mean 'refactor'")
    cli("train", "--config", path, "--model", "lookup").refused(
        path,
        "setting 'layers' belongs to models refactor, rgcn, gat, nbfnet and grail, not to lookup",
        "keep the file's model",
    )


def test_keys_may_be_shared_by_reference(tmp_path: Path) -> None:
    """YAML's merge key is no duplicate; what is written beside it wins, as YAML says."""
    path = write(tmp_path, "<<: {dim: 8, seed: 1}\ndim: 16\n")
    assert ConfigFile.read(path).settings == {"dim": 16, "seed": 1}


def test_a_byte_order_mark_is_no_key(tmp_path: Path) -> None:
    assert ConfigFile.read(write(tmp_path, b"\xef\xbb\xbfdim: 8\n")).settings == {"dim": 8}


def test_the_description_is_no_setting() -> None:
    assert DESCRIPTION not in settings_by_name()
