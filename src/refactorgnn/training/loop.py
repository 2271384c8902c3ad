"""The training loop: epochs, validation, early stopping, checkpoints, resume; the same for every kind of model."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch

from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.devices import usable_device
from refactorgnn.errors import UserError
from refactorgnn.evaluation.protocols import evaluate_ranking
from refactorgnn.models.base import LinkPredictor
from refactorgnn.progress import counting
from refactorgnn.provenance import provenance
from refactorgnn.runs import Run, build_model, load_optimizer_tensors, optimizer_tensors
from refactorgnn.storage import remove_leftovers
from refactorgnn.training.config import TrainConfig
from refactorgnn.training.epochs import make_epochs

_OPTIMIZERS = {"adagrad": torch.optim.Adagrad, "adam": torch.optim.Adam}


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


def fit(run: Run, *, progress: bool = True) -> Progress:
    """Train the run's model from where it stands until it stops improving; the best weights end up in the run.

    Args:
        run: A run made by :meth:`Run.create`, or one that was interrupted.
        progress: Show a bar.
    """
    config, graph = run.train_config, run.graph
    check_trainable(config, graph)
    if config.threads:
        torch.set_num_threads(config.threads)
    device = torch.device(config.device)
    model = build_model(config, graph).to(device)
    optimizer = _OPTIMIZERS[config.optimizer](model.parameters(), lr=config.learning_rate)
    done = _resume(run, model, optimizer)
    epochs = make_epochs(model, config, graph, device)
    with counting("training", config.epochs, enabled=progress) as bar:
        bar.advance(done.epoch)
        while not done.is_exhausted(config):
            started = time.perf_counter()
            loss = epochs.run(optimizer, done.epoch + 1)
            done.epoch += 1
            if done.epoch % config.validate_every == 0 or done.epoch == config.epochs:
                _validate(run, model, graph, done, loss, started)
            else:
                done.seconds += time.perf_counter() - started
                run.append_record({"epoch": done.epoch, "loss": loss, "seconds": round(done.seconds, 3)})
            tensors = {**model.state_dict(), **optimizer_tensors(optimizer)}
            run.save_tensors(run.last_path, tensors, **vars(done))
            bar.advance(note=f"loss {loss:.3f}, best valid MRR {max(0.0, done.best_mrr):.3f}")
    run.update_sidecar(
        best_epoch=done.best_epoch,
        valid_mrr=done.best_mrr,
        seconds=round(done.seconds, 3),
        trained_with=provenance(config.device),
    )
    return done


def check_trainable(config: TrainConfig, graph: KnowledgeGraph) -> None:
    """Refuse, before anything is written, what :func:`fit` could not begin."""
    usable_device(config.device)
    if not len(graph.splits.get("valid", ())):
        raise UserError(
            f"graph {graph.name!r} has no validation triples, by which the best weights are chosen: "
            "add a valid file to its folder, or more triples to a file that is to be split."
        )


def _resume(run: Run, model: LinkPredictor, optimizer: torch.optim.Optimizer) -> Progress:
    """Put back the state of an interrupted training, and forget what was recorded after it."""
    remove_leftovers(run.path)
    done = Progress()
    if run.last_path.is_file():
        tensors, about = run.load_tensors(run.last_path, model)
        model.load_state_dict({name: tensors[name] for name in model.state_dict()})
        load_optimizer_tensors(optimizer, tensors)
        done = Progress(**about)
    run.drop_records_after(done.epoch)
    return done


def _validate(
    run: Run, model: LinkPredictor, graph: KnowledgeGraph, done: Progress, loss: float, started: float
) -> None:
    """Measure the validation MRR; keep the weights if it is the best so far."""
    model.eval()
    metrics = evaluate_ranking(model.bind(graph), graph, "valid", confidence=False).metrics
    if metrics["mrr"] > done.best_mrr:
        done.best_mrr, done.best_epoch = metrics["mrr"], done.epoch
        run.save_tensors(run.weights_path, model.state_dict(), epoch=done.epoch, valid=metrics)
    done.seconds += time.perf_counter() - started
    run.append_record(
        {"epoch": done.epoch, "loss": loss, "seconds": round(done.seconds, 3)}
        | {f"valid_{name}": round(value, 6) for name, value in metrics.items()}
    )
