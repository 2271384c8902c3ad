"""What Neural-LP and DRUM share: rules as products of weighted sums of relation operators, learned by attention.

A question ``(s, r, ?)`` starts with all weight on its subject. Each of ``T`` steps moves the weight along the facts of
the graph, along those of relation ``b`` by as much as the model attends to ``b`` when asked for ``r``. What arrives at
an entity is its score: a sum over paths of at most ``T`` facts, each by the weight of its chain of relations. Attention
depends on relations alone, so the model answers on any graph that has them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.data.vocabulary import Vocabulary
from refactorgnn.models.base import LinkPredictor
from refactorgnn.models.gnn import drawn_from
from refactorgnn.models.rivals.rule_extraction import Alignment, Followable, strongest_rules
from refactorgnn.models.rivals.rules_protocol import LearnedRule
from refactorgnn.ops.chunked import rows_within
from refactorgnn.ops.relation_steps import HeldOut, RelationOperators
from refactorgnn.seeds import LAYERS, combined_seed

# The least probability whose logarithm is taken: that of an answer that no path reaches.
FLOOR = 1e-20
# Entities at which the relations that meet are looked up at once.
_ENTITIES_PER_CHUNK = 1024


class DifferentiableRules(LinkPredictor):
    """A model whose answers are what arrives along weighted paths.

    Args:
        relations: The relations; reciprocals are added.
        dim: The width of the embedding of a question's relation, and of the recurrent network that attends.
        num_steps: The most relations ``T`` of a rule's body.
        seed: The seed of all initial weights.
        memory_budget: Bytes of temporaries, of a step and of the memories when answering; None: by the device.
    """

    def __init__(
        self,
        relations: Vocabulary,
        dim: int = 128,
        num_steps: int = 3,
        *,
        seed: int = 0,
        memory_budget: int | None = None,
    ) -> None:
        super().__init__(relations)
        self.num_steps = num_steps
        self.memory_budget = memory_budget
        # Which relations follow which, for rules(); none is ruled out before a graph was looked at.
        self.meets = torch.ones(2 * len(relations), 2 * len(relations), dtype=torch.float64)
        with drawn_from(combined_seed(seed, LAYERS)):
            self._make_layers(2 * len(relations), dim)

    @abstractmethod
    def _make_layers(self, num_relations: int, dim: int) -> None:
        """Make the embeddings, the recurrent network and what follows it, for relations with their reciprocals."""

    @property
    @abstractmethod
    def memories_per_question(self) -> int:
        """How many numbers for each entity are held at once to answer a question."""

    @abstractmethod
    def reached(
        self, operators: RelationOperators, subjects: Tensor, relations: Tensor, held_out: HeldOut | None = None
    ) -> Tensor:
        """The weight that arrives at each entity; shape ``(num_entities, num_questions)``, not negative.

        Args:
            operators: The facts to move along.
            subjects: Shape ``(num_questions,)``.
            relations: Shape ``(num_questions,)``.
            held_out: Facts that are not there for some questions.
        """

    @abstractmethod
    def alignments(self, relation: int) -> list[Alignment]:
        """All ways in which the steps take a chain when asked for ``relation``; their weights sum up to 1."""

    def rules(self, relation: int, limit: int) -> list[LearnedRule]:
        """The ``limit`` rules for ``relation`` (or a reciprocal) with the largest confidence, best first.

        The confidence of a rule is in proportion to what a path of its kind adds to a score, exactly: the share that
        its body has, over all ways in which the steps can take it, of the attention to chains that can be followed in
        the graph that the model has looked at.
        """
        return strongest_rules(self.alignments(relation), Followable.between(self.meets, relation), limit)

    def look_at(self, graph: KnowledgeGraph) -> None:
        """Remember which relations follow which in the training facts of ``graph``: other chains are no rules."""
        self.meets = relations_that_meet(operators_of(graph, ("train",), torch.device("cpu")), len(self.meets))

    def bind(self, graph: KnowledgeGraph, message_splits: Sequence[str] = ("train",)) -> RuleScorer:
        """Take the operators of the relations from the facts of the graph."""
        device = next(self.parameters()).device
        return RuleScorer(self, operators_of(graph, message_splits, device))

    def log_probabilities(
        self, operators: RelationOperators, subjects: Tensor, relations: Tensor, held_out: HeldOut | None = None
    ) -> Tensor:
        """Logarithms of the shares of the weight that arrive; shape ``(num_entities, num_questions)``.

        No share counts as less than ``FLOOR``, and then has no gradient.
        """
        reached = self.reached(operators, subjects, relations, held_out)
        return _log_shares(reached, reached.sum(dim=0))

    def total_loss(self, operators: RelationOperators, reverse: Tensor, edges: Tensor) -> Tensor:
        """``−Σ log P(o | s, r)`` of the facts ``edges``, each asked for as if neither it nor its reverse were known.

        Args:
            operators: The facts.
            reverse: The edge that is each edge turned round, as :func:`reverse_edges` has it.
            edges: Which facts to ask for; shape ``(num_questions,)``.
        """
        questions = torch.arange(len(edges), device=edges.device)
        held_out = HeldOut.of(torch.cat([edges, reverse[edges]]), questions.repeat(2))
        reached = self.reached(operators, operators.sources[edges], operators.relations[edges], held_out)
        return -_log_shares(reached[operators.targets[edges], questions], reached.sum(dim=0)).sum()


class RuleScorer:
    """Scores questions by the paths of a graph.

    The scores are logarithms of probabilities, as those of other models are up to a constant, so that ensembles add
    like to like.

    Args:
        model: The model.
        operators: The facts of the graph.
    """

    def __init__(self, model: DifferentiableRules, operators: RelationOperators) -> None:
        self.model = model
        self.operators = operators

    @property
    def num_entities(self) -> int:
        """The number of candidates."""
        return self.operators.num_entities

    @property
    def device(self) -> torch.device:
        """Where questions must be put."""
        return self.operators.device

    @torch.no_grad()
    def scores(self, subjects: Tensor, relations: Tensor) -> Tensor:
        """The scores of all entities; shape ``(num_questions, num_entities)``."""
        buffers = self.model.memories_per_question
        rows = rows_within(self.model.memory_budget, self.num_entities, buffers, device=self.device)
        parts = zip(subjects.split(rows), relations.split(rows), strict=True)
        return torch.cat([self.model.log_probabilities(self.operators, *part).T for part in parts])


def operators_of(graph: KnowledgeGraph, splits: Sequence[str], device: torch.device) -> RelationOperators:
    """The facts of the splits with their reciprocals as operators; a fact that is in several splits counts once."""
    queries = graph.queries(*splits).to(device)
    facts = queries.distinct_answers
    sources, relations = queries.subjects[facts.rows], queries.relations[facts.rows]
    return RelationOperators(sources, relations, facts.columns, graph.num_entities)


def reverse_edges(operators: RelationOperators, num_relations: int) -> Tensor:
    """For each edge the one that is its reciprocal; shape ``(num_edges,)``.

    Args:
        operators: Edges of :func:`operators_of`, sorted by source, relation and target.
        num_relations: The number of relations, reciprocals not counted.
    """
    turned = (operators.relations + num_relations) % (2 * num_relations)
    # The reverse of an edge stands where the edge would, were all turned round and sorted: last key first.
    order = torch.argsort(operators.sources, stable=True)
    for key in (turned, operators.targets):
        order = order[torch.argsort(key[order], stable=True)]
    places = torch.empty_like(order)
    places[order] = torch.arange(len(order), device=order.device)
    return places


def relations_that_meet(operators: RelationOperators, num_relations: int) -> Tensor:
    """``[a, b]`` is 1 where some entity is a target of ``a`` and a source of ``b``, else 0."""
    meets = torch.zeros(num_relations, num_relations, dtype=torch.float64, device=operators.device)
    for first in range(0, operators.num_entities, _ENTITIES_PER_CHUNK):
        arrives, leaves = (
            _incidence(entities, operators.relations, first, num_relations)
            for entities in (operators.targets, operators.sources)
        )
        meets += arrives @ leaves.T
    return (meets > 0).double()


def _incidence(entities: Tensor, relations: Tensor, first: int, num_relations: int) -> Tensor:
    """1 where a relation has an edge at one of the entities from ``first`` on; ``(num_relations, chunk)``."""
    inside = (entities >= first) & (entities < first + _ENTITIES_PER_CHUNK)
    found = torch.zeros(num_relations, _ENTITIES_PER_CHUNK, dtype=torch.float64, device=entities.device)
    found[relations[inside], entities[inside] - first] = 1
    return found


def initial_embeddings(num_embeddings: int, dim: int) -> nn.Embedding:
    """Embeddings of length about 1, whatever their width, for a recurrent network to read."""
    embeddings = nn.Embedding(num_embeddings, dim)
    nn.init.normal_(embeddings.weight, std=dim**-0.5)
    return embeddings


def _log_shares(parts: Tensor, totals: Tensor) -> Tensor:
    return (parts / totals.clamp(min=FLOOR)).clamp(min=FLOOR).log()
