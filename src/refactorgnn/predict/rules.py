"""Rules in words: those that a run has learned, and those that say an answer, with a path that shows it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.errors import UserError
from refactorgnn.models.base import QueryScorer
from refactorgnn.models.concatenated import ConcatenatedScorer
from refactorgnn.models.ensemble import LogarithmScorer
from refactorgnn.models.rivals.rule_scorer import ANY, RuleScorer, RuleTable
from refactorgnn.models.rivals.rulen import RuleN
from refactorgnn.models.rivals.rules_protocol import LearnedRules
from refactorgnn.runs import Run

RULE_MODELS = ("rulen", "neural-lp", "drum")
_FIRST, _LAST, _BETWEEN = "X", "Y", "AB"
Triple = tuple[int, int, int]


@dataclass(frozen=True)
class RuleInWords:
    """A rule.

    Args:
        text: The rule, ``head ← body``; what is written in capitals X, A, B, Y is a variable.
        relation: The relation of the head.
        support: How often it was right in the training graph; None for a model that learns rules without counting.
        groundings: How often its body held there (in a sample, if the run counted one); None likewise.
        confidence: ``support / (groundings + laplace)``; of rules that were not counted, the model's attention to them.
        has_constants: Whether it names entities, so that it says nothing about graphs that do not have them.
    """

    text: str
    relation: str
    support: int | None
    groundings: int | None
    confidence: float
    has_constants: bool

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True)
class RuleReason:
    """A rule that says an answer.

    Args:
        rule: The rule in words.
        confidence: Its confidence.
        support: How often it was right in the training graph.
        groundings: How often its body held there.
        path: Facts by which its body holds here: a path from the subject to the answer, or a fact of the subject; by
            their names.
    """

    rule: str
    confidence: float
    support: int
    groundings: int
    path: tuple[tuple[str, str, str], ...]


def learned_rules(run: Run, relation: str | None = None, k: int = 20) -> list[RuleInWords]:
    """The rules of a run, the most confident first.

    Args:
        run: The run.
        relation: The relation that they are about; all if not given.
        k: How many.

    Raises:
        UserError: if its model has no rules, or no such relation.
    """
    if k < 1:
        raise UserError(f"k={k} shows no rule: choose 1 or more.")
    model: object = run.load_model() if run.config.model in RULE_MODELS else None
    if isinstance(model, RuleN):
        return _counted_rules(model.table(), run.graph, relation, k)
    if isinstance(model, LearnedRules):
        return _attended_rules(model, run.graph, relation, k)
    raise UserError(
        f"{run.path} is a run of {run.config.model}, which has no rules: choose a run of {' or '.join(RULE_MODELS)}."
    )


def _attended_rules(model: LearnedRules, graph: KnowledgeGraph, relation: str | None, k: int) -> list[RuleInWords]:
    """The rules of a model that learns them by attention, but for relations that are reasons for themselves."""
    heads = range(graph.num_relations) if relation is None else [graph.relations.id(relation)]
    found = [
        RuleInWords(rule.in_words(head, graph.relations), graph.relations[head], None, None, rule.confidence, False)
        for head in heads
        for rule in model.rules(head, k + 1)
        if rule.body != (head,)
    ]
    return sorted(found, key=lambda rule: -rule.confidence)[:k]


def _counted_rules(table: RuleTable, graph: KnowledgeGraph, relation: str | None, k: int) -> list[RuleInWords]:
    """The rules of a model that mines and counts them."""
    # A path rule is in the table a second time, read backwards, as a rule of the reciprocal.
    is_shown = (table.heads < graph.num_relations) | (torch.arange(len(table.heads)) >= table.num_paths)
    if relation is not None:
        is_shown &= table.heads % graph.num_relations == graph.relations.id(relation)
    order = torch.argsort(table.support, descending=True, stable=True)
    order = order[torch.argsort(table.confidences[order], descending=True, stable=True)]
    chosen = order[is_shown[order]][:k].tolist()
    return [
        RuleInWords(
            rule_text(table, rule, graph),
            graph.relations[int(table.heads[rule]) % graph.num_relations],
            int(table.support[rule]),
            int(table.groundings[rule]),
            float(table.confidences[rule]),
            rule >= table.num_paths,
        )
        for rule in chosen
    ]


def rule_text(table: RuleTable, rule: int, graph: KnowledgeGraph) -> str:
    """A rule as people read it; a step against a relation's direction has its arguments the other way round."""
    head = int(table.heads[rule])
    if rule < table.num_paths:
        body = [relation for relation in table.bodies[rule].tolist() if relation >= 0]
        names = [_FIRST, *_BETWEEN[: len(body) - 1], _LAST]
        steps = [_atom(graph, relation, *names[place : place + 2]) for place, relation in enumerate(body)]
        return f"{_atom(graph, head, _FIRST, _LAST)} ← {', '.join(steps)}"
    constant, relation, other = table.terms[rule - table.num_paths].tolist()
    body_end = _BETWEEN[0] if other == ANY else graph.label(other)
    return f"{_atom(graph, head, _FIRST, graph.label(constant))} ← {_atom(graph, relation, _FIRST, body_end)}"


def _atom(graph: KnowledgeGraph, relation: int, subject: str, object_: str) -> str:
    forwards = relation < graph.num_relations
    first, second = (subject, object_) if forwards else (object_, subject)
    return f"{graph.relations[relation % graph.num_relations]}({first}, {second})"


def rule_reasons(bound: QueryScorer, graph: KnowledgeGraph, triple: Triple) -> tuple[RuleReason, ...]:
    """The rules that say the tail is an answer to ``(head, relation, ?)``, the most confident first.

    Of an ensemble they are those of its members; of models that have no rules there are none.
    """
    parts = [part for _, part in bound.parts] if isinstance(bound, ConcatenatedScorer) else [bound]
    plain = [part.bound if isinstance(part, LogarithmScorer) else part for part in parts]
    found = [reason for part in plain if isinstance(part, RuleScorer) for reason in _reasons(part, graph, triple)]
    return tuple(sorted(found, key=lambda reason: -reason.confidence))


def _reasons(bound: RuleScorer, graph: KnowledgeGraph, triple: Triple) -> Iterator[RuleReason]:
    table = bound.table
    for rule, entities in bound.groundings(*triple).items():
        yield RuleReason(
            rule_text(table, rule, graph),
            float(table.confidences[rule]),
            int(table.support[rule]),
            int(table.groundings[rule]),
            _path(bound, graph, rule, entities, triple),
        )


def _path(
    bound: RuleScorer, graph: KnowledgeGraph, rule: int, entities: Sequence[int], triple: Triple
) -> tuple[tuple[str, str, str], ...]:
    """The facts of a grounded body, by name and in their own direction."""
    table, (subject, _, answer) = bound.table, triple
    if rule < table.num_paths:
        relations = table.bodies[rule].tolist()
    else:
        _, relation, other = table.terms[rule - table.num_paths].tolist()
        if other == ANY:
            # Another object than the answer where there is one: a fact is no reason for itself.
            objects = bound.objects(subject, relation)
            other = next((one for one in objects if one != answer), answer)
        relations, entities = [relation], (subject, other)
    facts = []
    for first, relation, second in zip(entities, relations, entities[1:], strict=False):
        ends = (first, second) if relation < graph.num_relations else (second, first)
        facts.append(
            (graph.entities[ends[0]], graph.relations[relation % graph.num_relations], graph.entities[ends[1]])
        )
    return tuple(facts)
