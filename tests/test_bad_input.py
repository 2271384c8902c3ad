"""Typing the wrong thing on purpose: exit code 2, one sentence with the remedy, nothing half-written."""

from __future__ import annotations

import errno
import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import refactorgnn
from refactorgnn import Run, storage
from refactorgnn.training.config import CONFIGS
from tests.benchmark_copies import BENCHMARK_COPIES, needs_benchmarks
from tests.conftest import (
    QUICK_OPTIONS,
    Cli,
    Outcome,
    contents,
    rows,
    tiny_triples,
    without_seconds,
    write_folder,
)

GOOD = {split: rows(triples) for split, triples in tiny_triples().items()}


# Files of triples ------------------------------------------------------------------------------------------------

BAD_FILES: dict[str, tuple[dict[str, str | bytes], list[str]]] = {
    "two columns": ({"train": "a\tb\na\tc\n"}, ["train.tsv, line 1", "2 fields where 3 are expected", "header"]),
    "a row too short": ({"train": "a\tr\tb\na\tr\n"}, ["train.tsv, line 2", "2 fields where 3", "mend this line"]),
    "header without tail": (
        {"train": "head\trelation\tweight\na\tr\t1\n"},
        ["train.tsv, line 1", "no column for the tail", "'weight'", "name one of them 'tail'"],
    ),
    "header only": ({"train": "head\trelation\ttail\n"}, ["train.tsv", "no triples"]),
    "empty": ({"train": ""}, ["train.tsv", "is empty", "at least one row"]),
    "blank": ({"train": "\n \n\n"}, ["train.tsv", "is empty"]),
    "empty label": ({"train": "a\tr\tb\na\t\tb\n"}, ["train.tsv, line 2", "the relation is empty"]),
    "binary": ({"train": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"}, ["train.tsv, line 3", "NUL byte", "text file in UTF-8"]),
    "gzip without its name": ({"train": gzip.compress(b"a\tr\tb\n", mtime=0)}, ["train.tsv", "add .gz to its name"]),
    "latin-1": (
        {"train": "a\tr\tb\ncafé\tr\tb\n".encode("latin-1")},
        ["train.tsv, line 2", "0xe9 is not UTF-8", "iconv"],
    ),
    "utf-16": ({"train": "a\tr\tb\n".encode("utf-16")}, ["train.tsv", "UTF-16", "save it as UTF-8"]),
    "no train": ({"train": None, "tests": "a\tr\tb\n"}, ["there is no train file", "add train"]),
    "unseen relation in test": (
        {"test": "person 1\tnext too\tperson 2\n"},
        ["test.tsv", "relation 'next too' does not occur in train", "'next to'", "(person 1, next too, person 2)"],
    ),
    "unseen relation in valid": (
        {"valid": "person 1\tzzz\tperson 2\n"},
        ["valid.tsv", "relation 'zzz' does not occur in train", "add training triples with it or remove it"],
    ),
    "duplicate entity texts": (
        {"entities": "entity\tlabel\nperson 1\tone\nperson 1\tuno\n"},
        ["entities.tsv, line 3", "'person 1' is already on line 2"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_FILES)
def test_a_bad_file_is_refused_by_every_command_that_reads_it(
    case: str, cli: Cli, tmp_path: Path, tiny_run: Run
) -> None:
    files, fragments = BAD_FILES[case]
    given = {name: content for name, content in (GOOD | files).items() if content is not None}
    folder = write_folder(tmp_path / "mine", **given)
    before = contents(tmp_path)
    cli("train", folder, "--out", tmp_path / "run").refused(*fragments)
    cli("data", "info", folder).refused(*fragments)
    cli("data", "convert", folder, tmp_path / "out", "--to", "csv").refused(*fragments)
    cli("evaluate", tiny_run.path, "--graph", folder, "--json").refused(*fragments)
    assert contents(tmp_path) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine"]


@pytest.mark.parametrize(
    ("name", "content", "fragments"),
    [
        ("mine.xlsx", b"PK\3\4", ["mine.xlsx", "unknown file format (.xlsx)", ".tsv", ".parquet"]),
        ("mine.parquet", b"PAR1 not really", ["mine.parquet", "cannot be read as Parquet", "write it again"]),
        ("mine.parquet", b"", ["mine.parquet", "is empty"]),
        ("mine.nt", b"<http://a> <http://b> .\n", ["mine.nt, line 1", "not valid N-Triples"]),
        ("mine.tsv.gz", gzip.compress(b"a\tr\tb\n" * 999, mtime=0)[:20], ["mine.tsv.gz", "truncated gzip"]),
        ("mine.csv", b'a,r,"b\n', ["mine.csv, line 1", "quotation mark"]),
        ("mine.tsv", b"a\tr\tb\nb\tr\tc\n", ["'mine'", "no validation triples", "more triples"]),
    ],
)  # fmt: skip
def test_a_bad_single_file(name: str, content: bytes, fragments: list[str], cli: Cli, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    cli("train", tmp_path / name, "--out", tmp_path / "run").refused(*fragments)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_graph_without_a_valid_split_cannot_be_trained_on(cli: Cli, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "mine", train=GOOD["train"], test=GOOD["test"])
    cli("train", folder, "--out", tmp_path / "run").refused("'mine' has no validation triples", "add a valid file")
    assert not (tmp_path / "run").exists()


def test_two_train_files(cli: Cli, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "mine", **GOOD)
    (folder / "train.csv").write_text("a,r,b\n")
    cli("train", folder).refused(folder, "several files claim to be train (train.tsv, train.csv)", "keep one")


def test_duplicates_are_no_error_but_are_counted_and_reported(cli: Cli, tmp_path: Path) -> None:
    first = GOOD["train"].partition("\n")[0] + "\n"
    folder = write_folder(tmp_path / "mine", **(GOOD | {"train": GOOD["train"] + 3 * first, "test": 2 * GOOD["test"]}))
    notes = ["3 duplicate triples in train were dropped", "6 duplicate triples in test were dropped"]
    trained = cli("train", folder, "--out", tmp_path / "run", "--json", *QUICK_OPTIONS)
    assert trained.code == 0
    assert trained.err == "".join(f"note: {note}\n" for note in notes)
    shown = cli("data", "info", folder)
    assert (shown.code, shown.err) == (0, trained.err)
    facts = json.loads(cli("data", "info", folder, "--json").out)
    assert facts["notes"] == notes
    assert (facts["train"], facts["test"]) == (61, 6)
    assert Run.open(tmp_path / "run").graph.notes == tuple(notes)


# Names and settings ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "fragments"),
    [
        (["--scorer", "dismult"], ["unknown scorer 'dismult'", "did you mean 'distmult'", "complex, cp"]),
        (["--scorer", "zzz"], ["unknown scorer 'zzz': choose one of complex, cp, distmult"]),
        (["--model", "gcn"], ["unknown model 'gcn': did you mean 'rgcn'", *CONFIGS]),
        (["--optimizer", "adamw"], ["setting optimizer cannot be 'adamw'", "'adagrad', 'adam' or 'sgd'"]),
        (["--scorer", "complex", "--dim", "7"], ["scorer 'complex' cannot use dim=7", "even"]),
        (["--dim", "1000000000000"], ["dim=1000000000000 is too large", "choose a smaller one"]),
        (["--dim", "9" * 30], ["dim", "9" * 30]),
        (["--seed", "-1"], ["setting seed cannot be -1", "greater than or equal to 0"]),
        (["--seed", "9" * 30], ["setting seed cannot be", "less than"]),
        (["--dropout", "1"], ["setting dropout cannot be 1.0", "less than 1"]),
        (["--dropout", "-0.1"], ["setting dropout cannot be -0.1"]),
        (["--n3", "-1"], ["setting n3 cannot be -1.0", "greater than or equal to 0"]),
        (["--learning-rate", "nan"], ["setting learning_rate cannot be nan", "finite"]),
        (["--learning-rate", "inf"], ["setting learning_rate cannot be inf", "finite"]),
        (["--dim", "abc"], ["'--dim'", "integer", "'abc'", "refactorgnn train --help"]),
        (["--epochs", "1.5"], ["'--epochs'", "integer", "'1.5'"]),
        (["--bogus"], ["no such option", "--bogus", "refactorgnn train --help"]),
        (["--device", "cpu"], ["no such option: --device ", "--devices"]),
        (["--accelerator", "meta"], ["setting accelerator cannot be 'meta'", "'auto', 'cpu', 'gpu', 'cuda' or 'mps'"]),
        (["--accelerator", "cpu", "--devices", "0,1"], ["accelerator 'cpu' with devices '0,1'", "other devices"]),
        *(
            (["--devices", value], [f"setting devices cannot be '{value}'", "how many, such as 2 or auto, or which"])
            for value in ("0", "x", "-1", "1.5", "0,,1", "")
        ),
        (["--strategy", "fsdp"], ["setting strategy cannot be 'fsdp'", "'ddp', 'ddp_spawn' or 'ddp_fork'"]),
        (["--strategy", "ddp"], ["setting strategy='ddp' needs several devices: leave it out."]),
        (["--strategy", "ddp", "--devices", "3,"], ["setting strategy='ddp' needs several devices"]),
        (["--precision", "16"], ["setting precision cannot be '16'", "'32-true' or 'bf16-mixed'"]),
        (["--log", "cvs"], ["unknown log 'cvs'", "did you mean 'csv'"]),
        (["--log", "csv+csv"], ["log 'csv+csv' names the same twice"]),
        (["--epochs", "-3"], ["setting epochs cannot be -3", "greater than or equal to 0"]),
        *(
            ([f"--{name}", value], [f"setting {name.replace('-', '_')} cannot be {shown}", "greater than"])
            for name in ("dim", "batch-size", "validate-every", "patience")
            for value, shown in (("0", "0"), ("-3", "-3"))
        ),
        (["--memory-budget-mb", "-3"], ["setting memory_budget_mb cannot be -3", "greater than or equal to 0"]),
        (["--learning-rate", "0"], ["learning_rate cannot be 0.0", "greater than 0"]),
        (["--init-scale", "0"], ["init_scale cannot be 0.0", "greater than 0"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) and str(value[0]).startswith("--") else "",
)  # fmt: skip
def test_a_bad_setting(options: list[str], fragments: list[str], cli: Cli, tiny: Path, tmp_path: Path) -> None:
    cli("train", tiny, *options, "--out", tmp_path / "run").refused(*fragments)
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(torch.cuda.is_available() or torch.backends.mps.is_available(), reason="there is a GPU here")
@pytest.mark.parametrize("accelerator", ["gpu", "cuda", "mps"])
def test_an_accelerator_that_is_not_there(accelerator: str, cli: Cli, tiny: Path, tmp_path: Path) -> None:
    for devices in ("1", "2", "0,1"):
        options = ("--accelerator", accelerator, "--devices", devices, "--out", tmp_path / "run")
        cli("train", tiny, *options).refused(
            f"accelerator '{accelerator}' with devices '{devices}' cannot be used here", "choose accelerator cpu"
        )
    assert not list(tmp_path.iterdir())


LEARNED = ["active forgetting resets to its features and cannot learn them", "choose random features"]


@pytest.mark.parametrize(
    ("options", "fragments"),
    [
        ("refactor --features signature --draws 3", ["setting draws=3 needs random features: leave it out"]),
        ("gat --features text --feature-scale 2", ["setting feature_scale=2.0 needs random or learned features"]),
        ("gat --features learned --draws 2", ["setting draws=2 needs random features: leave it out"]),
        ("no-pretrain --features learned", ["features=learned would stay as drawn without training", "choose random"]),
        ("refactor --layers inf --features learned+random", ["features=learned+random would stay as drawn"]),
        ("refactor --layers inf --draws 3", ["setting draws=3 needs a finite depth: leave it out"]),
        ("refactor --layers inf --learned-steps", ["setting learned_steps=True needs a finite depth"]),
        ("refactor --layers inf --regime unrolled", ["setting regime='unrolled' needs a finite depth"]),
        ("refactor --layers inf --sampler saint --devices 2", ["setting devices='2' would give each process a cache"]),
        ("refactor --layers deep", ["setting layers cannot be 'deep'", "valid integer", "or should be 'inf'"]),
        ("refactor --layers 0", ["setting layers cannot be '0'", "greater than or equal to 1", "or should be 'inf'"]),
        ("rgcn --layers inf", ["setting layers cannot be 'inf'", "valid integer"]),
        ("gat --dim 20", ["dim=20 cannot be shared by 8 heads", "a multiple of 8"]),
        ("gat --dim 24 --heads 7", ["dim=24 cannot be shared by 7 heads"]),
        ("forgetting --features signature", LEARNED),
        ("forgetting --features random+signature", LEARNED),
        ("forgetting --features learned", LEARNED),
        ("no-pretrain --epochs 5", ["setting epochs=5 does nothing without training: leave it out"]),
        ("no-pretrain --optimizer sgd", ["setting optimizer='sgd' does nothing without training"]),
        ("ppr --dim 8", ["setting dim=8 does nothing for ppr, which has neither states nor gradients: leave it out"]),
        ("rulen --devices 2", ["setting devices='2' does nothing for rulen"]),
        ("rgcn --n3 0.1", ["setting 'n3' belongs to models lookup, refactor and forgetting", "leave it out for rgcn"]),
        ("lookup --heads 2", ["setting 'heads' belongs to model gat: leave it out for lookup"]),
        ("refactor --text-encoder x", ["setting text_encoder is 'x', but features 'random' read no texts", "add text"]),
        ("refactor --sample-width 3", ["setting sample_width=3 needs a sampler: leave it out"]),
        ("gat --sampler saint --steps-per-epoch 3", ["setting steps_per_epoch=3 is not for sub-graphs"]),
        ("refactor --steps-per-epoch 3", ["setting steps_per_epoch=3 is not for layer-wise training"]),
        ("refactor --induced", ["setting induced=True needs parts above 1"]),
        ("refactor --parts 2 --sampler ladies", ["setting parts=2 is not for sub-graphs"]),
        ("lookup --relation-loss 0.1 --scorer transe", ["needs a bilinear scorer, which 'transe' is not"]),
        ("refactor --validation-facts 0.5 --layers inf", ["validation_facts=0.5 needs a finite depth"]),
        ("refactor --samples 4 --scorer rotate", ["setting samples=4 needs a dot-product scorer, which 'rotate' is"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_settings_that_do_not_fit_together(
    options: str, fragments: list[str], cli: Cli, tiny: Path, tmp_path: Path
) -> None:
    """Whether options or a file say so, and before the dataset is looked for."""
    cli("train", tiny, "--model", *options.split(), "--out", tmp_path / "run").refused(*fragments)
    cli("train", "no/such/folder", "--model", *options.split()).refused(*fragments)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ddp", "ddp_spawn"])
def test_a_mistake_that_several_processes_make_is_told_once(strategy: str, tiny: Path, tmp_path: Path) -> None:
    """Nothing but the sentence: no tracebacks of the others, no word of torch or Fabric about their end."""
    settings = ("--accelerator", "cpu", "--devices", "2", "--strategy", strategy, *QUICK_OPTIONS)
    diverging = ("--learning-rate", "1e30", "--optimizer", "adam", "--epochs", "20")
    command = [sys.executable, "-m", "refactorgnn", "train", tiny, "--out", tmp_path / "run", *settings, *diverging]
    speaking = os.environ | {"PYTHONFAULTHANDLER": "1"}  # if it hangs, as it did once, it says where
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=speaking)
    try:
        out, err = process.communicate(timeout=300)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)
        pytest.fail(process.communicate()[1])
    Outcome(process.returncode, out, err).refused("the loss is not a number", "smaller learning rate")


def test_a_table_without_rows_is_refused(cli: Cli, tiny_run: Run) -> None:
    triple = "--head", "person 3", "--relation", "across", "--tail", "person 9"
    cli("explain", tiny_run.path, *triple, "--rows", "0").refused("--rows", "0")


def test_a_second_training_of_a_program_that_ddp_begins_again(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REFACTORGNN_COMPLAINTS", str(tmp_path))  # as the first one leaves it
    settings = {"accelerator": "cpu", "devices": 2, "strategy": "ddp"}
    with pytest.raises(refactorgnn.UserError, match="a program can train with it once: choose ddp_spawn"):
        refactorgnn.train(tiny, out=tmp_path / "run", **settings)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("dataset", "fragments"),
    [
        ("FB15k", ["unknown dataset 'FB15k'", "did you mean 'FB15k-237'", "UMLS"]),
        ("zzzz", ["unknown dataset 'zzzz': choose one of", "countries", "WN18RR"]),
        ("no/such/folder", ["no/such/folder", "there is no such file or folder", "check the path"]),
        ("missing.tsv", ["missing.tsv", "there is no such file or folder"]),
    ],
)
@pytest.mark.parametrize("command", [["train"], ["data", "info"]], ids=" ".join)
def test_an_unknown_dataset(command: list[str], dataset: str, fragments: list[str], cli: Cli) -> None:
    cli(*command, dataset).refused(*fragments)


@pytest.mark.parametrize(
    ("options", "fragments"),
    [
        (["--split", "tset"], ["'tiny' has no split 'tset'", "train, valid, test"]),
        (["--ranking", "ful"], ["unknown ranking 'ful'", "did you mean 'full'", "partial-exact"]),
        (["--ties", "random"], ["unknown tie policy 'random'", "optimistic, pessimistic, realistic"]),
        (["--seed", "-1"], ["seed=-1"]),
        (["--seed", "9" * 30], ["seed=999"]),
        (["--graph", "no/such"], ["no/such", "there is no such file or folder"]),
        (["--graph", "countires"], ["unknown dataset 'countires'", "did you mean 'countries'"]),
        (["--graph", "countries"], ["'countries'", "unseen in training", "remove or rename"]),
    ],
    ids=lambda value: " ".join(value) if str(value[0]).startswith("--") else "",
)
def test_a_bad_option_of_evaluate(options: list[str], fragments: list[str], cli: Cli, tiny_run: Run) -> None:
    before = contents(tiny_run.path)
    cli("evaluate", tiny_run.path, "--json", *options).refused(*fragments)
    assert contents(tiny_run.path) == before


def test_a_graph_with_entities_the_lookup_model_does_not_know(cli: Cli, tiny_run: Run, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "new", train="stranger\tnext to\tperson 1\n", test="person 1\tacross\tperson 2\n")
    (folder / "train.tsv").write_text("stranger\tnext to\tperson 1\nstranger\tacross\tperson 2\n")
    cli("evaluate", tiny_run.path, "--graph", folder).refused(
        "a lookup model knows only the entities it was trained on", "1 of the 3 entities of graph 'new'", "'stranger'"
    )


@pytest.mark.parametrize(
    ("options", "fragments"),
    [
        (["--head", "preson 3", "--relation", "across"], ["unknown entity 'preson 3'", "mean 'person 3'", "24"]),
        (["--head", "PERSON 3", "--relation", "across"], ["did you mean 'person 3'"]),
        (["--tail", "zzz", "--relation", "across"], ["unknown entity 'zzz'", "none of the 24 known names"]),
        (["--head", "person 3", "--relation", "acros"], ["unknown relation 'acros'", "mean 'across'", "twin of"]),
        (["--head", "person 3", "--tail", "person 4", "--relation", "across"], ["one unknown", "either head or tail"]),
        (["--relation", "across"], ["one unknown", "either head or tail"]),
        (["--head", "person 3"], ["one unknown", "head and tail"]),
        (["--head", "person 3", "--relation", "across", "-k", "0"], ["k=0", "at least 1"]),
        (["--head", "person 3", "--relation", "across", "-k", "-5"], ["k=-5", "at least 1"]),
        (["--head", "person 3", "--relation", "across", "-k", "many"], ["'-k'", "'many'"]),
        (["--head", "[/b]", "--relation", ":smile:"], ["[/b]"]),
    ],
    ids=lambda value: " ".join(value) if str(value[0]).startswith("--") else "",
)  # fmt: skip
def test_a_bad_question(options: list[str], fragments: list[str], cli: Cli, tiny_run: Run) -> None:
    cli("predict", tiny_run.path, *options, "--json").refused(*fragments)


@pytest.mark.parametrize(
    ("arguments", "fragments"),
    [
        (["trian"], ["no such command 'trian'", "refactorgnn --help"]),
        (["train"], ["missing argument", "refactorgnn train --help"]),
        (["data", "lst"], ["no such command 'lst'", "refactorgnn data --help"]),
        (["evaluate", "x", "y"], ["unexpected extra argument", "refactorgnn evaluate --help"]),
    ],
    ids=lambda value: " ".join(value),
)
def test_a_command_line_that_makes_no_sense(arguments: list[str], fragments: list[str], cli: Cli) -> None:
    cli(*arguments).refused(*fragments)


# Places ----------------------------------------------------------------------------------------------------------


def test_an_out_folder_with_something_in_it(cli: Cli, tiny: Path, tiny_run: Run, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    before = contents(tmp_path), contents(tiny_run.path)
    for resume in ([], ["--resume"]):
        cli("train", tiny, "--out", tmp_path / "full", *resume).refused(tmp_path / "full", "something here already")
        cli("train", tiny, "--out", tmp_path / "file", *resume).refused(tmp_path / "file", "something here already")
    cli("train", tiny, "--out", tiny_run.path).refused(tiny_run.path, "a run here already", "--resume")
    assert (contents(tmp_path), contents(tiny_run.path)) == before


def test_an_empty_out_folder_is_filled(cli: Cli, tiny: Path, tmp_path: Path) -> None:
    assert cli("train", tiny, "--out", tmp_path, *QUICK_OPTIONS).code == 0
    assert (tmp_path / "config.yaml").is_file()


def test_resuming_with_other_settings(cli: Cli, tiny: Path, run_copy: Path) -> None:
    before = contents(run_copy)
    options = ["--dim", "8", "--epochs", "6", "--validate-every", "1", "--batch-size", "99", "--scorer", "complex"]
    cli("train", tiny, "--out", run_copy, "--resume", *options).refused(
        run_copy, "other settings (scorer was 'distmult', batch_size was 16)", "repeat them or choose another --out"
    )
    assert contents(run_copy) == before


@pytest.mark.parametrize("command", [["evaluate"], ["predict", "--head", "a", "--relation", "r"]], ids=lambda c: c[0])
def test_what_is_not_a_run(command: list[str], cli: Cli, tiny: Path) -> None:
    cli(*command, "no/such/run").refused("no/such/run", "there is no such run folder", "refactorgnn train")
    cli(*command, tiny).refused(tiny, "holds no run (no config.yaml)", "made by refactorgnn train")
    cli(*command, tiny / "train.tsv").refused("train.tsv", "there is no such run folder")


def test_a_place_that_cannot_be_written(cli: Cli, tiny: Path, tiny_run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    inside = tmp_path / "file" / "inside"
    cli("train", tiny, "--out", inside).refused(inside, "cannot be written (not a directory)")
    cli("data", "convert", tiny, inside, "--to", "csv").refused(inside, "cannot be written (not a directory)")
    cli("data", "convert", tiny, tmp_path / "file" / "x.nt").refused("x.nt", "cannot be written (not a directory)")
    record = cli("evaluate", tiny_run.path, "--json", "--record", inside)
    record.refused(inside, "cannot be written (not a directory)")
    assert contents(tmp_path) == {"file": b"mine"}


@pytest.mark.parametrize("failing", range(1, 7))  # train, valid, test, model.json, metrics.jsonl, config.yaml
def test_a_write_that_fails_anywhere_leaves_no_run(
    failing: int, cli: Cli, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever of the files of a new run cannot be written, there is no run afterwards."""
    calls = []

    def full_disk(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == failing:
            raise OSError(errno.ENOSPC, "whatever")

    monkeypatch.setattr(storage.os, "fsync", full_disk)
    reason = "cannot be written (no space left on device); free some space or choose another place"
    cli("train", tiny, "--out", tmp_path / "run").refused(f"{tmp_path / 'run'}: {reason}")
    assert len(calls) == failing
    assert not list(tmp_path.iterdir())


def test_a_disk_too_small_for_a_run(
    cli: Cli, tiny: Path, tiny_run: Run, tmp_path: Path, small_disk: Callable[[str], Path]
) -> None:
    disk = small_disk("12k")
    full = "cannot be written (no space left on device); free some space or choose another place"
    cli("train", tiny, "--out", disk / "run").refused(disk / "run", full)
    cli("data", "convert", "countries", disk / "out", "--to", ".tsv").refused(disk / "out", full)
    cli("data", "convert", "countries", disk / "out.nt").refused(disk / "out.nt", full)
    cli("data", "convert", "countries", disk / "out.parquet").refused(disk / "out.parquet", full)
    (disk / "ballast").write_bytes(b"x" * 12 * 1024)
    cli("evaluate", tiny_run.path, "--record", disk / "record.json", "--json").refused(disk / "record.json", full)
    assert [path.name for path in disk.iterdir()] == ["ballast"]


def test_a_disk_that_fills_up_while_training(
    cli: Cli, tiny: Path, tmp_path: Path, small_disk: Callable[[str], Path]
) -> None:
    """The weights do not fit; with more room the run is resumed and ends as if nothing had happened."""
    settings = ("--dim", "1024", "--epochs", "3", "--validate-every", "2")
    disk = small_disk("160k")
    cli("train", tiny, "--out", disk / "run", *settings).refused(disk / "run", "safetensors", "no space left on device")
    cli("evaluate", disk / "run").refused("model.safetensors: the weights are missing", "train again")
    small_disk("8m")
    assert cli("train", tiny, "--out", disk / "run", *settings, "--resume").code == 0
    assert cli("train", tiny, "--out", tmp_path / "straight", *settings).code == 0
    ended, straight = Run.open(disk / "run"), Run.open(tmp_path / "straight")
    assert ended.weights_path.read_bytes() == straight.weights_path.read_bytes()
    assert without_seconds(ended.records()) == without_seconds(straight.records())


def test_a_metrics_file_that_cannot_be_written_is_named(run_copy: Path) -> None:
    (run_copy / "metrics.jsonl").unlink()
    (run_copy / "metrics.jsonl").mkdir()
    with pytest.raises(refactorgnn.UserError, match=r"metrics\.jsonl: cannot be written \(is a directory\)"):
        Run.open(run_copy).append_record({"epoch": 1})


def test_converting_onto_what_is_there(cli: Cli, tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("precious")
    cli("data", "convert", tiny, tmp_path / "mine.csv").refused("mine.csv", "there is a file here already")
    cli("data", "convert", tiny, tmp_path, "--to", ".csv").refused(tmp_path, "this folder is not empty")
    cli("data", "convert", tiny, tmp_path / "out").refused("out names no format", "add --to with one of .tsv")
    cli("data", "convert", tiny, tmp_path / "out", "--to", "xls").refused("unknown format '.xls'", ".parquet")
    assert contents(tmp_path) == {"mine.csv": b"precious"}


def test_a_label_that_a_format_cannot_hold(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text('a,r,"two\nlines"\n')
    cli("data", "convert", tmp_path / "mine.csv", tmp_path / "mine.tsv").refused(r"'two\nlines'", "mine.tsv", ".csv")
    assert not (tmp_path / "mine.tsv").exists()


# Local copies of the benchmarks ----------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [["train"], ["data", "info"]], ids=" ".join)
def test_a_local_copy_that_is_missing(command: list[str], cli: Cli, tmp_path: Path) -> None:
    cli(*command, "UMLS", "--data-root", tmp_path / "no").refused(
        "no local copy of UMLS", tmp_path / "no", "--data-root"
    )
    cli(*command, "UMLS", "--data-root", tmp_path).refused("no local copy of UMLS", tmp_path / "UMLS", "does not exist")
    (tmp_path / "UMLS").mkdir()
    cli(*command, "UMLS", "--data-root", tmp_path).refused(tmp_path / "UMLS" / "train.txt", "train.txt.gz exists")


def test_a_local_copy_with_the_wrong_checksum(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "UMLS"
    folder.mkdir()
    for split in ("train", "valid", "test"):
        (folder / f"{split}.txt").write_text(GOOD[split])
    fragments = folder / "train.txt", "is not the train file of UMLS (SHA-256 ", "replace it by the original of UMLS"
    cli("data", "info", "UMLS", "--data-root", tmp_path).refused(*fragments)
    monkeypatch.setenv("REFACTORGNN_DATA", str(tmp_path))
    cli("train", "umls", "--out", tmp_path / "run").refused(*fragments)
    assert not (tmp_path / "run").exists()


@needs_benchmarks
def test_one_triple_changed_in_a_benchmark_is_noticed(cli: Cli, tmp_path: Path) -> None:
    shutil.copytree(BENCHMARK_COPIES / "UMLS", tmp_path / "UMLS")
    assert json.loads(cli("data", "info", "UMLS", "--data-root", tmp_path, "--json").out)["train"] == 5216
    (path,) = (tmp_path / "UMLS").glob("valid.txt*")
    lines = (gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()).splitlines(
        keepends=True
    )
    path.unlink()
    (tmp_path / "UMLS" / "valid.txt").write_bytes(b"".join(lines[1:]))
    cli("data", "info", "UMLS", "--data-root", tmp_path).refused("valid.txt", "is not the valid file of UMLS")


# Training that goes wrong ----------------------------------------------------------------------------------------


def test_a_loss_that_is_not_a_number(cli: Cli, tiny: Path, tmp_path: Path) -> None:
    options = [*QUICK_OPTIONS, "--learning-rate", "1e30", "--optimizer", "adam", "--epochs", "20"]
    outcome = cli("train", tiny, "--out", tmp_path / "run", *options)
    outcome.refused("smaller learning rate")
    run = Run.open(tmp_path / "run")  # it can be looked into
    assert run.config.learning_rate == 1e30
    assert run.graph.num_entities == 24
    assert all(record["epoch"] < 20 for record in run.records())
    cli("train", tiny, "--out", tmp_path / "run", *options, "--resume").refused("smaller learning rate")
