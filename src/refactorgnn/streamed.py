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
from refactorgnn.ops.chunked import chunks
from refactorgnn.ops.residual import ResidualBackwardPass, ResidualPass
from refactorgnn.ops.sparse import SparsePattern
from refactorgnn.scorers import DotScorer


def log_likelihood_gradient(
    scorer: DotScorer,
    states: Tensor,
    relations: Tensor,
    queries: QueryIndex,
    memory_budget: int | None,
    queries_at_once: int,
) -> Tensor:
    """As :func:`refactorgnn.likelihood.log_likelihood_gradient`, exact, with so many queries at a time."""
    device = states.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else states.dtype
    with torch.autocast(device, enabled=False):
        work = _Work(scorer, queries, dtype, memory_budget, queries_at_once)
        result: Tensor = _Streamed.apply(states, relations, work)  # type: ignore[no-untyped-call]
    return result


@dataclass(frozen=True)
class _Part:
    """Some of the queries."""

    subjects: Tensor
    relations: Tensor
    answers: SparsePattern
    weights: Tensor | None


@dataclass(frozen=True)
class _Work:
    """What is to be done but for the tensors that are learned.

    Args:
        scorer: The score function.
        queries: The triples, grouped.
        dtype: Of the factors of the products.
        memory_budget: Bytes of |V|-wide temporaries.
        queries_at_once: The size of a part.
    """

    scorer: DotScorer
    queries: QueryIndex
    dtype: torch.dtype
    memory_budget: int | None
    queries_at_once: int

    def parts(self) -> Iterator[_Part]:
        """The queries, so many at a time."""
        queries = self.queries
        for rows in chunks(queries.num_queries, self.queries_at_once):
            weights = None if queries.weights is None else queries.weights[queries.answers.edges_of(rows)]
            yield _Part(queries.subjects[rows], queries.relations[rows], queries.answers.slice_rows(rows), weights)

    def candidates(self, states: Tensor) -> Tensor:
        """The candidates as factors of a product."""
        return self.scorer.candidates(states).to(self.dtype)


class _Streamed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states: Tensor, relations: Tensor, work: _Work) -> Tensor:
        scorer, forward = work.scorer, ResidualPass(work.candidates(states), work.memory_budget)
        total, kept = torch.zeros_like(states), []
        for part in work.parts():
            h, psi = states.index_select(0, part.subjects), relations.index_select(0, part.relations)
            lse, E = forward.add(scorer.query(h, psi).to(work.dtype), part.answers, part.weights)
            total.index_add_(0, part.subjects, scorer.adjoint(E, h, psi).to(total.dtype))
            kept += [lse, E.to(work.dtype)] if any(ctx.needs_input_grad) else []
        pulled = forward.pulled
        total += scorer.candidates_adjoint(pulled, states)
        ctx.save_for_backward(states, relations, pulled, *kept)
        ctx.work = work
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor, None]:
        states, relations, pulled, *kept = ctx.saved_tensors
        work, learns_states = ctx.work, ctx.needs_input_grad[0]
        grad_states, grad_relations = torch.zeros_like(states), torch.zeros_like(relations)
        with torch.enable_grad():
            H, G = states.detach().requires_grad_(), pulled.detach().requires_grad_()
            grad_G, through_adjoint = _derivatives(work.scorer.candidates_adjoint(G, H), (G, H), grad)
        backward = ResidualBackwardPass(
            work.candidates(states), grad_G, learns_candidates=learns_states, memory_budget=work.memory_budget
        )
        for part, lse, E in zip(work.parts(), kept[::2], kept[1::2], strict=True):
            grad_h, grad_psi = _part_derivatives(states, relations, work, part, lse, E, grad, backward)
            grad_relations.index_add_(0, part.relations, grad_psi)
            if learns_states:
                grad_states.index_add_(0, part.subjects, grad_h)
        if not learns_states:
            return None, grad_relations, None
        assert backward.grad_candidates is not None
        with torch.enable_grad():
            (through_candidates,) = _derivatives(work.scorer.candidates(H), (H,), backward.grad_candidates)
        return grad_states.add_(through_adjoint).add_(through_candidates), grad_relations, None


def _part_derivatives(
    states: Tensor,
    relations: Tensor,
    work: _Work,
    part: _Part,
    lse: Tensor,
    E: Tensor,
    grad: Tensor,
    backward: ResidualBackwardPass,
) -> tuple[Tensor, Tensor]:
    """The derivatives by the subjects and the relations of a part's queries, row by row."""
    with torch.enable_grad():
        h = states.index_select(0, part.subjects).requires_grad_()
        psi = relations.index_select(0, part.relations).requires_grad_()
        E = E.to(states.dtype).requires_grad_()
        wanted = work.scorer.adjoint(E, h, psi)
        grad_E, grad_h, grad_psi = _derivatives(wanted, (E, h, psi), grad.index_select(0, part.subjects))
        Q = work.scorer.query(h, psi)
    grad_Q = backward.add(Q.detach().to(work.dtype), part.answers, part.weights, lse, torch.zeros_like(lse), grad_E)
    more_h, more_psi = _derivatives(Q, (h, psi), grad_Q.to(Q.dtype))
    return grad_h + more_h, grad_psi + more_psi  # not in place: of h + ψ both have the same one


def _derivatives(output: Tensor, inputs: tuple[Tensor, ...], grad: Tensor) -> tuple[Tensor, ...]:
    """``torch.autograd.grad``, with zeros for what the output does not depend on."""
    return torch.autograd.grad(output, inputs, grad, allow_unused=True, materialize_grads=True)
