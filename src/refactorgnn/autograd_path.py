"""The log-likelihood and its gradient for any smooth score function: the paper's general lemma, by autograd.

A :class:`~refactorgnn.scorers.DotScorer` never comes here. Queries are taken in chunks; each chunk's ``b×|V|`` scores
are differentiated and dropped, and recomputed if the result is itself differentiated, so memory stays in the budget.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import softplus
from torch.utils.checkpoint import checkpoint

from refactorgnn.data.queries import QueryIndex
from refactorgnn.ops.chunked import chunks, rows_within
from refactorgnn.ops.sparse import SparsePattern
from refactorgnn.scorers import Scorer

# A score that is no product makes intermediates of b×|V|×dim; autograd keeps a few of them.
_BUFFERS = 6


def log_likelihood_gradient(
    scorer: Scorer, states: Tensor, relations: Tensor, queries: QueryIndex, n_term: str, memory_budget: int | None
) -> Tensor:
    """As :func:`refactorgnn.likelihood.log_likelihood_gradient`, for any scorer."""
    rows = rows_within(
        memory_budget, queries.num_entities, _BUFFERS * scorer.dim, states.element_size(), device=states.device
    )
    differentiate_again = torch.is_grad_enabled() and (states.requires_grad or relations.requires_grad)
    total = torch.zeros_like(states)
    for chunk in chunks(queries.num_queries, rows):
        batch = queries.take(torch.arange(chunk.start, chunk.stop, device=queries.subjects.device))
        if differentiate_again:
            part: Tensor = checkpoint(
                _batch_gradient, scorer, states, relations, batch, n_term, True, use_reentrant=False
            )
        else:
            part = _batch_gradient(scorer, states.detach(), relations.detach(), batch, n_term, False)
        total = total + part
    return total


def negative_log_likelihood(
    scorer: Scorer,
    subjects: Tensor,
    relations: Tensor,
    states: Tensor,
    answers: SparsePattern,
    memory_budget: int | None,
) -> Tensor:
    """As :func:`refactorgnn.ops.negative_log_likelihood`, for any scorer; the backward pass recomputes the scores."""
    return _summed_over_chunks(_batch_loss, scorer, subjects, relations, states, (answers,), memory_budget)


def _batch_loss(scorer: Scorer, subjects: Tensor, relations: Tensor, states: Tensor, answers: SparsePattern) -> Tensor:
    scores = scorer.score_all(subjects, relations, states)
    positive = scores[answers.rows, answers.columns].sum()
    return answers.counts.to(scores.dtype) @ torch.logsumexp(scores, dim=1) - positive


def filtered_negative_log_likelihood(
    scorer: Scorer,
    subjects: Tensor,
    relations: Tensor,
    states: Tensor,
    targets: SparsePattern,
    known: SparsePattern,
    memory_budget: int | None,
) -> Tensor:
    """As :func:`refactorgnn.ops.filtered_negative_log_likelihood`, for any scorer."""
    patterns = (targets, known)
    return _summed_over_chunks(_filtered_batch_loss, scorer, subjects, relations, states, patterns, memory_budget)


def _filtered_batch_loss(
    scorer: Scorer, subjects: Tensor, relations: Tensor, states: Tensor, targets: SparsePattern, known: SparsePattern
) -> Tensor:
    scores = scorer.score_all(subjects, relations, states)
    hidden = torch.zeros_like(scores, dtype=torch.bool)
    hidden[known.rows, known.columns] = True
    # Far below any score instead of −∞, whose derivative is no number where a row has no negatives at all.
    negatives = torch.logsumexp(scores.masked_fill(hidden, -1e30), dim=1)
    return softplus(negatives[targets.rows] - scores[targets.rows, targets.columns]).sum()


def _summed_over_chunks(
    batch_loss: Callable[..., Tensor],
    scorer: Scorer,
    subjects: Tensor,
    relations: Tensor,
    states: Tensor,
    patterns: tuple[SparsePattern, ...],
    memory_budget: int | None,
) -> Tensor:
    """The sum of a loss over chunks of queries, each with its rows of ``patterns``; scores are not kept."""
    rows = rows_within(memory_budget, len(states), _BUFFERS * scorer.dim, states.element_size(), device=states.device)
    # 0, but with a derivative: a process whose share of a batch is empty has one too.
    total: Tensor = subjects[:0].sum() + relations[:0].sum() + states[:0].sum()
    for chunk in chunks(len(subjects), rows):
        parts = (pattern.slice_rows(chunk) for pattern in patterns)
        total = total + checkpoint(
            batch_loss, scorer, subjects[chunk], relations[chunk], states, *parts, use_reentrant=False
        )
    return total


def _batch_gradient(
    scorer: Scorer, states: Tensor, relations: Tensor, batch: QueryIndex, n_term: str, create_graph: bool
) -> Tensor:
    with torch.enable_grad():
        # Two handles on the same states, so that autograd tells the subject's gradient from the object's.
        as_subject, as_object = _handle(states), _handle(states)
        psi = relations[batch.relations]
        scores = scorer.score_all(as_subject[batch.subjects], psi, as_object)

        def gradient(outputs: Tensor, by: Tensor, weights: Tensor) -> Tensor:
            (result,) = torch.autograd.grad(outputs, by, weights, create_graph=create_graph, retain_graph=True)
            return result

        P = torch.softmax(scores, dim=1)
        A = torch.zeros_like(scores)
        A.index_put_((batch.answers.rows, batch.answers.columns), A.new_ones(()), accumulate=True)
        if n_term == "none":
            return gradient(scores, as_subject, A) + gradient(scores, as_object, A * (1 - P))
        D = A - batch.answers.counts[:, None] * P
        total = gradient(scores, as_subject, D) + gradient(scores, as_object, D)
        if n_term == "paper":
            total = total + gradient(scores, as_object, _own_candidate_weights(P, batch))
        return total


def _own_candidate_weights(P: Tensor, batch: QueryIndex) -> Tensor:
    """``(c_i − loops_i) P(s_i|s_i,r_i)`` at the subject's own place, 0 elsewhere."""
    place = batch.subjects[:, None]
    others = (batch.answers.counts - batch.self_loops).to(P.dtype)[:, None]
    return torch.zeros_like(P).scatter(1, place, others * P.gather(1, place))


def _handle(states: Tensor) -> Tensor:
    return states.view_as(states) if states.requires_grad else states.detach().requires_grad_()
