"""Predicting relations as well: the layer's gradient and its derivatives against autograd's, in float64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import refactorgnn
from refactorgnn import ReFactorConv
from refactorgnn.data.queries import QueryIndex
from refactorgnn.errors import UserError
from refactorgnn.models.infinite import InfiniteReFactorGNN
from refactorgnn.relation_prediction import relation_gradient
from refactorgnn.scorers import Scorer, make_scorer
from refactorgnn.training.config import TrainConfig

BILINEAR = ["complex", "cp", "distmult", "rescal", "simple"]
# A repeated fact, a loop and an entity without facts are among them.
FACTS = torch.tensor([[0, 0, 1], [0, 0, 1], [1, 1, 2], [2, 2, 2], [3, 1, 0], [0, 2, 3], [3, 0, 1]])
NUM_ENTITIES, NUM_RELATIONS = 6, 3


def drawn(scorer: Scorer) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = (NUM_ENTITIES, scorer.dim), (NUM_RELATIONS, scorer.relation_dim)
    states, relations = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes)
    return states.requires_grad_(), relations.requires_grad_()


def facts() -> QueryIndex:
    return QueryIndex.from_triples(FACTS, NUM_ENTITIES, NUM_RELATIONS)


def log_likelihood(scorer: Scorer, states: Tensor, relations: Tensor) -> Tensor:
    """By scoring each fact with every relation in its place."""
    s, o = (states[FACTS[:, place], None] for place in (0, 2))
    scores = scorer.score(s, relations[None], o)
    return torch.log_softmax(scores, dim=1)[torch.arange(len(FACTS)), FACTS[:, 1]].sum()


@pytest.mark.parametrize("budget", [None, 1])
@pytest.mark.parametrize("name", BILINEAR)
def test_the_gradient_and_its_derivatives_are_those_of_autograd(name: str, budget: int | None) -> None:
    """With all facts together, and one at a time."""
    scorer = make_scorer(name, 4)
    inputs = drawn(scorer)
    got = relation_gradient(scorer, *inputs, facts(), memory_budget=budget)
    (expected,) = torch.autograd.grad(log_likelihood(scorer, *inputs), inputs[0], create_graph=True)
    torch.testing.assert_close(got, expected)
    upstream = torch.randn(got.shape, generator=torch.Generator().manual_seed(1), dtype=got.dtype)
    for ours, theirs in zip(
        torch.autograd.grad(got, inputs, upstream), torch.autograd.grad(expected, inputs, upstream), strict=True
    ):
        torch.testing.assert_close(ours, theirs)


def test_facts_count_by_their_weights() -> None:
    scorer = make_scorer("complex", 4)
    inputs = [tensor.detach() for tensor in drawn(scorer)]
    index = facts()
    weights = torch.linspace(0, 2, len(FACTS), dtype=torch.float64)
    got = relation_gradient(scorer, *inputs, index.weighted(weights), memory_budget=1)
    rows, objects = index.answers.rows, index.answers.columns
    in_order = torch.stack([index.subjects[rows], index.relations[rows], objects], dim=1).split(1)
    one_by_one = (QueryIndex.from_triples(fact, NUM_ENTITIES, NUM_RELATIONS) for fact in in_order)
    expected = sum(w * relation_gradient(scorer, *inputs, fact) for w, fact in zip(weights, one_by_one, strict=True))
    torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad"])
def test_layers_are_steps_of_an_optimiser_on_both_likelihoods(optimizer: str) -> None:
    scorer = make_scorer("complex", 4)
    states, relations = drawn(scorer)
    conv = ReFactorConv(4, NUM_RELATIONS, "complex", alpha=0.1, optimizer=optimizer, relation_loss=0.7).double()  # type: ignore[arg-type]
    conv.relations.data.copy_(relations)
    table = states.detach().clone().requires_grad_()
    kinds: dict[str, Any] = {"sgd": torch.optim.SGD, "adagrad": torch.optim.Adagrad}
    steps = kinds[optimizer]([table], lr=0.1)
    x, sums = states.detach(), None
    for _ in range(3):
        x, sums = conv.step(x, facts(), sums)
        steps.zero_grad()
        scores = scorer.score_all(table[FACTS[:, 0]], relations.detach()[FACTS[:, 1]], table)
        objects = torch.log_softmax(scores, dim=1)[torch.arange(len(FACTS)), FACTS[:, 2]].sum()
        (-objects - 0.7 * log_likelihood(scorer, table, relations.detach())).backward()
        steps.step()
    torch.testing.assert_close(x.detach(), table.detach())


def test_dropout_leaves_the_expected_gradient_of_what_is_kept() -> None:
    """Of numbers that are dropped nothing is wanted; the rest is twice as large in the subject, as is its gradient."""
    scorer = make_scorer("distmult", 1)
    states, relations = (tensor.detach() for tensor in drawn(scorer))
    one = QueryIndex.from_triples(FACTS[2:3], NUM_ENTITIES, NUM_RELATIONS)
    torch.manual_seed(0)
    found = {
        tuple(relation_gradient(scorer, states, relations, one, dropout_rate=0.5)[:, 0].tolist()) for _ in range(40)
    }
    doubled = states.clone()
    doubled[1] *= 2  # the subject
    of_kept = relation_gradient(scorer, doubled, relations, one)[:, 0]
    of_kept[1] *= 2
    nothing = torch.zeros(NUM_ENTITIES, dtype=torch.float64)
    assert found == {tuple(of_kept.tolist()), tuple(nothing.tolist())}


def test_scorers_that_are_not_linear_in_the_relation_are_refused() -> None:
    with pytest.raises(UserError, match="needs a bilinear scorer, which 'transe' is not"):
        ReFactorConv(4, 3, "transe", relation_loss=0.1)
    with pytest.raises(UserError, match="choose 0 or more"):
        ReFactorConv(4, 3, relation_loss=-0.1)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"scorer": "distmult"}, "needs layers inf, or a lookup model"),
        ({"layers": "inf", "scorer": "transe", "mask": 0}, "needs a bilinear scorer, which 'transe' is not"),
        ({"layers": "inf", "sampler": "ladies"}, "is not for sub-graphs"),
    ],
)
def test_settings_that_would_ignore_it_are_refused(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        TrainConfig.from_dict({"dataset": "countries", "model": "refactor", "relation_loss": 0.5, **settings})


def test_it_is_learned_at_infinite_depth(tmp_path: Path) -> None:
    """What it predicts better for it are relations."""
    likelihoods = []
    for weight in (0.0, 1.0):
        run = refactorgnn.train(
            "countries",
            out=tmp_path / str(weight),
            progress=False,
            model="refactor",
            layers="inf",
            scorer="complex",
            dim=16,
            mask=0,
            parts=4,
            epochs=10,
            validate_every=10,
            alpha=0.1,
            learning_rate=0.1,
            relation_loss=weight,
        )
        model = run.load_model()
        assert isinstance(model, InfiniteReFactorGNN)
        index = run.graph.queries("train")
        s, o = model.states[index.subjects[index.answers.rows], None], model.states[index.answers.columns, None]
        scores = model.scorer.score(s, model.relation_embeddings[None], o)
        asked = index.relations[index.answers.rows]
        likelihoods.append(torch.log_softmax(scores, 1)[torch.arange(len(asked)), asked].mean().item())
    assert likelihoods[1] > likelihoods[0] + 0.05
