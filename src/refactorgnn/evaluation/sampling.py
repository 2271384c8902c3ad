"""Drawing negatives: without replacement, avoiding known answers, for many questions at once."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from refactorgnn.ops.sparse import SparsePattern


def draw_without(excluded: SparsePattern, count: int, rng: np.random.Generator) -> Tensor:
    """For each row, ``count`` distinct columns uniform among those not excluded; shape ``(num_rows, count)``.

    Where fewer than ``count`` columns are allowed, all of them come, followed by −1. Floyd's algorithm, run for all
    rows at once: it needs ``count`` random numbers a row, whatever the number of columns, and they are consumed row by
    row, so the draw does not depend on how the rows are batched.

    Args:
        excluded: The columns that may not be drawn, sorted and distinct within each row.
        count: How many to draw.
        rng: Where the randomness comes from.
    """
    uniform = torch.from_numpy(rng.random((excluded.num_rows, count)))
    allowed = excluded.num_columns - excluded.counts
    ordinals = torch.full((excluded.num_rows, count), -1, dtype=torch.int64)
    for step in range(count):
        # Floyd: at the step that may reach ordinal `top`, take a random one up to it, or `top` if that is taken.
        top = allowed - torch.clamp(allowed, max=count) + step
        pick = (uniform[:, step] * (top + 1)).long().clamp_(max=top)
        taken = (ordinals[:, :step] == pick[:, None]).any(dim=1)
        pick = torch.where(taken, top, pick)
        ordinals[:, step] = torch.where(step < allowed, pick, -1)
    return _allowed_columns(excluded, ordinals)


def _allowed_columns(excluded: SparsePattern, ordinals: Tensor) -> Tensor:
    """The column that is the ``ordinals[i, j]``-th allowed one of row ``i``; −1 stays −1.

    With the excluded columns ``e_0 < e_1 < …`` of a row, ``e_k − k`` allowed columns come before ``e_k``; so the n-th
    allowed column is ``n`` plus the number of ``k`` with ``e_k − k ≤ n``, found for all rows by one binary search.
    """
    span = excluded.num_columns + 1
    place_in_row = torch.arange(excluded.num_edges) - excluded.offsets[:-1][excluded.rows]
    keys = excluded.rows * span + (excluded.columns - place_in_row)
    asked = torch.arange(excluded.num_rows)[:, None] * span + ordinals.clamp(min=0)
    skipped = torch.searchsorted(keys, asked, right=True) - excluded.offsets[:-1, None]
    return torch.where(ordinals >= 0, ordinals + skipped, -1)
