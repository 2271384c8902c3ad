"""Training on sampled sub-graphs: the loss, the messages, the passes, the files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import refactorgnn
from refactorgnn import UserError
from refactorgnn.data import KnowledgeGraph, graph_from_tables
from refactorgnn.sampling.base import Sampler
from refactorgnn.training.loop import _Training
from refactorgnn.training.processes import Share
from refactorgnn.training.regimes.sampled import SampledInfiniteRegime, SampledLayerwiseRegime, SampledRegime
from tests.conftest import NUM_PEOPLE, contents, person, tiny_triples
from tests.data.test_graph import table
from tests.training.settings import TRAININGS, epoch_of, make, triples_of

SETTINGS = {"model": "refactor", "dim": 4, "layers": 2, "init_scale": 1.0, "alpha": 0.1, "sampler": "ladies"}
FEW = {"sample_width": 3, "sample_batch": 9, "sample_passes": 3}
ALL = {"sample_width": 1000, "sample_batch": 1000, "sample_passes": 1}


@pytest.fixture(scope="module")
def graph() -> KnowledgeGraph:
    """With questions that have several answers."""
    more = [(person(number), "next to", person(number + 2)) for number in range(NUM_PEOPLE)]
    return graph_from_tables("tiny", {"train": table(*tiny_triples()["train"], *more)})


def sampled(graph: KnowledgeGraph, folder: Path, **settings: Any) -> SampledRegime:
    regime = make(graph, folder, **{**SETTINGS, **settings})
    assert isinstance(regime, SampledRegime)
    regime.prepare(progress=False)
    return regime


@pytest.mark.parametrize("scorer", ["distmult", "rotate"])
def test_loss_is_over_the_batch_and_the_global_node_without_known_answers(
    graph: KnowledgeGraph, tmp_path: Path, scorer: str
) -> None:
    regime = sampled(graph, tmp_path, scorer=scorer, **FEW).double()
    known = set(map(tuple, graph.with_reciprocals(graph.triples("train")).tolist()))
    relations, score = regime.model.relation_embeddings, regime.model.scorer.score
    num_filtered = num_outside = 0
    for batch in regime.subgraphs(1):
        generator = torch.Generator().manual_seed(0)
        states = torch.randn(batch.num_nodes, 4, generator=generator, dtype=torch.float64).requires_grad_()
        nodes = batch.nodes.tolist()
        candidates = sorted({*batch.targets[:, [0, 2]].flatten().tolist(), batch.global_node})
        losses = []
        for s, r, o in graph.with_reciprocals(batch.targets).tolist():
            kept = [u for u in candidates if u == o or (nodes[s], r, nodes[u]) not in known]
            scores = torch.stack([score(states[s], relations[r], states[u]) for u in kept])
            losses.append(torch.logsumexp(scores, 0) - scores[kept.index(o)])
            num_filtered += len(candidates) - len(kept)
        num_outside += len(nodes) - len(candidates)
        expected, got = torch.stack(losses).mean(), regime._loss(states, batch)
        torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-10)
        for by in (states, relations):
            ours, theirs = (torch.autograd.grad(loss, by, retain_graph=True)[0] for loss in (got, expected))
            torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)
    assert num_filtered > 0  # some candidates were known answers
    assert num_outside > 0  # and some entities no candidates


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad"])
def test_one_sub_graph_of_everything_is_the_whole_graph(graph: KnowledgeGraph, tmp_path: Path, optimizer: str) -> None:
    regime = sampled(graph, tmp_path, mask=0, features="signature+random", layer_optimizer=optimizer, **ALL)
    assert isinstance(regime, SampledLayerwiseRegime)
    (first, second) = epoch_of(regime, 1)
    assert first.num_nodes == second.num_nodes == graph.num_entities
    with torch.no_grad():
        expected = regime.model.encode(graph, graph.queries("train"), draw=1)
    torch.testing.assert_close(regime.states, expected, rtol=1e-5, atol=1e-6)


def test_unrolled_on_one_sub_graph_of_everything_is_the_whole_graph(graph: KnowledgeGraph, tmp_path: Path) -> None:
    settings = {"mask": 0, "regime": "unrolled", **ALL}
    regime = sampled(graph, tmp_path, **settings)
    regime.begin(4)
    (batch,) = regime.batches(1)
    states = regime.encode(batch, graph.queries("train"))
    torch.testing.assert_close(states, regime.model.encode(graph, graph.queries("train"), draw=4))


def test_infinite_depth_on_one_sub_graph_of_everything(graph: KnowledgeGraph, tmp_path: Path) -> None:
    regime = sampled(graph, tmp_path, mask=0, layers="inf", **ALL)
    assert isinstance(regime, SampledInfiniteRegime)
    model, queries = regime.model, graph.queries("train")
    x, sums = model.states.clone(), None
    for epoch in (1, 2, 3):
        assert len(list(epoch_of(regime, epoch))) == 1
        with torch.no_grad():
            x, sums = model.layer.step(x, queries, sums)
        torch.testing.assert_close(model.states, x, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(model.sums, sums, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("mask", [0.0, 0.3])
def test_targets_carry_messages_only_without_a_mask(
    graph: KnowledgeGraph, tmp_path: Path, mask: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    regime = sampled(graph, tmp_path, mask=mask, **FEW)
    seen, encode = [], regime.encode

    def watched(batch, messages):
        seen.append((batch, messages))
        return encode(batch, messages)

    monkeypatch.setattr(regime, "encode", watched)
    for _ in epoch_of(regime, 1):
        pass
    for batch, messages in seen:
        carried = {(min(h, t), max(h, t)) for h, _, t in triples_of(messages).tolist()}
        asked = {(min(h, t), max(h, t)) for h, _, t in batch.targets.tolist()}
        everything = graph.with_reciprocals(batch.triples)
        assert (carried & asked == asked) if mask == 0 else not carried & asked
        expected = [
            list(t) for t in everything.tolist() if mask == 0 or (min(t[0], t[2]), max(t[0], t[2])) not in asked
        ]
        assert sorted(triples_of(messages).tolist()) == sorted(expected)


def test_an_epoch_is_as_many_passes_as_layers_and_clears_the_cache(graph: KnowledgeGraph, tmp_path: Path) -> None:
    regime = sampled(graph, tmp_path, layers=3, **FEW)
    num_subgraphs = -(-len(graph.triples("train")) // 9)
    layers = []
    everything = sorted(graph.triples("train").tolist())
    targets: list[list[int]] = []
    for batch in epoch_of(regime, 1):
        layers.append(regime.layer)
        facts = batch.targets.clone()
        facts[:, [0, 2]] = batch.nodes[facts[:, [0, 2]]]
        targets += facts.tolist()
    assert layers == [0] * num_subgraphs + [1] * num_subgraphs + [2] * num_subgraphs
    for layer in range(3):
        assert sorted(targets[layer * len(everything) : (layer + 1) * len(everything)]) == everything
    assert regime.is_cached.all()
    regime.begin(2)
    assert not regime.is_cached.any()
    assert not regime.sums.any()
    for _ in epoch_of(regime, 2):
        pass
    fresh = sampled(graph, tmp_path, layers=3, **FEW)
    for _ in epoch_of(fresh, 2):
        pass
    assert torch.equal(regime.states, fresh.states)
    assert torch.equal(regime.sums, fresh.sums)


def test_a_layer_changes_the_entities_of_its_sub_graph_only(graph: KnowledgeGraph, tmp_path: Path) -> None:
    regime = sampled(graph, tmp_path, **FEW)
    before = None
    for batch in epoch_of(regime, 1):
        if before is not None:
            others = torch.ones(graph.num_entities, dtype=torch.bool)
            others[batch.nodes] = False
            assert others.any()
            assert torch.equal(regime.states[others], before[others])
            assert not torch.equal(regime.states, before)
        before = regime.states.clone()


def test_sub_graphs_are_sampled_once_into_the_run(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sample, num_sampled = Sampler.sample, []

    def counted(self, *arguments):
        num_sampled.append(1)
        return sample(self, *arguments)

    monkeypatch.setattr(Sampler, "sample", counted)
    settings = {**TRAININGS["ladies"], "epochs": 3, "progress": False}
    original = _Training._seeded_batches

    def failing(self: _Training, epoch: int) -> Iterator[Any]:
        if epoch == 2:
            raise KeyboardInterrupt
        return original(self, epoch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_Training, "_seeded_batches", failing)
        with pytest.raises(KeyboardInterrupt):
            refactorgnn.train(tiny, out=tmp_path / "run", **settings)
    files = contents(tmp_path / "run" / "subgraphs")
    assert {"manifest.json", "pass-0001-shard-0001.safetensors", "pass-0002-shard-0001.safetensors"} == files.keys()
    once = len(num_sampled)
    assert once > 0
    run = refactorgnn.train(tiny, out=tmp_path / "run", resume=True, **settings)
    assert len(run.records()) == 3
    assert len(num_sampled) == once
    assert contents(run.path / "subgraphs") == files


def test_more_processes_than_sub_graphs_are_refused(graph: KnowledgeGraph, tmp_path: Path) -> None:
    regime = sampled(graph, tmp_path, **ALL)
    for rank in (0, 1):  # by all of them: none may be left waiting
        regime.share = Share(rank, 2)
        with pytest.raises(UserError, match="2 processes cannot share 1 sub-graphs: choose a smaller sample_batch"):
            next(regime.subgraphs(1))


def test_processes_take_different_sub_graphs_and_as_many(graph: KnowledgeGraph, tmp_path: Path) -> None:
    regime, seen = sampled(graph, tmp_path, **FEW), []
    for rank in (0, 1):
        regime.share = Share(rank, 2)
        seen.append([tuple(batch.targets.flatten().tolist()) for batch in regime.subgraphs(1)])
    assert len(seen[0]) == len(seen[1]) == -(-len(graph.triples("train")) // 9) // 2
    assert not set(seen[0]) & set(seen[1])
