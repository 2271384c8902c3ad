"""Whether facts link two entities already: a member for ensembles, which learns nothing by itself.

In some graphs new facts join entities that known ones join, in others they never do. FB15k-237 is of the second kind by
construction: facts between two entities that a training fact joins were taken out of its validation and test splits. No
training on the training split can tell, for there many pairs are joined twice. The validation split can: it gives this
member its weight in an ensemble, or none.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.data.queries import QueryIndex
from refactorgnn.data.vocabulary import Vocabulary
from refactorgnn.models.base import LinkPredictor


class Unlinked(LinkPredictor):
    """Scores 1 for entities that no known fact links to the subject, in either direction, and 0 for the others.

    Args:
        relations: The relations.
    """

    gives_probabilities = True

    def __init__(self, relations: Vocabulary) -> None:
        super().__init__(relations)
        # There is no weight to tell the device by.
        self.register_buffer("place", torch.zeros(0), persistent=False)

    def bind(self, graph: KnowledgeGraph, message_splits: Sequence[str] = ("train",)) -> UnlinkedScorer:
        """Take the facts of some splits for known."""
        assert isinstance(self.place, Tensor)
        return UnlinkedScorer(graph.queries(*message_splits).to(self.place.device))


class UnlinkedScorer:
    """Which entities of a graph are not linked.

    Args:
        queries: The facts and their reciprocals.
    """

    def __init__(self, queries: QueryIndex) -> None:
        self.queries = queries

    @property
    def num_entities(self) -> int:
        """The number of candidates."""
        return self.queries.num_entities

    @property
    def device(self) -> torch.device:
        """Where questions must be put."""
        return self.queries.subjects.device

    def scores(self, subjects: Tensor, relations: Tensor) -> Tensor:
        """Shape ``(num_questions, num_entities)``; the relations do not matter."""
        linked = self.queries.links_from(subjects).objects
        scores = torch.ones(len(subjects), self.num_entities, device=self.device)
        scores[linked.rows, linked.columns] = 0.0
        return scores
