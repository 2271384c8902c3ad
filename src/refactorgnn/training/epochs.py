"""What an epoch is, for each kind of model.

All randomness of an epoch is seeded by ``(seed, epoch)``, so an epoch gives the same result whether the training came
to it in one go or was resumed before it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor
from torch.nn.functional import dropout

from refactorgnn import autograd_path
from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.data.queries import QueryIndex
from refactorgnn.errors import UserError
from refactorgnn.models.base import LinkPredictor
from refactorgnn.models.lookup import Lookup
from refactorgnn.models.refactor import ReFactorGNN
from refactorgnn.ops import filtered_negative_log_likelihood
from refactorgnn.scorers import DotScorer
from refactorgnn.seeds import combined_seed
from refactorgnn.training.config import LookupConfig, ReFactorConfig, TrainConfig


class Epochs(ABC):
    """Runs the epochs of a training.

    Args:
        config: The settings.
        graph: The graph to learn on.
        device: Where to compute.
    """

    def __init__(self, config: TrainConfig, graph: KnowledgeGraph, device: torch.device) -> None:
        self.config = config
        self.graph = graph
        self.device = device

    def run(self, optimizer: torch.optim.Optimizer, epoch: int) -> float:
        """One epoch; returns the mean loss of a triple."""
        torch.manual_seed(combined_seed(self.config.seed, epoch))
        mean = self._run(optimizer, epoch)
        if not torch.isfinite(torch.tensor(mean)):
            raise UserError(f"the loss is not a number in epoch {epoch}: choose a smaller learning rate or init scale.")
        return mean

    @abstractmethod
    def _run(self, optimizer: torch.optim.Optimizer, epoch: int) -> float: ...

    def _step(self, optimizer: torch.optim.Optimizer, loss: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()


class LookupEpochs(Epochs):
    """An epoch of a lookup model: one pass over the training questions, in shuffled batches."""

    def __init__(self, model: Lookup, config: LookupConfig, graph: KnowledgeGraph, device: torch.device) -> None:
        super().__init__(config, graph, device)
        self.batch_size = config.batch_size
        self.model = model
        self.queries = graph.queries("train").to(device)

    def _run(self, optimizer: torch.optim.Optimizer, epoch: int) -> float:
        order = torch.randperm(self.queries.num_queries).to(self.device)
        self.model.train()
        total = torch.zeros((), device=self.device)
        for rows in order.split(self.batch_size):
            batch = self.queries.take(rows)
            loss = self.model.loss(batch, self.config.memory_budget_mb * 2**20)
            total += self._step(optimizer, loss) * batch.num_triples
        return float(total) / self.queries.num_triples


class ReFactorEpochs(Epochs):
    """An epoch of a ReFactor GNN: one cycle of ``L`` steps, from the features to ``L`` layers.

    Layer-wise training: each step applies one layer to the cached, detached states, takes the loss on the result and
    learns through that layer alone, so neither memory nor time of a step grows with ``L``. After ``L`` steps the
    cache is cleared, which is where the next epoch begins.

    Each step holds out a share of the facts as targets and passes messages over the others. All facts between the same
    two entities are held out together: one that mirrors a target would give its answer away, as no test fact does. With
    ``mask=0`` targets and messages are all facts, as in the paper.
    """

    def __init__(self, model: ReFactorGNN, config: ReFactorConfig, graph: KnowledgeGraph, device: torch.device) -> None:
        super().__init__(config, graph, device)
        self.mask = config.mask
        self.model = model
        self.triples = graph.triples("train").to(device)
        self.known = graph.queries("train").to(device)
        low, high = self.triples[:, [0, 2]].amin(1), self.triples[:, [0, 2]].amax(1)
        pairs, self.pair_of = torch.unique(low * graph.num_entities + high, return_inverse=True)
        self.num_pairs = len(pairs)

    def _run(self, optimizer: torch.optim.Optimizer, epoch: int) -> float:
        self.model.train()
        states: Tensor | None = None
        sums: Tensor | None = None
        total = torch.zeros((), device=self.device)
        for _ in range(self.model.num_layers):
            messages, targets = self._split()
            if states is None:
                states = self.model.features(self.graph, messages, draw=epoch)
            states, sums = self.model.layer.step(states, messages, sums)
            total += self._step(optimizer, self._loss(states, targets))
            states = states.detach()
            sums = None if sums is None else sums.detach()
        return float(total) / self.model.num_layers

    def _split(self) -> tuple[QueryIndex, QueryIndex]:
        """The facts that messages pass over, and those to predict."""
        if not self.mask:
            return self.known, self.known
        held_out = torch.rand(self.num_pairs).to(self.device) < self.mask
        held_out[torch.randint(self.num_pairs, (1,))] = True  # never nothing to predict
        is_target = held_out[self.pair_of]
        return self._grouped(self.triples[~is_target]), self._grouped(self.triples[is_target])

    def _grouped(self, triples: Tensor) -> QueryIndex:
        both = self.graph.with_reciprocals(triples)
        return QueryIndex.from_triples(both, self.graph.num_entities, 2 * self.graph.num_relations)

    def _loss(self, states: Tensor, targets: QueryIndex) -> Tensor:
        """The mean over the target triples of their filtered negative log-likelihood."""
        scorer, budget = self.model.scorer, self.config.memory_budget_mb * 2**20
        subjects = dropout(states[targets.subjects], self.config.dropout)
        relations = dropout(self.model.layer.relations[targets.relations], self.config.dropout)
        known = self.known.objects_of(targets.subjects, targets.relations)
        if isinstance(scorer, DotScorer):
            queries, candidates = scorer.query(subjects, relations), scorer.candidates(states)
            total = filtered_negative_log_likelihood(queries, candidates, targets.answers, known, memory_budget=budget)
        else:
            total = autograd_path.filtered_negative_log_likelihood(
                scorer, subjects, relations, states, targets.answers, known, budget
            )
        return total / targets.num_triples


def make_epochs(model: LinkPredictor, config: TrainConfig, graph: KnowledgeGraph, device: torch.device) -> Epochs:
    """The epochs of a model."""
    if isinstance(model, Lookup) and isinstance(config, LookupConfig):
        return LookupEpochs(model, config, graph, device)
    if isinstance(model, ReFactorGNN) and isinstance(config, ReFactorConfig):
        return ReFactorEpochs(model, config, graph, device)
    raise TypeError(f"no epochs are known for {type(model).__name__}")
