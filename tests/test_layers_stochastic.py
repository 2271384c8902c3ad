"""The stochastic evaluations of a layer: the cascade over parts of the edges, and the Monte-Carlo n[v]."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from refactorgnn.data.queries import QueryIndex
from refactorgnn.errors import UserError
from refactorgnn.layers import ReFactorConv
from refactorgnn.likelihood import log_likelihood_gradient
from tests.oracles import autograd_gradient, log_likelihood
from tests.strategies import Case, cases
from tests.training.settings import triples_of

EXACT = {"rtol": 1e-10, "atol": 1e-10}
N_TERMS = ["exact", "paper", "none"]


def random_case(num_entities: int, num_triples: int, num_relations: int = 3, seed: int = 0) -> Case:
    generator = torch.Generator().manual_seed(seed)
    triples = torch.randint(0, num_entities, (num_triples, 3), generator=generator)
    triples[:, 1] %= num_relations
    return Case(num_entities, num_relations, triples, seed)


def parts_of(case: Case, num_parts: int) -> tuple[list[Tensor], list[QueryIndex]]:
    parts = case.queries.partition(num_parts, torch.Generator().manual_seed(case.seed))
    return [triples_of(part) for part in parts], parts


def make_layer(case: Case, relations: Tensor, name: str = "distmult", **settings) -> ReFactorConv:
    conv = ReFactorConv(4, case.num_relations, name, alpha=0.05, epsilon=1e-6, **settings).double()
    conv.relations.data = relations
    return conv.requires_grad_(False)


@given(case=cases(max_triples=20), num_parts=st.integers(1, 6))
@settings(max_examples=40, deadline=None)
def test_partition_holds_every_triple_once_in_parts_of_one_size(case: Case, num_parts: int) -> None:
    queries = case.queries
    parts = queries.partition(num_parts, torch.Generator().manual_seed(0))
    assert len(parts) == min(num_parts, queries.num_queries)
    assert sorted(torch.cat([triples_of(part) for part in parts]).tolist()) == sorted(case.triples.tolist())
    sizes = [part.num_queries for part in parts]
    assert min(sizes) >= 1
    assert max(sizes) - min(sizes) <= 1
    for part in parts:  # a question and all its answers stay together
        assert part.num_entities == case.num_entities
        for row, (s, r) in enumerate(zip(part.subjects.tolist(), part.relations.tolist(), strict=True)):
            objects = sorted(o for h, q, o in case.triples.tolist() if (h, q) == (s, r))
            assert part.answers.columns[part.answers.rows == row].tolist() == objects
    again = queries.partition(num_parts, torch.Generator().manual_seed(0))
    assert all(torch.equal(triples_of(left), triples_of(right)) for left, right in zip(parts, again, strict=True))


def test_partition_is_drawn_anew_from_the_default_generator() -> None:
    queries = random_case(9, 20).queries
    torch.manual_seed(0)
    first, second = (queries.partition(3)[0].subjects for _ in range(2))
    torch.manual_seed(0)
    assert torch.equal(queries.partition(3)[0].subjects, first)
    assert not torch.equal(first, second)


def test_a_partition_of_nothing_is_one_empty_part() -> None:
    (part,) = QueryIndex.from_triples(torch.empty(0, 3, dtype=torch.int64), 4, 2).partition(3)
    assert part.num_queries == 0


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad"])
def test_cascade_of_one_part_is_the_layer(optimizer: str) -> None:
    case = random_case(9, 20)
    _, states, relations = case.tensors("distmult")
    conv = make_layer(case, relations, optimizer=optimizer, n3=0.05)
    x, sums = conv.cascade(states, [case.queries])
    expected, expected_sums = conv.step(states, case.queries)
    assert torch.equal(x, expected)
    assert sums is expected_sums is None or torch.equal(sums, expected_sums)


@pytest.mark.parametrize("name", ["distmult", "rotate"])
@pytest.mark.parametrize("optimizer", ["sgd", "adagrad"])
def test_cascade_equals_mini_batch_training_of_a_lookup_table(name: str, optimizer: str) -> None:
    """Two epochs of four mini-batches by torch.optim, AdaGrad's sums running through all of them."""
    case = random_case(7, 13)
    scorer, states, relations = case.tensors(name)
    conv = make_layer(case, relations, name, optimizer=optimizer)
    triples, parts = parts_of(case, 4)
    table = nn.Parameter(states.clone())
    step = torch.optim.SGD([table], lr=0.05) if optimizer == "sgd" else torch.optim.Adagrad([table], lr=0.05, eps=1e-6)
    x, sums = states, None
    for _ in range(2):
        x, sums = conv.cascade(x, parts, sums)
        for batch in triples:
            step.zero_grad()
            (-log_likelihood(scorer, table, relations, batch)).backward()
            step.step()
    torch.testing.assert_close(x, table.detach(), rtol=1e-9, atol=1e-9)
    assert (x - conv.cascade(states, [case.queries])[0]).abs().max() > 1e-3  # the parts do differ from the whole


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad"])
def test_induced_cascade_sees_only_the_entities_of_each_part(optimizer: str) -> None:
    """By hand: each part renumbered to its own entities, one gradient step of theirs, everything else as it was."""
    case = random_case(12, 10)
    scorer, states, relations = case.tensors("distmult")
    conv = make_layer(case, relations, optimizer=optimizer, n3=0.05)
    triples, parts = parts_of(case, 3)
    x, sums = conv.cascade(states, parts, induced=True)
    expected, squares = states.clone(), torch.zeros_like(states)
    for part in triples:
        nodes = sorted({*part[:, 0].tolist(), *part[:, 2].tolist()})
        local = torch.tensor([[nodes.index(h), r, nodes.index(t)] for h, r, t in part.tolist()])
        gradient = autograd_gradient(scorer, expected[nodes], relations, local)
        gradient = gradient - 3 * 0.05 * expected[nodes].abs() * expected[nodes]
        squares[nodes] += gradient.square()
        scale = 1 if optimizer == "sgd" else squares[nodes].sqrt() + 1e-6
        expected[nodes] = expected[nodes] + 0.05 * gradient / scale
    torch.testing.assert_close(x, expected, rtol=1e-9, atol=1e-9)
    if optimizer == "adagrad":
        torch.testing.assert_close(sums, squares, rtol=1e-9, atol=1e-9)


def test_an_empty_part_changes_nothing() -> None:
    case = random_case(5, 2)
    _, states, relations = case.tensors("distmult")
    empty = QueryIndex.from_triples(case.triples[:0], 5, 3)
    for induced in (False, True):
        for num_samples in (None, 2):
            conv = make_layer(case, relations, optimizer="adagrad", num_samples=num_samples)
            assert torch.equal(conv.cascade(states, [empty], induced=induced)[0], states)


def test_cascade_is_differentiable_through_all_parts() -> None:
    case = random_case(5, 6)
    _, states, relations = case.tensors("distmult")
    _, parts = parts_of(case, 3)
    conv = make_layer(case, relations, optimizer="adagrad")

    def moved(x: Tensor, psi: Tensor) -> Tensor:
        return torch.func.functional_call(_Cascade(conv), {"conv.relations": psi}, (x, parts))

    assert torch.autograd.gradcheck(moved, (states.requires_grad_(), relations.requires_grad_()), atol=1e-4)


class _Cascade(nn.Module):
    def __init__(self, conv: ReFactorConv) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, x: Tensor, parts: list[QueryIndex]) -> Tensor:
        return self.conv.cascade(x, parts, induced=True)[0]


@pytest.mark.parametrize("n_term", N_TERMS)
@pytest.mark.parametrize("name", ["distmult", "complex", "transe"])
def test_all_candidates_drawn_give_the_exact_term(name: str, n_term: str) -> None:
    case = random_case(30, 80)
    scorer, states, relations = case.tensors(name)
    exact = log_likelihood_gradient(scorer, states, relations, case.queries, n_term=n_term)
    for num_samples in (30, 1000):
        got = log_likelihood_gradient(
            scorer, states, relations, case.queries, n_term=n_term, num_samples=num_samples, memory_budget=4096
        )
        torch.testing.assert_close(got, exact, **EXACT)


def estimates(case: Case, n_term: str, num_samples: int, repeats: int) -> Tensor:
    scorer, states, relations = case.tensors("distmult", scale=0.5)
    torch.manual_seed(num_samples)
    draws = [
        log_likelihood_gradient(scorer, states, relations, case.queries, n_term=n_term, num_samples=num_samples)
        for _ in range(repeats)
    ]
    return torch.stack(draws)


@pytest.mark.parametrize("n_term", N_TERMS)
def test_error_falls_like_the_root_of_the_number_of_samples(n_term: str) -> None:
    """16 times the candidates, a quarter of the error; a finite population makes it a little less than that.

    The root-mean-square error of a mean of K of N values without replacement is σ √((1 − K/N) / K).
    """
    case = random_case(2000, 300)
    scorer, states, relations = case.tensors("distmult", scale=0.5)
    exact = log_likelihood_gradient(scorer, states, relations, case.queries, n_term=n_term)
    few, many = ((estimates(case, n_term, k, 60) - exact).square().mean().sqrt().item() for k in (50, 800))
    predicted = ((1 - 50 / 2000) / 50 / ((1 - 800 / 2000) / 800)) ** 0.5  # 5.1
    assert 0.8 * predicted < few / many < 1.25 * predicted


@pytest.mark.parametrize("n_term", N_TERMS)
def test_mean_over_many_draws_approaches_the_exact_term(n_term: str) -> None:
    """The bias is of order 1/K: the mean of many draws is far closer than a draw, and as close as chance lets it be."""
    case = random_case(200, 100)
    scorer, states, relations = case.tensors("distmult", scale=0.5)
    exact = log_likelihood_gradient(scorer, states, relations, case.queries, n_term=n_term)
    draws = estimates(case, n_term, 60, 400)
    of_a_draw = (draws - exact).square().mean().sqrt()
    of_the_mean = (draws.mean(0) - exact).square().mean().sqrt()
    assert of_the_mean < 3 * of_a_draw / 400**0.5


def test_seeds_make_the_draws_repeatable() -> None:
    case = random_case(50, 40)
    first, second = estimates(case, "exact", 5, 2)
    assert not torch.equal(first, second)
    torch.testing.assert_close(estimates(case, "exact", 5, 2), torch.stack([first, second]), rtol=0, atol=0)


@pytest.mark.parametrize("n_term", N_TERMS)
def test_the_estimate_is_differentiable_in_states_and_relations(n_term: str) -> None:
    case = random_case(8, 9)
    scorer, states, relations = case.tensors("complex")

    def layer(states: Tensor, relations: Tensor) -> Tensor:
        torch.manual_seed(0)
        return log_likelihood_gradient(
            scorer, states, relations, case.queries, n_term=n_term, num_samples=4, memory_budget=512
        )

    assert torch.autograd.gradcheck(layer, (states.requires_grad_(), relations.requires_grad_()))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_samples": 0}, "num_samples=0 leaves no candidate to draw"),
        ({"num_samples": 5, "scorer": "rotate"}, "num_samples needs a dot-product scorer, which 'rotate' is not"),
        ({"num_samples": 5, "impl": "reference"}, "num_samples cannot be used with impl='reference'"),
    ],
)
def test_wrong_sampling_is_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        ReFactorConv(4, 2, **settings)


def test_wrong_number_of_parts_is_refused() -> None:
    with pytest.raises(UserError, match="num_parts=0 cannot hold the queries"):
        random_case(3, 3).queries.partition(0)


@pytest.mark.parametrize("n_term", N_TERMS)
def test_a_layer_estimates_while_training_and_is_exact_afterwards(n_term: str) -> None:
    case = random_case(30, 40)
    scorer, states, relations = case.tensors("distmult")
    conv = make_layer(case, relations, n_term=n_term, num_samples=3)
    exact = states + 0.05 * log_likelihood_gradient(scorer, states, relations, case.queries, n_term=n_term)
    assert not torch.allclose(conv.train()(states, case.queries), exact)
    torch.testing.assert_close(conv.eval()(states, case.queries), exact, **EXACT)
    torch.testing.assert_close(conv.cascade(states, [case.queries])[0], exact, **EXACT)
