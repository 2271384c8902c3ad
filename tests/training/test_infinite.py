"""L = ∞: the cache is a lookup table under its optimiser, part of the model, saved and found by name."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import refactorgnn
from refactorgnn import Run, UserError, load_graph
from refactorgnn.data import graph_from_tables
from refactorgnn.models.infinite import InfiniteReFactorGNN
from refactorgnn.runs import load_tensors
from refactorgnn.training.building import build_model
from tests.data.test_graph import table
from tests.training.settings import TRAININGS

STILL = {"model": "refactor", "layers": "inf", "dim": 4, "mask": 0, "learning_rate": 1e-12, "init_scale": 1.0}


def model_of(run: Run) -> InfiniteReFactorGNN:
    model = run.load_model()
    assert isinstance(model, InfiniteReFactorGNN)
    return model


@pytest.mark.parametrize("num_epochs", [1, 5])
@pytest.mark.parametrize("optimizer", ["sgd", "adagrad"])
def test_epochs_are_steps_of_an_optimiser_on_a_table(
    optimizer: str, num_epochs: int, tiny: Path, tmp_path: Path
) -> None:
    settings = {**STILL, "alpha": 0.05, "layer_optimizer": optimizer, "epochs": num_epochs, "validate_every": 100}
    run = refactorgnn.train(tiny, out=tmp_path / "run", progress=False, features="signature+random", **settings)
    untrained = build_model(run.config, run.graph)
    table_of_states = nn.Parameter(untrained.features(run.graph, run.graph.queries("train")).detach().double())
    relations = untrained.relation_embeddings.detach().double()
    steps = {"sgd": torch.optim.SGD, "adagrad": torch.optim.Adagrad}[optimizer]([table_of_states], lr=0.05)
    s, r, o = run.graph.with_reciprocals(run.graph.triples("train")).unbind(1)
    for _ in range(num_epochs):
        steps.zero_grad()
        scores = (table_of_states[s] * relations[r]) @ table_of_states.T
        (-torch.log_softmax(scores, dim=1)[torch.arange(len(s)), o].sum()).backward()
        steps.step()
    trained = load_tensors(run.last_path)[0]
    torch.testing.assert_close(trained["states"].double(), table_of_states.detach(), rtol=1e-5, atol=1e-5)
    assert (trained["states"] - untrained.states).abs().max() > 0.01
    if optimizer == "adagrad":
        torch.testing.assert_close(trained["sums"].double(), steps.state[table_of_states]["sum"], rtol=1e-4, atol=1e-5)
    else:
        assert not trained["sums"].any()


def test_states_and_sums_are_in_the_weights_and_come_back(tiny: Path, tmp_path: Path) -> None:
    run = refactorgnn.train(tiny, out=tmp_path / "run", progress=False, **TRAININGS["inf"], epochs=3, validate_every=3)
    saved = load_tensors(run.weights_path)[0]
    assert {"states", "sums", "layer.relations"} <= saved.keys()
    assert saved["states"].any()
    assert saved["sums"].any()
    model = model_of(run)
    assert torch.equal(model.states, saved["states"])
    assert torch.equal(model.sums, saved["sums"])
    assert torch.equal(model.bind(run.graph).states, saved["states"])
    measured = refactorgnn.evaluate(run, split="valid", confidence=False).metrics["mrr"]
    assert measured == pytest.approx(run.records()[-1]["valid_mrr"], abs=1e-6)


def test_only_relations_are_learned_by_gradient(tiny: Path, tmp_path: Path) -> None:
    run = refactorgnn.train(tiny, out=tmp_path / "run", progress=False, **TRAININGS["inf"], epochs=1)
    model = model_of(run)
    assert run.sidecar["num_parameters"] == model.num_parameters == model.relation_embeddings.numel()


def test_without_an_epoch_it_stands_at_its_features(tiny: Path, tmp_path: Path) -> None:
    run = refactorgnn.train(tiny, out=tmp_path / "run", progress=False, **TRAININGS["inf"], epochs=0)
    model = model_of(run)
    assert torch.equal(model.states, model.features(run.graph, run.graph.queries("train")))


def test_entities_are_found_by_name_in_another_graph() -> None:
    graph = load_graph("countries")
    part = load_graph("countries_part_ind").with_relations(graph.relations)
    config = refactorgnn.training.config.TrainConfig.from_dict({"dataset": "x", **STILL})
    model = build_model(config, graph)
    bound = model.bind(part)
    ids = [graph.entity_id(name) for name in part.entities]
    assert ids != list(range(len(ids)))
    assert torch.equal(bound.states, model.states[ids])


def test_new_entities_are_refused_in_one_sentence() -> None:
    graph = graph_from_tables("old", {"train": table(("a", "r", "b"))})
    config = refactorgnn.training.config.TrainConfig.from_dict({"dataset": "x", **STILL})
    other = graph_from_tables("other", {"train": table(("a", "r", "z"))})
    message = "infinite depth knows only the entities it was trained on, and 1 of the 2 .* such as 'z'"
    with pytest.raises(UserError, match=message) as caught:
        build_model(config, graph).bind(other)
    assert "\n" not in str(caught.value)
