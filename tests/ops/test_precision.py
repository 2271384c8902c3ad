"""Autocast and the score products: narrow operands, float32 sums, and nothing else narrow."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import refactorgnn
from refactorgnn.data.queries import QueryIndex
from refactorgnn.likelihood import log_likelihood_gradient
from refactorgnn.models.features import make_features
from refactorgnn.ops import (
    SparsePattern,
    chunked,
    filtered_negative_log_likelihood,
    logsumexp,
    negative_log_likelihood,
    softmax_products,
)
from refactorgnn.ops.sampled import CandidateSample
from refactorgnn.runs import Run, load_tensors
from refactorgnn.scorers import SCORERS
from tests.strategies import Case
from tests.training.settings import TRAININGS

NUM_QUERIES, NUM_CANDIDATES, DIM = 40, 60, 16


def tensors(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    queries = torch.randn(NUM_QUERIES, DIM, generator=generator)
    candidates = torch.randn(NUM_CANDIDATES, DIM, generator=generator)
    weights = torch.randint(1, 5, (NUM_QUERIES,), generator=generator).float()
    return queries.to(dtype), candidates.to(dtype), weights.to(torch.promote_types(dtype, torch.float32))


def answers() -> QueryIndex:
    generator = torch.Generator().manual_seed(4)
    objects = torch.randint(NUM_CANDIDATES, (3 * NUM_QUERIES,), generator=generator)
    subjects = torch.arange(NUM_QUERIES).repeat(3)
    triples = torch.stack([subjects, torch.zeros_like(subjects), objects], dim=1)
    return QueryIndex.from_triples(triples, NUM_CANDIDATES, 1)


PATTERN = answers().answers
KNOWN = answers().distinct_answers
OPS: dict[str, Callable[[Tensor, Tensor, Tensor], Any]] = {
    "softmax_products": lambda Q, K, w: softmax_products(Q, K, w, memory_budget=2**14),
    "logsumexp": lambda Q, K, w: logsumexp(Q, K, memory_budget=2**14),
    "nll": lambda Q, K, w: negative_log_likelihood(Q, K, PATTERN, memory_budget=2**14),
    "filtered": lambda Q, K, w: filtered_negative_log_likelihood(Q, K, PATTERN, KNOWN, memory_budget=2**14),
}


def naive(name: str, Q: Tensor, K: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    """The formulas of the docstrings, in the type of the operands."""
    S = Q @ K.T
    lse = torch.logsumexp(S, dim=1)
    rows, columns = PATTERN.rows, PATTERN.columns
    if name.startswith("softmax"):
        P = torch.softmax(S, dim=1)
        return lse, P @ K, P.T @ (w[:, None] * Q)
    if name.startswith("logsumexp"):
        return (lse,)
    if name == "nll":
        return ((lse[rows] - S[rows, columns]).sum(),)
    N = S.index_put((KNOWN.rows, KNOWN.columns), S.new_tensor(-torch.inf)).logsumexp(1)
    return ((torch.logaddexp(S[rows, columns], N[rows]) - S[rows, columns]).sum(),)


def outcome(name: str, Q: Tensor, K: Tensor, w: Tensor, context: Any = None) -> tuple[list[Tensor], list[Tensor]]:
    """The results of an operation, and the gradients of their weighted sum."""
    Q, K = Q.clone().requires_grad_(), K.clone().requires_grad_()
    with context or nullcontext():
        results = OPS[name](Q, K, w)
    results = list(results) if isinstance(results, tuple) else [results]
    loss = sum((result * torch.linspace(-1, 1, result.numel()).reshape(result.shape)).sum() for result in results)
    if results[0].ndim == 0:
        loss = results[0]
    return [result.detach() for result in results], list(torch.autograd.grad(loss, (Q, K)))


def autocast() -> torch.autocast:
    return torch.autocast("cpu", dtype=torch.bfloat16)


@pytest.mark.parametrize("name", OPS)
def test_results_and_gradients_stay_float32(name: str) -> None:
    results, gradients = outcome(name, *tensors(), autocast())
    assert {tensor.dtype for tensor in results + gradients} == {torch.float32}
    assert all(tensor.isfinite().all() for tensor in results + gradients)
    assert all(gradient.abs().max() > 0 for gradient in gradients)


@pytest.mark.parametrize("name", OPS)
def test_autocast_acts_on_the_operands_and_nowhere_inside(name: str) -> None:
    """Exactly what the operation makes of bfloat16 operands without autocast."""
    queries, candidates, weights = tensors()
    got, gradients = outcome(name, queries, candidates, weights, autocast())
    expected, narrow_gradients = outcome(name, queries.bfloat16(), candidates.bfloat16(), weights)
    for ours, theirs in zip(got, expected, strict=True):
        assert torch.equal(ours, theirs)
    for ours, theirs in zip(gradients, narrow_gradients, strict=True):
        assert torch.equal(ours, theirs.float())


@pytest.mark.parametrize("name", OPS)
def test_the_error_is_that_of_rounding_the_operands(name: str) -> None:
    """Against float64: no more than float32 sums of rounded operands have, far less than sums in bfloat16 have."""
    queries, candidates, weights = tensors()
    exact = naive(name, queries.double(), candidates.double(), weights.double())
    rounded = naive(name, queries.bfloat16().float(), candidates.bfloat16().float(), weights)
    got, _ = outcome(name, queries, candidates, weights, autocast())
    for ours, plain, truth in zip(got, rounded, exact, strict=True):
        error, allowed = ((each.double() - truth).abs().max() for each in (ours, plain))
        assert 0 < error <= 1.01 * allowed + 1e-5 * truth.abs().max()


def test_without_autocast_nothing_is_narrow() -> None:
    queries, candidates, weights = tensors()
    truth = naive("softmax_products", queries.double(), candidates.double(), weights.double())
    for ours, exact in zip(softmax_products(queries, candidates, weights), truth, strict=True):
        torch.testing.assert_close(ours.double(), exact, rtol=1e-5, atol=1e-5)


def test_the_estimate_from_samples_is_computed_in_float32() -> None:
    queries, candidates, weights = tensors()
    sample = CandidateSample(torch.arange(0, NUM_CANDIDATES, 3), KNOWN, NUM_CANDIDATES)
    expected = sample.softmax_products(queries, candidates, weights, 2**14)
    with autocast():
        got = sample.softmax_products(queries, candidates, weights, 2**14)
        lse = sample.logsumexp(queries, candidates, 2**14)
    for ours, theirs in zip((*got, lse), (*expected, expected[0]), strict=True):
        assert ours.dtype == torch.float32
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("names", ["signature", "random", "signature+random"])
def test_features_are_no_score_products(names: str, tiny_run: Run) -> None:
    features = make_features(names, 8, tiny_run.graph)
    expected = features(tiny_run.graph, tiny_run.graph.queries("train"))
    with autocast():
        assert torch.equal(features(tiny_run.graph, tiny_run.graph.queries("train")), expected)


@pytest.mark.parametrize("n_term", ["exact", "paper", "none"])
@pytest.mark.parametrize("scorer", sorted(SCORERS))
def test_a_layer_under_autocast_is_close_to_the_exact_one(scorer: str, n_term: str) -> None:
    generator = torch.Generator().manual_seed(0)
    triples = torch.randint(0, 20, (80, 3), generator=generator)
    triples[:, 1] %= 3
    case = Case(20, 3, triples, seed=1)
    kind, states, relations = case.tensors(scorer, dim=8, scale=0.3)
    exact = log_likelihood_gradient(kind, states, relations, case.queries, n_term=n_term)
    narrow = states.float().requires_grad_(), relations.float().requires_grad_()
    with autocast():
        got = log_likelihood_gradient(kind, *narrow, case.queries, n_term=n_term)
    assert got.dtype == torch.float32
    assert (got - exact).abs().max() < 0.03 * exact.abs().max()
    gradients = torch.autograd.grad(got.square().sum(), narrow)
    assert all(gradient.dtype == torch.float32 and gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize("name", ["lookup", "layerwise", "unrolled", "parts", "inf", "forgetting", "gat", "ladies"])
def test_every_regime_trains_in_mixed_precision(name: str, tiny: Path, tmp_path: Path) -> None:
    settings = {**TRAININGS[name], "dropout": 0.0, "epochs": 4, "validate_every": 4, "learning_rate": 0.03}
    losses = []
    for precision in ("bf16-mixed", "32-true"):
        run = refactorgnn.train(tiny, out=tmp_path / precision, progress=False, precision=precision, **settings)
        losses.append([record["loss"] for record in run.records()])
        assert all(tensor.dtype == torch.float32 for tensor in load_tensors(run.last_path)[0].values())
    assert losses[0] != losses[1]  # the setting acts
    assert losses[0] == pytest.approx(losses[1], rel=0.02)


@pytest.mark.parametrize(
    "settings",
    [
        {"model": "lookup", "dim": 16, "learning_rate": 0.3, "n3": 0.0},
        {"model": "refactor", "dim": 16, "layers": 3, "features": "signature+random", "alpha": 0.3},
        {"model": "refactor", "dim": 16, "layers": 3, "features": "signature", "alpha": 0.3, "samples": 100},
    ],
    ids=str,
)
def test_training_in_mixed_precision_lowers_the_loss(settings: dict[str, Any], tmp_path: Path) -> None:
    shared = {"learning_rate": 0.03, "epochs": 12, "validate_every": 12, "precision": "bf16-mixed", "progress": False}
    run = refactorgnn.train("countries_part_ind", out=tmp_path / "run", **{**shared, **settings})
    losses = [record["loss"] for record in run.records()]
    assert sum(losses[-3:]) < 0.9 * sum(losses[:3])


def tf32(tensor: Tensor) -> Tensor:
    """Numbers with the ten bits that TF32 tensor cores read of a float32."""
    return (tensor.view(torch.int32) & ~0x1FFF).view(torch.float32)


def test_the_loss_of_what_is_nearly_certain_survives_rounded_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """``A − P`` is rounded, not ``A`` and ``P``: of a ``P`` near 1 the difference would be all rounding.

    So a relation that is nearly always guessed right pulled the states of a model with ``--tf32`` about at random.
    """
    multiply, add = chunked.matmul, chunked.add_matmul_
    monkeypatch.setattr(chunked, "matmul", lambda a, b, out=None: multiply(rounded(a), rounded(b), out))
    monkeypatch.setattr(chunked, "add_matmul_", lambda total, a, b: add(total, rounded(a), rounded(b)))

    def rounded(tensor: Tensor) -> Tensor:
        return tf32(tensor) if tensor.dtype == torch.float32 else tensor

    # Numbers that have no more bits than that, so that the scores are exact.
    candidates = torch.randn(50, 16, generator=torch.Generator().manual_seed(0)).bfloat16().double()
    chosen = torch.arange(40)
    queries = (3 * torch.nn.functional.normalize(candidates[chosen])).bfloat16().double()
    answers = SparsePattern(torch.arange(41), chosen, 50)
    found = []
    for dtype in (torch.float64, torch.float32):
        inputs = queries.to(dtype).requires_grad_(), candidates.to(dtype).requires_grad_()
        found.append(torch.autograd.grad(negative_log_likelihood(*inputs, answers), inputs))
    certain = torch.softmax(queries @ candidates.T, dim=1)[chosen, chosen] > 0.99
    assert certain.sum() > 10
    for exact, got in zip(*found, strict=True):
        assert (got - exact).norm() <= 2e-3 * exact.norm()
    exact, got = (gradients[0][certain] for gradients in found)
    assert ((got - exact).norm(dim=1) <= 1e-2 * exact.norm(dim=1)).all()
