"""Products on a CPU: of float32, whoever does them, and nothing of torch's settings changed afterwards."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from refactorgnn.ops import chunked, processor

SWITCH = getattr(torch.backends.mkldnn, "matmul", None)
needs_switch = pytest.mark.skipif(not hasattr(SWITCH, "fp32_precision"), reason="torch before 2.9 has no such switch")


@pytest.fixture
def by_onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "onednn_is_better", lambda: True)


def random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


@needs_switch
@pytest.mark.skipif(not processor.onednn_is_better(), reason="MKL does not hold back on this processor")
@pytest.mark.parametrize(("rows", "width", "columns"), [(257, 63, 1001), (1, 1024, 4099), (512, 768, 131)])
def test_products_of_onednn_are_of_float32(rows: int, width: int, columns: int) -> None:
    Q, H, P = random(rows, width), random(columns, width), random(rows, columns).softmax(dim=1)
    total = random(columns, width)
    expected = total.double() + P.double().T @ Q.double()
    pairs = [
        (chunked.matmul(Q, H.T), Q.double() @ H.double().T),
        (chunked.matmul(P, H), P.double() @ H.double()),
        (chunked.add_matmul_(total.clone(), P.T, Q), expected),
    ]
    for ours, exact in pairs:
        # Rounding to bfloat16 anywhere would err by some 1e-2 of the largest number.
        assert (ours - exact).abs().max() <= 2e-6 * exact.abs().max()


@needs_switch
def test_the_switch_is_as_before_afterwards(by_onednn: None) -> None:
    before = SWITCH.fp32_precision
    left, right = random(512, 64), random(64, 512)
    with processor.product_library(left, right):
        assert SWITCH.fp32_precision == "bf16"
    with pytest.raises(RuntimeError, match="shape"):
        chunked.matmul(left, random(63, 512))
    assert SWITCH.fp32_precision == before


@needs_switch
def test_threads_and_products_inside_one_another_leave_the_switch_as_it_was(by_onednn: None) -> None:
    before = SWITCH.fp32_precision
    left, right = random(512, 64), random(64, 512)
    start = threading.Barrier(8)

    def multiply() -> None:
        start.wait()
        for _ in range(100):
            with processor.best_library():
                chunked.matmul(left, right)
                assert SWITCH.fp32_precision == "bf16"

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(multiply) for _ in range(8)]:
            done.result()
    assert SWITCH.fp32_precision == before


@needs_switch
@pytest.mark.parametrize(
    ("left", "right"),
    [
        pytest.param(random(8, 8), random(8, 8), id="small"),
        pytest.param(random(512, 64).double(), random(64, 512).double(), id="float64"),
    ],
)
def test_mkl_keeps_what_onednn_would_not_gain_on(by_onednn: None, left: torch.Tensor, right: torch.Tensor) -> None:
    before = SWITCH.fp32_precision
    with processor.product_library(left, right):
        assert SWITCH.fp32_precision == before


@needs_switch
def test_a_processor_that_rounds_is_left_to_mkl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "_mkl_holds_back", lambda: True)
    plain = torch.Tensor.__matmul__
    monkeypatch.setattr(
        torch.Tensor,
        "__matmul__",
        lambda left, right: (
            plain(left.bfloat16(), right.bfloat16()).to(left.dtype)
            if left.dtype == torch.float32 and SWITCH.fp32_precision == "bf16"
            else plain(left, right)
        ),
    )
    assert not processor.onednn_is_better.__wrapped__()


@pytest.mark.parametrize(
    ("vendor", "capability", "machine", "expected"),
    [
        ("AuthenticAMD", "AVX512", "x86_64", True),
        ("GenuineIntel", "AVX512", "x86_64", False),
        ("AuthenticAMD", "AVX2", "x86_64", False),
        (None, "AVX512", "x86_64", False),
        ("AuthenticAMD", "AVX512", "aarch64", False),
    ],
)
def test_where_mkl_holds_back(
    monkeypatch: pytest.MonkeyPatch, vendor: str | None, capability: str, machine: str, expected: bool
) -> None:
    monkeypatch.setattr(processor, "_vendor", lambda: vendor)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    monkeypatch.setattr(processor.platform, "machine", lambda: machine)
    assert processor._mkl_holds_back() is expected
