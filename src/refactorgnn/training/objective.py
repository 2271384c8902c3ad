"""The loss that all encoders share: filtered 1-vs-all cross-entropy of the decoder's scores."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import dropout

from refactorgnn import autograd_path
from refactorgnn.data.queries import QueryIndex
from refactorgnn.ops import SparsePattern, filtered_negative_log_likelihood
from refactorgnn.scorers import DotScorer, Scorer


def total_loss(
    scorer: Scorer,
    states: Tensor,
    relations: Tensor,
    targets: QueryIndex,
    known: SparsePattern,
    *,
    candidates: Tensor | None = None,
    dropout_rate: float,
    memory_budget: int,
) -> Tensor:
    """The sum over the target triples of their negative log-likelihood among the candidates that are no known answers.

    Args:
        scorer: The decoder.
        states: The states of the entities, shape ``(num_entities, dim)``.
        relations: The relation embeddings.
        targets: The triples to predict, grouped; their subjects are rows of ``states``, their objects candidates.
        known: The known answers of each question of ``targets`` among the candidates.
        candidates: The states of the candidates, shape ``(num_candidates, dim)``; all entities if not given.
        dropout_rate: The share of the numbers of subject and relation that is dropped.
        memory_budget: Bytes of temporaries.
    """
    subjects = dropout(states[targets.subjects], dropout_rate)
    chosen = dropout(relations[targets.relations], dropout_rate)
    candidates = states if candidates is None else candidates
    if isinstance(scorer, DotScorer):
        queries, keys = scorer.query(subjects, chosen), scorer.candidates(candidates)
        return filtered_negative_log_likelihood(queries, keys, targets.answers, known, memory_budget=memory_budget)
    return autograd_path.filtered_negative_log_likelihood(
        scorer, subjects, chosen, candidates, targets.answers, known, memory_budget
    )
