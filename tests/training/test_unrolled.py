"""Unrolled training: the gradient of a step is that of all layers, by autograd's double backward in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from refactorgnn.data import KnowledgeGraph, graph_from_tables
from refactorgnn.scorers import Scorer
from refactorgnn.training.regimes.layerwise import LayerStep, LayerwiseRegime
from refactorgnn.training.regimes.unrolled import UnrolledRegime
from tests.data.test_graph import table
from tests.oracles import log_likelihood
from tests.training.settings import make, triples_of

SETTINGS = {"model": "refactor", "dim": 4, "init_scale": 1.0, "alpha": 0.1, "features": "signature", "mask": 0.4}


@pytest.fixture(scope="module")
def graph() -> KnowledgeGraph:
    facts = [("a", "r", "b"), ("a", "r", "c"), ("b", "q", "a"), ("c", "q", "c"), ("d", "r", "a"), ("d", "q", "e")]
    return graph_from_tables("toy", {"train": table(*facts)})


def naive_layer(scorer: Scorer, x: Tensor, relations: Tensor, triples: Tensor, sums: Tensor, optimizer: str):
    """One gradient step on the log-likelihood, which autograd can differentiate again."""
    (gradient,) = torch.autograd.grad(log_likelihood(scorer, x, relations, triples), x, create_graph=True)
    if optimizer == "sgd":
        return x + 0.1 * gradient, sums
    sums = sums + gradient.square()
    return x + 0.1 * gradient / (sums.sqrt() + 1e-10), sums


def naive_loss(scorer: Scorer, x: Tensor, relations: Tensor, targets: Tensor, known: set[tuple[int, int, int]]):
    """The mean over the targets of ``−log P`` among the entities that are not known answers."""
    losses = []
    for s, r, o in targets.tolist():
        negatives = [u for u in range(len(x)) if u == o or (s, r, u) not in known]
        scores = torch.stack([scorer.score(x[s], relations[r], x[u]) for u in negatives])
        losses.append(torch.logsumexp(scores, 0) - scores[negatives.index(o)])
    return torch.stack(losses).mean()


def unrolled(graph: KnowledgeGraph, **settings: Any) -> UnrolledRegime:
    regime = make(graph, **SETTINGS, regime="unrolled", **settings).double()
    assert isinstance(regime, UnrolledRegime)
    return regime


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad"])
@pytest.mark.parametrize("scorer", ["distmult", "complex", "rotate"])
def test_the_gradient_is_that_through_all_layers(graph: KnowledgeGraph, scorer: str, optimizer: str) -> None:
    regime = unrolled(graph, layers=3, scorer=scorer, layer_optimizer=optimizer)
    model, relations = regime.model, regime.model.relation_embeddings
    weight = model.features.weight
    torch.manual_seed(0)
    messages, targets = next(iter(regime.batches(1)))
    loss = regime((messages, targets))
    got = torch.autograd.grad(loss, (relations, weight))
    x = model.features(graph, messages)
    sums, known = torch.zeros_like(x), set(map(tuple, triples_of(regime.facts.known).tolist()))
    for _ in range(3):
        x, sums = naive_layer(model.scorer, x, relations, triples_of(messages), sums, optimizer)
    expected_loss = naive_loss(model.scorer, x, relations, triples_of(targets), known)
    expected = torch.autograd.grad(expected_loss, (relations, weight))
    torch.testing.assert_close(loss, expected_loss, rtol=0, atol=1e-10)
    for ours, theirs in zip(got, expected, strict=True):
        assert theirs.abs().max() > 1e-3
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-8)


def both_gradients(graph: KnowledgeGraph, layers: int) -> list[Tensor]:
    """Of the last step of a cycle, layer-wise and unrolled, for the same facts."""
    whole = unrolled(graph, layers=layers)
    torch.manual_seed(0)
    messages, targets = next(iter(whole.batches(1)))
    single = make(graph, **SETTINGS, layers=layers).double()
    assert isinstance(single, LayerwiseRegime)
    single.begin(0)
    for layer in range(layers):
        loss = single(LayerStep(layer, messages, messages, targets))
    losses = whole((messages, targets)), loss
    torch.testing.assert_close(*losses, rtol=0, atol=1e-12)
    regimes = whole, single
    return [
        torch.autograd.grad(loss, regime.model.relation_embeddings)[0]
        for loss, regime in zip(losses, regimes, strict=True)
    ]


def test_layer_wise_and_unrolled_are_the_same_for_one_layer(graph: KnowledgeGraph) -> None:
    ours, theirs = both_gradients(graph, 1)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


def test_for_more_layers_they_have_the_same_loss_but_another_gradient(graph: KnowledgeGraph) -> None:
    ours, theirs = both_gradients(graph, 3)
    assert (ours - theirs).abs().max() > 1e-3


def test_an_epoch_has_its_steps_and_its_own_draw(graph: KnowledgeGraph) -> None:
    settings = {**SETTINGS, "features": "random", "regime": "unrolled", "steps_per_epoch": 5}
    regime = make(graph, **settings)
    assert isinstance(regime, UnrolledRegime)
    assert len(list(regime.batches(1))) == 5
    batch, losses = next(iter(regime.batches(1))), []
    for seed in (1, 2, 1):  # the loop seeds every epoch
        torch.manual_seed(seed)
        losses.append(regime(batch).item())
    assert losses[0] == losses[2] != losses[1]
