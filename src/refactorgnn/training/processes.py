"""Devices, precision and processes: Lightning Fabric around the training.

Fabric rather than the Trainer: the cache of node states lives across steps and is cleared after ``L`` of them, an epoch
is whatever the regime says it is, and checkpoints are safetensors. Fabric leaves the loop to us and takes over what it
is good at: where to compute, in which precision, in how many processes.
"""

from __future__ import annotations

import atexit
import inspect
import logging
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch.nn.parallel import DistributedDataParallel

from refactorgnn.data.queries import QueryIndex
from refactorgnn.errors import UserError
from refactorgnn.training.config import ReFactorConfig, TrainConfig

if TYPE_CHECKING:
    from lightning_fabric import Fabric

# What Fabric and torch tell of the devices and processes they found or ended is not what a user asked to know.
for _module, _level in (
    ("lightning_fabric.utilities.distributed", logging.WARNING),
    ("lightning_fabric.utilities.rank_zero", logging.WARNING),
    ("torch.multiprocessing.spawn", logging.ERROR),
):
    logging.getLogger(_module).setLevel(_level)
# How the processes of each strategy begin: by this command again, by a fresh interpreter, by a fork.
_START_METHODS: dict[str, Any] = {"auto": "spawn", "ddp": "popen", "ddp_spawn": "spawn", "ddp_fork": "fork"}
# The interface by which the processes of one machine reach each other, by its names on Linux and macOS.
_LOOPBACKS = {"lo", "lo0"}
# Where the processes of strategy ddp find the folder for their complaints; the others are told by an argument.
_COMPLAINTS = "REFACTORGNN_COMPLAINTS"


@dataclass(frozen=True)
class Share:
    """Which part of every batch a process takes.

    Each process takes every ``world_size``-th question and divides its loss by the triples of the *whole* batch times
    ``1 / world_size``, so that the mean of the gradients over the processes, which is what DDP computes, is the
    gradient that one process alone would have.

    Args:
        rank: The number of the process.
        world_size: The number of processes.
    """

    rank: int = 0
    world_size: int = 1

    def of(self, batch: QueryIndex) -> QueryIndex:
        """The questions of ``batch`` that this process answers."""
        if self.world_size == 1:
            return batch
        rows = torch.arange(batch.num_queries, device=batch.subjects.device)
        return batch.take(rows[self.rank :: self.world_size])


def make_fabric(config: TrainConfig) -> Fabric:
    """The devices, precision and strategy that the settings ask for.

    Raises:
        UserError: if this machine does not have them.
    """
    from lightning_fabric import Fabric
    from lightning_fabric.strategies.ddp import DDPStrategy

    devices: int | str = int(config.devices) if config.devices.isdigit() else config.devices
    options: dict[str, Any] = {"accelerator": config.accelerator, "devices": devices, "precision": config.precision}
    try:
        fabric = Fabric(**options)
        if config.tf32 and fabric.device.type != "cuda":
            kind = fabric.device.type
            raise UserError(f"setting tf32 needs an NVIDIA GPU, and the training is on {kind!r}: leave it out.")
        if fabric.world_size == 1:
            return fabric
        _check_first_launch()
        strategy = DDPStrategy(start_method=_START_METHODS[config.strategy], **_ddp_options(config))
        return Fabric(**options, strategy=strategy)
    except UserError:
        raise
    except (RuntimeError, ValueError, TypeError, ImportError) as error:
        reason = str(error).splitlines()[0].rstrip(".!").replace("`", "")
        raise UserError(
            f"accelerator {config.accelerator!r} with devices {config.devices!r} cannot be used here ({reason}): "
            "choose accelerator cpu, or other devices."
        ) from error


@contextmanager
def products_as_set(config: TrainConfig) -> Iterator[None]:
    """Multiply float32 matrices as the settings ask for, and as before afterwards."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if config.tf32 else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _ddp_options(config: TrainConfig) -> dict[str, Any]:
    """Caches are the same in every process; features may have parameters that only the first layer of a cycle uses."""
    known = inspect.signature(DistributedDataParallel).parameters
    sync = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
    is_layerwise = isinstance(config, ReFactorConfig) and config.regime == "layerwise" and config.features != "random"
    return {sync: False, "find_unused_parameters": is_layerwise}


def is_helper() -> bool:
    """Whether another process of strategy ``ddp`` began this one, to take part in its training and say nothing."""
    return _COMPLAINTS in os.environ and os.environ.get("LOCAL_RANK", "0") != "0"


def _check_first_launch() -> None:
    """Refuse what could not end well: helpers of a second training would begin with the first."""
    if _COMPLAINTS in os.environ and not is_helper():
        raise UserError(
            "strategy 'ddp' begins the program again for each process, so a program can train with it once: "
            "choose ddp_spawn."
        )


def launch(fabric: Fabric, function: Callable[..., None], *arguments: Any) -> None:
    """Call ``function(fabric, *arguments)`` in every process of ``fabric``; a helper ends here.

    Raises:
        UserError: the first of any process.
    """
    if fabric.world_size == 1:
        function(fabric, *arguments)
        return
    # DDP warns that features are used in the first step after all; the processes to come inherit this.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    _stay_on_this_machine()
    if is_helper():
        _help(fabric, function, *arguments)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # a helper may complain at the last moment
        complaints = Path(folder)
        helpers = _helpers(fabric)
        if helpers is not None:
            os.environ[_COMPLAINTS] = folder
            atexit.register(_end, helpers)
        try:
            fabric.launch(_guarded, function, complaints, *arguments)  # type: ignore[arg-type]
        except Exception as error:
            _raise_first(complaints, error)
            raise


def _helpers(fabric: Fabric) -> list[subprocess.Popen[bytes]] | None:
    """The processes that this one has begun, where it is the first of them; None where all of them are begun alike.

    Only the launcher of strategy ddp has them.
    """
    return getattr(fabric.strategy.launcher, "procs", None)


def _stay_on_this_machine() -> None:
    """Let the processes talk over the loopback interface.

    Left alone, Gloo asks the network for the address of this machine's name, and waits where that leads nowhere.
    """
    for _, name in socket.if_nameindex():
        if name in _LOOPBACKS:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", name)


def _end(helpers: list[subprocess.Popen[bytes]]) -> None:
    """Let no helper outlive a first process that failed: it may wait for it in a collective operation for ever.

    Only when the first process is about to end: Fabric kills that one as soon as it misses a helper.
    """
    for helper in helpers:
        helper.kill()


def _help(fabric: Fabric, function: Callable[..., None], *arguments: Any) -> NoReturn:
    """Take part in the training of the first process, and leave the word to it.

    The exit code is 0 whatever happened there: at any other, Fabric kills the first process before it can speak.
    """
    complaints = Path(os.environ[_COMPLAINTS])
    try:
        fabric.launch(_guarded, function, complaints, *arguments)  # type: ignore[arg-type]
    except (KeyboardInterrupt, UserError):  # left for the first process, which may be gone by now
        pass
    except Exception:
        if not _is_told(complaints):
            raise
    sys.exit(0)


def _is_told(complaints: Path) -> bool:
    """Whether some process has complained; also where the first has taken the folder away, which it does at its end."""
    try:
        return any(complaints.iterdir())
    except FileNotFoundError:
        return True


def _guarded(fabric: Fabric, function: Callable[..., None], complaints: Path, *arguments: Any) -> None:
    """Leave a user's mistake where the first process finds it: an exception does not survive the end of its process.

    A process that has left one ends at once where another waits for its end: taking down what connects them is itself
    done in concert, and the others may be anywhere.
    """
    try:
        function(fabric, *arguments)
    except UserError as error:
        (complaints / str(fabric.global_rank)).write_text(str(error), encoding="utf-8")
        if _helpers(fabric) is None:
            os._exit(1)
        raise
    finally:
        torch.distributed.destroy_process_group()  # its threads must not outlive the process


def _raise_first(complaints: Path, error: Exception) -> None:
    for path in sorted(complaints.iterdir()):
        raise UserError(path.read_text(encoding="utf-8")) from error
