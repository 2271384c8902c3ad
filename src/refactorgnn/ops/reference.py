"""The specification of the products with ``P``: naive, dense, and as short as the formulas.

It stores ``S`` and ``P`` whole (``|Q|×|V|``), so it is for tests and small graphs; plain autograd differentiates it any
number of times.
"""

from __future__ import annotations

import torch
from torch import Tensor


def softmax_products(queries: Tensor, candidates: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """See :func:`refactorgnn.ops.softmax_products`, of which this is the definition."""
    S = queries @ candidates.T
    P = torch.softmax(S, dim=1)
    return torch.logsumexp(S, dim=1), P @ candidates, P.T @ (weights[:, None] * queries)


def logsumexp(queries: Tensor, candidates: Tensor) -> Tensor:
    """See :func:`refactorgnn.ops.logsumexp`, of which this is the definition."""
    return torch.logsumexp(queries @ candidates.T, dim=1)
