"""The gradient of a factorisation model's log-likelihood by its entity states, in closed form: what a layer applies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor
from torch.nn.functional import dropout

from refactorgnn import autograd_path, streamed
from refactorgnn.data.queries import QueryIndex
from refactorgnn.errors import UserError, unknown_name
from refactorgnn.ops import Impl, edge_dots, logsumexp, residual_products, sum_neighbours
from refactorgnn.ops.sampled import CandidateSample
from refactorgnn.ops.sparse import added
from refactorgnn.row_work import row_kernels
from refactorgnn.scorers import DotScorer, Scorer

NTerm = Literal["exact", "paper", "none"]
# Bytes of an array of |Q|×d numbers, of which a layer has about ten at once: the most for which all queries are taken
# together, and those of a part where they are not. A CPU maps memory for them anew in each layer and reads them back
# from beyond its caches, which takes longer than the calls it saves.
_MOST_BYTES = {"cpu": 8 * 2**20, "cuda": 128 * 2**20}
_PART_BYTES = {"cpu": 256 * 2**20, "cuda": 16 * 2**20}
# Those of a part with a sample of the candidates, whose work is more kernels of less each.
_SAMPLED_PART_BYTES = 256 * 2**20


def log_likelihood_gradient(
    scorer: Scorer,
    states: Tensor,
    relations: Tensor,
    queries: QueryIndex,
    *,
    n_term: NTerm = "exact",
    impl: Impl = "chunked",
    memory_budget: int | None = None,
    num_samples: int | None = None,
    dropout_rate: float = 0.0,
) -> Tensor:
    r"""The gradient of ``Σ log P(o | s, r)`` over the triples of ``queries``, by the entity states.

    With ``q_i`` the query and ``k_u`` the candidate vectors, ``P_iu = softmax(q_i · k_u)``, ``A`` the matrix of known
    objects and ``c_i`` their number, ``D = A − diag(c) P`` and

    .. math::
        \nabla H = \mathrm{scatter}_{s_i}\, \mathrm{adjoint}\big((D K)_i\big) + \mathrm{adjoint}\big(D^\top Q\big).

    The products with ``A`` and the ``(1 − P)`` of the incoming edges are the messages of Theorem 1; the other products
    with ``P`` are its ``n[v]``.

    Args:
        scorer: The score function.
        states: ``H``, shape ``(num_entities, dim)``.
        relations: ``ψ``, shape ``(num_relations, relation_dim)``.
        queries: The triples, grouped.
        n_term: ``"exact"``: the true gradient. ``"paper"``: Theorem 1 as printed, which lacks, for each triple
            ``(v, r, w)`` with ``w ≠ v``, the part ``−P(v|v,r) ∂Γ(v,r,v)`` of ``v`` as a candidate of its own query.
            ``"none"``: messages only, the paper's ablation.
        impl: How the products with ``P`` are computed; see :mod:`refactorgnn.ops`.
        memory_budget: Bytes of temporaries.
        num_samples: Estimate ``P`` from this many candidates, drawn anew from torch's default generator (on the CPU,
            whatever the device), and the known answers; see :mod:`refactorgnn.ops.sampled`. None: exact.
        dropout_rate: The share of the numbers of subjects and relations that is dropped, so that the result is the
            gradient of what a factorisation model with that dropout is trained on.

    Returns:
        Shape ``(num_entities, dim)``, differentiable in ``states`` and ``relations``.
    """
    if n_term not in get_args(NTerm):
        raise unknown_name("n_term", n_term, get_args(NTerm))
    check_sampling(num_samples, scorer, impl)
    check_dropout(dropout_rate, scorer)
    if not isinstance(scorer, DotScorer):
        return autograd_path.log_likelihood_gradient(scorer, states, relations, queries, n_term, memory_budget)
    place = "cuda" if states.is_cuda else "cpu"
    query_bytes = states.shape[1] * states.element_size()
    is_small = queries.num_queries * query_bytes <= _MOST_BYTES[place]
    # Where kernels do what is done query by query, they are faster than the composition whatever the size.
    is_whole = (is_small and row_kernels(scorer, states, relations) is None) or dropout_rate > 0
    if not is_whole and n_term == "exact" and impl == "chunked" and num_samples is None:
        return streamed.log_likelihood_gradient(scorer, states, relations, queries, memory_budget)
    sample = None if num_samples is None else CandidateSample.draw(queries.distinct_answers, num_samples)
    part_bytes = _PART_BYTES[place] if sample is None else _SAMPLED_PART_BYTES
    keeps_all = is_whole or torch.is_grad_enabled() or queries.weights is not None
    at_once = queries.num_queries if keeps_all else part_bytes // query_bytes
    total = None
    for part in _parts(queries, sample, max(1, at_once)):
        some = states if part.entities is None else states.index_select(0, part.entities)
        gradient = _gradient(
            scorer, some, relations, part.queries, part.sample, n_term, impl, memory_budget, dropout_rate
        )
        total = _collected(total, gradient, part.entities, len(states))
    assert total is not None
    return total


def _collected(total: Tensor | None, gradient: Tensor, entities: Tensor | None, num_entities: int) -> Tensor:
    """The sum so far, if any, and what a part has at all entities or at some."""
    if entities is None:
        return gradient if total is None else total.add_(gradient)
    total = gradient.new_zeros(num_entities, gradient.shape[1]) if total is None else total
    return total.index_add_(0, entities, gradient)


class _Part(NamedTuple):
    """Some of the queries.

    Args:
        queries: They.
        sample: The drawn candidates, if there are any, with the answers of these queries.
        entities: Those that the two number, if not all.
    """

    queries: QueryIndex
    sample: CandidateSample | None
    entities: Tensor | None = None


def _parts(queries: QueryIndex, sample: CandidateSample | None, at_once: int) -> Iterator[_Part]:
    """The queries, all together or so many at a time.

    The gradient is a sum over the queries: where nothing is kept for a backward pass, they need not be there together.
    With a sample of the candidates, a part has to do with few entities, and nothing it makes is as large as the states
    of all.
    """
    for part in queries.in_order(at_once):
        if sample is None or part is queries:
            yield _Part(part, sample)
        else:
            entities, own = part.induced(sample.drawn)
            yield _Part(own, sample.among(entities, own.distinct_answers), entities)


def _gradient(
    scorer: DotScorer,
    states: Tensor,
    relations: Tensor,
    queries: QueryIndex,
    sample: CandidateSample | None,
    n_term: NTerm,
    impl: Impl,
    memory_budget: int | None,
    dropout_rate: float,
) -> Tensor:
    """The part of :func:`log_likelihood_gradient` that some queries have."""
    # index_select, for the derivative of states[subjects] sorts its subjects.
    subjects = states.index_select(0, queries.subjects)
    relations = dropout(relations.index_select(0, queries.relations), dropout_rate)
    kept = dropout(torch.ones_like(subjects), dropout_rate) if dropout_rate else None
    subjects = subjects if kept is None else subjects * kept
    Q, K = scorer.query(subjects, relations), scorer.candidates(states)
    if n_term == "none":
        grad_Q, grad_K = _messages(Q, K, queries, sample, impl, memory_budget)
    else:
        if sample is None:
            lse, grad_Q, grad_K = residual_products(
                Q, K, queries.answers, queries.weights, impl=impl, memory_budget=memory_budget
            )
        else:
            lse, grad_Q, grad_K = _sampled_residuals(Q, K, queries, sample, memory_budget)
        if n_term == "paper":
            grad_K = grad_K + _own_candidate_term(Q, K, lse, queries, sample)
    wanted = scorer.adjoint(grad_Q, subjects, relations)
    as_subject = _summed_by_subject(queries, wanted if kept is None else wanted * kept)
    return added(as_subject, scorer.candidates_adjoint(grad_K, states))


def _summed_by_subject(queries: QueryIndex, wanted: Tensor) -> Tensor:
    """The rows of the queries of each subject, summed; shape ``(num_entities, dim)``."""
    if wanted.is_cuda:  # in any order: no subject has to wait for the one with the most queries
        return wanted.new_zeros(queries.num_entities, wanted.shape[1]).index_add(0, queries.subjects, wanted)
    return sum_neighbours(queries.by_subject, wanted)


def _sampled_residuals(
    Q: Tensor, K: Tensor, queries: QueryIndex, sample: CandidateSample, memory_budget: int | None
) -> tuple[Tensor, Tensor, Tensor]:
    """As :func:`refactorgnn.ops.residual_products`, with ``P`` estimated from a sample of the candidates."""
    counts = queries.counts.to(torch.promote_types(Q.dtype, torch.float32))
    lse, expected, pulled = sample.softmax_products(Q, K, counts, memory_budget)
    grad_Q = sum_neighbours(queries.answers, K) - counts[:, None] * expected
    return lse, grad_Q, added(sum_neighbours(queries.answers.transposed, Q), pulled, alpha=-1)


def check_sampling(num_samples: int | None, scorer: Scorer, impl: Impl) -> None:
    """Refuse a sample that cannot be drawn, or not with this scorer or implementation."""
    if num_samples is None:
        return
    if num_samples < 1:
        raise UserError(f"num_samples={num_samples} leaves no candidate to draw: choose 1 or more, or None for all.")
    if not isinstance(scorer, DotScorer):
        raise UserError(f"num_samples needs a dot-product scorer, which {scorer.name!r} is not: leave it out.")
    if impl == "reference":
        raise UserError("num_samples cannot be used with impl='reference', which is exact: leave one of them out.")


def check_dropout(dropout_rate: float, scorer: Scorer) -> None:
    """Refuse what is no share of the inputs, and dropout where the scorer has none."""
    if not 0 <= dropout_rate < 1:
        raise UserError(f"dropout={dropout_rate} is no share of a layer's inputs: choose 0 or more, below 1.")
    if dropout_rate and not isinstance(scorer, DotScorer):
        raise UserError(f"dropout in a layer needs a dot-product scorer, which {scorer.name!r} is not: leave it out.")


def _messages(
    Q: Tensor, K: Tensor, queries: QueryIndex, sample: CandidateSample | None, impl: Impl, memory_budget: int | None
) -> tuple[Tensor, Tensor]:
    """The messages of Theorem 1 alone: ``k_o`` to each subject, ``(1 − P(o|s,r)) q`` to each object."""
    answers = queries.answers
    if sample is None:
        lse = logsumexp(Q, K, impl=impl, memory_budget=memory_budget)
    else:
        lse = sample.logsumexp(Q, K, memory_budget)
    surprise = 1 - torch.exp(edge_dots(answers, Q, K) - lse[answers.rows])
    if queries.weights is not None:
        surprise = surprise * queries.weights
    to_objects = sum_neighbours(answers.transposed, Q, surprise[answers.to_transposed].to(Q.dtype))
    weights = None if queries.weights is None else queries.weights.to(Q.dtype)
    return sum_neighbours(answers, K, weights), to_objects


def _own_candidate_term(
    Q: Tensor, K: Tensor, lse: Tensor, queries: QueryIndex, sample: CandidateSample | None
) -> Tensor:
    """``Σ (c_i − loops_i) P(s_i|s_i,r_i) q_i`` at each subject: what Theorem 1's ``n[v]`` leaves out."""
    others = (queries.counts - queries.self_loops).to(lse.dtype)
    if sample is not None:  # take out just what the drawn candidates have put in
        others = others * sample.multiplicities(queries.subjects).to(lse.dtype)
    own_score = (Q * K[queries.subjects]).sum(-1)
    weight = others * torch.exp(own_score - lse)
    return sum_neighbours(queries.by_subject, weight[:, None].to(Q.dtype) * Q)
