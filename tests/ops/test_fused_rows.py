"""DistMult's kernels make what its functions and autograd make: on a GPU compiled, elsewhere interpreted."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from refactorgnn import likelihood, row_work, streamed
from refactorgnn.data.queries import QueryIndex
from refactorgnn.ops import passes
from refactorgnn.scorers import make_scorer

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
pytest.importorskip("triton", reason="Triton is not installed")

from refactorgnn.ops import fused, fused_rows  # noqa: E402

NUM_ENTITIES, NUM_RELATIONS = 23, 3


@pytest.fixture
def with_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """All kernels, also where they are interpreted; in float32, so that float64 is left to torch."""
    monkeypatch.setattr(passes, "kernels_for", lambda scores: None if scores.dtype == torch.float64 else fused)
    monkeypatch.setattr(passes, "row_kernels_for", lambda states: fused_rows if states.dtype == torch.float32 else None)


def facts(num_triples: int = 150) -> QueryIndex:
    generator = torch.Generator().manual_seed(0)
    counts = NUM_ENTITIES, NUM_RELATIONS, NUM_ENTITIES
    triples = torch.stack([torch.randint(count, (num_triples,), generator=generator) for count in counts], dim=1)
    return QueryIndex.from_triples(triples.to(DEVICE), NUM_ENTITIES, NUM_RELATIONS)


def learned(dim: int, dtype: torch.dtype, *, states_learn: bool = True) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    states, psi = (torch.randn(count, dim, generator=generator) for count in (NUM_ENTITIES, NUM_RELATIONS))
    return states.to(DEVICE, dtype).requires_grad_(states_learn), psi.to(DEVICE, dtype).requires_grad_()


def direction(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(2)).to(DEVICE)


@pytest.mark.parametrize("states_learn", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize(("dim", "budget"), [(5, None), (64, None), (64, 40_000), (1_030, None)])
def test_a_layer_and_its_derivatives(
    dim: int, budget: int | None, weighted: bool, states_learn: bool, with_kernels: None
) -> None:
    """Widths above and below a program's, all queries at once and in parts, against float64 without kernels."""
    queries, scorer = facts(), make_scorer("distmult", dim)
    if weighted:
        queries = replace(queries, weights=torch.rand(150, generator=torch.Generator().manual_seed(3)).to(DEVICE))

    def found(dtype: torch.dtype) -> list[Tensor]:
        states, psi = learned(dim, dtype, states_learn=states_learn)
        scaled = states / dim**0.5
        output = streamed.log_likelihood_gradient(scorer, scaled, psi, queries, budget)  # type: ignore[arg-type]
        wanted = [tensor for tensor in (states, psi) if tensor.requires_grad]
        return [output, *torch.autograd.grad(output, wanted, direction(NUM_ENTITIES, dim).to(dtype))]

    for got, expected in zip(found(torch.float32), found(torch.float64), strict=True):
        torch.testing.assert_close(got.double(), expected, rtol=1e-4, atol=1e-4)


def test_a_layer_takes_the_kernels_where_they_are(with_kernels: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small as it is; and not for another scorer, nor in float64."""
    kinds = []
    monkeypatch.setattr(streamed, "row_work_of", lambda *given: kinds.append(row_work.row_work_of(*given)) or kinds[-1])
    for name, dtype in (("distmult", torch.float32), ("complex", torch.float32), ("distmult", torch.float64)):
        states, psi = learned(8, dtype)
        likelihood.log_likelihood_gradient(make_scorer(name, 8), states, psi, facts())
    assert kinds == [row_work.DistMultRows]


@pytest.mark.parametrize("states_learn", [True, False])
def test_gathered_queries(states_learn: bool, with_kernels: None) -> None:
    index, scorer = facts(), make_scorer("distmult", 48)

    def found(dtype: torch.dtype) -> list[Tensor]:
        states, psi = learned(48, dtype, states_learn=states_learn)
        rows = row_work.gathered_queries(scorer, states, psi, index.subjects, index.relations)  # type: ignore[arg-type]
        wanted = [tensor for tensor in (states, psi) if tensor.requires_grad]
        return [rows, *torch.autograd.grad(rows, wanted, direction(index.num_queries, 48).to(dtype))]

    for got, expected in zip(found(torch.float32), found(torch.float64), strict=True):
        torch.testing.assert_close(got.double(), expected, rtol=1e-5, atol=1e-5)


def test_gathered_queries_are_narrow_under_autocast(with_kernels: None) -> None:
    """Multiplied in float32 and rounded once; their derivatives stay float32."""
    index, (states, psi) = facts(), learned(48, torch.float32)
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        scorer = make_scorer("distmult", 48)
        rows = row_work.gathered_queries(scorer, states, psi, index.subjects, index.relations)  # type: ignore[arg-type]
    torch.testing.assert_close(rows, (states[index.subjects] * psi[index.relations]).bfloat16(), rtol=2**-7, atol=0)
    grads = torch.autograd.grad(rows, (states, psi), torch.ones_like(rows))
    assert [grad.dtype for grad in grads] == [torch.float32, torch.float32]


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("num_targets", [0, 5, 2_500])
def test_target_shares(num_targets: int, weighted: bool) -> None:
    """Gaps from −90 to 90, where an exponential taken the wrong way overflows; rows without a target."""
    generator = torch.Generator().manual_seed(0)
    base, scores = torch.zeros(7, device=DEVICE), torch.linspace(-90, 90, num_targets, device=DEVICE)
    rows = torch.randint(6, (num_targets,), generator=generator).sort().values.to(DEVICE)
    weights = torch.rand(num_targets, generator=generator).to(DEVICE) if weighted else None
    total = torch.ones((), device=DEVICE)
    row_shares, values = fused.target_shares(base, scores, rows, weights, total)
    gap, counted = -scores.double(), 1 if weights is None else weights.double()
    shares = gap.sigmoid() * counted
    sums = base.double().index_add(0, rows, shares)
    torch.testing.assert_close(row_shares.double(), sums, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(values.double(), -shares / sums[rows].clamp(min=1e-30), rtol=1e-4, atol=1e-6)
    loss = 1 + (torch.nn.functional.softplus(gap) * counted).sum()
    torch.testing.assert_close(total.double(), loss, rtol=1e-5, atol=1e-5)
