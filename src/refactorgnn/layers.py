"""The ReFactor layer: one gradient step of a factorisation model, written as message passing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout

from refactorgnn import autograd_path
from refactorgnn.data.interop import from_edges
from refactorgnn.data.queries import QueryIndex
from refactorgnn.errors import UserError, unknown_name
from refactorgnn.ops import (
    IMPLS,
    Impl,
    edge_dots,
    logsumexp,
    residual_products,
    sum_neighbours,
)
from refactorgnn.ops.sampled import CandidateSample
from refactorgnn.scorers import DotScorer, Scorer, make_scorer

NTerm = Literal["exact", "paper", "none"]
Optimizer = Literal["sgd", "adagrad"]
N3Weighting = Literal["entity", "triple"]


def log_likelihood_gradient(
    scorer: Scorer,
    states: Tensor,
    relations: Tensor,
    queries: QueryIndex,
    *,
    n_term: NTerm = "exact",
    impl: Impl = "chunked",
    memory_budget: int | None = None,
    num_samples: int | None = None,
    dropout_rate: float = 0.0,
) -> Tensor:
    r"""The gradient of ``Σ log P(o | s, r)`` over the triples of ``queries``, by the entity states.

    With ``q_i`` the query and ``k_u`` the candidate vectors, ``P_iu = softmax(q_i · k_u)``, ``A`` the matrix of known
    objects and ``c_i`` their number, ``D = A − diag(c) P`` and

    .. math::
        \nabla H = \mathrm{scatter}_{s_i}\, \mathrm{adjoint}\big((D K)_i\big) + \mathrm{adjoint}\big(D^\top Q\big).

    The products with ``A`` and the ``(1 − P)`` of the incoming edges are the messages of Theorem 1; the other products
    with ``P`` are its ``n[v]``.

    Args:
        scorer: The score function.
        states: ``H``, shape ``(num_entities, dim)``.
        relations: ``ψ``, shape ``(num_relations, relation_dim)``.
        queries: The triples, grouped.
        n_term: ``"exact"``: the true gradient. ``"paper"``: Theorem 1 as printed, which lacks, for each triple
            ``(v, r, w)`` with ``w ≠ v``, the part ``−P(v|v,r) ∂Γ(v,r,v)`` of ``v`` as a candidate of its own query.
            ``"none"``: messages only, the paper's ablation.
        impl: How the products with ``P`` are computed; see :mod:`refactorgnn.ops`.
        memory_budget: Bytes of temporaries.
        num_samples: Estimate ``P`` from this many candidates, drawn anew from torch's default generator (on the CPU,
            whatever the device), and the known answers; see :mod:`refactorgnn.ops.sampled`. None: exact.
        dropout_rate: The share of the numbers of subjects and relations that is dropped, so that the result is the
            gradient of what a factorisation model with that dropout is trained on.

    Returns:
        Shape ``(num_entities, dim)``, differentiable in ``states`` and ``relations``.
    """
    if n_term not in get_args(NTerm):
        raise unknown_name("n_term", n_term, get_args(NTerm))
    _check_sampling(num_samples, scorer, impl)
    _check_dropout(dropout_rate, scorer)
    if not isinstance(scorer, DotScorer):
        return autograd_path.log_likelihood_gradient(scorer, states, relations, queries, n_term, memory_budget)
    # index_select, for the derivative of states[subjects] sorts its subjects.
    subjects = states.index_select(0, queries.subjects)
    relations = dropout(relations.index_select(0, queries.relations), dropout_rate)
    kept = dropout(torch.ones_like(subjects), dropout_rate) if dropout_rate else None
    subjects = subjects if kept is None else subjects * kept
    Q, K = scorer.query(subjects, relations), scorer.candidates(states)
    sample = None if num_samples is None else CandidateSample.draw(queries.distinct_answers, num_samples)
    if n_term == "none":
        grad_Q, grad_K = _messages(Q, K, queries, sample, impl, memory_budget)
    else:
        if sample is None:
            lse, grad_Q, grad_K = residual_products(
                Q, K, queries.answers, queries.weights, impl=impl, memory_budget=memory_budget
            )
        else:
            lse, grad_Q, grad_K = _sampled_residuals(Q, K, queries, sample, memory_budget)
        if n_term == "paper":
            grad_K = grad_K + _own_candidate_term(Q, K, lse, queries, sample)
    wanted = scorer.adjoint(grad_Q, subjects, relations)
    as_subject = _summed_by_subject(queries, wanted if kept is None else wanted * kept)
    return as_subject + scorer.candidates_adjoint(grad_K, states)


def _summed_by_subject(queries: QueryIndex, wanted: Tensor) -> Tensor:
    """The rows of the queries of each subject, summed; shape ``(num_entities, dim)``."""
    if wanted.is_cuda:  # in any order: no subject has to wait for the one with the most queries
        return wanted.new_zeros(queries.num_entities, wanted.shape[1]).index_add(0, queries.subjects, wanted)
    return sum_neighbours(queries.by_subject, wanted)


def _sampled_residuals(
    Q: Tensor, K: Tensor, queries: QueryIndex, sample: CandidateSample, memory_budget: int | None
) -> tuple[Tensor, Tensor, Tensor]:
    """As :func:`refactorgnn.ops.residual_products`, with ``P`` estimated from a sample of the candidates."""
    counts = queries.counts.to(torch.promote_types(Q.dtype, torch.float32))
    lse, expected, pulled = sample.softmax_products(Q, K, counts, memory_budget)
    grad_Q = sum_neighbours(queries.answers, K) - counts[:, None] * expected
    return lse, grad_Q, sum_neighbours(queries.answers.transposed, Q) - pulled


def _check_sampling(num_samples: int | None, scorer: Scorer, impl: Impl) -> None:
    if num_samples is None:
        return
    if num_samples < 1:
        raise UserError(f"num_samples={num_samples} leaves no candidate to draw: choose 1 or more, or None for all.")
    if not isinstance(scorer, DotScorer):
        raise UserError(f"num_samples needs a dot-product scorer, which {scorer.name!r} is not: leave it out.")
    if impl == "reference":
        raise UserError("num_samples cannot be used with impl='reference', which is exact: leave one of them out.")


def _check_dropout(dropout_rate: float, scorer: Scorer) -> None:
    if not 0 <= dropout_rate < 1:
        raise UserError(f"dropout={dropout_rate} is no share of a layer's inputs: choose 0 or more, below 1.")
    if dropout_rate and not isinstance(scorer, DotScorer):
        raise UserError(f"dropout in a layer needs a dot-product scorer, which {scorer.name!r} is not: leave it out.")


def _messages(
    Q: Tensor, K: Tensor, queries: QueryIndex, sample: CandidateSample | None, impl: Impl, memory_budget: int | None
) -> tuple[Tensor, Tensor]:
    """The messages of Theorem 1 alone: ``k_o`` to each subject, ``(1 − P(o|s,r)) q`` to each object."""
    answers = queries.answers
    if sample is None:
        lse = logsumexp(Q, K, impl=impl, memory_budget=memory_budget)
    else:
        lse = sample.logsumexp(Q, K, memory_budget)
    surprise = 1 - torch.exp(edge_dots(answers, Q, K) - lse[answers.rows])
    if queries.weights is not None:
        surprise = surprise * queries.weights
    to_objects = sum_neighbours(answers.transposed, Q, surprise[answers.to_transposed].to(Q.dtype))
    weights = None if queries.weights is None else queries.weights.to(Q.dtype)
    return sum_neighbours(answers, K, weights), to_objects


def _own_candidate_term(
    Q: Tensor, K: Tensor, lse: Tensor, queries: QueryIndex, sample: CandidateSample | None
) -> Tensor:
    """``Σ (c_i − loops_i) P(s_i|s_i,r_i) q_i`` at each subject: what Theorem 1's ``n[v]`` leaves out."""
    others = (queries.counts - queries.self_loops).to(lse.dtype)
    if sample is not None:  # take out just what the drawn candidates have put in
        others = others * sample.multiplicities(queries.subjects).to(lse.dtype)
    own_score = (Q * K[queries.subjects]).sum(-1)
    weight = others * torch.exp(own_score - lse)
    return sum_neighbours(queries.by_subject, weight[:, None].to(Q.dtype) * Q)


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
        n_term: ``"exact"``, ``"paper"`` or ``"none"``; see :func:`log_likelihood_gradient`.
        epsilon: AdaGrad's ``ε``.
        impl: How the products with ``P`` are computed: ``"chunked"`` or ``"reference"``.
        memory_budget: Bytes of temporaries of ``"chunked"``, and of the products with a sample.
        num_samples: Estimate ``n[v]`` from this many candidates and the known answers, drawn anew at each application
            in training mode; torch's default generator on the CPU is used, so ``torch.manual_seed`` makes it
            repeatable. None, and evaluation mode: all candidates, exactly.
        dropout: The share of the numbers of subjects and relations that is dropped in training mode.
        n3_weighting: Whether N3 counts each entity once, or once for each triple it occurs in (``"triple"``), as when
            a factorisation model regularises the factors of its triples (Lacroix et al., 2018).

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
        _check_sampling(num_samples, self.scorer, impl)
        _check_dropout(dropout, self.scorer)
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
        gradient = log_likelihood_gradient(
            self.scorer,
            x,
            self.relations,
            queries,
            n_term=self.n_term,
            impl=self.impl,
            memory_budget=self.memory_budget,
            num_samples=self.num_samples if self.training else None,
            dropout_rate=self.dropout if self.training else 0.0,
        )
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
            f"dropout={self.dropout}, n3_weighting={self.n3_weighting!r}"
        )


def _adagrad_direction(gradient: Tensor, sums: Tensor, epsilon: float) -> Tensor:
    """``g / (√sums + ε)``; where all gradients so far were 0 so is the step, and its derivative stays finite."""
    moved = sums > 0
    root = torch.where(moved, sums, 1).sqrt()
    return torch.where(moved, gradient / (root + epsilon), 0)
