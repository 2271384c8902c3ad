"""What a layer does query by query: making the queries, sending what is wanted of them, and the derivatives of both.

For any dot-product scorer these are its functions and autograd's derivatives of them. DistMult, whose functions are
products of numbers, has kernels of its own on a GPU (:mod:`refactorgnn.ops.fused_rows`): one pass instead of ten.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from refactorgnn.ops import passes
from refactorgnn.ops.precision import product_dtype
from refactorgnn.scorers import DistMult, DotScorer


class RowWork(ABC):
    """The work of some queries.

    Args:
        scorer: The score function.
        states: ``H``, shape ``(num_entities, dim)``.
        psi: ``ψ``, shape ``(num_relations, relation_dim)``.
        subjects: The subjects of the queries.
        relations: The relations of the queries.
        dtype: Of the factors of products.
    """

    # Arrays of d numbers for each query that are alive at once, forward and backward.
    forward_arrays: int
    backward_arrays: int
    # The most chunks of products that queries are taken together for.
    forward_chunks: int
    backward_chunks: int

    def __init__(
        self,
        scorer: DotScorer,
        states: Tensor,
        psi: Tensor,
        subjects: Tensor,
        relations: Tensor,
        dtype: torch.dtype,
    ) -> None:
        self.scorer, self.states, self.psi = scorer, states, psi
        self.subjects, self.relations, self.dtype = subjects, relations, dtype

    @abstractmethod
    def queries(self) -> Tensor:
        """``Q``, as factors of a product."""

    @abstractmethod
    def send_(self, wanted: Tensor, total: Tensor) -> None:
        """``total_s += adjoint(E_i)``: what is wanted of each query, asked of its subject."""

    @abstractmethod
    def asked(self, upstream: Tensor, wanted: Tensor) -> Tensor:
        """``(Ē, Q)``, as factors of a product; shape ``(num_queries, 2, query_dim)``.

        Args:
            upstream: The derivative by ``total``.
            wanted: ``E``, which :meth:`send_` was given.
        """

    @abstractmethod
    def pass_on_(self, grad_queries: Tensor, grad_states: Tensor | None, grad_psi: Tensor) -> None:
        """Add the derivatives by states and relations, given that by the queries; after :meth:`asked`."""


class AutogradRows(RowWork):
    """Of any dot-product scorer."""

    forward_arrays = 6
    backward_arrays = 12
    # Backward: some sixty small kernels, which can take longer to launch than a chunk's products where d is small.
    forward_chunks = 1
    backward_chunks = 8

    @cached_property
    def _factors(self) -> tuple[Tensor, Tensor]:
        return self.states.index_select(0, self.subjects), self.psi.index_select(0, self.relations)

    def queries(self) -> Tensor:  # noqa: D102
        return self.scorer.query(*self._factors).to(self.dtype)

    def send_(self, wanted: Tensor, total: Tensor) -> None:  # noqa: D102
        total.index_add_(0, self.subjects, self.scorer.adjoint(wanted, *self._factors).to(total.dtype))

    def asked(self, upstream: Tensor, wanted: Tensor) -> Tensor:  # noqa: D102
        with torch.enable_grad():
            self._learned = tuple(factor.requires_grad_() for factor in self._factors)
            E = wanted.to(self.states.dtype, copy=True).requires_grad_()
            sent = self.scorer.adjoint(E, *self._learned)
            grads = derivatives(sent, (E, *self._learned), upstream.index_select(0, self.subjects))
            self._queries = self.scorer.query(*self._learned)
        grad_wanted, *self._sent_grads = grads
        assert grad_wanted is not None
        return torch.stack([grad_wanted.to(self.dtype), self._queries.detach().to(self.dtype)], dim=1)

    def pass_on_(self, grad_queries: Tensor, grad_states: Tensor | None, grad_psi: Tensor) -> None:  # noqa: D102
        more = derivatives(self._queries, self._learned, grad_queries.to(self._queries.dtype))
        by_subject, by_relation = (_sum(one, other) for one, other in zip(self._sent_grads, more, strict=True))
        grad_psi.index_add_(0, self.relations, by_relation)
        if grad_states is not None:
            grad_states.index_add_(0, self.subjects, by_subject)


class DistMultRows(RowWork):
    """Of DistMult on a GPU, in float32."""

    forward_arrays = 2
    backward_arrays = 4
    forward_chunks = 4
    backward_chunks = 1

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        kernels = row_kernels(self.scorer, self.states, self.psi)
        assert kernels is not None
        self._kernels = kernels
        self._factors = kernels.Factors(self.states, self.psi, self.subjects, self.relations)

    def queries(self) -> Tensor:  # noqa: D102
        return self._kernels.queries(self._factors, self.dtype)  # type: ignore[no-any-return]

    def send_(self, wanted: Tensor, total: Tensor) -> None:  # noqa: D102
        self._kernels.add_messages(self._factors, wanted, total)

    def asked(self, upstream: Tensor, wanted: Tensor) -> Tensor:  # noqa: D102
        self._messages = wanted, upstream
        return self._kernels.operands(self._factors, upstream, self.dtype)  # type: ignore[no-any-return]

    def pass_on_(self, grad_queries: Tensor, grad_states: Tensor | None, grad_psi: Tensor) -> None:  # noqa: D102
        self._kernels.add_derivatives(self._factors, grad_queries, self._messages, grad_states, grad_psi)


def row_work_of(scorer: DotScorer, states: Tensor, psi: Tensor) -> type[AutogradRows] | type[DistMultRows]:
    """The fastest there is."""
    return AutogradRows if row_kernels(scorer, states, psi) is None else DistMultRows


def row_kernels(scorer: DotScorer, states: Tensor, psi: Tensor) -> ModuleType | None:
    """:mod:`refactorgnn.ops.fused_rows` where it can be used, or None."""
    is_single = states.dtype == psi.dtype == torch.float32
    return passes.row_kernels_for(states) if type(scorer) is DistMult and is_single else None


def gathered_queries(scorer: DotScorer, states: Tensor, psi: Tensor, subjects: Tensor, relations: Tensor) -> Tensor:
    """``query(h_s, ψ_r)`` of each query, differentiable once; under autocast narrow where kernels make them."""
    if row_kernels(scorer, states, psi) is None:
        return scorer.query(states.index_select(0, subjects), psi.index_select(0, relations))
    given = states, psi, subjects, relations, scorer, product_dtype(states)
    found: Tensor = _GatheredQueries.apply(*given)  # type: ignore[no-untyped-call]
    return found


class _GatheredQueries(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        psi: Tensor,
        subjects: Tensor,
        relations: Tensor,
        scorer: DotScorer,
        dtype: torch.dtype,
    ) -> Tensor:
        ctx.save_for_backward(states, psi, subjects, relations)
        ctx.scorer = scorer
        return DistMultRows(scorer, states.contiguous(), psi, subjects, relations, dtype).queries()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor, None, None, None, None]:
        states, psi, subjects, relations = ctx.saved_tensors
        kernels = row_kernels(ctx.scorer, states, psi)
        assert kernels is not None
        grad_states = torch.zeros_like(states) if ctx.needs_input_grad[0] else None
        grad_psi = torch.zeros_like(psi)
        factors = kernels.Factors(states, psi, subjects, relations)
        kernels.add_derivatives(factors, grad.contiguous(), None, grad_states, grad_psi)
        return grad_states, grad_psi, None, None, None, None


def derivatives(output: Tensor, inputs: tuple[Tensor, ...], grad: Tensor) -> tuple[Tensor | None, ...]:
    """``torch.autograd.grad``, with None for what the output does not depend on."""
    return torch.autograd.grad(output, inputs, grad, allow_unused=True)


def _sum(one: Tensor | None, other: Tensor | None) -> Tensor:
    """The sum of derivatives; not in place, for those by ``h`` and ``ψ`` may be one tensor (TransE)."""
    if one is None or other is None:
        found = other if one is None else one
        assert found is not None, "a query depends on its subject and its relation"
        return found
    return one + other
