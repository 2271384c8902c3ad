"""``refactorgnn reproduce``: from a command to a table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from refactorgnn.reproduce import reproduction
from refactorgnn.reproduce.recipe import Recipe
from refactorgnn.reproduce.records import load_records
from tests.conftest import Cli
from tests.reproduce.small import recipe

__all__ = ["recipe"]


def test_a_table_from_beginning_to_end(
    recipe: Recipe, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "results"
    command = ("reproduce", "small", "--rows", "noise,COUNTS", "--out", out, "--accelerator", "cpu")
    outcome = cli(*command, "--seeds", "2")
    assert outcome.code == 0, outcome.err
    records = load_records(out)
    assert len(records) == 4
    assert {path.parent.name for path in (out / "records").rglob("*.json")} == {"small"}
    assert f"The page is {out / 'small.md'}." in outcome.err
    assert f"4 run(s), {sum(record.seconds for record in records.values()):,.0f} s in all on " in outcome.err
    monkeypatch.setattr(reproduction, "run_experiments", None)  # nothing may be run any more
    (out / "small.md").unlink()
    shown = cli(*command, "--seeds", "3", "--show")
    assert shown.code == 0, shown.err
    assert shown.out.count("(2 of 3)") == 4  # two rows, two metrics
    assert not (out / "small.md").exists()
    content = json.loads(cli(*command, "--seeds", "2", "--show", "--json", "--pages", tmp_path / "pages").out)
    found = [record.full["mrr"] for record in records.values() if record.config["features"] == "random"]
    assert content["cells"][0]["ours"]["mean"] == pytest.approx(sum(found) / 2)
    assert content["pages"] == [str(tmp_path / "pages" / "small.md")]
    assert (tmp_path / "pages" / "small.md").is_file()


def test_failures_are_named_and_the_exit_code_tells(recipe: Recipe, cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "recipes" / "paper.yaml"
    path.write_text(path.read_text(encoding="utf-8").replace("{features: signature}", "{alpha: 1.0e+38}"))
    command = ("reproduce", "small", "--rows", "noise,counts", "--seeds", "1", "--out", tmp_path)
    for _ in range(2):
        outcome = cli(*command, "--device", "cpu")  # another word for --accelerator
        assert outcome.code == 1
        failed = [line for line in outcome.err.splitlines() if line.startswith("failed: ")]
        assert len(failed) == 1
        assert failed[0].startswith("failed: counts on countries_part, seed 0: ")
        assert "1 experiment(s) failed; the same command tries those again, and no others." in outcome.err
        assert "noise" in outcome.out
        assert len(load_records(tmp_path)) == 1


@pytest.mark.parametrize(
    ("arguments", "fragments"),
    [
        (("inductve",), ("table 'inductve'", "'inductive'")),
        (("complexty",), ("table 'complexty'", "'complexity'")),
        (("inductive", "--recipe", "bets"), ("recipe 'bets'", "'best'")),
        (("inductive", "--datasets", "fb237_v1,fb273_v2"), ("dataset 'fb273_v2'", "'fb237_v2'")),
        (("inductive", "--rows", "GAT(3) [S]"), ("row 'GAT(3) [S]'", "'GAT(3) [R]'")),
        (("inductive", "--rows", ","), ("no row is named",)),
        (("inductive", "--rows", "ensemble [T]"), ("recipe 'paper' has no settings for these rows",)),
        (
            ("transductive", "--recipe", "best", "--rows", "ComplEx + relations", "--datasets", "UMLS"),
            ("on other datasets only: FB15k-237",),
        ),
        (("inductive", "--show"), ("results has no records", "--out")),
        (("inductive", "--seeds", "0"), ("seeds=0",)),
        (("inductive", "--jobs", "0"), ("jobs=0",)),
        (("inductive", "--accelerator", "abacus"), ("accelerator", "'abacus'")),
    ],
)
def test_mistakes_are_refused(cli: Cli, tmp_path: Path, arguments: tuple[str, ...], fragments: tuple[str, ...]) -> None:
    cli("reproduce", *arguments, "--out", tmp_path / "results").refused(*fragments)
    assert list(tmp_path.iterdir()) == []


def test_the_help_names_every_table(cli: Cli) -> None:
    outcome = cli("reproduce", "--help")
    assert outcome.code == 0
    for name in ("transductive", "inductive", "ablation", "text-gain", "depth", "paper|best"):
        assert name in outcome.out
