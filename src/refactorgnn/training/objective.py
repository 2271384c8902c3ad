"""The loss that all encoders share: filtered 1-vs-all cross-entropy of the decoder's scores."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import dropout

from refactorgnn import autograd_path
from refactorgnn.data.queries import QueryIndex
from refactorgnn.ops import AddedScores, SparsePattern, filtered_negative_log_likelihood
from refactorgnn.relation_prediction import relation_loss
from refactorgnn.row_work import gathered_queries
from refactorgnn.scorers import DotScorer, Scorer
from refactorgnn.training.config import MessagePassingConfig


def total_loss(
    scorer: Scorer,
    states: Tensor,
    relations: Tensor,
    targets: QueryIndex,
    known: SparsePattern,
    *,
    candidates: Tensor | None = None,
    added: AddedScores | None = None,
    relation_weight: float = 0.0,
    config: MessagePassingConfig,
) -> Tensor:
    """The sum over the target triples of their negative log-likelihood among the candidates that are no known answers.

    Args:
        scorer: The decoder.
        states: The states of the entities, shape ``(num_entities, dim)``.
        relations: The relation embeddings.
        targets: The triples to predict, grouped; their subjects are rows of ``states``, their objects candidates.
        known: The known answers of each question of ``targets`` among the candidates.
        candidates: The states of the candidates, shape ``(num_candidates, dim)``; all entities if not given.
        added: What the scores have beside those of the decoder, if it is a dot product.
        relation_weight: That of predicting the relations of the targets as well, whose objects are then entities.
        config: The dropout of subject and relation, the weight of N3 on the relations, the memory budget.
    """
    budget = config.memory_budget
    candidates = states if candidates is None else candidates
    if isinstance(scorer, DotScorer):
        queries = _queries(scorer, states, relations, targets, config.dropout)
        total = filtered_negative_log_likelihood(
            queries,
            scorer.candidates(candidates),
            targets.answers,
            known,
            targets.weights,
            added=added,
            memory_budget=budget,
        )
    else:
        assert targets.weights is None, "weighted facts are for dot products"
        assert added is None, "added scores are for dot products"
        dropped = _dropped(states, relations, targets, config.dropout)
        total = autograd_path.filtered_negative_log_likelihood(
            scorer, *dropped, candidates, targets.answers, known, budget
        )
    if relation_weight:
        subjects = dropout(states.index_select(0, targets.subjects), config.dropout)
        total = total + relation_weight * relation_loss(scorer, subjects, candidates, relations, targets, budget)
    if config.relation_n3:
        chosen = relations.index_select(0, targets.relations)
        counts = targets.counts.to(chosen.dtype)
        total = total + config.relation_n3 * torch.dot(counts, scorer.n3_norm(chosen))
    return total


def _queries(scorer: DotScorer, states: Tensor, relations: Tensor, targets: QueryIndex, rate: float) -> Tensor:
    if not rate:
        return gathered_queries(scorer, states, relations, targets.subjects, targets.relations)
    return scorer.query(*_dropped(states, relations, targets, rate))


def _dropped(states: Tensor, relations: Tensor, targets: QueryIndex, rate: float) -> tuple[Tensor, Tensor]:
    """The states of the subjects and the embeddings of the relations, some of their numbers dropped."""
    subjects = dropout(states.index_select(0, targets.subjects), rate)
    return subjects, dropout(relations.index_select(0, targets.relations), rate)
