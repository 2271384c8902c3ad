"""New entities without retraining: facts and texts are checked, and the model meets the grown graph.

``exact`` runs all layers again on the grown graph: the result is that of binding the model to it. ``local`` computes
the new entities only. They start from their own features and take the same ``L`` layers over their own facts, with all
candidates and normalisers, among old entities that stay, layer by layer, where they were: the one thing that is left
out is how the newcomers would move the others.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, cast, get_args

import pyarrow as pa
import torch
from torch import Tensor

from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.data.queries import QueryIndex
from refactorgnn.errors import UserError, closest_names, unknown_name
from refactorgnn.models.base import LinkPredictor, QueryScorer
from refactorgnn.models.ensemble import Ensemble
from refactorgnn.models.infinite import InfiniteReFactorGNN
from refactorgnn.models.lookup import Lookup
from refactorgnn.predict.local_layer import gradient_at, grown_normalisers, normalisers
from refactorgnn.predict.tracing import Trace, bound_by, trace, why_not_traced

Mode = Literal["exact", "local"]
Facts: TypeAlias = Sequence[tuple[str, str, str]] | pa.Table | KnowledgeGraph
Texts: TypeAlias = Mapping[str, str | tuple[str, str]] | pa.Table


@dataclass(frozen=True)
class Added:
    """What was added.

    Args:
        entities: The names of the new entities.
        num_facts: How many facts are new.
        num_known: How many the train split had already, or were given twice.
        seconds: How long it took.
    """

    entities: tuple[str, ...]
    num_facts: int
    num_known: int
    seconds: float


@dataclass(frozen=True)
class LocalState:
    """What ``local`` needs of the graph before: traces, and the normalisers of all queries at each layer of each."""

    traces: tuple[Trace, ...]
    normalisers: tuple[tuple[Tensor, ...], ...]

    @classmethod
    @torch.no_grad()
    def of(cls, model: LinkPredictor, graph: KnowledgeGraph) -> LocalState:
        """Trace a model on a graph; takes about twice the time of binding it."""
        traces = tuple(trace(model, graph))
        kept = []
        for one in traces:
            queries = graph.queries("train").to(one.states[0].device)
            kept.append(tuple(normalisers(one.model.layer, states, queries) for states in one.states[:-1]))
        return cls(traces, tuple(kept))


@dataclass(frozen=True)
class Growth:
    """A grown graph, the model bound to it, and what another ``local`` addition can start from, if this was one."""

    graph: KnowledgeGraph
    bound: QueryScorer
    local: LocalState | None
    added: Added


def grow(
    model: LinkPredictor,
    graph: KnowledgeGraph,
    facts: Facts,
    texts: Texts | None = None,
    *,
    mode: Mode = "exact",
    local: LocalState | None = None,
) -> Growth:
    """Add entities and facts to a graph that a model answers about; nothing that is given is changed.

    Args:
        model: The model.
        graph: The graph so far.
        facts: Triples of names, a table of them or a graph (its train split). Entities may be old, by name or label, or
            new; relations must be known.
        texts: For new entities, a label or ``(label, description)`` by name, or a table with the columns ``entity``,
            ``label`` and ``description``. An entity may have texts only.
        mode: ``"exact"`` or ``"local"``.
        local: What the last ``local`` addition left, if there was one.
    """
    if mode not in get_args(Mode):
        raise unknown_name("mode", mode, get_args(Mode))
    _check_can_grow(model, mode)
    start = time.perf_counter()
    grown, names, num_facts, num_known = _grown_graph(graph, facts, texts)
    if mode == "exact":
        bound, state = model.bind(grown), None
    else:
        state = _grown_state(LocalState.of(model, graph) if local is None else local, graph, grown)
        bound = bound_by(state.traces, grown)
    return Growth(grown, bound, state, Added(names, num_facts, num_known, time.perf_counter() - start))


def preview_growth(model: LinkPredictor, graph: KnowledgeGraph, facts: Facts, texts: Texts | None = None) -> Added:
    """What :func:`grow` would add, without running the model; it refuses what :func:`grow` refuses."""
    _check_can_grow(model, "exact")
    start = time.perf_counter()
    _, names, num_facts, num_known = _grown_graph(graph, facts, texts)
    return Added(names, num_facts, num_known, time.perf_counter() - start)


def _check_can_grow(model: LinkPredictor, mode: Mode) -> None:
    members = model.members if isinstance(model, Ensemble) else [model]
    for member in members:
        if isinstance(member, Lookup | InfiniteReFactorGNN):
            kind = "a lookup model" if isinstance(member, Lookup) else "a ReFactor GNN of infinite depth"
            raise UserError(
                f"{kind} knows only the entities it was trained on: to add others, use a model that computes states "
                "from features (refactor with finitely many layers, rgcn, gat, forgetting), or an ensemble of such."
            )
    if mode == "local" and (reason := why_not_traced(model)):
        raise UserError(f"mode 'local' cannot be used, for {reason}: use mode 'exact'.")


@torch.no_grad()
def _grown_state(local: LocalState, graph: KnowledgeGraph, grown: KnowledgeGraph) -> LocalState:
    traces, kept = [], []
    for one, values in zip(local.traces, local.normalisers, strict=True):
        device = one.states[0].device
        old, queries = graph.queries("train").to(device), grown.queries("train").to(device)
        longer, normalised = _grown_trace(one, values, grown, old, queries)
        traces.append(longer)
        kept.append(normalised)
    return LocalState(tuple(traces), tuple(kept))


def _grown_trace(
    one: Trace, values: Sequence[Tensor], graph: KnowledgeGraph, old: QueryIndex, queries: QueryIndex
) -> tuple[Trace, tuple[Tensor, ...]]:
    """The newcomers pass all layers; the states of the others are appended to, never changed."""
    model, layer = one.model, one.model.layer
    new = torch.arange(old.num_entities, queries.num_entities, device=old.subjects.device)
    rows, sums = model.features.rows(graph, queries, new, one.draw), None
    states, kept = [], []
    for number, (before, old_lse) in enumerate(zip(one.states, values, strict=False)):
        states.append(torch.cat([before, rows]))
        lse = grown_normalisers(layer, states[-1], queries, old, old_lse)
        gradient = gradient_at(layer, states[-1], queries, lse, new)
        rows, sums = layer.move(rows, gradient, sums, alpha=model.learned_step(number))
        kept.append(lse)
    states.append(torch.cat([one.states[-1], rows]))
    # AdaGrad's sums of the newcomers are not those of an exact pass: nothing may read them.
    return replace(one, states=tuple(states), sums=(None,) * len(one.sums)), tuple(kept)


def _grown_graph(
    graph: KnowledgeGraph, facts: Facts, texts: Texts | None
) -> tuple[KnowledgeGraph, tuple[str, ...], int, int]:
    """The grown graph, the new names, and how many facts are new and how many are not."""
    said = _texts_of_new(graph, facts) if texts is None and isinstance(facts, KnowledgeGraph) else _texts(texts)
    if old := next((name for name in said if name in graph.entities), None):
        raise UserError(f"entity {old!r} is in the graph already: give texts for new entities only.")
    triples = _named_triples(facts)
    relations = {relation: _relation(graph, relation) for _, relation, _ in triples}
    mentioned = dict.fromkeys([*(name for head, _, tail in triples for name in (head, tail)), *said])
    ids = _known_ids(graph, [name for name in mentioned if name not in said])
    names = sorted(name for name in mentioned if name not in ids)
    ids |= {name: graph.num_entities + place for place, name in enumerate(names)}
    distinct = dict.fromkeys((ids[head], relations[relation], ids[tail]) for head, relation, tail in triples)
    rows = torch.tensor(list(distinct), dtype=torch.int64).reshape(-1, 3)
    fresh = rows[~_in_train(graph, rows)]
    if not len(fresh) and not names:
        raise UserError("there is nothing new in these facts: the graph has all of them already.")
    grown = graph.grown(names, fresh, [said.get(name, (name, "")) for name in names])
    return grown, tuple(names), len(fresh), len(triples) - len(fresh)


def _in_train(graph: KnowledgeGraph, triples: Tensor) -> Tensor:
    objects = graph.queries("train").objects_of(triples[:, 0], triples[:, 1])
    found = torch.zeros(len(triples), dtype=torch.bool)
    found[objects.rows[objects.columns == triples[objects.rows, 2]]] = True
    return found


def _relation(graph: KnowledgeGraph, name: str) -> int:
    if name not in graph.relations:
        closest = closest_names(name, graph.relations)
        hint = f"did you mean {' or '.join(map(repr, closest))}" if closest else "leave its facts out"
        raise UserError(f"relation {name!r} was not seen in training, so nothing is known about it: {hint}?")
    return graph.relations.id(name)


def _known_ids(graph: KnowledgeGraph, names: Sequence[str]) -> dict[str, int]:
    """The ids of the names, or labels, that the graph has."""
    found = {name: graph.entities.id(name) for name in names if name in graph.entities}
    if graph.texts is not None and len(found) < len(names):
        labels = set(graph.texts["label"].to_pylist())
        found |= {name: graph.entity_id(name) for name in names if name not in found and name in labels}
    return found


def _named_triples(facts: Facts) -> list[tuple[str, str, str]]:
    if isinstance(facts, KnowledgeGraph):
        facts = facts.named_triples("train")
    if isinstance(facts, pa.Table):
        columns = [facts.column(name).to_pylist() for name in ("head", "relation", "tail")]
        facts = list(zip(*columns, strict=True))
    for number, row in enumerate(facts, start=1):
        if not (isinstance(row, tuple | list) and len(row) == 3 and all(isinstance(p, str) and p for p in row)):
            raise UserError(f"fact {number} is {row!r}: give a head, a relation and a tail, none of them empty.")
    return [cast("tuple[str, str, str]", tuple(row)) for row in facts]


def _texts_of_new(graph: KnowledgeGraph, other: KnowledgeGraph) -> dict[str, tuple[str, str]]:
    """What another graph says of the entities of its train split that are not in ``graph``."""
    mentioned = {name for head, _, tail in _named_triples(other) for name in (head, tail)}
    return {
        name: text for name, text in _texts(other.texts).items() if name in mentioned and name not in graph.entities
    }


def _texts(texts: Texts | None) -> dict[str, tuple[str, str]]:
    if texts is None:
        return {}
    if isinstance(texts, pa.Table):
        columns = [texts.column(name).to_pylist() for name in ("entity", "label", "description")]
        return {name: (label, description) for name, label, description in zip(*columns, strict=True)}
    found: dict[str, tuple[str, str]] = {}
    for name, text in texts.items():
        pair = (text, "") if isinstance(text, str) else tuple(text)
        if len(pair) != 2 or not all(isinstance(part, str) for part in (name, *pair)) or not (name and pair[0]):
            raise UserError(f"the text of entity {name!r} is {text!r}: give a label, or a label and a description.")
        found[name] = cast("tuple[str, str]", pair)
    return found
