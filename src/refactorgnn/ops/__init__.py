"""The heavy operations: three products with ``P``, and two with the sparse matrix ``A`` of known answers.

With queries ``Q`` (``|Q|×d``), candidates ``H`` (``|V|×d``), ``S = Q Hᵀ`` and ``P = softmax(S)`` over all entities,
everything costly in a ReFactor layer, and in the training loss, is ``logsumexp(S)``, ``P H`` and ``Pᵀ Q``.
``impl="reference"`` is the specification; ``impl="chunked"`` computes the same in bounded memory.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from refactorgnn.errors import unknown_name
from refactorgnn.ops import chunked, reference, residual
from refactorgnn.ops.chunked import DEFAULT_MEMORY_BUDGET
from refactorgnn.ops.nll import AddedScores, filtered_negative_log_likelihood, negative_log_likelihood
from refactorgnn.ops.precision import mixed_precision
from refactorgnn.ops.sparse import SparsePattern, edge_dots, sum_neighbours

Impl = Literal["chunked", "reference"]
IMPLS: tuple[Impl, ...] = ("chunked", "reference")

__all__ = [
    "DEFAULT_MEMORY_BUDGET",
    "IMPLS",
    "AddedScores",
    "Impl",
    "SparsePattern",
    "edge_dots",
    "filtered_negative_log_likelihood",
    "logsumexp",
    "negative_log_likelihood",
    "residual_products",
    "softmax_products",
    "sum_neighbours",
]


@mixed_precision
def softmax_products(
    queries: Tensor,
    candidates: Tensor,
    weights: Tensor,
    *,
    impl: Impl = "chunked",
    memory_budget: int | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The three products with ``P = softmax(queries @ candidates.T)``, in one pass over the scores.

    .. code-block:: python

        S = queries @ candidates.T
        P = softmax(S, dim=1)
        return logsumexp(S, dim=1), P @ candidates, P.T @ (weights[:, None] * queries)

    Args:
        queries: Shape ``(num_queries, dim)``.
        candidates: Shape ``(num_candidates, dim)``.
        weights: Shape ``(num_queries,)``; in a layer, the number of answers ``c_i`` of each query.
        impl: ``"chunked"`` (bounded memory) or ``"reference"`` (the lines above).
        memory_budget: Bytes of temporaries that ``"chunked"`` may hold.

    Returns:
        Tensors of shapes ``(num_queries,)``, ``(num_queries, dim)`` and ``(num_candidates, dim)``, differentiable in
        all three inputs; of bfloat16 or float16 inputs ``"chunked"`` makes float32, ``"reference"`` their own type.
    """
    if impl == "chunked":
        return chunked.softmax_products(queries, candidates, weights, memory_budget)
    if impl == "reference":
        return reference.softmax_products(queries, candidates, weights)
    raise unknown_name("impl", impl, IMPLS)


@mixed_precision
def residual_products(
    queries: Tensor,
    candidates: Tensor,
    answers: SparsePattern,
    weights: Tensor | None = None,
    *,
    impl: Impl = "chunked",
    memory_budget: int | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The products of a layer, with ``D = A − diag(c) P``: the known answers minus the expected ones, in one pass.

    .. code-block:: python

        S = queries @ candidates.T
        A = zeros_like(S); A[i, o] += w for w, (i, o) in zip(weights, answers)
        D = A - A.sum(1, keepdim=True) * softmax(S, dim=1)
        return logsumexp(S, dim=1), D @ candidates, D.T @ queries

    Args:
        queries: Shape ``(num_queries, dim)``.
        candidates: Shape ``(num_candidates, dim)``.
        answers: The known objects of each query.
        weights: How much each of them counts, shape ``(num_edges,)``; None: 1 each.
        impl: ``"chunked"`` (bounded memory) or ``"reference"`` (the lines above).
        memory_budget: Bytes of temporaries that ``"chunked"`` may hold; None: 128 MiB on a CPU, 432 on a GPU.

    Returns:
        Tensors of shapes ``(num_queries,)``, ``(num_queries, dim)`` and ``(num_candidates, dim)``, differentiable in
        queries and candidates (``"chunked"``: once); of bfloat16 or float16 inputs ``"chunked"`` makes float32,
        ``"reference"`` their own type.
    """
    if impl == "chunked":
        return residual.residual_products(queries, candidates, answers, weights, memory_budget)
    if impl == "reference":
        return reference.residual_products(queries, candidates, answers, weights)
    raise unknown_name("impl", impl, IMPLS)


@mixed_precision
def logsumexp(
    queries: Tensor,
    candidates: Tensor,
    *,
    impl: Impl = "chunked",
    memory_budget: int | None = None,
) -> Tensor:
    """``logsumexp(queries @ candidates.T, dim=1)``, shape ``(num_queries,)``; arguments as :func:`softmax_products`."""
    if impl == "chunked":
        return chunked.logsumexp(queries, candidates, memory_budget)
    if impl == "reference":
        return reference.logsumexp(queries, candidates)
    raise unknown_name("impl", impl, IMPLS)
