r"""The products with ``P``, their normaliser estimated from a few candidates drawn at random.

The paper leaves "Monte Carlo estimations of the expectations" in ``n[v]`` to future work; this is one. ``K`` candidates
``C`` are drawn uniformly without replacement, the same for all queries. The known answers ``O_i`` of a query are always
counted, once each; the drawn candidates that are no answers of it stand for all ``|V| − |O_i|`` of that kind:

.. math::
    \hat Z_i = \sum_{u \in O_i} e^{S_{iu}} + w_i \sum_{u \in C \setminus O_i} e^{S_{iu}}, \qquad
    w_i = \frac{|V| - |O_i|}{|C \setminus O_i|}, \qquad
    \hat P_{iu} = m_{iu}\, e^{S_{iu}} / \hat Z_i

with ``m_iu`` = 1 for an answer, ``w_i`` for another drawn candidate, 0 for the rest. ``Ẑ`` is unbiased if
``K > |O_i|``; ``P̂``, a ratio (self-normalised importance sampling), has a bias of the order of ``1/K`` and an error of
the order of ``1/√K``. With ``K = |V|`` nothing is estimated. A query none of whose non-answers was drawn has its
answers stand for everything.

The cost of a layer falls from ``|Q|·|V|`` to ``|Q|·K`` scores plus one for each triple. Scores are made in chunks of
queries, dropped, and recomputed in the backward pass, so memory stays in the budget.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from refactorgnn.ops.chunked import accumulation_dtype, chunks, rows_within
from refactorgnn.ops.precision import full_precision
from refactorgnn.ops.sparse import SparsePattern, edge_dots, sum_neighbours

# K-wide buffers alive at once in a chunk: the scores, with and without answers, P, and their three derivatives.
_BUFFERS = 6
# Stands for −∞, whose derivative is no number where all drawn candidates are answers.
_NEVER = -1e30


@dataclass(frozen=True)
class CandidateSample:
    """The candidates that stand for all entities: some drawn for all queries, and the answers of each query.

    Args:
        drawn: The drawn candidates, sorted and distinct; shape ``(num_samples,)``.
        answers: The known answers of each query, each place at most once, sorted within a row.
        num_entities: How many all are, ``|V|``; more than there are candidates where only some are looked at.
    """

    drawn: Tensor
    answers: SparsePattern
    num_entities: int

    @classmethod
    def draw(cls, answers: SparsePattern, num_samples: int) -> CandidateSample:
        """Draw ``num_samples ≥ 1`` candidates (all, if there are no more) from torch's default generator on the CPU."""
        drawn = torch.randperm(answers.num_columns)[:num_samples].sort().values
        return cls(drawn.to(answers.columns.device), answers, answers.num_columns)

    def among(self, entities: Tensor, answers: SparsePattern) -> CandidateSample:
        """The same drawn candidates with the answers of other queries, where only some entities are looked at.

        Args:
            entities: These, sorted; the drawn candidates are among them.
            answers: Numbered by the place of an entity among these.
        """
        return CandidateSample(torch.searchsorted(entities, self.drawn), answers, self.num_entities)

    @cached_property
    def hidden(self) -> SparsePattern:
        """The places of a ``num_queries × num_samples`` matrix where a drawn candidate is an answer of the query."""
        place, found = self._places(self.answers.columns)
        return SparsePattern.from_rows(self.answers.rows[found], place[found], self.answers.num_rows, len(self.drawn))

    @cached_property
    def weights(self) -> Tensor:
        """``w_i``: how many non-answers of query ``i`` each drawn one stands for; 0 if none was drawn."""
        drawn = len(self.drawn) - self.hidden.counts
        others = self.num_entities - self.answers.counts
        return torch.where(drawn > 0, others.double() / drawn.clamp(min=1), 0)

    def multiplicities(self, objects: Tensor) -> Tensor:
        """``m_iu`` of one candidate ``u = objects[i]`` for each query ``i``; shape ``(num_queries,)``."""
        is_match = self.answers.columns == objects[self.answers.rows]
        is_answer = torch.bincount(self.answers.rows[is_match], minlength=self.answers.num_rows) > 0
        _, is_drawn = self._places(objects)
        return torch.where(is_answer, 1, torch.where(is_drawn, self.weights, 0))

    @full_precision
    def logsumexp(self, queries: Tensor, candidates: Tensor, memory_budget: int | None) -> Tensor:
        """``log Ẑ``, shape ``(num_queries,)``; the estimate of :func:`refactorgnn.ops.logsumexp`."""
        of_answers = _row_logsumexp(self.answers, edge_dots(self.answers, queries, candidates))
        return self._over_drawn(queries, candidates, of_answers, None, memory_budget)[0]

    @full_precision
    def softmax_products(
        self, queries: Tensor, candidates: Tensor, weights: Tensor, memory_budget: int | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """``log Ẑ``, ``P̂ K`` and ``P̂ᵀ diag(weights) Q``: the estimates of :func:`refactorgnn.ops.softmax_products`.

        Args:
            queries: Shape ``(num_queries, dim)``.
            candidates: All candidates, shape ``(num_candidates, dim)``.
            weights: Shape ``(num_queries,)``.
            memory_budget: Bytes of temporaries.

        Returns:
            Tensors of shapes ``(num_queries,)``, ``(num_queries, dim)`` and ``(num_candidates, dim)``, differentiable
            once in all three inputs.
        """
        answers, scores = self.answers, edge_dots(self.answers, queries, candidates)
        of_answers = _row_logsumexp(answers, scores)
        lse, expected, pulled = self._over_drawn(queries, candidates, of_answers, weights, memory_budget)
        P = torch.exp(scores.to(lse.dtype) - lse[answers.rows])
        pull = (weights.to(P.dtype)[answers.rows] * P)[answers.to_transposed]
        expected = expected + sum_neighbours(answers, candidates, P.to(candidates.dtype))
        to_answers = sum_neighbours(answers.transposed, queries, pull.to(queries.dtype)).to(pulled.dtype)
        return lse, expected, to_answers.index_add_(0, self.drawn, pulled)

    def _over_drawn(
        self, queries: Tensor, candidates: Tensor, of_answers: Tensor, weights: Tensor | None, memory_budget: int | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """``log Ẑ`` and the parts of the two products that the drawn non-answers have; without weights, the first."""
        dtype = accumulation_dtype(queries)
        drawn = candidates[self.drawn].to(dtype)
        log_weights = self.weights.log().clamp(min=_NEVER).to(dtype)
        rows = rows_within(memory_budget, len(self.drawn), _BUFFERS, dtype.itemsize, device=queries.device)
        pulled, lse, expected = torch.zeros_like(drawn), [of_answers[:0]], [queries[:0].to(dtype)]
        for chunk in chunks(len(queries), rows):
            parts = checkpoint(
                _chunk_products,
                queries[chunk].to(dtype),
                drawn,
                of_answers[chunk],
                log_weights[chunk],
                None if weights is None else weights[chunk].to(dtype),
                self.hidden.slice_rows(chunk),
                use_reentrant=False,
            )
            lse.append(parts[0])
            if weights is not None:
                expected.append(parts[1])
                pulled = pulled + parts[2]
        return torch.cat(lse), torch.cat(expected), pulled

    def _places(self, objects: Tensor) -> tuple[Tensor, Tensor]:
        """Where each object stands among the drawn ones, and whether it does."""
        place = torch.searchsorted(self.drawn, objects).clamp_(max=len(self.drawn) - 1)
        return place, self.drawn[place] == objects


def _chunk_products(
    queries: Tensor,
    drawn: Tensor,
    of_answers: Tensor,
    log_weights: Tensor,
    weights: Tensor | None,
    hidden: SparsePattern,
) -> tuple[Tensor, ...]:
    is_answer = torch.zeros(len(queries), len(drawn), dtype=torch.bool, device=queries.device)
    is_answer[hidden.rows, hidden.columns] = True
    scores = (queries @ drawn.T + log_weights[:, None]).masked_fill(is_answer, _NEVER)
    lse = torch.logaddexp(torch.logsumexp(scores, dim=1), of_answers)
    if weights is None:
        return (lse,)
    P = torch.exp(scores - lse[:, None])
    return lse, P @ drawn, P.T @ (weights[:, None] * queries)


def _row_logsumexp(pattern: SparsePattern, values: Tensor) -> Tensor:
    """The logsumexp of the values of each row's edges; −∞ for a row without edges."""
    values = values.to(accumulation_dtype(values))
    rows = pattern.rows
    top = values.new_full((pattern.num_rows,), -torch.inf)
    top = top.scatter_reduce(0, rows, values.detach(), "amax").nan_to_num(neginf=0)
    sums = torch.zeros_like(top).index_add(0, rows, torch.exp(values - top[rows]))
    return top + sums.log()
