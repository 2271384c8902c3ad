"""The 1-vs-all training loss on the streaming path.

The derivative of the negative log-likelihood by queries and candidates is ``−D H`` and ``−Dᵀ Q`` with
``D = A − diag(c) P``: the very products of a layer. The forward pass therefore computes loss and derivative together,
in one pass over the scores, and the backward pass only scales them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from refactorgnn.ops import chunked
from refactorgnn.ops.sparse import SparsePattern, sum_neighbours


def negative_log_likelihood(
    queries: Tensor, candidates: Tensor, answers: SparsePattern, *, memory_budget: int = 128 * 2**20
) -> Tensor:
    """``−Σ_i Σ_{o ∈ O_i} log P(o | query i)``: softmax cross-entropy over all candidates, summed over the answers.

    .. code-block:: python

        S = queries @ candidates.T
        return sum(logsumexp(S[i]) - S[i, o] for i, o in answers)

    Args:
        queries: Shape ``(num_queries, dim)``.
        candidates: Shape ``(num_candidates, dim)``.
        answers: The objects of each query.
        memory_budget: Bytes of temporaries.

    Returns:
        A scalar, differentiable once in queries and candidates.
    """
    loss: Tensor = _NegativeLogLikelihood.apply(queries, candidates, answers, memory_budget)
    return loss


class _NegativeLogLikelihood(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, queries: Tensor, candidates: Tensor, answers: SparsePattern, memory_budget: int) -> Tensor:
        dtype = chunked.accumulation_dtype(queries)
        counts = answers.counts.to(dtype)
        answer_sums = sum_neighbours(answers, candidates).to(dtype)
        positive = torch.linalg.vecdot(queries.to(dtype), answer_sums)
        if not any(ctx.needs_input_grad[:2]):
            lse = chunked.logsumexp(queries, candidates, memory_budget)
            return _summed(counts, lse, positive)
        lse, expected, pulled = chunked.softmax_products(queries, candidates, counts, memory_budget)
        grad_queries = expected.mul_(counts[:, None]).sub_(answer_sums)
        grad_candidates = pulled.sub_(sum_neighbours(answers.transposed, queries))
        ctx.save_for_backward(grad_queries.to(queries.dtype), grad_candidates.to(candidates.dtype))
        return _summed(counts, lse, positive)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        grad_queries, grad_candidates = ctx.saved_tensors
        return grad * grad_queries, grad * grad_candidates, None, None


def _summed(counts: Tensor, lse: Tensor, positive: Tensor) -> Tensor:
    return torch.dot(counts, lse) - positive.sum()
