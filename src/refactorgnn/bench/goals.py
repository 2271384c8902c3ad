"""The speed that was promised, and whether the records have it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from refactorgnn.bench.records import BenchRecord
from refactorgnn.bench.rivals import PUBLISHED

Quantity = Literal["ratio", "seconds", "peak_gb", "published_over_ours"]
_WORDS: dict[Quantity, str] = {
    "ratio": "time / floor",
    "seconds": "seconds",
    "peak_gb": "GB above inputs and outputs",
    "published_over_ours": "published formulation / ours",
}


@dataclass(frozen=True)
class Goal:
    """A bound on a figure.

    Args:
        row: The row of the benchmark.
        dataset: On what.
        dim: ``d``.
        machine: A word in the name of the machine; empty: any processor.
        precision: Of the products; empty: the best there is.
        quantity: The figure.
        bound: It may be this much at most, or, for how much faster than another, at least.
    """

    row: str
    dataset: str
    dim: int
    machine: str
    precision: str
    quantity: Quantity
    bound: float

    @property
    def is_least(self) -> bool:
        """Whether the figure must be above the bound."""
        return self.quantity == "published_over_ours"

    @property
    def text(self) -> str:
        """The goal in words."""
        return f"{_WORDS[self.quantity]} {'≥' if self.is_least else '≤'} {self.bound:g}"

    @property
    def where(self) -> str:
        """The machine in words."""
        place = self.machine or "CPU, 1 thread"
        return f"{place}, {self.precision}" if self.precision else place

    def value(self, records: Iterable[BenchRecord]) -> float | None:
        """The best figure there is; None if there is none."""
        figures = [figure for record in records if self._is_about(record) and (figure := self._figure(record))]
        return (max if self.is_least else min)(figures, default=None)

    def is_met(self, value: float) -> bool:
        """Whether a figure reaches the goal."""
        return value >= self.bound if self.is_least else value <= self.bound

    def _is_about(self, record: BenchRecord) -> bool:
        case = record.of
        on_machine = self.machine in record.machine if self.machine else (case.device, case.threads) == ("cpu", 1)
        same = (case.row, case.dataset, case.dim) == (self.row, self.dataset, self.dim)
        return same and on_machine and case.precision == (self.precision or case.precision)

    def _figure(self, record: BenchRecord) -> float | None:
        if self.quantity == "published_over_ours":
            theirs = record.rival_seconds(PUBLISHED)
            return None if theirs is None else theirs / record.subject_seconds
        figures = {"ratio": record.ratio, "seconds": record.subject_seconds, "peak_gb": record.peak_bytes / 1e9}
        return figures[self.quantity]


GOALS = (
    Goal("layer", "FB15k-237", 768, "H200", "bf16", "ratio", 1.5),
    Goal("layer", "FB15k-237", 256, "H200", "bf16", "ratio", 1.8),
    Goal("layer", "FB15k-237", 768, "H200", "bf16", "peak_gb", 1.0),
    Goal("layer", "FB15k-237", 256, "H200", "bf16", "peak_gb", 1.0),
    Goal("layer-backward", "FB15k-237", 768, "H200", "bf16", "ratio", 1.6),
    Goal("layer-backward", "FB15k-237", 256, "H200", "bf16", "ratio", 1.6),
    Goal("layer-backward", "FB15k-237", 768, "H200", "bf16", "peak_gb", 1.0),
    Goal("layer-backward", "FB15k-237", 256, "H200", "bf16", "peak_gb", 1.0),
    Goal("layer", "WN18RR", 768, "H200", "bf16", "ratio", 1.5),
    Goal("layer", "WN18RR", 256, "H200", "bf16", "ratio", 1.5),
    Goal("training", "fb237_v1", 384, "H200", "", "seconds", 1.0),
    Goal("training-together", "fb237_v1", 384, "H200", "", "seconds", 4.0),
    Goal("layer", "CoDEx-S", 256, "", "32", "ratio", 1.3),
    Goal("layer", "CoDEx-S", 256, "", "32", "published_over_ours", 4.0),
    Goal("layer", "FB15k-237", 256, "", "32", "peak_gb", 1.0),
)
