"""Aggregating relational messages in bounded memory: mean, maximum, minimum and deviation at every node.

The message of an edge ``u --r--> v`` is ``m = states[u] ∘ relations[r]`` (DistMult), for many questions side by side;
the boundary of ``v`` is one more message to it. One tensor of all messages would have ``|E| × num_questions × dim``
numbers. On a GPU a kernel sums up a node in registers (:mod:`refactorgnn.ops.fused_aggregates`). Elsewhere edges are
sorted by target and cut where the edges of a target end, so that a chunk of them finishes the targets it has: its
messages are made, reduced, and dropped. The backward pass makes them again. With ``M̄``, ``X̄``, ``N̄``, ``D̄`` the
derivatives of the loss by the four outputs at ``v``, and ``n`` its number of messages,

    m̄ = a + c m + [m = max] X̄ / #max + [m = min] N̄ / #min,    c = D̄ / (n deviation),    a = M̄ / n − c mean

is the derivative by a message (equal extremes share theirs equally), ``m̄ ∘ relations[r]`` goes to the source,
``m̄ ∘ states[u]`` to the relation, and that of the boundary is its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from refactorgnn.ops import passes
from refactorgnn.ops.chunked import chunks, memory_budget_on
from refactorgnn.ops.sparse import SparsePattern

# Below it a variance counts as none: the root of 0 has no derivative.
LEAST_VARIANCE = 1e-6
# Tensors as large as a chunk's messages that are alive at once, backwards, where there are more of them.
_EDGE_BUFFERS = 12
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

    def num_messages(self, dtype: torch.dtype) -> Tensor:
        """The edges that end at each node and its boundary; shape ``(num_nodes, 1, 1)``."""
        return (self.degrees + 1).to(dtype)[:, None, None]

    @cached_property
    def incoming(self) -> SparsePattern:
        """The sources of the edges that end at each node."""
        return SparsePattern.from_counts(self.degrees, self.sources, self.num_nodes)

    @cached_property
    def arriving(self) -> SparsePattern:
        """The edges that end at each node."""
        edges = torch.arange(self.num_edges, device=self.targets.device)
        return SparsePattern(self.incoming.offsets, edges, self.num_edges)

    @cached_property
    def outgoing(self) -> SparsePattern:
        """The edges that begin at each node."""
        order = torch.argsort(self.sources, stable=True)
        return SparsePattern.from_rows(self.sources[order], order, self.num_nodes, self.num_edges)

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


def principal_aggregates(
    states: Tensor, boundary: Tensor, relations: Tensor, edges: TypedEdges, memory_budget: int | None = None
) -> Tensor:
    """Mean, maximum, minimum and standard deviation of the messages that reach each node, its boundary among them.

    Args:
        states: Shape ``(num_nodes, num_questions, dim)``.
        boundary: As ``states``.
        relations: Shape ``(num_types, num_questions, dim)``, or ``(num_types, 1, dim)`` for relations that are the same
            for all questions.
        edges: The edges.
        memory_budget: Bytes of messages held at once; None: 128 MiB on a CPU, 432 on a GPU. One question's messages
            to one node are held at once, whatever it says. A kernel holds none.

    Returns:
        Shape ``(num_nodes, num_questions, 4 * dim)``. A variance below 10⁻⁶ counts as 10⁻⁶.
    """
    relations = relations.to(states.dtype)
    aggregates: Tensor = _PrincipalAggregates.apply(states, boundary, relations, edges, memory_budget)
    return aggregates


class _PrincipalAggregates(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, states: Tensor, boundary: Tensor, relations: Tensor, edges: TypedEdges, memory_budget: int | None
    ) -> Tensor:
        ctx.kernels = passes.aggregate_kernels_for(states)
        if ctx.kernels is not None:
            states, boundary, relations = states.contiguous(), boundary.contiguous(), relations.contiguous()
            out: Tensor = ctx.kernels.aggregate(states, boundary, relations, edges)
        else:
            out = _aggregate(states, boundary, relations, edges, memory_budget)
        ctx.save_for_backward(states, boundary, relations, out)
        ctx.edges, ctx.memory_budget = edges, memory_budget
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        states, boundary, relations, out = ctx.saved_tensors
        if ctx.kernels is not None:
            gradients = ctx.kernels.gradients(states, boundary, relations, out, grad.contiguous(), ctx.edges)
        else:
            gradients = _gradients(states, boundary, relations, out, grad, ctx.edges, ctx.memory_budget)
        return *gradients, None, None


def _aggregate(
    states: Tensor, boundary: Tensor, relations: Tensor, edges: TypedEdges, memory_budget: int | None
) -> Tensor:
    dim = states.shape[-1]
    out = states.new_zeros(*states.shape[:-1], 4 * dim)
    total, largest, smallest, squares = out.split(dim, dim=-1)
    largest.fill_(-torch.inf)
    smallest.fill_(torch.inf)
    for block in _blocks(states, edges, memory_budget):
        source, relation = states[:, block.questions], _of(relations, block.questions)
        for chunk in block.chunks:
            message = source.index_select(0, chunk.sources) * relation.index_select(0, chunk.types)
            place = chunk.targets, block.questions
            total[place] = chunk.summed(message)
            largest[place] = chunk.extreme(message, "amax")
            smallest[place] = chunk.extreme(message, "amin")
            squares[place] = chunk.summed(message.square_())
    number = edges.num_messages(states.dtype)
    total.add_(boundary).div_(number)
    torch.maximum(largest, boundary, out=largest)
    torch.minimum(smallest, boundary, out=smallest)
    squares.addcmul_(boundary, boundary).div_(number).addcmul_(total, total, value=-1)
    squares.clamp_(min=LEAST_VARIANCE).sqrt_()
    return out


def _gradients(
    states: Tensor,
    boundary: Tensor,
    relations: Tensor,
    out: Tensor,
    grad: Tensor,
    edges: TypedEdges,
    memory_budget: int | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """By states, boundary and relations."""
    pulls = _Pulls.of(out, grad, edges.num_messages(out.dtype))
    grad_states, grad_relations = torch.zeros_like(states), torch.zeros_like(relations)
    grad_boundary = pulls.by_message(boundary)  # right where it is the only message
    for block in _blocks(states, edges, memory_budget):
        source, relation = states[:, block.questions], _of(relations, block.questions)
        into_states, into_relations = grad_states[:, block.questions], _of(grad_relations, block.questions)
        for chunk in block.chunks:
            place = chunk.targets, block.questions
            h, w = source.index_select(0, chunk.sources), relation.index_select(0, chunk.types)
            message, own = h * w, boundary[place]
            here = pulls.at(place)
            largest, smallest = (
                chunk.summed((message == chunk.spread(extreme)).to(h.dtype)).add_(own == extreme)
                for extreme in (here.largest, here.smallest)
            )
            here = here.shared(largest, smallest)
            grad_boundary[place] = here.by_message(own)
            by_message = here.map(chunk.spread).by_message(message)
            into_states.index_add_(0, chunk.sources, by_message * w)
            into_relations.index_add_(0, chunk.types, _like(by_message.mul_(h), w))
    return grad_states, grad_boundary, grad_relations


@dataclass(frozen=True)
class _Pulls:
    """What the derivative by a message is made of, at each node: ``a + c m + [m = max] x + [m = min] n``."""

    a: Tensor
    c: Tensor
    largest: Tensor
    x: Tensor
    smallest: Tensor
    n: Tensor

    @classmethod
    def of(cls, out: Tensor, grad: Tensor, number: Tensor) -> _Pulls:
        """As if no two messages were equal."""
        mean, largest, smallest, deviation = out.chunk(4, dim=-1)
        by_mean, x, n, by_deviation = grad.chunk(4, dim=-1)
        c = torch.where(deviation > math.sqrt(LEAST_VARIANCE), by_deviation / deviation, 0) / number
        return cls(by_mean / number - c * mean, c, largest, x, smallest, n)

    def map(self, change: Callable[[Tensor], Tensor]) -> _Pulls:
        return _Pulls(*(change(getattr(self, field.name)) for field in fields(self)))

    def at(self, place: tuple[slice, slice]) -> _Pulls:
        return self.map(lambda values: values[place])

    def shared(self, num_largest: Tensor, num_smallest: Tensor) -> _Pulls:
        """With equal extremes that share a derivative."""
        return replace(self, x=self.x / num_largest, n=self.n / num_smallest)

    def by_message(self, message: Tensor) -> Tensor:
        result = torch.addcmul(self.a, self.c, message)
        result.addcmul_(self.x, (message == self.largest).to(message.dtype))
        return result.addcmul_(self.n, (message == self.smallest).to(message.dtype))


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
