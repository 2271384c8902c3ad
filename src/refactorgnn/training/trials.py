"""The trials of a search: which settings come next, how they are trained, and when a training is stopped early."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import statistics
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.data.loading import load_folder
from refactorgnn.errors import FileError, UserError
from refactorgnn.locks import one_at_a_time
from refactorgnn.runs import Run, load_tensors
from refactorgnn.seeds import combined_seed
from refactorgnn.training.checkpoints import Progress
from refactorgnn.training.config import TrainConfig
from refactorgnn.training.loop import fit
from refactorgnn.training.search import SPENT, Clock, Search
from refactorgnn.training.search_records import OUTCOME, RUNS, SETTINGS, State

if TYPE_CHECKING:
    from optuna.trial import Trial

# A trial is pruned against the curves of at least so many complete ones, and not in this share of its epochs.
_LEAST_TO_PRUNE = 5
_WARM_UP = 0.25
# NumPy's generators take seeds below this.
_SEEDS = 2**32


class StopTrialError(Exception):
    """Ends a trial at a validation, with what it has reached.

    Args:
        state: What the trial is to be called.
    """

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self.state = state


def is_below_median(epoch: int, best_mrr: float, curves: Sequence[Mapping[int, float]]) -> bool:
    """Whether a training is below the median of others at the same epoch.

    What counts is the best validation MRR up to that epoch. A training that stopped early counts at every later epoch
    with its best, which is what it would be chosen with.

    Args:
        epoch: The epochs done.
        best_mrr: The best validation MRR so far.
        curves: The validation MRR by epoch of other trainings, each run to its end.
    """
    reached = [[mrr for other, mrr in curve.items() if other <= epoch] for curve in curves]
    bests = [max(mrrs) for mrrs in reached if mrrs]
    return len(bests) >= _LEAST_TO_PRUNE and best_mrr < statistics.median(bests)


class Worker:
    """A process that trains trials of a search until there are enough or the time is over.

    Args:
        search: The search.
        clock: Its time.
        place: The number of this process; the first one writes the time down.
        on_finished: Called after each trial.
    """

    def __init__(
        self, search: Search, clock: Clock, *, place: int = 0, on_finished: Callable[[], None] | None = None
    ) -> None:
        self.search = search
        self.clock = clock
        self.place = place
        self.study = search.open()
        self._on_finished = on_finished
        self._noted = 0.0
        if search.jobs > 1:  # settings of their own override it
            torch.set_num_threads(max(1, (os.cpu_count() or 1) // search.jobs))

    @cached_property
    def _graph(self) -> KnowledgeGraph:
        return load_folder(self.search.graph)

    @cached_property
    def _validation_graph(self) -> KnowledgeGraph | None:
        if not self.search.unseen_share:
            return None
        return load_folder(self.search.unseen_graph).with_relations(self._graph.relations)

    def run(self, unfinished: Sequence[int]) -> None:
        """Train the ``unfinished`` trials of an earlier call, by number, then new ones."""
        for trial in self._trials(unfinished):
            self._train(trial)
            if torch.cuda.is_available():
                torch.cuda.empty_cache()  # for the other processes
            if self._on_finished is not None:
                self._on_finished()

    def _trials(self, unfinished: Sequence[int]) -> Iterator[Trial]:
        from optuna.trial import Trial

        for number in unfinished:
            trial = Trial(self.study, self.study.get_trials(deepcopy=False)[number]._trial_id)
            self._choose(trial)
            yield trial
        while not self.clock.is_over:
            with one_at_a_time(self.search.journal):
                new = self._ask()
            if new is None:
                return
            yield new

    def _ask(self) -> Trial | None:
        """A new trial with its settings; None if there are enough."""
        from optuna.trial import TrialState

        trials = self.study.get_trials(deepcopy=False)
        waiting = [trial for trial in trials if trial.state == TrialState.WAITING]
        number = len(trials) - len(waiting)
        if number >= self.search.trials:
            return None
        if self.search.grid and not waiting:
            self.study.enqueue_trial(self.search.space.cells()[number])
        trial = self.study.ask()
        self._choose(trial)
        return trial

    def _choose(self, trial: Trial) -> None:
        """Choose the settings of a trial, once.

        Each trial has a sampler with a seed of its own, so that the choice does not depend on what this process has
        chosen before: a search that was interrupted goes on as it would have.
        """
        import optuna

        if SETTINGS in trial.user_attrs:
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            # Trials that other processes are training count as bad ones, or all would be near the same place.
            self.study.sampler = optuna.samplers.TPESampler(
                seed=combined_seed(self.search.first_seed, trial.number) % _SEEDS, constant_liar=self.search.jobs > 1
            )
        trial.set_user_attr(SETTINGS, self.search.space.suggest(trial))

    def _train(self, trial: Trial) -> None:
        """Train a trial with each of its seeds, and write down what it has reached."""
        runs: list[dict[str, Any]] = list(trial.user_attrs.get(RUNS, []))
        state: State = runs[-1]["state"] if runs else "complete"
        reason = None
        try:
            while state == "complete" and len(runs) < self.search.seeds:
                runs.append(self._train_run(trial, len(runs)))
                state = runs[-1]["state"]
                trial.set_user_attr(RUNS, runs)
        except FileError:
            raise  # the disk is full, say: no fault of the settings
        except (UserError, torch.cuda.OutOfMemoryError) as error:
            state, reason = "failed", str(error).splitlines()[0]
        shutil.rmtree(self._folder(trial), ignore_errors=True)
        self._tell(trial, state, runs, reason)

    def _train_run(self, trial: Trial, number: int) -> dict[str, Any]:
        """Train one seed of a trial, from where an earlier call left it."""
        path = self._folder(trial) / str(number)
        seed = self.search.first_seed + number
        if not (path / "config.yaml").is_file():
            Run.create(path, self.search.config(trial.user_attrs[SETTINGS], seed), self._graph)
        run = Run.open(path)
        watch = _Watch(self, run.train_config, trial if number == 0 else None, _progress(run))
        state: State = "complete"
        try:
            done = fit(run, progress=False, on_validation=watch, validation_graph=self._validation_graph)
        except StopTrialError as stop:
            state, done = stop.state, watch.done
            done.seconds = run.records()[-1]["seconds"]
        reached = {"valid_mrr": done.best_mrr, "best_epoch": done.best_epoch, "seconds": round(done.seconds, 3)}
        return {"seed": seed, **reached, "state": state}

    def _tell(self, trial: Trial, state: State, runs: list[dict[str, Any]], reason: str | None) -> None:
        """Write the outcome of a trial down, for people and for the sampler."""
        from optuna.trial import TrialState

        # Means over different numbers of seeds cannot be compared; a trial is pruned by its first seed.
        has_figure = len(runs) == self.search.seeds or (state == "pruned" and bool(runs))
        mrr = statistics.fmean(run["valid_mrr"] for run in runs) if has_figure else None
        outcome = {
            "valid_mrr": mrr,
            "best_epoch": max((run["best_epoch"] for run in runs), default=None),
            "seconds": round(sum(run["seconds"] for run in runs), 3),
            "state": state,
            "reason": reason,
        }
        trial.set_user_attr(OUTCOME, outcome)
        if state == "pruned":
            self.study.tell(trial, state=TrialState.PRUNED)
        elif mrr is not None and state != "failed":
            self.study.tell(trial, mrr)
        else:
            self.study.tell(trial, state=TrialState.FAIL)
        self.note_time()

    def note_time(self) -> None:
        """Write down how much time was used, to the second, in case there is no later moment."""
        if self.place == 0 and (seconds := self.clock.seconds) > self._noted + 1:
            self._noted = seconds
            self.study.set_user_attr(SPENT, seconds)

    def complete_curves(self) -> list[dict[int, float]]:
        """The validation MRR by epoch of the complete trials' first seed."""
        trials = self.study.get_trials(deepcopy=False)
        return [
            trial.intermediate_values
            for trial in trials
            if trial.state.is_finished() and trial.user_attrs[OUTCOME]["state"] == "complete"
        ]

    def _folder(self, trial: Trial) -> Path:
        return self.search.work / f"trial-{trial.number}"


class _Watch:
    """Looks at each validation of a training, and ends it when it should be ended.

    Args:
        worker: The process.
        config: The settings of the training.
        trial: The trial whose curve this is; None for its further seeds.
        done: How far an earlier call has come.
    """

    def __init__(self, worker: Worker, config: TrainConfig, trial: Trial | None, done: Progress) -> None:
        self.worker = worker
        self.config = config
        self.trial = trial
        self.done = done
        trials = worker.study.get_trials(deepcopy=False)
        self.reported = set() if trial is None else set(trials[trial.number].intermediate_values)

    def __call__(self, epoch: int, mrr: float) -> None:
        """Take note of a validation.

        Raises:
            StopTrialError: to end the training.
        """
        parent = multiprocessing.parent_process()
        if parent is not None and not parent.is_alive():
            raise SystemExit(1)  # nobody waits for this search; the same command resumes it
        done = self.done
        done.epoch = epoch
        if mrr > done.best_mrr:
            done.best_mrr, done.best_epoch = mrr, epoch
        if self.trial is not None and epoch not in self.reported:  # a resumed training repeats its last epochs
            self.trial.report(mrr, epoch)
        self.worker.note_time()
        if done.is_exhausted(self.config):
            return  # it is complete
        if self.trial is not None and self.worker.search.prune and epoch >= _WARM_UP * self.config.epochs:
            curves = self.worker.complete_curves()
            if is_below_median(epoch, done.best_mrr, curves):
                raise StopTrialError("pruned")
        if self.worker.clock.is_over:
            raise StopTrialError("interrupted")


def _progress(run: Run) -> Progress:
    """How far a training has come that may have been interrupted."""
    if not run.last_path.is_file():
        return Progress()
    _, about = load_tensors(run.last_path)
    return Progress(**{name: value for name, value in about.items() if name != "fingerprint"})
