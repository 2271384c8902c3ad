"""Mining: what is counted is what brute force counts, what is drawn is all there is, and no fact is its own reason."""

from __future__ import annotations

import pytest
import torch

from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.models.rivals.facts import FactIndex
from refactorgnn.models.rivals.rule_mining import MiningOptions, count_paths, mine_constants, mine_paths
from tests.models.rivals.brute_force import NUM_RELATIONS, all_bodies, facts_of, padded, pairs, random_graph

SEEDS = (0, 1, 2)


def index_of(graph: KnowledgeGraph, most_paths: int = 2**20) -> FactIndex:
    facts = graph.with_reciprocals(graph.triples("train"))
    return FactIndex(facts, graph.num_entities, 2 * NUM_RELATIONS, memory_budget=240 * most_paths)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("most", [1, 5, 2**20], ids=lambda most: f"{most} at a time")
@pytest.mark.parametrize("seed", SEEDS)
def test_counts_are_those_of_brute_force(seed: int, most: int) -> None:
    """774 rules: support and groundings of every body of up to three steps, for every head."""
    graph = random_graph(seed)
    facts = facts_of(graph)
    rules = [(head, body) for head in range(NUM_RELATIONS) for body in all_bodies()]
    heads, bodies = torch.tensor([head for head, _ in rules]), torch.tensor([padded(body) for _, body in rules])
    counted = count_paths(index_of(graph, most), heads, bodies, 1000, generator())
    grounded = {body: pairs(facts, body) for body in all_bodies()}
    expected = [(sum((x, head, y) in facts for x, y in grounded[body]), len(grounded[body])) for head, body in rules]
    assert list(zip(counted.support.tolist(), counted.groundings.tolist(), strict=True)) == expected
    assert max(groundings for _, groundings in expected) > 20


@pytest.mark.parametrize("seed", SEEDS)
def test_enough_draws_find_every_rule(seed: int) -> None:
    """A body is found if facts enough have a path of it; none of one step that is the head itself."""
    graph = random_graph(seed)
    facts = facts_of(graph)
    found, coverage = mine_paths(index_of(graph), MiningOptions(paths_per_fact=3000, min_support=2), generator())
    expected = {
        (head, tuple(padded(body))): support
        for body in all_bodies()
        for head in range(NUM_RELATIONS)
        if body != (head,) and (support := sum((x, head, y) in facts for x, y in pairs(facts, body))) >= 2
    }
    keys = zip(found.heads.tolist(), map(tuple, found.bodies.tolist()), strict=True)
    assert dict(zip(keys, found.support.tolist(), strict=True)) == expected
    assert len(expected) > 50
    joined = {(x, y) for body in all_bodies() if len(body) > 1 for x, y in pairs(facts, body)}
    direct = [fact for fact in facts if fact[1] < NUM_RELATIONS]
    has_path = [
        (x, y) in joined or any((x, other, y) in facts for other in range(2 * NUM_RELATIONS) if other != r)
        for x, r, y in direct
    ]
    assert coverage == pytest.approx(sum(has_path) / len(direct))


def test_lengths_are_kept_to() -> None:
    for length in (1, 2, 3):
        options = MiningOptions(max_length=length, paths_per_fact=500, min_support=1)
        found, _ = mine_paths(index_of(random_graph(0)), options, generator())
        assert int((found.bodies >= 0).sum(1).max()) == length


def test_a_fact_is_no_reason_for_itself() -> None:
    """On a chain of one relation, x → y → x → y would make every fact follow from itself."""
    chain = torch.tensor([[i, 0, i + 1] for i in range(6)])
    index = FactIndex(torch.cat([chain, chain[:, [2, 1, 0]] + torch.tensor([0, 1, 0])]), 7, 2)
    body = torch.tensor([[0, 1, 0]])
    counted = count_paths(index, torch.tensor([0]), body, 1000, generator())
    assert (counted.support.tolist(), counted.groundings.tolist()) == ([0], [0])
    found, coverage = mine_paths(index, MiningOptions(min_support=1), generator())
    assert len(found.heads) == 0
    assert coverage == 0


def test_a_sample_of_first_entities_is_counted_whole() -> None:
    """The counts of two first entities, over many samples, average to two over all of them of the exact ones."""
    index = index_of(random_graph(0))
    body, head = torch.tensor([[0, 1, -1]]), torch.tensor([2])
    exact = count_paths(index, head, body, 1000, generator())
    num_starts = int((index.query_relations == 0).sum())
    samples = [count_paths(index, head, body, 2, generator(seed)).groundings.item() for seed in range(400)]
    assert num_starts > 4
    expected = exact.groundings.item() * 2 / num_starts
    assert sum(samples) / len(samples) == pytest.approx(expected, rel=0.1)
    assert len(set(samples)) > 2


@pytest.mark.parametrize("most", [1, 2**20])
@pytest.mark.parametrize("seed", SEEDS)
def test_rules_with_constants_are_those_of_brute_force(seed: int, most: int) -> None:
    graph = random_graph(seed)
    facts = facts_of(graph)
    found = mine_constants(index_of(graph, most), 2)
    expected = {}
    subjects, relations = range(graph.num_entities), range(2 * NUM_RELATIONS)
    for r, c in {(r, c) for _, r, c in facts}:
        right = {x for x in subjects if (x, r, c) in facts}
        for other in relations:
            for d in (-1, *subjects):
                if (r, c) == (other, d):
                    continue
                skipped = {c} if other == r else set()
                objects = set(subjects) - skipped if d < 0 else {d}
                body = {x for x in subjects if any((x, other, z) in facts for z in objects)}
                if len(body & right) >= 2:
                    expected[r, c, other, d] = (len(body & right), len(body))
    keys = [tuple(row) for row in torch.column_stack([found.heads, found.terms]).tolist()]
    assert dict(zip(keys, zip(found.support.tolist(), found.groundings.tolist(), strict=True), strict=True)) == expected
    assert len(keys) == len(set(keys)) > 20
