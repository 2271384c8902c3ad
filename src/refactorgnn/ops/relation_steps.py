"""Products with a weighted sum of relation operators, for a batch of questions at once.

``M_r`` is the 0/1 matrix of the facts of relation ``r``: it carries weight from the source of each fact to its target.
With the memory ``u`` of each question in a column, and its attention to the operators in the same column of ``a``, a
step is

    u'[v, q] = Σ_{(w, r, v) a fact} a[r, q] u[w, q]                          that is, u'_q = (Σ_r a_{r,q} M_r) u_q

The facts are one list of edges, never one matrix for each relation. A step gathers, scales and sums them in chunks, so
its temporaries follow a budget and not the number of facts. The derivatives are steps of the same kind:

    ū[w, q] = Σ_{(w, r, v)} a[r, q] ū'[v, q]          ā[r, q] = Σ_{(w, r, v)} u[w, q] ū'[v, q]

and are recomputed from ``u`` and ``a``: nothing is kept for each edge. Sums are taken in a fixed order (by
``embedding_bag``), on a GPU too, so the same inputs always give the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import embedding_bag

# Bytes of temporaries of a step: on a CPU what stays in its cache, on a GPU what keeps it busy.
_CPU_BUDGET = 2 * 2**20
_GPU_BUDGET = 256 * 2**20
# Numbers for each edge and column alive at once in a backward chunk: gathered twice, their product, and its sums.
_BUFFERS = 4


@dataclass(frozen=True)
class HeldOut:
    """Facts that some questions may not use: those that a question in training is made of.

    Args:
        edges: Shape ``(num_pairs,)``, ascending.
        columns: Shape ``(num_pairs,)``; the question for which the edge is not there.
    """

    edges: Tensor
    columns: Tensor

    @classmethod
    def of(cls, edges: Tensor, columns: Tensor) -> HeldOut:
        """Pairs in any order."""
        order = torch.argsort(edges, stable=True)
        return cls(edges[order], columns[order])

    def repeated(self, times: int, num_columns: int) -> HeldOut:
        """The same for ``times`` copies of the questions, one after the other, of ``num_columns`` each."""
        shifts = num_columns * torch.arange(times, device=self.columns.device)
        return HeldOut.of(self.edges.repeat(times), (shifts[:, None] + self.columns).flatten())


class _Groups:
    """The rows of a chunk by the place that each is to be added to."""

    def __init__(self, places: Tensor) -> None:
        self.order = torch.argsort(places, stable=True)
        self.places, counts = torch.unique_consecutive(places[self.order], return_counts=True)
        self.starts = counts.cumsum(0) - counts

    def add_into(self, totals: Tensor, rows: Tensor) -> None:
        """``totals[places[i]] += rows[i]`` for each row."""
        totals.index_add_(0, self.places, embedding_bag(self.order, rows, self.starts, mode="sum"))


@dataclass(frozen=True)
class _Chunk:
    edges: slice
    by_source: _Groups
    by_relation: _Groups
    by_target: _Groups


class RelationOperators:
    """The operators ``M_r`` of all relations of a graph, as one list of its facts.

    Args:
        sources: Shape ``(num_edges,)``.
        relations: Shape ``(num_edges,)``.
        targets: Shape ``(num_edges,)``.
        num_entities: Sources and targets are below this.
    """

    def __init__(self, sources: Tensor, relations: Tensor, targets: Tensor, num_entities: int) -> None:
        self.sources = sources
        self.relations = relations
        self.targets = targets
        self.num_entities = num_entities
        self._chunks: dict[int, list[_Chunk]] = {}

    @property
    def num_edges(self) -> int:
        """The number of facts."""
        return self.sources.numel()

    @property
    def device(self) -> torch.device:
        """Where the facts are."""
        return self.sources.device

    def start(self, subjects: Tensor, dtype: torch.dtype) -> Tensor:
        """The memory before the first step, all weight on the subjects; shape ``(num_entities, num_questions)``."""
        memory = torch.zeros(self.num_entities, len(subjects), dtype=dtype, device=self.device)
        memory[subjects, torch.arange(len(subjects), device=self.device)] = 1
        return memory

    def step(
        self, memory: Tensor, attention: Tensor, held_out: HeldOut | None = None, memory_budget: int | None = None
    ) -> Tensor:
        """``(Σ_r a_r M_r) u`` for each column.

        Args:
            memory: Shape ``(num_entities, num_columns)``.
            attention: Shape ``(num_relations, num_columns)``.
            held_out: Facts that are not there for some columns.
            memory_budget: Bytes of temporaries; None: 2 MiB on a CPU, 256 MiB on a GPU.

        Returns:
            Shape ``(num_entities, num_columns)``. Differentiable once in ``memory`` and ``attention``.
        """
        size = self._chunk_size(memory, memory_budget)
        result: Tensor = _Step.apply(self, memory, attention.contiguous(), held_out, size)
        return result

    def _chunk_size(self, memory: Tensor, memory_budget: int | None) -> int:
        """The edges of a chunk: a power of two, so that batches of different sizes mostly share their chunks."""
        if memory_budget is None:
            memory_budget = _GPU_BUDGET if memory.is_cuda else _CPU_BUDGET
        row = max(1, _BUFFERS * memory.shape[1] * memory.element_size())
        most = max(1, min(self.num_edges, memory_budget // row))
        return 1 << (most.bit_length() - 1)

    def chunks(self, size: int) -> list[_Chunk]:
        """The edges in chunks of ``size``, grouped once."""
        if size not in self._chunks:
            ends = self.sources, self.relations, self.targets
            slices = (slice(start, start + size) for start in range(0, self.num_edges, size))
            self._chunks[size] = [_Chunk(edges, *(_Groups(part[edges]) for part in ends)) for edges in slices]
        return self._chunks[size]

    def _masks(self, size: int, held_out: HeldOut | None) -> list[tuple[Tensor, Tensor] | None]:
        """For each chunk the places ``(row, column)`` that are held out, None where there are none."""
        chunks = self.chunks(size)
        if held_out is None:
            return [None] * len(chunks)
        starts = torch.arange(0, size * (len(chunks) + 1), size, device=self.device)
        bounds = torch.searchsorted(held_out.edges, starts).tolist()
        return [
            (held_out.edges[first:last] - number * size, held_out.columns[first:last]) if last > first else None
            for number, (first, last) in enumerate(pairwise(bounds))
        ]


class _Step(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, operators: RelationOperators, memory: Tensor, attention: Tensor, held_out: HeldOut | None, size: int
    ) -> Tensor:
        masks = operators._masks(size, held_out)
        ctx.operators, ctx.size, ctx.masks = operators, size, masks
        ctx.save_for_backward(memory, attention)
        result = torch.zeros_like(memory)
        for chunk, mask in zip(operators.chunks(size), masks, strict=True):
            carried = _without(attention.index_select(0, operators.relations[chunk.edges]), mask)
            carried.mul_(memory.index_select(0, operators.sources[chunk.edges]))
            chunk.by_target.add_into(result, carried)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor | None, Tensor | None, None, None]:
        operators: RelationOperators = ctx.operators
        memory, attention = ctx.saved_tensors
        _, needs_memory, needs_attention, _, _ = ctx.needs_input_grad
        grad_memory = torch.zeros_like(memory) if needs_memory else None
        grad_attention = torch.zeros_like(attention) if needs_attention else None
        for chunk, mask in zip(operators.chunks(ctx.size), ctx.masks, strict=True):
            arrived = _without(grad.index_select(0, operators.targets[chunk.edges]), mask)
            if grad_attention is not None:
                sent = memory.index_select(0, operators.sources[chunk.edges])
                chunk.by_relation.add_into(grad_attention, sent.mul_(arrived))
            if grad_memory is not None:
                arrived.mul_(attention.index_select(0, operators.relations[chunk.edges]))
                chunk.by_source.add_into(grad_memory, arrived)
        return None, grad_memory, grad_attention, None, None


def _without(rows: Tensor, mask: tuple[Tensor, Tensor] | None) -> Tensor:
    """``rows`` with zeros at the places of ``mask``."""
    if mask is not None:
        rows[mask] = 0
    return rows
