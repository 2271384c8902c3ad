"""The floor does the products it names, no more; and what it is a floor of cannot do with fewer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from refactorgnn.bench.cases import Case, Precision
from refactorgnn.bench.contests import make_contest
from refactorgnn.bench.floors import (
    Floor,
    Products,
    layer_and_backward_products,
    layer_products,
    padded,
    score_products,
)

CPU = torch.device("cpu")


class Counter(TorchDispatchMode):
    """Counts the multiplications of matrix products, whatever calls them."""

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name in ("mm", "addmm", "addmm_"):
            left, right = args[-2:]
            self.total += left.shape[0] * left.shape[1] * right.shape[1]
        assert "bmm" not in name
        return func(*args, **(kwargs or {}))


def multiplications(run: Callable[[], Any]) -> int:
    with Counter() as counter:
        run()
    return counter.total


def test_sizes_are_padded_to_multiples_of_eight() -> None:
    assert [padded(size) for size in (1, 7, 8, 9, 14541)] == [8, 8, 8, 16, 14544]


@pytest.mark.parametrize("precision", ["32", "bf16"])
@pytest.mark.parametrize(
    ("products", "count"),
    [
        (layer_products(21, 13, 9), 3),
        (layer_and_backward_products(21, 13, 9), 10),
        (layer_and_backward_products(21, 13, 9, states_learn=False), 8),
        (score_products(21, 13, 9), 1),
    ],
)
def test_the_floor_multiplies_what_it_says(products: Products, count: int, precision: Precision) -> None:
    floor = Floor([products], CPU, precision, memory_budget=5 * 16 * 4, times=2)
    assert floor.rows == (5 if precision == "32" else 10)  # 16 scores a row fit the memory as often as that
    assert multiplications(floor) == floor.multiplications == 2 * count * 21 * 16 * 16


def test_products_of_several_sizes() -> None:
    floor = Floor([layer_products(21, 13, 9), score_products(34, 13, 9)], CPU, "32", memory_budget=2**20)
    assert multiplications(floor) == (3 * 21 + 34) * 16 * 16


@pytest.mark.parametrize(("row", "layers"), [("layer", 1), ("layer-backward", 1), ("step", 3), ("evaluation", 1)])
def test_ours_cannot_do_with_less(row: str, layers: int) -> None:
    """Sizes are multiples of 8, so that padding adds nothing.

    Features are drawn between two steps, so the facts that a step holds out are others than those of the floor.
    """
    contest = make_contest(Case(row, "synthetic-64-3-240", 16, layers=layers))
    contest.subject.run()
    counted = multiplications(contest.subject.run)
    least = 0.98 if row == "step" else 1.0
    assert least * contest.floor.multiplications <= counted <= 1.02 * contest.floor.multiplications


def test_a_layer_and_its_backward_pass_are_ten_products() -> None:
    contest = make_contest(Case("layer-backward", "synthetic-64-3-240", 16))
    assert multiplications(contest.subject.run) == 10 * contest.sizes["num_queries"] * 64 * 16
