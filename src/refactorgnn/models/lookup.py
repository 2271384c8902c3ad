"""The factorisation model (FM): a lookup table of entity states, trained with 1-vs-all cross-entropy."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, embedding

from refactorgnn import autograd_path
from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.data.queries import QueryIndex
from refactorgnn.data.vocabulary import Vocabulary
from refactorgnn.errors import UserError
from refactorgnn.models.base import EmbeddingScorer, LinkPredictor
from refactorgnn.ops import negative_log_likelihood
from refactorgnn.relation_prediction import check_relation_loss, relation_loss
from refactorgnn.scorers import DotScorer, Scorer, make_scorer


class Lookup(LinkPredictor):
    """A factorisation model: one learned state for each entity, one embedding for each relation and its reciprocal.

    It answers about the entities it was trained on only; that is what ReFactor GNNs overcome.

    Args:
        entities: The entities to learn.
        relations: The relations to learn; reciprocals are added.
        scorer: The name of a registered scorer.
        dim: The width of an entity state.
        init_scale: The standard deviation of the initial states and embeddings.
        dropout: The share of the numbers of subject and relation that is dropped while training.
        n3: The weight ``λ`` of the N3 regulariser on the factors of each triple (Lacroix et al., 2018).
        relation_loss: The weight ``μ`` of predicting the relation of each triple as well (Chen et al., 2021); above 0
            the scorer must be bilinear.
        seed: The seed of the initial states.
    """

    uses_facts = False

    def __init__(
        self,
        entities: Vocabulary,
        relations: Vocabulary,
        scorer: str = "distmult",
        dim: int = 256,
        *,
        init_scale: float = 1e-3,
        dropout: float = 0.0,
        n3: float = 0.0,
        relation_loss: float = 0.0,
        seed: int = 0,
    ) -> None:
        super().__init__(relations)
        self.entity_names = entities
        self.scorer = make_scorer(scorer, dim)
        check_relation_loss(relation_loss, self.scorer)
        self.dropout = dropout
        self.n3 = n3
        self.relation_loss = relation_loss
        generator = torch.Generator().manual_seed(seed)
        shapes = (len(entities), dim), (2 * len(relations), self.scorer.relation_dim)
        tables = [init_scale * torch.randn(shape, generator=generator) for shape in shapes]
        self.states, self.relations = (nn.Parameter(table) for table in tables)

    def bind(self, graph: KnowledgeGraph, message_splits: Sequence[str] = ("train",)) -> EmbeddingScorer:
        """Look the states of the graph's entities up; ``message_splits`` do not matter to this model.

        Raises:
            UserError: if the graph has entities the model has not been trained on.
        """
        ids = known_entity_ids(self.entity_names, graph, "a lookup model")
        states, relations = self.states.detach(), self.relations.detach()
        return EmbeddingScorer(self.scorer, states[ids.to(states.device)], relations)

    def loss(self, batch: QueryIndex, memory_budget: int | None = None) -> Tensor:
        """The mean over ``batch`` of ``−log P(o | s, r) + λ (‖s‖³ + ‖r‖³ + ‖o‖³) − μ log P(r | s, o)``."""
        return self.total_loss(batch, memory_budget) / batch.num_triples

    def total_loss(self, batch: QueryIndex, memory_budget: int | None = None) -> Tensor:
        """The sum whose mean :meth:`loss` is."""
        return factorisation_loss(
            self.scorer,
            self.states,
            self.relations,
            batch,
            dropout_rate=self.dropout if self.training else 0.0,
            n3=self.n3,
            relation_weight=self.relation_loss,
            memory_budget=memory_budget,
        )


def factorisation_loss(
    scorer: Scorer,
    states: Tensor,
    relations: Tensor,
    batch: QueryIndex,
    *,
    dropout_rate: float,
    n3: float,
    relation_weight: float = 0.0,
    memory_budget: int | None,
) -> Tensor:
    """The sum over the triples of ``batch`` of ``−log P(o | s, r) + λ (‖s‖³ + ‖r‖³ + ‖o‖³) − μ log P(r | s, o)``.

    Objects compete with all entities, relations with all relations and their reciprocals.
    """
    subjects, chosen = embedding(batch.subjects, states), embedding(batch.relations, relations)
    dropped_s, dropped_r = dropout(subjects, dropout_rate), dropout(chosen, dropout_rate)
    if isinstance(scorer, DotScorer):
        queries, candidates = scorer.query(dropped_s, dropped_r), scorer.candidates(states)
        total = negative_log_likelihood(queries, candidates, batch.answers, memory_budget=memory_budget)
    else:
        total = autograd_path.negative_log_likelihood(
            scorer, dropped_s, dropped_r, states, batch.answers, memory_budget
        )
    if relation_weight:
        of_relations = relation_loss(scorer, dropped_s, states, relations, batch, memory_budget)
        total = total + relation_weight * of_relations
    if not n3:
        return total
    # A complex number counts once, by its modulus; few of all entities are objects of a batch.
    counts = batch.answers.counts.to(subjects.dtype)
    objects, times = torch.unique(batch.answers.columns, return_counts=True)
    of_queries = torch.dot(counts, scorer.n3_norm(subjects) + scorer.n3_norm(chosen))
    of_objects = torch.dot(times.to(counts.dtype), scorer.n3_norm(embedding(objects, states)))
    return total + n3 * (of_queries + of_objects)


def known_entity_ids(entities: Vocabulary, graph: KnowledgeGraph, model: str) -> Tensor:
    """The ids in ``entities`` of the entities of ``graph``.

    Raises:
        UserError: if some are unknown.
    """
    ids = torch.from_numpy(entities.ids(graph.entities.names))
    unknown = torch.nonzero(ids < 0).flatten()
    if len(unknown):
        name = graph.entities[int(unknown[0])]
        raise UserError(
            f"{model} knows only the entities it was trained on, and {len(unknown):,} of the "
            f"{graph.num_entities:,} entities of graph {graph.name!r} are new to it, such as {name!r}: "
            "evaluate it on the graph it was trained on."
        )
    return ids
