"""The gradient of the log-likelihood with queries made, used and dropped part by part, forward and backward.

:mod:`refactorgnn.likelihood` composes it of operations that autograd differentiates, for which about ten arrays of
``|Q|×d`` numbers have to be there at once. Where these are large, this module gathers the queries of a part, does all
that is to be done with them, and keeps two things of it for the backward pass: ``logsumexp(S)`` and ``E = D K``, in the
type of the products. With ``U`` the derivative of the loss by the result,

    result = scatter(adjoint(E, h_s, ψ_r)) + candidates_adjoint(G, H),        E = D K,  G = Dᵀ Q

the derivatives of the scorer's four functions, which work row by row, are autograd's; those of ``E`` and ``G`` are the
closed form of :mod:`refactorgnn.ops.residual`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from refactorgnn.data.queries import QueryIndex
from refactorgnn.ops.chunked import chunks, rows_of
from refactorgnn.ops.residual import ResidualBackwardPass, ResidualPass
from refactorgnn.ops.sparse import SparsePattern
from refactorgnn.scorers import DotScorer

# Arrays of d numbers for each query of a part that are alive at once, forward and backward.
_FORWARD_ARRAYS = 6
_BACKWARD_ARRAYS = 12
# The most chunks of products in a part. Backward, what is done with a part beside its products is some sixty small
# kernels, and to launch them can take longer than the products of one chunk where d is small.
_FORWARD_CHUNKS = 1
_BACKWARD_CHUNKS = 8


def log_likelihood_gradient(
    scorer: DotScorer, states: Tensor, relations: Tensor, queries: QueryIndex, memory_budget: int | None
) -> Tensor:
    """As :func:`refactorgnn.likelihood.log_likelihood_gradient`, exact; the budget is that of a part."""
    device = states.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else states.dtype
    with torch.autocast(device, enabled=False):
        work = _Work(scorer, queries, dtype, memory_budget)
        result: Tensor = _Streamed.apply(states, relations, work)  # type: ignore[no-untyped-call]
    return result


@dataclass(frozen=True)
class _Part:
    """Some of the queries.

    Args:
        rows: Which they are.
        subjects: Their subjects.
        relations: Their relations.
        answers: Their answers.
        weights: How much each answer counts; None: 1.
        chunk: How many of them to take products of at a time.
    """

    rows: slice
    subjects: Tensor
    relations: Tensor
    answers: SparsePattern
    weights: Tensor | None
    chunk: int


@dataclass(frozen=True)
class _Work:
    """What is to be done but for the tensors that are learned.

    Args:
        scorer: The score function.
        queries: The triples, grouped.
        dtype: Of the factors of the products.
        memory_budget: Bytes of a part.
    """

    scorer: DotScorer
    queries: QueryIndex
    dtype: torch.dtype
    memory_budget: int | None

    def parts(
        self, run: ResidualPass | ResidualBackwardPass, states: Tensor, arrays: int, most_chunks: int
    ) -> Iterator[_Part]:
        """The queries, as many at a time as the budget has room for.

        A part has several chunks where what is d wide takes no more room for all of them than what is ``|V|`` wide does
        for one.
        """
        queries, wide, narrow = self.queries, run.bytes_per_query, arrays * states.shape[1] * states.element_size()
        num_chunks = max(1, min(most_chunks, wide // narrow))
        chunk = rows_of(self.memory_budget, wide + num_chunks * narrow, states.device)
        for rows in chunks(queries.num_queries, num_chunks * chunk):
            weights = None if queries.weights is None else queries.weights[queries.answers.edges_of(rows)]
            answers = queries.answers.slice_rows(rows)
            yield _Part(rows, queries.subjects[rows], queries.relations[rows], answers, weights, chunk)

    def candidates(self, states: Tensor) -> Tensor:
        """The candidates as factors of a product."""
        return self.scorer.candidates(states).to(self.dtype)


class _Streamed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states: Tensor, relations: Tensor, work: _Work) -> Tensor:
        scorer, is_learned = work.scorer, any(ctx.needs_input_grad)
        forward = ResidualPass(candidates := work.candidates(states), work.memory_budget)
        total = torch.zeros_like(states)
        shape = (work.queries.num_queries if is_learned else 0), candidates.shape[1]
        kept_lse, kept_E = forward.pulled.new_empty(shape[0]), candidates.new_empty(shape)
        for part in work.parts(forward, states, _FORWARD_ARRAYS, _FORWARD_CHUNKS):
            h, psi = states.index_select(0, part.subjects), relations.index_select(0, part.relations)
            lse, E = forward.add(scorer.query(h, psi).to(work.dtype), part.answers, part.weights, part.chunk)
            total.index_add_(0, part.subjects, scorer.adjoint(E, h, psi).to(total.dtype))
            if is_learned:
                kept_lse[part.rows], kept_E[part.rows] = lse, E
        total += scorer.candidates_adjoint(forward.pulled, states)
        ctx.save_for_backward(states, relations, forward.pulled.to(work.dtype), kept_lse, kept_E)
        ctx.work = work
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor, None]:
        states, relations, pulled, lse, E = ctx.saved_tensors
        work, learns_states = ctx.work, ctx.needs_input_grad[0]
        with torch.enable_grad():
            H, G = states.detach().requires_grad_(), pulled.to(states.dtype).requires_grad_()
            grad_G, grad_states = _derivatives(work.scorer.candidates_adjoint(G, H), (G, H), grad)
        assert grad_G is not None
        backward = ResidualBackwardPass(
            work.candidates(states), grad_G, learns_candidates=learns_states, memory_budget=work.memory_budget
        )
        grad_states = torch.zeros_like(states) if grad_states is None else grad_states.clone()
        grad_relations = torch.zeros_like(relations)
        for part in work.parts(backward, states, _BACKWARD_ARRAYS, _BACKWARD_CHUNKS):
            kept = lse[part.rows], E[part.rows]
            grad_h, grad_psi = _part_derivatives(states, relations, work, part, kept, grad, backward)
            grad_relations.index_add_(0, part.relations, grad_psi)
            if learns_states:
                grad_states.index_add_(0, part.subjects, grad_h)
        if not learns_states:
            return None, grad_relations, None
        assert backward.grad_candidates is not None
        with torch.enable_grad():
            (through_candidates,) = _derivatives(work.scorer.candidates(H), (H,), backward.grad_candidates)
        return _sum(grad_states, through_candidates), grad_relations, None


def _part_derivatives(
    states: Tensor,
    relations: Tensor,
    work: _Work,
    part: _Part,
    kept: tuple[Tensor, Tensor],
    grad: Tensor,
    backward: ResidualBackwardPass,
) -> tuple[Tensor, Tensor]:
    """The derivatives by the subjects and the relations of a part's queries, row by row."""
    lse = kept[0]
    with torch.enable_grad():
        h = states.index_select(0, part.subjects).requires_grad_()
        psi = relations.index_select(0, part.relations).requires_grad_()
        E = kept[1].to(states.dtype, copy=True).requires_grad_()
        wanted = work.scorer.adjoint(E, h, psi)
        grad_E, grad_h, grad_psi = _derivatives(wanted, (E, h, psi), grad.index_select(0, part.subjects))
        Q = work.scorer.query(h, psi)
    assert grad_E is not None
    factors, grad_lse = Q.detach().to(work.dtype), torch.zeros_like(lse)
    grad_Q = backward.add(factors, part.answers, part.weights, lse, grad_lse, grad_E, part.chunk)
    more_h, more_psi = _derivatives(Q, (h, psi), grad_Q.to(Q.dtype))
    return _sum(grad_h, more_h), _sum(grad_psi, more_psi)


def _derivatives(output: Tensor, inputs: tuple[Tensor, ...], grad: Tensor) -> tuple[Tensor | None, ...]:
    """``torch.autograd.grad``, with None for what the output does not depend on."""
    return torch.autograd.grad(output, inputs, grad, allow_unused=True)


def _sum(one: Tensor | None, other: Tensor | None) -> Tensor:
    """The sum of derivatives; not in place, for those by ``h`` and ``ψ`` may be one tensor (TransE)."""
    if one is None or other is None:
        found = other if one is None else one
        assert found is not None, "a query depends on its subject and its relation"
        return found
    return one + other
