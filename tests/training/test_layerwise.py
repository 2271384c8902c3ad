"""Layer-wise training: its loss, what a step learns through, the cache, and that all regimes can be resumed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import refactorgnn
from refactorgnn import load_graph
from refactorgnn.data import KnowledgeGraph, graph_from_tables
from refactorgnn.models.refactor import ReFactorGNN
from refactorgnn.training.loop import _Training
from refactorgnn.training.regimes.layerwise import LayerStep, LayerwiseRegime
from tests.conftest import Cli, tiny_triples, without_seconds
from tests.data.test_graph import table
from tests.training.settings import TRAININGS, assert_same_tensors, epoch_of, make, remember_features, triples_of


@pytest.fixture(scope="module")
def graph() -> KnowledgeGraph:
    return graph_from_tables("tiny", {"train": table(*tiny_triples()["train"])})


def layerwise(graph: KnowledgeGraph, **settings: Any) -> LayerwiseRegime:
    regime = make(graph, **{"model": "refactor", "dim": 6, "layers": 3, "init_scale": 1.0, "alpha": 0.1, **settings})
    assert isinstance(regime, LayerwiseRegime)
    return regime


# The loss ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scorer", ["distmult", "complex", "rotate"])
def test_loss_is_that_of_the_formula(scorer: str, dtype: torch.dtype) -> None:
    graph = load_graph("countries_part_ind")
    regime = layerwise(graph, scorer=scorer, dim=4).to(dtype)
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(graph.num_entities, 4, generator=generator).to(dtype).requires_grad_()
    torch.manual_seed(1)
    support, targets = regime.facts.split()
    relations = regime.model.relation_embeddings
    s, r = states[targets.subjects], relations[targets.relations]
    scores = regime.model.scorer.score_all(s, r, states)
    known = regime.facts.known.objects_of(targets.subjects, targets.relations)
    negatives = scores.index_put((known.rows, known.columns), torch.tensor(-torch.inf, dtype=dtype)).logsumexp(1)
    positive = scores[targets.answers.rows, targets.answers.columns]
    expected = (torch.logaddexp(positive, negatives[targets.answers.rows]) - positive).mean()
    got = regime._loss(states, LayerStep(0, support, support, targets))
    assert got.dtype == dtype
    exact = {"rtol": 1e-10, "atol": 1e-12} if dtype == torch.float64 else {"rtol": 1e-4, "atol": 1e-6}
    torch.testing.assert_close(got, expected, **exact)
    for by in (states, relations):
        ours, theirs = (torch.autograd.grad(loss, by, retain_graph=True)[0] for loss in (got, expected))
        torch.testing.assert_close(ours, theirs, **exact)


def test_the_loss_goes_down(tmp_path: Path) -> None:
    settings = {"model": "refactor", "dim": 32, "layers": 3, "features": "signature+random", "alpha": 0.3}
    run = refactorgnn.train(
        "countries_part_ind",
        out=tmp_path / "run",
        progress=False,
        epochs=12,
        learning_rate=0.03,
        validate_every=12,
        **settings,
    )
    losses = [record["loss"] for record in run.records()]
    assert sum(losses[-3:]) < 0.9 * sum(losses[:3])


# The cache ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad"])
def test_an_epoch_is_layers_from_the_features_and_the_cache_is_then_cleared(
    graph: KnowledgeGraph, optimizer: str
) -> None:
    """By hand: direct calls of the layer, with the relations as learning has left them before each."""
    regime = layerwise(graph, layer_optimizer=optimizer, mask=0.3)
    conv, drawn = regime.model.layer, remember_features(regime)
    for epoch in (1, 2):
        x, sums, num_layers = None, None, 0
        for batch in epoch_of(regime, epoch, learning_rate=0.5):
            x = drawn[-1] if x is None else x
            with torch.no_grad():
                x, sums = conv.step(x, batch.messages, sums)
            assert torch.equal(regime.states, x)
            assert regime.sums is sums is None or torch.equal(regime.sums, sums)
            assert batch.messages is batch.support
            num_layers += 1
        assert num_layers == 3
        assert len(drawn) == epoch
    assert not torch.equal(*drawn)


def test_a_step_learns_through_one_layer_only(graph: KnowledgeGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cached states are detached: the graph behind a step's loss holds one layer, however deep the model."""
    regime = layerwise(graph, layers=4)
    seen, step = [], regime.model.layer.step

    def watched(states, queries, sums=None, **more):
        seen.append((states.requires_grad, sums is None or not sums.requires_grad))
        return step(states, queries, sums, **more)

    monkeypatch.setattr(regime.model.layer, "step", watched)
    assert len(list(epoch_of(regime, 1))) == 4
    assert seen == [(False, True)] * 4  # random features have no parameters either


def test_features_learn_in_the_first_step_only(graph: KnowledgeGraph) -> None:
    regime = layerwise(graph, features="signature")
    weight = regime.model.features.weight
    moved = [weight.grad is not None and bool(weight.grad.any()) for _ in epoch_of(regime, 1)]
    assert moved == [True, False, False]
    assert weight.grad is None


# Step sizes --------------------------------------------------------------------------------------------------------


def test_each_layer_learns_its_own_step_size(graph: KnowledgeGraph) -> None:
    regime = layerwise(graph, learned_steps=True, alpha=0.2)
    steps = regime.model.log_steps
    torch.testing.assert_close(steps.detach().exp(), torch.full((3,), 0.2))
    for layer, _ in enumerate(epoch_of(regime, 1, learning_rate=1e-3)):
        assert (steps.grad != 0).tolist() == [number == layer for number in range(3)]
    assert len(set(steps.tolist())) == 3
    before = steps.detach().exp()
    for layer, _ in enumerate(epoch_of(regime, 2, learning_rate=200.0)):
        assert (
            abs(200 * steps.grad[layer]) > before[layer]
        )  # without the logarithm, a step of this size could end below 0
    assert ((steps.exp() > 0) & steps.exp().isfinite()).all()


def test_a_learned_step_size_is_the_one_that_is_used(graph: KnowledgeGraph) -> None:
    regime = layerwise(graph, learned_steps=True, layers=2)
    model, queries = regime.model, graph.queries("train")
    with torch.no_grad():
        model.log_steps.copy_(torch.tensor([0.1, 0.7]).log())
        x, sums = model.features(graph, queries), None
        for alpha in (0.1, 0.7):
            model.layer.alpha = alpha
            x, sums = model.layer.step(x, queries, sums)
        torch.testing.assert_close(model.encode(graph, queries), x)


def test_the_number_of_parameters_depends_on_depth_by_step_sizes_alone(graph: KnowledgeGraph) -> None:
    plain = {layerwise(graph, layers=depth, features="signature").model.num_parameters for depth in (1, 2, 9)}
    assert plain == {2 * (2 * graph.num_relations * 6)}
    for depth in (1, 2, 9):
        model = layerwise(graph, layers=depth, features="signature", learned_steps=True).model
        assert {model.num_parameters - depth} == plain


# Mini-batches of edges ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("induced", [False, True])
@pytest.mark.parametrize("mask", [0.0, 0.3])
def test_parts_are_a_cascade(graph: KnowledgeGraph, mask: float, induced: bool) -> None:
    regime = layerwise(graph, parts=4, induced=induced, mask=mask, layers=2)
    drawn = remember_features(regime)
    steps = list(epoch_of(regime, 3, learning_rate=1e-12))
    assert [step.layer for step in steps] == [0] * 4 + [1] * 4
    x, sums = drawn[0], None
    for layer in (0, 1):
        of_layer = [step for step in steps if step.layer == layer]
        parts = [step.messages for step in of_layer]
        with torch.no_grad():
            x, sums = regime.model.layer.cascade(x, parts, sums, induced=induced)
        assert_partition(parts, of_layer[0].support)
        if mask == 0:
            assert all(step.targets is step.messages for step in of_layer)
        else:
            held_out = torch.cat([triples_of(step.targets) for step in of_layer])
            support = triples_of(of_layer[0].support)
            assert len(held_out) + len(support) == 2 * len(graph.triples("train"))
    torch.testing.assert_close(regime.states, x)
    torch.testing.assert_close(regime.sums, sums)


def test_no_message_is_left_out_where_targets_are_few(graph: KnowledgeGraph) -> None:
    regime = layerwise(graph, parts=8, mask=1e-9, layers=1)  # one pair of entities is held out
    steps = list(epoch_of(regime, 1))
    assert 1 <= len(steps) < 8
    assert_partition([step.messages for step in steps], steps[0].support)


def assert_partition(parts, whole) -> None:
    together = torch.cat([triples_of(part) for part in parts])
    assert sorted(together.tolist()) == sorted(triples_of(whole).tolist())


# Resume, of all regimes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TRAININGS)
def test_a_resumed_training_is_the_same_bit_for_bit(name: str, tiny: Path, tmp_path: Path) -> None:
    settings = {**TRAININGS[name], "epochs": 4, "validate_every": 2, "progress": False}
    whole = refactorgnn.train(tiny, out=tmp_path / "whole", **settings)
    interrupted, original = tmp_path / "interrupted", _Training._seeded_batches

    def failing(self: _Training, epoch: int) -> Iterator[Any]:
        for batch in original(self, epoch):
            yield batch
            if epoch == 3:  # its first step has been taken
                raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_Training, "_seeded_batches", failing)
        with pytest.raises(KeyboardInterrupt):
            refactorgnn.train(tiny, out=interrupted, **settings)
    resumed = refactorgnn.train(tiny, out=interrupted, resume=True, **settings)
    assert without_seconds(resumed.records()) == without_seconds(whole.records())
    for file in ("last.safetensors", "model.safetensors"):
        assert_same_tensors(interrupted / file, whole.path / file)


# As a whole --------------------------------------------------------------------------------------------------------


def test_train_and_answer_on_the_unseen_graph(cli: Cli, tmp_path: Path) -> None:
    run = tmp_path / "run"
    options = ("--model", "refactor", "--layers", "2", "--dim", "8", "--epochs", "2", "--validate-every", "1")
    assert cli("train", "countries_part", *options, "--features", "signature+random", "--out", run).code == 0
    opened = refactorgnn.Run.open(run)
    assert set(opened.sidecar["features"]) == {"signature", "random"}
    assert isinstance(opened.load_model(), ReFactorGNN)
    outcome = cli("evaluate", run, "--graph", "countries_part_ind", "--json")
    assert outcome.code == 0
    assert '"graph": "countries_part_ind"' in outcome.out
    answers = cli("predict", run, "--head", "France", "--relation", "speaks", "-k", "3", "--json")
    assert answers.code == 0
