"""Features that are learned for each entity: they belong to names, get their gradient, and end where names are new."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import refactorgnn
from refactorgnn import UserError
from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.data.vocabulary import Vocabulary
from refactorgnn.models import RGCN
from refactorgnn.models.features import LearnedFeatures, make_features
from tests.conftest import Cli

RELATIONS = Vocabulary(["r"], "relation")


def graph_of(*names: str) -> KnowledgeGraph:
    facts = torch.tensor([[index, 0, index + 1] for index in range(len(names) - 1)])
    return KnowledgeGraph("chain", Vocabulary(names, "entity"), RELATIONS, {"train": facts})


def test_a_row_belongs_to_a_name_whatever_its_place() -> None:
    known, other = graph_of("a", "b", "c", "d"), graph_of("d", "b", "a")
    features = make_features("learned", 5, known, scale=2.0, seed=1)
    whole = features(known, known.queries("train"))
    assert torch.equal(features(other, other.queries("train")), whole[[3, 1, 0]])
    assert torch.equal(features.rows(known, known.queries("train"), torch.tensor([2, 0])), whole[[2, 0]])
    assert features.provenance() == {"learned": {"num_entities": 4, "initial_scale": 2.0}}


def test_the_first_table_depends_on_the_seed_and_has_the_scale() -> None:
    entities = Vocabulary(map(str, range(500)), "entity")
    tables = [LearnedFeatures(entities, 64, 0.3, seed).table for seed in (0, 0, 1)]
    assert torch.equal(tables[0], tables[1])
    assert not torch.equal(tables[0], tables[2])
    assert tables[0].std().item() == pytest.approx(0.3, rel=0.02)


def test_an_unknown_entity_is_named() -> None:
    known, other = graph_of("a", "b"), graph_of("a", "new")
    with pytest.raises(UserError, match=r"a model with learned features knows only .* 1 of the 2 .* such as 'new'"):
        make_features("learned", 3, known)(other, other.queries("train"))


def test_the_table_learns_through_the_layers() -> None:
    graph = graph_of("a", "b", "c", "d")
    model = RGCN(RELATIONS, LearnedFeatures(graph.entities, 3), dim=3, num_layers=1, num_bases=1).double()
    states = model.encode(graph, graph.queries("train"))
    states[0].sum().backward()  # one layer: "a" hears itself and "b"
    layer = model.layers[0]
    from_a, from_b = layer.root.sum(1), layer.comp[0, 0] * layer.weight[0].sum(1)
    table = model.features.table
    torch.testing.assert_close(table.grad, torch.stack([from_a, from_b, *torch.zeros(2, 3).double()]))


def test_a_run_knows_its_own_entities_and_no_others(cli: Cli, tmp_path: Path) -> None:
    run = tmp_path / "run"
    options = "--model rgcn --features learned+signature --feature-scale 0.1 --dim 8 --epochs 2 --validate-every 1"
    assert cli("train", "countries_part", *options.split(), "--out", run).code == 0
    opened = refactorgnn.Run.open(run)
    assert set(opened.sidecar["features"]) == {"learned", "signature"}
    measured = refactorgnn.evaluate(opened, split="valid").metrics["mrr"]
    assert measured == pytest.approx(opened.sidecar["valid_mrr"], abs=1e-6)
    cli("evaluate", run, "--graph", "countries_part_ind").refused("knows only the entities it was trained on")
