"""AdaGrad's step in a kernel is the one composed of torch's operations, and so are its derivatives."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from refactorgnn.layers import ReFactorConv
from refactorgnn.ops import passes

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
pytest.importorskip("triton", reason="Triton is not installed")

from refactorgnn.ops import fused_adagrad  # noqa: E402


@pytest.mark.parametrize("sums_are_used", [True, False])
@pytest.mark.parametrize("has_sums", [True, False])
def test_a_step_and_its_derivatives(has_sums: bool, sums_are_used: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against float64 without the kernel; with gradients of 0, where nothing moves and nothing is to be learned."""
    monkeypatch.setattr(
        passes, "adagrad_kernels_for", lambda states: fused_adagrad if states.dtype == torch.float32 else None
    )
    generator = torch.Generator().manual_seed(0)
    given = [torch.randn(70, 23, generator=generator) for _ in range(5)]
    given[1][:3] = 0
    given[2] = given[2].square()
    given[2][:2] = 0
    conv = ReFactorConv(23, 2, alpha=0.3, optimizer="adagrad", epsilon=1e-3)

    def found(dtype: torch.dtype) -> list[Tensor]:
        x, gradient, sums, *directions = (tensor.to(DEVICE, dtype).requires_grad_() for tensor in given)
        moved, kept = conv.move(x, gradient, sums if has_sums else None)
        assert kept is not None
        outputs = (moved, kept) if sums_are_used else (moved,)
        inputs = (x, gradient, sums) if has_sums else (x, gradient)
        upstream = [direction.detach() for direction in directions[: len(outputs)]]
        return [moved, kept, *torch.autograd.grad(outputs, inputs, upstream)]

    for got, expected in zip(found(torch.float32), found(torch.float64), strict=True):
        torch.testing.assert_close(got.double(), expected, rtol=2e-5, atol=1e-5)
