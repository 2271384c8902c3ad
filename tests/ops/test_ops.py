"""The chunked products equal their specification; half-precision inputs stay within what rounding allows."""

from __future__ import annotations

import os

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from refactorgnn import ops
from refactorgnn.errors import UserError
from refactorgnn.ops import chunked, sparse

DEVICE = os.environ.get("REFACTORGNN_TEST_DEVICE", "cpu")
EXACT = {"rtol": 1e-11, "atol": 1e-11}


def inputs(num_queries: int, num_candidates: int, dim: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    queries = torch.randn(num_queries, dim, dtype=torch.float64, generator=generator)
    candidates = torch.randn(num_candidates, dim, dtype=torch.float64, generator=generator)
    weights = torch.randint(1, 5, (num_queries,), generator=generator).double()
    return queries.to(DEVICE), candidates.to(DEVICE), weights.to(DEVICE)


def random_pattern(num_rows: int, num_columns: int, num_edges: int, seed: int = 0) -> ops.SparsePattern:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.sort(torch.randint(0, num_rows, (num_edges,), generator=generator)).values
    columns = torch.randint(0, num_columns, (num_edges,), generator=generator)
    return ops.SparsePattern.from_rows(rows, columns, num_rows, num_columns).to(DEVICE)


def dense(pattern: ops.SparsePattern, weights: Tensor | None = None) -> Tensor:
    matrix = torch.zeros(pattern.num_rows, pattern.num_columns, dtype=torch.float64, device=DEVICE)
    values = torch.ones(pattern.num_edges, dtype=torch.float64, device=DEVICE) if weights is None else weights
    return matrix.index_put((pattern.rows, pattern.columns), values, accumulate=True)


@given(
    num_queries=st.integers(0, 17),
    num_candidates=st.integers(1, 23),
    dim=st.integers(1, 7),
    rows=st.integers(1, 18),
    seed=st.integers(0, 99),
)
@settings(max_examples=60, deadline=None)
def test_chunked_equals_reference_at_odd_sizes_and_chunk_lengths(
    num_queries: int, num_candidates: int, dim: int, rows: int, seed: int
) -> None:
    arguments = inputs(num_queries, num_candidates, dim, seed)
    budget = rows * 2 * num_candidates * 8  # exactly `rows` queries a chunk
    for got, expected in zip(
        ops.softmax_products(*arguments, memory_budget=budget),
        ops.softmax_products(*arguments, impl="reference"),
        strict=True,
    ):
        torch.testing.assert_close(got, expected, **EXACT)
    torch.testing.assert_close(
        ops.logsumexp(*arguments[:2], memory_budget=budget), ops.logsumexp(*arguments[:2], impl="reference"), **EXACT
    )


@pytest.mark.parametrize("rows", [1, 3, 100])
def test_chunked_derivative_equals_reference(rows: int) -> None:
    arguments = [tensor.requires_grad_() for tensor in inputs(11, 7, 5)]
    generator = torch.Generator().manual_seed(1)
    shapes = [(11,), (11, 5), (7, 5)]
    directions = [torch.randn(s, dtype=torch.float64, generator=generator).to(DEVICE) for s in shapes]

    def derivative(impl: ops.Impl) -> tuple[Tensor, ...]:
        outputs = ops.softmax_products(*arguments, impl=impl, memory_budget=rows * 4 * 7 * 8)
        total = sum((out * direction).sum() for out, direction in zip(outputs, directions, strict=True))
        return torch.autograd.grad(total, arguments)

    for got, expected in zip(derivative("chunked"), derivative("reference"), strict=True):
        torch.testing.assert_close(got, expected, **EXACT)


def test_derivative_of_logsumexp() -> None:
    queries, candidates, _ = inputs(6, 9, 4)
    pair = (queries.requires_grad_(), candidates.requires_grad_())
    assert torch.autograd.gradcheck(lambda q, c: ops.logsumexp(q, c, memory_budget=200), pair)


def test_scores_far_apart_do_not_overflow() -> None:
    queries, candidates, weights = inputs(5, 6, 3)
    outputs = ops.softmax_products(1e3 * queries, 1e3 * candidates, weights)
    assert all(torch.isfinite(output).all() for output in outputs)
    torch.testing.assert_close(outputs[0], torch.logsumexp(1e6 * queries @ candidates.T, dim=1), **EXACT)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_error_of_narrow_types_is_within_a_plain_implementation(dtype: torch.dtype) -> None:
    """Against float64 on the rounded inputs, we err no more than the naive formula in the same type does."""
    queries, candidates, weights = (tensor.to(dtype) for tensor in inputs(57, 131, 24))
    queries = queries / 4
    wide = ops.softmax_products(queries.double(), candidates.double(), weights.double(), impl="reference")
    naive = ops.softmax_products(queries, candidates, weights, impl="reference")
    ours = ops.softmax_products(queries, candidates, weights.float(), memory_budget=5000)
    for got, plain, exact in zip(ours, naive, wide, strict=True):
        assert got.dtype is torch.float32
        slack = 1.5 if dtype is torch.float32 else 1.0
        assert (got - exact).abs().max() <= slack * (plain - exact).abs().max() + 1e-6


def test_memory_stays_within_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts what each chunk holds: never more score columns than the budget allows."""
    seen: list[int] = []
    plain = chunked.matmul

    def watched(left: Tensor, right: Tensor, out: Tensor | None = None) -> Tensor:
        result = plain(left, right, out)
        seen.append(result.numel() * result.element_size())
        return result

    monkeypatch.setattr(chunked, "matmul", watched)
    arguments = [tensor.float().requires_grad_() for tensor in inputs(500, 300, 4)]
    budget = 64_000
    lse, expected, pulled = ops.softmax_products(*arguments, memory_budget=budget)
    (lse.sum() + expected.sum() + pulled.sum()).backward()
    assert len(seen) > 20  # several chunks, or nothing was tested
    assert max(seen) <= budget / 2
    seen.clear()
    answers = random_pattern(500, 300, 900)
    (sum(output.sum() for output in ops.residual_products(*arguments[:2], answers, memory_budget=budget))).backward()
    assert len(seen) > 20
    assert max(seen) <= budget / 2


@given(
    num_rows=st.integers(1, 6),
    num_columns=st.integers(1, 6),
    num_edges=st.integers(0, 20),
    seed=st.integers(0, 99),
    piece=st.sampled_from([None, 2, 3]),
)
@settings(max_examples=60, deadline=None)
def test_sparse_products_equal_dense_ones(
    num_rows: int, num_columns: int, num_edges: int, seed: int, piece: int | None
) -> None:
    """Also with rows cut into pieces, which a GPU does with rows of more than 64 edges."""
    with pytest.MonkeyPatch.context() as patched:
        if piece is not None:
            patched.setattr(sparse, "_PIECE", piece)
            patched.setattr(sparse, "_cuts_rows", lambda states: True)
        check_sparse_products(num_rows, num_columns, num_edges, seed)


def check_sparse_products(num_rows: int, num_columns: int, num_edges: int, seed: int) -> None:
    pattern = random_pattern(num_rows, num_columns, num_edges, seed)
    generator = torch.Generator().manual_seed(seed)
    states = torch.randn(num_columns, 3, dtype=torch.float64, generator=generator).to(DEVICE)
    others = torch.randn(num_rows, 3, dtype=torch.float64, generator=generator).to(DEVICE)
    weights = torch.randn(num_edges, dtype=torch.float64, generator=generator).to(DEVICE)
    torch.testing.assert_close(ops.sum_neighbours(pattern, states), dense(pattern) @ states, **EXACT)
    torch.testing.assert_close(ops.sum_neighbours(pattern, states, weights), dense(pattern, weights) @ states, **EXACT)
    torch.testing.assert_close(dense(pattern.transposed), dense(pattern).T, **EXACT)
    all_dots = others @ states.T
    torch.testing.assert_close(ops.edge_dots(pattern, others, states), all_dots[pattern.rows, pattern.columns], **EXACT)


def test_sparse_derivatives() -> None:
    pattern = random_pattern(4, 5, 11)
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(5, 3, dtype=torch.float64, generator=generator).to(DEVICE).requires_grad_()
    others = torch.randn(4, 3, dtype=torch.float64, generator=generator).to(DEVICE).requires_grad_()
    weights = torch.randn(11, dtype=torch.float64, generator=generator).to(DEVICE).requires_grad_()
    assert torch.autograd.gradcheck(lambda s, w: ops.sum_neighbours(pattern, s, w), (states, weights))
    assert torch.autograd.gradcheck(lambda o, s: ops.edge_dots(pattern, o, s), (others, states))


def test_pieces_are_short_and_hold_every_edge_once() -> None:
    counts = torch.tensor([0, 64, 65, 0, 200, 1], device=DEVICE)
    columns = torch.arange(330, device=DEVICE) % 7
    pattern = ops.SparsePattern.from_counts(counts, columns, 7)
    assert pattern.pieces is not None
    starts, whole = pattern.pieces
    assert starts.tolist() == [0, 64, 128, 129, 193, 257, 321, 329]
    assert whole.counts.tolist() == [0, 1, 2, 0, 4, 1]
    assert whole.columns.tolist() == list(range(8))
    assert ops.SparsePattern.from_counts(counts.clamp(max=64), columns, 7).pieces is None


def test_take_rows_with_empty_ones() -> None:
    pattern = random_pattern(5, 6, 14)
    taken = pattern.take_rows(torch.tensor([3, -1, 0, 3], device=DEVICE))
    matrix = dense(pattern)
    expected = torch.stack([matrix[3], torch.zeros_like(matrix[0]), matrix[0], matrix[3]])
    torch.testing.assert_close(dense(taken), expected)
    empty = random_pattern(1, 6, 0).take_rows(torch.tensor([], dtype=torch.long, device=DEVICE))
    assert empty.take_rows(torch.tensor([-1, -1], device=DEVICE)).counts.tolist() == [0, 0]


@pytest.mark.parametrize("budget", [300, 10**6])
def test_negative_log_likelihood_and_its_derivative(budget: int) -> None:
    queries, candidates, _ = inputs(9, 6, 4)
    pattern = random_pattern(9, 6, 20)
    pair = (queries.requires_grad_(), candidates.requires_grad_())
    log_p = torch.log_softmax(queries @ candidates.T, dim=1)
    expected = -(dense(pattern) * log_p).sum()
    got = ops.negative_log_likelihood(*pair, pattern, memory_budget=budget)
    torch.testing.assert_close(got, expected, **EXACT)
    with torch.no_grad():  # another way through the code
        torch.testing.assert_close(ops.negative_log_likelihood(*pair, pattern, memory_budget=budget), expected, **EXACT)
    for ours, theirs in zip(torch.autograd.grad(3 * got, pair), torch.autograd.grad(3 * expected, pair), strict=True):
        torch.testing.assert_close(ours, theirs, **EXACT)


@pytest.mark.parametrize("budget", [500, 10**6])
def test_filtered_likelihood_and_its_derivative(budget: int) -> None:
    """Known answers are no negatives, but each target competes with all others; one row has no negatives at all."""
    queries, candidates, _ = inputs(9, 6, 4)
    known, pair = random_pattern(9, 6, 22), (queries.requires_grad_(), candidates.requires_grad_())
    full = torch.arange(6, device=DEVICE)
    columns = torch.cat([known.columns, full])
    offsets = torch.cat([known.offsets, known.offsets[-1:] + 6])[1:]  # the first row goes, a full one comes last
    known = ops.SparsePattern(offsets - offsets[0], columns[int(offsets[0]) :], 6)
    targets = ops.SparsePattern(known.offsets, known.columns, 6)
    scores = queries @ candidates.T
    negatives = torch.logsumexp(scores.masked_fill(dense(known) > 0, -torch.inf), dim=1)
    positive = scores[targets.rows, targets.columns]
    expected = (torch.logaddexp(positive, negatives[targets.rows]) - positive).sum()
    got = ops.filtered_negative_log_likelihood(*pair, targets, known, memory_budget=budget)
    torch.testing.assert_close(got, expected, **EXACT)
    with_negatives = (negatives[targets.rows] > -torch.inf).nonzero().flatten()
    finite = (torch.logaddexp(positive, negatives[targets.rows]) - positive)[with_negatives].sum()
    for ours, theirs in zip(torch.autograd.grad(2 * got, pair), torch.autograd.grad(2 * finite, pair), strict=True):
        torch.testing.assert_close(ours, theirs, **EXACT)


def test_candidates_that_do_not_learn_save_a_product(monkeypatch: pytest.MonkeyPatch) -> None:
    queries, candidates, _ = inputs(9, 6, 4)
    known, summed, plain = random_pattern(9, 6, 14), [], ops.chunked.add_matmul_
    monkeypatch.setattr(ops.chunked, "add_matmul_", lambda *given: summed.append(given) or plain(*given))
    loss = ops.filtered_negative_log_likelihood(queries.requires_grad_(), candidates.requires_grad_(), known, known)
    expected = torch.autograd.grad(loss, queries)
    assert len(summed) == 1
    alone = ops.filtered_negative_log_likelihood(queries, candidates.detach(), known, known)
    torch.testing.assert_close(torch.autograd.grad(alone, queries), expected, **EXACT)
    assert len(summed) == 1


@pytest.mark.parametrize("budget", [1, 500, 2**20])
def test_scores_that_are_added_are_learned_as_well(budget: int) -> None:
    """At places that repeat, that are known answers, and that are targets; targets count by weights."""
    queries, candidates, _ = inputs(9, 6, 4)
    targets, places = random_pattern(9, 6, 14), random_pattern(9, 6, 30, seed=1)
    known = targets
    values, weights = (drawn.to(DEVICE) for drawn in (torch.randn(30).double(), torch.rand(14).double()))
    learned = queries.requires_grad_(), candidates.requires_grad_(), values.requires_grad_()
    scores = queries @ candidates.T + dense(places, values)
    negatives = torch.logsumexp(scores.masked_fill(dense(known) > 0, -torch.inf), dim=1)
    positive = scores[targets.rows, targets.columns]
    expected = (weights * (torch.logaddexp(positive, negatives[targets.rows]) - positive)).sum()
    added = ops.AddedScores(places, values)
    got = ops.filtered_negative_log_likelihood(
        queries, candidates, targets, known, weights, added=added, memory_budget=budget
    )
    torch.testing.assert_close(got, expected, **EXACT)
    pairs = zip(torch.autograd.grad(3 * got, learned), torch.autograd.grad(3 * expected, learned), strict=True)
    for ours, theirs in pairs:
        torch.testing.assert_close(ours, theirs, **EXACT)


def test_unknown_impl_lists_the_choices() -> None:
    with pytest.raises(UserError, match="choose one of chunked, reference"):
        ops.logsumexp(*inputs(1, 1, 1)[:2], impl="quick")


@given(
    num_rows=st.integers(1, 6),
    num_columns=st.integers(1, 9),
    num_edges=st.integers(0, 30),
    seed=st.integers(0, 999),
    data=st.data(),
)
@settings(max_examples=80, deadline=None)
def test_restricted_to_keeps_and_renumbers_the_given_columns(
    num_rows: int, num_columns: int, num_edges: int, seed: int, data: st.DataObject
) -> None:
    pattern = random_pattern(num_rows, num_columns, num_edges, seed)
    kept = sorted(data.draw(st.sets(st.integers(0, num_columns - 1))))
    got = pattern.restricted_to(torch.tensor(kept, dtype=torch.int64, device=DEVICE))
    assert (got.num_rows, got.num_columns) == (num_rows, len(kept))
    expected = [
        [kept.index(column) for column in pattern.columns[pattern.rows == row].tolist() if column in kept]
        for row in range(num_rows)
    ]
    assert [got.columns[got.rows == row].tolist() for row in range(num_rows)] == expected
    if kept:
        assert torch.equal(dense(got), dense(pattern)[:, kept])


# The residual D = A − diag(c) P --------------------------------------------------------------------------------------


def _facts(weighted: bool) -> tuple[ops.SparsePattern, Tensor | None]:
    """Six queries over seven candidates: an empty row, repeated edges, a row of all candidates."""
    rows = [[0, 3, 3], [], [1], [0, 1, 2, 3, 4, 5, 6], [6, 6], [2, 5]]
    offsets = torch.tensor([0, *(len(row) for row in rows)]).cumsum(0)
    columns = torch.tensor([column for row in rows for column in row])
    weights = torch.linspace(0, 2, len(columns), dtype=torch.float64) if weighted else None
    return ops.SparsePattern(offsets, columns, 7), weights


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("rows", [1, 2, 100])
def test_residual_products_and_their_derivatives_are_those_of_the_definition(rows: int, weighted: bool) -> None:
    answers, weights = _facts(weighted)
    generator = torch.Generator().manual_seed(0)
    shapes = (6, 5), (7, 5), (6,), (6, 5), (7, 5)
    queries, candidates, *wanted = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes)
    found = {}
    for impl in ("chunked", "reference"):
        inputs = queries.clone().requires_grad_(), candidates.clone().requires_grad_()
        budget = rows * 4 * 7 * 8
        outputs = ops.residual_products(*inputs, answers, weights, impl=impl, memory_budget=budget)
        gradients = torch.autograd.grad(sum((a * b).sum() for a, b in zip(outputs, wanted, strict=True)), inputs)
        found[impl] = [*outputs, *gradients]
    for ours, theirs in zip(*found.values(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(("num_rows", "rows", "times"), [(0, 4, 2), (1, 4, 2), (103_509, 5_030, 4), (400, 31, 8)])
def test_chunks_taken_together_are_no_more_chunks(num_rows: int, rows: int, times: int) -> None:
    """Parts of several chunks, each cut again: as many chunks as without parts, none of more rows, and all rows."""
    size = chunked.even_size(num_rows, rows)
    parts = list(chunked.chunks(num_rows, size, times=times))
    cut = [piece for part in parts for piece in chunked.chunks(part.stop - part.start, size)]
    assert len(cut) == -(-num_rows // rows)
    assert sum(piece.stop - piece.start for piece in cut) == num_rows
    assert all(piece.stop - piece.start <= rows for piece in cut)
    assert len(parts) == -(-len(cut) // times)
