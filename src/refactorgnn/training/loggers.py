"""Logs beside a run's ``metrics.jsonl``, for the tools that read them: CSV and TensorBoard, as Fabric writes them."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from refactorgnn.errors import UserError
from refactorgnn.runs import Run
from refactorgnn.training.config import TrainConfig, logger_names

if TYPE_CHECKING:
    from lightning_fabric.loggers.logger import Logger


def check_loggers(config: TrainConfig) -> None:
    """Refuse a log that cannot be written here."""
    if "tensorboard" in logger_names(config.log) and not (find_spec("tensorboard") or find_spec("tensorboardX")):
        raise UserError(
            "log 'tensorboard' needs a package that is missing here: pip install 'refactorgnn[tensorboard]'."
        )


class RunLoggers:
    """The logs of a run, in ``RUN/logs``.

    A resumed run takes up where the records of ``metrics.jsonl`` end: the CSV file is written anew from them, and
    TensorBoard is told to drop what came after.

    Args:
        run: The run.
        records: The records it has so far.
    """

    def __init__(self, run: Run, records: Sequence[dict[str, Any]]) -> None:
        from lightning_fabric.loggers.csv_logs import CSVLogger
        from lightning_fabric.loggers.tensorboard import TensorBoardLogger

        self._loggers: list[Logger] = []
        last = records[-1]["epoch"] if records else 0
        for name in logger_names(run.train_config.log):
            if name == "csv":
                (run.path / "logs" / "csv" / "metrics.csv").unlink(missing_ok=True)
                csv = CSVLogger(run.path, name="logs", version="csv", flush_logs_every_n_steps=1)
                for record in records:
                    _log(csv, record)
                self._loggers.append(csv)
            else:
                self._loggers.append(
                    TensorBoardLogger(run.path, name="logs", version="tensorboard", purge_step=last + 1)
                )

    def log(self, record: dict[str, Any]) -> None:
        """Add one epoch."""
        for logger in self._loggers:
            _log(logger, record)

    def close(self) -> None:
        """Write what is still held back."""
        for logger in self._loggers:
            logger.finalize("success")


def _log(logger: Logger, record: dict[str, Any]) -> None:
    logger.log_metrics({name: value for name, value in record.items() if name != "epoch"}, step=record["epoch"])
