"""Counting, row by row, how many scores beat a threshold: the inner loop of ranking."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

# A byte lane of a machine word overflows after 255 additions.
_MOST_WORDS = 255


class ThresholdCounter:
    """Counts, for each row of a score matrix, the entries greater than a threshold, and those equal to it.

    On CPU, torch's comparison and its sum over booleans cost as much as the matrix product that made the scores. NumPy
    compares several times faster into a byte mask, and the mask is summed eight bytes at a time as 64-bit words whose
    byte lanes do not overflow: together a small part of the product. The mask is kept between calls.

    Args:
        num_columns: The number of columns of the score matrices to come.
    """

    def __init__(self, num_columns: int) -> None:
        self.num_columns = num_columns
        words = -(-num_columns // 8)
        self._blocks = max(1, -(-words // _MOST_WORDS))
        self._words_per_block = max(1, -(-words // self._blocks))
        self._mask: npt.NDArray[np.bool_] = np.zeros((0, 0), dtype=bool)

    def __call__(self, scores: Tensor, thresholds: Tensor) -> tuple[Tensor, Tensor]:
        """``((scores > thresholds).sum(1), (scores == thresholds).sum(1))``.

        Args:
            scores: Shape ``(num_rows, num_columns)``.
            thresholds: Shape ``(num_rows,)``.
        """
        if scores.device.type != "cpu":
            greater = (scores > thresholds[:, None]).sum(1)
            return greater, (scores == thresholds[:, None]).sum(1)
        values, column = scores.numpy(), thresholds[:, None].numpy()
        greater = self._count(np.greater, values, column)
        return greater, self._count(np.greater_equal, values, column) - greater

    def _count(self, compare: np.ufunc, values: npt.NDArray[np.float32], column: npt.NDArray[np.float32]) -> Tensor:
        mask = self._mask_of(len(values))
        compare(values, column, out=mask[:, : self.num_columns])  # the padding stays False
        lanes = mask.view(np.int64).reshape(len(values), self._blocks, self._words_per_block).sum(axis=2)
        bytes_of_lanes = lanes.view(np.uint8).reshape(len(values), -1)
        return torch.from_numpy(bytes_of_lanes.sum(axis=1, dtype=np.int64))

    def _mask_of(self, num_rows: int) -> npt.NDArray[np.bool_]:
        if len(self._mask) < num_rows:
            self._mask = np.zeros((num_rows, self._blocks * self._words_per_block * 8), dtype=bool)
        return self._mask[:num_rows]
