"""The training loop: epochs, validation, early stopping, checkpoints, resume; the same for every kind of model."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.errors import UserError
from refactorgnn.evaluation.protocols import evaluate_ranking
from refactorgnn.models.base import LinkPredictor
from refactorgnn.models.forgetting import OPTIMIZERS
from refactorgnn.progress import counting
from refactorgnn.provenance import provenance
from refactorgnn.runs import Run, load_optimizer_tensors, optimizer_tensors
from refactorgnn.seeds import combined_seed
from refactorgnn.storage import remove_leftovers
from refactorgnn.training.averaging import AveragedModel
from refactorgnn.training.building import build_model
from refactorgnn.training.config import TrainConfig
from refactorgnn.training.loggers import RunLoggers, check_loggers
from refactorgnn.training.processes import Share, make_fabric
from refactorgnn.training.regimes import Regime, make_regime

if TYPE_CHECKING:
    from lightning_fabric import Fabric


@dataclass
class Progress:
    """How far a training has come.

    Args:
        epoch: Epochs done.
        best_epoch: The epoch with the best validation MRR.
        best_mrr: That MRR.
        seconds: Time spent so far, validation included.
    """

    epoch: int = 0
    best_epoch: int = 0
    best_mrr: float = -1.0
    seconds: float = 0.0

    def is_exhausted(self, config: TrainConfig) -> bool:
        """Whether the epochs are used up or the patience is."""
        waited = (self.epoch - self.best_epoch) // config.validate_every
        return self.epoch >= config.epochs or (self.best_epoch > 0 and waited >= config.patience)


def fit(
    run: Run,
    fabric: Fabric | None = None,
    *,
    progress: bool = True,
    on_validation: Callable[[int, float], None] | None = None,
) -> Progress:
    """Train the run's model from where it stands until it stops improving; the best weights end up in the run.

    Args:
        run: A run made by :meth:`Run.create`, or one that was interrupted.
        fabric: The devices and processes, as the run's settings have them if not given. Every process calls this
            function; the first one writes and validates.
        progress: Show a bar.
        on_validation: Called in the first process with the epoch and the MRR of each validation, once it is recorded;
            an exception raised there ends the training of a single process, which can be resumed.
    """
    config = run.train_config
    check_trainable(config, run.graph)
    if config.threads:
        torch.set_num_threads(config.threads)
    training = _Training(run, fabric or make_fabric(config), progress=progress, on_validation=on_validation)
    done = training.done
    with counting("training", config.epochs, enabled=progress) as bar, closing(training):
        bar.advance(done.epoch)
        if config.epochs == 0:
            training.validate({})
        while not done.is_exhausted(config):
            loss = training.next_epoch()
            bar.advance(note=f"loss {loss:.3f}, best valid MRR {max(0.0, done.best_mrr):.3f}")
    if training.fabric.is_global_zero:
        run.update_sidecar(
            best_epoch=done.best_epoch,
            valid_mrr=done.best_mrr,
            seconds=round(done.seconds, 3),
            trained_with=provenance(str(training.fabric.device)),
        )
    training.fabric.barrier()
    return done


def check_trainable(config: TrainConfig, graph: KnowledgeGraph) -> None:
    """Refuse, before anything is written, what :func:`fit` could not begin."""
    check_loggers(config)
    if not len(graph.splits.get("valid", ())):
        raise UserError(
            f"graph {graph.name!r} has no validation triples, by which the best weights are chosen: "
            "add a valid file to its folder, or more triples to a file that is to be split."
        )


class _Step(nn.Module):
    """A regime as Fabric sees it: batches come in a function, for Fabric converts whatever it can look into."""

    def __init__(self, regime: Regime[Any]) -> None:
        super().__init__()
        self.regime = regime

    def forward(self, batch: Callable[[], Any]) -> Tensor:
        loss: Tensor = self.regime(batch())
        return loss


class _Training:
    """One process of a training: the model, its optimiser, and how far they have come."""

    def __init__(
        self,
        run: Run,
        fabric: Fabric,
        *,
        progress: bool,
        on_validation: Callable[[int, float], None] | None = None,
    ) -> None:
        self.run = run
        self.on_validation = on_validation
        self.config = run.train_config
        self.fabric = fabric
        self.model = build_model(self.config, run.graph).to(fabric.device)
        self.optimizer = _make_optimizer(self.model, self.config)
        self.done, tensors = _resume(run, self.model, self.optimizer, fabric)
        self.average = AveragedModel(self.model, self.config.average, tensors) if self.config.average else None
        self.loggers = RunLoggers(run, run.records()) if fabric.is_global_zero and self.config.log else None
        if self.config.epochs:
            self._set_up(progress)

    def _set_up(self, progress: bool) -> None:
        """Get ready for epochs."""
        fabric, share = self.fabric, Share(self.fabric.global_rank, self.fabric.world_size)
        self.regime: Regime[Any] = make_regime(
            self.model, self.config, self.run.graph, fabric.device, share, self.run.path
        )
        if fabric.is_global_zero:
            self.regime.prepare(progress=progress)
        fabric.barrier()
        self.step_module, self.step_optimizer = fabric.setup(_Step(self.regime), self.optimizer)

    def next_epoch(self) -> float:
        """One epoch, its record, and its state on disk; returns the mean loss of a triple."""
        started = time.perf_counter()
        loss = self._run_epoch(self.done.epoch + 1)
        self.done.epoch += 1
        if self.average is not None:
            self.average.update(self.model)
        record: dict[str, Any] = {"epoch": self.done.epoch, "loss": loss}
        if self.done.epoch % self.config.validate_every == 0 or self.done.epoch == self.config.epochs:
            self.validate(record, started)
        else:
            self._finish(record, started)
        if self.fabric.is_global_zero:
            tensors = {**self.model.state_dict(), **optimizer_tensors(self.optimizer)}
            if self.average is not None:
                tensors |= self.average.tensors()
            self.run.save_tensors(self.run.last_path, tensors, **vars(self.done))
        return loss

    def _run_epoch(self, epoch: int) -> float:
        self.regime.train()
        self.regime.begin(epoch)
        total, num_targets = torch.zeros((), device=self.fabric.device), 0
        for batch in self._seeded_batches(epoch):
            self.step_optimizer.zero_grad()
            loss = self.step_module(partial(_itself, batch))
            self.fabric.backward(loss)
            if self.config.clip:
                self.fabric.clip_gradients(self.step_module, self.step_optimizer, max_norm=self.config.clip)
            self.step_optimizer.step()
            total += loss.detach() * self.regime.num_targets(batch)
            num_targets += self.regime.num_targets(batch)
        # Processes that take sub-graphs of their own have different numbers of targets.
        sums = self.fabric.all_reduce(torch.stack([total, total.new_tensor(num_targets)]), reduce_op="mean")
        mean = float(sums[0]) / float(sums[1])
        if not math.isfinite(mean):
            raise UserError(f"the loss is not a number in epoch {epoch}: choose a smaller learning rate or init scale.")
        return mean

    def _seeded_batches(self, epoch: int) -> Iterator[Any]:
        """The batches of an epoch, each with a seed of its own.

        Dropout draws for a process's share of a batch, and shares differ in size: with one seed for the whole epoch the
        processes would not agree on the next batch.
        """
        seed = combined_seed(self.config.seed, epoch)
        torch.manual_seed(seed)
        for number, batch in enumerate(self.regime.batches(epoch), start=1):
            yield batch
            torch.manual_seed(combined_seed(seed, number))

    def validate(self, record: dict[str, Any], started: float | None = None) -> None:
        """Measure the validation MRR in the first process; keep the weights if it is the best so far."""
        started = started or time.perf_counter()
        done, graph = self.done, self.run.graph
        if self.fabric.is_global_zero:
            model = (self.model if self.average is None else self.average.model).eval()
            metrics = evaluate_ranking(model.bind(graph), graph, "valid", confidence=False).metrics
            if metrics["mrr"] > done.best_mrr:
                done.best_mrr, done.best_epoch = metrics["mrr"], done.epoch
                self.run.save_tensors(self.run.weights_path, model.state_dict(), epoch=done.epoch, valid=metrics)
            record |= {f"valid_{name}": round(value, 6) for name, value in metrics.items()}
        done.best_mrr, done.best_epoch = self.fabric.broadcast((done.best_mrr, done.best_epoch))
        self._finish({"epoch": done.epoch, **record}, started)
        if self.on_validation is not None and self.fabric.is_global_zero:
            self.on_validation(done.epoch, metrics["mrr"])

    def _finish(self, record: dict[str, Any], started: float) -> None:
        """Write the record of an epoch."""
        self.done.seconds += time.perf_counter() - started
        if self.fabric.is_global_zero:
            whole = {**record, "seconds": round(self.done.seconds, 3)}
            self.run.append_record(whole)
            if self.loggers is not None:
                self.loggers.log(whole)

    def close(self) -> None:
        """Close the logs."""
        if self.loggers is not None:
            self.loggers.close()


def _itself(batch: Any) -> Any:
    return batch


def _make_optimizer(model: LinkPredictor, config: TrainConfig) -> torch.optim.Optimizer:
    options = {"lr": config.learning_rate, "weight_decay": config.weight_decay}
    return OPTIMIZERS[config.optimizer](model.parameters(), **options)  # type: ignore[arg-type]


def _resume(
    run: Run, model: LinkPredictor, optimizer: torch.optim.Optimizer, fabric: Fabric
) -> tuple[Progress, dict[str, Tensor]]:
    """Put back the state of an interrupted training, and forget what was recorded after it."""
    tensors: dict[str, Tensor] = {}
    if fabric.is_global_zero:
        remove_leftovers(run.path)
    done, has_begun = Progress(), run.last_path.is_file()
    if has_begun:
        tensors, about = run.load_tensors(run.last_path, model)
        model.load_state_dict({name: tensors[name] for name in model.state_dict()})
        load_optimizer_tensors(optimizer, tensors)
        done = Progress(**about)
    if fabric.is_global_zero:
        run.drop_records_after(done.epoch if has_begun else -1)
    fabric.barrier()
    return done, tensors
