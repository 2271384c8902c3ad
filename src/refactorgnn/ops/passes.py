"""Where Triton kernels can be used; and the softmax of a chunk of scores, one of them or torch's passes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

import torch
from torch import Tensor

HALF_PRECISION = frozenset({torch.bfloat16, torch.float16})
# Bytes of narrow scores that are widened together: few enough to stay in a core's caches, enough to be worth a call.
_WIDE_BYTES = 2**21
# log₂ e.
_LOG2_E = 1.4426950408889634
# Where a product that ends in exponentials is faster than one and a pass over its scores: so many candidates, and no
# more than so many numbers to multiply.
_WIDE_ROW = 16_384
_MOST_DEPTH = 512


def kernels_for(scores: Tensor) -> ModuleType | None:
    """:mod:`refactorgnn.ops.fused` where it can be used, which is on a GPU up to float32, or None."""
    return _kernels("fused") if scores.is_cuda and scores.dtype != torch.float64 else None


def row_kernels_for(states: Tensor) -> ModuleType | None:
    """:mod:`refactorgnn.ops.fused_rows` where it can be used, which is on a GPU in float32, or None."""
    return _kernels("fused_rows") if states.is_cuda and states.dtype == torch.float32 else None


def adagrad_kernels_for(states: Tensor) -> ModuleType | None:
    """:mod:`refactorgnn.ops.fused_adagrad`, likewise."""
    return _kernels("fused_adagrad") if states.is_cuda and states.dtype == torch.float32 else None


def aggregate_kernels_for(states: Tensor) -> ModuleType | None:
    """:mod:`refactorgnn.ops.fused_aggregates`, likewise: what is equal must not be rounded apart."""
    return _kernels("fused_aggregates") if states.is_cuda and states.dtype == torch.float32 else None


def score_kernels_for(queries: Tensor, num_rows: int, num_columns: int) -> ModuleType | None:
    """:mod:`refactorgnn.ops.fused_scores` where it pays, or None.

    It needs bfloat16, and copies of tiles that GPUs have since Hopper. It loses where scores stay in the cache, so that
    to read them again costs nothing, and where d is so large that the library's product gains more on ours than the
    exponentials cost. A row of some 15,000 candidates is as fast without it; one of 40,000, which takes so many
    registers that few rows are at work together, is not.

    Args:
        queries: Shape ``(num_queries, dim)``.
        num_rows: Of a chunk.
        num_columns: The candidates, added ones included.
    """
    dim, is_wide = queries.shape[1], num_columns >= _WIDE_ROW
    if not queries.is_cuda or queries.dtype != torch.bfloat16 or dim % 8 or dim > _MOST_DEPTH or not is_wide:
        return None
    device = torch.cuda.get_device_properties(queries.device)
    exceeds_cache = num_rows * num_columns * queries.element_size() > device.L2_cache_size
    return _kernels("fused_scores") if exceeds_cache and device.major >= 9 else None


@cache
def _kernels(name: str) -> ModuleType | None:
    """A module of kernels, or None where torch was built without Triton."""
    return import_module(f"refactorgnn.ops.{name}") if find_spec("triton") is not None else None


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


def exponentials_(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Put ``e^(S − m)`` in the place of the scores, with ``m`` the largest of a row.

    Returns:
        The sums of the rows, and ``logsumexp(S)``.
    """
    largest = scores.amax(dim=1)
    normaliser = shifted_exponentials_(scores, largest).sum(dim=1)
    return normaliser, largest + normaliser.log()


def shifted_exponentials_(scores: Tensor, shifts: Tensor) -> Tensor:
    """``e^(S − m)`` in the place of the scores, as ``2^((S − m) log₂ e)``.

    On a CPU torch has powers of two from a library of its own, those of ``e`` from MKL, which takes four times as long
    on processors that are not Intel's.

    Args:
        scores: Shape ``(num_rows, num_columns)``.
        shifts: ``m``, shape ``(num_rows,)``.
    """
    return scores.sub_(shifts[:, None]).mul_(_LOG2_E).exp2_()


def wide_blocks(scores: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Scores to be worked on in place in the type of the sums: as they are, or some rows after others widened.

    What is made of widened rows is written back, rounded, before the next ones are taken.

    Yields:
        The rows, and their scores.
    """
    if scores.dtype not in HALF_PRECISION:
        yield slice(0, scores.shape[0]), scores
        return
    num_rows = max(1, _WIDE_BYTES // (4 * scores[:1].numel())) if scores.numel() else 1
    for start in range(0, scores.shape[0], num_rows):
        rows = slice(start, min(start + num_rows, scores.shape[0]))
        wide = scores[rows].float()
        yield rows, wide
        scores[rows] = wide
