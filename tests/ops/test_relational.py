"""Aggregated messages are those of a list of messages, one by one; the kernels make what the chunks make."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from refactorgnn.models.rivals.nbfnet import edges_from_subjects
from refactorgnn.ops import relational
from refactorgnn.ops.edges import TARGET_SIZE, TypedEdges
from refactorgnn.ops.relational import combined_aggregates
from tests.strategies import Case, cases

DIM = 3
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def naive_aggregates(states: Tensor, boundary: Tensor, relations: Tensor, edges: TypedEdges) -> Tensor:
    """Message by message, node by node."""
    outputs = []
    for node in range(edges.num_nodes):
        messages = [
            states[int(edges.sources[e])] * relations[int(edges.types[e])]
            for e in range(edges.num_edges)
            if int(edges.targets[e]) == node
        ]
        m = torch.stack([*messages, boundary[node]])
        deviation = m.var(0, unbiased=False).clamp(min=1e-6).sqrt()
        outputs.append(torch.cat([m.mean(0), m.amax(0), m.amin(0), deviation], dim=-1))
    return torch.stack(outputs)


def aggregates(
    states: Tensor, boundary: Tensor, relations: Tensor, edges: TypedEdges, memory_budget: int | None = None
) -> Tensor:
    """As they are, combined by the identity."""
    weights, scales = torch.eye(4 * states.shape[-1]).to(states)[None], states.new_ones(1, len(states))
    return combined_aggregates(states, boundary, relations, weights, scales, edges, memory_budget)


def drawn_inputs(case: Case, num_questions: int, shared: bool, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Rounded states make equal messages, whose extremes share a gradient, as torch's ``amax`` has it."""
    generator = torch.Generator().manual_seed(case.seed)
    shape = case.num_entities, num_questions, DIM
    states, boundary = (torch.randint(-2, 3, shape, generator=generator).to(dtype) for _ in range(2))
    width = 1 if shared else num_questions
    relations = torch.randint(-4, 5, (case.num_relations, width, DIM), generator=generator).to(dtype) / 2
    return states.requires_grad_(), boundary.requires_grad_(), relations.requires_grad_()


def with_gradients(outputs: Tensor, inputs: tuple[Tensor, ...]) -> list[Tensor]:
    weights = torch.randn(outputs.shape, generator=torch.Generator().manual_seed(5)).to(outputs)
    return [outputs, *torch.autograd.grad((weights * outputs).sum(), inputs)]


@settings(max_examples=40, deadline=None)
@given(cases(), st.sampled_from([1, 400, None]), st.booleans())
def test_aggregates_and_their_gradients_are_those_of_the_messages_one_by_one(
    case: Case, budget: int | None, shared: bool
) -> None:
    inputs, edges = drawn_inputs(case, 2, shared, torch.float64), edges_from_subjects(case.queries)
    ours = with_gradients(aggregates(*inputs, edges, budget), inputs)
    theirs = with_gradients(naive_aggregates(*inputs, edges), inputs)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


@settings(max_examples=20, deadline=None)
@given(cases(), st.sampled_from([1, 400, None]), st.booleans())
def test_combinations_and_their_gradients_are_those_of_scaled_aggregates(
    case: Case, budget: int | None, shared: bool
) -> None:
    inputs, edges = drawn_inputs(case, 2, shared, torch.float64), edges_from_subjects(case.queries)
    generator = torch.Generator().manual_seed(case.seed)
    weights = torch.randn(3, 5, 4 * DIM, generator=generator, dtype=torch.float64).requires_grad_()
    scales = torch.randn(3, edges.most_degree + 1, generator=generator, dtype=torch.float64)[:, edges.degrees]
    combined = combined_aggregates(*inputs, weights, scales, edges, budget)
    expected = torch.einsum("kv,koa,vqa->vqo", scales, weights, naive_aggregates(*inputs, edges))
    ours, theirs = (with_gradients(outputs, (*inputs, weights)) for outputs in (combined, expected))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


@settings(max_examples=15, deadline=None)
@given(cases(max_triples=20), st.sampled_from([1, 3, 200]), st.booleans())
def test_kernels_make_the_same(case: Case, num_questions: int, shared: bool) -> None:
    """On a GPU compiled, elsewhere interpreted; 200 questions are taken in two goes."""
    pytest.importorskip("triton", reason="Triton is not installed")
    from refactorgnn.ops import fused_aggregates

    exact, edges = drawn_inputs(case, num_questions, shared, torch.float64), edges_from_subjects(case.queries)
    outputs = aggregates(*exact, edges)
    weights = torch.randn(outputs.shape, generator=torch.Generator().manual_seed(5))
    expected = torch.autograd.grad((weights * outputs).sum(), exact)
    inputs = [values.detach().float().to(DEVICE) for values in exact]
    there = TypedEdges(
        *(part.to(DEVICE) for part in (edges.sources, edges.types, edges.targets)), edges.num_nodes, edges.num_types
    )
    out = fused_aggregates.aggregate(*inputs, there)
    torch.testing.assert_close(out.double().cpu(), outputs.detach(), rtol=1e-5, atol=1e-5)
    found = fused_aggregates.gradients(*inputs, out, weights.to(DEVICE), there)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.double().cpu(), other, rtol=1e-4, atol=1e-4)


@given(cases(max_triples=30), st.integers(1, 40))
def test_chunks_hold_whole_targets_and_all_edges_once(case: Case, most: int) -> None:
    edges = edges_from_subjects(case.queries)
    parts = list(edges.chunks(most))
    assert torch.cat([part.flatten() for _, part in parts]).sort().values.tolist() == list(range(edges.num_edges))
    assert torch.cat([targets for targets, _ in parts]).sort().values.tolist() == list(range(edges.num_nodes))
    for targets, part in parts:
        assert (edges.targets[part] == targets[:, None]).all()
        assert (edges.degrees[targets] == part.shape[1]).all()
        assert part.numel() + TARGET_SIZE * len(targets) <= most or len(targets) == 1


def test_no_chunk_of_messages_is_larger_than_the_budget() -> None:
    """A star: its hub has more edges than fit for all questions together, so the questions are cut."""
    spokes = torch.arange(1, 101)
    edges = TypedEdges.sort(spokes, spokes % 2, torch.zeros_like(spokes), 101, 2)
    states, relations = torch.randn(101, 7, DIM), torch.randn(2, 7, DIM)
    largest = 0
    budget = relational._EDGE_BUFFERS * 4 * DIM * 102 * 3
    for questions, parts in relational._blocks(states, edges, budget):
        number = questions.stop - questions.start
        assert number <= 3
        largest = max(largest, *((chunk.sources.numel() + len(chunk.targets)) * number * DIM * 4 for chunk in parts))
    assert largest * relational._EDGE_BUFFERS <= budget
    cut, whole = (aggregates(states, states, relations, edges, limit) for limit in (budget, None))
    torch.testing.assert_close(cut, whole)
