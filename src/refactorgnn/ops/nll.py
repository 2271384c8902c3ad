"""The 1-vs-all training loss on the streaming path.

The derivative of the negative log-likelihood by queries and candidates is ``−D H`` and ``−Dᵀ Q`` with
``D = A − diag(c) P``: the very products of a layer. The forward pass therefore computes loss and derivative together,
in one pass over the scores, and the backward pass only scales them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import softplus

from refactorgnn.ops import chunked, passes
from refactorgnn.ops.precision import mixed_precision
from refactorgnn.ops.residual import LEAST_WEIGHT, Facts, ResidualPass, add_at, at, flat, scaled_rows
from refactorgnn.ops.sparse import SparsePattern, sum_neighbours

# |V|-wide buffers alive at once in a chunk of the filtered loss without kernels: the scores, P and a copy of P.
_FILTERED_BUFFERS = 3
# The score of what is no negative: below any other, so that it has no share in the softmax, but no −∞, for a row that
# has no negatives at all then still has a softmax, which its weight of 0 takes out.
_HIDDEN = -1e30


class AddedScores(NamedTuple):
    """What is added to the scores at some places, and learned with them.

    Args:
        places: One row for each query, one column for each candidate; repeated places add up.
        values: One for each place.
    """

    places: SparsePattern
    values: Tensor


@mixed_precision
def filtered_negative_log_likelihood(
    queries: Tensor,
    candidates: Tensor,
    targets: SparsePattern,
    known: SparsePattern,
    weights: Tensor | None = None,
    *,
    added: AddedScores | None = None,
    memory_budget: int | None = None,
) -> Tensor:
    """The negative log-likelihood of each target among the candidates that are not known answers.

    .. code-block:: python

        S = queries @ candidates.T + added
        N = S.masked_fill(known, -inf)                       # the negatives
        return sum(w * (logaddexp(S[i, o], logsumexp(N[i])) - S[i, o]) for w, (i, o) in zip(weights, targets))

    Args:
        queries: Shape ``(num_queries, dim)``.
        candidates: Shape ``(num_candidates, dim)``.
        targets: The objects to predict for each query.
        known: The objects of each query that are no negatives, the targets usually among them.
        weights: How much each target counts, shape ``(num_edges,)``; None: 1 each.
        added: What the scores have beside the products.
        memory_budget: Bytes of temporaries; None: 128 MiB on a CPU, 432 on a GPU.

    Returns:
        A scalar, differentiable once in queries, candidates and what is added.
    """
    places, values = (None, None) if added is None else added
    loss: Tensor = _FilteredLikelihood.apply(
        queries, candidates, values, places, targets, known, weights, memory_budget
    )
    return loss


@mixed_precision
def negative_log_likelihood(
    queries: Tensor, candidates: Tensor, answers: SparsePattern, *, memory_budget: int | None = None
) -> Tensor:
    """``−Σ_i Σ_{o ∈ O_i} log P(o | query i)``: softmax cross-entropy over all candidates, summed over the answers.

    .. code-block:: python

        S = queries @ candidates.T
        return sum(logsumexp(S[i]) - S[i, o] for i, o in answers)

    Args:
        queries: Shape ``(num_queries, dim)``.
        candidates: Shape ``(num_candidates, dim)``.
        answers: The objects of each query.
        memory_budget: Bytes of temporaries; None: 128 MiB on a CPU, 432 on a GPU.

    Returns:
        A scalar, differentiable once in queries and candidates.
    """
    loss: Tensor = _NegativeLogLikelihood.apply(queries, candidates, answers, memory_budget)
    return loss


class _NegativeLogLikelihood(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, queries: Tensor, candidates: Tensor, answers: SparsePattern, memory_budget: int | None
    ) -> Tensor:
        dtype, facts = chunked.accumulation_dtype(queries), Facts.of(answers, None, queries)
        answered = torch.linalg.vecdot(queries.to(dtype), sum_neighbours(answers, candidates).to(dtype)).sum()
        if not any(ctx.needs_input_grad[:2]):
            lse = chunked.logsumexp(queries, candidates, memory_budget)
            return torch.dot(lse, facts.counts).sub_(answered)
        run = ResidualPass(chunked.Keys(candidates), memory_budget, wide_scores=True)
        lse, wanted = run.add(queries, facts)
        ctx.save_for_backward(wanted.to(queries.dtype), run.pulled.to(candidates.dtype))
        return torch.dot(lse, facts.counts).sub_(answered)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        wanted, pulled = ctx.saved_tensors
        return -grad * wanted, -grad * pulled, None, None


class _FilteredLikelihood(torch.autograd.Function):
    """With ``b_i`` the logsumexp of query ``i``'s negatives, a target ``o`` costs ``softplus(b_i − S_io)``.

    Its derivative by ``S_io`` is ``−σ_io``, by ``b_i`` it is ``σ_io = sigmoid(b_i − S_io)``: the share of negatives,
    times the target's weight where it has one.
    So the derivative by the scores is ``diag(w) P − Σ``, with ``w`` the row sums of the sparse ``Σ`` and ``P`` the
    softmax over the negatives: again three products, one pass.
    """

    @staticmethod
    def forward(
        ctx: Any,
        queries: Tensor,
        candidates: Tensor,
        values: Tensor | None,
        places: SparsePattern | None,
        targets: SparsePattern,
        known: SparsePattern,
        weights: Tensor | None,
        memory_budget: int | None,
    ) -> Tensor:
        dtype, keys = chunked.accumulation_dtype(queries), chunked.Keys(candidates)
        total = queries.new_zeros((), dtype=dtype)
        grad_queries = torch.empty_like(queries)
        # A product less where candidates do not learn, as those of infinite depth that relations learn from.
        grad_candidates = keys.zeros(dtype) if ctx.needs_input_grad[1] else None
        grad_values = None if values is None else torch.empty_like(values)
        rows = chunked.rows_of(memory_budget, _bytes_per_query(queries, candidates.shape[0]), queries.device)
        place = keys.buffer(min(rows, queries.shape[0]), dtype)
        for chunk in chunked.chunks(queries.shape[0], rows):
            q, asked, hidden = queries[chunk], targets.slice_rows(chunk), known.slice_rows(chunk)
            scores = keys.scores(q, out=place)
            if values is not None and places is not None:
                beside, edges = places.slice_rows(chunk), places.edges_of(chunk)
                add_at(scores, beside, values[edges])
            target_scores = at(scores, asked)
            flat(scores).index_fill_(0, hidden.places(scores.stride(0)), _HIDDEN)
            P, base = passes.softmax(scores, keys.num_real, q.dtype)
            counted = None if weights is None else weights[targets.edges_of(chunk)].to(dtype)
            weight, shares = _target_shares(base, target_scores, asked.rows, counted, total)
            # diag(w) (P − Σ/w): the factor of each row goes into what is d wide, not |V| wide.
            add_at(P, asked, shares)
            if grad_values is not None:
                grad_values[edges] = at(P, beside).to(grad_values.dtype) * weight[beside.rows]
            scaled_rows(chunked.matmul(P, keys.padded), weight, out=grad_queries[chunk])
            if grad_candidates is not None:
                chunked.add_matmul_(grad_candidates, P.T, scaled_rows(q, weight))
        if grad_candidates is not None:
            grad_candidates = grad_candidates[: keys.num_real].to(candidates.dtype)
        ctx.save_for_backward(grad_queries, grad_candidates, grad_values)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        scaled = (None if gradient is None else grad * gradient for gradient in ctx.saved_tensors)
        return *scaled, None, None, None, None, None


def _bytes_per_query(queries: Tensor, num_candidates: int) -> int:
    """What the memory budget of the filtered loss is spent on."""
    dtype = chunked.accumulation_dtype(queries)
    if passes.kernels_for(queries) is None:
        return _FILTERED_BUFFERS * num_candidates * dtype.itemsize
    # A kernel writes P in the place of the scores, or beside them where it is narrower. The loss is worth that room: of
    # scores rounded to bfloat16, as a layer has them, its gradients err more than those of a plain implementation.
    return num_candidates * (dtype.itemsize + (queries.dtype.itemsize if queries.dtype != dtype else 0))


def _target_shares(
    base: Tensor, target_scores: Tensor, rows: Tensor, weights: Tensor | None, total: Tensor
) -> tuple[Tensor, Tensor]:
    """``w`` and the numbers of ``−Σ/w``; adds the loss to ``total``."""
    kernels = passes.kernels_for(base)
    if kernels is not None:
        return kernels.target_shares(base, target_scores, rows, weights, total)  # type: ignore[no-any-return]
    gap = base[rows] - target_scores
    loss, share = softplus(gap), gap.sigmoid()
    if weights is not None:
        loss, share = loss * weights, share * weights
    total += loss.sum()
    row_shares = torch.zeros_like(base).index_add_(0, rows, share)
    return row_shares, -share / row_shares.clamp(min=LEAST_WEIGHT)[rows]
