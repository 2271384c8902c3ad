"""Rivals do the same work: the same numbers come out."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from refactorgnn.bench import rivals
from refactorgnn.bench.cases import graph_of
from refactorgnn.bench.rivals import published, published_layer, pyg_evaluation, pykeen_evaluation
from refactorgnn.data.queries import QueryIndex
from refactorgnn.evaluation import rank_triples
from refactorgnn.layers import ReFactorConv
from refactorgnn.models.base import EmbeddingScorer
from refactorgnn.scorers import make_scorer

# Self-loops, a repeated triple, an entity without any.
TRIPLES = torch.tensor([[0, 0, 1], [1, 1, 0], [0, 0, 2], [2, 1, 0], [3, 0, 3], [0, 0, 1], [4, 1, 2], [1, 0, 4]])


def double_layer() -> tuple[ReFactorConv, Tensor, QueryIndex]:
    torch.manual_seed(0)
    conv = ReFactorConv(5, 2, alpha=0.3).double()
    states = torch.randn(6, 5, dtype=torch.float64, requires_grad=True)
    return conv, states, QueryIndex.from_triples(TRIPLES, 6, 2)


def test_the_published_formulation_is_our_layer() -> None:
    conv, states, queries = double_layer()
    ours, theirs = conv(states, queries), published_layer(states, conv.relations, TRIPLES, conv.alpha)
    torch.testing.assert_close(theirs, ours, rtol=0, atol=1e-10)
    upstream = torch.randn_like(states)
    learned = (states, conv.relations)
    for mine, other in zip(
        torch.autograd.grad(ours, learned, upstream), torch.autograd.grad(theirs, learned, upstream), strict=True
    ):
        torch.testing.assert_close(other, mine, rtol=0, atol=1e-10)


def test_triples_are_taken_out_of_the_index_as_they_went_in() -> None:
    conv, states, queries = double_layer()
    rival = published(states, conv.relations, queries, conv.alpha, lambda forward: forward())
    assert rival.run is not None
    torch.testing.assert_close(rival.run(), conv(states, queries), rtol=0, atol=1e-10)


@pytest.mark.parametrize(("learns", "matrices"), [(False, 2), (True, 5)])
def test_what_does_not_fit_is_not_run(learns: bool, matrices: int, monkeypatch: pytest.MonkeyPatch) -> None:
    conv, states, queries = double_layer()
    states = states.detach().requires_grad_(learns)
    needed = matrices * len(TRIPLES) * 6 * 8
    for free, runs in ((needed, True), (needed - 1, False)):
        monkeypatch.setattr(rivals, "free_bytes", lambda device, free=free: free)
        rival = published(states, conv.relations, queries, conv.alpha, lambda forward: forward())
        assert (rival.run is not None) == runs
    assert rival.note == f"needs 0 GB for {matrices} matrices of 8 × 6; 0 GB are free"


def test_free_memory_is_known() -> None:
    assert 10**6 < rivals.free_bytes(torch.device("cpu")) < 10**14


def weights_and_ranks(*, filtered: bool) -> tuple[Tensor, Tensor, float]:
    graph = graph_of("synthetic-40-3-160")
    generator = torch.Generator().manual_seed(1)
    states = torch.randn(40, 8, generator=generator)
    relations = torch.randn(3, 8, generator=generator).repeat(2, 1)
    scorer = EmbeddingScorer(make_scorer("distmult", 8), states, relations)
    known = graph.queries() if filtered else QueryIndex.from_triples(torch.empty(0, 3, dtype=torch.int64), 40, 6)
    ranks = rank_triples(scorer, graph, graph.triples("test"), known=known).ranks()
    return states, relations, float((1 / ranks).mean())


def test_pyg_finds_the_ranks_that_we_find_without_a_filter() -> None:
    graph, (states, relations, mrr) = graph_of("synthetic-40-3-160"), weights_and_ranks(filtered=False)
    rival = pyg_evaluation(graph, states, relations, graph.triples("test"))
    assert rival.share == 1.0
    assert rival.run is not None
    assert rival.run()[1] == pytest.approx(mrr, rel=1e-5)


def test_pyg_is_asked_as_much_as_is_affordable(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, (states, relations, _) = graph_of("synthetic-40-3-160"), weights_and_ranks(filtered=True)
    monkeypatch.setattr(rivals, "_MOST_PYG_NUMBERS", 4 * states.numel())
    rival = pyg_evaluation(graph, states, relations, graph.triples("test"))
    assert rival.share == 4 / (2 * len(graph.triples("test")))
    assert rival.note.endswith("timed on 4 of 16 questions")


def test_pykeen_finds_our_ranks_or_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, (states, relations, mrr) = graph_of("synthetic-40-3-160"), weights_and_ranks(filtered=True)
    rival = pykeen_evaluation(graph, states, relations, graph.triples("test"))
    if rival.run is None:
        assert rival.note == "not installed: pip install 'refactorgnn[pykeen]'"
        return
    assert rival.run()["mrr"] == pytest.approx(mrr, rel=1e-5)
    monkeypatch.setattr(rivals, "free_bytes", lambda device: 32 * states.nbytes - 1)
    assert pykeen_evaluation(graph, states, relations, graph.triples("test")).run is None
