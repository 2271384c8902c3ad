"""The samplers draw what their formulas say, and a sub-graph is all facts among what they drew."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from refactorgnn.data import load_graph
from refactorgnn.errors import UserError
from refactorgnn.sampling import SAMPLERS, make_sampler
from tests.sampling.graphs import assert_frequencies, random_graph, transition_matrix

every_sampler = pytest.mark.parametrize("name", SAMPLERS)


def ladies_distribution(P: Tensor, chosen: frozenset[int], width: int, depth: int) -> dict[frozenset[int], float]:
    """The probability of every final set, by following every sequence of draws."""
    if depth == 0:
        return {chosen: 1.0}
    importance = P[sorted(chosen)].square().sum(0)
    importance[sorted(chosen)] = 0
    partial = {(): 1.0}
    for _ in range(width):
        longer: dict[tuple[int, ...], float] = {}
        for drawn, probability in partial.items():
            left = importance.clone()
            left[list(drawn)] = 0
            for u in left.nonzero()[:, 0].tolist():
                longer[(*drawn, u)] = probability * float(left[u] / left.sum())
        partial = longer
    final: Counter[frozenset[int]] = Counter()
    for drawn, probability in partial.items():
        for outcome, rest in ladies_distribution(P, chosen | set(drawn), width, depth - 1).items():
            final[outcome] += probability * rest
    return dict(final)


@pytest.mark.parametrize(("depth", "width"), [(1, 1), (1, 2), (2, 1)])
def test_ladies_draws_with_the_probabilities_of_its_formula(depth: int, width: int) -> None:
    graph = random_graph(8, 22, seed=3)
    sampler = make_sampler("ladies", graph, depth, width)
    seeds = torch.tensor([0, 3])
    expected = ladies_distribution(transition_matrix(graph), frozenset(seeds.tolist()), width, depth)
    assert len(expected) > 3
    generator = torch.Generator().manual_seed(0)
    seen = Counter(frozenset(sampler._around(seeds, generator).tolist()) | {0, 3} for _ in range(2000))
    assert_frequencies(seen, expected)


def test_ladies_counts_parallel_facts_together_before_squaring() -> None:
    """Two facts to entity 1 and one to entity 2: 4 to 1, and not 2 to 1 as for single edges."""
    triples = torch.tensor([[0, 0, 1], [0, 1, 1], [2, 0, 0]])
    graph = replace(random_graph(4, 1), splits={"train": triples})
    sampler, generator = make_sampler("ladies", graph, 1, 1), torch.Generator().manual_seed(0)
    added = [set(sampler._around(torch.tensor([0]), generator).tolist()) - {0} for _ in range(1500)]
    assert abs(added.count({1}) / 1500 - 0.8) < 4 * (0.8 * 0.2 / 1500) ** 0.5


def test_ladies_takes_all_neighbours_where_there_are_fewer_than_it_may() -> None:
    graph = random_graph(30, 40)
    P = transition_matrix(graph)
    seeds = torch.tensor([4, 7])
    reached = P[seeds].sum(0).nonzero()[:, 0]
    sampler = make_sampler("ladies", graph, 1, 30)
    expected = sorted({4, 7, *reached.tolist()})
    assert sorted(sampler._around(seeds, torch.Generator()).unique().tolist()) == expected


def test_saint_walks_with_the_transition_probabilities() -> None:
    graph = random_graph(6, 8, seed=1)
    P = transition_matrix(graph)
    sampler = make_sampler("saint", graph, 2, 1)
    seeds, generator = torch.tensor([0, 2]), torch.Generator().manual_seed(0)
    seen = Counter(tuple(sampler._around(seeds, generator).tolist()) for _ in range(2000))
    expected = {
        (root, a, b): 0.5 * float(P[root, a] * P[a, b])
        for root in (0, 2)
        for a in range(6)
        for b in range(6)
        if P[root, a] * P[a, b] > 0
    }
    assert_frequencies(seen, expected)


def test_saint_stays_where_there_is_no_way_on() -> None:
    graph = random_graph(6, 8)
    assert not (graph.triples()[:, [0, 2]] == 5).any()
    visited = make_sampler("saint", graph, 3, 2)._around(torch.tensor([5]), torch.Generator())
    assert visited.tolist() == [5] * 8


@every_sampler
@pytest.mark.parametrize("seed", range(5))
def test_subgraph_is_all_facts_among_its_nodes(name: str, seed: int) -> None:
    graph = random_graph(40, 90, seed=seed)
    facts = graph.triples("train")
    targets = facts[:6]
    sampler = make_sampler(name, graph, 2, 5)
    sub = sampler.sample(targets, torch.Generator().manual_seed(seed))
    nodes = sub.nodes.tolist()
    assert nodes == sorted(set(nodes))
    assert len(nodes) <= 13 + 2 * 5

    def in_the_graph(triples: Tensor) -> list[tuple[int, int, int]]:
        return [(nodes[h], r, nodes[t]) for h, r, t in triples.tolist()]

    assert in_the_graph(sub.targets) == list(map(tuple, targets.tolist()))
    induced = [(h, r, t) for h, r, t in facts.tolist() if h in nodes and t in nodes]
    assert sorted(in_the_graph(sub.triples)) == sorted(induced)
    pairs = {frozenset((h, t)) for h, _, t in targets.tolist()}
    expected = [frozenset((h, t)) in pairs for h, _, t in in_the_graph(sub.triples)]
    assert sub.is_target.tolist() == expected
    assert set(in_the_graph(sub.targets)) <= set(in_the_graph(sub.triples[sub.is_target]))
    in_batch = {*targets[:, 0].tolist(), *targets[:, 2].tolist()}
    assert in_batch <= set(nodes)
    assert [nodes[i] for i in sub.candidates.tolist()] == sorted({*in_batch, nodes[sub.global_node]})


@every_sampler
def test_global_node_is_uniform_over_all_entities(name: str) -> None:
    graph = random_graph(12, 20)
    sampler, generator = make_sampler(name, graph, 1, 1), torch.Generator().manual_seed(0)
    subs = [sampler.sample(graph.triples("train")[:1], generator) for _ in range(600)]
    seen = Counter(int(sub.nodes[sub.global_node]) for sub in subs)
    assert_frequencies(seen, dict.fromkeys(range(12), 1 / 12))


@every_sampler
def test_a_seed_makes_a_draw_repeatable(name: str) -> None:
    graph = load_graph("countries")
    sampler = make_sampler(name, graph, 2, 16)
    targets = graph.triples("train")[:8]
    first, again, other = (sampler.sample(targets, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert torch.equal(first.nodes, again.nodes)
    assert torch.equal(first.triples, again.triples)
    assert not torch.equal(first.nodes, other.nodes)


def test_wrong_settings_are_named() -> None:
    graph = random_graph(5, 5)
    with pytest.raises(UserError, match="unknown sampler 'ladie': did you mean 'ladies'"):
        make_sampler("ladie", graph, 1, 1)
    with pytest.raises(UserError, match="a sampler cannot use depth=0"):
        make_sampler("ladies", graph, 0, 1)
    with pytest.raises(UserError, match="a sampler cannot use width=0"):
        make_sampler("saint", graph, 1, 0)
