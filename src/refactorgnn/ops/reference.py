"""The specification of the products with ``P``: naive, dense, and as short as the formulas.

It stores ``S`` and ``P`` whole (``|Q|×|V|``), so it is for tests and small graphs; plain autograd differentiates it any
number of times.
"""

from __future__ import annotations

import torch
from torch import Tensor

from refactorgnn.ops.sparse import SparsePattern


def softmax_products(queries: Tensor, candidates: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """See :func:`refactorgnn.ops.softmax_products`, of which this is the definition."""
    S = queries @ candidates.T
    P = torch.softmax(S, dim=1)
    return torch.logsumexp(S, dim=1), P @ candidates, P.T @ (weights[:, None] * queries)


def residual_products(
    queries: Tensor, candidates: Tensor, answers: SparsePattern, weights: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """See :func:`refactorgnn.ops.residual_products`, of which this is the definition."""
    S = queries @ candidates.T
    counted = S.new_ones(answers.num_edges) if weights is None else weights.to(S.dtype)
    A = torch.zeros_like(S).index_put_((answers.rows, answers.columns), counted, accumulate=True)
    D = A - A.sum(1, keepdim=True) * torch.softmax(S, dim=1)
    return torch.logsumexp(S, dim=1), D @ candidates, D.T @ queries


def logsumexp(queries: Tensor, candidates: Tensor) -> Tensor:
    """See :func:`refactorgnn.ops.logsumexp`, of which this is the definition."""
    return torch.logsumexp(queries @ candidates.T, dim=1)
