"""The training loop: epochs, validation, early stopping, checkpoints, resume; the same for every kind of model."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.errors import UserError
from refactorgnn.interrupts import heard_interrupts
from refactorgnn.models.base import LinkPredictor
from refactorgnn.models.encoder import StateEncoder
from refactorgnn.models.forgetting import OPTIMIZERS
from refactorgnn.progress import counting
from refactorgnn.provenance import provenance
from refactorgnn.runs import Run, load_optimizer_tensors, optimizer_tensors
from refactorgnn.seeds import combined_seed
from refactorgnn.storage import remove_leftovers
from refactorgnn.training.averaging import AveragedModel
from refactorgnn.training.building import build_model
from refactorgnn.training.checkpoints import Checkpoints, Progress
from refactorgnn.training.config import TrainConfig
from refactorgnn.training.loggers import RunLoggers, check_loggers
from refactorgnn.training.processes import Share, make_fabric, products_as_set
from refactorgnn.training.regimes import Regime, make_regime
from refactorgnn.training.replay import Lane, Replayed
from refactorgnn.training.validation import (
    ReplayedValidation,
    Validation,
    graph_to_validate_on,
    negatives_to_validate_against,
)

if TYPE_CHECKING:
    from lightning_fabric import Fabric


def fit(
    run: Run,
    fabric: Fabric | None = None,
    *,
    progress: bool = True,
    on_validation: Callable[[int, float], None] | None = None,
    validation_graph: KnowledgeGraph | None = None,
) -> Progress:
    """Train the run's model from where it stands until it stops improving; the best weights end up in the run.

    Args:
        run: A run made by :meth:`Run.create`, or one that was interrupted.
        fabric: The devices and processes, as the run's settings have them if not given. Every process calls this
            function; the first one writes and validates.
        progress: Show a bar.
        on_validation: Called in the first process with the epoch and the MRR of each validation, once it is recorded;
            an exception raised there ends the training of a single process, which can be resumed.
        validation_graph: Another graph whose split valid is asked about, by its facts in train, instead of the run's;
            its relations are numbered as the run's.
    """
    config = run.train_config
    check_trainable(config, run.graph)
    if config.threads:
        torch.set_num_threads(config.threads)
    training = _Training(
        run,
        fabric or make_fabric(config),
        progress=progress,
        on_validation=on_validation,
        validation_graph=validation_graph,
    )
    _train([training], progress=progress)
    return training.done


def fit_together(runs: Sequence[Run], *, progress: bool = True) -> list[Progress]:
    """Train several runs of one process side by side, as :func:`fit` would train each.

    On a GPU their small kernels share it: while it works for one, the host prepares the next. Nothing that a run learns
    depends on the others; the time is shared out among those that are still at it.

    Args:
        runs: Runs of single devices, with settings that agree on TF32.
        progress: Show a bar.
    """
    trainings = []
    for run in runs:
        check_trainable(run.train_config, run.graph)
        trainings.append(_Training(run, make_fabric(run.train_config), progress=progress))
    _train(trainings, progress=progress)
    return [training.done for training in trainings]


def _train(trainings: Sequence[_Training], *, progress: bool) -> None:
    """Train until all are exhausted, an epoch of each at a time."""
    num_epochs = sum(training.config.epochs for training in trainings)
    with counting("training", num_epochs, enabled=progress) as bar, ExitStack() as stack:
        raise_interrupt = stack.enter_context(heard_interrupts())
        stack.enter_context(products_as_set(trainings[0].config))
        for training in trainings:
            stack.enter_context(closing(training))
            bar.advance(training.done.epoch)
        active = [training for training in trainings if not training.is_exhausted]
        while active:
            for training in active:
                training.companions = len(active)
                training.start_epoch()
            for training in active:
                loss = training.end_epoch()
                bar.advance(note=f"loss {loss:.3f}, best valid MRR {max(0.0, training.done.best_mrr):.3f}")
            raise_interrupt()
            active = [training for training in active if not training.is_exhausted]
    for training in trainings:
        training.conclude()


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
        validation_graph: KnowledgeGraph | None = None,
    ) -> None:
        self.run = run
        self.on_validation = on_validation
        self.config = run.train_config
        self.validation_graph = graph_to_validate_on(self.config, validation_graph or run.graph)
        self.fabric = fabric
        self.model = build_model(self.config, run.graph).to(fabric.device)
        self.optimizer = _make_optimizer(self.model, self.config)
        self.done, tensors = _resume(run, self.model, self.optimizer, fabric)
        self.begun_at = self.done.epoch
        self.average = AveragedModel(self.model, self.config.average, tensors) if self.config.average else None
        self.loggers = RunLoggers(run, run.records()) if fabric.is_global_zero and self.config.log else None
        self.checkpoints = Checkpoints(run, self.done)
        self.lane: Lane | None = None
        self.companions = 1
        if self.config.epochs:
            self._set_up(progress)
        self.validation = self._make_validation()
        if self.config.epochs == 0 and not run.is_finished:
            self._validate({})

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
        if self.config.replay and self.regime.has_fixed_shapes and not self.config.clip:
            self.lane = Lane(fabric.device)
            self.replayed = Replayed(self._steps, self.lane)

    def _make_validation(self) -> Validation:
        model = self.model if self.average is None else self.average.model
        if self.lane is None:
            return Validation(model, self.validation_graph, negatives_to_validate_against(self.config))
        assert isinstance(model, StateEncoder)
        return ReplayedValidation(model, self.validation_graph, self.lane)

    @property
    def is_exhausted(self) -> bool:
        """Whether there is nothing left to do."""
        return self.done.is_exhausted(self.config)

    @property
    def is_validated(self) -> bool:
        """Whether the epoch that has just been run is to be validated."""
        return self.done.epoch % self.config.validate_every == 0 or self.done.epoch == self.config.epochs

    def start_epoch(self) -> None:
        """Begin an epoch, and its validation where it has one; on a GPU it goes on in the background."""
        self.started = time.perf_counter()
        self.done.epoch += 1
        with self._in_lane():
            self.sums = self._run_epoch(self.done.epoch)
            if self.average is not None:
                self.average.update(self.model)
            if self.is_validated and self.fabric.is_global_zero:
                self.validation.begin()

    def end_epoch(self) -> float:
        """Wait for the epoch, write its record and, from time to time, its state; returns the mean loss of a triple."""
        with self._in_lane():
            loss = self._mean_loss()
            record: dict[str, Any] = {"epoch": self.done.epoch, "loss": loss}
            if self.is_validated:
                self._validate(record)
            else:
                self._finish(record)
            if self.fabric.is_global_zero and (self.checkpoints.is_due or self.is_exhausted):
                tensors = {**self.model.state_dict(), **optimizer_tensors(self.optimizer)}
                if self.average is not None:
                    tensors |= self.average.tensors()
                self.checkpoints.write(tensors)
        return loss

    @contextmanager
    def _in_lane(self) -> Iterator[None]:
        if self.lane is None:
            yield
        else:
            with self.lane.entered():
                yield

    def _run_epoch(self, epoch: int) -> Tensor:
        if self.lane is None:
            return self._steps(epoch)
        torch.manual_seed(combined_seed(self.config.seed, epoch))
        return self.replayed()

    def _steps(self, epoch: int = 0) -> Tensor:
        """The steps of an epoch; returns the summed loss of the targets and their number."""
        self.regime.train()
        self.regime.begin(epoch)
        total, num_targets = torch.zeros((), device=self.fabric.device), torch.zeros((), device=self.fabric.device)
        batches = self.regime.batches(epoch) if self.lane is not None else self._seeded_batches(epoch)
        for batch in batches:
            self.step_optimizer.zero_grad()
            loss = self.step_module(partial(_itself, batch))
            if loss.requires_grad:  # rules are counted, nothing descends to them
                self._descend(loss)
            total += loss.detach() * self.regime.num_targets(batch)
            num_targets += self.regime.num_targets(batch)
        return torch.stack([total, num_targets])

    def _descend(self, loss: Tensor) -> None:
        self.fabric.backward(loss)
        if self.config.clip:
            self.fabric.clip_gradients(self.step_module, self.step_optimizer, max_norm=self.config.clip)
        self.step_optimizer.step()

    def _mean_loss(self) -> float:
        # Processes that take sub-graphs of their own have different numbers of targets.
        sums = self.fabric.all_reduce(self.sums, reduce_op="mean")
        assert isinstance(sums, Tensor)
        total, num_targets = sums.tolist()
        mean: float = total / num_targets
        if not math.isfinite(mean):
            raise UserError(
                f"the loss is not a number in epoch {self.done.epoch}: choose a smaller learning rate or init scale."
            )
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

    def _validate(self, record: dict[str, Any]) -> None:
        """Take the outcome of the validation in the first process; keep the weights if it is the best so far."""
        done = self.done
        if self.config.epochs == 0:
            self.started = time.perf_counter()
        if self.fabric.is_global_zero:
            metrics = self.validation.metrics()
            if metrics["mrr"] > done.best_mrr:
                done.best_mrr, done.best_epoch = metrics["mrr"], done.epoch
                self.checkpoints.keep_best(self.validation.model, metrics)
            record |= {f"valid_{name}": round(value, 6) for name, value in metrics.items()}
        done.best_mrr, done.best_epoch = self.fabric.broadcast((done.best_mrr, done.best_epoch))
        self._finish({"epoch": done.epoch, **record})
        if self.on_validation is not None and self.fabric.is_global_zero:
            self.on_validation(done.epoch, metrics["mrr"])

    def _finish(self, record: dict[str, Any]) -> None:
        """Write the record of an epoch."""
        self.done.seconds += (time.perf_counter() - self.started) / self.companions
        if self.fabric.is_global_zero:
            whole = {**record, "seconds": round(self.done.seconds, 3)}
            self.run.append_record(whole)
            if self.loggers is not None:
                self.loggers.log(whole)

    def conclude(self) -> None:
        """Write what the training has come to, and how; not again where all had been done before."""
        if self.fabric.is_global_zero and not (self.run.is_finished and self.done.epoch == self.begun_at):
            self.run.update_sidecar(
                best_epoch=self.done.best_epoch,
                valid_mrr=self.done.best_mrr,
                num_parameters=self.model.num_parameters,  # rules are known only now
                seconds=round(self.done.seconds, 3),
                trained_with=provenance(str(self.fabric.device)),
            )
        self.fabric.barrier()

    def close(self) -> None:
        """Write the best weights, also those of a training that was interrupted, and close the logs."""
        if self.fabric.is_global_zero:
            self.checkpoints.write_best()
        if self.loggers is not None:
            self.loggers.close()


def _itself(batch: Any) -> Any:
    return batch


def _make_optimizer(model: LinkPredictor, config: TrainConfig) -> torch.optim.Optimizer:
    options: dict[str, Any] = {"lr": config.learning_rate, "weight_decay": config.weight_decay}
    parameters = list(model.parameters()) or [nn.Parameter(torch.empty(0))]  # an optimiser must have one
    if config.optimizer == "adam" and parameters[0].is_cuda:
        # Its count of steps on the GPU, so that a step can be replayed, and a step in one kernel.
        options |= {"capturable": True, "fused": True}
    return OPTIMIZERS[config.optimizer](parameters, **options)


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
    elif run.is_finished and run.weights_path.is_file():
        # Somebody has kept no more than answers need: there is nothing to do again, and nothing to overwrite.
        model.load_state_dict(run.load_tensors(run.weights_path, model)[0])
        about = run.sidecar
        done = Progress(run.train_config.epochs, about["best_epoch"], about["valid_mrr"], about["seconds"])
        has_begun = True
    if fabric.is_global_zero:
        run.drop_records_after(done.epoch if has_begun else -1)
    fabric.barrier()
    return done, tensors
