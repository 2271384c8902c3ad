"""A ReFactor layer at a few entities only, all others being as they are: what a newcomer needs, in milliseconds.

The gradient at ``v`` has two parts (see :func:`refactorgnn.likelihood.log_likelihood_gradient`): that of ``v`` as a
subject, from its own few queries, and that of ``v`` as a candidate, ``Σ_i (A_iv − c_i P_iv) q_i`` over all queries. The
second needs the normaliser of every query; kept from before, it costs one product of all queries with few candidates.
"""

from __future__ import annotations

import torch
from torch import Tensor

from refactorgnn.data.queries import QueryIndex
from refactorgnn.layers import ReFactorConv
from refactorgnn.ops import logsumexp, softmax_products, sum_neighbours
from refactorgnn.ops.chunked import chunks, rows_within
from refactorgnn.scorers import DotScorer


def normalisers(layer: ReFactorConv, states: Tensor, queries: QueryIndex) -> Tensor:
    """``log Σ_u exp(q_i · k_u)`` of each query; shape ``(num_queries,)``."""
    scorer = _dot(layer)
    Q = scorer.query(states[queries.subjects], layer.relations[queries.relations])
    return logsumexp(Q, scorer.candidates(states), memory_budget=layer.memory_budget)


def grown_normalisers(
    layer: ReFactorConv, states: Tensor, queries: QueryIndex, old: QueryIndex, old_values: Tensor
) -> Tensor:
    """The normalisers of a grown graph, from those of the graph before.

    Entities were added behind the old ones. A query that was there keeps its sum and gets the terms of the newcomers;
    only queries that are new sum over all entities.

    Args:
        layer: The layer.
        states: Of all entities, the newcomers' last.
        queries: The facts of the grown graph.
        old: The facts before.
        old_values: Their normalisers.
    """
    scorer = _dot(layer)
    candidates = scorer.candidates(states[old.num_entities :])
    place = old.find(queries.subjects, queries.relations)
    values = torch.empty(queries.num_queries, dtype=old_values.dtype, device=states.device)
    is_new = place < 0
    rows = rows_within(layer.memory_budget, max(1, len(candidates)) + scorer.dim, 2, device=states.device)
    for part in torch.nonzero(~is_new).flatten().split(rows):
        Q = scorer.query(states[queries.subjects[part]], layer.relations[queries.relations[part]])
        terms = torch.cat([old_values[place[part], None], (Q @ candidates.T).to(old_values.dtype)], dim=1)
        values[part] = torch.logsumexp(terms, dim=1)
    fresh = queries.take(torch.nonzero(is_new).flatten())
    values[is_new] = normalisers(layer, states, fresh).to(values.dtype)
    return values


def gradient_at(layer: ReFactorConv, states: Tensor, queries: QueryIndex, lse: Tensor, entities: Tensor) -> Tensor:
    """``layer.gradient(states, queries)[entities]``, without computing the rest.

    Args:
        layer: The layer, in evaluation mode, of a dot-product scorer.
        states: Shape ``(num_entities, dim)``.
        queries: All facts.
        lse: The normaliser of each query at ``states``.
        entities: Sorted, distinct ids.
    """
    scorer = _dot(layer)
    gradient = _as_subjects(layer, scorer, states, queries, entities)
    gradient = gradient + scorer.candidates_adjoint(
        _as_candidates(layer, scorer, states, queries, lse, entities), states[entities]
    )
    return gradient - layer.shrinkage(states[entities], queries.occurrences[entities]) if layer.n3 else gradient


def _as_subjects(
    layer: ReFactorConv, scorer: DotScorer, states: Tensor, queries: QueryIndex, entities: Tensor
) -> Tensor:
    """``scatter_s adjoint((D K)_i)`` over the queries of ``entities``."""
    by_subject = queries.by_subject.take_rows(entities)
    own = queries.take(by_subject.columns)
    subjects, relations = states[own.subjects], layer.relations[own.relations]
    K = scorer.candidates(states)
    wanted = sum_neighbours(own.answers, K)
    if layer.n_term != "none":
        counts = own.answers.counts.to(states.dtype)
        Q = scorer.query(subjects, relations)
        wanted = wanted - counts[:, None] * softmax_products(Q, K, counts, memory_budget=layer.memory_budget)[1]
    asked = scorer.adjoint(wanted, subjects, relations)
    return states.new_zeros(len(entities), scorer.dim).index_add_(0, by_subject.rows, asked)


def _as_candidates(
    layer: ReFactorConv, scorer: DotScorer, states: Tensor, queries: QueryIndex, lse: Tensor, entities: Tensor
) -> Tensor:
    """``(Dᵀ Q)_v`` of each of ``entities``: all queries against a few candidates, chunk by chunk."""
    K = scorer.candidates(states[entities])
    counts = queries.answers.counts.to(states.dtype)
    others = counts - queries.self_loops.to(states.dtype)
    total = torch.zeros_like(K)
    rows = rows_within(layer.memory_budget, len(entities) + scorer.dim, 4, device=states.device)
    for part in chunks(queries.num_queries, rows):
        subjects = queries.subjects[part]
        Q = scorer.query(states[subjects], layer.relations[queries.relations[part]])
        P = torch.exp(Q @ K.T - lse[part, None]).to(Q.dtype)
        A = _dense_answers(queries, part, entities, Q.dtype)
        if layer.n_term == "none":
            D = A * (1 - P)
        else:
            D = A - counts[part, None] * P
            if layer.n_term == "paper":  # Theorem 1 as printed: a subject is no candidate of its own query
                D = D + (subjects[:, None] == entities) * others[part, None] * P
        total += D.T @ Q
    return total


def _dense_answers(queries: QueryIndex, part: slice, entities: Tensor, dtype: torch.dtype) -> Tensor:
    """The columns ``entities`` of ``A``, for consecutive queries."""
    found = queries.answers.slice_rows(part).restricted_to(entities)
    matrix = torch.zeros(found.num_rows, len(entities), dtype=dtype, device=entities.device)
    return matrix.index_put_((found.rows, found.columns), matrix.new_ones(()), accumulate=True)


def _dot(layer: ReFactorConv) -> DotScorer:
    assert isinstance(layer.scorer, DotScorer), "callers refuse other scorers"
    return layer.scorer
