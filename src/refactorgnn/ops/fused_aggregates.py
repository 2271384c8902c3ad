"""Triton kernels for :func:`~refactorgnn.ops.relational.combined_aggregates`: no message ever leaves the registers.

A program takes one node and some questions, goes through the edges of the node, makes their messages and sums them up.
Torch needs a pass over all messages for each of the product, the sum, the squares, their sum, and the two extremes,
and some twenty of them backwards.

Only for GPUs and float32; importing this module needs Triton, which torch brings along where it can use it.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from refactorgnn.ops.edges import TypedEdges
from refactorgnn.ops.relational import LEAST_VARIANCE

# Numbers that a program has of each of its sums, four for each of its 128 threads.
_NUMBERS = 512


def aggregate(states: Tensor, boundary: Tensor, relations: Tensor, edges: TypedEdges) -> Tensor:
    """Mean, maximum, minimum and deviation; shape ``(num_nodes, num_questions, 4 * dim)``; all contiguous."""
    out = states.new_empty(*states.shape[:-1], 4 * states.shape[-1])
    grid, sizes = _launch(states, relations)
    incoming = edges.incoming
    _aggregate_kernel[grid](
        states, boundary, relations, out, incoming.offsets, edges.sources, edges.types, LEAST_VARIANCE, **sizes
    )
    return out


def gradients(
    states: Tensor, boundary: Tensor, relations: Tensor, out: Tensor, grad: Tensor, edges: TypedEdges
) -> tuple[Tensor, Tensor, Tensor]:
    """The derivatives by states, boundary and relations, from that by ``out``."""
    grid, sizes = _launch(states, relations)
    pulls, grad_boundary, grad_states = torch.empty_like(out), torch.empty_like(boundary), torch.empty_like(states)
    grad_relations = torch.zeros_like(relations)
    least_deviation = math.sqrt(LEAST_VARIANCE)
    incoming, outgoing = edges.incoming, edges.outgoing
    _pulls_kernel[grid](
        states,
        boundary,
        relations,
        out,
        grad,
        pulls,
        grad_boundary,
        incoming.offsets,
        edges.sources,
        edges.types,
        least_deviation,
        **sizes,
    )
    _message_gradients_kernel[grid](
        states,
        relations,
        out,
        pulls,
        grad_states,
        grad_relations,
        outgoing.offsets,
        outgoing.columns,
        edges.targets,
        edges.types,
        **sizes,
    )
    return grad_states, grad_boundary, grad_relations


def _launch(states: Tensor, relations: Tensor) -> tuple[tuple[int, int], dict[str, int]]:
    """The programs, and the sizes that all kernels are told."""
    num_nodes, num_questions, dim = states.shape
    width = triton.next_power_of_2(dim)
    rows = max(1, min(triton.next_power_of_2(num_questions), _NUMBERS // width))
    sizes = {
        "num_questions": num_questions,
        "dim": dim,
        "SHARED": relations.shape[1] == 1,
        "ROWS": rows,
        "WIDTH": width,
    }
    return (num_nodes, triton.cdiv(num_questions, rows)), sizes


@triton.jit
def _places(num_questions, dim, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """The questions and the numbers of a state that a program takes, and which of them exist."""
    question = (tl.program_id(1) * ROWS + tl.arange(0, ROWS))[:, None]
    number = tl.arange(0, WIDTH)[None, :]
    return question, number, (question < num_questions) & (number < dim)


@triton.jit
def _relation(relations, kind, question, number, inside, num_questions, dim, SHARED: tl.constexpr):
    """The relation of an edge, for each question or the same for all."""
    if SHARED:
        return tl.load(relations + kind * dim + number + 0 * question, mask=inside, other=0.0)
    return tl.load(relations + (kind * num_questions + question) * dim + number, mask=inside, other=0.0)


@triton.jit
def _aggregate_kernel(
    states,
    boundary,
    relations,
    out,
    offsets,
    sources,
    types,
    least_variance,
    num_questions,
    dim,
    SHARED: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    node = tl.program_id(0).to(tl.int64)
    question, number, inside = _places(num_questions, dim, ROWS, WIDTH)
    place = question * dim + number
    total = tl.load(boundary + node * num_questions * dim + place, mask=inside, other=0.0)
    squares, largest, smallest = total * total, total, total
    first, last = tl.load(offsets + node), tl.load(offsets + node + 1)
    for edge in range(first, last):
        h = tl.load(states + tl.load(sources + edge) * num_questions * dim + place, mask=inside, other=0.0)
        message = h * _relation(relations, tl.load(types + edge), question, number, inside, num_questions, dim, SHARED)
        total += message
        squares += message * message
        largest = tl.maximum(largest, message)
        smallest = tl.minimum(smallest, message)
    count = (last - first + 1).to(tl.float32)
    mean = total / count
    deviation = tl.sqrt(tl.maximum(squares / count - mean * mean, least_variance))
    out += (node * num_questions + question) * 4 * dim + number
    tl.store(out, mean, mask=inside)
    tl.store(out + dim, largest, mask=inside)
    tl.store(out + 2 * dim, smallest, mask=inside)
    tl.store(out + 3 * dim, deviation, mask=inside)


@triton.jit
def _pulls_kernel(
    states,
    boundary,
    relations,
    out,
    grad,
    pulls,
    grad_boundary,
    offsets,
    sources,
    types,
    least_deviation,
    num_questions,
    dim,
    SHARED: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """``a``, ``c``, ``X̄ / #max`` and ``N̄ / #min`` of each node, and the derivative by its boundary."""
    node = tl.program_id(0).to(tl.int64)
    question, number, inside = _places(num_questions, dim, ROWS, WIDTH)
    place = question * dim + number
    four = (node * num_questions + question) * 4 * dim + number
    largest = tl.load(out + four + dim, mask=inside, other=0.0)
    smallest = tl.load(out + four + 2 * dim, mask=inside, other=0.0)
    own = tl.load(boundary + node * num_questions * dim + place, mask=inside, other=0.0)
    num_largest, num_smallest = (own == largest).to(tl.float32), (own == smallest).to(tl.float32)
    first, last = tl.load(offsets + node), tl.load(offsets + node + 1)
    for edge in range(first, last):
        h = tl.load(states + tl.load(sources + edge) * num_questions * dim + place, mask=inside, other=0.0)
        message = h * _relation(relations, tl.load(types + edge), question, number, inside, num_questions, dim, SHARED)
        num_largest += (message == largest).to(tl.float32)
        num_smallest += (message == smallest).to(tl.float32)
    count = (last - first + 1).to(tl.float32)
    mean = tl.load(out + four, mask=inside, other=0.0)
    deviation = tl.load(out + four + 3 * dim, mask=inside, other=1.0)
    by_deviation = tl.load(grad + four + 3 * dim, mask=inside, other=0.0)
    c = tl.where(deviation > least_deviation, by_deviation / deviation, 0.0) / count
    a = tl.load(grad + four, mask=inside, other=0.0) / count - c * mean
    x = tl.load(grad + four + dim, mask=inside, other=0.0) / num_largest
    n = tl.load(grad + four + 2 * dim, mask=inside, other=0.0) / num_smallest
    tl.store(pulls + four, a, mask=inside)
    tl.store(pulls + four + dim, c, mask=inside)
    tl.store(pulls + four + 2 * dim, x, mask=inside)
    tl.store(pulls + four + 3 * dim, n, mask=inside)
    by_own = a + c * own + tl.where(own == largest, x, 0.0) + tl.where(own == smallest, n, 0.0)
    tl.store(grad_boundary + node * num_questions * dim + place, by_own, mask=inside)


@triton.jit
def _message_gradients_kernel(
    states,
    relations,
    out,
    pulls,
    grad_states,
    grad_relations,
    offsets,
    order,
    targets,
    types,
    num_questions,
    dim,
    SHARED: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """The derivatives by messages, gathered at their source and scattered to their relation."""
    node = tl.program_id(0).to(tl.int64)
    question, number, inside = _places(num_questions, dim, ROWS, WIDTH)
    place = node * num_questions * dim + question * dim + number
    h = tl.load(states + place, mask=inside, other=0.0)
    total = tl.zeros((ROWS, WIDTH), dtype=tl.float32)
    first, last = tl.load(offsets + node), tl.load(offsets + node + 1)
    for index in range(first, last):
        edge = tl.load(order + index)
        target, kind = tl.load(targets + edge), tl.load(types + edge)
        w = _relation(relations, kind, question, number, inside, num_questions, dim, SHARED)
        message = h * w
        four = (target * num_questions + question) * 4 * dim + number
        largest = tl.load(out + four + dim, mask=inside, other=0.0)
        smallest = tl.load(out + four + 2 * dim, mask=inside, other=0.0)
        a = tl.load(pulls + four, mask=inside, other=0.0)
        c = tl.load(pulls + four + dim, mask=inside, other=0.0)
        x = tl.load(pulls + four + 2 * dim, mask=inside, other=0.0)
        n = tl.load(pulls + four + 3 * dim, mask=inside, other=0.0)
        by_message = a + c * message + tl.where(message == largest, x, 0.0) + tl.where(message == smallest, n, 0.0)
        total += by_message * w
        by_relation = tl.where(inside, by_message * h, 0.0)
        if SHARED:
            summed = tl.sum(by_relation, 0)
            entry = tl.arange(0, WIDTH)
            tl.atomic_add(grad_relations + kind * dim + entry, summed, mask=entry < dim)
        else:
            into = grad_relations + (kind * num_questions + question) * dim + number
            tl.atomic_add(into, by_relation, mask=inside)
    tl.store(grad_states + place, total, mask=inside)
