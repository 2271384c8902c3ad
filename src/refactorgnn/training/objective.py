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
    dropout_rate: float,
    memory_budget: int,
) -> Tensor:
    """The sum over the target triples of their negative log-likelihood among the candidates that are no known answers.

    Args:
        scorer: The decoder.
        states: The states of all candidates, shape ``(num_candidates, dim)``.
        relations: The relation embeddings.
        targets: The triples to predict, grouped; subjects and objects are rows of ``states``.
        known: The known answers of each question of ``targets``.
        dropout_rate: The share of the numbers of subject and relation that is dropped.
        memory_budget: Bytes of temporaries.
    """
    subjects = dropout(states[targets.subjects], dropout_rate)
    chosen = dropout(relations[targets.relations], dropout_rate)
    if isinstance(scorer, DotScorer):
        queries, candidates = scorer.query(subjects, chosen), scorer.candidates(states)
        return filtered_negative_log_likelihood(
            queries, candidates, targets.answers, known, memory_budget=memory_budget
        )
    return autograd_path.filtered_negative_log_likelihood(
        scorer, subjects, chosen, states, targets.answers, known, memory_budget
    )
