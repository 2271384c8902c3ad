"""Rules bound to a graph: which of them fire for a question, and the scores of all entities."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from refactorgnn.models.rivals.facts import FactIndex, expanded
from refactorgnn.models.rivals.rule_aggregation import Aggregation, Fired, MaxPlus, noisy_or
from refactorgnn.models.rivals.rule_paths import MAX_LENGTH, BodyTrie, distinct_ends, simple_paths

# Questions answered at a time; fewer where the entities are many.
_MOST_QUESTIONS = 64
_MOST_SCORES = 2**22
ANY = -1
# A constant that the graph does not have.
ABSENT = -2


@dataclass(frozen=True)
class RuleTable:
    """Rules in a row: those of paths first, then those with constants.

    Args:
        heads: Relations, reciprocals included; shape ``(num_rules,)``.
        bodies: The paths, filled up with −1; shape ``(num_path_rules, MAX_LENGTH)``.
        terms: ``c``, the relation of the body, and ``c'`` or :data:`ANY`; shape ``(num_constant_rules, 3)``.
        support: How often each rule was right.
        groundings: How often its body was grounded.
        confidences: Float64.
    """

    heads: Tensor
    bodies: Tensor
    terms: Tensor
    support: Tensor
    groundings: Tensor
    confidences: Tensor

    @classmethod
    def of(
        cls, paths: tuple[Tensor, Tensor, Tensor], constants: tuple[Tensor, Tensor, Tensor], laplace: float
    ) -> RuleTable:
        """The rules in tables of one row for each head, empty places left out; path rules also read backwards."""
        (heads, bodies, *counts), (other_heads, terms, *other_counts) = _flat(*paths), _flat(*constants)
        num_relations = len(paths[0])
        backwards = _backwards(bodies, num_relations)
        support, groundings = (
            torch.cat([count, count, other]) for count, other in zip(counts, other_counts, strict=True)
        )
        return cls(
            torch.cat([heads, heads + num_relations, other_heads]),
            torch.cat([bodies, backwards]),
            terms,
            support,
            groundings,
            support.double() / (groundings + laplace),
        )

    @property
    def num_paths(self) -> int:
        """How many path rules there are."""
        return len(self.bodies)

    def renumbered(self, ids: Tensor) -> RuleTable:
        """The table with its constants numbered as in another graph, or :data:`ABSENT`."""
        absent = torch.where(ids < 0, ABSENT, ids)
        terms = self.terms.clone()
        terms[:, 0] = absent[terms[:, 0]]
        named = terms[:, 2] != ANY
        terms[named, 2] = absent[terms[named, 2]]
        return replace(self, terms=terms)


def _flat(whole: Tensor, support: Tensor, groundings: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    heads, places = torch.nonzero(whole[..., 0] >= 0, as_tuple=True)
    return heads, whole[heads, places], support[heads, places], groundings[heads, places]


def _backwards(bodies: Tensor, num_relations: int) -> Tensor:
    """The bodies walked from their ends: ``r1, r2`` becomes ``r2⁻¹, r1⁻¹``."""
    lengths = (bodies >= 0).sum(1)
    steps = lengths[:, None] - 1 - torch.arange(MAX_LENGTH, device=bodies.device)
    reciprocals = (bodies + num_relations) % (2 * num_relations)
    return torch.where(steps >= 0, reciprocals.gather(1, steps.clamp(min=0)), -1)


class RuleScorer:
    """Rules bound to the facts of a graph.

    Args:
        facts: The facts that ground bodies.
        table: The rules.
        aggregation: How the rules of an answer make its score.
    """

    def __init__(self, facts: FactIndex, table: RuleTable, aggregation: Aggregation) -> None:
        self.facts = facts
        self.table = table
        self.aggregation = aggregation
        self.trie = BodyTrie(table.heads[: table.num_paths], table.bodies, facts.num_relations)
        self._max_plus = MaxPlus(table.heads, table.confidences)
        present = torch.nonzero((table.terms[:, 0] != ABSENT) & (table.terms[:, 2] != ABSENT)).flatten()
        keys = self._key(table.heads[table.num_paths + present], *table.terms[present, 1:].unbind(1))
        self._constant_keys, order = torch.sort(keys, stable=True)
        self._constant_rules = present[order]

    @property
    def num_entities(self) -> int:
        """The number of candidates."""
        return self.facts.num_entities

    @property
    def device(self) -> torch.device:
        """Where questions must be put."""
        return self.facts.device

    def scores(self, subjects: Tensor, relations: Tensor) -> Tensor:
        """Shape ``(num_questions, num_entities)``, float64; 0 where no rule fires."""
        rows = max(1, min(_MOST_QUESTIONS, _MOST_SCORES // max(1, self.num_entities)))
        parts = [self._scores(*part) for part in zip(subjects.split(rows), relations.split(rows), strict=True)]
        empty = torch.zeros(0, self.num_entities, dtype=torch.float64, device=self.device)
        return torch.cat(parts) if parts else empty

    def _scores(self, subjects: Tensor, relations: Tensor) -> Tensor:
        fired = self.fired(subjects, relations)
        if self.aggregation == "max":
            return self._max_plus(fired, len(subjects), self.num_entities)
        return noisy_or(fired, self.table.confidences, len(subjects), self.num_entities)

    def fired(self, subjects: Tensor, relations: Tensor) -> Fired:
        """Every rule that says an answer to a question, once for each answer."""
        paths = simple_paths(self.facts, self.trie, relations, subjects)
        questions, rules, answers = distinct_ends(paths, max(1, self.table.num_paths), self.facts)
        by_path = Fired(questions.to(self.device), rules.to(self.device), answers.to(self.device))
        if not len(self._constant_keys):
            return by_path
        return Fired.joined([by_path, self._fired_constants(subjects, relations)])

    def _fired_constants(self, subjects: Tensor, relations: Tensor) -> Fired:
        facts = self.facts
        of_fact, offsets = expanded(facts.degrees[subjects])
        fact = facts.fact_starts[subjects][of_fact] + offsets
        of_query, offsets = expanded(facts.subject_queries[subjects])
        query = facts.subject_starts[subjects][of_query] + offsets
        questions = torch.cat([of_fact, of_query])
        said = torch.cat([facts.relations[fact], facts.query_relations[query]])
        objects = torch.cat([facts.objects[fact], torch.full_like(query, ANY)])
        # r(x, c) ← r(x, z) needs another z than c: where there is one z only, it is not to answer itself.
        single = torch.where(facts.query_counts[query] == 1, facts.objects[facts.query_starts[query]], ABSENT)
        single = torch.where(facts.query_relations[query] == relations[of_query], single, ABSENT)
        itself = torch.cat([torch.full_like(fact, ABSENT), single])
        wanted = self._key(relations[questions], said, objects)
        first = torch.searchsorted(self._constant_keys, wanted)
        places, offsets = expanded(torch.searchsorted(self._constant_keys, wanted, right=True) - first)
        rules = self._constant_rules[first[places] + offsets]
        answers = self.table.terms[rules, 0]
        is_other = (answers != subjects[questions[places]]) & (answers != itself[places])
        return Fired(questions[places][is_other], self.table.num_paths + rules[is_other], answers[is_other])

    def _key(self, heads: Tensor, relations: Tensor, constants: Tensor) -> Tensor:
        return (heads * self.facts.num_relations + relations) * (self.num_entities + 1) + constants + 1

    def objects(self, subject: int, relation: int) -> list[int]:
        """The objects of the facts of a subject with a relation."""
        of_subject = self.facts.subjects == subject
        found: list[int] = self.facts.objects[of_subject & (self.facts.relations == relation)].tolist()
        return found

    def groundings(self, subject: int, relation: int, answer: int) -> dict[int, tuple[int, ...]]:
        """The rules that say an answer, the most confident first, with the entities of a path (none: constants)."""
        x, r = (torch.tensor([one], device=self.device) for one in (subject, relation))
        fired = self.fired(x, r)
        rules = fired.rules[fired.answers == answer]
        rules = rules[torch.argsort(self.table.confidences[rules], descending=True, stable=True)]
        found: dict[int, tuple[int, ...]] = dict.fromkeys(rules.tolist(), ())
        for walks in simple_paths(self.facts, self.trie, r, x):
            there = walks.take(walks.ends == answer)
            for rule, *entities in torch.column_stack([there.nodes, *reversed(there.met)]).tolist():
                found[rule] = found[rule] or tuple(entities)
        return found
