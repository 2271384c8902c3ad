"""Aggregating relational messages in bounded memory: mean, maximum, minimum and deviation at every node, combined.

The message of an edge ``u --r--> v`` is ``m = states[u] ∘ relations[r]`` (DistMult), for many questions side by side;
the boundary of ``v`` is one more message to it. One tensor of all messages would have ``|E| × num_questions × dim``
numbers. On a GPU a kernel sums up a node in registers (:mod:`refactorgnn.ops.fused_aggregates`). Elsewhere a few
targets that equally many edges reach are finished at a time: their messages fill an array of ``targets × messages ×
questions × dim`` numbers, which is made in the cache, reduced, and dropped. The backward pass makes it again. With
``M̄``, ``X̄``, ``N̄``, ``D̄`` the derivatives of the loss by the aggregates of ``v``, and ``n`` its number of messages,

    m̄ = a + c m + [m = max] X̄ / #max + [m = min] N̄ / #min,    c = D̄ / (n deviation),    a = M̄ / n − c mean

is the derivative by a message (equal extremes share theirs equally), ``m̄ ∘ relations[r]`` goes to the source,
``m̄ ∘ states[u]`` to the relation, and that of the boundary is its own.

What is wanted of the aggregates are products of them with a few matrices, each scaled by a number of the node's degree
(PNA). Targets of one degree share these numbers, so that one matrix, ``Σ scale_k W_k``, does for all of them the work
of the few, while their aggregates are in the cache: those of all nodes, or their derivatives, are never held.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear

from refactorgnn.ops import passes
from refactorgnn.ops.chunked import cached_budget_on, chunks, matmul, memory_budget_on
from refactorgnn.ops.edges import TARGET_SIZE, TypedEdges
from refactorgnn.ops.precision import product_dtype

# Below it a variance counts as none: the root of 0 has no derivative.
LEAST_VARIANCE = 1e-6
# Tensors as large as a chunk's messages that are alive at once, backwards, where there are more of them.
_EDGE_BUFFERS = 12


def combined_aggregates(
    states: Tensor,
    boundary: Tensor,
    relations: Tensor,
    weights: Tensor,
    scales: Tensor,
    edges: TypedEdges,
    memory_budget: int | None = None,
) -> Tensor:
    """``Σ_k scales[k, v] · weights[k] a_v``, with ``a_v`` the aggregates of the messages that reach ``v``.

    These are mean, maximum, minimum and standard deviation, side by side, the boundary being one of the messages. A
    variance below 10⁻⁶ counts as 10⁻⁶.

    Args:
        states: Shape ``(num_nodes, num_questions, dim)``.
        boundary: As ``states``.
        relations: Shape ``(num_types, num_questions, dim)``, or ``(num_types, 1, dim)`` for relations that are the same
            for all questions.
        weights: Shape ``(num_scales, num_outputs, 4 * dim)``.
        scales: Shape ``(num_scales, num_nodes)``; the same for nodes that equally many edges reach. Not learned.
        edges: The edges.
        memory_budget: Bytes of messages held at once; None: 128 MiB on a CPU, 432 on a GPU. One question's messages
            to one node are held at once, whatever it says. A kernel holds none.

    Returns:
        Shape ``(num_nodes, num_questions, num_outputs)``.
    """
    relations, weights, scales = (values.to(states.dtype) for values in (relations, weights, scales))
    combined: Tensor
    if passes.aggregate_kernels_for(states) is None:
        operands = product_dtype(states)
        with torch.autocast(states.device.type, enabled=False):  # which would narrow results as well
            combined = _CombinedAggregates.apply(
                states, boundary, relations, weights, scales, edges, memory_budget, operands
            )
        return combined
    aggregates: Tensor = _KernelAggregates.apply(states, boundary, relations, edges)
    parts = linear(aggregates, weights.flatten(0, 1)).unflatten(-1, weights.shape[:2])
    combined = (scales.T[:, None, :, None] * parts).sum(-2)
    return combined


class _KernelAggregates(torch.autograd.Function):
    """The aggregates of all nodes, by kernels; shape ``(num_nodes, num_questions, 4 * dim)``."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, boundary: Tensor, relations: Tensor, edges: TypedEdges) -> Tensor:
        ctx.kernels, ctx.edges = passes.aggregate_kernels_for(states), edges
        inputs = states.contiguous(), boundary.contiguous(), relations.contiguous()
        out: Tensor = ctx.kernels.aggregate(*inputs, edges)
        ctx.save_for_backward(*inputs, out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        return *ctx.kernels.gradients(*ctx.saved_tensors, grad.contiguous(), ctx.edges), None


class _CombinedAggregates(torch.autograd.Function):
    """All of :func:`combined_aggregates`, chunk by chunk."""

    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        boundary: Tensor,
        relations: Tensor,
        weights: Tensor,
        scales: Tensor,
        edges: TypedEdges,
        memory_budget: int | None,
        operands: torch.dtype,
    ) -> Tensor:
        combined = states.new_empty(*states.shape[:-1], weights.shape[1])
        for questions, parts in _blocks(states, edges, memory_budget):
            given = states[:, questions], boundary[:, questions], _of(relations, questions)
            for chunk in parts:
                found = _aggregate(chunk.messages(*given)[0])
                factors = found.flatten(0, 1).to(operands), chunk.weight(weights, scales).T.to(operands)
                outputs = matmul(*factors).view(*found.shape[:2], -1)
                combined[:, questions].index_copy_(0, chunk.targets, outputs)
        ctx.save_for_backward(states, boundary, relations, weights, scales)
        ctx.edges, ctx.memory_budget, ctx.operands = edges, memory_budget, operands
        return combined

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, None, None, None, None]:
        states, boundary, relations, weights, scales = ctx.saved_tensors
        grad_states, grad_relations, grad_weights = map(torch.zeros_like, (states, relations, weights))
        grad_boundary = torch.empty_like(boundary)
        for questions, parts in _blocks(states, ctx.edges, ctx.memory_budget):
            given = states[:, questions], boundary[:, questions], _of(relations, questions)
            into_states, into_relations = grad_states[:, questions], _of(grad_relations, questions)
            for chunk in parts:
                messages, h, w = chunk.messages(*given)
                found = _aggregate(messages)
                by_output = grad[:, questions].index_select(0, chunk.targets).flatten(0, 1).to(ctx.operands)
                by_aggregates = matmul(by_output, chunk.weight(weights, scales).to(ctx.operands)).view(found.shape)
                grad_weights += chunk.scales(scales) * matmul(by_output.T, found.flatten(0, 1).to(ctx.operands))
                by_edge, by_own = _by_message(messages, found, by_aggregates).tensor_split([chunk.degree], dim=1)
                grad_boundary[:, questions].index_copy_(0, chunk.targets, by_own.squeeze(1))
                into_states.index_add_(0, chunk.sources.flatten(), (w * by_edge).flatten(0, 1))
                into_relations.index_add_(0, chunk.types.flatten(), _like(h.mul_(by_edge).flatten(0, 1), w))
        return grad_states, grad_boundary, grad_relations, grad_weights, None, None, None, None


def _aggregate(messages: Tensor) -> Tensor:
    """Of messages of shape ``(num_targets, n, num_questions, dim)``; ``(num_targets, num_questions, 4 * dim)``."""
    mean, squares = messages.mean(1), messages.square().mean(1)
    deviation = squares.addcmul_(mean, mean, value=-1).clamp_(min=LEAST_VARIANCE).sqrt_()
    return torch.cat([mean, messages.amax(1), messages.amin(1), deviation], dim=-1)


def _by_message(messages: Tensor, aggregates: Tensor, wanted: Tensor) -> Tensor:
    """``m̄`` of the messages of some targets; shape ``(num_targets, n, num_questions, dim)``.

    Args:
        messages: ``m``, of the same shape.
        aggregates: Their four aggregates; shape ``(num_targets, num_questions, 4 * dim)``.
        wanted: The derivative by them; same shape.
    """
    mean, largest, smallest, deviation = aggregates.unsqueeze(1).chunk(4, dim=-1)
    of_mean, of_largest, of_smallest, of_deviation = wanted.unsqueeze(1).chunk(4, dim=-1)
    number = messages.shape[1]
    c = torch.where(deviation > math.sqrt(LEAST_VARIANCE), of_deviation / deviation, 0) / number
    result = torch.addcmul(of_mean / number - c * mean, c, messages)
    is_extreme = torch.empty_like(messages)  # in numbers: a choice between numbers by truths is many times slower
    for extreme, of_extreme in ((largest, of_largest), (smallest, of_smallest)):
        torch.eq(messages, extreme, out=is_extreme)
        result.addcmul_(is_extreme, of_extreme / is_extreme.sum(1, keepdim=True))
    return result


@dataclass(frozen=True)
class _Chunk:
    """Targets that equally many edges reach, and these edges.

    Args:
        targets: Shape ``(num_targets,)``.
        sources: Shape ``(num_targets, degree)``.
        types: Shape ``(num_targets, degree)``.
    """

    targets: Tensor
    sources: Tensor
    types: Tensor

    @property
    def degree(self) -> int:
        return self.sources.shape[1]

    def scales(self, scales: Tensor) -> Tensor:
        """What the targets share of the scales; shape ``(num_scales, 1, 1)``."""
        return scales[:, self.targets[0], None, None]

    def weight(self, weights: Tensor, scales: Tensor) -> Tensor:
        """The matrix of all targets, ``Σ scale_k W_k``; shape ``(num_outputs, 4 * dim)``."""
        return (self.scales(scales) * weights).sum(0)

    def messages(self, states: Tensor, boundary: Tensor, relations: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The messages that reach the targets, the boundary last, and the two factors of the others."""
        shape = self.sources.shape
        h: Tensor = states.index_select(0, self.sources.flatten()).unflatten(0, shape)
        w: Tensor = relations.index_select(0, self.types.flatten()).unflatten(0, shape)
        messages = h.new_empty(shape[0], shape[1] + 1, *h.shape[2:])
        torch.mul(h, w, out=messages[:, :-1])
        messages[:, -1] = boundary.index_select(0, self.targets)
        return messages, h, w


def _blocks(states: Tensor, edges: TypedEdges, memory_budget: int | None) -> Iterator[tuple[slice, list[_Chunk]]]:
    """Some questions, and the chunks of edges that fit in memory for them.

    Questions are cut only where all edges of one node do not fit for all of them.
    """
    _, num_questions, dim = states.shape
    budget = memory_budget_on(states.device, memory_budget)
    numbers = _EDGE_BUFFERS * dim * states.element_size()
    together = max(1, min(num_questions, budget // numbers // (edges.most_degree + TARGET_SIZE)))
    # Messages that stay in the cache are reduced twice as fast as those of a large chunk.
    budget = cached_budget_on(states.device, memory_budget)
    made = [
        _Chunk(targets, edges.sources[part], edges.types[part])
        for targets, part in edges.chunks(max(1, budget // numbers // together))
    ]
    for questions in chunks(num_questions, together):
        yield questions, made


def _of(relations: Tensor, questions: slice) -> Tensor:
    return relations if relations.shape[1] == 1 else relations[:, questions]


def _like(gradient: Tensor, relation: Tensor) -> Tensor:
    """Relations that all questions share get the sum of what the questions want."""
    return gradient if relation.shape[2] == gradient.shape[1] else gradient.sum(1, keepdim=True)
