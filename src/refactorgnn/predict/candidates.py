"""The candidates of a question: their scores and log-odds, which are known already, which are of the right kind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from refactorgnn.data.queries import QueryIndex
from refactorgnn.models.base import QueryScorer
from refactorgnn.ops.chunked import chunks, rows_within
from refactorgnn.ops.sparse import SparsePattern

# Bytes of |V|-wide temporaries, whatever the number of questions.
DEFAULT_ANSWER_BUDGET = 128 * 2**20
# |V|-wide float64 matrices alive at once: scores, log-odds and what they are made of.
_BUFFERS = 6
# Log-odds are kept within ±40: there a probability is 0 or 1 to the last digit of a float64.
MOST_LOG_ODDS = 40.0


@dataclass(frozen=True)
class ScoredQuestions:
    """A chunk of questions with all their candidates.

    Args:
        places: Which of the questions asked these are.
        scores: The model's scores; shape ``(num_questions, num_entities)``.
        log_odds: See :func:`log_odds`; of the same shape, float64.
        known: Whether the graph has the fact; of the same shape.
        itself: Whether it is the subject, where that is no answer (:func:`irreflexive`); of the same shape.
    """

    places: slice
    scores: Tensor
    log_odds: Tensor
    known: Tensor
    itself: Tensor


def scored_questions(
    bound: QueryScorer,
    known: QueryIndex,
    subjects: Tensor,
    relations: Tensor,
    about_others: Tensor,
    memory_budget: int = DEFAULT_ANSWER_BUDGET,
) -> Iterator[ScoredQuestions]:
    """Score all entities as answers to questions ``(subject, relation, ?)``, chunk by chunk: one product for each.

    Args:
        bound: The model, bound to the graph.
        known: The facts that count as known.
        subjects: Shape ``(num_questions,)``.
        relations: Shape ``(num_questions,)``, reciprocals included.
        about_others: Of each relation and reciprocal, whether nothing is an answer about itself.
        memory_budget: Bytes of temporaries.
    """
    device = bound.device
    rows = rows_within(memory_budget, bound.num_entities, _BUFFERS, itemsize=8, device=device)
    for places in chunks(len(subjects), rows):
        asked = subjects[places], relations[places]
        with torch.no_grad():
            scores = bound.scores(asked[0].to(device), asked[1].to(device))
        is_known = dense(known.objects_of(*asked)).to(device)
        is_itself = itself(*asked, about_others, bound.num_entities).to(device)
        yield ScoredQuestions(places, scores, log_odds(scores, is_known | is_itself), is_known, is_itself)


def itself(subjects: Tensor, relations: Tensor, about_others: Tensor, num_entities: int) -> Tensor:
    """Which candidate is the subject, where that is no answer; shape ``(num_questions, num_entities)``."""
    found = torch.zeros(len(subjects), num_entities, dtype=torch.bool)
    rows = torch.nonzero(about_others[relations]).flatten()
    found[rows, subjects[rows]] = True
    return found


def dense(pattern: SparsePattern) -> Tensor:
    """The pattern as a matrix of booleans."""
    matrix = torch.zeros(pattern.num_rows, pattern.num_columns, dtype=torch.bool)
    matrix[pattern.rows, pattern.columns] = True
    return matrix


def log_odds(scores: Tensor, known: Tensor) -> Tensor:
    """``s_u − log Σ exp(s_w)`` over the candidates ``w ≠ u`` that are not known: the softmax's log-odds of ``u``.

    A score is a logit among the candidates of one question and says nothing beside those of another; log-odds can be
    compared. Known answers would take the mass from what is still to be found, so they do not compete, nor does the
    subject where it is no answer; a known answer itself is seen as if it were not known.

    Args:
        scores: Shape ``(num_questions, num_entities)``.
        known: Of the same shape.

    Returns:
        Float64 within ±40; within a question, ascending with the score.
    """
    wide = scores.double()
    total = torch.logsumexp(wide.masked_fill(known, -torch.inf), dim=1, keepdim=True)
    return odds_given_total(wide, known, total)


def odds_given_total(scores: Tensor, known: Tensor, total: Tensor) -> Tensor:
    """:func:`log_odds` of some candidates of a question whose ``log Σ exp(s_w)`` over all that is not known is given.

    Args:
        scores: Float64.
        known: Of the same shape.
        total: Of a shape that broadcasts with it.
    """
    behind = scores - total
    # log(Σ_{w≠u} / Σ) = log(1 − P(u)); rounding may lift a lone candidate's share above 1.
    others = torch.where(known, 0.0, torch.log(-torch.expm1(behind.clamp(max=0.0))))
    return (behind - others).clamp(-MOST_LOG_ODDS, MOST_LOG_ODDS)


def irreflexive(queries: QueryIndex) -> Tensor:
    """Of each relation and reciprocal, whether no fact links an entity to itself by it.

    Then none is an answer to a question about itself, however well its two states agree.

    Args:
        queries: The facts, reciprocals included.
    """
    rows = queries.answers.rows
    loops = queries.relations[rows[queries.subjects[rows] == queries.answers.columns]]
    return torch.ones(queries.num_relations, dtype=torch.bool).index_fill_(0, loops, False)


class Kinds:
    """Which entities the facts show as objects of each relation and reciprocal: its range, its domain.

    Args:
        queries: The facts, reciprocals included.
    """

    def __init__(self, queries: QueryIndex) -> None:
        answers, span = queries.answers, queries.num_entities
        seen = torch.unique(queries.relations[answers.rows] * span + answers.columns)
        self._pattern = SparsePattern.from_rows(seen // span, seen % span, queries.num_relations, span)

    def of(self, relation: int) -> Tensor:
        """The entities that were seen as objects of ``relation``, sorted."""
        return self._pattern.slice_rows(slice(relation, relation + 1)).columns

    def masks(self, relations: Tensor) -> Tensor:
        """Whether each entity was seen as an object of each relation; shape ``(len(relations), num_entities)``."""
        return dense(self._pattern.take_rows(relations))
