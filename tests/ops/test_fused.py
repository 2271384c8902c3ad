"""The Triton kernels make what the definition makes: on a GPU compiled, elsewhere interpreted line by line."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from refactorgnn import ops
from refactorgnn.ops import passes
from tests.ops import test_ops

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
pytest.importorskip("triton", reason="Triton is not installed")

from refactorgnn.ops import fused  # noqa: E402

# Rows that are kept in registers, in one block or more, of odd and of aligned widths, just below and above a block; and
# rows that one of the kernels, or both of them, read in parts.
WIDTHS = [1, 7, 128, 131, 1000, 4_090, 4_096, 4_097, 14_541, 20_003, 65_600]


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def random_pattern(num_rows: int, num_columns: int, num_edges: int, seed: int = 0) -> ops.SparsePattern:
    return test_ops.random_pattern(num_rows, num_columns, num_edges, seed).to(DEVICE)


def wide_scores(num_rows: int, num_real: int, scale: float) -> Tensor:
    """Scores with added columns of nonsense, which must not count."""
    scores = drawn(num_rows, num_real + -num_real % 8) * scale
    scores[:, num_real:] = 1e4
    return scores


@pytest.mark.parametrize("num_columns", [8, 1_000, 1_024, 1_600, 3_072, 4_096, 6_000, 16_384, 16_392, 40_944, 10**6])
def test_launches_are_ones_that_a_gpu_takes(num_columns: int) -> None:
    """Blocks and warps are powers of 2, which an interpreter does not care about."""
    block, num_warps = fused.softmax_launch(num_columns)
    assert block.bit_count() == num_warps.bit_count() == 1
    assert block % 8 == 0  # blocks end where added columns do
    assert 1 <= num_warps <= 32


@pytest.mark.parametrize("narrow_scores", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("num_real", WIDTHS)
def test_softmax(num_real: int, dtype: torch.dtype, narrow_scores: bool) -> None:
    scores = wide_scores(3, num_real, 20.0).to(dtype if narrow_scores else torch.float32)
    scale = torch.tensor([-2.0, 0.0, 1.0], device=DEVICE)
    exact = scores[:, :num_real].double()
    out = scores if dtype is scores.dtype else torch.full_like(scores, torch.nan, dtype=dtype)
    lse = torch.empty_like(scale)
    fused.softmax(scores, num_real, scale, out, lse)
    torch.testing.assert_close(lse.double(), exact.logsumexp(1), rtol=1e-6, atol=1e-5)
    expected = (scale.double()[:, None] * exact.softmax(1)).float()
    tolerance = torch.finfo(dtype).eps if dtype is not torch.float32 else 1e-5
    torch.testing.assert_close(out[:, :num_real].float(), expected, rtol=tolerance, atol=1e-7)
    assert (out[:, num_real:] == 0).all()
    assert (out[1] == 0).all()


@pytest.mark.parametrize("narrow_scores", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("num_real", WIDTHS)
def test_score_gradients(num_real: int, dtype: torch.dtype, narrow_scores: bool) -> None:
    """Pairs of rows, as the backward pass keeps them; in place where the type allows it."""
    pair = torch.stack([wide_scores(3, num_real, 3.0), wide_scores(3, num_real, 1.0)], dim=1)
    pair = pair.to(dtype if narrow_scores else torch.float32)
    S, M = pair[:, :, :num_real].double().unbind(1)
    shift, scale = drawn(3, seed=1), torch.tensor([-2.0, 0.0, 1.0], device=DEVICE)
    P = S.softmax(1)
    gradient = P * (M - (P * M).sum(1, keepdim=True) + shift.double()[:, None])
    found = pair if dtype is pair.dtype else torch.full_like(pair, torch.nan, dtype=dtype)
    outs = found[:, 0], found[:, 1]
    fused.score_gradients(*pair.unbind(1), S.logsumexp(1).float(), shift, scale, num_real, outs)
    tolerance = torch.finfo(dtype).eps if dtype is not torch.float32 else 2e-5
    for got, expected in zip(outs, (scale.double()[:, None] * P, gradient), strict=True):
        assert (got[:, num_real:] == 0).all()
        torch.testing.assert_close(got[:, :num_real].double(), expected, rtol=tolerance, atol=1e-6)


@pytest.fixture
def with_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ops with the kernels, also where they are interpreted."""
    monkeypatch.setattr(passes, "kernels_for", lambda scores: None if scores.dtype == torch.float64 else fused)


def products_and_derivatives(queries: Tensor, candidates: Tensor, weighted: bool, **options: object) -> list[Tensor]:
    answers = random_pattern(len(queries), len(candidates), 90)
    weights = torch.linspace(0, 2, 90, device=DEVICE) if weighted else None
    known = random_pattern(len(queries), len(candidates), 60, seed=1)
    inputs = queries.clone().requires_grad_(), candidates.clone().requires_grad_()
    outputs = ops.residual_products(*inputs, answers, weights, **options)  # type: ignore[arg-type]
    together = sum((output * drawn(*output.shape, seed=place)).sum() for place, output in enumerate(outputs))
    found = [*outputs, *torch.autograd.grad(together, inputs)]
    budget = {"memory_budget": options.get("memory_budget")}
    losses = (
        ops.filtered_negative_log_likelihood(*inputs, answers, known, weights, **budget),  # type: ignore[arg-type]
        ops.negative_log_likelihood(*inputs, answers, **budget),  # type: ignore[arg-type]
    )
    for loss in losses:
        found += [loss, *torch.autograd.grad(loss, inputs)]
    return [tensor.detach() for tensor in found]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("budget", [3 * 4 * 53 * 5, None])
def test_layer_and_losses_with_the_kernels_are_those_without(
    budget: int | None, weighted: bool, with_kernels: None
) -> None:
    """In float32, which has the kernels, against float64, which has not."""
    queries, candidates = drawn(37, 12), drawn(53, 12, seed=1)
    ours = products_and_derivatives(queries, candidates, weighted, memory_budget=budget)
    exact = products_and_derivatives(queries.double(), candidates.double(), weighted)
    for got, expected in zip(ours, exact, strict=True):
        torch.testing.assert_close(got.double(), expected.double(), rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("dim", [64, 72, 1024])
def test_half_precision_errs_no_more_than_a_plain_implementation(dim: int, with_kernels: None) -> None:
    """Products and their derivatives, against float64."""
    queries, candidates = drawn(103, dim) / dim**0.5, drawn(151, dim, seed=1)
    answers = random_pattern(103, 151, 300)
    directions = [drawn(103, seed=2), drawn(103, dim, seed=3), drawn(151, dim, seed=4)]

    def found(dtype: torch.dtype, impl: ops.Impl) -> list[Tensor]:
        inputs = [tensor.bfloat16().to(dtype).requires_grad_() for tensor in (queries, candidates)]
        outputs = ops.residual_products(*inputs, answers, impl=impl)
        upstream = [direction.to(output.dtype) for direction, output in zip(directions, outputs, strict=True)]
        return [*outputs, *torch.autograd.grad(outputs, inputs, upstream)]

    exact = found(torch.float64, "reference")
    plain, ours = found(torch.bfloat16, "reference"), found(torch.bfloat16, "chunked")
    for got, other, expected in zip(ours, plain, exact, strict=True):
        assert (got - expected).norm() <= 1.1 * (other - expected).norm()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_loss_in_half_precision_errs_no_more_than_a_plain_implementation(
    dtype: torch.dtype, with_kernels: None
) -> None:
    """Plain: scores as narrow as their factors, as autocast has them, softmax in float32. One row is all known."""
    queries, candidates = drawn(103, 64) / 4, drawn(151, 64, seed=1)
    targets = random_pattern(103, 151, 300)
    counts = torch.full((103,), 5, device=DEVICE)
    counts[7] = 151
    columns = torch.cat([torch.arange(count, device=DEVICE) * (1 if count > 5 else 30) for count in counts.tolist()])
    known = ops.SparsePattern.from_counts(counts, columns, 151)

    def plain(inputs: list[Tensor], wide: torch.dtype) -> Tensor:
        scores = (inputs[0] @ inputs[1].T).to(wide)
        hidden = torch.zeros_like(scores, dtype=torch.bool).index_put_((known.rows, known.columns), torch.tensor(True))
        base = scores.masked_fill(hidden, -torch.inf).logsumexp(1)
        gaps = base[targets.rows] - scores[targets.rows, targets.columns]
        return torch.nn.functional.softplus(gaps[targets.rows != 7]).sum()

    def found(dtype: torch.dtype, *, ours: bool) -> list[Tensor]:
        inputs = [tensor.to(narrow).to(dtype).requires_grad_() for tensor in (queries, candidates)]
        wide = torch.promote_types(dtype, torch.float32)
        loss = ops.filtered_negative_log_likelihood(*inputs, targets, known) if ours else plain(inputs, wide)
        return [loss, *torch.autograd.grad(loss, inputs)]

    narrow = dtype
    exact = found(torch.float64, ours=False)
    others, mine = found(dtype, ours=False), found(dtype, ours=True)
    for got, other, expected in zip(mine[1:], others[1:], exact[1:], strict=True):
        assert (got - expected).norm() <= 1.1 * (other - expected).norm()
    assert mine[0].item() == pytest.approx(exact[0].item(), rel=1e-2)
