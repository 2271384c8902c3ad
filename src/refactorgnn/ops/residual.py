"""The two products of a layer, with ``D = A − diag(c) P``: what is known minus what is expected.

``A`` is sparse and ``P`` is not, so ``A``'s few numbers are added into the chunk of ``−diag(c) P`` that is in memory
anyway: a layer is then three products (``S``, ``D H``, ``Dᵀ Q``) and passes over the scores, with nothing gathered edge
by edge. With ``Ē``, ``Ḡ``, ``l̄`` the derivatives of the loss by the outputs ``E = D H``, ``G = Dᵀ Q`` and
``l = logsumexp(S)``:

    M   = −c ∘ (Ē Hᵀ + Q Ḡᵀ)                              the derivative by P
    S̄   = P ∘ (M − rowsum(P ∘ M) + l̄)                     softmax and logsumexp
    Q̄   = D Ḡ + S̄ H
    H̄   = Dᵀ Ē + S̄ᵀ Q

``M``, ``Q̄`` and ``H̄`` are sums of two products each: one product of operands side by side, which reads and writes the
wide matrices once. ``D`` and ``S̄`` are kept row after row for that.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from refactorgnn.ops import chunked, passes
from refactorgnn.ops.processor import keeps_narrow
from refactorgnn.ops.sparse import SparsePattern

# |V|-wide buffers alive at once in a forward chunk (the scores, which become D) and in a backward chunk (D and S̄), and
# the temporaries beside them, which kernels do not need.
_FORWARD_BUFFERS = 1
_BACKWARD_BUFFERS = 2
_TEMPORARIES = 1
# Below any weight that counts.
LEAST_WEIGHT = 1e-30


def residual_products(
    queries: Tensor, candidates: Tensor, answers: SparsePattern, weights: Tensor | None, memory_budget: int | None
) -> tuple[Tensor, Tensor, Tensor]:
    """See :func:`refactorgnn.ops.residual_products`."""
    outputs: tuple[Tensor, Tensor, Tensor] = _ResidualProducts.apply(
        queries, candidates, answers, weights, memory_budget
    )
    return outputs


def flat(matrix: Tensor) -> Tensor:
    """The numbers of a matrix, and those between its rows, as they lie in memory; no row is broken up there."""
    return matrix.as_strided(((matrix.shape[0] - 1) * matrix.stride(0) + matrix.shape[1],), (1,))


def at(matrix: Tensor, pattern: SparsePattern) -> Tensor:
    """``matrix[i, o]`` for each edge ``(i, o)`` of the pattern."""
    return flat(matrix).index_select(0, pattern.places(matrix.stride(0)))


def add_at(matrix: Tensor, pattern: SparsePattern, values: Tensor) -> Tensor:
    """``matrix[i, o] += value`` for each edge ``(i, o)`` of the pattern, in place; no row is broken up in memory."""
    flat(matrix).index_add_(0, pattern.places(matrix.stride(0)), values.to(matrix.dtype))
    return matrix


def scaled_rows(rows: Tensor, factors: Tensor, out: Tensor | None = None) -> Tensor:
    """The rows times a factor each: multiplied in the wider type, written once.

    Args:
        rows: Shape ``(num_rows, dim)``.
        factors: Shape ``(num_rows,)``.
        out: Where to put them; something new in the type of the rows if not given.
    """
    found = torch.empty_like(rows) if out is None else out
    kernels = passes.row_kernels_for(factors)
    if kernels is not None and rows.numel():
        return kernels.scale(rows, factors, found)  # type: ignore[no-any-return]
    return torch.mul(rows, factors[:, None], out=found)


def _score_dtype(factor: Tensor, *, wide: bool = False) -> torch.dtype:
    """Half-precision scores stay so where they are widened as they are read: half the traffic, as plain as autocast.

    Args:
        factor: What is multiplied.
        wide: Whether to keep them in the type of the sums where the product has it.
    """
    stays_narrow = keeps_narrow(factor.device, factor.dtype) if passes.kernels_for(factor) is None else not wide
    return factor.dtype if stays_narrow else chunked.accumulation_dtype(factor)


def _bytes_per_query(keys: chunked.Keys, buffers: int, dtype: torch.dtype) -> int:
    if passes.kernels_for(keys.padded) is None:
        buffers += _TEMPORARIES
    narrow = 0 if dtype == _score_dtype(keys.padded) else keys.padded.element_size()
    return keys.num_real * (buffers * dtype.itemsize + narrow)


@dataclass(frozen=True)
class Facts:
    """``A`` and ``c``.

    Args:
        answers: The places of ``A``.
        weights: The number at each place, in the type of the scores, to which they are added.
        counts: ``c``, for each row, in the type of the sums.
        minus_counts: ``−c``.
    """

    answers: SparsePattern
    weights: Tensor
    counts: Tensor
    minus_counts: Tensor

    @classmethod
    def of(cls, answers: SparsePattern, weights: Tensor | None, factor: Tensor) -> Facts:
        """The facts for products of factors of the type and on the device of ``factor``."""
        dtype, narrow = chunked.accumulation_dtype(factor), _score_dtype(factor)
        if weights is None:
            return answers.remembered(("facts", dtype, narrow), lambda: cls._plain(answers, dtype, narrow))
        weights = weights.to(dtype)
        counts = weights.new_zeros(answers.num_rows).index_add_(0, answers.rows, weights)
        return cls(answers, weights.to(narrow), counts, -counts)

    @classmethod
    def _plain(cls, answers: SparsePattern, dtype: torch.dtype, narrow: torch.dtype) -> Facts:
        counts = answers.counts.to(dtype)
        return cls(answers, torch.ones_like(answers.columns, dtype=narrow), counts, -counts)

    def part(self, rows: slice) -> Facts:
        """Those of consecutive queries, without copying."""
        answers, edges = self.answers.slice_rows(rows), self.answers.edges_of(rows)
        return Facts(answers, self.weights[edges], self.counts[rows], self.minus_counts[rows])

    def residual(self, scores: Tensor, keys: chunked.Keys, lse: Tensor) -> tuple[Tensor, Tensor | None]:
        """``D``, but for a factor of each row, which is None where it is 1; fills ``lse`` and spoils the scores."""
        kernels, dtype = passes.kernels_for(scores), keys.padded.dtype
        if kernels is None and scores.dtype != lse.dtype:
            return self._narrow_residual_(scores, keys.num_real, lse), None
        if kernels is None:
            return self._residual_(keys.hide_added(scores), lse)
        D = scores if scores.dtype == dtype else torch.empty_like(scores, dtype=dtype)
        kernels.softmax(scores, keys.num_real, self.minus_counts, out=D, lse=lse)
        return add_at(D, self.answers, self.weights), None

    def _residual_(self, scores: Tensor, lse: Tensor) -> tuple[Tensor, Tensor]:
        """``D = −c/Z (E − Z/c A)`` with the exponentials ``E = Z P``.

        The factor of each row goes into what is d wide, not ``|V|`` wide. A row without facts has ``D = 0``: its factor
        is 0, and its share of ``A`` is empty or of weight 0.
        """
        normaliser, lse[:] = passes.exponentials_(scores)
        share = torch.where(self.counts > 0, normaliser / self.counts.clamp(min=LEAST_WEIGHT), 0)
        E = add_at(scores, self.answers, -self.weights * share[self.answers.rows])
        return E, self.minus_counts / normaliser

    def _narrow_residual_(self, scores: Tensor, num_real: int, lse: Tensor) -> Tensor:
        """``D`` in the place of narrow scores, rounded once: what is d wide stays as it is."""
        for rows, block in passes.wide_blocks(scores):
            some = self.part(rows)
            P, lse[rows] = passes.softmax(block, num_real, block.dtype)
            add_at(torch.mul(P, some.minus_counts[:, None], out=block), some.answers, some.weights)
        return scores

    def residual_and_score_gradients_(self, pair: Tensor, lse: Tensor, grad_lse: Tensor, keys: chunked.Keys) -> None:
        """Make ``(D, S̄)`` of ``(S, M)`` in place: pairs of rows, shape ``(num_rows, 2, num_columns)``."""
        scores, M = pair[:, 0], pair[:, 1]
        kernels = passes.kernels_for(scores)
        if kernels is not None:
            factors = lse, grad_lse.contiguous(), self.minus_counts
            kernels.score_gradients(scores, M, *factors, keys.num_real, outs=(scores, M))
            add_at(scores, self.answers, self.weights)
            return
        keys.hide_added(scores)
        for rows, block in passes.wide_blocks(pair):
            some, (P, M) = self.part(rows), block.unbind(1)
            passes.shifted_exponentials_(P, lse[rows])
            M.sub_((torch.linalg.vecdot(P, M) - grad_lse[rows])[:, None]).mul_(P)
            add_at(P.mul_(some.minus_counts[:, None]), some.answers, some.weights)


class ResidualPass:
    """The forward pass over some queries after others, with the same candidates.

    Args:
        keys: The candidates ``H``.
        memory_budget: Bytes of temporaries.
        wide_scores: Whether scores are kept in the type of the sums where they could be narrower.
    """

    def __init__(self, keys: chunked.Keys, memory_budget: int | None, *, wide_scores: bool = False) -> None:
        self.keys, self.memory_budget = keys, memory_budget
        self._pulled = keys.zeros(chunked.accumulation_dtype(keys.padded))
        self._score_dtype = _score_dtype(keys.padded, wide=wide_scores)

    @property
    def bytes_per_query(self) -> int:
        """What the memory budget is spent on while a query is added."""
        return _bytes_per_query(self.keys, _FORWARD_BUFFERS, self._score_dtype)

    @property
    def pulled(self) -> Tensor:
        """``Dᵀ Q`` of all queries so far."""
        return self._pulled[: self.keys.num_real]

    def add(self, queries: Tensor, facts: Facts, chunk_rows: int | None = None) -> tuple[Tensor, Tensor]:
        """``logsumexp(S)`` and ``D H`` of more queries, so many at a time; None: as many as the budget has room for."""
        keys, dtype = self.keys, self._pulled.dtype
        lse = queries.new_empty(queries.shape[0], dtype=dtype)
        wanted = queries.new_empty(queries.shape, dtype=dtype)
        rows = chunk_rows or chunked.rows_of(self.memory_budget, self.bytes_per_query, queries.device)
        most_rows = min(rows, queries.shape[0])
        kernels = passes.score_kernels_for(queries, most_rows, keys.padded.shape[0])
        place = keys.buffer(most_rows, self._score_dtype if kernels is None else queries.dtype)
        if kernels is not None:
            self._add_by_exponentials(kernels, queries, facts, place, lse, wanted)
            return lse, wanted
        for chunk in chunked.chunks(queries.shape[0], rows):
            q = queries[chunk]
            D, factor = facts.part(chunk).residual(keys.scores(q, out=place), keys, lse[chunk])
            chunked.matmul(D, keys.padded, out=wanted[chunk])
            if factor is not None:
                wanted[chunk].mul_(factor[:, None])
                q = scaled_rows(q, factor)
            chunked.add_matmul_(self._pulled, D.T, q)
        return lse, wanted

    def _add_by_exponentials(
        self, kernels: ModuleType, queries: Tensor, facts: Facts, place: Tensor, lse: Tensor, wanted: Tensor
    ) -> None:
        """Fill ``lse`` and ``wanted`` by ``D = A − diag(c/Z) E``, with ``E`` made by the product itself.

        What can wait is done for all chunks together: there are few kernels to launch while a chunk is at work.
        """
        K, weights = self.keys.padded, facts.minus_counts
        shift, factor = kernels.shifts(queries, K, self.keys.num_real), torch.empty_like(weights)
        rows = kernels.Rows(shift, weights, lse, factor)
        for chunk in chunked.chunks(queries.shape[0], place.shape[0]):
            E = place[: chunk.stop - chunk.start]
            scaled = kernels.exponentials(queries[chunk], K, self.keys.num_real, rows.part(chunk), out=E)
            chunked.matmul(E, K, out=wanted[chunk])
            chunked.add_matmul_(self._pulled, E.T, scaled)
        scaled_rows(wanted, factor, out=wanted)
        kernels.add_answers(facts, queries, K, wanted=wanted, pulled=self._pulled)


class ResidualBackwardPass:
    """The backward pass over some queries after others, with the same candidates.

    Args:
        keys: The candidates ``H``.
        grad_pulled: ``Ḡ``, of all queries.
        learns_candidates: Whether their derivative is wanted.
        memory_budget: Bytes of temporaries.
    """

    def __init__(
        self, keys: chunked.Keys, grad_pulled: Tensor, *, learns_candidates: bool, memory_budget: int | None
    ) -> None:
        self.keys, self.memory_budget = keys, memory_budget
        dtype = chunked.accumulation_dtype(keys.padded)
        self._grad_candidates = keys.zeros(dtype) if learns_candidates else None
        # Beside each other, in the order of the sums above: (Ḡ, K), and for M the transpose of (K, Ḡ).
        self._answering = torch.stack([keys.like(grad_pulled.to(keys.padded.dtype)), keys.padded])
        self._across = self._answering.flip(0).transpose(0, 1).flatten(1).T

    @property
    def bytes_per_query(self) -> int:
        """What the memory budget is spent on while a query is added."""
        return _bytes_per_query(self.keys, _BACKWARD_BUFFERS, _score_dtype(self.keys.padded))

    @property
    def grad_candidates(self) -> Tensor | None:
        """``H̄`` from all queries so far."""
        return None if self._grad_candidates is None else self._grad_candidates[: self.keys.num_real]

    def add(self, asked: Tensor, facts: Facts, lse: Tensor, grad_lse: Tensor, chunk_rows: int | None = None) -> Tensor:
        """``Q̄`` of more queries, so many at a time; None: as in the forward pass.

        Args:
            asked: ``(Ē, Q)``, shape ``(num_queries, 2, dim)``, in the type of the products.
            facts: Their facts.
            lse: Their ``logsumexp``, known from the forward pass.
            grad_lse: Its derivative.
            chunk_rows: How many at a time.
        """
        keys, queries = self.keys, asked[:, 1]
        grad_queries = queries.new_empty(queries.shape, dtype=lse.dtype)
        rows = chunk_rows or chunked.rows_of(self.memory_budget, self.bytes_per_query, queries.device)
        place = keys.buffer(2 * min(rows, queries.shape[0]), _score_dtype(queries))
        for chunk in chunked.chunks(queries.shape[0], rows):
            some = facts.part(chunk)
            pair = place[: 2 * (chunk.stop - chunk.start)].unflatten(0, (-1, 2))
            keys.scores(queries[chunk], out=pair[:, 0])
            # −c goes into the short factor: a pass over M less.
            scaled = scaled_rows(asked[chunk].flatten(1), some.minus_counts)
            chunked.matmul(scaled, self._across, out=pair[:, 1])
            some.residual_and_score_gradients_(pair, lse[chunk], grad_lse[chunk], keys)
            chunked.matmul(pair.flatten(1), self._answering.flatten(0, 1), out=grad_queries[chunk])
            if self._grad_candidates is not None:
                chunked.add_matmul_(self._grad_candidates, pair.flatten(0, 1).T, asked[chunk].flatten(0, 1))
        return grad_queries


class _ResidualProducts(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        queries: Tensor,
        candidates: Tensor,
        answers: SparsePattern,
        weights: Tensor | None,
        memory_budget: int | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        forward = ResidualPass(chunked.Keys(candidates), memory_budget)
        ctx.facts, ctx.memory_budget = Facts.of(answers, weights, queries), memory_budget
        lse, wanted = forward.add(queries, ctx.facts)
        ctx.save_for_backward(queries, candidates, lse)
        return lse, wanted, forward.pulled

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, grad_lse: Tensor, grad_wanted: Tensor, grad_pulled: Tensor
    ) -> tuple[Tensor, Tensor | None, None, None, None]:
        queries, candidates, lse = ctx.saved_tensors
        backward = ResidualBackwardPass(
            chunked.Keys(candidates),
            grad_pulled,
            learns_candidates=ctx.needs_input_grad[1],
            memory_budget=ctx.memory_budget,
        )
        asked = torch.stack([grad_wanted.to(queries.dtype), queries], dim=1)
        grad_queries = backward.add(asked, ctx.facts, lse, grad_lse).to(queries.dtype)
        grad_candidates = backward.grad_candidates
        if grad_candidates is None:
            return grad_queries, None, None, None, None
        return grad_queries, grad_candidates.to(candidates.dtype), None, None, None
