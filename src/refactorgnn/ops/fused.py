"""Triton kernels for what lies between the products of a layer: one reading of the scores, one writing of their use.

The products themselves are left to the library. Between them torch needs a pass over the ``|V|``-wide scores for each
of the largest score, the difference, the exponential, the sum, the scale and the narrow copy for the next product; here
it is one kernel, with a program for each row that keeps the row in registers where it fits, as it is, in blocks: an
exponential is cheaper to take twice than a wide number is to keep. Wider rows are read twice.

Only for GPUs; importing this module needs Triton, which torch brings along where it can use it.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from refactorgnn.ops.residual import LEAST_WEIGHT

# The widest rows that a program keeps in registers: of scores, and of scores and their gradients together.
_WIDEST_SOFTMAX = 65_536
_WIDEST_GRADIENTS = 16_384
# Rows wider than that are shared by more threads.
_MANY_COLUMNS = 16_384
# Columns that may have been added to the real ones; a row kept in registers is written with them.
_ALIGNED = 8
# Numbers of a row that one warp of 32 threads takes.
_PER_WARP = 1_024


def softmax(scores: Tensor, num_real: int, scale: Tensor, out: Tensor, lse: Tensor) -> None:
    """Make the probabilities of each row, times a factor, in the type of ``out``, and the row's ``logsumexp``.

    Args:
        scores: Shape ``(num_rows, num_columns)``, of any float type up to float32, rows not broken up in memory.
        num_real: The columns that count; in ``out`` the others are 0, whatever their scores.
        scale: A factor for each row, float32.
        out: As ``scores``, of any float type; may be the same memory.
        lse: One number for each row, float32, to be filled.
    """
    num_columns = scores.shape[1]
    block, num_warps = softmax_launch(num_columns)
    num_blocks = triton.cdiv(num_real, block) if num_columns <= _WIDEST_SOFTMAX else 0
    _softmax_kernel[(scores.shape[0],)](
        scores,
        scale,
        out,
        lse,
        scores.stride(0),
        out.stride(0),
        num_real,
        num_columns,
        block,
        num_blocks,
        num_warps=num_warps,
    )


def softmax_launch(num_columns: int) -> tuple[int, int]:
    """The columns of a block, and the warps of a program: powers of 2, chosen by what is fastest on an H200.

    A row that does not fit in the registers of few threads needs more of them, and these larger blocks.
    """
    if num_columns > _MANY_COLUMNS:
        return 8_192, 16
    block = min(4_096, triton.next_power_of_2(num_columns))
    return block, max(1, block // _PER_WARP)


def score_gradients(
    scores: Tensor, grads: Tensor, lse: Tensor, shift: Tensor, scale: Tensor, num_real: int, outs: tuple[Tensor, Tensor]
) -> None:
    """With ``P = exp(scores − lse)`` make ``scale ∘ P`` and ``P ∘ (grads − rowsum(P ∘ grads) + shift)``.

    Args:
        scores: Shape ``(num_rows, num_columns)``, of any float type up to float32, rows not broken up in memory.
        grads: The derivative by ``P``; as ``scores``.
        lse: ``logsumexp(scores)``, for each row.
        shift: The derivative by ``lse``, for each row.
        scale: A factor for each row.
        num_real: The columns that count; in ``outs`` the others are 0.
        outs: Where the two results go, of one float type and one stride; may be ``(scores, grads)``.
    """
    width = num_real + _ALIGNED
    keeps_row = width <= _WIDEST_GRADIENTS
    block = triton.next_power_of_2(width) if keeps_row else 4_096
    _score_gradients_kernel[(scores.shape[0],)](
        scores,
        grads,
        *outs,
        lse,
        shift,
        scale,
        scores.stride(0),
        outs[0].stride(0),
        num_real,
        scores.shape[1],
        block,
        keeps_row,
        num_warps=max(1, min(8, block // _PER_WARP)),
    )


def target_shares(
    base: Tensor, target_scores: Tensor, rows: Tensor, weights: Tensor | None, total: Tensor
) -> tuple[Tensor, Tensor]:
    """The derivative of ``Σ w softplus(base_i − score)`` over targets, by ``base`` and, over that, by the scores.

    Args:
        base: ``b``, for each row, float32.
        target_scores: The score of each target.
        rows: The row of each target.
        weights: ``w``, how much each target counts; None: 1.
        total: The sum is added to it; float32, a single number.

    Returns:
        For each row the sum of its shares ``w σ(b_i − score)``, float32; for each target minus its share of that sum.
    """
    row_shares, values = torch.zeros_like(base), torch.empty_like(target_scores, dtype=torch.float32)
    grid, block = (triton.cdiv(len(rows), _PER_WARP),), _PER_WARP
    if len(rows):
        given = target_scores if weights is None else weights
        _target_shares_kernel[grid](
            base, target_scores, rows, given, total, values, row_shares, len(rows), weights is not None, block
        )
        _divide_kernel[grid](values, row_shares, rows, len(rows), LEAST_WEIGHT, block)
    return row_shares, values


@triton.jit
def _read(row, columns, num_real, other):
    """Numbers of a row, widened; ``other`` in place of those that do not count."""
    return tl.load(row + columns, mask=columns < num_real, other=other).to(tl.float32)


@triton.jit
def _softmax_kernel(
    scores,
    scale,
    out,
    lse,
    scores_stride,
    out_stride,
    num_real,
    num_columns,
    BLOCK: tl.constexpr,
    NUM_BLOCKS: tl.constexpr,  # all of a row, which is kept; 0: read it twice
):
    row = tl.program_id(0).to(tl.int64)
    scores += row * scores_stride
    out += row * out_stride
    columns = tl.arange(0, BLOCK)
    # Each of BLOCK lanes looks at its own columns, so that lanes meet only once.
    if NUM_BLOCKS > 0:
        kept = ()
        for block in tl.static_range(NUM_BLOCKS - 1):
            kept = kept + (tl.load(scores + block * BLOCK + columns),)  # type: ignore[assignment]  # noqa: RUF005
        rest = (NUM_BLOCKS - 1) * BLOCK + columns
        last = tl.load(scores + rest, mask=rest < num_real, other=-float("inf"))
        heights = last.to(tl.float32)
        for block in tl.static_range(NUM_BLOCKS - 1):
            heights = tl.maximum(heights, kept[block].to(tl.float32))
        largest = tl.max(heights, 0)
        sums = tl.exp(last.to(tl.float32) - largest)
        for block in tl.static_range(NUM_BLOCKS - 1):
            sums += tl.exp(kept[block].to(tl.float32) - largest)
        normaliser = tl.sum(sums, 0)
        factor = tl.load(scale + row) / normaliser
        for block in tl.static_range(NUM_BLOCKS - 1):
            P = tl.exp(kept[block].to(tl.float32) - largest) * factor
            tl.store(out + block * BLOCK + columns, P.to(out.dtype.element_ty))  # type: ignore[unreachable]
        P = tl.exp(last.to(tl.float32) - largest) * factor
        tl.store(out + rest, P.to(out.dtype.element_ty), mask=rest < num_columns)
    else:
        heights = _read(scores, columns, num_real, -float("inf"))
        sums = tl.full((BLOCK,), 1.0, tl.float32)
        for start in range(BLOCK, num_real, BLOCK):
            x = _read(scores, start + columns, num_real, -float("inf"))
            higher = tl.maximum(heights, x)
            sums = sums * tl.exp(heights - higher) + tl.exp(x - higher)
            heights = higher
        largest = tl.max(heights, 0)
        normaliser = tl.sum(sums * tl.exp(heights - largest), 0)
        factor = tl.load(scale + row) / normaliser
        for start in range(0, num_columns, BLOCK):
            x = _read(scores, start + columns, num_real, -float("inf"))
            P = tl.exp(x - largest) * factor
            tl.store(out + start + columns, P.to(out.dtype.element_ty), mask=start + columns < num_columns)
    tl.store(lse + row, largest + tl.log(normaliser))


@triton.jit
def _score_gradients_kernel(
    scores,
    grads,
    scaled_out,
    gradient_out,
    lse,
    shift,
    scale,
    stride,
    out_stride,
    num_real,
    num_columns,
    BLOCK: tl.constexpr,
    KEEPS_ROW: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    scores += row * stride
    grads += row * stride
    scaled_out += row * out_stride
    gradient_out += row * out_stride
    normaliser = tl.load(lse + row)
    factor = tl.load(scale + row)
    columns = tl.arange(0, BLOCK)
    P = tl.exp(_read(scores, columns, num_real, -float("inf")) - normaliser)
    M = _read(grads, columns, num_real, 0.0)
    products = P * M
    if KEEPS_ROW:
        level = tl.sum(products, 0) - tl.load(shift + row)
        tl.store(scaled_out + columns, (P * factor).to(scaled_out.dtype.element_ty), mask=columns < num_columns)
        S = P * (M - level)
        tl.store(gradient_out + columns, S.to(gradient_out.dtype.element_ty), mask=columns < num_columns)
    else:
        for start in range(BLOCK, num_real, BLOCK):
            place = start + columns
            P = tl.exp(_read(scores, place, num_real, -float("inf")) - normaliser)
            products += P * _read(grads, place, num_real, 0.0)
        level = tl.sum(products, 0) - tl.load(shift + row)
        for start in range(0, num_columns, BLOCK):
            place = start + columns
            P = tl.exp(_read(scores, place, num_real, -float("inf")) - normaliser)
            M = _read(grads, place, num_real, 0.0)
            S = P * (M - level)
            tl.store(scaled_out + place, (P * factor).to(scaled_out.dtype.element_ty), mask=place < num_columns)
            tl.store(gradient_out + place, S.to(gradient_out.dtype.element_ty), mask=place < num_columns)


@triton.jit
def _target_shares_kernel(
    base,
    target_scores,
    rows,
    weights,
    total,
    values,
    row_shares,
    num_targets,
    WEIGHTED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = place < num_targets
    row = tl.load(rows + place, mask=mask, other=0)
    gap = tl.load(base + row, mask=mask, other=0.0) - _read(target_scores, place, num_targets, 0.0)
    small = tl.exp(-tl.abs(gap))
    loss = tl.maximum(gap, 0.0) + tl.log(1.0 + small)
    share = tl.where(gap >= 0, 1.0, small) / (1.0 + small)
    if WEIGHTED:
        weight = _read(weights, place, num_targets, 0.0)
        loss *= weight
        share *= weight
    tl.atomic_add(total, tl.sum(tl.where(mask, loss, 0.0), 0), sem="relaxed")
    tl.atomic_add(row_shares + row, share, mask=mask, sem="relaxed")
    tl.store(values + place, share, mask=mask)


@triton.jit
def _divide_kernel(values, row_shares, rows, num_targets, least, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = place < num_targets
    row = tl.load(rows + place, mask=mask, other=0)
    share = tl.load(values + place, mask=mask, other=0.0)
    of_row = tl.load(row_shares + row, mask=mask, other=1.0)
    tl.store(values + place, -share / tl.maximum(of_row, least), mask=mask)
