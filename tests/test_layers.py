"""The proof of the layer: it equals autograd's gradient step, and Theorem 1 where it is asked to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch_geometric.nn import Sequential

from refactorgnn import likelihood, streamed
from refactorgnn.data.interop import to_edges
from refactorgnn.data.queries import QueryIndex
from refactorgnn.errors import UserError
from refactorgnn.layers import ReFactorConv
from refactorgnn.likelihood import NTerm, log_likelihood_gradient
from refactorgnn.ops.residual import ResidualBackwardPass, ResidualPass
from refactorgnn.scorers import SCORERS, DotScorer, Scorer, make_scorer
from tests.oracles import autograd_gradient, edge_view, log_likelihood, theorem_1
from tests.strategies import Case, cases

EXACT = {"rtol": 1e-10, "atol": 1e-10}
every_scorer = pytest.mark.parametrize("name", sorted(SCORERS))
every_dot_scorer = pytest.mark.parametrize(
    "name", sorted(name for name, cls in SCORERS.items() if issubclass(cls, DotScorer))
)


@every_scorer
@given(case=cases())
@settings(max_examples=30, deadline=None)
def test_gradient_equals_autograd(name: str, case: Case) -> None:
    scorer, states, relations = case.tensors(name)
    expected = autograd_gradient(scorer, states, relations, case.triples)
    for impl in ("reference", "chunked"):
        got = log_likelihood_gradient(scorer, states, relations, case.queries, impl=impl, memory_budget=256)
        torch.testing.assert_close(got, expected, **EXACT)


@given(case=cases())
@settings(max_examples=60, deadline=None)
def test_paper_equals_theorem_1_node_by_node(case: Case) -> None:
    scorer, states, relations = case.tensors("distmult")
    z, n = theorem_1(states, relations, case.triples)
    paper = log_likelihood_gradient(scorer, states, relations, case.queries, n_term="paper")
    torch.testing.assert_close(paper, z - len(case.triples) * n, **EXACT)
    messages = log_likelihood_gradient(scorer, states, relations, case.queries, n_term="none")
    torch.testing.assert_close(messages, z, **EXACT)


def test_paper_differs_from_the_gradient() -> None:
    """The term that Theorem 1 leaves out is not small: it is what makes "exact" exact."""
    case = Case(3, 1, torch.tensor([[0, 0, 1], [1, 0, 2]]), seed=0)
    scorer, states, relations = case.tensors("distmult")
    paper = log_likelihood_gradient(scorer, states, relations, case.queries, n_term="paper")
    assert (paper - autograd_gradient(scorer, states, relations, case.triples)).abs().max() > 0.01


@given(case=cases())
@settings(max_examples=40, deadline=None)
def test_edge_view_equals_node_view(case: Case) -> None:
    scorer, states, relations = case.tensors("distmult")
    node_view = log_likelihood_gradient(scorer, states, relations, case.queries)
    torch.testing.assert_close(edge_view(states, relations, case.triples), node_view, **EXACT)


@every_dot_scorer
@pytest.mark.parametrize("n_term", ["paper", "none"])
@given(case=cases())
@settings(max_examples=20, deadline=None)
def test_general_lemma_equals_the_closed_form(name: str, n_term: str, case: Case) -> None:
    """The autograd path, given a dot-product scorer in disguise, agrees with query + adjoint on every ``n_term``."""
    scorer, states, relations = case.tensors(name)

    class Disguised(Scorer):
        name = "disguised"
        relation_dim = scorer.relation_dim

        def score_all(self, subjects, relations, states):
            return scorer.score_all(subjects, relations, states)

        def score(self, subjects, relations, objects):
            return scorer.score(subjects, relations, objects)

    arguments = (states, relations, case.queries)
    expected = log_likelihood_gradient(scorer, *arguments, n_term=n_term)
    got = log_likelihood_gradient(Disguised(scorer.dim), *arguments, n_term=n_term, memory_budget=4096)
    torch.testing.assert_close(got, expected, **EXACT)


@every_scorer
@pytest.mark.parametrize("optimizer", ["sgd", "adagrad"])
@given(case=cases(max_entities=5, max_triples=8), n3=st.sampled_from([0.0, 0.05]))
@settings(max_examples=8, deadline=None)
def test_layers_equal_optimiser_steps_on_a_lookup_table(name: str, optimizer: str, case: Case, n3: float) -> None:
    scorer, states, relations = case.tensors(name)
    conv = ReFactorConv(scorer.dim, case.num_relations, name, alpha=0.05, optimizer=optimizer, n3=n3).double()
    conv.relations.data = relations
    table = nn.Parameter(states.clone())
    # ε above the rounding of exact zeros: AdaGrad divides 1e-17 by 1e-17 otherwise, here and in torch alike.
    conv.epsilon = 1e-6
    step = torch.optim.SGD([table], lr=0.05) if optimizer == "sgd" else torch.optim.Adagrad([table], lr=0.05, eps=1e-6)
    x, sums = states, None
    for _ in range(3):
        step.zero_grad()
        loss = -log_likelihood(scorer, table, relations, case.triples)
        if name in ("complex", "rotate"):  # N3 takes the modulus of complex numbers
            loss = loss + n3 * torch.complex(*table.chunk(2, dim=1)).abs().pow(3).sum()
        else:
            loss = loss + n3 * table.abs().pow(3).sum()
        loss.backward()
        step.step()
        with torch.no_grad():
            if optimizer == "sgd":
                x = conv(x, case.queries)
            else:
                x, sums = conv(x, case.queries, sum_of_squares=sums, return_sum_of_squares=True)
    torch.testing.assert_close(x, table.detach(), rtol=1e-9, atol=1e-9)


@every_scorer
@pytest.mark.parametrize("n_term", ["exact", "paper", "none"])
def test_differentiable_in_relations_and_inputs(name: str, n_term: str) -> None:
    case = Case(5, 2, torch.tensor([[0, 0, 1], [0, 0, 1], [1, 1, 2], [3, 0, 3], [2, 1, 0], [0, 1, 1]]), seed=3)
    scorer, states, relations = case.tensors(name)

    def layer(states, relations, impl="chunked"):
        return log_likelihood_gradient(
            scorer, states, relations, case.queries, n_term=n_term, impl=impl, memory_budget=512
        )

    inputs = (states.requires_grad_(), relations.requires_grad_())
    assert torch.autograd.gradcheck(layer, inputs)


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad"])
def test_gradient_stays_finite_where_nothing_moves(optimizer: str) -> None:
    """One entity: P = 1, the gradient is exactly 0, and √ in AdaGrad must not turn it into NaN."""
    conv = ReFactorConv(4, 1, optimizer=optimizer)
    x = torch.randn(1, 4, requires_grad=True)
    conv(x, torch.zeros(2, 1, dtype=torch.long), torch.zeros(1, dtype=torch.long)).sum().backward()
    assert torch.isfinite(x.grad).all()
    assert torch.isfinite(conv.relations.grad).all()


@every_dot_scorer
@given(case=cases(), data=st.data())
@settings(max_examples=15, deadline=None)
def test_permuting_entities_or_edges_permutes_the_output(name: str, case: Case, data: st.DataObject) -> None:
    scorer, states, relations = case.tensors(name)
    entity_order = torch.tensor(data.draw(st.permutations(range(case.num_entities))))
    edge_order = torch.tensor(data.draw(st.permutations(range(len(case.triples)))))
    plain = log_likelihood_gradient(scorer, states, relations, case.queries)
    renamed = case.triples[edge_order].clone()
    renamed[:, [0, 2]] = entity_order[renamed[:, [0, 2]]]
    moved = torch.empty_like(states)
    moved[entity_order] = states
    queries = QueryIndex.from_triples(renamed, case.num_entities, case.num_relations)
    torch.testing.assert_close(log_likelihood_gradient(scorer, moved, relations, queries)[entity_order], plain, **EXACT)


def test_no_edges_leaves_the_states_alone() -> None:
    conv = ReFactorConv(4, 2)
    x = torch.randn(3, 4)
    out = conv(x, torch.empty(2, 0, dtype=torch.long), torch.empty(0, dtype=torch.long))
    torch.testing.assert_close(out, x)


@pytest.mark.parametrize("num_samples", [None, 3])
@pytest.mark.parametrize("n_term", ["exact", "paper", "none"])
def test_queries_taken_some_at_a_time_have_the_same_gradient(
    n_term: NTerm, num_samples: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = torch.Generator().manual_seed(0)
    triples = torch.stack([torch.randint(count, (60,), generator=generator) for count in (9, 3, 9)], dim=1)
    queries = QueryIndex.from_triples(triples, 9, 3)
    states, relations = (torch.randn(count, 4, generator=generator, dtype=torch.float64) for count in (9, 3))
    found = []
    for most_bytes in (2**20, 5 * 4 * 8):
        for limit in ("_MOST_BYTES", "_PART_BYTES"):
            monkeypatch.setattr(likelihood, limit, {"cpu": most_bytes})
        monkeypatch.setattr(likelihood, "_SAMPLED_PART_BYTES", most_bytes)
        torch.manual_seed(1)  # the candidates are drawn once for all parts
        options = {"n_term": n_term, "num_samples": num_samples}
        with torch.no_grad():
            found.append(log_likelihood_gradient(make_scorer("distmult", 4), states, relations, queries, **options))
    assert queries.num_queries > 20  # several parts of five
    torch.testing.assert_close(found[1], found[0], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("states_learn", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
@every_dot_scorer
def test_derivatives_of_queries_taken_some_at_a_time_are_those_of_all_together(
    name: str, weighted: bool, states_learn: bool
) -> None:
    """The closed form of the streamed gradient against autograd through the composed one."""
    generator = torch.Generator().manual_seed(0)
    triples = torch.stack([torch.randint(count, (60,), generator=generator) for count in (9, 3, 9)], dim=1)
    queries = QueryIndex.from_triples(triples, 9, 3)
    if weighted:
        queries = replace(queries, weights=torch.rand(60, generator=generator, dtype=torch.float64))
    scorer = make_scorer(name, 4)
    states = torch.randn(9, 4, generator=generator, dtype=torch.float64, requires_grad=states_learn)
    relations = torch.randn(3, scorer.relation_dim, generator=generator, dtype=torch.float64, requires_grad=True)
    direction = torch.randn(9, 4, generator=generator, dtype=torch.float64)
    learned = [tensor for tensor in (states, relations) if tensor.requires_grad]
    composed = log_likelihood_gradient(scorer, states, relations, queries)
    few = 6 * (3 * 9 + 12 * 4) * 8  # bytes of a part of at most six queries
    found = streamed.log_likelihood_gradient(scorer, states, relations, queries, few)
    torch.testing.assert_close(found, composed, **EXACT)
    expected = torch.autograd.grad(composed, learned, direction)
    torch.testing.assert_close(torch.autograd.grad(found, learned, direction), expected, **EXACT)


def test_a_part_of_narrow_states_has_several_chunks_within_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four queries of a chunk, eight chunks of a part backward; forward each chunk is a part."""
    num_entities, dim = 300, 2
    generator = torch.Generator().manual_seed(0)
    triples = torch.stack([torch.randint(count, (400,), generator=generator) for count in (300, 3, 300)], dim=1)
    queries, scorer = QueryIndex.from_triples(triples, num_entities, 3), make_scorer("distmult", dim)
    states, relations = (
        torch.randn(count, dim, generator=generator, dtype=torch.float64, requires_grad=True)
        for count in (num_entities, 3)
    )
    sizes: dict[type, list[tuple[int, int]]] = {ResidualPass: [], ResidualBackwardPass: []}
    for kind, seen in sizes.items():
        monkeypatch.setattr(kind, "add", _noting(kind.add, seen))
    wide, narrow = 3 * num_entities * 8, 12 * dim * 8
    found = streamed.log_likelihood_gradient(scorer, states, relations, queries, 4 * (wide + 8 * narrow))
    gradients = torch.autograd.grad(found.sum(), (states, relations))
    assert queries.num_queries % 32
    assert set(sizes[ResidualBackwardPass]) == {(32, 4), (queries.num_queries % 32, 4)}
    assert len(sizes[ResidualPass]) > 1
    assert all(part <= chunk for part, chunk in sizes[ResidualPass])
    composed = log_likelihood_gradient(scorer, states, relations, queries)
    torch.testing.assert_close(found, composed, **EXACT)
    torch.testing.assert_close(gradients, torch.autograd.grad(composed.sum(), (states, relations)), **EXACT)


def _noting(add: Callable[..., Any], seen: list[tuple[int, int]]) -> Callable[..., Any]:
    def noted(run: object, queries: Tensor, *arguments: Any) -> Any:
        seen.append((len(queries), arguments[-1]))
        return add(run, queries, *arguments)

    return noted


def test_streamed_derivatives_in_mixed_precision_err_like_the_composed_ones() -> None:
    generator = torch.Generator().manual_seed(0)
    triples = torch.stack([torch.randint(count, (200,), generator=generator) for count in (40, 3, 40)], dim=1)
    queries, scorer = QueryIndex.from_triples(triples, 40, 3), make_scorer("distmult", 16)
    states, relations = (torch.randn(count, 16, generator=generator, requires_grad=True) for count in (40, 3))
    direction = torch.randn(40, 16, generator=generator)

    def found(*arguments: Any, is_streamed: bool) -> tuple[Tensor, ...]:
        function = streamed.log_likelihood_gradient if is_streamed else log_likelihood_gradient
        gradient = function(scorer, states, relations, queries, *arguments)
        assert gradient.dtype == torch.float32
        return gradient, *torch.autograd.grad(gradient, (states, relations), direction)

    exact = found(is_streamed=False)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        composed, ours = found(is_streamed=False), found(30 * (3 * 40 + 12 * 16) * 4, is_streamed=True)
    for got, other, expected in zip(ours, composed, exact, strict=True):
        assert 0 < (got - expected).norm() <= 1.2 * (other - expected).norm()


def test_inside_pyg_sequential() -> None:
    case = Case(6, 2, torch.tensor([[0, 0, 1], [4, 1, 2], [2, 1, 5]]), seed=1)
    conv = ReFactorConv(8, 2, alpha=0.1)
    model = Sequential(
        "x, edge_index, edge_type",
        [(conv, "x, edge_index, edge_type -> x"), nn.ReLU(), (conv, "x, edge_index, edge_type -> x")],
    )
    edge_index, edge_type = to_edges(case.triples)
    x = torch.randn(6, 8)
    by_hand = conv(torch.relu(conv(x, edge_index, edge_type)), case.queries)
    torch.testing.assert_close(model(x, edge_index, edge_type), by_hand)


def test_bfloat16_inputs_accumulate_in_float32() -> None:
    case = Case(50, 2, torch.randint(0, 2, (300, 3), generator=torch.Generator().manual_seed(0)), seed=1)
    case.triples[:, [0, 2]] = torch.randint(0, 50, (300, 2), generator=torch.Generator().manual_seed(1))
    scorer, states, relations = case.tensors("distmult", dim=16, scale=0.5)
    half = (states.bfloat16(), relations.bfloat16())
    exact = log_likelihood_gradient(scorer, half[0].double(), half[1].double(), case.queries)
    ours = log_likelihood_gradient(scorer, *half, case.queries).double()
    # What a plain bf16 implementation does: every product rounded to bf16 (the error we must not exceed).
    S = (half[0][case.queries.subjects] * half[1][case.queries.relations]) @ half[0].T
    P = torch.softmax(S, dim=1)
    A = torch.zeros_like(S)
    A.index_put_((case.queries.answers.rows, case.queries.answers.columns), A.new_ones(()), accumulate=True)
    D = A - case.queries.answers.counts[:, None] * P
    Q = half[0][case.queries.subjects] * half[1][case.queries.relations]
    plain = (D.T @ Q).index_add_(0, case.queries.subjects, (D @ half[0]) * half[1][case.queries.relations])
    assert (ours - exact).abs().max() <= (plain.double() - exact).abs().max()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"scorer": "dismult"}, "did you mean 'distmult'"),
        ({"optimizer": "adam"}, "unknown optimizer 'adam'"),
        ({"n_term": "exactly"}, "did you mean 'exact'"),
        ({"impl": "fast"}, "unknown impl 'fast'"),
        ({"dim": 5, "scorer": "complex"}, "even"),
    ],
)
def test_wrong_settings_are_named(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        ReFactorConv(**{"dim": 4, "num_relations": 2, **arguments})


def test_wrong_edges_are_named() -> None:
    conv = ReFactorConv(4, 2)
    x = torch.randn(3, 4)
    with pytest.raises(UserError, match="entity id 3 is outside"):
        conv(x, torch.tensor([[0], [3]]), torch.tensor([0]))
    with pytest.raises(UserError, match="relation id 2 is outside"):
        conv(x, torch.tensor([[0], [1]]), torch.tensor([2]))
    with pytest.raises(UserError, match=r"x has the shape \(3, 6\), but the layer takes \(num_nodes, 4\)"):
        conv(torch.randn(3, 6), torch.tensor([[0], [1]]), torch.tensor([1]))
    with pytest.raises(UserError, match="edge_type is missing"):
        conv(x, torch.tensor([[0], [1]]))
    with pytest.raises(UserError, match="must be"):
        conv(x, torch.tensor([[0, 1]]), torch.tensor([0]))
