"""Aggregating relational messages in bounded memory: the sum, sum of squares, maximum and minimum at every node.

The message of an edge ``u --r--> v`` is ``states[u] ∘ relations[r]`` (DistMult), for many questions side by side. One
tensor of all messages would have ``|E| × num_questions × dim`` numbers. Edges are sorted by target and cut where the
edges of a target end, so that a chunk of them finishes the targets it has: its messages are made, reduced four times,
and dropped. The backward pass makes them again. With ``T̄``, ``S̄``, ``X̄``, ``N̄`` the derivatives of the loss by the
four outputs at ``v``,

    m̄ = T̄ + 2 m S̄ + [m = max] X̄ / #max + [m = min] N̄ / #min

is the derivative by a message (equal extremes share theirs equally), ``m̄ ∘ relations[r]`` goes to the source and
``m̄ ∘ states[u]`` to the relation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from refactorgnn.ops.chunked import chunks, memory_budget_on

# Tensors as large as a chunk's messages that are alive at once, backwards, where there are more of them.
_EDGE_BUFFERS = 8
# Messages of a chunk that stay in a CPU's cache are reduced twice as fast as those of a large one.
_CACHED_BYTES = 8 * 2**20


@dataclass(frozen=True)
class TypedEdges:
    """Directed edges with types, sorted by target.

    Args:
        sources: Shape ``(num_edges,)``.
        types: Shape ``(num_edges,)``.
        targets: Shape ``(num_edges,)``, ascending.
        num_nodes: Sources and targets are below it.
        num_types: Types are below it.
    """

    sources: Tensor
    types: Tensor
    targets: Tensor
    num_nodes: int
    num_types: int

    @classmethod
    def sort(cls, sources: Tensor, types: Tensor, targets: Tensor, num_nodes: int, num_types: int) -> TypedEdges:
        """Edges given in any order."""
        order = torch.argsort(targets, stable=True)
        return cls(sources[order], types[order], targets[order], num_nodes, num_types)

    @property
    def num_edges(self) -> int:
        """The number of edges."""
        return self.sources.numel()

    @cached_property
    def degrees(self) -> Tensor:
        """The number of edges that end at each node; shape ``(num_nodes,)``."""
        return torch.bincount(self.targets, minlength=self.num_nodes)

    @cached_property
    def most_degree(self) -> int:
        """The largest of the degrees; read once, for to read from a GPU is to wait for it."""
        return int(self.degrees.max())

    @cached_property
    def ends(self) -> Tensor:
        """The number of edges that end at each node or one before it, on the CPU; shape ``(num_nodes,)``."""
        return self.degrees.cumsum(0).cpu()

    def keep(self, kept: Tensor) -> TypedEdges:
        """The edges that a mask of shape ``(num_edges,)`` keeps."""
        parts = self.sources[kept], self.types[kept], self.targets[kept]
        return TypedEdges(*parts, self.num_nodes, self.num_types)

    def chunks(self, most_edges: int) -> Iterator[tuple[slice, slice]]:
        """``(edges, targets)``: at most ``most_edges`` with all edges of their targets, or one target that has more."""
        start, first = 0, 0
        while start < self.num_edges:
            stop = int(torch.searchsorted(self.ends, start + most_edges, right=True))
            stop = max(stop, int(torch.searchsorted(self.ends, start, right=True)) + 1)
            end = int(self.ends[stop - 1])
            yield slice(start, end), slice(first, stop)
            start, first = end, stop


def message_moments(
    states: Tensor, relations: Tensor, edges: TypedEdges, memory_budget: int | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Sum, sum of squares, maximum and minimum over the messages that reach each node.

    Where no message arrives, the sums are 0, the maximum is −∞ and the minimum +∞.

    Args:
        states: Shape ``(num_nodes, num_questions, dim)``.
        relations: Shape ``(num_types, num_questions, dim)``, or ``(num_types, 1, dim)`` for relations that are the same
            for all questions.
        edges: The edges.
        memory_budget: Bytes of messages held at once; None: 128 MiB on a CPU, 480 on a GPU. One question's messages
            to one node are held at once, whatever it says.

    Returns:
        Four tensors of the shape of ``states``.
    """
    outputs: tuple[Tensor, Tensor, Tensor, Tensor] = _MessageMoments.apply(
        states, relations.to(states.dtype), edges, memory_budget
    )
    return outputs


class _MessageMoments(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, states: Tensor, relations: Tensor, edges: TypedEdges, memory_budget: int | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        total, squares = torch.zeros_like(states), torch.zeros_like(states)
        largest, smallest = torch.full_like(states, -torch.inf), torch.full_like(states, torch.inf)
        for block in _blocks(states, edges, memory_budget):
            source, relation = states[:, block.questions], _of(relations, block.questions)
            for chunk in block.chunks:
                message = source.index_select(0, chunk.sources) * relation.index_select(0, chunk.types)
                place = chunk.targets, block.questions
                total[place] = chunk.summed(message)
                largest[place] = chunk.extreme(message, "amax")
                smallest[place] = chunk.extreme(message, "amin")
                squares[place] = chunk.summed(message.square_())
        ctx.save_for_backward(states, relations, largest, smallest)
        ctx.edges, ctx.memory_budget = edges, memory_budget
        return total, squares, largest, smallest

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None]:
        states, relations, largest, smallest = ctx.saved_tensors
        grad_total, grad_squares, grad_largest, grad_smallest = gradients
        grad_states, grad_relations = torch.zeros_like(states), torch.zeros_like(relations)
        for block in _blocks(states, ctx.edges, ctx.memory_budget):
            source, relation = states[:, block.questions], _of(relations, block.questions)
            into_states, into_relations = grad_states[:, block.questions], _of(grad_relations, block.questions)
            for chunk in block.chunks:
                place = chunk.targets, block.questions
                h, w = source.index_select(0, chunk.sources), relation.index_select(0, chunk.types)
                message = h * w
                grad = chunk.spread(grad_squares[place]).mul_(message).mul_(2).add_(chunk.spread(grad_total[place]))
                for extreme, grad_extreme in ((largest, grad_largest), (smallest, grad_smallest)):
                    is_extreme = (message == chunk.spread(extreme[place])).to(message.dtype)
                    each = grad_extreme[place] / chunk.summed(is_extreme).clamp_(min=1)
                    grad.add_(is_extreme.mul_(chunk.spread(each)))
                into_states.index_add_(0, chunk.sources, grad * w)
                grad.mul_(h)
                into_relations.index_add_(0, chunk.types, _like(grad, w))
        return grad_states, grad_relations, None, None


@dataclass(frozen=True)
class _Chunk:
    """Some targets and all edges that end there.

    Args:
        sources: Shape ``(chunk_edges,)``.
        types: Shape ``(chunk_edges,)``.
        rows: The target of each edge, counted from the first of the chunk.
        targets: Which targets.
    """

    sources: Tensor
    types: Tensor
    rows: Tensor
    targets: slice

    @property
    def num_targets(self) -> int:
        stop: int = self.targets.stop
        start: int = self.targets.start
        return stop - start

    def spread(self, values: Tensor) -> Tensor:
        """What is known of a target, at each of its edges."""
        return values.index_select(0, self.rows)

    def summed(self, values: Tensor) -> Tensor:
        """The values of edges summed at their targets."""
        return values.new_zeros(self.num_targets, *values.shape[1:]).index_add_(0, self.rows, values)

    def extreme(self, values: Tensor, reduction: str) -> Tensor:
        """The largest or smallest value of the edges of each target."""
        start = -torch.inf if reduction == "amax" else torch.inf
        flat = values.flatten(1)
        found = flat.new_full((self.num_targets, flat.shape[1]), start)
        found.scatter_reduce_(0, self.rows[:, None].expand_as(flat), flat, reduction)
        return found.view(self.num_targets, *values.shape[1:])


@dataclass(frozen=True)
class _Block:
    """Some questions, and the chunks of edges that fit in memory for them."""

    questions: slice
    chunks: list[_Chunk]


def _blocks(states: Tensor, edges: TypedEdges, memory_budget: int | None) -> Iterator[_Block]:
    """Questions are cut only where all edges of one node do not fit for all of them."""
    _, num_questions, dim = states.shape
    if not edges.num_edges or not num_questions:
        return
    budget = memory_budget_on(states.device, memory_budget)
    numbers = _EDGE_BUFFERS * dim * states.element_size()
    together = min(num_questions, max(1, budget // numbers // edges.most_degree))
    if states.device.type == "cpu":
        budget = min(budget, _CACHED_BYTES)
    fitting = budget // numbers
    made = [
        _Chunk(edges.sources[part], edges.types[part], edges.targets[part] - targets.start, targets)
        for part, targets in edges.chunks(max(1, fitting // together))
    ]
    for questions in chunks(num_questions, together):
        yield _Block(questions, made)


def _of(relations: Tensor, questions: slice) -> Tensor:
    return relations if relations.shape[1] == 1 else relations[:, questions]


def _like(gradient: Tensor, relation: Tensor) -> Tensor:
    """Relations that all questions share get the sum of what the questions want."""
    return gradient if relation.shape[1] == gradient.shape[1] else gradient.sum(1, keepdim=True)
