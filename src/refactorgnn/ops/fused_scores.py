"""Triton kernels for a product whose every number is made an exponential before it leaves the registers.

Of ``S = Q Kᵀ`` a layer needs ``P = exp(S − logsumexp(S))``, which takes another pass over what is ``|V|`` wide, for
the normaliser is not known before a row is complete. Here the product itself writes ``E = exp(S − m)``, with a number
``m`` for each row that is known before, and the sums ``Z`` of the rows: then ``P = E / Z``, and the factor ``1 / Z``
goes into what is d wide.

Any ``m`` is right that keeps ``E`` within the range of a float, such as one a little above the largest score of a few
candidates. The largest of all is at least as high; rows where it is too much higher, by seventy or more, are done again
with their largest score as ``m``.

What ``A`` adds, the answers that are known, is added where it is d wide, too: rounded to the narrow numbers of ``E``,
of which ``Z / c`` is none, it would be off by as much as all of ``P``.

Only for GPUs; importing this module needs Triton, which torch brings along where it can use it.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton import knobs
from triton.tools.tensor_descriptor import TensorDescriptor

from refactorgnn.ops.residual import Facts

# What a program makes of E, and how much of d it takes at a time: the fastest of those tried on an H200. With 4 warps
# and two tiles under way several programs share a processor, and one's exponentials hide behind another's product.
_TILE = 128
_DEPTH = 64
_WARPS = 4
_STAGES = 2
# Programs that work on the same candidates one after the other: so many tiles of queries.
_GROUP = 32
# Candidates whose scores tell where a row lies, and how far m is above the largest of them, in powers of 2.
_SAMPLE = 64
_MARGIN = 40
# Numbers of answers that a program adds.
_ANSWERS = 2_048
# Sums of tiles that a warp of 32 threads adds up.
_PER_WARP = 512
# Candidates whose scores are made at a time where a row is done again, by a warp: more, and registers run out, also
# of the rows that are not.
_LANES = 32
# The largest sum of a row that was well placed.
_LARGEST = 2.0**60
_LOG2_E = tl.constexpr(1.4426950408889634)
# Triton's interpreter would multiply the bits of bfloat16 numbers.
_INTERPRETED = tl.constexpr(knobs.runtime.interpret)


class Rows(NamedTuple):
    """A number for each query, float32.

    Args:
        shift: ``m``, in powers of 2; see :func:`shifts`.
        weights: Whatever is to be divided by ``Z``.
        lse: To be filled with ``logsumexp(S)``.
        factor: To be filled with ``weights / Z``.
    """

    shift: Tensor
    weights: Tensor
    lse: Tensor
    factor: Tensor

    def part(self, rows: slice) -> Rows:
        """Those of consecutive queries, without copying."""
        return Rows(*(numbers[rows] for numbers in self))


def shifts(queries: Tensor, keys: Tensor, num_real: int) -> Tensor:
    """``m`` of each query, from the scores of some candidates; see :func:`exponentials`."""
    num_rows, dim = queries.shape
    step = max(1, num_real // _SAMPLE)
    sizes = num_rows, min(_SAMPLE, triton.cdiv(num_real, step)), dim, step * dim
    shift = queries.new_empty(num_rows, dtype=torch.float32)
    _shift_kernel[(triton.cdiv(num_rows, _TILE),)](queries, keys, shift, *sizes, _MARGIN, _TILE, _SAMPLE, _DEPTH)
    return shift


def exponentials(queries: Tensor, keys: Tensor, num_real: int, rows: Rows, *, out: Tensor) -> Tensor:
    """Fill ``out`` with ``E``, and what is to be filled of ``rows``; returns the queries times their factors.

    Args:
        queries: ``Q``, shape ``(num_queries, dim)``; ``dim`` a multiple of 8.
        keys: ``K``, shape ``(num_candidates, dim)``; ``num_candidates`` a multiple of 8.
        num_real: The candidates that count; in ``out`` the others are 0.
        rows: What there is of each query.
        out: Shape ``(num_queries, num_candidates)``.
    """
    (num_rows, dim), num_columns = queries.shape, keys.shape[0]
    num_tiles = triton.cdiv(num_columns, _TILE)
    partial = rows.shift.new_empty(num_rows, num_tiles)
    operands = [TensorDescriptor.from_tensor(factor, [_TILE, _DEPTH]) for factor in (queries, keys)]
    place = TensorDescriptor.from_tensor(out, [_TILE, _TILE])
    _exponentials_kernel[(triton.cdiv(num_rows, _TILE) * num_tiles,)](
        *operands,
        place,
        rows.shift,
        partial,
        num_rows,
        num_real,
        num_columns,
        dim,
        _TILE,
        _DEPTH,
        _GROUP,
        num_warps=_WARPS,
        num_stages=_STAGES,
    )
    scaled, tiles = torch.empty_like(queries), triton.next_power_of_2(num_tiles)
    _sums_kernel[(num_rows,)](
        queries,
        keys,
        out,
        scaled,
        partial,
        *rows,
        num_real,
        num_columns,
        dim,
        num_tiles,
        _LARGEST,
        tiles,
        _LANES,
        _DEPTH,
        triton.next_power_of_2(dim),
        num_warps=min(8, max(1, tiles // _PER_WARP)),
    )
    return scaled


def add_answers(facts: Facts, queries: Tensor, keys: Tensor, *, wanted: Tensor, pulled: Tensor) -> None:
    """``wanted += A K`` and ``pulled += Aᵀ Q``, in place; both float32."""
    answers = facts.answers
    dim, num_edges = queries.shape[1], answers.num_edges
    block = triton.next_power_of_2(dim)
    edges = max(1, _ANSWERS // block)
    if num_edges:
        _add_answers_kernel[(triton.cdiv(num_edges, edges),)](
            answers.rows, answers.columns, facts.weights, queries, keys, wanted, pulled, num_edges, dim, edges, block
        )


@triton.jit
def _add_scores(Q, K, scores):
    """``scores + Q Kᵀ``."""
    if _INTERPRETED:
        Q = Q.to(tl.float32)
        K = K.to(tl.float32)
    return tl.dot(Q, K.T, scores)


@triton.jit
def _shift_kernel(
    queries,
    keys,
    shift,
    num_rows,
    num_sampled,
    dim,
    stride,  # numbers from one sampled candidate to the next
    MARGIN: tl.constexpr,
    ROWS: tl.constexpr,
    SAMPLE: tl.constexpr,
    DEPTH: tl.constexpr,
):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    sampled = tl.arange(0, SAMPLE)
    scores = tl.zeros((ROWS, SAMPLE), tl.float32)
    for start in range(0, dim, DEPTH):
        depth = start + tl.arange(0, DEPTH)
        inside = (depth < dim)[None, :]
        own = queries + rows[:, None].to(tl.int64) * dim + depth[None, :]
        Q = tl.load(own, mask=(rows < num_rows)[:, None] & inside, other=0.0)
        other = keys + sampled[:, None].to(tl.int64) * stride + depth[None, :]
        K = tl.load(other, mask=(sampled < num_sampled)[:, None] & inside, other=0.0)
        scores = _add_scores(Q, K, scores)
    scores = tl.where((sampled < num_sampled)[None, :], scores, -float("inf"))
    tl.store(shift + rows, tl.max(scores, 1) * _LOG2_E + MARGIN, mask=rows < num_rows)


@triton.jit
def _exponentials_kernel(
    queries,
    keys,
    out,
    shift,
    partial,
    num_rows,
    num_real,
    num_columns,
    dim,
    TILE: tl.constexpr,
    DEPTH: tl.constexpr,
    GROUP: tl.constexpr,
):
    # Neighbours in time share their candidates with GROUP tiles of queries, so that both stay in the cache.
    program = tl.program_id(0)
    row_tiles, column_tiles = tl.cdiv(num_rows, TILE), tl.cdiv(num_columns, TILE)
    group = program // (GROUP * column_tiles)
    rest = program % (GROUP * column_tiles)
    size = min(row_tiles - group * GROUP, GROUP)
    row_tile = group * GROUP + rest % size
    column_tile = rest // size

    scores = tl.zeros((TILE, TILE), tl.float32)
    for start in range(0, dim, DEPTH):
        Q = queries.load([row_tile * TILE, start])
        K = keys.load([column_tile * TILE, start])
        scores = _add_scores(Q, K, scores)
    rows = row_tile * TILE + tl.arange(0, TILE)
    columns = column_tile * TILE + tl.arange(0, TILE)
    base = tl.load(shift + rows, mask=rows < num_rows, other=0.0)
    E = tl.exp2(scores * _LOG2_E - base[:, None])
    if (column_tile + 1) * TILE > num_real:
        E = tl.where(columns[None, :] < num_real, E, 0.0)
    tl.store(partial + rows.to(tl.int64) * column_tiles + column_tile, tl.sum(E, 1), mask=rows < num_rows)
    out.store([row_tile * TILE, column_tile * TILE], E.to(out.dtype))


@triton.jit
def _scores_of(queries, keys, row, columns, num_real, dim, TILE: tl.constexpr, DEPTH: tl.constexpr):
    """The scores of a row at some columns, in powers of 2; −∞ where no candidate is."""
    scores = tl.zeros((TILE,), tl.float32)
    for start in range(0, dim, DEPTH):
        depth = start + tl.arange(0, DEPTH)
        Q = tl.load(queries + row * dim + depth, mask=depth < dim, other=0.0).to(tl.float32)
        inside = (columns < num_real)[:, None] & (depth < dim)[None, :]
        K = tl.load(keys + columns[:, None].to(tl.int64) * dim + depth[None, :], mask=inside, other=0.0).to(tl.float32)
        scores += tl.sum(K * Q[None, :], 1)
    return tl.where(columns < num_real, scores * _LOG2_E, -float("inf"))


@triton.jit
def _sums_kernel(
    queries,
    keys,
    out,
    scaled,
    partial,
    shift,
    weights,
    lse,
    factor,
    num_real,
    num_columns,
    dim,
    num_tiles,
    LARGEST: tl.constexpr,
    TILES: tl.constexpr,
    TILE: tl.constexpr,
    DEPTH: tl.constexpr,
    WIDTH: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    tiles = tl.arange(0, TILES)
    total = tl.sum(tl.load(partial + row * num_tiles + tiles, mask=tiles < num_tiles, other=0.0), 0)
    base = tl.load(shift + row)
    if not (total <= LARGEST):  # infinite, too
        lanes = tl.arange(0, TILE)
        heights = tl.full((TILE,), -float("inf"), tl.float32)
        for start in range(0, num_real, TILE):
            scores = _scores_of(queries, keys, row, start + lanes, num_real, dim, TILE, DEPTH)
            heights = tl.maximum(heights, scores)
        base = tl.max(heights, 0)
        sums = tl.zeros((TILE,), tl.float32)
        for start in range(0, num_columns, TILE):
            E = tl.exp2(_scores_of(queries, keys, row, start + lanes, num_real, dim, TILE, DEPTH) - base)
            sums += E
            place = out + row * num_columns + start + lanes
            tl.store(place, E.to(out.dtype.element_ty), mask=start + lanes < num_columns)
        total = tl.sum(sums, 0)
    tl.store(lse + row, (base + tl.log2(total)) / _LOG2_E)
    share = tl.load(weights + row) / total
    tl.store(factor + row, share)
    width = tl.arange(0, WIDTH)
    Q = tl.load(queries + row * dim + width, mask=width < dim, other=0.0).to(tl.float32)
    tl.store(scaled + row * dim + width, (Q * share).to(scaled.dtype.element_ty), mask=width < dim)


@triton.jit
def _add_answers_kernel(
    rows, columns, weights, queries, keys, wanted, pulled, num_edges, dim, EDGES: tl.constexpr, BLOCK: tl.constexpr
):
    edges = tl.program_id(0) * EDGES + tl.arange(0, EDGES)
    lanes = tl.arange(0, BLOCK)
    there = edges < num_edges
    mask = there[:, None] & (lanes < dim)[None, :]
    at_row = tl.load(rows + edges, mask=there, other=0)[:, None] * dim + lanes[None, :]
    at_column = tl.load(columns + edges, mask=there, other=0)[:, None] * dim + lanes[None, :]
    weight = tl.load(weights + edges, mask=there, other=0.0).to(tl.float32)[:, None]
    Q = tl.load(queries + at_row, mask=mask, other=0.0).to(tl.float32)
    tl.atomic_add(pulled + at_column, weight * Q, mask=mask, sem="relaxed")
    K = tl.load(keys + at_column, mask=mask, other=0.0).to(tl.float32)
    tl.atomic_add(wanted + at_row, weight * K, mask=mask, sem="relaxed")
