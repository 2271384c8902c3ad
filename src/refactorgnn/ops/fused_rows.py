"""Triton kernels for what is done row by row: scaling rows, gathering queries, scattering what is wanted of them.

In torch each of a gather, a product, a narrow copy and a scatter is a pass over ``|Q|×d`` numbers; here the rows that a
query of DistMult is made of are read where they lie, and what comes of them is written once. All arithmetic is in
float32.

Only for GPUs; importing this module needs Triton, which torch brings along where it can use it.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

# Numbers that a program works on: one wide row or several narrow ones.
_TILE = 2_048


class Factors(NamedTuple):
    """What queries are made of.

    Args:
        states: ``H``, shape ``(num_entities, dim)``, float32.
        psi: ``ψ``, shape ``(num_relations, dim)``, float32.
        subjects: The subject of each query.
        relations: The relation of each query.
    """

    states: Tensor
    psi: Tensor
    subjects: Tensor
    relations: Tensor

    @property
    def shape(self) -> tuple[int, int]:
        """The number of queries, and their width."""
        return len(self.subjects), self.states.shape[1]


def scale(rows: Tensor, factors: Tensor, out: Tensor) -> Tensor:
    """``out_i = factors_i · rows_i``, in the type of ``out``; returns it. Both of shape ``(num_rows, dim)``."""
    grid, sizes = _launch(*rows.shape)
    _scale_kernel[grid](rows, factors, out, rows.stride(0), out.stride(0), *sizes)
    return out


def queries(factors: Factors, dtype: torch.dtype) -> Tensor:
    """``h_s ∘ ψ_r`` of each query, in that type; shape ``(num_queries, dim)``."""
    grid, sizes = _launch(*factors.shape)
    out = factors.states.new_empty(factors.shape, dtype=dtype)
    _queries_kernel[grid](*factors, out, *sizes)
    return out


def add_messages(factors: Factors, wanted: Tensor, total: Tensor) -> None:
    """``total_s += wanted_i ∘ ψ_r``: what is wanted of each query, asked of its subject. ``total``: float32."""
    grid, sizes = _launch(*factors.shape)
    _add_messages_kernel[grid](*factors, wanted, total, *sizes)


def operands(factors: Factors, upstream: Tensor, dtype: torch.dtype) -> Tensor:
    """``(Ē, Q)`` with ``Ē_i = U_s ∘ ψ_r``, the derivative by ``wanted``; shape ``(num_queries, 2, dim)``.

    Args:
        factors: What the queries are made of.
        upstream: ``U``, the derivative by ``total``; as the states.
        dtype: Of the result.
    """
    grid, sizes = _launch(*factors.shape)
    num_queries, dim = factors.shape
    out = upstream.new_empty(num_queries, 2, dim, dtype=dtype)
    _operands_kernel[grid](*factors, upstream, out, *sizes)
    return out


def add_derivatives(
    factors: Factors,
    grad_queries: Tensor,
    messages: tuple[Tensor, Tensor] | None,
    grad_states: Tensor | None,
    grad_psi: Tensor,
) -> None:
    """Add what queries, and messages where there are any, pass on to states and relations.

    ``grad_states_s += Q̄_i ∘ ψ_r`` and ``grad_psi_r += Q̄_i ∘ h_s + E_i ∘ U_s``.

    Args:
        factors: What the queries are made of.
        grad_queries: ``Q̄``, of any float type.
        messages: ``E``, of any float type, what :func:`add_messages` was given; and ``U``, float32, as the states.
        grad_states: Float32, where derivatives by the states are wanted.
        grad_psi: Float32.
    """
    grid, sizes = _launch(*factors.shape)
    wanted, upstream = messages if messages is not None else (grad_queries, factors.states)
    by_states = grad_psi if grad_states is None else grad_states
    has = messages is not None, grad_states is not None
    _add_derivatives_kernel[grid](*factors, grad_queries, wanted, upstream, by_states, grad_psi, *sizes, *has)


def _launch(num_rows: int, dim: int) -> tuple[tuple[int], tuple[int, int, int, int]]:
    """The grid, and the sizes that all kernels take: rows and columns, in all and of a program."""
    block = triton.next_power_of_2(dim)
    rows = max(1, _TILE // block)
    return (triton.cdiv(num_rows, rows),), (num_rows, dim, rows, block)


@triton.jit
def _place(subjects, relations, num_rows, dim, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Rows and columns of a program; where its numbers are among queries, states, relations; which there are."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, BLOCK)
    subject = tl.load(subjects + rows, mask=rows < num_rows, other=0)
    relation = tl.load(relations + rows, mask=rows < num_rows, other=0)
    mask = (rows[:, None] < num_rows) & (columns[None, :] < dim)
    own = rows[:, None] * dim + columns[None, :]
    at_s = subject[:, None] * dim + columns[None, :]
    at_r = relation[:, None] * dim + columns[None, :]
    return rows, columns, own, at_s, at_r, mask


@triton.jit
def _read(array, place, mask):
    """Numbers of an array, widened."""
    return tl.load(array + place, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def _scale_kernel(rows, factors, out, stride, out_stride, num_rows, dim, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, BLOCK)
    mask = (row[:, None] < num_rows) & (columns[None, :] < dim)
    factor = tl.load(factors + row, mask=row < num_rows, other=0.0).to(tl.float32)
    scaled = _read(rows, row[:, None] * stride + columns[None, :], mask) * factor[:, None]
    tl.store(out + row[:, None] * out_stride + columns[None, :], scaled.to(out.dtype.element_ty), mask=mask)


@triton.jit
def _queries_kernel(states, psi, subjects, relations, out, num_rows, dim, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    _, _, own, at_s, at_r, mask = _place(subjects, relations, num_rows, dim, ROWS, BLOCK)
    Q = _read(states, at_s, mask) * _read(psi, at_r, mask)
    tl.store(out + own, Q.to(out.dtype.element_ty), mask=mask)


@triton.jit
def _add_messages_kernel(
    states, psi, subjects, relations, wanted, total, num_rows, dim, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    _, _, own, at_s, at_r, mask = _place(subjects, relations, num_rows, dim, ROWS, BLOCK)
    tl.atomic_add(total + at_s, _read(wanted, own, mask) * _read(psi, at_r, mask), mask=mask, sem="relaxed")


@triton.jit
def _operands_kernel(
    states, psi, subjects, relations, upstream, out, num_rows, dim, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    rows, columns, _, at_s, at_r, mask = _place(subjects, relations, num_rows, dim, ROWS, BLOCK)
    factor = _read(psi, at_r, mask)
    first = out + rows[:, None] * (2 * dim) + columns[None, :]
    tl.store(first, (_read(upstream, at_s, mask) * factor).to(out.dtype.element_ty), mask=mask)
    tl.store(first + dim, (_read(states, at_s, mask) * factor).to(out.dtype.element_ty), mask=mask)


@triton.jit
def _add_derivatives_kernel(
    states,
    psi,
    subjects,
    relations,
    grad_queries,
    wanted,
    upstream,
    grad_states,
    grad_psi,
    num_rows,
    dim,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    HAS_MESSAGES: tl.constexpr,
    STATES_LEARN: tl.constexpr,
):
    _, _, own, at_s, at_r, mask = _place(subjects, relations, num_rows, dim, ROWS, BLOCK)
    grad = _read(grad_queries, own, mask)
    by_psi = grad * _read(states, at_s, mask)
    if HAS_MESSAGES:
        by_psi += _read(wanted, own, mask) * _read(upstream, at_s, mask)
    tl.atomic_add(grad_psi + at_r, by_psi, mask=mask, sem="relaxed")
    if STATES_LEARN:
        tl.atomic_add(grad_states + at_s, grad * _read(psi, at_r, mask), mask=mask, sem="relaxed")
