"""GraIL: sub-graphs against a search written pair by pair, the network against its equations in float64."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import refactorgnn
from refactorgnn.data import KnowledgeGraph, load_graph
from refactorgnn.data.queries import QueryIndex
from refactorgnn.data.vocabulary import Vocabulary
from refactorgnn.evaluation.metrics import outcomes
from refactorgnn.evaluation.ranking import rank_triples
from refactorgnn.models.base import CandidateScorer
from refactorgnn.models.rivals.enclosing import EnclosingSubgraphs, Surroundings, consecutive_groups
from refactorgnn.models.rivals.grail import GraIL, GraILLayer, GraILScorer
from tests.strategies import Case, cases

DIM = 3


@pytest.fixture(scope="module")
def graph(tiny: Path) -> KnowledgeGraph:
    return load_graph(str(tiny), progress=False)


# Extraction --------------------------------------------------------------------------------------------------------


def hops_from(root: int, avoided: int, facts: set[tuple[int, int, int]], most: int) -> dict[int, int]:
    """A search from one node, facts being passed either way."""
    found, queue = {root: 0}, deque([root])
    while queue:
        node = queue.popleft()
        if found[node] == most:
            continue
        for head, _, tail in facts:
            for here, there in ((head, tail), (tail, head)):
                if here == node and there not in found and (there != avoided or avoided == root):
                    found[there] = found[node] + 1
                    queue.append(there)
    return found


def naive_subgraph(
    facts: set[tuple[int, int, int]], head: int, relation: int, tail: int, hops: int
) -> tuple[dict[int, tuple[int, int]], set[tuple[int, int, int]]]:
    """Labels of the nodes and the facts of one pair, as the paper has it."""
    near = hops_from(head, tail, facts, hops).keys() & hops_from(tail, head, facts, hops).keys() | {head, tail}
    inside = {(h, r, t) for h, r, t in facts if h in near and t in near} - {(head, relation, tail)}
    to_head, to_tail = hops_from(head, tail, inside, hops), hops_from(tail, head, inside, hops)
    labels = {node: (to_head[node], to_tail[node]) for node in near if node in to_head and node in to_tail}
    labels |= {head: (0, 0)} if head == tail else {head: (0, 1), tail: (1, 0)}
    return labels, {(h, r, t) for h, r, t in inside if h in labels and t in labels}


def index_of(case: Case) -> tuple[set[tuple[int, int, int]], QueryIndex]:
    triples = case.triples.unique(dim=0)
    back = torch.stack([triples[:, 2], triples[:, 1] + case.num_relations, triples[:, 0]], dim=1)
    index = QueryIndex.from_triples(torch.cat([triples, back]), case.num_entities, 2 * case.num_relations)
    return {(h, r, t) for h, r, t in triples.tolist()}, index


def pair_of(whole: EnclosingSubgraphs, pair: int) -> tuple[dict[int, tuple[int, int]], list[tuple[int, int, int]]]:
    mine = whole.pair_of_node == pair
    labels = dict(zip(whole.nodes[mine].tolist(), map(tuple, whole.labels[mine].tolist()), strict=True))
    chosen = mine[whole.sources]
    assert torch.equal(chosen, mine[whole.targets])
    ends = whole.nodes[whole.sources][chosen], whole.types[chosen], whole.nodes[whole.targets][chosen]
    return labels, sorted(zip(*(part.tolist() for part in ends), strict=True))


@settings(max_examples=40, deadline=None)
@given(cases(max_entities=9, max_triples=20), st.integers(1, 3))
def test_sub_graphs_and_labels_are_those_of_a_search_pair_by_pair(case: Case, hops: int) -> None:
    """Every triple that there could be, at once."""
    facts, index = index_of(case)
    span = range(case.num_entities)
    asked = torch.tensor([(h, r, t) for h in span for r in range(case.num_relations) for t in span])
    surroundings = Surroundings(index, hops)
    whole = surroundings.extract(*asked.unbind(1))
    for number, (head, relation, tail) in enumerate(asked.tolist()):
        labels, inside = naive_subgraph(facts, head, relation, tail, hops)
        assert pair_of(whole, number) == (labels, sorted(inside))
        assert int(whole.nodes[whole.heads[number]]) == head
        assert int(whole.nodes[whole.tails[number]]) == tail
    start = 0
    for group in whole.groups(10):
        assert int(group.sizes().sum()) <= 10 or group.num_pairs == 1
        for pair in range(group.num_pairs):
            assert pair_of(group, pair) == pair_of(whole, start + pair)
        start += group.num_pairs
    assert start == len(asked)


def test_an_entity_that_is_left_out_takes_its_way_with_it() -> None:
    """Ways 0-2-3-1 and 2-4: with two hops from both, 2 and 3 are inside and 4 is not; the fact itself is left out."""
    triples = torch.tensor([[0, 0, 2], [2, 0, 3], [3, 1, 1], [2, 1, 4], [0, 1, 1]])
    _, index = index_of(Case(5, 2, triples, 0))
    found = Surroundings(index, 2).extract(torch.tensor([0]), torch.tensor([1]), torch.tensor([1]))
    assert pair_of(found, 0) == (
        {0: (0, 1), 1: (1, 0), 2: (1, 2), 3: (2, 1)},
        [(0, 0, 2), (2, 0, 3), (3, 1, 1)],
    )


@given(st.lists(st.integers(0, 9), max_size=30), st.integers(1, 20))
def test_groups_cover_everything_in_order_and_keep_to_the_limit(sizes: list[int], most: int) -> None:
    parts = list(consecutive_groups(torch.tensor(sizes, dtype=torch.int64), most))
    assert [place for part in parts for place in range(part.start, part.stop)] == list(range(len(sizes)))
    assert all(sum(sizes[part]) <= most or part.stop == part.start + 1 for part in parts)


@given(cases(max_entities=9, max_triples=20), st.integers(1, 3))
def test_no_search_takes_more_steps_than_foretold(case: Case, hops: int) -> None:
    facts, index = index_of(case)
    surroundings = Surroundings(index, hops)
    for root in range(case.num_entities):
        steps = 0
        for node, distance in hops_from(root, -1, facts, hops).items():
            neighbours = {t for h, _, t in facts if h == node} | {h for h, _, t in facts if t == node}
            steps += len(neighbours) if distance < hops else 0
        assert steps <= int(surroundings.most_visits[root])


# The network -------------------------------------------------------------------------------------------------------


def naive_layer(layer: GraILLayer, states: list[Tensor], asked: int, edges: list[tuple[int, int, int]]) -> list[Tensor]:
    bases = layer.bases.weight.view(-1, layer.dim, layer.in_dim)
    embedding = layer.attention_relations.weight
    new = []
    for node, state in enumerate(states):
        total = layer.own.weight @ state
        for source, relation, target in edges:
            if target == node:
                inputs = torch.cat([states[source], state, embedding[relation], embedding[asked]])
                alpha = torch.sigmoid(layer.attention_score(torch.relu(layer.attention(inputs))))
                matrix = (layer.coefficients[relation][:, None, None] * bases).sum(0)
                total = total + alpha * (matrix @ states[source])
        new.append(torch.relu(total))
    return new


def naive_score(model: GraIL, facts: set[tuple[int, int, int]], head: int, relation: int, tail: int) -> Tensor:
    labels, inside = naive_subgraph(facts, head, relation, tail, model.num_hops)
    order = sorted(labels)
    edges = [(order.index(h), r, order.index(t)) for h, r, t in inside]
    width = model.num_hops + 1
    eye = torch.eye(width, dtype=torch.float64)
    states, outputs = [torch.cat([eye[one], eye[two]]) for one, two in (labels[node] for node in order)], []
    for layer in model.layers:
        states = naive_layer(layer, states, relation, edges)
        outputs.append(torch.stack(states))
    combined = torch.cat(outputs, dim=1)
    ends = combined[order.index(head)], combined[order.index(tail)]
    return model.readout(torch.cat([combined.mean(0), *ends, model.relations.weight[relation]]))


def model_of(graph: KnowledgeGraph, budget: int | None = None) -> GraIL:
    return GraIL(graph.relations, DIM, num_layers=2, seed=1, memory_budget=budget).double().eval()


@pytest.mark.parametrize("budget", [1, 50_000, None])
def test_scores_and_gradients_are_those_of_the_equations(graph: KnowledgeGraph, budget: int | None) -> None:
    model = model_of(graph, budget)
    facts = {(h, r, t) for h, r, t in graph.triples("train").tolist()}
    asked = torch.cat([graph.triples("train")[:4], graph.triples("test")[:4]])
    expected = torch.cat([naive_score(model, facts, *triple) for triple in asked.tolist()])
    surroundings = Surroundings(graph.queries("train"), 2)
    scores = model(surroundings, asked)
    weights = torch.randn(8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    parameters = list(model.parameters())
    ours = torch.autograd.grad((weights * scores).sum(), parameters)
    theirs = torch.autograd.grad((weights * expected).sum(), parameters)
    torch.testing.assert_close(scores, expected, rtol=1e-10, atol=1e-10)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-10)


def test_a_question_for_the_head_is_about_the_same_triples(graph: KnowledgeGraph) -> None:
    model, number = model_of(graph), graph.num_relations
    bound, all_entities = model.bind(graph), torch.arange(graph.num_entities)
    tails = bound.scores(all_entities, torch.full((24,), 1))
    heads = bound.scores(all_entities, torch.full((24,), 1 + number))
    torch.testing.assert_close(heads, tails.T, rtol=1e-10, atol=1e-12)
    facts = {(h, r, t) for h, r, t in graph.triples("train").tolist()}
    torch.testing.assert_close(tails[3, 9], naive_score(model, facts, 3, 1, 9)[0].detach(), rtol=1e-10, atol=1e-10)
    assert bound.scores(all_entities[:0], all_entities[:0]).shape == (0, 24)


@given(cases(max_entities=9, max_triples=8), st.integers(1, 2))
@settings(max_examples=30, deadline=None)
def test_candidates_that_are_too_far_have_the_score_of_nothing(case: Case, hops: int) -> None:
    facts, index = index_of(case)
    relations = Vocabulary(map(str, range(case.num_relations)), "relation")
    model = GraIL(relations, DIM, num_layers=2, num_hops=hops).double().eval()
    bound, everyone = GraILScorer(model, Surroundings(index, hops)), torch.arange(case.num_entities)
    asked = torch.cartesian_prod(everyone, torch.arange(2 * case.num_relations)).unbind(1)
    one_by_one = bound.candidate_scores(*asked, everyone.expand(len(asked[0]), -1))
    torch.testing.assert_close(bound.scores(*asked), one_by_one, rtol=1e-12, atol=1e-12)
    looped = {head for head, _, tail in facts if head == tail}
    for entity in range(case.num_entities):
        near = hops_from(entity, -1, facts, 2 * hops).keys() | looped
        expected = range(case.num_entities) if entity in looped else sorted(near)
        assert bound.surroundings.connectable(entity).tolist() == list(expected)


def test_a_partial_ranking_judges_its_candidates_alone(graph: KnowledgeGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    bound, candidates = model_of(graph).bind(graph), torch.tensor([[3, 9, 3], [0, 23, 5]])
    subjects, relations = torch.tensor([4, 7]), torch.tensor([1, graph.num_relations])
    expected = bound.scores(subjects, relations).gather(1, candidates)
    torch.testing.assert_close(bound.candidate_scores(subjects, relations, candidates), expected)

    triples = graph.triples("test")
    everything = SimpleNamespace(num_entities=bound.num_entities, device=bound.device, scores=bound.scores)
    assert not isinstance(everything, CandidateScorer)
    from_all = rank_triples(everything, graph, triples, num_negatives=5, seed=2)
    monkeypatch.setattr(bound, "scores", lambda *_: pytest.fail("nobody asked about all of them"))
    ranks = rank_triples(bound, graph, triples, num_negatives=5, seed=2)
    assert ranks.better.tolist() == from_all.better.tolist()
    assert ranks.candidates.max() == 6


@pytest.mark.parametrize("negatives", [0, 5])
def test_a_validation_ranks_among_as_many_as_it_is_told(tiny: Path, tmp_path: Path, negatives: int) -> None:
    options = {"model": "grail", "dim": 8, "layers": 2, "epochs": 1, "validation_negatives": negatives}
    run = refactorgnn.train(tiny, out=tmp_path / "run", progress=False, **options)
    ranks = rank_triples(
        run.load_model().eval().bind(run.graph),
        run.graph,
        run.graph.triples("valid"),
        num_negatives=negatives or None,
    )
    assert outcomes(ranks).mean()["mrr"] == pytest.approx(run.sidecar["valid_mrr"], abs=1e-9)


def test_a_run_learns_and_is_loaded_bit_for_bit(tiny: Path, tmp_path: Path) -> None:
    options = {"model": "grail", "dim": 8, "layers": 2, "dropout": 0.0, "epochs": 6, "validate_every": 6}
    options["validation_negatives"] = 0
    run = refactorgnn.train(tiny, out=tmp_path / "run", progress=False, **options)
    losses = [record["loss"] for record in run.records()]
    assert losses[-1] < 0.8 * losses[0]
    first, second = (run.load_model().bind(run.graph).scores(torch.arange(4), torch.arange(4)) for _ in range(2))
    assert torch.equal(first, second)
    measured = refactorgnn.evaluate(run, split="valid", confidence=False).metrics["mrr"]
    assert measured == pytest.approx(run.sidecar["valid_mrr"], abs=1e-9)
