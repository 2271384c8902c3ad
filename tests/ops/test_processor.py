"""Products on a CPU: of float32, whoever does them, and nothing of torch's settings changed afterwards."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from refactorgnn.ops import SparsePattern, chunked, negative_log_likelihood, passes, processor, residual_products

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
    monkeypatch.setattr(processor, "_cpu_entry", lambda name: vendor)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    monkeypatch.setattr(processor.platform, "machine", lambda: machine)
    assert processor._mkl_holds_back() is expected


@pytest.fixture
def with_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch multiplies bfloat16 on any processor, if slowly: what is computed can be tested on all of them."""
    monkeypatch.setattr(processor, "has_bfloat16", lambda: True)
    monkeypatch.setattr(passes, "_WIDE_BYTES", 2**16)  # several blocks


@pytest.mark.parametrize(
    ("flags", "expected"),
    [("fpu avx512f avx512_bf16", True), ("amx_tile amx_bf16", True), ("fpu avx512f avx512_vnni", False), (None, False)],
)
def test_which_processors_multiply_bfloat16(monkeypatch: pytest.MonkeyPatch, flags: str | None, expected: bool) -> None:
    monkeypatch.setattr(processor, "_cpu_entry", lambda name: flags if name == "flags" else None)
    assert processor.has_bfloat16.__wrapped__() is (expected and torch.backends.mkldnn.is_available())


def test_what_linux_says_of_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "processor\t: 0\nvendor_id\t: AuthenticAMD\nflags\t\t: fpu avx512_bf16\nvmx flags\t: vnmi\n"
    monkeypatch.setattr(processor.Path, "read_text", lambda path, encoding: text)
    assert processor._cpu_entry("vendor_id") == "AuthenticAMD"
    assert processor._cpu_entry("flags") == "fpu avx512_bf16"
    assert processor._cpu_entry("bogus") is None


def test_large_products_of_bfloat16_are_done_in_it_and_small_ones_exactly(with_bfloat16: None) -> None:
    left, right = random(512, 64).bfloat16(), random(64, 128).bfloat16()
    exact = left.double() @ right.double()
    rounded = chunked.matmul(left, right)
    assert rounded.dtype == torch.float32
    assert torch.equal(rounded, rounded.bfloat16().float())
    assert (rounded - exact).abs().max() <= 2**-8 * exact.abs().max()
    total = random(512, 128)
    added = chunked.add_matmul_(total.clone(), left, right)
    torch.testing.assert_close(added, total + rounded, rtol=0, atol=0)
    small = chunked.matmul(left[:8], right)
    torch.testing.assert_close(small.double(), exact[:8], rtol=1e-5, atol=1e-5)


def wide_case() -> tuple[torch.Tensor, torch.Tensor, SparsePattern]:
    """Products large enough to be done in bfloat16, rows that are no multiple of a block, one row without facts."""
    counts = torch.arange(301) % 4
    columns = torch.randint(401, (int(counts.sum()),), generator=torch.Generator().manual_seed(0))
    return random(301, 64) / 4, random(401, 64), SparsePattern.from_counts(counts, columns, 401)


# What several chunks pull at the candidates is rounded once for each.
@pytest.mark.parametrize(("budget", "times"), [(None, 1.05), (2**18, 1.25)])
def test_the_loss_by_bfloat16_errs_no_more_than_a_plain_implementation(
    with_bfloat16: None, budget: int | None, times: float
) -> None:
    """Plain: what autocast makes of the formula. Against float64 of the same numbers."""
    queries, candidates, answers = wide_case()

    def plain(inputs: list[torch.Tensor]) -> torch.Tensor:
        scores = inputs[0] @ inputs[1].T
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
        return (scores.logsumexp(1)[answers.rows] - scores[answers.rows, answers.columns]).sum()

    def found(dtype: torch.dtype, *, ours: bool) -> list[torch.Tensor]:
        inputs = [tensor.bfloat16().to(dtype).requires_grad_() for tensor in (queries, candidates)]
        loss = negative_log_likelihood(*inputs, answers, memory_budget=budget) if ours else plain(inputs)
        return [loss.detach(), *torch.autograd.grad(loss, inputs)]

    exact = found(torch.float64, ours=False)
    others, mine = found(torch.bfloat16, ours=False), found(torch.bfloat16, ours=True)
    assert mine[0].item() == pytest.approx(exact[0].item(), rel=1e-3)
    for got, other, expected in zip(mine[1:], others[1:], exact[1:], strict=True):
        assert 0 < (got - expected).norm() <= times * (other - expected).norm()


def test_a_layer_by_bfloat16_errs_no_more_than_a_plain_implementation(with_bfloat16: None) -> None:
    queries, candidates, answers = wide_case()
    directions = [random(301), random(301, 64), random(401, 64)]

    def found(dtype: torch.dtype, impl: str) -> list[torch.Tensor]:
        inputs = [tensor.bfloat16().to(dtype).requires_grad_() for tensor in (queries, candidates)]
        outputs = residual_products(*inputs, answers, impl=impl)  # type: ignore[arg-type]
        upstream = [direction.to(output.dtype) for direction, output in zip(directions, outputs, strict=True)]
        return [tensor.detach() for tensor in (*outputs, *torch.autograd.grad(outputs, inputs, upstream))]

    exact = found(torch.float64, "reference")
    plain, ours = found(torch.bfloat16, "reference"), found(torch.bfloat16, "chunked")
    for got, other, expected in zip(ours, plain, exact, strict=True):
        assert 0 < (got - expected).norm() <= 1.05 * (other - expected).norm()


def test_large_pages_are_asked_for() -> None:
    assert os.environ["THP_MEM_ALLOC_ENABLE"] in {"0", "1"}  # the user's word counts
