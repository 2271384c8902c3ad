"""Messages weighted by attention, summed at their targets, with none of them stored.

An edge ``u --r--> v`` carries ``α Σ_b mixing[r, b] values[b, u]``, with the attention

    α = kept · σ(w · ReLU(x) + bias),    x = of_source[u] + of_target[v] + of_type[r].

The sum over edges is taken basis by basis, as a product with a sparse matrix, so that a message exists only while it is
added; ``x`` is made chunk by chunk, in the cache, and again in the backward pass. What is kept is one number an edge.
With ``Ȳ`` the derivative by the sum, ``m = mixing[r]`` and ``p_b = Ȳ[v] · values[b, u]``,

    values̄[b, u] = Σ_edges α m_b Ȳ[v],   mixinḡ[r] = Σ_edges α p,   x̄ = (m · p) kept σ' w [x > 0],

and ``x̄``, summed by source, target and type, is the derivative by what ``x`` is made of. It is the one tensor of
``|E| × width`` numbers, and lives in the backward pass alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import embedding

from refactorgnn.ops.edges import TypedEdges
from refactorgnn.ops.sparse import SparsePattern, sum_neighbours

# Numbers of a chunk: what a few arrays of them take stays in a core's cache. A GPU is to have much to do at once.
_CHUNK, _CHUNK_ON_GPU = 2**17, 2**24


class Attention(NamedTuple):
    """What ``α`` is made of.

    Args:
        of_source: Shape ``(num_nodes, width)``.
        of_target: Shape ``(num_nodes, width)``.
        of_type: Shape ``(num_types, width)``.
        weight: ``w``; shape ``(width,)``.
        bias: Shape ``(1,)``.
    """

    of_source: Tensor
    of_target: Tensor
    of_type: Tensor
    weight: Tensor
    bias: Tensor


def attended_sum(
    values: Tensor, mixing: Tensor, attention: Attention, edges: TypedEdges, kept: Tensor | None = None
) -> Tensor:
    """``Σ_{(u, r, v)} α Σ_b mixing[r, b] values[b, u]`` at every node ``v``, differentiable once.

    Args:
        values: Shape ``(num_bases, num_nodes, dim)``.
        mixing: Shape ``(num_types, num_bases)``.
        attention: What ``α`` is made of, in the type of ``values``.
        edges: The edges, sorted by target.
        kept: What each ``α`` is multiplied with, such as a mask of dropout; shape ``(num_edges,)``.

    Returns:
        Shape ``(num_nodes, dim)``.
    """
    total: Tensor = _AttendedSum.apply(edges, kept, values, mixing, *attention)
    return total


class _AttendedSum(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, edges: TypedEdges, kept: Tensor | None, values: Tensor, mixing: Tensor, *parts: Tensor
    ) -> Tensor:
        attention = Attention(*parts)
        shares = values.new_empty(edges.num_edges)
        for chunk in _chunks(edges, attention.weight):
            hidden = _hidden(attention, edges, chunk)
            shares[chunk] = torch.sigmoid(torch.addmv(attention.bias, hidden, attention.weight))
        ctx.edges, ctx.kept = edges, kept
        ctx.save_for_backward(shares, values, mixing, *parts)
        alphas = shares if kept is None else kept * shares
        return _summed(edges.incoming, values, _weights(alphas, mixing, edges))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        edges, kept, grad = ctx.edges, ctx.kept, grad.contiguous()
        shares, values, mixing, *parts = ctx.saved_tensors
        attention = Attention(*parts)
        alphas = shares if kept is None else kept * shares
        slopes = alphas * (1 - shares)
        dots = values.new_empty(len(values), edges.num_edges)
        grad_hidden = values.new_empty(edges.num_edges, len(attention.weight))
        grad_scores = values.new_empty(edges.num_edges)
        grad_weight = torch.zeros_like(attention.weight)
        for chunk in _chunks(edges, attention.weight):
            at_target = embedding(edges.targets[chunk], grad)
            for basis, value in enumerate(values):
                dots[basis, chunk] = torch.linalg.vecdot(embedding(edges.sources[chunk], value), at_target)
            of_mixed = torch.linalg.vecdot(mixing[edges.types[chunk]], dots[:, chunk].T)
            grad_scores[chunk] = slopes[chunk] * of_mixed
            hidden = _hidden(attention, edges, chunk)
            grad_weight += grad_scores[chunk] @ hidden
            torch.mul(grad_scores[chunk, None], (hidden > 0) * attention.weight, out=grad_hidden[chunk])
        return (
            None,
            None,
            _passed_back(edges, grad, _weights(alphas, mixing, edges)),
            torch.zeros_like(mixing).index_add_(0, edges.types, (alphas * dots).T),
            sum_neighbours(edges.outgoing, grad_hidden),
            sum_neighbours(edges.arriving, grad_hidden),
            torch.zeros_like(attention.of_type).index_add_(0, edges.types, grad_hidden),
            grad_weight,
            grad_scores.sum(0, keepdim=True),
        )


def _chunks(edges: TypedEdges, weight: Tensor) -> Iterator[slice]:
    length = max(1, (_CHUNK if weight.device.type == "cpu" else _CHUNK_ON_GPU) // len(weight))
    for start in range(0, edges.num_edges, length):
        yield slice(start, start + length)


def _hidden(attention: Attention, edges: TypedEdges, chunk: slice) -> Tensor:
    """``ReLU(x)``; shape ``(chunk, width)``."""
    hidden = embedding(edges.sources[chunk], attention.of_source)
    hidden += embedding(edges.targets[chunk], attention.of_target)
    hidden += embedding(edges.types[chunk], attention.of_type)
    return hidden.relu_()


def _weights(alphas: Tensor, mixing: Tensor, edges: TypedEdges) -> Tensor:
    """``α mixing[r]``; shape ``(num_bases, num_edges)``."""
    return alphas * mixing.T[:, edges.types]


def _summed(pattern: SparsePattern, values: Tensor, weights: Tensor) -> Tensor:
    """``Σ_b (A ∘ weights[b]) values[b]``."""
    total = values.new_zeros(pattern.num_rows, values.shape[-1])
    for value, weight in zip(values, weights, strict=True):
        total += sum_neighbours(pattern, value, weight)
    return total


def _passed_back(edges: TypedEdges, grad: Tensor, weights: Tensor) -> Tensor:
    """What reaches the source of each edge of the derivative at its target; shape ``(num_bases, num_nodes, dim)``."""
    leaving = edges.outgoing
    targets = SparsePattern(leaving.offsets, edges.targets[leaving.columns], edges.num_nodes)
    return torch.stack([sum_neighbours(targets, grad, weight) for weight in weights[:, leaving.columns]])
