"""The gradient of the log-likelihood with queries made, used and dropped part by part, forward and backward.

:mod:`refactorgnn.likelihood` composes it of operations that autograd differentiates, for which about ten arrays of
``|Q|×d`` numbers have to be there at once. Where these are large, this module gathers the queries of a part, does all
that is to be done with them, and keeps two things of it for the backward pass: ``logsumexp(S)`` and ``E = D K``, in the
type of the products. With ``U`` the derivative of the loss by the result,

    result = scatter(adjoint(E, h_s, ψ_r)) + candidates_adjoint(G, H),        E = D K,  G = Dᵀ Q

the derivatives of the scorer's functions are those of :mod:`refactorgnn.row_work`; those of ``E`` and ``G`` are the
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
from refactorgnn.ops.chunked import Keys, chunks, even_size, rows_of
from refactorgnn.ops.precision import product_dtype
from refactorgnn.ops.residual import Facts, ResidualBackwardPass, ResidualPass
from refactorgnn.row_work import RowWork, derivatives, row_work_of
from refactorgnn.scorers import DotScorer


def log_likelihood_gradient(
    scorer: DotScorer, states: Tensor, relations: Tensor, queries: QueryIndex, memory_budget: int | None
) -> Tensor:
    """As :func:`refactorgnn.likelihood.log_likelihood_gradient`, exact; the budget is that of a part."""
    work = _Work(scorer, queries, product_dtype(states), memory_budget)
    with torch.autocast(states.device.type, enabled=False):
        result: Tensor = _Streamed.apply(states, relations, work)  # type: ignore[no-untyped-call]
    return result


@dataclass(frozen=True)
class _Part:
    """Some of the queries.

    Args:
        rows: Which they are.
        work: What is done with them one by one.
        facts: Their facts.
        chunk: How many of them to take products of at a time.
    """

    rows: slice
    work: RowWork
    facts: Facts
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
        self,
        run: ResidualPass | ResidualBackwardPass,
        states: Tensor,
        psi: Tensor,
        facts: Facts,
        *,
        backward: bool = False,
    ) -> Iterator[_Part]:
        """The queries, as many at a time as the budget has room for.

        A part has several chunks where what is d wide takes no more room for all of them than what is ``|V|`` wide does
        for one.
        """
        queries, kind = self.queries, row_work_of(self.scorer, states, psi)
        arrays = kind.backward_arrays if backward else kind.forward_arrays
        most_chunks = kind.backward_chunks if backward else kind.forward_chunks
        wide, narrow = run.bytes_per_query, arrays * states.shape[1] * states.element_size()
        num_chunks = max(1, min(most_chunks, wide // narrow))
        chunk = rows_of(self.memory_budget, wide + num_chunks * narrow, states.device)
        chunk = even_size(queries.num_queries, chunk)
        for rows in chunks(queries.num_queries, chunk, times=num_chunks):
            asked = queries.subjects[rows], queries.relations[rows]
            yield _Part(rows, kind(self.scorer, states, psi, *asked, self.dtype), facts.part(rows), chunk)

    def candidates(self, states: Tensor) -> Tensor:
        """The candidates as factors of a product."""
        return self.scorer.candidates(states).to(self.dtype)


class _Streamed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states: Tensor, relations: Tensor, work: _Work) -> Tensor:
        states, relations = states.contiguous(), relations.contiguous()
        scorer, is_learned = work.scorer, any(ctx.needs_input_grad)
        candidates = work.candidates(states)
        forward = ResidualPass(Keys(candidates), work.memory_budget)
        facts = Facts.of(work.queries.answers, work.queries.weights, candidates)
        total = torch.zeros_like(states)
        shape = (work.queries.num_queries if is_learned else 0), candidates.shape[1]
        kept_lse, kept_E = forward.pulled.new_empty(shape[0]), candidates.new_empty(shape)
        for part in work.parts(forward, states, relations, facts):
            lse, E = forward.add(part.work.queries(), part.facts, part.chunk)
            part.work.send_(E, total)
            if is_learned:
                kept_lse[part.rows], kept_E[part.rows] = lse, E
        total += scorer.candidates_adjoint(forward.pulled, states)
        ctx.save_for_backward(states, relations, forward.pulled.to(work.dtype), kept_lse, kept_E)
        ctx.work, ctx.facts, ctx.keys = work, facts, forward.keys
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor, None]:
        states, relations, pulled, lse, E = ctx.saved_tensors
        work, learns_states, grad = ctx.work, ctx.needs_input_grad[0], grad.contiguous()
        with torch.enable_grad():
            H, G = states.detach().requires_grad_(), pulled.to(states.dtype).requires_grad_()
            grad_G, grad_states = derivatives(work.scorer.candidates_adjoint(G, H), (G, H), grad)
        assert grad_G is not None
        backward = ResidualBackwardPass(
            ctx.keys, grad_G, learns_candidates=learns_states, memory_budget=work.memory_budget
        )
        grad_relations, grad_lse = torch.zeros_like(relations), torch.zeros_like(lse)
        if learns_states:
            grad_states = torch.zeros_like(states) if grad_states is None else grad_states.clone()
        for part in work.parts(backward, states, relations, ctx.facts, backward=True):
            asked = part.work.asked(grad, E[part.rows])
            grad_queries = backward.add(asked, part.facts, lse[part.rows], grad_lse[part.rows], part.chunk)
            part.work.pass_on_(grad_queries, grad_states if learns_states else None, grad_relations)
        if not learns_states:
            return None, grad_relations, None
        assert backward.grad_candidates is not None
        with torch.enable_grad():
            (through_candidates,) = derivatives(work.scorer.candidates(H), (H,), backward.grad_candidates)
        assert through_candidates is not None
        assert grad_states is not None
        return grad_states + through_candidates, grad_relations, None
