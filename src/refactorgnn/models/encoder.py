"""What all models share that compute entity states from features and facts, on any graph."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.data.queries import QueryIndex
from refactorgnn.data.vocabulary import Vocabulary
from refactorgnn.models.base import EmbeddingScorer, LinkPredictor, QueryScorer
from refactorgnn.models.concatenated import ConcatenatedScorer
from refactorgnn.models.features import Features
from refactorgnn.models.links import LinkScorer, LinkWeights
from refactorgnn.ops.nll import AddedScores
from refactorgnn.scorers import Scorer


class StateEncoder(LinkPredictor):
    """A model whose entity states are ``propagate(features)``: inductive, since neither needs to know the entities.

    Bound to a graph, it computes the states of all its entities over its facts and scores questions with a registered
    scorer, the decoder: the same for every encoder.

    Args:
        relations: The relations; reciprocals are added.
        features: Where the states of the entities start.
        num_draws: How many random draws of the features are averaged when answering.
        links: Whether to learn what facts between two entities say about others (:mod:`refactorgnn.models.links`).
    """

    scorer: Scorer

    def __init__(self, relations: Vocabulary, features: Features, *, num_draws: int = 1, links: bool = False) -> None:
        super().__init__(relations)
        self.features = features
        self.num_draws = num_draws
        self.links = LinkWeights(2 * len(relations)) if links else None

    @property
    @abstractmethod
    def relation_embeddings(self) -> nn.Parameter:
        """What the decoder knows of relations and their reciprocals; shape ``(2 * num_relations, relation_dim)``."""

    @abstractmethod
    def propagate(self, states: Tensor, queries: QueryIndex) -> Tensor:
        """The states of the entities after all layers over the facts of ``queries``.

        Args:
            states: The features, shape ``(num_entities, dim)``.
            queries: The facts that carry messages, reciprocals included.
        """

    def encode(self, graph: KnowledgeGraph, queries: QueryIndex, draw: int | None = 0) -> Tensor:
        """The states of all entities of ``graph``, from their features on; shape ``(num_entities, dim)``."""
        return self.propagate(self.features(graph, queries, draw), queries)

    def added_scores(self, facts: QueryIndex, questions: QueryIndex) -> AddedScores | None:
        """What ``facts`` add to the scores of all entities as answers to ``questions``, if the model learns that."""
        if self.links is None:
            return None
        added: AddedScores = self.links(facts.links_from(questions.subjects), questions.relations, facts.weights)
        return added

    @torch.no_grad()
    def bind(self, graph: KnowledgeGraph, message_splits: Sequence[str] = ("train",)) -> QueryScorer:
        """Compute the states of the graph's entities, for each random draw."""
        relations = self.relation_embeddings.detach()
        queries = graph.queries(*message_splits).to(relations.device)
        draws = range(self.num_draws)
        members: list[QueryScorer] = [
            EmbeddingScorer(self.scorer, self.encode(graph, queries, draw), relations) for draw in draws
        ]
        weights = [1 / len(draws)] * len(draws)
        if self.links is not None:
            members, weights = [*members, LinkScorer(self.links, queries)], [*weights, 1.0]
        return members[0] if len(members) == 1 else ConcatenatedScorer(members, weights)
