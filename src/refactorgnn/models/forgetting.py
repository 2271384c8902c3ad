"""Active forgetting: a lookup table that is reset to the features every so many steps of an ordinary optimiser."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.data.queries import QueryIndex
from refactorgnn.data.vocabulary import Vocabulary
from refactorgnn.errors import UserError
from refactorgnn.models.base import EmbeddingScorer, LinkPredictor, initial_relations
from refactorgnn.models.features import Features
from refactorgnn.models.lookup import factorisation_loss
from refactorgnn.scorers import make_scorer

OPTIMIZERS: dict[str, type[torch.optim.Optimizer]] = {
    "adagrad": torch.optim.Adagrad,
    "adam": torch.optim.Adam,
    "sgd": torch.optim.SGD,
}

LEARNED_FEATURES = (
    "active forgetting resets to its features and cannot learn them: choose random features, or texts of the encoder's "
    "own width as dim."
)


class ForgettingLookup(LinkPredictor):
    """A factorisation model that keeps its relations and forgets its entities (Chen et al., NeurIPS 2023).

    The table of entity states is trained by an ordinary optimiser and reset to the features, its running sums with it,
    after ``num_steps`` steps, so the relations learn to be of use to entities that have just been met. Bound to any
    graph, the model does what it did in training: ``num_steps`` steps from the features, the relations held fixed. With
    whole-graph batches these are the layers of a ReFactor GNN of depth ``num_steps``.

    Args:
        relations: The relations; reciprocals are added.
        features: Where the states start; they must have no parameters, since nothing is learned through a reset.
        scorer: The name of a registered scorer.
        dim: The width of an entity state.
        num_steps: Steps between two resets.
        batch_size: Questions in a step; 0: all.
        optimizer: The optimiser of the states: ``"adagrad"``, ``"adam"`` or ``"sgd"``.
        learning_rate: Its step size.
        weight_decay: Its weight decay.
        dropout: The share of the numbers of subject and relation that is dropped while training.
        n3: The weight of the N3 regulariser on the factors of each triple.
        init_scale: The standard deviation of the initial relation embeddings.
        seed: The seed of the relations and of the order of questions when answering.
        memory_budget: Bytes of temporaries.
    """

    def __init__(
        self,
        relations: Vocabulary,
        features: Features,
        scorer: str = "distmult",
        dim: int = 256,
        *,
        num_steps: int = 100,
        batch_size: int = 256,
        optimizer: str = "adagrad",
        learning_rate: float = 0.1,
        weight_decay: float = 0.0,
        dropout: float = 0.0,
        n3: float = 0.0,
        init_scale: float = 1e-3,
        seed: int = 0,
        memory_budget: int | None = None,
    ) -> None:
        super().__init__(relations)
        if any(True for _ in features.parameters()):
            raise UserError(LEARNED_FEATURES)
        self.features = features
        self.scorer = make_scorer(scorer, dim)
        self.num_steps = num_steps
        self.batch_size = batch_size
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.dropout = dropout
        self.n3 = n3
        self.seed = seed
        self.memory_budget = memory_budget
        self.relations = initial_relations(relations, self.scorer, init_scale, seed)

    def loss(self, states: Tensor, batch: QueryIndex) -> Tensor:
        """The sum over the triples of ``batch`` of their regularised negative log-likelihood."""
        return factorisation_loss(
            self.scorer,
            states,
            self.relations,
            batch,
            dropout_rate=self.dropout if self.training else 0.0,
            n3=self.n3,
            memory_budget=self.memory_budget,
        )

    def batches(self, queries: QueryIndex, generator: torch.Generator | None = None) -> Iterator[QueryIndex]:
        """The ``num_steps`` batches of one life of the table: passes over the questions, each in a new order."""
        size = min(self.batch_size or queries.num_queries, queries.num_queries)
        rows = torch.empty(0, dtype=torch.int64)
        for _ in range(self.num_steps):
            if size == queries.num_queries:
                yield queries
                continue
            if len(rows) < size:
                rows = torch.randperm(queries.num_queries, generator=generator)
            yield queries.take(rows[:size].to(queries.subjects.device))
            rows = rows[size:]

    def new_optimizer(self, states: nn.Parameter) -> torch.optim.Optimizer:
        """An optimiser for a table that has just been reset."""
        options = {"lr": self.learning_rate, "weight_decay": self.weight_decay}
        return OPTIMIZERS[self.optimizer]([states], **options)  # type: ignore[arg-type]

    def bind(self, graph: KnowledgeGraph, message_splits: Sequence[str] = ("train",)) -> EmbeddingScorer:
        """Meet the graph's entities: ``num_steps`` steps from their features, over its facts."""
        queries = graph.queries(*message_splits).to(self.relations.device)
        relations = self.relations.detach()
        with torch.no_grad():
            states = nn.Parameter(self.features(graph, queries).clone())
        optimizer = self.new_optimizer(states)
        generator = torch.Generator().manual_seed(self.seed)
        if queries.num_queries:
            with torch.enable_grad():
                for batch in self.batches(queries, generator):
                    (states.grad,) = torch.autograd.grad(self.loss(states, batch) / batch.num_triples, states)
                    optimizer.step()
        return EmbeddingScorer(self.scorer, states.detach(), relations)
