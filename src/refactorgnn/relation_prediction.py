"""Predicting the relation of a fact as well, ``log P(r | s, o)`` (Chen et al., 2021): its likelihood and its gradient.

A bilinear score is linear in the relation, ``Γ(s, r, o) = u · ψ_r`` with ``u = ∂Γ/∂ψ``: a question of its own for each
fact, whose candidates are all relations and their reciprocals.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import dropout
from torch.utils.checkpoint import checkpoint

from refactorgnn.data.queries import QueryIndex
from refactorgnn.errors import UserError
from refactorgnn.ops import SparsePattern, negative_log_likelihood, residual_products
from refactorgnn.ops.chunked import chunks, rows_of
from refactorgnn.scorers import DotScorer, Scorer

# Arrays of d numbers for each fact that the gradient holds at once.
_ARRAYS = 12


def check_relation_loss(weight: float, scorer: Scorer) -> None:
    """Refuse to predict relations with a score that is not linear in them."""
    if weight < 0:
        raise UserError(f"relation_loss={weight} would unlearn relations: choose 0 or more.")
    if weight and not can_predict_relations(scorer):
        raise UserError(f"relation_loss needs a bilinear scorer, which {scorer.name!r} is not: leave it out.")


def can_predict_relations(scorer: Scorer) -> bool:
    """Whether the score is linear in the relation."""
    return isinstance(scorer, DotScorer) and scorer.is_bilinear


def relation_loss(
    scorer: Scorer, subjects: Tensor, states: Tensor, relations: Tensor, facts: QueryIndex, memory_budget: int | None
) -> Tensor:
    """``−Σ log P(r | s, o)`` over facts.

    Args:
        scorer: The score function, a bilinear one.
        subjects: The state of the subject of each query of ``facts``, possibly with dropout.
        states: The states of all entities.
        relations: ``ψ``.
        facts: The facts, grouped.
        memory_budget: Bytes of temporaries.
    """
    assert isinstance(scorer, DotScorer), "settings refuse others"
    assert facts.weights is None, "facts of infinite depth, and of lookup models, have none"
    rows, objects = facts.answers.rows, facts.answers.columns
    questions = scorer.relation_query(subjects.index_select(0, rows), states.index_select(0, objects))
    answers = _answers(facts.relations.index_select(0, rows), len(relations))
    return negative_log_likelihood(questions, relations, answers, memory_budget=memory_budget)


def relation_gradient(
    scorer: Scorer,
    states: Tensor,
    relations: Tensor,
    facts: QueryIndex,
    *,
    dropout_rate: float = 0.0,
    memory_budget: int | None = None,
) -> Tensor:
    """The gradient of ``Σ log P(r | s, o)`` by the states; shape ``(num_entities, dim)``.

    Differentiable in states and relations; what that needs is computed again, some facts at a time.

    Args:
        scorer: The score function, a bilinear one.
        states: ``H``.
        relations: ``ψ``.
        facts: The facts, grouped, with their weights if they have any.
        dropout_rate: The share of the numbers of subjects that is dropped.
        memory_budget: Bytes of temporaries.
    """
    assert isinstance(scorer, DotScorer), "settings refuse others"
    rows, objects = facts.answers.rows, facts.answers.columns
    subjects, asked = facts.subjects.index_select(0, rows), facts.relations.index_select(0, rows)
    total = torch.zeros_like(states)
    at_once = rows_of(memory_budget, _ARRAYS * states.shape[1] * states.element_size(), states.device)
    for some in chunks(len(rows), at_once):
        weights = None if facts.weights is None else facts.weights[some]
        given = subjects[some], objects[some], asked[some], weights, dropout_rate, memory_budget
        wanted = partial(_wanted, scorer, *given)
        if torch.is_grad_enabled():
            of_subjects, of_objects = checkpoint(wanted, states, relations, use_reentrant=False)
        else:
            of_subjects, of_objects = wanted(states, relations)
        total.index_add_(0, subjects[some], of_subjects).index_add_(0, objects[some], of_objects)
    return total


def _wanted(
    scorer: DotScorer,
    subjects: Tensor,
    objects: Tensor,
    asked: Tensor,
    weights: Tensor | None,
    dropout_rate: float,
    memory_budget: int | None,
    states: Tensor,
    relations: Tensor,
) -> tuple[Tensor, Tensor]:
    """What each fact wants of its subject and of its object.

    With ``w = ψ_r − Σ P ψ``, what is wanted of ``u``, that is the gradient of the score ``Γ(s, w, o)``.
    """
    s, o = states.index_select(0, subjects), states.index_select(0, objects)
    kept = dropout(torch.ones_like(s), dropout_rate) if dropout_rate else 1
    s = s * kept
    questions, answers = scorer.relation_query(s, o), _answers(asked, len(relations))
    wanted = residual_products(questions, relations, answers, weights, memory_budget=memory_budget)[1].to(states.dtype)
    of_subjects = scorer.adjoint(scorer.candidates(o), s, wanted) * kept
    return of_subjects, scorer.candidates_adjoint(scorer.query(s, wanted), o)


def _answers(asked: Tensor, num_relations: int) -> SparsePattern:
    """The one answer of each question."""
    return SparsePattern(torch.arange(len(asked) + 1, device=asked.device), asked, num_relations)
