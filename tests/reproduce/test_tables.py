"""The tables and recipes: every figure of the paper has its place, every cell has settings that can be trained."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from refactorgnn.data.datasets import DATASETS
from refactorgnn.errors import FileError
from refactorgnn.reproduce.cells import Cell, Column, Metric, Published, Row, published, published_figures
from refactorgnn.reproduce.pages import our_texts
from refactorgnn.reproduce.recipe import RECIPES, Recipe, family_of
from refactorgnn.reproduce.records import Aggregate
from refactorgnn.reproduce.tables import NUM_SEEDS, TABLES, has_cell
from refactorgnn.runs import CIRCUMSTANCES
from refactorgnn.training.config_files import ConfigFile
from tests.benchmark_copies import BENCHMARK_COPIES
from tests.reproduce.small import PAIR, TABLE, fake_record, recipe

__all__ = ["recipe"]
ROOT = Path(__file__).parent.parent.parent
FACTS = BENCHMARK_COPIES.parent / "paper" / "published_results.json"


def test_the_published_figures_are_the_papers() -> None:
    if not FACTS.is_file():
        pytest.skip("the paper's figures are not beside the copies of the benchmarks")
    assert published_figures() == json.loads(FACTS.read_text(encoding="utf-8"))


def test_every_published_figure_stands_in_a_table() -> None:
    """Counted: a row or dataset whose name is misspelt would silently have none."""
    counts = {}
    for table in TABLES.values():
        for metric in table.metrics:
            names = {row.name for row in table.rows}
            rows = [*table.rows, *(Row(name) for name in table.rivals if name not in names)]
            cells = [(row, column) for row in rows for column in table.columns if has_cell(row, column)]
            counts[table.name, metric.title] = sum(published(metric, *cell) is not None for cell in cells)
    assert counts == {
        ("transductive", "MRR"): 3 * 3 - 1,  # R-GCN has none on UMLS
        # Ten rows, five rivals (NBFNet has none on NELL), and four rows of ours beside those of the paper.
        ("inductive", "Hits@10, full ranking"): (10 + 4) * 12,
        ("inductive", "Hits@10, partial ranking"): (10 + 5 + 4) * 12 - 4,
        ("inductive", "MRR, full ranking"): 0,
        ("ablation", "MRR"): 4,
        ("text-gain", "difference of MRR"): 5,  # three depths, two of them on two graphs
        ("depth", "MRR"): 0,
        ("depth", "parameters"): 0,
        # NBFNet and GraIL on two families, Neural-LP and DRUM on one, RuleN on three.
        ("rivals", "MRR, full ranking"): (2 * 2 + 2 * 1 + 3) * 4,
        ("rivals", "Hits@10, full ranking"): 6 * 12,  # the paper's own rows
        ("rivals", "Hits@10, partial ranking"): (6 + 5) * 12 - 4,
        ("rivals", "training seconds"): 0,
        ("rivals", "inference seconds"): 0,
        ("rivals", "parameters"): 0,
        ("rivals", "peak memory, MB"): 0,
    }


@pytest.mark.parametrize(
    ("table", "metric", "row", "dataset", "figure"),
    [
        ("transductive", 0, "ReFactorGNN(inf)", "UMLS", Published(0.93)),
        ("inductive", 0, "ReFactorGNN(6) [T]", "WN18RR_v3", Published(0.522, 0.001)),
        ("inductive", 1, "GAT(3) [R]", "nell_v4", Published(0.187, 0.098)),
        ("ablation", 0, "without n[v] [T]", "fb237_v1", Published(0.452)),
        ("text-gain", 0, "L = inf", "fb237_v1", Published(0.016)),
        ("rivals", 0, "RuleN", "nell_v3", Published(0.381)),
        ("rivals", 0, "NBFNet", "WN18RR_v2", Published(0.704)),
        ("rivals", 2, "RuleN", "fb237_v1", Published(0.498)),
    ],
)
def test_figures_are_where_the_paper_has_them(
    table: str, metric: int, row: str, dataset: str, figure: Published
) -> None:
    found = TABLES[table]
    rows = {one.name: one for one in found.rows}
    assert published(found.metrics[metric], rows[row], Column(dataset)) == figure


@pytest.mark.parametrize("name", RECIPES)
def test_every_cell_has_settings_that_can_be_trained(name: str) -> None:
    chosen = Recipe.load(name)
    for table in TABLES.values():
        missing = {row.name for row in table.rows} - {row.name for row in table.measured_rows(chosen)}
        # What the paper does not have.
        extra = {"best [R]", "best [T]", "ensemble [R]", "ensemble [T]"}
        extra |= {"ComplEx", "ComplEx + relations", "ReFactorGNN(inf) ComplEx", "ensemble (inf)", "ensemble (unlinked)"}
        assert missing == ({row.name for row in table.rows} & extra if name == "paper" else set())
        for experiment in table.experiments(chosen, 1):
            for one in (experiment, *experiment.members):
                assert len(one.key) == 64  # which needs a valid TrainConfig
        for column in table.columns:
            assert column.dataset in DATASETS
            assert column.graph in (None, DATASETS[column.dataset].unseen)


def test_the_paper_recipe_keeps_to_what_was_published() -> None:
    chosen = Recipe.load("paper")
    for dataset in TABLES["inductive"].datasets:
        for depth in (3, 6):
            for features, word in (("R", "random"), ("T", "text")):
                config = chosen.experiment(f"ReFactorGNN({depth}) [{features}]", dataset, None, 0).config.model_dump()
                assert (config["dim"], config["layers"], config["features"]) == (768, depth, word)
                assert (config["mask"], config["scorer"], config["n_term"]) == (0, "distmult", "exact")
                assert config["alpha"] in (0.1, 0.01)
                assert config["n3"] in (0, 0.0005, 0.005)
                assert config["learning_rate"] in (0.01, 0.001)
                assert config["weight_decay"] in (0, 0.01, 0.1)
                assert config["dropout"] in (0, 0.5)
                gat = chosen.experiment(f"GAT({depth}) [{features}]", dataset, None, 0).config.model_dump()
                assert (gat["dim"], gat["heads"], gat["layers"], gat["mask"]) == (768, 8, depth, 0)
                assert gat["learning_rate"] in (0.01, 0.001)


@pytest.mark.parametrize(
    ("row", "file", "num_files"),
    [
        ("DistMult", "{}-distmult", 2),
        ("ComplEx + relations", "{}-complex-relations", 1),
        ("ReFactorGNN(inf)", "{}-inf-distmult", 3),
        ("ReFactorGNN(inf) ComplEx", "{}-inf-complex", 3),
    ],
)
def test_the_best_recipe_is_that_of_the_configs(row: str, file: str, num_files: int) -> None:
    chosen, num_compared = Recipe.load("best"), 0
    narrow = {("ReFactorGNN(inf)", "FB15k-237")}  # measured again for the table, on a CPU, where it is faster
    for dataset in TABLES["transductive"].datasets:
        path = ROOT / "configs" / f"{file.format(dataset.lower())}.yaml"
        if path.is_file():
            ours, theirs = chosen.experiment(row, dataset, None, 0).config, ConfigFile.read(path).train_config({})
            theirs = theirs.model_copy(update={"precision": "bf16-mixed"}) if (row, dataset) in narrow else theirs
            assert ours.model_dump(exclude=CIRCUMSTANCES) == theirs.model_dump(exclude=CIRCUMSTANCES)
            num_compared += 1
    assert num_compared == num_files


@pytest.mark.parametrize("name", RECIPES)
def test_tables_share_experiments(name: str) -> None:
    chosen = Recipe.load(name)
    keys = {table.name: {one.key for one in table.experiments(chosen, 1)} for table in TABLES.values()}
    assert len(keys["ablation"] & keys["inductive"]) == 2  # with n[v], [R] and [T]
    assert len(keys["text-gain"] & keys["inductive"]) == 4  # L = 3 and 6 on the unseen graph
    assert len(keys["depth"] & keys["inductive"]) == 8  # L = 3 and 6 of both models on both datasets


@pytest.mark.parametrize(("dataset", "has_nbfnet"), [("WN18RR_v2", False), ("WN18RR_v1", True)])
def test_ensembles_share_members_with_neighbouring_seeds_and_a_slow_one_with_all(
    dataset: str, has_nbfnet: bool
) -> None:
    chosen = Recipe.load("best")
    members = [
        {member.key for member in chosen.experiment("ensemble [T]", dataset, f"{dataset}_ind", seed).members}
        for seed in range(NUM_SEEDS)
    ]
    slow = {chosen.experiment("NBFNet", dataset, f"{dataset}_ind", 0).key} if has_nbfnet else set()
    # The texts of two seeds, and of one each what random features, rules and two kinds of walks make of it.
    assert len(set.union(*members)) == (NUM_SEEDS + 1) + 4 * NUM_SEEDS + len(slow)
    assert set.intersection(*members) == slow
    assert len(members[0] & members[1] - slow) == 1
    assert members[0] & members[2] == slow


def test_a_row_of_some_datasets_is_no_training_on_others() -> None:
    """An ensemble without members would be a model of default settings under the ensemble's name."""
    chosen, whole = Recipe.load("best"), TABLES["transductive"]
    for name in ("ensemble (unlinked)", "ComplEx + relations"):
        table = whole.part([name], None)
        assert [one.dataset for one in table.experiments(chosen, 1)] == ["FB15k-237"]
        assert [cell.column.dataset for cell in table.cells(chosen, {}, 1)] == ["FB15k-237"]
        assert not chosen.has(name, "UMLS")
    for table in TABLES.values():
        for name in RECIPES:
            for one in table.experiments(Recipe.load(name), 1):
                assert one.members or one.settings["model"], one.name


def test_the_best_of_several_published_rows_stands_beside_ours() -> None:
    table = TABLES["inductive"]
    (row,) = (row for row in table.rows if row.name == "best [T]")
    by_column = {column.dataset: published(table.metrics[0], row, column) for column in table.columns}
    assert by_column["nell_v1"] == Published(0.967, 0.005)  # ReFactorGNN(6) [R]
    assert by_column["WN18RR_v2"] == Published(0.848, 0.003)  # ReFactorGNN(6) [T]


def test_cells_are_of_the_seeds_that_there_are(recipe: Recipe) -> None:
    figures = {"noise": {0: 0.1, 1: 0.3, 2: 0.2}, "counts": {0: 0.5, 1: 0.4}}
    records = {}
    for row, by_seed in figures.items():
        for seed, figure in by_seed.items():
            one = recipe.experiment(row, PAIR.dataset, PAIR.graph, seed)
            records[one.key] = fake_record(one, figure)
    cells = {cell.row.name: cell.ours for cell in TABLE.cells(recipe, records, 5) if cell.metric.title == "MRR"}
    assert cells["noise"] == Aggregate(pytest.approx(0.2), pytest.approx(0.1), 3)
    # Seed by seed: 0.5 − 0.1 and 0.4 − 0.3; the third seed of noise has no partner.
    assert cells["gain"] == Aggregate(pytest.approx(0.25), pytest.approx(0.3 / 2**0.5), 2)
    assert cells["both"] is None
    assert all(cell.ours is None or cell.ours.n == 1 for cell in TABLE.cells(recipe, records, 1))


def test_no_mean_is_taken_over_seconds_of_a_gpu_and_of_a_cpu(recipe: Recipe) -> None:
    records = []
    for seed, (seconds, gpu) in enumerate([(1.0, "one"), (60.0, None), (3.0, "other")]):
        stamp = {"commit": "c0ffee", "hardware": {"cpu": "abacus", "threads": 1} | ({"gpu": gpu} if gpu else {})}
        training = {"seconds": seconds, "num_parameters": 7, "trained_with": stamp}
        one = recipe.experiment("noise", PAIR.dataset, PAIR.graph, seed)
        costs = {"inference_seconds": seconds / 2} if gpu else {}
        records.append([fake_record(one, 0.5, training=training, evaluated_with=stamp, costs=costs)])
    row, seconds_of = Row("noise"), Metric("training seconds", "training", "seconds")
    cell = Cell.measured(row, PAIR, seconds_of, records)
    on_gpu = Aggregate(2.0, pytest.approx(2**0.5), 2)
    assert cell.by_machine == {"GPU": on_gpu, "CPU": Aggregate(60.0, None, 1)}
    assert cell.ours == on_gpu
    assert our_texts(cell, 3) == ["GPU 2.0 ± 1.4 (2 of 3)", "CPU 60.0 (1 of 3)"]
    asked = Cell.measured(row, PAIR, Metric("inference seconds", "costs", "inference_seconds"), records)
    assert our_texts(asked, 2) == ["GPU 1.0 ± 0.7"]
    assert our_texts(Cell.measured(row, PAIR, seconds_of, []), 3) == ["–"]
    for metric in (Metric("MRR", "full", "mrr"), Metric("parameters", "training", "num_parameters")):
        assert Cell.measured(row, PAIR, metric, records).by_machine == {}
        assert Cell.measured(row, PAIR, metric, records).ours.n == 3


def test_shortfall() -> None:
    row, column, metric = Row("a"), Column("b"), TABLE.metrics[0]
    for ours, expected in ((0.5, 0.1), (0.6, None), (0.7, None)):
        cell = Cell(row, column, metric, Aggregate(ours, None, 1), Published(0.6))
        assert cell.shortfall == (None if expected is None else pytest.approx(expected))
    assert Cell(row, column, metric, None, Published(0.6)).shortfall is None


RECIPE = """
defaults: {dim: 16, epochs: 1}
rows:
  base:
    settings: {model: refactor, alpha: 0.1, epochs: 2}
    families: {fb237: {alpha: 0.2, n3: 0.1}}
    datasets: {fb237_v2: {alpha: 0.3}}
    selected: [fb237_v2]
  near: {like: base, settings: {alpha: 0.4, layers: 3}, datasets: {fb237_v2: {n3: 0.2}}}
"""


def test_rows_of_another_file_are_taken_over(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text(f"include: shared.yaml{RECIPE}", encoding="utf-8")
    shared = "rows: {base: {settings: {model: gat}}, other: {like: base, settings: {layers: 2}}}"
    (tmp_path / "shared.yaml").write_text(shared, encoding="utf-8")
    found = Recipe.read(tmp_path / "r.yaml")
    assert found.settings("base", "nell_v1")["model"] == "refactor"  # its own row stands over the other's
    assert found.settings("other", "nell_v1") == {
        "dim": 16,
        "epochs": 2,
        "model": "refactor",
        "alpha": 0.1,
        "layers": 2,
    }
    (tmp_path / "shared.yaml").write_text("rows: {base: {setting: {}}}", encoding="utf-8")
    with pytest.raises(FileError, match=r"shared.yaml: row 'base'.*'setting'"):
        Recipe.read(tmp_path / "r.yaml")


def test_settings_are_merged_from_the_general_to_the_special(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text(RECIPE, encoding="utf-8")
    found = Recipe.read(tmp_path / "r.yaml")
    shared = {"dim": 16, "epochs": 2, "model": "refactor"}
    assert found.settings("base", "nell_v1") == shared | {"alpha": 0.1}
    assert found.settings("base", "fb237_v1") == shared | {"alpha": 0.2, "n3": 0.1}
    assert found.settings("base", "fb237_v2") == shared | {"alpha": 0.3, "n3": 0.1}
    assert found.settings("near", "nell_v1") == shared | {"alpha": 0.4, "layers": 3}
    assert found.settings("near", "fb237_v2") == shared | {"alpha": 0.3, "layers": 3, "n3": 0.2}
    assert [found.is_selected("base", name) for name in ("fb237_v1", "fb237_v2")] == [False, True]
    assert not found.is_selected("near", "fb237_v2")  # a search for one row is none for another
    assert [family_of(name) for name in ("WN18RR_v3", "CoDEx-S", "FB15k-237")] == ["WN18RR", "CoDEx-S", "FB15k-237"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("rows: {a: {setings: {}}}", "did you mean 'settings'"),
        ("rowz: {}", "did you mean 'rows'"),
        ("rows: {a: {like: b}}", "row 'a' is like 'b'"),
        ("rows: {a: {like: b}, b: {like: a}}", "which is no other row"),
        ("rows: {a: {members: [{row: b}]}}", "the member 'b', which is no row that can be trained"),
        ("rows: {a: {members: [{row: a}]}}", "the member 'a', which is no row that can be trained"),
        ("rows: {a: {members: [{row: a, sed: 1}]}}", "unknown key 'sed'; did you mean 'seed'"),
        ("rows: {a: {members: [{row: a, seed: 1, seed_offset: 1}]}}", "has both 'seed' and 'seed_offset'"),
    ],
)
def test_a_slip_in_a_recipe_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "r.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(FileError, match=problem):
        Recipe.read(tmp_path / "r.yaml")
