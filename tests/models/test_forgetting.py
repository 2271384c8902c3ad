"""Active forgetting: with whole-graph batches it is a ReFactor GNN, and it really forgets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import refactorgnn
from refactorgnn import UserError, load_graph
from refactorgnn.data import KnowledgeGraph
from refactorgnn.models import ReFactorGNN
from refactorgnn.models.forgetting import OPTIMIZERS, ForgettingLookup
from refactorgnn.training.regimes.forgetting import ForgettingRegime
from tests.models.test_refactor import FixedFeatures
from tests.training.settings import make, optimizer_of


@pytest.fixture(scope="module")
def graph() -> KnowledgeGraph:
    return load_graph("countries_part_ind")


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad"])
@pytest.mark.parametrize("scorer", ["distmult", "complex"])
def test_bound_with_all_questions_it_is_a_refactor_gnn(graph: KnowledgeGraph, scorer: str, optimizer: str) -> None:
    """Its loss is a mean over the triples and a layer's gradient a sum, hence α; AdaGrad sees it in its ε alone."""
    num_triples = graph.queries("train").num_triples
    num_steps, rate = 5, 0.4 if optimizer == "sgd" else 0.05
    features = FixedFeatures(6, scale=0.5, seed=1)
    ours = ForgettingLookup(
        graph.relations,
        features,
        scorer,
        6,
        num_steps=num_steps,
        batch_size=0,
        optimizer=optimizer,
        learning_rate=rate * num_triples if optimizer == "sgd" else rate,
        init_scale=1.0,
        seed=2,
    ).double()
    theirs = ReFactorGNN(
        graph.relations,
        features,
        scorer,
        6,
        num_layers=num_steps,
        alpha=rate,
        layer_optimizer=optimizer,
        init_scale=1.0,
        seed=2,
    ).double()
    theirs.layer.epsilon = 1e-10 * num_triples
    assert torch.equal(ours.relations, theirs.relation_embeddings)
    got, expected = ours.eval().bind(graph).states, theirs.bind(graph).states
    assert (expected - features(graph, graph.queries("train"))).abs().max() > 0.1
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-6)


def forgetting(graph: KnowledgeGraph, **settings: Any) -> ForgettingRegime:
    shared = {"model": "forgetting", "dim": 4, "n3": 0.0, "batch_size": 0, "forget_every": 3, "init_scale": 1.0}
    regime = make(graph, **{**shared, "learning_rate": 0.3, **settings})
    assert isinstance(regime, ForgettingRegime)
    return regime


def live(regime: ForgettingRegime, epoch: int, learning_rate: float = 0.0) -> Tensor:
    """One life of the table, the relations learned by SGD; returns the table at its end."""
    optimizer = optimizer_of(regime, learning_rate)
    regime.begin(epoch)
    for batch in regime.batches(epoch):
        optimizer.zero_grad()
        regime(batch).backward()
        optimizer.step()
    return regime.table.detach().clone()


@pytest.mark.parametrize("weight_decay", [0.0, 0.5])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_each_epoch_is_a_life_from_the_features_with_a_new_optimiser(
    graph: KnowledgeGraph, name: str, weight_decay: float
) -> None:
    regime = forgetting(graph, optimizer=name, weight_decay=weight_decay)
    model, queries = regime.model, regime.queries
    for epoch in (1, 2):
        table = nn.Parameter(model.features(graph, queries, epoch))
        steps = OPTIMIZERS[name]([table], lr=0.3, weight_decay=weight_decay)
        s, r, o = graph.with_reciprocals(graph.triples("train")).unbind(1)
        for _ in range(3):
            steps.zero_grad()
            scores = (table[s] * model.relations.detach()[r]) @ table.T
            (-torch.log_softmax(scores, dim=1)[torch.arange(len(s)), o].mean()).backward()
            steps.step()
        got = live(regime, epoch)
        # Adam and AdaGrad divide by what may be tiny: a few numbers of rounding differ, on some processors by more.
        difference = (got - table.detach()).abs()
        assert difference.quantile(0.99) < 1e-4
        assert difference.mean() < 1e-5
    assert not torch.equal(live(regime, 1), live(regime, 2))
    assert torch.equal(live(regime, 2), live(regime, 2))


def test_relations_are_learned_on_and_the_table_is_in_no_checkpoint(graph: KnowledgeGraph) -> None:
    regime = forgetting(graph)
    before = regime.model.relations.detach().clone()
    live(regime, 1, learning_rate=1.0)
    after = regime.model.relations.detach().clone()
    regime.begin(2)
    assert not torch.equal(before, after)
    assert torch.equal(regime.model.relations, after)
    assert list(regime.model.state_dict()) == ["relations"]
    assert torch.equal(regime.table, regime.model.features(graph, regime.queries, 2))


def test_batches_are_passes_over_the_questions(graph: KnowledgeGraph) -> None:
    model = forgetting(graph, batch_size=100, forget_every=40).model
    queries = graph.queries("train")
    batches = list(model.batches(queries, torch.Generator().manual_seed(0)))
    assert [batch.num_queries for batch in batches] == [100] * 40
    a_pass = queries.num_queries // 100
    keys = [batch.subjects * queries.num_relations + batch.relations for batch in batches]
    for start in range(0, 40 - a_pass, a_pass):
        assert len(torch.cat(keys[start : start + a_pass]).unique()) == 100 * a_pass
    assert not torch.equal(keys[0], keys[a_pass])


def test_binding_is_repeatable_and_leaves_the_model_alone(graph: KnowledgeGraph) -> None:
    model = forgetting(graph, batch_size=50).model.eval()
    before = model.relations.detach().clone()
    first, second = (model.bind(graph).states for _ in range(2))
    assert torch.equal(first, second)
    assert torch.equal(model.relations, before)
    assert model.relations.grad is None


def test_features_that_would_have_to_be_learned_are_refused(tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot learn them: choose random features") as caught:
        refactorgnn.train(tiny, out=tmp_path / "run", model="forgetting", features="signature", dim=4)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_it_answers_about_entities_it_has_never_seen(tmp_path: Path) -> None:
    settings = {"dim": 16, "forget_every": 60, "batch_size": 256, "epochs": 3, "validate_every": 3}
    run = refactorgnn.train("countries_part", out=tmp_path / "run", model="forgetting", progress=False, **settings)
    unseen = refactorgnn.evaluate(run, graph="countries_part_ind", confidence=False).metrics
    assert unseen["amri"] > 0.3  # 0 is a guess
