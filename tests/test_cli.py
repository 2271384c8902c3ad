"""The forms that others script against: what each command accepts, prints and writes."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import typer.main
import yaml

import refactorgnn
from refactorgnn import Run
from refactorgnn.cli import main
from refactorgnn.cli.app import app
from refactorgnn.data.files import SUPPORTED_SUFFIXES
from refactorgnn.evaluation import outcomes, rank_triples
from refactorgnn.export.model_card import model_card
from tests.benchmark_copies import BENCHMARK_COPIES, needs_benchmarks
from tests.conftest import (
    NUM_PEOPLE,
    ODD_NAME,
    QUICK_OPTIONS,
    Cli,
    Outcome,
    rows,
    tiny_triples,
    without_seconds,
    write_folder,
)

METRICS = ["mrr", "mr", "hits@1", "hits@3", "hits@10"]


def parsed(outcome: Outcome) -> Any:
    """What was printed as JSON, after checking that nothing else was printed."""
    assert outcome.code == 0, outcome.err
    return json.loads(outcome.out)


# train -----------------------------------------------------------------------------------------------------------


def test_the_scripted_form_of_train(cli: Cli, tiny: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    form = ("--model", "lookup", "--scorer", "distmult", "--dim", "256", "--seed", "0", "--out", out)
    summary = parsed(cli("train", tiny, *form, "--epochs", "2", "--json"))
    assert summary["run"] == str(out)
    assert (summary["best_epoch"], summary["num_parameters"]) == (2, (NUM_PEOPLE + 2 * 3) * 256)
    settings = yaml.safe_load((out / "config.yaml").read_text())
    assert (settings["dim"], settings["seed"], settings["dataset"]) == (256, 0, str(tiny))


def test_train_without_json_says_where_the_run_is(cli: Cli, tiny: Path, tmp_path: Path) -> None:
    outcome = cli("train", tiny, "--out", tmp_path / "run", *QUICK_OPTIONS)
    assert outcome.code == 0
    assert "trained lookup distmult on tiny" in outcome.out
    assert outcome.err == f"The run is in {tmp_path / 'run'}. Next: refactorgnn evaluate {tmp_path / 'run'}\n"


def test_what_comes_next_works_where_there_is_no_test_split(cli: Cli, tiny: Path, tmp_path: Path) -> None:
    splits = {name: (tiny / f"{name}.tsv").read_bytes() for name in ("train", "valid")}
    outcome = cli("train", write_folder(tmp_path / "two", **splits), "--out", tmp_path / "run", *QUICK_OPTIONS)
    assert outcome.err.endswith(f"Next: refactorgnn evaluate {tmp_path / 'run'} --split valid\n")
    assert cli(*outcome.err.split("refactorgnn ")[1].split()).code == 0


def test_facts_of_another_graph_that_training_has_seen_are_counted(cli: Cli, tiny_run: Run, tmp_path: Path) -> None:
    seen, new = tiny_triples()["train"][:5], tiny_triples()["test"]
    folder = write_folder(tmp_path / "other", train=rows(tiny_triples()["train"][5:]), test=rows([*seen, *new]))
    outcome = cli("evaluate", tiny_run.path, "--graph", folder)
    assert f"5 of the {5 + len(new)} facts asked about are among those that this run was trained on" in outcome.err
    result = parsed(cli("evaluate", tiny_run.path, "--graph", folder, "--json"))
    assert result["protocol"]["num_seen_in_training"] == 5
    assert "num_seen_in_training" not in parsed(cli("evaluate", tiny_run.path, "--json"))["protocol"]


def test_train_names_the_run_itself(cli: Cli, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli("train", tiny, "--scorer", "complex", "--seed", "3", *QUICK_OPTIONS).code == 0
    assert (tmp_path / "runs" / "tiny-lookup-complex-3" / "model.safetensors").is_file()


def test_train_on_a_single_file_splits_it_by_the_seed(cli: Cli, tmp_path: Path) -> None:
    everything = [triple for triples in tiny_triples().values() for triple in triples]
    (tmp_path / "mine.csv").write_text("".join(",".join(triple) + "\n" for triple in everything))
    graphs = {}
    for seed in ("0", "1"):
        out = tmp_path / f"run{seed}"
        assert cli("train", tmp_path / "mine.csv", "--out", out, "--seed", seed, *QUICK_OPTIONS).code == 0
        graphs[seed] = Run.open(out).graph
        assert {split: len(triples) for split, triples in graphs[seed].splits.items()} == {
            "train": 58,
            "valid": 7,
            "test": 7,
        }
    assert not torch.equal(graphs["0"].triples("test"), graphs["1"].triples("test"))


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["auto", "ddp", "ddp_fork"])
def test_several_processes_train_one_run_and_speak_with_one_voice(
    strategy: str, cli: Cli, tiny: Path, tmp_path: Path
) -> None:
    """Processes of their own, to see all that is printed; the loss is that of one process to rounding."""
    settings = ("--accelerator", "cpu", *QUICK_OPTIONS)
    out, config = tmp_path / "run", tmp_path / "mine.yaml"
    config.write_text("description: Two at work.\ndevices: 2\n")
    command = [sys.executable, "-m", "refactorgnn", "train", tiny, "--out", out, "--config", config, *settings]
    ended = subprocess.run([*command, "--strategy", strategy], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == f"Two at work.\nThe run is in {out}. Next: refactorgnn evaluate {out}\n"
    assert ended.stdout.count("trained lookup distmult on tiny") == 1
    assert cli("train", tiny, "--out", tmp_path / "alone", *settings).code == 0
    losses, expected = ([record["loss"] for record in Run.open(path).records()] for path in (out, tmp_path / "alone"))
    assert losses == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(("choice", "kind"), [("--scorer=complex", "lookup complex"), ("--model=ppr", "ppr")])
def test_a_model_without_a_registered_scorer_is_not_called_by_one(
    choice: str, kind: str, cli: Cli, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    epochs = () if kind == "ppr" else ("--dim", "4", "--epochs", "1")
    assert f"trained {kind} on tiny\n" in cli("train", tiny, choice, *epochs).out
    run = Run.open(Path("runs") / f"tiny-{kind.replace(' ', '-')}-0")
    words = "" if kind == "ppr" else " (scorer `complex`, width 4)"
    assert f"A `{kind.split()[0]}` model{words} that completes" in model_card(run, name="mine", measured=None)


@needs_benchmarks
def test_train_and_evaluate_on_a_benchmark(cli: Cli, tmp_path: Path) -> None:
    root = ("--data-root", BENCHMARK_COPIES)
    run = tmp_path / "run"
    assert cli("train", "umls", *root, "--out", run, "--dim", "8", "--epochs", "1", "--validate-every", "1").code == 0
    result = parsed(cli("evaluate", run, "--graph", "UMLS", *root, "--json"))
    assert result["protocol"] == {
        "graph": "UMLS",
        "split": "test",
        "ranking": "full",
        "ties": "realistic",
        "filter": "train+valid+test",
        "num_triples": 661,
        "num_entities": 135,
        "known": "train",
        "num_seen_in_training": 0,
    }
    del result["protocol"]["num_seen_in_training"]  # only of another graph than the run's own
    assert without_seconds([result]) == without_seconds([parsed(cli("evaluate", run, "--json"))])


# evaluate --------------------------------------------------------------------------------------------------------


def test_the_scripted_form_of_evaluate(cli: Cli, tiny_run: Run) -> None:
    form = ("--split", "test", "--ranking", "full", "--ties", "realistic", "--json")
    result = parsed(cli("evaluate", tiny_run.path, *form))
    expected = refactorgnn.evaluate(tiny_run)
    assert {name: result[name] for name in METRICS} == {name: expected.metrics[name] for name in METRICS}
    assert set(result["by_direction"]) == {"head", "tail"}
    assert set(result["by_relation"]) == {"across", "next to", "twin of"}
    assert sum(values["num_questions"] for values in result["by_relation"].values()) == 12
    assert all(low <= result[name] <= high for name, (low, high) in result["confidence"].items())
    assert without_seconds([result]) == without_seconds([parsed(cli("evaluate", tiny_run.path, "--json"))])


def test_evaluate_for_people(cli: Cli, tiny_run: Run) -> None:
    short = cli("evaluate", tiny_run.path)
    assert "tiny test, full ranking, realistic ties" in short.out
    assert "12 questions" in short.err
    assert "twin of" not in short.out
    assert "twin of" in cli("evaluate", tiny_run.path, "--per-relation").out


def test_another_split(cli: Cli, tiny_run: Run) -> None:
    result = parsed(cli("evaluate", tiny_run.path, "--split", "valid", "--json"))
    assert result["mrr"] == tiny_run.sidecar["valid_mrr"]
    assert result["protocol"]["split"] == "valid"


def test_another_graph_with_fewer_relations(cli: Cli, tiny_run: Run, tmp_path: Path) -> None:
    """Its relation has id 0 there and 2 in the run: only the right translation gives the right answers."""
    splits = {
        split: rows([triple for triple in triples if triple[1] == "twin of"])
        for split, triples in tiny_triples().items()
    }
    folder = write_folder(tmp_path / "twins", **splits)
    result = parsed(cli("evaluate", tiny_run.path, "--graph", folder, "--json"))
    whole = parsed(cli("evaluate", tiny_run.path, "--json"))["by_relation"]["twin of"]
    assert {name: result[name] for name in METRICS} == {name: whole[name] for name in METRICS}
    assert result["protocol"]["graph"] == "twins"


@pytest.mark.parametrize("ranking", ["partial", "partial-exact"])
def test_partial_ranking_of_a_graph_smaller_than_the_sample_is_full(ranking: str, cli: Cli, tiny_run: Run) -> None:
    full = parsed(cli("evaluate", tiny_run.path, "--json"))
    partial = parsed(cli("evaluate", tiny_run.path, "--ranking", ranking, "--json"))
    assert [partial[name] for name in METRICS] == pytest.approx([full[name] for name in METRICS])
    assert partial["protocol"]["ranking"] == ranking
    assert partial["protocol"]["num_negatives"] == 49


def test_a_filter_is_named_in_the_result_and_misspelt_ones_are_refused(cli: Cli, tiny_run: Run) -> None:
    whole, usual, less = (
        parsed(cli("evaluate", tiny_run.path, *filters, "--json"))
        for filters in (("--filter", "train,valid,test"), (), ("--filter", "test"))
    )
    assert [whole[name] for name in METRICS] == [usual[name] for name in METRICS]
    assert whole["protocol"]["filter"] == "train+valid+test"
    assert less["protocol"]["filter"] == "test"
    graph = tiny_run.graph
    bound = tiny_run.load_model().bind(graph)
    expected = outcomes(rank_triples(bound, graph, graph.triples("test"), known=graph.queries("test"))).mean()
    assert [less[name] for name in METRICS] == pytest.approx([expected[name] for name in METRICS])
    shown = cli("evaluate", tiny_run.path, "--filter", "test")
    assert "tiny test, full ranking, realistic ties, filtered by test\n" in shown.out
    cli("evaluate", tiny_run.path, "--filter", "trian").refused("no split 'trian'", "train, valid, test")
    cli("evaluate", tiny_run.path, "--filter", ",").refused("no split to filter by is named", "train, valid, test")


def test_a_model_may_know_other_splits_but_not_the_one_asked_about(
    cli: Cli, tiny: Path, tiny_run: Run, tmp_path: Path
) -> None:
    walks = tmp_path / "walks"
    assert cli("train", tiny, "--model", "ppr", "--out", walks).code == 0
    run = Run.open(walks)
    model, graph, all_known = run.load_model(), run.graph, run.graph.queries()
    for known in (["train"], ["valid", "train"]):
        result = parsed(cli("evaluate", walks, "--known", ",".join(known), "--json"))
        ranks = rank_triples(model.bind(graph, known), graph, graph.triples("test"), known=all_known)
        expected = outcomes(ranks).mean()
        assert [result[name] for name in METRICS] == pytest.approx([expected[name] for name in METRICS])
        assert result["protocol"]["known"] == "+".join(known)
    shown = cli("evaluate", walks, "--known", "train,valid,train")
    assert "filtered by train+valid+test, knowing train+valid\n" in shown.out
    assert parsed(cli("evaluate", walks, "--split", "train", "--json"))["protocol"]["known"] == "train"
    cli("evaluate", walks, "--known", "train,test").refused("split 'test' is asked about", "--known")
    cli("evaluate", walks, "--known", "trian").refused("no split 'trian'", "train, valid, test")
    cli("evaluate", walks, "--known", ",").refused("no split that the model knows")
    cli("evaluate", tiny_run.path, "--known", "train,valid").refused("changes nothing", "Leave it out")
    for features, is_refused in (("random", True), ("signature+random", False)):
        untrained = tmp_path / features
        settings = ("--model", "no-pretrain", "--features", features, "--dim", "4")
        assert cli("train", tiny, *settings, "--out", untrained).code == 0
        assert cli("evaluate", untrained, "--known", "train,valid").code == (2 if is_refused else 0)


def test_tie_policies_on_a_constant_model(cli: Cli, run_copy: Path) -> None:
    run = Run.open(run_copy)
    zeros = {name: torch.zeros_like(tensor) for name, tensor in run.load_model().state_dict().items()}
    run.save_tensors(run.weights_path, zeros)
    found = {
        ties: parsed(cli("evaluate", run_copy, "--ties", ties, "--json"))
        for ties in ("optimistic", "realistic", "pessimistic")
    }
    assert found["optimistic"]["mrr"] == 1.0
    assert found["realistic"]["amri"] == pytest.approx(0, abs=1e-12)  # a guess, and no better
    assert found["pessimistic"]["mr"] == 2 * found["realistic"]["mr"] - 1
    assert found["pessimistic"]["hits@10"] == 0.0


def test_the_seed_of_evaluate_moves_the_interval_only(cli: Cli, tiny_run: Run) -> None:
    zero, one = (parsed(cli("evaluate", tiny_run.path, "--seed", seed, "--json")) for seed in ("0", "1"))
    assert zero["mrr"] == one["mrr"]
    assert zero["confidence"] != one["confidence"]


def test_a_record_has_all_that_is_needed_to_measure_again(cli: Cli, tiny_run: Run, tmp_path: Path) -> None:
    path = tmp_path / "new" / "record.json"
    result = parsed(cli("evaluate", tiny_run.path, "--json", "--record", path))
    record = json.loads(path.read_text(encoding="utf-8"))
    assert record["result"] == result
    assert record["config"] == tiny_run.config.model_dump()
    assert record["training"]["valid_mrr"] == tiny_run.sidecar["valid_mrr"]
    assert record["evaluated_with"]["command"].startswith("refactorgnn evaluate …/tiny --json")
    assert set(record["evaluated_with"]) >= {"commit", "hardware", "time", "torch", "version"}


# predict ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["--head", "--tail"])
def test_the_scripted_form_of_predict(given: str, cli: Cli, tiny_run: Run) -> None:
    answers = parsed(cli("predict", tiny_run.path, given, "person 3", "--relation", "across", "-k", "10", "--json"))
    question: dict[str, Any] = {given.removeprefix("--"): "person 3"}
    expected = refactorgnn.predict(tiny_run, relation="across", k=10, **question)
    assert answers == [answer.to_dict() for answer in expected]
    assert len(answers) == 10
    assert list(answers[0]) == ["entity", "label", "score", "known", "split", "probability"]


def test_predict_for_people_shows_names_as_they_are(cli: Cli, tiny_run: Run) -> None:
    outcome = cli("predict", tiny_run.path, "--tail", ODD_NAME, "--relation", "next to", "-k", "24", "--include-known")
    assert outcome.code == 0
    assert f"(?, next to, {ODD_NAME})" in outcome.out
    assert sum(ODD_NAME in line for line in outcome.out.splitlines()) == 1  # the question: it is no answer to itself
    (line,) = (line for line in outcome.out.splitlines() if line.rstrip().endswith("train"))
    assert "person 4" in line
    other = cli("predict", tiny_run.path, "--tail", "person 6", "--relation", "next to", "-k", "24", "--include-known")
    assert sum(ODD_NAME in line for line in other.out.splitlines()) == 1  # among the answers


def test_ten_answers_unless_told(cli: Cli, tiny_run: Run) -> None:
    assert len(parsed(cli("predict", tiny_run.path, "--head", "person 3", "--relation", "across", "--json"))) == 10


# data ------------------------------------------------------------------------------------------------------------


def test_data_list(cli: Cli) -> None:
    listed = {entry["name"]: entry for entry in parsed(cli("data", "list", "--json"))}
    assert {"countries", "UMLS", "CoDEx-S", "FB15k-237", "WN18RR", "fb237_v1", "nell_v4_ind"} <= set(listed)
    assert listed["FB15k-237"]["num_train"] == 272_115
    assert listed["fb237_v1"]["unseen"] == "fb237_v1_ind"
    assert listed["UMLS"]["unseen"] is None
    shown = cli("data", "list").out
    assert all(any(line.split()[:1] == [name] for line in shown.splitlines()) for name in listed)
    assert "272,115" in shown


def test_data_info(cli: Cli, tiny: Path) -> None:
    assert parsed(cli("data", "info", tiny, "--json")) == {
        "name": "tiny",
        "entities": 24,
        "relations": 3,
        "train": 61,
        "valid": 5,
        "test": 6,
        "entities absent from train": 0,
        "self-loops in train": 0,
        "questions in train": 122,
        "entities with text": 0,
        "notes": [],
    }
    shown = cli("data", "info", tiny).out
    assert "questions in train" in shown


def test_data_info_says_how_hard_a_test_split_is(cli: Cli, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "x", train="a\tr\tb\nb\tr\tc\n", test="a\tr\tc\na\tr\td\n")
    facts = parsed(cli("data", "info", folder, "--reach", "--json"))
    assert facts["reach"] == [0, 0.5, 0.5, 0.5]
    assert facts["counted_with"]["command"].endswith("--reach --json")
    assert "test facts joined by up to 2 known" in cli("data", "info", folder, "--reach").out
    alone = write_folder(tmp_path / "y", train="a\tr\tb\n")
    cli("data", "info", alone, "--reach").refused("no test split", "leave --reach out")


def test_data_info_counts_only_the_texts_there_are(cli: Cli, tmp_path: Path) -> None:
    texts = "entity\tlabel\tdescription\na\tAda\t\nb\tb\ta town\nc\t\t\n"
    folder = write_folder(tmp_path / "x", train="a\tr\tb\nc\tr\tc\n", test="d\tr\ta\n", entities=texts)
    facts = parsed(cli("data", "info", folder, "--json"))
    assert facts["entities with text"] == 2
    assert facts["entities absent from train"] == 1
    assert facts["self-loops in train"] == 1


@pytest.mark.parametrize("suffix", SUPPORTED_SUFFIXES)
def test_convert_a_folder_there_and_back(suffix: str, cli: Cli, tiny: Path, tmp_path: Path) -> None:
    done = parsed(cli("data", "convert", tiny, tmp_path / "out", "--to", suffix, "--json"))
    names = [f"{split}{suffix}" for split in ("train", "valid", "test")]
    assert done == {"name": "tiny", "files": [str(tmp_path / "out" / name) for name in names], "notes": []}
    assert sorted(path.name for path in tmp_path.rglob("*")) == sorted(["out", *names])
    before, after = refactorgnn.load_graph(tiny), refactorgnn.load_graph(tmp_path / "out")
    assert after.entities == before.entities
    assert after.relations == before.relations
    for split in before.splits:
        assert torch.equal(after.triples(split), before.triples(split))


@pytest.mark.parametrize("suffix", SUPPORTED_SUFFIXES)
def test_convert_to_one_file(suffix: str, cli: Cli, tiny: Path, tmp_path: Path) -> None:
    outcome = cli("data", "convert", tiny, tmp_path / f"all{suffix}")
    assert (outcome.code, outcome.out, outcome.err) == (0, "", f"wrote {tmp_path / f'all{suffix}'}\n")
    facts = parsed(cli("data", "info", tmp_path / f"all{suffix}", "--json"))
    assert (facts["entities"], facts["train"] + facts["valid"] + facts["test"]) == (24, 72)


def test_convert_keeps_texts_where_they_fit_and_says_where_they_do_not(cli: Cli, tmp_path: Path) -> None:
    for name in ("all.nt", "all.ttl.gz"):
        assert parsed(cli("data", "convert", "countries", tmp_path / name, "--json"))["notes"] == []
    assert cli("data", "convert", "countries", tmp_path / "folder", "--to", "csv").code == 0
    original = refactorgnn.load_graph("countries")
    for name in ("all.nt", "all.ttl.gz", "folder"):
        assert refactorgnn.load_graph(tmp_path / name).texts.equals(original.texts), name
    outcome = cli("data", "convert", "countries", tmp_path / "all.tsv")
    assert outcome.code == 0
    assert "note: all.tsv has no room for the entity texts" in outcome.err
    assert refactorgnn.load_graph(tmp_path / "all.tsv").num_triples == original.num_triples


def test_a_suffix_may_lack_its_dot(cli: Cli, tiny: Path, tmp_path: Path) -> None:
    assert cli("data", "convert", tiny, tmp_path / "out", "--to", "tsv.gz").code == 0
    assert (tmp_path / "out" / "train.tsv.gz").is_file()


# Help, and what goes where ---------------------------------------------------------------------------------------


def _commands(command: Any, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    found = {path: command}
    for name, child in getattr(command, "commands", {}).items():
        found |= _commands(child, (*path, name))
    return found


COMMANDS = _commands(typer.main.get_command(app))


def test_the_commands_are_those_that_were_promised() -> None:
    assert {" ".join(path) for path in COMMANDS} == {
        "", "train", "tune", "ensemble", "evaluate", "predict", "explain", "reproduce", "rules",
        "index", "serve", "bench", "export", "export embeddings", "export huggingface",
        "data", "data list", "data info", "data convert",
    }  # fmt: skip


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_explains_the_command_and_each_option(
    path: tuple[str, ...], cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    outcome = cli(*path, "--help")
    assert (outcome.code, outcome.err) == (0, "")
    assert COMMANDS[path].help.strip().splitlines()[0] in outcome.out
    for parameter in COMMANDS[path].params:
        assert parameter.help, parameter.name
        name = parameter.opts[-1]
        assert name in outcome.out
        assert parameter.help.replace("\\[", "[").split("…")[0].strip()[:40] in outcome.out, name


@pytest.mark.parametrize("command", ["bench", "reproduce"])
def test_brackets_in_the_help_are_no_markup(command: str, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    assert "n[v]" in cli(command, "--help").out


def test_the_version(cli: Cli) -> None:
    assert cli("--version") == Outcome(0, f"refactorgnn {refactorgnn.__version__}\n", "")


@pytest.mark.parametrize("path", [(), ("data",)], ids=["refactorgnn", "refactorgnn data"])
def test_no_command_shows_the_help(path: tuple[str, ...], cli: Cli) -> None:
    outcome = cli(*path)
    assert "Usage: " in outcome.out
    assert outcome.err == ""
    assert outcome.code == 2


def test_an_ascii_terminal_is_no_reason_to_fail(tiny_run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*arguments: str) -> str:
        stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
        monkeypatch.setattr(sys, "stdout", stream)
        monkeypatch.setattr(sys, "argv", ["refactorgnn", "predict", str(tiny_run.path), *arguments])
        with pytest.raises(SystemExit) as exit_:
            main()
        assert exit_.value.code in (0, None)
        stream.seek(0)
        return stream.read()

    question = ("--tail", "person 6", "--relation", "next to", "-k", "24", "--include-known")
    assert ODD_NAME in [answer["entity"] for answer in json.loads(run(*question, "--json"))]
    assert "\\xcele [/b] :smile:" in run(*question)


def test_the_system_s_errors_never_show_a_traceback(cli: Cli, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for error in (OSError("no number"), OSError(5, "x"), FileNotFoundError(2, "x", "some file"), OSError(5, "x", b"y")):
        monkeypatch.setattr(
            "refactorgnn.cli.data.load_graph", lambda *_, error=error, **__: (_ for _ in ()).throw(error)
        )
        cli("data", "info", tiny).refused()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_that_nobody_takes() -> None:
    """Processes of their own: what Python says when it shuts down is to be seen as well."""
    command = [sys.executable, "-m", "refactorgnn", "data", "list"]
    environment = {**os.environ, "PYTHONUNBUFFERED": ""}
    read_end, write_end = os.pipe()
    os.close(read_end)  # as `| head -0` would
    with open("/dev/full", "w") as full, os.fdopen(write_end, "w") as closed:  # noqa: PTH123
        started = {
            name: subprocess.Popen(
                [*command, *options], stdout=stdout, stderr=subprocess.PIPE, text=True, env=environment
            )
            for name, options, stdout in (
                ("closed", [], closed),
                ("closed json", ["--json"], closed),
                ("full", ["--json"], full),
            )
        }
    for name, process in started.items():
        _, said = process.communicate(timeout=120)
        if name.startswith("closed"):
            assert (process.returncode, said) == (1, "")
        else:
            Outcome(process.returncode, "", said).refused("standard output", "no space left on device")
