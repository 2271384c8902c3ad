"""The product that ends in exponentials, against the definition: on a GPU compiled, elsewhere interpreted."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from refactorgnn import ops
from refactorgnn.ops import passes
from tests.ops.test_fused import DEVICE, drawn, random_pattern

pytest.importorskip("triton", reason="Triton is not installed")

from refactorgnn.ops import fused, fused_rows, fused_scores

# Fewer candidates than are sampled, an odd number, a tile and one more, several tiles.
NUM_REAL = [1, 37, 128, 129, 391]


def operands(num_rows: int, num_real: int, dim: int, scale: float) -> tuple[Tensor, Tensor]:
    """Queries, and candidates with rows of zeros added."""
    keys = torch.nn.functional.pad(drawn(num_real, dim, seed=1), (0, 0, 0, -num_real % 8))
    return (scale / dim**0.5 * drawn(num_rows, dim)).bfloat16(), keys.bfloat16()


def exponentials(queries: Tensor, keys: Tensor, num_real: int) -> tuple[Tensor, Tensor, Tensor]:
    """``P``, where ``E`` and ``1/Z`` are made one again, all columns of ``E``, and the normalisers."""
    E = torch.full((len(queries), len(keys)), torch.nan, device=DEVICE, dtype=torch.bfloat16)
    lse, factor, weights = (torch.full((len(queries),), value, device=DEVICE) for value in (0.0, 0.0, 2.0))
    rows = fused_scores.Rows(fused_scores.shifts(queries, keys, num_real), weights, lse, factor)
    scaled = fused_scores.exponentials(queries, keys, num_real, rows, out=E)
    torch.testing.assert_close(scaled.float(), queries.float() * factor[:, None], rtol=2**-7, atol=0)
    return E.double() * factor.double()[:, None] / 2, E, lse


@pytest.mark.parametrize("dim", [8, 64, 136])
@pytest.mark.parametrize("num_real", NUM_REAL)
@pytest.mark.parametrize("num_rows", [1, 131])
def test_exponentials(num_rows: int, num_real: int, dim: int) -> None:
    queries, keys = operands(num_rows, num_real, dim, 3.0)
    P, E, lse = exponentials(queries, keys, num_real)
    exact = queries.double() @ keys[:num_real].double().T
    torch.testing.assert_close(lse.double(), exact.logsumexp(1), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(P[:, :num_real], exact.softmax(1), rtol=2**-7, atol=1e-12)
    assert (E[:, num_real:] == 0).all()


@pytest.mark.parametrize("scale", [30.0, 1_000.0])
def test_rows_whose_scores_are_far_from_those_of_the_sample(scale: float) -> None:
    """The largest score is a hundred to thousands above, or below 0: where a float would overflow, or have nothing."""
    queries, keys = operands(5, 391, 64, 1.0)
    keys[390] = queries[0] * scale  # not among the sampled, which are every sixth from the first on
    keys[:, 0] = 1
    queries[4, 0] = -scale  # all scores are far below 0
    P, _, lse = exponentials(queries, keys, 391)
    exact = queries.double() @ keys[:391].double().T
    gap = exact[0].max() - exact[0, ::6][:64].max()
    assert gap > 20
    torch.testing.assert_close(lse.double(), exact.logsumexp(1), rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(P[:, :391], exact.softmax(1), rtol=2**-7, atol=1e-12)


@pytest.fixture
def with_exponentials(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The ops with these kernels, also where they are interpreted; counts how often they were used.

    They need candidates in eights, which are added on a GPU only.
    """
    used: list[int] = []
    make = fused_scores.exponentials
    monkeypatch.setattr(fused_scores, "exponentials", lambda *args, **more: used.append(1) or make(*args, **more))

    def choose(queries: Tensor, num_rows: int, num_columns: int) -> object:
        return fused_scores if queries.dtype == torch.bfloat16 else None

    monkeypatch.setattr(passes, "score_kernels_for", choose)
    monkeypatch.setattr(passes, "kernels_for", lambda scores: None if scores.dtype == torch.float64 else fused)
    monkeypatch.setattr(passes, "row_kernels_for", lambda states: fused_rows)
    return used


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("dim", "budget"), [(64, None), (72, 40 * 2 * 152), (512, None)])
def test_products_err_less_than_a_plain_implementation(
    dim: int, budget: int | None, weighted: bool, with_exponentials: list[int]
) -> None:
    """Against float64. Repeated facts count twice, rows without facts ask for nothing."""
    queries, candidates = drawn(103, dim) / dim**0.5, drawn(152, dim, seed=1)
    answers = random_pattern(103, 152, 300)
    weights = torch.linspace(0, 2, 300, device=DEVICE) if weighted else None
    assert (answers.counts == 0).any()

    def found(dtype: torch.dtype, impl: ops.Impl) -> tuple[Tensor, ...]:
        inputs = [tensor.bfloat16().to(dtype) for tensor in (queries, candidates)]
        given = None if weights is None else weights.to(torch.promote_types(dtype, torch.float32))
        return ops.residual_products(*inputs, answers, given, impl=impl, memory_budget=budget)

    exact, plain = found(torch.float64, "reference"), found(torch.bfloat16, "reference")
    assert not with_exponentials
    ours = found(torch.bfloat16, "chunked")
    assert len(with_exponentials) == (1 if budget is None else 3)
    for got, other, expected in zip(ours, plain, exact, strict=True):
        assert (got - expected).norm() <= 0.9 * (other - expected).norm()
    assert (ours[1][answers.counts == 0] == 0).all()


@pytest.mark.parametrize(
    ("num_columns", "dim", "is_used"),
    [(40_944, 256, True), (40_944, 768, False), (40_944, 260, False), (14_544, 256, False)],
)
def test_they_are_used_where_they_were_faster(num_columns: int, dim: int, is_used: bool) -> None:
    """On a GPU since Hopper, for rows that are wide and do not stay in the cache; elsewhere never."""
    queries = torch.zeros(1, dim, dtype=torch.bfloat16, device=DEVICE)
    can_be_used = DEVICE == "cuda" and torch.cuda.get_device_capability() >= (9, 0)
    assert passes.score_kernels_for(queries, 1, num_columns) is None
    assert passes.score_kernels_for(queries.float(), 5_000, num_columns) is None
    assert (passes.score_kernels_for(queries, 5_000, num_columns) is fused_scores) == (is_used and can_be_used)
