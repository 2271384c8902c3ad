"""The floor of a row: the matrix products that it cannot do without, and nothing else.

With ``Q`` the queries and ``K`` the candidates, three kinds of products are as large as ``|Q|×|V|×d``: *score* products
``Q Kᵀ``, *row* products ``S K`` and *column* products ``Sᵀ Q``. How many of each an equation needs:

- a layer, forward: ``S = Q Kᵀ``, ``P K``, ``Pᵀ Q``; so does the loss with its derivative (:mod:`refactorgnn.ops.nll`);
- a layer, backward (closed form of :mod:`refactorgnn.ops.chunked`): ``S`` again since it is not stored, ``Ē Kᵀ`` and
  ``Q Ḡᵀ``; ``S̄ K`` and ``P Ḡ`` for the derivative by the queries; ``S̄ᵀ Q`` and ``Pᵀ Ē`` for that by the candidates,
  which is not needed where the states are not learned;
- filtered ranking: ``S``.

``|V|`` and ``d`` are rounded up to multiples of 8, which is what matrix units work on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from refactorgnn.bench.cases import Precision
from refactorgnn.ops.processor import product_library

_MULTIPLE = 8
# Rows beyond which a product gains nothing; a longer chunk of scores only leaves the caches.
_MOST_ROWS = 4096


@dataclass(frozen=True)
class Products:
    """Products of one size.

    Args:
        num_queries: ``|Q|``.
        num_candidates: ``|V|``, or how many stand for all.
        dim: ``d``.
        score: How many ``Q Kᵀ``.
        row: How many ``S K``.
        column: How many ``Sᵀ Q``.
    """

    num_queries: int
    num_candidates: int
    dim: int
    score: int
    row: int
    column: int

    @property
    def count(self) -> int:
        """How many products there are."""
        return self.score + self.row + self.column

    @property
    def multiplications(self) -> int:
        """The multiplications of all of them, padding included."""
        return self.count * self.num_queries * padded(self.num_candidates) * padded(self.dim)


def layer_products(num_queries: int, num_candidates: int, dim: int) -> Products:
    """What a layer, or a loss with its derivative, cannot do without."""
    return Products(num_queries, num_candidates, dim, score=1, row=1, column=1)


def layer_and_backward_products(
    num_queries: int, num_candidates: int, dim: int, *, states_learn: bool = True
) -> Products:
    """What a layer and its derivative by relations, and by states if they learn, cannot do without."""
    return Products(num_queries, num_candidates, dim, score=4, row=3, column=3 if states_learn else 1)


def score_products(num_queries: int, num_candidates: int, dim: int) -> Products:
    """What a ranking cannot do without."""
    return Products(num_queries, num_candidates, dim, score=1, row=0, column=0)


class Floor:
    """Products to be done on random matrices, in chunks of queries into buffers that are made once.

    Args:
        products: What is done; all with the same candidates and the same width.
        device: Where.
        precision: In what type; operands and results have the same.
        memory_budget: Bytes of scores that are held at once.
        times: How often all of it is done.
    """

    def __init__(
        self,
        products: Sequence[Products],
        device: torch.device,
        precision: Precision,
        memory_budget: int,
        times: int = 1,
    ) -> None:
        self.products = tuple(products)
        self.times = times
        ((num_candidates, dim),) = {(padded(one.num_candidates), padded(one.dim)) for one in products}
        num_queries = max(one.num_queries for one in products)
        dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        self.rows = max(1, min(_MOST_ROWS, num_queries, memory_budget // (num_candidates * dtype.itemsize)))
        self._queries = torch.randn(num_queries, dim, device=device, dtype=dtype).div_(dim)
        self._candidates = torch.randn(num_candidates, dim, device=device, dtype=dtype)
        self._scores = torch.empty(self.rows, num_candidates, device=device, dtype=dtype)
        self._row_sums = torch.empty(self.rows, dim, device=device, dtype=dtype)
        self._column_sums = torch.zeros(num_candidates, dim, device=device, dtype=dtype)

    @property
    def multiplications(self) -> int:
        """The multiplications of all products."""
        return self.times * sum(one.multiplications for one in self.products)

    def __call__(self) -> None:
        """Do them."""
        with torch.no_grad():
            for _ in range(self.times):
                for one in self.products:
                    self._do(one)

    def _do(self, one: Products) -> None:
        for queries in self._queries[: one.num_queries].split(self.rows):
            scores, row_sums = self._scores[: len(queries)], self._row_sums[: len(queries)]
            # By the library that ours are done by: a slower one would be no floor.
            with product_library(queries, self._candidates.T):
                for _ in range(one.score):
                    torch.mm(queries, self._candidates.T, out=scores)
                for _ in range(one.row):
                    torch.mm(scores, self._candidates, out=row_sums)
                for _ in range(one.column):
                    # Halved each time, so that no number of rounds can overflow the sum.
                    self._column_sums.addmm_(scores.T, queries, beta=0.5)


def padded(size: int) -> int:
    """The next multiple of 8.

    >>> padded(8), padded(9)
    (8, 16)
    """
    return -(-size // _MULTIPLE) * _MULTIPLE
