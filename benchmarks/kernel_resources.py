"""What each Triton kernel takes of an H200, compiled for it on any machine: no GPU is needed, and none is used.

    python benchmarks/kernel_resources.py

The functions that launch the kernels are called with tensors of shapes that trainings have, and every launch is
compiled instead, by Triton and the assembler that it brings, down to the instructions of the processor. The types, the
sizes that are constants and the divisors that are known are those of a real launch, so that what cannot be compiled
fails here as it would there. Of each kernel the largest use over its launches is shown: registers and bytes of stack
(what does not fit in registers) of a thread, shared memory of a program. What a kernel computes is for the tests to
say, how fast it is for ``refactorgnn bench``.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

# Triton reads these when it is imported. The second is what versions up to 3.9 do without being told.
os.environ |= {"TRITON_INTERPRET": "0", "TRITON_DEFAULT_FP_FUSION": "1"}

import torch
import triton
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import JITFunction

from records import begin, goal, parser, write_record
from refactorgnn.ops import fused, fused_adagrad, fused_aggregates, fused_rows, fused_scores
from refactorgnn.ops.edges import TypedEdges
from refactorgnn.ops.residual import Facts
from refactorgnn.ops.sparse import SparsePattern

H200 = GPUTarget("cuda", 90, 32)
MODULES = (fused, fused_adagrad, fused_aggregates, fused_rows, fused_scores)
# fb237_v1, FB15k-237 and WN18RR, whose rows are kept in one block, in several, and read twice; and an odd number.
NUM_REAL = (1_594, 14_541, 40_943, 131)
DIMS = (64, 768, 1_000)
# What the product that ends in exponentials is used for.
SCORE_SHAPES = ((40_943, 64), (40_943, 256), (40_943, 512), (999_999, 256))
# Of one program, in bytes; more cannot be launched.
MOST_SHARED = 227 * 1024
FLOATS = (torch.float32, torch.bfloat16)
ROWS = 16


class Resources(dict[str, dict[str, int]]):
    """The largest use of each kernel, by its name, and how often it was compiled for other types or sizes."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: set[str] = set()

    def add(self, name: str, kernel: Any) -> None:
        """Count a kernel that was compiled, once."""
        if kernel.hash in self._seen:
            return
        self._seen.add(kernel.hash)
        found = {**used_by(kernel.asm["cubin"]), "shared_bytes": kernel.metadata.shared}
        most = self.setdefault(name, {"variants": 0, **dict.fromkeys(found, 0)})
        most["variants"] += 1
        for key, value in found.items():
            most[key] = max(most[key], value)


def used_by(cubin: bytes) -> dict[str, int]:
    """Registers and bytes of stack of a thread, as the disassembler tells."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [knobs.nvidia.cuobjdump.path, "--dump-resource-usage", file.name]
        told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    numbers = {key: int(re.search(rf"\b{key}:(\d+)", told)[1]) for key in ("REG", "STACK", "LOCAL")}  # type: ignore[index]
    return {"registers": numbers["REG"], "stack_bytes": numbers["STACK"] + numbers["LOCAL"]}


def compile_instead_of_launching(resources: Resources) -> None:
    """From now on, a launch is compiled for an H200 and goes no further."""
    driver = SimpleNamespace(
        get_current_target=lambda: H200, get_current_device=lambda: 0, get_current_stream=lambda device: 0
    )
    triton.runtime.driver.set_active(driver)

    def launcher(self: Any, grid: object) -> Callable[..., None]:
        def compiled(*args: object, **options: object) -> None:
            resources.add(name_of(self), self.run(*args, grid=grid, warmup=True, **options))

        return compiled

    JITFunction.__getitem__ = launcher


def launch_passes(num_real: int) -> None:
    """Softmax and its derivative, in place and into another type; the shares of targets."""
    numbers, rows = torch.zeros(ROWS), torch.arange(ROWS)
    for dtype in FLOATS:
        for kept in {torch.float32, dtype}:
            pair = torch.zeros(ROWS, 2, num_real + -num_real % 8, dtype=kept)
            out = pair if kept == dtype else pair.to(dtype)
            fused.softmax(pair[:, 0], num_real, numbers, out[:, 0], numbers)
            fused.score_gradients(*pair.unbind(1), numbers, numbers, numbers, num_real, (out[:, 0], out[:, 1]))
    for weights in (None, numbers):
        fused.target_shares(numbers, numbers, rows, weights, torch.zeros(1))


def launch_rows(dim: int) -> None:
    """DistMult's queries and messages, forward and backward."""
    states, psi = torch.zeros(100, dim), torch.zeros(10, dim)
    factors = fused_rows.Factors(
        states, psi, torch.zeros(ROWS, dtype=torch.int64), torch.zeros(ROWS, dtype=torch.int64)
    )
    for dtype in FLOATS:
        of_queries = torch.zeros(ROWS, dim, dtype=dtype)
        fused_rows.scale(of_queries, torch.zeros(ROWS), of_queries)
        fused_rows.queries(factors, dtype)
        fused_rows.add_messages(factors, of_queries, states)
        fused_rows.operands(factors, states, dtype)
        for messages in (None, (of_queries, states)):
            for grad_states in (None, states):
                fused_rows.add_derivatives(factors, of_queries, messages, grad_states, psi)


def launch_adagrad() -> None:
    """A step and its derivatives, with sums and without."""
    states = torch.zeros(100, 256)
    for sums in (None, states):
        fused_adagrad.step(states, states, sums, 0.1, 1e-10)
        fused_adagrad.derivatives(states, states, states, sums, 0.1, 1e-10)


def launch_aggregates(num_questions: int) -> None:
    """NBFNet's aggregates, relations being those of a question or the same for all."""
    edges = TypedEdges.sort(*torch.zeros(3, 20, dtype=torch.int64), num_nodes=9, num_types=3)
    states = torch.zeros(9, num_questions, 32)
    for relations in (torch.zeros(3, num_questions, 32), torch.zeros(3, 1, 32)):
        out = fused_aggregates.aggregate(states, states, relations, edges)
        fused_aggregates.gradients(states, states, relations, out, out, edges)


def launch_scores(num_real: int, dim: int) -> None:
    """The product that ends in exponentials, and the answers that are added to what is made of it."""
    num_columns = num_real + -num_real % 8
    queries, keys = (torch.zeros(size, dim, dtype=torch.bfloat16) for size in (ROWS, num_columns))
    shift = fused_scores.shifts(queries, keys, num_real)
    rows = fused_scores.Rows(shift, *(torch.zeros(ROWS) for _ in range(3)))
    fused_scores.exponentials(queries, keys, num_real, rows, out=torch.zeros(ROWS, num_columns, dtype=torch.bfloat16))
    answers = SparsePattern.from_counts(torch.ones(ROWS, dtype=torch.int64), torch.arange(ROWS), num_columns)
    facts = Facts.of(answers, None, queries)
    wanted, pulled = torch.zeros(ROWS, dim), torch.zeros(num_columns, dim)
    fused_scores.add_answers(facts, queries, keys, wanted=wanted, pulled=pulled)


def name_of(kernel: Any) -> str:
    """The module and the function."""
    return f"{kernel.__module__.rpartition('.')[2]}.{kernel.__name__}"


def kernel_names() -> set[str]:
    """All kernels that the modules launch; helpers that kernels call have other names."""
    found = (value for module in MODULES for value in vars(module).values() if isinstance(value, JITFunction))
    return {name_of(value) for value in found if value.__name__.endswith("_kernel")}


def measure() -> Resources:
    """Compile every kernel for every kind of launch."""
    resources = Resources()
    compile_instead_of_launching(resources)
    for num_real in NUM_REAL:
        launch_passes(num_real)
    for dim in DIMS:
        launch_rows(dim)
    launch_adagrad()
    for shape in SCORE_SHAPES:
        launch_scores(*shape)
    for num_questions in (1, 20, 64):
        launch_aggregates(num_questions)
    missing = kernel_names() - set(resources)
    if missing:
        raise SystemExit(f"No launch was compiled of {', '.join(sorted(missing))}: add one to this file.")
    return resources


def main() -> None:
    """Compile, and write the record."""
    given = parser("Compile all Triton kernels for an H200, on any machine.", "kernel_resources").parse_args()
    origin = begin(given.threads, ("triton",))
    kernels = dict(sorted(measure().items()))
    shared = max(most["shared_bytes"] for most in kernels.values())
    goals = [goal(shared, "<=", MOST_SHARED, "bytes of shared memory of a program")]
    body = {"target": f"sm_{H200.arch}", "kernels": kernels, "goals": goals}
    write_record("kernel_resources", body, origin, given.out)


if __name__ == "__main__":
    main()
