"""The sampled products: exact with all candidates, consistent and of falling error with fewer."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from refactorgnn import ops
from refactorgnn.data.queries import QueryIndex
from refactorgnn.ops.sampled import CandidateSample

EXACT = {"rtol": 1e-10, "atol": 1e-10}


def problem(num_entities: int, num_triples: int, dim: int = 3, seed: int = 0) -> tuple[QueryIndex, Tensor, Tensor]:
    """A random multigraph, with a query and a candidate vector for each of its queries and entities."""
    generator = torch.Generator().manual_seed(seed)
    triples = torch.randint(0, num_entities, (num_triples, 3), generator=generator)
    triples[:, 1] %= 2
    queries = QueryIndex.from_triples(torch.cat([triples, triples[:2]]), num_entities, 2)  # two facts told twice
    Q = torch.randn(queries.num_queries, dim, dtype=torch.float64, generator=generator)
    K = torch.randn(num_entities, dim, dtype=torch.float64, generator=generator)
    return queries, Q, K


def literal_products(sample: CandidateSample, Q: Tensor, K: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The estimator's formula, one query at a time."""
    num_entities, drawn = len(K), set(sample.drawn.tolist())
    P = torch.zeros(len(Q), num_entities, dtype=torch.float64)
    for i in range(len(Q)):
        start, stop = sample.answers.offsets[i : i + 2].tolist()
        known = set(sample.answers.columns[start:stop].tolist())
        for u in known:
            P[i, u] = torch.exp(Q[i] @ K[u])
        for u in drawn - known:
            P[i, u] = torch.exp(Q[i] @ K[u]) * (num_entities - len(known)) / len(drawn - known)
    Z = P.sum(1)
    P = P / Z[:, None]
    return Z.log(), P @ K, P.T @ (weights[:, None] * Q)


@given(num_entities=st.integers(2, 12), num_samples=st.integers(1, 12), rows=st.integers(1, 9), seed=st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_products_are_those_of_the_formula(num_entities: int, num_samples: int, rows: int, seed: int) -> None:
    queries, Q, K = problem(num_entities, 9, seed=seed)
    torch.manual_seed(seed)
    sample = CandidateSample.draw(queries.distinct_answers, num_samples)
    counts = queries.answers.counts.double()
    budget = rows * 6 * len(sample.drawn) * 8  # exactly `rows` queries a chunk
    expected = literal_products(sample, Q, K, counts)
    for got, wanted in zip(sample.softmax_products(Q, K, counts, budget), expected, strict=True):
        torch.testing.assert_close(got, wanted, **EXACT)
    torch.testing.assert_close(sample.logsumexp(Q, K, budget), expected[0], **EXACT)


def test_all_candidates_give_the_exact_products() -> None:
    queries, Q, K = problem(40, 90)
    counts = queries.answers.counts.double()
    sample = CandidateSample.draw(queries.distinct_answers, 40)
    for got, wanted in zip(
        sample.softmax_products(Q, K, counts, 4096), ops.softmax_products(Q, K, counts, impl="reference"), strict=True
    ):
        torch.testing.assert_close(got, wanted, **EXACT)


@pytest.mark.parametrize("budget", [1, 2**20])
def test_differentiable_in_queries_candidates_and_weights(budget: int) -> None:
    queries, Q, K = problem(8, 10)
    torch.manual_seed(0)
    sample = CandidateSample.draw(queries.distinct_answers, 4)
    inputs = (Q.requires_grad_(), K.requires_grad_(), queries.answers.counts.double().requires_grad_())
    assert torch.autograd.gradcheck(lambda *tensors: sample.softmax_products(*tensors, budget), inputs)
    assert torch.autograd.gradcheck(lambda q, k: sample.logsumexp(q, k, budget), inputs[:2])


def test_the_normaliser_is_unbiased() -> None:
    """Over all C(7, 3) samples the mean of Ẑ is Z, as long as no query has so many answers that they fill a sample."""
    queries, Q, K = problem(7, 5)
    assert queries.answers.counts.max() > 1
    assert queries.distinct_answers.counts.max() < 3
    subsets = torch.combinations(torch.arange(7), 3)
    Z = torch.stack(
        [
            CandidateSample(subset, queries.distinct_answers, queries.num_entities).logsumexp(Q, K, 2**20).exp()
            for subset in subsets
        ]
    ).mean(0)
    torch.testing.assert_close(Z, torch.exp(Q @ K.T).sum(1), **EXACT)


def test_answers_stand_for_everything_when_no_other_candidate_was_drawn() -> None:
    queries = QueryIndex.from_triples(torch.tensor([[0, 0, 1], [0, 0, 2]]), 4, 1)
    sample = CandidateSample(torch.tensor([1]), queries.distinct_answers, queries.num_entities)
    Q, K = torch.randn(1, 3, dtype=torch.float64, requires_grad=True), torch.randn(4, 3, dtype=torch.float64)
    lse, expected, _ = sample.softmax_products(Q, K, torch.ones(1), 2**20)
    torch.testing.assert_close(expected, torch.softmax(Q @ K[1:3].T, dim=1) @ K[1:3], **EXACT)
    (gradient,) = torch.autograd.grad(lse.sum(), Q)
    assert torch.isfinite(gradient).all()


def test_bfloat16_inputs_are_summed_in_float32() -> None:
    queries, Q, K = problem(50, 200)
    torch.manual_seed(0)
    sample = CandidateSample.draw(queries.distinct_answers, 20)
    counts = queries.answers.counts.float()
    half = (Q.bfloat16(), K.bfloat16())
    exact = sample.softmax_products(half[0].double(), half[1].double(), counts.double(), 2**20)
    for got, wanted in zip(sample.softmax_products(*half, counts, 2**20), exact, strict=True):
        assert got.dtype == torch.float32
        torch.testing.assert_close(got.double(), wanted, rtol=0.02, atol=0.05)
