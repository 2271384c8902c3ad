"""Triton kernels for AdaGrad's step: ten passes over the states in one, and as many of its derivative.

Only for GPUs; importing this module needs Triton, which torch brings along where it can use it.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 1_024


def step(states: Tensor, gradient: Tensor, sums: Tensor | None, alpha: float, epsilon: float) -> tuple[Tensor, Tensor]:
    """``(x + α g / (√s' + ε), s')`` with ``s' = s + g²``; no step where ``s'`` is 0. All float32, contiguous.

    Args:
        states: ``x``.
        gradient: ``g``.
        sums: ``s``; None: 0.
        alpha: ``α``.
        epsilon: ``ε``.
    """
    moved, kept, size = torch.empty_like(states), torch.empty_like(states), states.numel()
    before = gradient if sums is None else sums
    _step_kernel[(triton.cdiv(size, _BLOCK),)](
        states, gradient, before, moved, kept, alpha, epsilon, size, sums is not None, _BLOCK
    )
    return moved, kept


def derivatives(
    gradient: Tensor, sums: Tensor, grad_moved: Tensor, grad_sums: Tensor | None, alpha: float, epsilon: float
) -> tuple[Tensor, Tensor]:
    """The derivatives by ``g`` and by ``s``, given those by both results; that by ``x`` is ``grad_moved``.

    Args:
        gradient: ``g``.
        sums: ``s'``.
        grad_moved: The derivative by the new states.
        grad_sums: The derivative by ``s'``; None: 0.
        alpha: ``α``.
        epsilon: ``ε``.
    """
    by_gradient, by_sums, size = torch.empty_like(gradient), torch.empty_like(gradient), gradient.numel()
    given = gradient if grad_sums is None else grad_sums
    _derivatives_kernel[(triton.cdiv(size, _BLOCK),)](
        gradient, sums, grad_moved, given, by_gradient, by_sums, alpha, epsilon, size, grad_sums is not None, _BLOCK
    )
    return by_gradient, by_sums


@triton.jit
def _step_kernel(
    states, gradient, sums, moved, kept, alpha, epsilon, size, HAS_SUMS: tl.constexpr, BLOCK: tl.constexpr
):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = place < size
    g = tl.load(gradient + place, mask=mask, other=0.0)
    s = g * g
    if HAS_SUMS:
        s += tl.load(sums + place, mask=mask, other=0.0)
    direction = tl.where(s > 0, g / (tl.sqrt(tl.where(s > 0, s, 1.0)) + epsilon), 0.0)
    tl.store(moved + place, tl.load(states + place, mask=mask, other=0.0) + alpha * direction, mask=mask)
    tl.store(kept + place, s, mask=mask)


@triton.jit
def _derivatives_kernel(
    gradient,
    sums,
    grad_moved,
    grad_sums,
    by_gradient,
    by_sums,
    alpha,
    epsilon,
    size,
    HAS_GRAD_SUMS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = place < size
    g = tl.load(gradient + place, mask=mask, other=0.0)
    s = tl.load(sums + place, mask=mask, other=1.0)
    u = alpha * tl.load(grad_moved + place, mask=mask, other=0.0)
    root = tl.sqrt(tl.where(s > 0, s, 1.0))
    slow = 1.0 / (root + epsilon)
    v = tl.where(s > 0, -u * g * slow * slow / (2.0 * root), 0.0)
    if HAS_GRAD_SUMS:
        v += tl.load(grad_sums + place, mask=mask, other=0.0)
    tl.store(by_sums + place, v, mask=mask)
    tl.store(by_gradient + place, tl.where(s > 0, u * slow, 0.0) + 2.0 * g * v, mask=mask)
