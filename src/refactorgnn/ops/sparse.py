"""Products with the sparse 0/1 matrix ``A`` of known answers.

``A`` has one row for each query and one column for each entity; ``A[i, o]`` counts how often object ``o`` answers query
``i``. Both products are done by ``embedding_bag``, which sums the gathered rows without ever storing one row for each
edge, on CPU and GPU and in every float type. (A ``torch.sparse`` CSR product is slower and lacks
bfloat16.) Each product's derivative is again one of these two, so nothing here holds ``|T|×d`` numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.nn.functional import embedding_bag

Found = TypeVar("Found")
# On a GPU a row is summed edge by edge, so that one of thousands keeps all others waiting: longer rows are cut.
_PIECE = 64
# Edges whose two end states are held at once when their dot products are taken.
_EDGES_PER_CHUNK = 65_536


@dataclass(frozen=True)
class SparsePattern:
    """The non-zero places of a sparse matrix, row by row (CSR), with its transpose made when first asked for.

    Args:
        offsets: Shape ``(num_rows + 1,)``; row ``i`` owns the edges ``offsets[i]:offsets[i + 1]``.
        columns: Shape ``(num_edges,)``; the column of each edge. Repeated places add up.
        num_columns: The number of columns.
    """

    offsets: Tensor
    columns: Tensor
    num_columns: int

    @classmethod
    def from_counts(cls, counts: Tensor, columns: Tensor, num_columns: int) -> SparsePattern:
        """The pattern whose row ``i`` owns the next ``counts[i]`` of ``columns``."""
        return cls(torch.cat([counts.new_zeros(1), counts.cumsum(0)]), columns, num_columns)

    @classmethod
    def from_rows(cls, rows: Tensor, columns: Tensor, num_rows: int, num_columns: int) -> SparsePattern:
        """The pattern of the places ``(rows[k], columns[k])``, the rows ascending."""
        return cls.from_counts(torch.bincount(rows, minlength=num_rows), columns, num_columns)

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return self.offsets.numel() - 1

    @property
    def num_edges(self) -> int:
        """The number of edges, repeated ones counted each time."""
        return self.columns.numel()

    @cached_property
    def counts(self) -> Tensor:
        """The number of edges of each row, ``c_i`` of the equations; shape ``(num_rows,)``."""
        return self.offsets.diff()

    @cached_property
    def rows(self) -> Tensor:
        """The row of each edge; shape ``(num_edges,)``."""
        index = torch.arange(self.num_rows, device=self.offsets.device)
        return index.repeat_interleave(self.counts, output_size=self.num_edges)

    @cached_property
    def pieces(self) -> tuple[Tensor, SparsePattern] | None:
        """The rows cut into pieces of at most 64 edges, or None if no row is longer.

        Returns:
            The first edge of each piece, and a pattern whose row ``i`` holds the pieces of row ``i``.
        """
        counts = -(-self.counts // _PIECE)
        if self.num_rows == 0 or int(counts.max()) <= 1:
            return None
        num_pieces = int(counts.sum())
        pieces = torch.arange(num_pieces, device=counts.device)
        of_row = SparsePattern.from_counts(counts, pieces, num_pieces)
        within = pieces - of_row.offsets[:-1].repeat_interleave(counts, output_size=num_pieces)
        return self.offsets[of_row.rows] + _PIECE * within, of_row

    def places(self, stride: int) -> Tensor:
        """Where each edge is in memory that holds a row every ``stride`` numbers; shape ``(num_edges,)``."""
        return self.remembered(stride, lambda: self.rows * stride + self.columns)

    def remembered(self, key: Hashable, find: Callable[[], Found]) -> Found:
        """What was found out about the pattern under ``key``, or is now: it never changes."""
        if key not in self._found:
            self._found[key] = find()
        found: Found = self._found[key]
        return found

    @cached_property
    def _found(self) -> dict[Hashable, Any]:
        return {}

    @cached_property
    def to_transposed(self) -> Tensor:
        """The order that sorts the edges by column: edge ``k`` of the transpose is edge ``to_transposed[k]`` here."""
        return torch.argsort(self.columns, stable=True)

    @cached_property
    def transposed(self) -> SparsePattern:
        """The pattern of the transposed matrix."""
        counts = torch.bincount(self.columns, minlength=self.num_columns)
        return SparsePattern.from_counts(counts, self.rows[self.to_transposed], self.num_rows)

    def take_rows(self, rows: Tensor) -> SparsePattern:
        """The pattern made of the given rows, in that order; a row of −1 is an empty one."""
        edges = self.take_edges(rows)
        return SparsePattern(edges.offsets, self.columns[edges.columns], self.num_columns)

    def take_edges(self, rows: Tensor) -> SparsePattern:
        """Which edges the given rows own, in that order; a row of −1 owns none."""
        inside = rows >= 0
        rows = rows.clamp(min=0)
        if self.num_rows == 0:  # nothing to index: every asked row must be −1
            return SparsePattern(rows.new_zeros(rows.numel() + 1), self.columns, self.num_edges)
        counts = torch.where(inside, self.counts[rows], 0)
        offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        # Edge k of the result's row i is edge starts[i] + (k − offsets[i]) here.
        shift = (self.offsets[rows] - offsets[:-1]).repeat_interleave(counts)
        return SparsePattern(offsets, torch.arange(shift.numel(), device=rows.device) + shift, self.num_edges)

    def restricted_to(self, columns: Tensor) -> SparsePattern:
        """The pattern of the given columns only (sorted, distinct), renumbered in their order."""
        if not len(columns):
            return SparsePattern(torch.zeros_like(self.offsets), self.columns[:0], 0)
        place = torch.searchsorted(columns, self.columns).clamp_(max=len(columns) - 1)
        kept = columns[place] == self.columns
        before = torch.cat([self.offsets.new_zeros(1), kept.cumsum(0)])
        return SparsePattern(before[self.offsets], place[kept], len(columns))

    def slice_rows(self, rows: slice) -> SparsePattern:
        """The pattern made of consecutive rows, without copying: the same one whenever it is asked for."""
        return self._slice(rows)[0]

    def edges_of(self, rows: slice) -> slice:
        """The edges of consecutive rows."""
        return self._slice(rows)[1]

    def _slice(self, rows: slice) -> tuple[SparsePattern, slice]:
        # Kept, for to read an offset from a GPU is to wait for it, and so is to find the rows and the transpose anew.
        place = rows.start, rows.stop
        if place == (0, self.num_rows):
            return self, slice(0, self.num_edges)
        return self.remembered(place, lambda: self._sliced(rows))

    def _sliced(self, rows: slice) -> tuple[SparsePattern, slice]:
        offsets = self.offsets[rows.start : rows.stop + 1]
        edges = slice(int(offsets[0]), int(offsets[-1]))
        return SparsePattern(offsets - offsets[0], self.columns[edges], self.num_columns), edges

    def to(self, device: torch.device | str) -> SparsePattern:
        """The same pattern on another device."""
        return SparsePattern(self.offsets.to(device), self.columns.to(device), self.num_columns)


def sum_neighbours(pattern: SparsePattern, states: Tensor, weights: Tensor | None = None) -> Tensor:
    """``(A ∘ weights) @ states``: for each row, the weighted sum of the states at its columns.

    Args:
        pattern: The places of ``A``.
        states: Shape ``(num_columns, dim)``.
        weights: Shape ``(num_edges,)``, in the pattern's edge order; ones if not given.

    Returns:
        Shape ``(num_rows, dim)``. Differentiable once in ``states`` and ``weights``.
    """
    result: Tensor = _SumNeighbours.apply(pattern, states, weights)
    return result


def edge_dots(pattern: SparsePattern, row_states: Tensor, column_states: Tensor) -> Tensor:
    """``row_states[i] · column_states[o]`` for each edge ``(i, o)``; shape ``(num_edges,)``. Differentiable once."""
    result: Tensor = _EdgeDots.apply(pattern, row_states, column_states)
    return result


def added(total: Tensor, more: Tensor, *, alpha: float = 1.0) -> Tensor:
    """``total + alpha · more``; in the place of ``total``, which is not needed again, where nothing is differentiated.

    Of a million entities each array of states takes gigabytes.
    """
    if torch.is_grad_enabled() or torch.result_type(total, more) != total.dtype:
        return torch.add(total, more, alpha=alpha)
    return total.add_(more, alpha=alpha)


def _bag(pattern: SparsePattern, states: Tensor, weights: Tensor | None) -> Tensor:
    if pattern.num_edges == 0:
        return states.new_zeros(pattern.num_rows, states.shape[1])
    starts, whole = pattern.offsets[:-1], None
    if _cuts_rows(states) and pattern.pieces is not None:
        starts, whole = pattern.pieces
    sums = embedding_bag(pattern.columns, states, starts, mode="sum", per_sample_weights=weights)
    return sums if whole is None else _bag(whole, sums, None)


def _cuts_rows(states: Tensor) -> bool:
    """Whether long rows are summed in pieces: where that does not round the sum of each piece to fewer digits."""
    return states.is_cuda and states.dtype not in (torch.bfloat16, torch.float16)


def _dots(pattern: SparsePattern, row_states: Tensor, column_states: Tensor) -> Tensor:
    dots = row_states.new_empty(pattern.num_edges)
    for start in range(0, pattern.num_edges, _EDGES_PER_CHUNK):
        chunk = slice(start, start + _EDGES_PER_CHUNK)
        left, right = row_states[pattern.rows[chunk]], column_states[pattern.columns[chunk]]
        dots[chunk] = torch.linalg.vecdot(left, right)
    return dots


def _transpose_weights(pattern: SparsePattern, weights: Tensor | None) -> Tensor | None:
    return None if weights is None else weights[pattern.to_transposed]


class _SumNeighbours(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, pattern: SparsePattern, states: Tensor, weights: Tensor | None) -> Tensor:
        ctx.pattern = pattern  # type: ignore[attr-defined]
        ctx.save_for_backward(states, weights)  # type: ignore[arg-type]
        return _bag(pattern, states, weights)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor | None, Tensor | None]:
        pattern: SparsePattern = ctx.pattern
        states, weights = ctx.saved_tensors
        grad = grad.contiguous()
        grad_states = grad_weights = None
        if ctx.needs_input_grad[1]:
            grad_states = _bag(pattern.transposed, grad, _transpose_weights(pattern, weights))
        if ctx.needs_input_grad[2]:
            grad_weights = _dots(pattern, grad, states)
        return None, grad_states, grad_weights


class _EdgeDots(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, pattern: SparsePattern, row_states: Tensor, column_states: Tensor) -> Tensor:
        ctx.pattern = pattern  # type: ignore[attr-defined]
        ctx.save_for_backward(row_states, column_states)
        return _dots(pattern, row_states, column_states)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor | None, Tensor | None]:
        pattern: SparsePattern = ctx.pattern
        row_states, column_states = ctx.saved_tensors
        grad_rows = grad_columns = None
        if ctx.needs_input_grad[1]:
            grad_rows = _bag(pattern, column_states, grad.contiguous())
        if ctx.needs_input_grad[2]:
            grad_columns = _bag(pattern.transposed, row_states, _transpose_weights(pattern, grad))
        return None, grad_rows, grad_columns
