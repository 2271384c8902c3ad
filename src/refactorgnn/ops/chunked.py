"""The products with ``P``, streamed over chunks of queries: exact, in bounded memory, forward and backward.

A chunk of ``b`` queries holds its ``b×|V|`` scores and probabilities, uses them for all three products and drops them.
``b`` follows from the memory budget, so memory never depends on the number of queries. The backward pass recomputes the
scores of each chunk and applies the derivative in closed form. With ``Ē``, ``Ḡ``, ``l̄`` the derivatives of the loss by
the outputs ``E = P H``, ``G = Pᵀ diag(w) Q`` and ``l = logsumexp(S)``:

    M   = Ē Hᵀ + diag(w) Q Ḡᵀ                     the derivative by P
    S̄   = P ∘ (M − rowsum(P ∘ M) + l̄)             softmax and logsumexp
    Q̄   = S̄ H + diag(w) P Ḡ
    H̄   = S̄ᵀ Q + Pᵀ Ē
    w̄_i = Q_i · (P Ḡ)_i
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from refactorgnn.ops import passes
from refactorgnn.ops.passes import HALF_PRECISION
from refactorgnn.ops.processor import multiplies_as_is, product_library

# Bytes of |V|-wide temporaries that one call may hold, whatever the number of queries, on a CPU and on a GPU.
DEFAULT_MEMORY_BUDGET = 128 * 2**20
# What stays in a CPU's cache between two passes.
_CACHED_BYTES = 8 * 2**20
GPU_MEMORY_BUDGET = 432 * 2**20
# Rows beyond which a matrix product gains nothing from a longer chunk, whose scores then leave the caches between one
# pass and the next; on a GPU that is far beyond any budget.
_MOST_ROWS = 512
_MOST_GPU_ROWS = 2**20
# The tensor cores of a GPU are at their best when every row of a matrix begins at a multiple of this many numbers.
_ALIGNMENT = 8
# |V|-wide buffers alive at once in a forward chunk (S, P) and in a backward chunk (S, P, M and one temporary).
_FORWARD_BUFFERS = 2
_BACKWARD_BUFFERS = 4


def memory_budget_on(device: torch.device, memory_budget: int | None) -> int:
    """Bytes of temporaries; None: 128 MiB on a CPU, 432 on a GPU."""
    if memory_budget is not None:
        return memory_budget
    return GPU_MEMORY_BUDGET if device.type == "cuda" else DEFAULT_MEMORY_BUDGET


def cached_budget_on(device: torch.device, memory_budget: int | None) -> int:
    """As :func:`memory_budget_on`, on a CPU no more than its cache holds: for many passes over the same numbers."""
    budget = memory_budget_on(device, memory_budget)
    return min(budget, _CACHED_BYTES) if device.type == "cpu" else budget


def rows_within(
    memory_budget: int | None,
    num_candidates: int,
    buffers: int,
    itemsize: int = 4,
    *,
    device: torch.device,
) -> int:
    """The queries of a chunk whose ``buffers`` score matrices fit in the budget; at least 1.

    Args:
        memory_budget: Bytes; None: 128 MiB on a CPU, 432 on a GPU.
        num_candidates: The width of a score matrix.
        buffers: How many of them are alive at once.
        itemsize: The bytes of a number.
        device: Where they are.
    """
    return rows_of(memory_budget, buffers * num_candidates * itemsize, device)


def rows_of(memory_budget: int | None, bytes_per_row: int, device: torch.device) -> int:
    """As :func:`rows_within`, of queries that take so many bytes each."""
    most_rows = _MOST_GPU_ROWS if device.type == "cuda" else _MOST_ROWS
    return max(1, min(most_rows, memory_budget_on(device, memory_budget) // max(1, bytes_per_row)))


class Keys:
    """The candidates of a product: on a GPU with rows of zeros added, for aligned rows of scores.

    Args:
        candidates: Shape ``(num_candidates, dim)``.
    """

    def __init__(self, candidates: Tensor) -> None:
        self.num_real = candidates.shape[0]
        missing = -self.num_real % _ALIGNMENT if candidates.is_cuda else 0
        self.padded = torch.nn.functional.pad(candidates, (0, 0, 0, missing)) if missing else candidates

    def buffer(self, num_rows: int, dtype: torch.dtype) -> Tensor:
        """A place for the scores of ``num_rows`` queries: one for all chunks, for a CPU is slow to map memory anew."""
        return self.padded.new_empty(num_rows, self.padded.shape[0], dtype=dtype)

    def scores(self, queries: Tensor, out: Tensor | None = None) -> Tensor:
        """``queries @ candidates.T``; the added columns mean nothing.

        Args:
            queries: Shape ``(num_queries, dim)``.
            out: Where to put them: the first rows of a :meth:`buffer`; somewhere new if not given. What is wider than
                its factors gets scores that were never rounded to them.
        """
        if out is None:
            return matmul(queries, self.padded.T)
        if out.dtype != queries.dtype and not queries.is_cuda:
            return matmul(queries.to(out.dtype), self._widened.T, out[: queries.shape[0]])
        return matmul(queries, self.padded.T, out[: queries.shape[0]])

    @cached_property
    def _widened(self) -> Tensor:
        """The candidates in the type of the sums."""
        return self.padded.to(accumulation_dtype(self.padded))

    def hide_added(self, scores: Tensor) -> Tensor:
        """The scores with −∞ in the added columns, in place."""
        scores[:, self.num_real :].fill_(-torch.inf)
        return scores

    def zeros(self, dtype: torch.dtype) -> Tensor:
        """Zeros in the shape of the candidates, added ones included."""
        return torch.zeros_like(self.padded, dtype=dtype)

    def like(self, tensor: Tensor) -> Tensor:
        """A tensor in the shape of the candidates, with rows of zeros added where they have them."""
        missing = self.padded.shape[0] - self.num_real
        return torch.nn.functional.pad(tensor, (0, 0, 0, missing)) if missing else tensor


def softmax_products(
    queries: Tensor, candidates: Tensor, weights: Tensor, memory_budget: int | None
) -> tuple[Tensor, Tensor, Tensor]:
    """See :func:`refactorgnn.ops.softmax_products`."""
    outputs: tuple[Tensor, Tensor, Tensor] = _SoftmaxProducts.apply(queries, candidates, weights, memory_budget)
    return outputs


def logsumexp(queries: Tensor, candidates: Tensor, memory_budget: int | None) -> Tensor:
    """See :func:`refactorgnn.ops.logsumexp`."""
    result: Tensor = _LogSumExp.apply(queries, candidates, memory_budget)
    return result


def accumulation_dtype(tensor: Tensor) -> torch.dtype:
    """Half-precision inputs are multiplied as they are but summed, and returned, in float32."""
    return torch.float32 if tensor.dtype in HALF_PRECISION else tensor.dtype


def matmul(left: Tensor, right: Tensor, out: Tensor | None = None) -> Tensor:
    """``left @ right`` with the accumulator's type as the result's, or that of ``out``.

    On CUDA half-precision operands go to the tensor cores with a float32 result. On a CPU that multiplies bfloat16 the
    result is rounded to it before it is widened; elsewhere the operands are widened first, which is exact.
    """
    narrow = {left.dtype, right.dtype} & HALF_PRECISION
    if narrow:
        dtype = narrow.pop()
        if out is not None and out.dtype == dtype:
            return torch.mm(left.to(dtype), right.to(dtype), out=out)
        if left.is_cuda:
            return torch.mm(left.to(dtype), right.to(dtype), out_dtype=torch.float32, out=out)
        if multiplies_as_is(left, right, dtype):
            product = torch.mm(left.to(dtype), right.to(dtype))
            return product.float() if out is None else out.copy_(product)
        left, right = left.float(), right.float()
    with product_library(left, right):
        return torch.mm(left, right, out=out)


def add_matmul_(total: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """``total += left @ right``, in one pass over ``total`` where the library has it for these types."""
    if total.dtype == left.dtype == right.dtype:
        with product_library(left, right):
            return total.addmm_(left, right)
    if total.is_cuda and left.dtype == right.dtype:
        return torch.addmm(total, left, right, out_dtype=total.dtype, out=total)
    if left.dtype == right.dtype and multiplies_as_is(left, right, left.dtype):
        return total.add_(torch.mm(left, right))
    return total.add_(matmul(left, right))


def even_size(num_rows: int, rows: int) -> int:
    """The least size with which ``num_rows`` have as few chunks as with ``rows``.

    >>> even_size(10, 4)  # three chunks, as of 4, 4 and 2
    4
    >>> even_size(9, 4)
    3
    """
    return -(-num_rows // -(-num_rows // rows)) if num_rows else rows


def chunks(num_rows: int, rows: int, *, times: int = 1) -> Iterator[slice]:
    """Slices of at most ``rows`` that cover ``num_rows``, as few as there can be and nearly equal.

    Args:
        num_rows: How many there are to be covered.
        rows: The most of a slice.
        times: How many such slices to take together.
    """
    size = times * even_size(num_rows, rows)
    for start in range(0, num_rows, size):
        yield slice(start, min(start + size, num_rows))


class _SoftmaxProducts(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, queries: Tensor, candidates: Tensor, weights: Tensor, memory_budget: int | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        dtype, keys = accumulation_dtype(queries), Keys(candidates)
        lse = queries.new_empty(queries.shape[0], dtype=dtype)
        expected = queries.new_empty(queries.shape, dtype=dtype)
        pulled = keys.zeros(dtype)
        rows = rows_within(memory_budget, candidates.shape[0], _FORWARD_BUFFERS, dtype.itemsize, device=queries.device)
        for chunk in chunks(queries.shape[0], rows):
            q = queries[chunk]
            P, lse[chunk] = passes.softmax(keys.scores(q), keys.num_real, q.dtype)
            expected[chunk] = matmul(P, keys.padded)
            add_matmul_(pulled, P.T, weights[chunk, None] * q)
        ctx.save_for_backward(queries, candidates, weights, lse)
        ctx.memory_budget = memory_budget
        return lse, expected, pulled[: keys.num_real]

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, grad_lse: Tensor, grad_expected: Tensor, grad_pulled: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, None]:
        queries, candidates, weights, lse = ctx.saved_tensors
        keys = Keys(candidates)
        grad_pulled = keys.like(grad_pulled)
        grad_queries = torch.empty_like(grad_expected)
        grad_candidates = torch.zeros_like(grad_pulled)
        grad_weights = torch.empty_like(lse)
        rows = rows_within(
            ctx.memory_budget, candidates.shape[0], _BACKWARD_BUFFERS, lse.dtype.itemsize, device=queries.device
        )
        for chunk in chunks(queries.shape[0], rows):
            q, w = queries[chunk], weights[chunk, None]
            P = torch.softmax(keys.hide_added(keys.scores(q)), dim=1)
            M = add_matmul_(matmul(grad_expected[chunk], keys.padded.T), w * q, grad_pulled.T)
            row_sums = torch.linalg.vecdot(P, M)[:, None]
            grad_scores = M.sub_(row_sums - grad_lse[chunk, None]).mul_(P)
            pushed = matmul(P, grad_pulled)
            grad_queries[chunk] = matmul(grad_scores, keys.padded) + w * pushed
            add_matmul_(grad_candidates, grad_scores.T, q)
            add_matmul_(grad_candidates, P.T, grad_expected[chunk])
            grad_weights[chunk] = torch.linalg.vecdot(q.to(pushed.dtype), pushed)
        return (
            grad_queries.to(queries.dtype),
            grad_candidates[: keys.num_real].to(candidates.dtype),
            grad_weights.to(weights.dtype),
            None,
        )


class _LogSumExp(torch.autograd.Function):
    """``logsumexp(S)``, whose derivative is the other two products: ``Q̄ = diag(l̄) P H``, ``H̄ = Pᵀ diag(l̄) Q``."""

    @staticmethod
    def forward(ctx: Any, queries: Tensor, candidates: Tensor, memory_budget: int | None) -> Tensor:
        dtype, keys = accumulation_dtype(queries), Keys(candidates)
        lse = queries.new_empty(queries.shape[0], dtype=dtype)
        rows = rows_within(memory_budget, candidates.shape[0], _FORWARD_BUFFERS, dtype.itemsize, device=queries.device)
        for chunk in chunks(queries.shape[0], rows):
            _, lse[chunk] = passes.exponentials_(keys.hide_added(keys.scores(queries[chunk])))
        ctx.save_for_backward(queries, candidates)
        ctx.memory_budget = memory_budget
        return lse

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_lse: Tensor) -> tuple[Tensor, Tensor, None]:
        queries, candidates = ctx.saved_tensors
        _, expected, pulled = softmax_products(queries, candidates, grad_lse, ctx.memory_budget)
        return (grad_lse[:, None] * expected).to(queries.dtype), pulled.to(candidates.dtype), None
