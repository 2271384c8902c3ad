"""The two products of a layer, with ``D = A − diag(c) P``: what is known minus what is expected.

``A`` is sparse and ``P`` is not, so ``A``'s few numbers are added into the chunk of ``−diag(c) P`` that is in memory
anyway: a layer is then three products (``S``, ``D H``, ``Dᵀ Q``) and passes over the scores, with nothing gathered edge
by edge. With ``Ē``, ``Ḡ``, ``l̄`` the derivatives of the loss by the outputs ``E = D H``, ``G = Dᵀ Q`` and
``l = logsumexp(S)``:

    M   = −c ∘ (Ē Hᵀ + Q Ḡᵀ)                              the derivative by P
    S̄   = P ∘ (M − rowsum(P ∘ M) + l̄)                     softmax and logsumexp
    Q̄   = S̄ H + D Ḡ
    H̄   = S̄ᵀ Q + Dᵀ Ē
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from refactorgnn.ops import chunked
from refactorgnn.ops.sparse import SparsePattern

# |V|-wide buffers alive at once in a forward chunk (E, and a narrow copy for half-precision products) and in a backward
# chunk (P, M and a temporary).
_FORWARD_BUFFERS = 2
_BACKWARD_BUFFERS = 3
# Below any weight that counts.
_LEAST = 1e-30


def residual_products(
    queries: Tensor, candidates: Tensor, answers: SparsePattern, weights: Tensor | None, memory_budget: int | None
) -> tuple[Tensor, Tensor, Tensor]:
    """See :func:`refactorgnn.ops.residual_products`."""
    outputs: tuple[Tensor, Tensor, Tensor] = _ResidualProducts.apply(
        queries, candidates, answers, weights, memory_budget
    )
    return outputs


def add_at(matrix: Tensor, pattern: SparsePattern, values: Tensor) -> Tensor:
    """``matrix[i, o] += value`` for each edge ``(i, o)`` of the pattern, in place; ``matrix`` is contiguous."""
    matrix.view(-1).index_add_(0, pattern.rows * matrix.shape[1] + pattern.columns, values)
    return matrix


class _Facts:
    """``A`` and ``c``, chunk by chunk."""

    def scaled_residual_(self, E: Tensor, normaliser: Tensor, chunk: slice) -> Tensor:
        """Make ``E − Z/c A`` of the exponentials ``E = Z P``, in place; returns ``−c/Z``, which makes ``D`` of it.

        A row without facts has ``D = 0``: its factor is 0, and its share of ``A`` is empty or of weight 0.
        """
        counts, answers = self.counts[chunk], self.answers.slice_rows(chunk)
        share = torch.where(counts > 0, normaliser / counts.clamp(min=_LEAST), 0)
        add_at(E, answers, -self.weights[self.answers.edges_of(chunk)] * share[answers.rows])
        return -(counts / normaliser)[:, None]

    def __init__(self, answers: SparsePattern, weights: Tensor | None, dtype: torch.dtype) -> None:
        self.answers = answers
        self.weights = torch.ones_like(answers.columns, dtype=dtype) if weights is None else weights.to(dtype)
        self.counts = answers.counts.to(dtype)
        if weights is not None:
            self.counts = torch.zeros_like(self.counts).index_add_(0, answers.rows, self.weights)

    def residual_(self, P: Tensor, chunk: slice) -> Tensor:
        """``A − diag(c) P``, in the place of ``P``."""
        P.mul_(-self.counts[chunk, None])
        return add_at(P, self.answers.slice_rows(chunk), self.weights[self.answers.edges_of(chunk)])


def _scaled(rows: Tensor, factors: Tensor) -> Tensor:
    """The rows times a factor each, in the type of the rows."""
    return (rows * factors).to(rows.dtype)


class _ResidualProducts(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        queries: Tensor,
        candidates: Tensor,
        answers: SparsePattern,
        weights: Tensor | None,
        memory_budget: int | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        dtype, keys = chunked.accumulation_dtype(queries), chunked.Keys(candidates)
        facts = _Facts(answers, weights, dtype)
        lse = queries.new_empty(queries.shape[0], dtype=dtype)
        wanted = queries.new_empty(queries.shape, dtype=dtype)
        pulled = keys.zeros(dtype)
        rows = chunked.rows_within(memory_budget, candidates.shape[0], _FORWARD_BUFFERS, dtype.itemsize, queries.device)
        place = keys.buffer(min(rows, queries.shape[0]), dtype)
        for chunk in chunked.chunks(queries.shape[0], rows):
            q = queries[chunk]
            scores = keys.scores(q, out=place)
            largest = scores.amax(dim=1)
            E = scores.sub_(largest[:, None]).exp_()
            normaliser = E.sum(dim=1)
            lse[chunk] = largest + normaliser.log()
            # D = −c/Z (E − Z/c A): the factor of each row goes into what is d wide, not |V| wide.
            factor = facts.scaled_residual_(E, normaliser, chunk)
            wanted[chunk] = chunked.matmul(E, keys.padded).mul_(factor)
            chunked.add_matmul_(pulled, E.T, _scaled(q, factor))
        ctx.save_for_backward(queries, candidates, weights, lse)
        ctx.answers, ctx.memory_budget = answers, memory_budget
        return lse, wanted, pulled[: keys.num_real]

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, grad_lse: Tensor, grad_wanted: Tensor, grad_pulled: Tensor
    ) -> tuple[Tensor, Tensor, None, None, None]:
        queries, candidates, weights, lse = ctx.saved_tensors
        keys, facts = chunked.Keys(candidates), _Facts(ctx.answers, weights, lse.dtype)
        grad_pulled = keys.like(grad_pulled)
        grad_queries = torch.empty_like(grad_wanted)
        grad_candidates = torch.zeros_like(grad_pulled)
        rows = chunked.rows_within(
            ctx.memory_budget, candidates.shape[0], _BACKWARD_BUFFERS, lse.dtype.itemsize, queries.device
        )
        places = [keys.buffer(min(rows, queries.shape[0]), lse.dtype) for _ in range(2)]
        for chunk in chunked.chunks(queries.shape[0], rows):
            q, grad_w = queries[chunk], grad_wanted[chunk]
            P = keys.scores(q, out=places[0]).sub_(lse[chunk, None]).exp_()
            # −c goes into the short factors: a pass over M less.
            minus = -facts.counts[chunk, None]
            M = chunked.matmul(_scaled(grad_w, minus), keys.padded.T, out=places[1][: len(q)])
            chunked.add_matmul_(M, _scaled(q, minus), grad_pulled.T)
            row_sums = torch.linalg.vecdot(P, M)
            grad_scores = M.sub_((row_sums - grad_lse[chunk])[:, None]).mul_(P)
            D = facts.residual_(P, chunk)
            mine = chunked.matmul(grad_scores, keys.padded)
            grad_queries[chunk] = chunked.add_matmul_(mine, D, grad_pulled)
            chunked.add_matmul_(grad_candidates, grad_scores.T, q)
            chunked.add_matmul_(grad_candidates, D.T, grad_w)
        grad_candidates = grad_candidates[: keys.num_real]
        return grad_queries.to(queries.dtype), grad_candidates.to(candidates.dtype), None, None, None
