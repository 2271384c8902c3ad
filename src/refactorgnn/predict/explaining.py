"""Why a score is what it is: split exactly into the entity's earlier state, each fact's message and ``n[v]``.

A layer is ``h'_v = h_v + scale ∘ (Σ_facts message + n[v])``: with SGD ``scale`` is the step size, with AdaGrad
``α / (√Σ∇² + ε)`` of each coordinate, the same for all terms of the step. The score is linear in the tail's state while
the head's is fixed, and the other way round, so each view of it is a sum of what these terms contribute. (A view tells
what made *that entity's* state; the two views are not added.) The earlier state splits again, layer by layer.

The message of a fact ``(v, r, w)`` is what its two directed forms send to ``v`` (Theorem 1): ``k_w`` to the subject of
``(v, r, w)`` and ``(1 − P(v|w, r⁻¹)) q`` to the object of ``(w, r⁻¹, v)``. What is left of the gradient is ``n[v]``.

What the sum cannot tell, since a fact also moves all other states, a counterfactual can: take the fact away, run all
layers again, and see the new score and rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.data.queries import QueryIndex
from refactorgnn.errors import UserError
from refactorgnn.evaluation.ranking import rank_triples
from refactorgnn.models.base import LinkPredictor, QueryScorer
from refactorgnn.models.ensemble import Ensemble
from refactorgnn.models.rivals.rule_scorer import RuleScorer
from refactorgnn.models.rivals.rules_protocol import LearnedRules
from refactorgnn.predict.local_layer import normalisers
from refactorgnn.predict.rules import RuleReason, Triple, rule_reasons
from refactorgnn.predict.tracing import Trace, trace, why_not_traced
from refactorgnn.scorers import DotScorer

Kind = Literal["fact", "link", "n[v]", "regulariser", "earlier state", "features"]


@dataclass(frozen=True)
class Term:
    """One part of a score.

    Args:
        kind: A fact's message, a fact between head and tail that counts directly, ``n[v]``, the layer's N3 regulariser,
            the state before the layers that were split, or the features where all were.
        layers_back: In which layer: 1 is the last. 0 where the kind is a state or a link.
        contribution: What it adds to the score.
        fact: The names of the fact, for a message or a link.
    """

    kind: Kind
    layers_back: int
    contribution: float
    fact: tuple[str, str, str] | None = None


@dataclass(frozen=True)
class Counterfactual:
    """What becomes of the score when a fact is taken away and all layers run again."""

    fact: tuple[str, str, str]
    score: float
    tail_rank: float
    head_rank: float


@dataclass(frozen=True)
class Explanation:
    """Why a triple has its score.

    Args:
        triple: Its names.
        score: Its score as an answer to ``(head, relation, ?)``.
        tail_rank: The tail's rank among the answers to ``(head, relation, ?)`` that are not known.
        head_rank: The head's rank among the answers to ``(?, relation, tail)`` that are not known.
        by_tail: The score as a sum over what made the tail's state, largest first; empty where ``note`` says why.
        by_head: The same over what made the head's state.
        counterfactuals: The facts that were taken away, the one that lowers the score most first.
        num_facts: How many facts there are around head and tail.
        note: What could not be done with this model.
        rules: Of a model of rules, or an ensemble with one, those that say the tail is an answer, the most confident
            first.
    """

    triple: tuple[str, str, str]
    score: float
    tail_rank: float
    head_rank: float
    by_tail: tuple[Term, ...]
    by_head: tuple[Term, ...]
    counterfactuals: tuple[Counterfactual, ...]
    num_facts: int
    note: str = ""
    rules: tuple[RuleReason, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def explain_triple(
    model: LinkPredictor,
    graph: KnowledgeGraph,
    bound: QueryScorer,
    triple: Triple,
    *,
    depth: int = 1,
    num_counterfactuals: int = 0,
) -> Explanation:
    """Explain the score of a triple; see :meth:`refactorgnn.Predictor.explain`.

    Args:
        model: The model.
        graph: The graph it answers about.
        bound: The model, bound to ``graph``.
        triple: Ids of head, relation and tail.
        depth: How many layers to split, from the last one back.
        num_counterfactuals: How many facts to take away.
    """
    if depth < 1:
        raise UserError(f"depth={depth} splits no layer: choose 1 or more.")
    reason = _why_not_split(model)
    if reason and not model.uses_facts:
        raise UserError(
            f"{reason}, and what it answers does not depend on the facts that it is given: explain a run of refactor "
            "with finitely many layers (or, by taking facts away, of another model that answers about new entities)."
        )
    head, _, tail = triple
    traces = [] if reason else trace(model, graph)
    by_tail = _merged(graph, [_split(one, graph, triple, "tail", depth) for one in traces])
    by_head = _merged(graph, [_split(one, graph, triple, "head", depth) for one in traces])
    rules = rule_reasons(bound, graph, triple)
    facts = _facts_around(graph, head, tail, _weights([*by_tail, *by_head], rules))
    taken = [_without(model, graph, triple, fact) for fact in facts[:num_counterfactuals]]
    score, tail_rank, head_rank = _standing(bound, graph, triple)
    return Explanation(
        triple=_names(graph, triple),
        score=score,
        tail_rank=tail_rank,
        head_rank=head_rank,
        by_tail=tuple(by_tail),
        by_head=tuple(by_head),
        counterfactuals=tuple(sorted(taken, key=lambda one: one.score)),
        num_facts=len(facts),
        note=_note(reason, model, bound) if reason else "",
        rules=rules,
    )


def _note(reason: str, model: LinkPredictor, bound: QueryScorer) -> str:
    if isinstance(bound, RuleScorer):
        return "a score is made of the confidences of rules and is no sum over facts: rules are the reasons"
    learned = (
        "; what it has learned can be read as rules (refactorgnn rules)" if isinstance(model, LearnedRules) else ""
    )
    return f"{reason}, so its scores are no sums over facts: facts can be taken away only{learned}"


def _why_not_split(model: LinkPredictor) -> str | None:
    reason = why_not_traced(model)
    if reason is None:
        members = model.members if isinstance(model, Ensemble) else [model]
        for member in members:
            if not member.scorer.is_bilinear:  # type: ignore[union-attr]
                return f"the scorer {member.scorer.name!r} is not linear in head and tail"  # type: ignore[union-attr]
    return reason


@torch.no_grad()
def _split(
    one: Trace, graph: KnowledgeGraph, triple: Triple, view: Literal["tail", "head"], depth: int
) -> dict[tuple[Kind, int, Triple | None], float]:
    """The weighted score of one trace as a sum over what made the state of the tail, or of the head."""
    scorer, layer, psi = one.model.scorer, one.model.layer, one.model.relation_embeddings
    assert isinstance(scorer, DotScorer)
    head, relation, tail = triple
    h, t, r = one.states[-1][head], one.states[-1][tail], psi[relation]
    # ∂score/∂state: the score is this vector times the state.
    if view == "tail":
        entity, wanted = tail, scorer.candidates_adjoint(scorer.query(h, r), t)
    else:
        entity, wanted = head, scorer.adjoint(scorer.candidates(t), h, r)
    wanted = one.weight * wanted
    queries = graph.queries("train").to(wanted.device)
    parts: dict[tuple[Kind, int, Triple | None], float] = {}
    depth = min(depth, one.model.num_layers)
    for back in range(1, depth + 1):
        number = one.model.num_layers - back
        states = one.states[number]
        scale = _scale(one, number, entity) * wanted
        gradient = layer.gradient(states, queries)[entity]
        if layer.n3:
            shrunk = layer.shrinkage(states[[entity]], queries.occurrences[[entity]])[0]
            parts["regulariser", back, None] = -_dot(shrunk, scale)
            gradient = gradient + shrunk
        messages = _messages(one, states, queries, entity, graph.num_relations)
        for fact, message in messages.items():
            parts["fact", back, fact] = _dot(message, scale)
        rest = gradient - sum(messages.values(), torch.zeros_like(gradient))
        parts["n[v]", back, None] = _dot(rest, scale)
    start = one.model.num_layers - depth
    kind: Kind = "features" if start == 0 else "earlier state"
    parts[kind, 0, None] = _dot(one.states[start][entity], wanted)
    for fact, value in _links(one, queries, triple, graph.num_relations).items():
        parts["link", 0, fact] = one.weight * value
    return parts


def _links(one: Trace, queries: QueryIndex, triple: Triple, num_relations: int) -> dict[Triple, float]:
    """What each fact between head and tail adds to the score directly."""
    if one.model.links is None:
        return {}
    head, relation, tail = triple
    links = queries.links_from(queries.subjects.new_tensor([head]))
    _, values = one.model.links(links, queries.relations.new_tensor([relation]))
    found: dict[Triple, float] = {}
    for place in torch.nonzero(links.objects.columns == tail).flatten().tolist():
        fact = _as_stated(head, int(links.relations[place]), tail, num_relations)
        found[fact] = found.get(fact, 0.0) + float(values[place])
    return found


def _as_stated(subject: int, relation: int, target: int, num_relations: int) -> Triple:
    """The fact that an edge stands for, which may be its reciprocal."""
    is_reciprocal = relation >= num_relations
    return (target, relation - num_relations, subject) if is_reciprocal else (subject, relation, target)


def _scale(one: Trace, number: int, entity: int) -> Tensor:
    """What multiplies the gradient of each coordinate of an entity in layer ``number``."""
    layer = one.model.layer
    learned, sums = one.model.learned_step(number), one.sums[number]
    size = one.states[0].new_tensor(layer.alpha) if learned is None else learned
    if sums is None:
        return size
    moved = sums[entity] > 0
    return torch.where(moved, size / (torch.where(moved, sums[entity], 1).sqrt() + layer.epsilon), 0)


def _messages(one: Trace, states: Tensor, queries: QueryIndex, entity: int, num_relations: int) -> dict[Triple, Tensor]:
    """What each fact around an entity sends to it, its two directed forms together (Theorem 1)."""
    scorer, psi = one.model.scorer, one.model.relation_embeddings
    assert isinstance(scorer, DotScorer)
    rows = queries.answers.rows
    found: dict[Triple, Tensor] = {}

    def add(subject: int, relation: int, target: int, message: Tensor) -> None:
        fact = _as_stated(subject, relation, target, num_relations)
        found[fact] = found[fact] + message if fact in found else message

    K = scorer.candidates(states)
    for edge in torch.nonzero(queries.subjects[rows] == entity).flatten().tolist():
        relation, target = int(queries.relations[rows[edge]]), int(queries.answers.columns[edge])
        add(entity, relation, target, scorer.adjoint(K[target], states[entity], psi[relation]))
    heard = torch.nonzero(queries.answers.columns == entity).flatten()
    asking = queries.take(rows[heard])
    Q = scorer.query(states[asking.subjects], psi[asking.relations])
    surprise = 1 - torch.exp(Q @ K[entity] - normalisers(one.model.layer, states, asking))
    sent = scorer.candidates_adjoint(surprise[:, None].to(Q.dtype) * Q, states[entity].expand(len(Q), -1))
    for subject, relation, message in zip(asking.subjects.tolist(), asking.relations.tolist(), sent, strict=True):
        add(subject, relation, entity, message)
    return found


def _dot(left: Tensor, right: Tensor) -> float:
    return float((left.double() * right.double()).sum())


def _merged(graph: KnowledgeGraph, splits: Sequence[dict[tuple[Kind, int, Triple | None], float]]) -> list[Term]:
    """The terms of all members and draws added up, largest first."""
    total: dict[tuple[Kind, int, Triple | None], float] = {}
    for parts in splits:
        for key, value in parts.items():
            total[key] = total.get(key, 0.0) + value
    terms = [
        Term(kind, back, value, None if fact is None else _names(graph, fact))
        for (kind, back, fact), value in total.items()
    ]
    return sorted(terms, key=lambda term: -abs(term.contribution))


def _weights(terms: Sequence[Term], rules: Sequence[RuleReason]) -> dict[tuple[str, str, str], float]:
    """What facts contribute to a score at most, or the confidence of the best rule that they are a reason of."""
    weights: dict[tuple[str, str, str], float] = {}
    parts = [(term.fact, abs(term.contribution)) for term in terms if term.fact is not None]
    parts += [(fact, one.confidence) for one in rules for fact in one.path]
    for fact, weight in parts:
        weights[fact] = max(weights.get(fact, 0.0), weight)
    return weights


def _facts_around(
    graph: KnowledgeGraph, head: int, tail: int, weights: Mapping[tuple[str, str, str], float]
) -> list[Triple]:
    """The facts of head and tail; those of the largest weights come first, then those between the two."""
    train = graph.triples("train")
    around = train[(train[:, [0, 2]] == head).any(1) | (train[:, [0, 2]] == tail).any(1)]
    facts: list[Triple] = [(h, r, t) for h, r, t in around.tolist()]
    return sorted(facts, key=lambda fact: (-weights.get(_names(graph, fact), 0.0), {fact[0], fact[2]} != {head, tail}))


def _without(model: LinkPredictor, graph: KnowledgeGraph, triple: Triple, fact: Triple) -> Counterfactual:
    """Take a fact away, run all layers again; what is known to be true stays known, so that ranks can be compared."""
    train = graph.triples("train")
    left = train[(train != torch.tensor(fact)).any(1)]
    poorer = replace(graph, splits={**graph.splits, "train": left}, _indices={})
    score, tail_rank, head_rank = _standing(model.bind(poorer), graph, triple)
    return Counterfactual(_names(graph, fact), score, tail_rank, head_rank)


def _standing(bound: QueryScorer, graph: KnowledgeGraph, triple: Triple) -> tuple[float, float, float]:
    """The score of a triple, and the ranks of its tail and head."""
    question = torch.tensor([triple[0]]).to(bound.device), torch.tensor([triple[1]]).to(bound.device)
    with torch.no_grad():
        score = float(bound.scores(*question)[0, triple[2]])
    tail_rank, head_rank = rank_triples(bound, graph, torch.tensor([triple])).ranks().tolist()
    return score, tail_rank, head_rank


def _names(graph: KnowledgeGraph, triple: Triple) -> tuple[str, str, str]:
    head, relation, tail = triple
    return graph.entities[head], graph.relations[relation], graph.entities[tail]
