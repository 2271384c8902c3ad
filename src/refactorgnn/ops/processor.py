"""By which library, and in which type, a CPU multiplies matrices.

Float32 is multiplied by MKL, as torch has it, or by oneDNN where MKL holds back.

MKL gives processors that are not Intel's its AVX2 code, whatever they have. On one of AMD's with AVX-512 oneDNN, which
torch brings along, takes about half the time for the same products in float32. Torch hands float32 products to
it only where the user allows bfloat16 inside, a permission that it uses on processors with tiles for it (AMX) and
nowhere else; so the switch is set around a product on processors that a trial has shown to keep float32. Who does a
product depends on its size alone, not on what it is for: validations while training and afterwards agree to the bit.

Bfloat16, which mixed precision asks for, is multiplied as it is where the processor has instructions for it; the sums
inside are float32, the result is rounded, for torch's CPU products have no other. Elsewhere it is widened to float32.
"""

from __future__ import annotations

import os
import platform
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

import torch
from torch import Tensor

# Torch reads this when it first needs memory. Large tensors then lie in pages of 2 MB, as the kernel allows on request;
# mapping a tensor anew in pages of 4 KB takes longer than a pass over it, and a step makes many.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")

# Multiplications below which oneDNN's preparations cost more than it gains.
_LEAST_WORK = 2**20
# A product of float32 numbers errs by some 1e-7 of its terms, one of numbers rounded to bfloat16 by some 1e-3.
_MOST_ERROR = 1e-5


def product_library(left: Tensor, right: Tensor) -> AbstractContextManager[None]:
    """Where ``left @ right`` is done fastest, as a context to do it in; the result is one of float32 either way."""
    is_float32 = left.dtype == torch.float32 and left.device.type == "cpu"
    return best_library() if is_float32 and _is_large(left, right) else nullcontext()


def _is_large(left: Tensor, right: Tensor) -> bool:
    return left.shape[0] * left.shape[1] * right.shape[1] >= _LEAST_WORK


def multiplies_as_is(left: Tensor, right: Tensor, dtype: torch.dtype) -> bool:
    """Whether ``left @ right`` is done in ``dtype``: large, and with instructions for it."""
    return _is_large(left, right) and keeps_narrow(left.device, dtype)


def keeps_narrow(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether large products of this type are done in it on a CPU, and so have results of it."""
    return device.type == "cpu" and dtype == torch.bfloat16 and has_bfloat16()


@cache
def has_bfloat16() -> bool:
    """Whether the processor has instructions that multiply bfloat16."""
    flags = set((_cpu_entry("flags") or "").split())
    return torch.backends.mkldnn.is_available() and bool(flags & {"avx512_bf16", "amx_bf16"})


def best_library() -> AbstractContextManager[None]:
    """Where large products of float32 matrices on the CPU are done fastest."""
    return _ONEDNN if onednn_is_better() else nullcontext()


class _OneDNN(AbstractContextManager[None]):
    """Torch's switch, one for all threads: the first that needs it sets it, the last sets it back."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._num_inside = 0
        self._before = ""

    def __enter__(self) -> None:
        with self._lock:
            if not self._num_inside:
                switch = _switch()
                self._before, switch.fp32_precision = switch.fp32_precision, "bf16"
            self._num_inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._num_inside -= 1
            if not self._num_inside:
                _switch().fp32_precision = self._before


_ONEDNN = _OneDNN()


def _switch() -> Any:
    """Torch's settings of oneDNN's products; without the one that matters before torch 2.9."""
    return getattr(torch.backends.mkldnn, "matmul", None)


@cache
def onednn_is_better() -> bool:
    """Whether MKL holds back here, and oneDNN keeps float32."""
    has_switch = torch.backends.mkldnn.is_available() and hasattr(_switch(), "fp32_precision")
    return has_switch and torch.backends.mkl.is_available() and _mkl_holds_back() and _keeps_float32()


def _mkl_holds_back() -> bool:
    is_x86 = platform.machine().lower() in {"x86_64", "amd64"}
    has_avx512 = torch.backends.cpu.get_cpu_capability() == "AVX512"
    return is_x86 and has_avx512 and _cpu_entry("vendor_id") not in {None, "GenuineIntel"}


def _cpu_entry(name: str) -> str | None:
    """What Linux says of the processor under a name; None: nothing."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    entries = (line.partition(":") for line in lines)
    return next((value.strip() for key, _, value in entries if key.strip() == name), None)


def _keeps_float32() -> bool:
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(128, 128, generator=generator) for _ in range(2))
    with _ONEDNN:
        product = left @ right
    exact = left.double() @ right.double()
    return bool((product - exact).abs().max() <= _MOST_ERROR * (left.abs() @ right.abs()).max())
