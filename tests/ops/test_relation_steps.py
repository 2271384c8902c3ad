"""A step over relation operators: equal to dense matrix products, in bounded memory."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from refactorgnn.ops import relation_steps
from refactorgnn.ops.relation_steps import HeldOut, RelationOperators

NUM_ENTITIES, NUM_RELATIONS, NUM_EDGES, NUM_COLUMNS = 11, 4, 57, 6


def drawn(seed: int = 0) -> tuple[RelationOperators, Tensor, Tensor]:
    """Random facts, repeated ones and self-loops among them, a memory and an attention."""
    generator = torch.Generator().manual_seed(seed)
    sources, targets = torch.randint(NUM_ENTITIES - 1, (2, NUM_EDGES), generator=generator)  # the last one is alone
    relations = torch.randint(NUM_RELATIONS, (NUM_EDGES,), generator=generator)
    operators = RelationOperators(sources, relations, targets, NUM_ENTITIES)
    memory = torch.rand(NUM_ENTITIES, NUM_COLUMNS, generator=generator, dtype=torch.float64)
    attention = torch.rand(NUM_RELATIONS, NUM_COLUMNS, generator=generator, dtype=torch.float64)
    return operators, memory.requires_grad_(), attention.requires_grad_()


def dense_step(operators: RelationOperators, memory: Tensor, attention: Tensor, held_out: HeldOut | None) -> Tensor:
    """``(Σ_r a_r M_r) u`` column by column, with matrices."""
    columns = []
    for column in range(memory.shape[1]):
        matrices = torch.zeros(NUM_RELATIONS, NUM_ENTITIES, NUM_ENTITIES, dtype=torch.float64)
        hidden = set() if held_out is None else set(held_out.edges[held_out.columns == column].tolist())
        edges = zip(operators.sources.tolist(), operators.relations.tolist(), operators.targets.tolist(), strict=True)
        for number, (source, relation, target) in enumerate(edges):
            matrices[relation, target, source] += number not in hidden
        columns.append(torch.einsum("r,rvw,w->v", attention[:, column], matrices, memory[:, column]))
    return torch.stack(columns, dim=1)


PAIRS = HeldOut.of(torch.tensor([56, 3, 0, 3, 20, 21]), torch.tensor([1, 0, 5, 4, 4, 4]))


@pytest.mark.parametrize("held_out", [None, PAIRS], ids=["all", "held-out"])
@pytest.mark.parametrize("budget", [None, 1, 3_000], ids=["one chunk", "edge by edge", "in chunks"])
def test_a_step_and_its_gradients_are_those_of_dense_products(held_out: HeldOut | None, budget: int | None) -> None:
    operators, memory, attention = drawn()
    direction = torch.randn(NUM_ENTITIES, NUM_COLUMNS, dtype=torch.float64)
    ours = operators.step(memory, attention, held_out, budget)
    theirs = dense_step(operators, memory, attention, held_out)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)
    got = torch.autograd.grad((ours * direction).sum(), (memory, attention))
    expected = torch.autograd.grad((theirs * direction).sum(), (memory, attention))
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-10)


def test_what_is_held_out_leaves_no_trace() -> None:
    """Not even one of rounding: the weight of an edge is set to zero, not subtracted afterwards."""
    operators = RelationOperators(torch.tensor([0]), torch.tensor([0]), torch.tensor([1]), 2)
    memory, attention = torch.tensor([[0.1, 0.1], [0.0, 0.0]]), torch.tensor([[1 / 3, 1 / 3]])
    result = operators.step(memory, attention, HeldOut(torch.tensor([0]), torch.tensor([1])))
    assert result[1, 0] > 0
    assert result[:, 1].tolist() == [0, 0]


def test_copies_of_the_questions_hold_out_the_same() -> None:
    twice = PAIRS.repeated(2, NUM_COLUMNS)
    pairs = set(zip(PAIRS.edges.tolist(), PAIRS.columns.tolist(), strict=True))
    expected = pairs | {(edge, column + NUM_COLUMNS) for edge, column in pairs}
    assert set(zip(twice.edges.tolist(), twice.columns.tolist(), strict=True)) == expected
    assert twice.edges.tolist() == sorted(twice.edges.tolist())


def test_a_graph_without_facts_carries_nothing() -> None:
    nothing = torch.empty(0, dtype=torch.int64)
    operators = RelationOperators(nothing, nothing, nothing, 3)
    assert not operators.step(torch.ones(3, 2), torch.ones(4, 2), PAIRS).any()


def test_the_start_is_one_at_the_subject() -> None:
    operators, _, _ = drawn()
    start = operators.start(torch.tensor([4, 0, 4]), torch.float64)
    assert start.sum() == 3
    assert start[[4, 0, 4], [0, 1, 2]].tolist() == [1, 1, 1]


@pytest.mark.parametrize("budget", [2**16, 2**18])
def test_temporaries_follow_the_budget_and_not_the_facts(budget: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every tensor with a row for each edge of a chunk, forward and backward, fits in its share of the budget."""
    largest = 0
    add_into = relation_steps._Groups.add_into

    def watched(groups: relation_steps._Groups, totals: Tensor, rows: Tensor) -> None:
        nonlocal largest
        largest = max(largest, rows.nbytes)
        add_into(groups, totals, rows)

    monkeypatch.setattr(relation_steps._Groups, "add_into", watched)
    sources, targets = torch.randint(50, (2, 20_000))
    operators = RelationOperators(sources, torch.randint(3, (20_000,)), targets, 50)
    memory, attention = torch.rand(50, 32, requires_grad=True), torch.rand(3, 32, requires_grad=True)
    result = operators.step(memory, attention, memory_budget=budget)
    saved = [tensor for tensor in result.grad_fn.saved_tensors if tensor is not None]  # type: ignore[union-attr]
    result.sum().backward()
    assert budget / 16 < largest <= budget / relation_steps._BUFFERS < 20_000 * 32 * 4
    assert sorted(tensor.shape for tensor in saved) == [(3, 32), (50, 32)]  # nothing is kept for each edge
