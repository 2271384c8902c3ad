"""NBFNet against a dense Bellman–Ford recursion in float64, written edge by edge."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

import refactorgnn
from refactorgnn.data import KnowledgeGraph, load_graph
from refactorgnn.data.queries import QueryIndex
from refactorgnn.models.rivals.nbfnet import KEPT_BY_LAYER, NBFNet, edges_from_subjects

DIM = 3


@pytest.fixture(scope="module")
def graph(tiny: Path) -> KnowledgeGraph:
    return load_graph(str(tiny), progress=False)


def model_of(graph: KnowledgeGraph, **options: object) -> NBFNet:
    return NBFNet(graph.relations, DIM, num_layers=2, seed=1, **options).double()  # type: ignore[arg-type]


def naive_score(model: NBFNet, queries: QueryIndex, subject: int, relation: int) -> Tensor:
    """The scores of one question, from the equations of the class and one node at a time."""
    num_entities, rows = queries.num_entities, queries.answers.rows
    facts = torch.stack([queries.subjects[rows], queries.relations[rows], queries.answers.columns], dim=1).tolist()
    query = model.queries.weight[relation]
    boundary = [query if node == subject else torch.zeros_like(query) for node in range(num_entities)]
    sizes = torch.tensor([1.0 + sum(tail == node for *_, tail in facts) for node in range(num_entities)])
    scale = sizes.double().log() / sizes.double().log().mean()
    states = boundary
    for layer in model.layers:
        w = layer.relations(query).view(-1, model.dim) if layer.dependent else layer.relations.weight
        new = []
        for node in range(num_entities):
            m = torch.stack([states[s] * w[r] for s, r, o in facts if o == node] + [boundary[node]])
            deviation = m.var(0, unbiased=False).clamp(min=1e-6).sqrt()
            a = torch.cat([m.mean(0), m.amax(0), m.amin(0), deviation])
            s = scale[node]
            everything = torch.cat([states[node], a, s * a, a / s.clamp(min=1e-2)])
            new.append(states[node] + torch.relu(layer.norm(layer.combine(everything))))
        states = new
    return torch.stack([model.readout(torch.cat([state, query])) for state in states]).squeeze(-1)


@pytest.mark.parametrize("dependent", [True, False])
def test_scores_and_gradients_are_those_of_the_recursion_node_by_node(graph: KnowledgeGraph, dependent: bool) -> None:
    model = model_of(graph, dependent=dependent)
    queries = graph.queries("train")
    subjects, relations = torch.tensor([3, 5, 3]), torch.tensor([0, 4, 2])
    candidates = torch.tensor([[1, 4], [0, 7], [3, 23]])
    expected = torch.stack(
        [naive_score(model, queries, s, r) for s, r in zip(subjects.tolist(), relations.tolist(), strict=True)]
    )
    torch.testing.assert_close(model.bind(graph).scores(subjects, relations), expected.detach(), rtol=1e-9, atol=1e-9)
    chosen = model(edges_from_subjects(queries), subjects, relations, candidates)
    parameters = list(model.parameters())
    weights = torch.randn(3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    ours = torch.autograd.grad((weights * chosen).sum(), parameters)
    theirs = torch.autograd.grad((weights * expected.gather(1, candidates)).sum(), parameters)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-9)


def test_the_budget_changes_neither_scores_nor_gradients(graph: KnowledgeGraph) -> None:
    """One question at a time, computed twice, is the same as all at once."""
    edges, subjects = edges_from_subjects(graph.queries("train")), torch.arange(10)
    relations, candidates = torch.arange(10) % 6, torch.arange(30).view(10, 3) % 24
    results = []
    for budget in (1, None):
        model = model_of(graph, memory_budget=budget)
        assert (model.questions_within(edges) == 1) == (budget == 1)
        scores = model(edges, subjects, relations, candidates)
        gradients = torch.autograd.grad(scores.square().sum(), list(model.parameters()))
        results.append((scores, *gradients))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


def test_a_group_keeps_no_more_than_its_estimate(graph: KnowledgeGraph) -> None:
    model = NBFNet(graph.relations, 32, num_layers=3)
    edges = edges_from_subjects(graph.queries("train"))
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        held.append(tensor)  # or its address would be used again
        return tensor

    held: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model(edges, torch.arange(20), torch.zeros(20, dtype=torch.int64), torch.zeros(20, 2, dtype=torch.int64))
    weights = 4 * model.num_parameters
    of_questions = 20 * 32 * 4 * (KEPT_BY_LAYER * (3 + 1) * edges.num_nodes + 2 * 3 * edges.num_types)
    assert 0.6 * of_questions < sum(kept.values()) - weights < of_questions


def test_entities_are_told_apart_by_paths_alone(graph: KnowledgeGraph) -> None:
    """Renumbered entities get the same scores: nothing is known of them but their facts."""
    model, order = model_of(graph), torch.randperm(graph.num_entities, generator=torch.Generator().manual_seed(2))
    triples = graph.triples("train").clone()
    triples[:, [0, 2]] = order[triples[:, [0, 2]]]
    renumbered = KnowledgeGraph("renumbered", graph.entities, graph.relations, {"train": triples})
    subjects, relations = torch.tensor([0, 7, 9]), torch.tensor([1, 3, 5])
    expected = model.bind(graph).scores(subjects, relations)
    found = model.bind(renumbered).scores(order[subjects], relations)
    torch.testing.assert_close(found[:, order], expected, rtol=1e-9, atol=1e-9)


def test_a_run_learns_and_is_loaded_bit_for_bit(tiny: Path, tmp_path: Path) -> None:
    options = {"model": "nbfnet", "dim": 8, "layers": 2, "epochs": 3, "learning_rate": 0.02, "batch_size": 16}
    # Of 24 entities a batch asks about nearly all pairs: with facts between them removed, there would be no graph left.
    run = refactorgnn.train(tiny, out=tmp_path / "run", progress=False, remove_one_hop=False, **options)
    losses = [record["loss"] for record in run.records()]
    assert losses[-1] < losses[0] < 0.75  # log 2 is a guess
    first, second = (run.load_model().bind(run.graph).scores(torch.arange(24), torch.arange(24) % 6) for _ in range(2))
    assert torch.equal(first, second)
    measured = refactorgnn.evaluate(run, split="valid", confidence=False).metrics["mrr"]
    assert measured == pytest.approx(run.sidecar["valid_mrr"], abs=1e-9)
