"""RuleN (Meilicke et al., 2018): path rules and rules with constants, and what follows from them.

Path rules have no constants, so they answer about graphs of entities never seen. Rules with constants name entities of
the training graph; in a graph that has none of these they are silent.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.data.vocabulary import Vocabulary
from refactorgnn.models.base import LinkPredictor
from refactorgnn.models.rivals.facts import FactIndex
from refactorgnn.models.rivals.rule_aggregation import Aggregation
from refactorgnn.models.rivals.rule_mining import ConstantRules, PathRules
from refactorgnn.models.rivals.rule_paths import MAX_LENGTH
from refactorgnn.models.rivals.rule_scorer import RuleScorer, RuleTable


class RuleN(LinkPredictor):
    """Rules as tensors: for each head relation so many places, the best rules in them and the rest empty (−1).

    Args:
        entities: The entities of the training graph, which constants are.
        relations: The relations.
        rules_per_relation: The most path rules of a relation.
        constant_rules_per_relation: The most rules with constants, of a relation and of its reciprocal.
        laplace: What is added to the groundings of a body: the confidence is ``support / (groundings + laplace)``.
        aggregation: How the rules of an answer make its score: ``"max"`` (max-plus) or ``"noisy-or"``.
        memory_budget: Bytes of the paths that are walked at once; None: 240 MiB.
    """

    path_bodies: Tensor
    path_support: Tensor
    path_groundings: Tensor
    constant_terms: Tensor
    constant_support: Tensor
    constant_groundings: Tensor

    def __init__(
        self,
        entities: Vocabulary,
        relations: Vocabulary,
        *,
        rules_per_relation: int = 1000,
        constant_rules_per_relation: int = 100,
        laplace: float = 5.0,
        aggregation: Aggregation = "max",
        memory_budget: int | None = None,
    ) -> None:
        super().__init__(relations)
        self.memory_budget = memory_budget
        self.entity_names = entities
        self.laplace = laplace
        self.aggregation = aggregation
        self.gives_probabilities = aggregation == "max"  # noisy-or adds up −log(1 − confidence)
        paths, constants = (len(relations), rules_per_relation), (2 * len(relations), constant_rules_per_relation)
        for name, shape in (("path", paths), ("constant", constants)):
            self.register_buffer(f"{name}_support", torch.zeros(shape, dtype=torch.int64))
            self.register_buffer(f"{name}_groundings", torch.zeros(shape, dtype=torch.int64))
        self.register_buffer("path_bodies", torch.full((*paths, MAX_LENGTH), -1, dtype=torch.int64))
        self.register_buffer("constant_terms", torch.full((*constants, 3), -1, dtype=torch.int64))

    @property
    def num_parameters(self) -> int:
        """The number of rules: each has one learned number, its confidence."""
        return int((self.path_bodies[..., 0] >= 0).sum() + (self.constant_terms[..., 0] >= 0).sum())

    def keep(self, paths: PathRules, constants: ConstantRules, min_confidence: float = 0.0) -> None:
        """Take over the best of the rules that were mined: the highest confidence first, then the most support."""
        for name, heads, said, support, groundings in (
            ("path", paths.heads, paths.bodies, paths.support, paths.groundings),
            ("constant", constants.heads, constants.terms, constants.support, constants.groundings),
        ):
            confidence = support.double() / (groundings + self.laplace)
            order = torch.argsort(support, descending=True, stable=True)
            order = order[torch.argsort(confidence[order], descending=True, stable=True)]
            order = order[confidence[order] >= min_confidence]
            order = order[torch.argsort(heads[order], stable=True)]
            counts = torch.bincount(heads[order])
            place = torch.arange(len(order), device=heads.device) - (counts.cumsum(0) - counts)[heads[order]]
            order, place = order[fits := place < getattr(self, f"{name}_support").shape[1]], place[fits]
            whole = "path_bodies" if name == "path" else "constant_terms"
            getattr(self, whole).fill_(-1)[heads[order], place] = said[order]
            getattr(self, f"{name}_support").zero_()[heads[order], place] = support[order]
            getattr(self, f"{name}_groundings").zero_()[heads[order], place] = groundings[order]

    def table(self) -> RuleTable:
        """All rules, those of reciprocals included."""
        return RuleTable.of(
            (self.path_bodies, self.path_support, self.path_groundings),
            (self.constant_terms, self.constant_support, self.constant_groundings),
            self.laplace,
        )

    def bind(self, graph: KnowledgeGraph, message_splits: Sequence[str] = ("train",)) -> RuleScorer:
        """Index the facts that the bodies of rules are grounded in."""
        triples = graph.with_reciprocals(graph.triples(*message_splits)).to(self.path_bodies.device)
        facts = FactIndex(triples, graph.num_entities, 2 * graph.num_relations, self.memory_budget)
        ids = self._constant_ids(graph).to(facts.device)
        return RuleScorer(facts, self.table().renumbered(ids), self.aggregation)

    def _constant_ids(self, graph: KnowledgeGraph) -> Tensor:
        """The ids in ``graph`` of the training graph's entities; −1 where it has none of that name."""
        return torch.from_numpy(graph.entities.ids(self.entity_names.names))
