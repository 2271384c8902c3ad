"""The contract of every model: bound to a graph, it scores all entities as answers to questions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.data.vocabulary import Vocabulary
from refactorgnn.errors import UserError
from refactorgnn.ops.chunked import matmul, rows_within
from refactorgnn.scorers import DotScorer, Scorer
from refactorgnn.seeds import RELATIONS, combined_seed

# Bytes of temporaries of a score that is no dot product.
_SCORE_BUDGET = 256 * 2**20


class QueryScorer(Protocol):
    """A model bound to a graph: the scores of all entities as answers to a batch of questions."""

    @property
    def num_entities(self) -> int:
        """The number of candidates."""

    @property
    def device(self) -> torch.device:
        """Where questions must be put."""

    def scores(self, subjects: Tensor, relations: Tensor) -> Tensor:
        """Scores of shape ``(num_questions, num_entities)``, freshly made: the caller may overwrite them."""


@runtime_checkable
class CandidateScorer(QueryScorer, Protocol):
    """A bound model to which a few candidates of a question cost much less than all of them."""

    def candidate_scores(self, subjects: Tensor, relations: Tensor, candidates: Tensor) -> Tensor:
        """The scores of ``candidates``, and of the same shape: ``(num_questions, num_candidates)``."""


class DotProductScorer(QueryScorer, Protocol):
    """A bound model whose scores are ``queries @ candidates.T``: what an index of vectors can search."""

    @property
    def candidates(self) -> Tensor | None:
        """Shape ``(num_entities, C)``."""

    def queries(self, subjects: Tensor, relations: Tensor) -> Tensor:
        """Shape ``(num_questions, C)``."""


class LinkPredictor(nn.Module, ABC):
    """A model that completes graphs.

    The contract is ``(graph, questions) → scores``, so that models without entity embeddings fit it as well: a model is
    bound to a graph once, which does whatever can be done before the questions are known (look up or compute entity
    states, index edges, …), and the result scores questions.

    Args:
        relations: The relations the model knows; a graph must use no others.
    """

    # Whether scores are probabilities, or confidences between 0 and 1, rather than logits.
    gives_probabilities: bool = False
    # Whether an answer depends on the facts that a model is bound to; a table of states has learned all it will know.
    uses_facts: bool = True

    def __init__(self, relations: Vocabulary) -> None:
        super().__init__()
        self.relation_names = relations

    @abstractmethod
    def bind(self, graph: KnowledgeGraph, message_splits: Sequence[str] = ("train",)) -> QueryScorer:
        """Prepare to answer questions about the entities of ``graph``.

        Args:
            graph: The graph, its relations numbered as the model's.
            message_splits: The facts the model may use to answer.
        """

    @property
    def num_parameters(self) -> int:
        """The number of learned numbers."""
        return sum(parameter.numel() for parameter in self.parameters() if parameter.requires_grad)


def initial_relations(relations: Vocabulary, scorer: Scorer, init_scale: float, seed: int) -> nn.Parameter:
    """Gaussian embeddings of the relations and their reciprocals; shape ``(2 * num_relations, relation_dim)``."""
    generator = torch.Generator().manual_seed(combined_seed(seed, RELATIONS))
    shape = 2 * len(relations), scorer.relation_dim
    return nn.Parameter(init_scale * torch.randn(shape, generator=generator))


def _check_finite(*tensors: Tensor) -> None:
    """Refuse infinities and NaN, unless a CUDA graph is being recorded, when there are no numbers to look at yet."""
    if tensors[0].is_cuda and torch.cuda.is_current_stream_capturing():
        return
    if not all(bool(torch.isfinite(tensor).all()) for tensor in tensors):
        raise UserError("the model holds numbers that are not finite: train it again with a smaller learning rate.")


class EmbeddingScorer:
    """Scores questions from entity states and relation embeddings: what models with embeddings bind to.

    Args:
        scorer: The score function.
        states: Shape ``(num_entities, dim)``.
        relations: Shape ``(2 * num_relations, relation_dim)``, reciprocals in the second half.
    """

    def __init__(self, scorer: Scorer, states: Tensor, relations: Tensor) -> None:
        _check_finite(states, relations)
        self.scorer = scorer
        self.states = states
        self.relations = relations
        self.candidates = scorer.candidates(states) if isinstance(scorer, DotScorer) else None

    @property
    def num_entities(self) -> int:
        """The number of candidates."""
        return self.states.shape[0]

    @property
    def device(self) -> torch.device:
        """Where questions must be put."""
        return self.states.device

    def queries(self, subjects: Tensor, relations: Tensor) -> Tensor:
        """What candidates are multiplied with, where the score is a dot product; shape ``(num_questions, C)``."""
        assert isinstance(self.scorer, DotScorer), "callers have asked for candidates first"
        return self.scorer.query(self.states[subjects], self.relations[relations])

    def scores(self, subjects: Tensor, relations: Tensor) -> Tensor:
        """The scores of all entities; shape ``(num_questions, num_entities)``."""
        if self.candidates is not None:
            return matmul(self.queries(subjects, relations), self.candidates.T)
        h, psi = self.states[subjects], self.relations[relations]
        rows = rows_within(_SCORE_BUDGET, self.num_entities, 4 * self.scorer.dim, device=self.device)
        parts = zip(h.split(rows), psi.split(rows), strict=True)
        return torch.cat([self.scorer.score_all(part_h, part_psi, self.states) for part_h, part_psi in parts])
