"""Where Triton kernels can be used; and the softmax of a chunk of scores, one of them or torch's passes."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from types import ModuleType

import torch
from torch import Tensor


def kernels_for(scores: Tensor) -> ModuleType | None:
    """:mod:`refactorgnn.ops.fused` where it can be used, which is on a GPU up to float32, or None."""
    if not scores.is_cuda or scores.dtype == torch.float64 or not _has_triton():
        return None
    from refactorgnn.ops import fused

    return fused


def row_kernels_for(states: Tensor) -> ModuleType | None:
    """:mod:`refactorgnn.ops.fused_rows` where it can be used, which is on a GPU in float32, or None."""
    if not states.is_cuda or states.dtype != torch.float32 or not _has_triton():
        return None
    from refactorgnn.ops import fused_rows

    return fused_rows


def adagrad_kernels_for(states: Tensor) -> ModuleType | None:
    """:mod:`refactorgnn.ops.fused_adagrad`, likewise."""
    if not states.is_cuda or states.dtype != torch.float32 or not _has_triton():
        return None
    from refactorgnn.ops import fused_adagrad

    return fused_adagrad


@cache
def _has_triton() -> bool:
    """Not where torch was built without it."""
    return find_spec("triton") is not None


def softmax(scores: Tensor, num_real: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """``(P, logsumexp)`` of a chunk of scores.

    Args:
        scores: Shape ``(num_rows, num_columns)``; may be overwritten.
        num_real: The columns that count; of the others ``P`` is 0.
        dtype: Of the factor that ``P`` is to be multiplied with: what a kernel makes of ``P`` directly, and torch when
            it comes to it.
    """
    kernels = kernels_for(scores)
    if kernels is not None:
        P = scores if scores.dtype == dtype else torch.empty_like(scores, dtype=dtype)
        scale = torch.ones(scores.shape[0], device=scores.device)
        lse = torch.empty_like(scale)
        kernels.softmax(scores, num_real, scale, P, lse)
        return P, lse
    scores[:, num_real:].fill_(-torch.inf)
    P = torch.softmax(scores, dim=1)
    # Read off the largest probability, which is at least 1/|V| and so never underflows: no second pass of exponentials.
    return P, scores.amax(dim=1) - P.amax(dim=1).log()
