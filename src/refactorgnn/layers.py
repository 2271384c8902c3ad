"""The ReFactor layer: one gradient step of a factorisation model, written as message passing."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from refactorgnn.data.interop import from_edges
from refactorgnn.data.queries import QueryIndex
from refactorgnn.errors import UserError, unknown_name
from refactorgnn.likelihood import NTerm, check_dropout, check_sampling, log_likelihood_gradient
from refactorgnn.ops import IMPLS, Impl, passes
from refactorgnn.relation_prediction import check_relation_loss, relation_gradient
from refactorgnn.scorers import Scorer, make_scorer

Optimizer = Literal["sgd", "adagrad"]
N3Weighting = Literal["entity", "triple"]


class ReFactorConv(nn.Module):
    r"""The layer of `ReFactor GNNs <https://arxiv.org/abs/2207.09980>`_ (Chen et al., NeurIPS 2022), exact.

    One step of gradient ascent on the log-likelihood of a factorisation model, by the entity states:

    .. math::
        H' = H + \mathrm{step}\big(\nabla_H \textstyle\sum_{(s,r,o)} \log P(o \mid s, r) - 3 \lambda |H| H\big)

    with ``step(g) = α g`` (SGD) or ``α g / (√Σg² + ε)`` (AdaGrad). ``t`` layers equal ``t`` steps of
    ``torch.optim.SGD`` or ``Adagrad`` on a lookup table. The relation embeddings ``ψ`` are the only
    parameters; apply the same module ``L`` times for ``L`` layers.

    The edges are taken as they are: add reciprocal edges first if you want them
    (:func:`refactorgnn.data.to_pyg` with ``reciprocals=True``).

    Args:
        dim: The width of the node states.
        num_relations: The number of edge types.
        scorer: The factorisation model: a registered name or a :class:`~refactorgnn.scorers.Scorer`.
        alpha: The step size ``α``, times the *sum* over the edges.
        optimizer: ``"sgd"`` or ``"adagrad"``.
        n3: The weight ``λ`` of the N3 regulariser ``λ Σ|h|³``.
        n_term: ``"exact"``, ``"paper"`` or ``"none"``; see :func:`~refactorgnn.likelihood.log_likelihood_gradient`.
        epsilon: AdaGrad's ``ε``.
        impl: How the products with ``P`` are computed: ``"chunked"`` or ``"reference"``.
        memory_budget: Bytes of temporaries of ``"chunked"``, and of the products with a sample.
        num_samples: Estimate ``n[v]`` from this many candidates and the known answers, drawn anew at each application
            in training mode; torch's default generator on the CPU is used, so ``torch.manual_seed`` makes it
            repeatable. None, and evaluation mode: all candidates, exactly.
        dropout: The share of the numbers of subjects and relations that is dropped in training mode.
        n3_weighting: Whether N3 counts each entity once, or once for each triple it occurs in (``"triple"``), as when
            a factorisation model regularises the factors of its triples (Lacroix et al., 2018).
        relation_loss: The weight of ``Σ log P(r | s, o)`` in what the step climbs, so that the relation of each triple
            is predicted as well (Chen et al., 2021); above 0 the scorer must be bilinear.

    Shapes:
        - **x**: ``(num_nodes, dim)``
        - **edge_index**: ``(2, num_edges)``, heads then tails; or a :class:`~refactorgnn.data.QueryIndex` built once
        - **edge_type**: ``(num_edges,)``
        - **output**: ``(num_nodes, dim)``

    Example:
        >>> import torch
        >>> conv = ReFactorConv(dim=8, num_relations=2, alpha=0.1)
        >>> edge_index, edge_type = torch.tensor([[0, 1, 2], [1, 2, 0]]), torch.tensor([0, 1, 0])
        >>> conv(torch.randn(4, 8), edge_index, edge_type).shape
        torch.Size([4, 8])
    """

    def __init__(
        self,
        dim: int,
        num_relations: int,
        scorer: str | Scorer = "distmult",
        *,
        alpha: float = 0.1,
        optimizer: Optimizer = "sgd",
        n3: float = 0.0,
        n_term: NTerm = "exact",
        epsilon: float = 1e-10,
        impl: Impl = "chunked",
        memory_budget: int | None = None,
        num_samples: int | None = None,
        dropout: float = 0.0,
        n3_weighting: N3Weighting = "entity",
        relation_loss: float = 0.0,
    ) -> None:
        super().__init__()
        for kind, name, choices in (
            ("optimizer", optimizer, get_args(Optimizer)),
            ("n_term", n_term, get_args(NTerm)),
            ("impl", impl, IMPLS),
            ("n3_weighting", n3_weighting, get_args(N3Weighting)),
        ):
            if name not in choices:
                raise unknown_name(kind, name, choices)
        self.scorer = make_scorer(scorer, dim) if isinstance(scorer, str) else scorer
        check_sampling(num_samples, self.scorer, impl)
        check_dropout(dropout, self.scorer)
        check_relation_loss(relation_loss, self.scorer)
        self.num_relations = num_relations
        self.alpha = alpha
        self.optimizer = optimizer
        self.n3 = n3
        self.n_term = n_term
        self.epsilon = epsilon
        self.impl: Impl = impl
        self.memory_budget = memory_budget
        self.num_samples = num_samples
        self.dropout = dropout
        self.n3_weighting = n3_weighting
        self.relation_loss = relation_loss
        self.relations = nn.Parameter(torch.empty(num_relations, self.scorer.relation_dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the relation embeddings from a standard normal distribution."""
        nn.init.normal_(self.relations)

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor | QueryIndex,
        edge_type: Tensor | None = None,
        sum_of_squares: Tensor | None = None,
        *,
        return_sum_of_squares: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """One layer.

        Args:
            x: The node states.
            edge_index: The edges, or a query index made of them (built once for many layers).
            edge_type: The relation of each edge; not with a query index.
            sum_of_squares: AdaGrad's running sums from the layers before, of the shape of ``x``; zeros if not given.
            return_sum_of_squares: Also return AdaGrad's sums, to be given to the next layer.
        """
        if self.optimizer == "sgd" and (return_sum_of_squares or sum_of_squares is not None):
            raise UserError("an SGD layer keeps no sums of squares: choose optimizer='adagrad' to use them.")
        if x.dim() != 2 or x.shape[1] != self.scorer.dim:
            raise UserError(
                f"x has the shape {tuple(x.shape)}, but the layer takes (num_nodes, {self.scorer.dim}): project x to "
                "that width, or make the layer with another dim."
            )
        moved, sums = self.step(x, self._queries(x, edge_index, edge_type), sum_of_squares)
        return (moved, sums) if return_sum_of_squares and sums is not None else moved

    def step(
        self,
        x: Tensor,
        queries: QueryIndex,
        sum_of_squares: Tensor | None = None,
        *,
        alpha: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """One layer with what its optimiser carries on to the next: AdaGrad's sums, or None.

        Args:
            x: The node states.
            queries: The edges, grouped.
            sum_of_squares: AdaGrad's sums from the layers before.
            alpha: A step size to use instead of the layer's own, a learned one for instance.
        """
        return self.move(x, self.gradient(x, queries), sum_of_squares, alpha=alpha)

    def move(
        self, x: Tensor, gradient: Tensor, sum_of_squares: Tensor | None = None, *, alpha: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """The optimiser's step along ``gradient``, for all nodes or some; otherwise as :meth:`step`."""
        size = self.alpha if alpha is None else alpha
        if self.optimizer == "sgd":
            return x + size * gradient, None
        if isinstance(size, float) and (kernels := passes.adagrad_kernels_for(x)) is not None:
            given = x, gradient, sum_of_squares, size, self.epsilon, kernels
            moved: tuple[Tensor, Tensor] = _AdagradStep.apply(*given)  # type: ignore[no-untyped-call]
            return moved
        sums = gradient.square() if sum_of_squares is None else sum_of_squares + gradient.square()
        return x + size * _adagrad_direction(gradient, sums, self.epsilon), sums

    def cascade(
        self,
        x: Tensor,
        parts: Sequence[QueryIndex],
        sum_of_squares: Tensor | None = None,
        *,
        induced: bool = False,
        alpha: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """One layer, evaluated stochastically (section 4): part after part of the edges, each from what the last left.

        Args:
            x: The node states.
            parts: The edges in parts (:meth:`QueryIndex.partition`), each an index over all nodes.
            sum_of_squares: As in :meth:`step`.
            induced: False: every node is a candidate of every part, so that the cascade is an epoch of mini-batch
                SGD or AdaGrad on the factorisation model. True, as in the paper: a part sees the nodes that occur in
                it and no others, as candidates of ``n[v]``, in the step and in its regulariser.
            alpha: As in :meth:`step`.

        Returns:
            As :meth:`step`, to which the cascade of a single part with ``induced=False`` is equal.
        """
        for part in parts:
            if not induced:
                x, sum_of_squares = self.step(x, part, sum_of_squares, alpha=alpha)
                continue
            nodes, local = part.induced()
            sums = None if sum_of_squares is None else sum_of_squares[nodes]
            moved, sums = self.step(x[nodes], local, sums, alpha=alpha)
            x = x.index_copy(0, nodes, moved)
            if sums is not None:
                before = torch.zeros_like(x) if sum_of_squares is None else sum_of_squares
                sum_of_squares = before.index_copy(0, nodes, sums)
        return x, sum_of_squares

    def gradient(self, x: Tensor, queries: QueryIndex) -> Tensor:
        """``∇H`` with the regulariser's part: the direction of the step, before its scaling."""
        dropout_rate = self.dropout if self.training else 0.0
        gradient = log_likelihood_gradient(
            self.scorer,
            x,
            self.relations,
            queries,
            n_term=self.n_term,
            impl=self.impl,
            memory_budget=self.memory_budget,
            num_samples=self.num_samples if self.training else None,
            dropout_rate=dropout_rate,
        )
        if self.relation_loss:
            of_relations = relation_gradient(
                self.scorer, x, self.relations, queries, dropout_rate=dropout_rate, memory_budget=self.memory_budget
            )
            gradient = gradient + self.relation_loss * of_relations
        return gradient - self.shrinkage(x, queries.occurrences) if self.n3 else gradient

    def shrinkage(self, x: Tensor, occurrences: Tensor) -> Tensor:
        """The gradient of the regulariser, ``3 λ |x| x``, of nodes that occur so often in the triples."""
        shrinkage = 3 * self.n3 * self.scorer.modulus(x) * x
        return shrinkage if self.n3_weighting == "entity" else shrinkage * occurrences.to(x.dtype)[:, None]

    def _queries(self, x: Tensor, edge_index: Tensor | QueryIndex, edge_type: Tensor | None) -> QueryIndex:
        if isinstance(edge_index, QueryIndex):
            if edge_type is not None:
                raise UserError("edge_type was given beside a query index, which has its own: leave it out.")
            return edge_index
        if edge_type is None:
            raise UserError("edge_type is missing: pass the relation of each edge, or a query index.")
        return QueryIndex.from_triples(from_edges(edge_index, edge_type), x.shape[0], self.num_relations)

    def extra_repr(self) -> str:
        """The settings, for ``print(layer)``."""
        return (
            f"{self.scorer!r}, num_relations={self.num_relations}, alpha={self.alpha}, optimizer={self.optimizer!r}, "
            f"n3={self.n3}, n_term={self.n_term!r}, impl={self.impl!r}, num_samples={self.num_samples}, "
            f"dropout={self.dropout}, n3_weighting={self.n3_weighting!r}, relation_loss={self.relation_loss}"
        )


class _AdagradStep(torch.autograd.Function):
    """The step in one kernel, its derivative in another."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        gradient: Tensor,
        sum_of_squares: Tensor | None,
        alpha: float,
        epsilon: float,
        kernels: ModuleType,
    ) -> tuple[Tensor, Tensor]:
        before = None if sum_of_squares is None else sum_of_squares.contiguous()
        gradient = gradient.contiguous()
        moved, sums = kernels.step(x.contiguous(), gradient, before, alpha, epsilon)
        ctx.save_for_backward(gradient, sums)
        ctx.options, ctx.kernels = (alpha, epsilon), kernels
        ctx.set_materialize_grads(False)
        return moved, sums

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_moved: Tensor | None, grad_sums: Tensor | None) -> tuple[Tensor | None, ...]:
        gradient, sums = ctx.saved_tensors
        given = torch.zeros_like(gradient) if grad_moved is None else grad_moved.contiguous()
        of_sums = None if grad_sums is None else grad_sums.contiguous()
        by_gradient, by_sums = ctx.kernels.derivatives(gradient, sums, given, of_sums, *ctx.options)
        return grad_moved, by_gradient, by_sums if ctx.needs_input_grad[2] else None, None, None, None


def _adagrad_direction(gradient: Tensor, sums: Tensor, epsilon: float) -> Tensor:
    """``g / (√sums + ε)``; where all gradients so far were 0 so is the step, and its derivative stays finite."""
    moved = sums > 0
    root = torch.where(moved, sums, 1).sqrt()
    return torch.where(moved, gradient / (root + epsilon), 0)
