"""What a search leaves for people: the trials as lines of JSON, the best settings as a config file, importances."""

from __future__ import annotations

import json
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import yaml

from refactorgnn.errors import UserError
from refactorgnn.storage import write_text
from refactorgnn.training.config import CONFIGS
from refactorgnn.training.config_files import DESCRIPTION

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial

State = Literal["complete", "pruned", "interrupted", "failed", "running"]
# Trials whose figure may be the best: those of pruned ones were below the median when they were stopped.
_RANKED = ("complete", "interrupted")
# Importances of fewer trials would be noise.
_LEAST_FOR_IMPORTANCE = 10
# Under which the outcome of a trial stands in the journal.
OUTCOME, SETTINGS, RUNS = "outcome", "settings", "runs"


@dataclass(frozen=True)
class TrialRecord:
    """A trial: a line of ``trials.jsonl``.

    Args:
        number: Its number, from 0 on.
        settings: What was chosen for it.
        valid_mrr: The mean over its seeds of the best validation MRR; None if a seed has not reached a validation.
        best_epoch: The latest best epoch of its seeds.
        seconds: The time it was trained and validated, over all seeds.
        state: ``"interrupted"``: by the end of the time for the search, and counted with what it had reached.
        runs: Seed, best validation MRR, best epoch and seconds of each training.
        reason: Why it failed.
    """

    number: int
    settings: dict[str, Any]
    valid_mrr: float | None
    best_epoch: int | None
    seconds: float
    state: State
    runs: list[dict[str, Any]] = field(default_factory=list)
    reason: str | None = None

    @classmethod
    def of(cls, trial: FrozenTrial) -> TrialRecord:
        """The record of a trial in the journal."""
        known = trial.user_attrs
        unfinished = {"valid_mrr": None, "best_epoch": None, "seconds": 0.0, "state": "running"}
        outcome = known[OUTCOME] if trial.state.is_finished() else unfinished
        return cls(number=trial.number, settings=known.get(SETTINGS, {}), runs=known.get(RUNS, []), **outcome)


@dataclass(frozen=True)
class SearchResult:
    """The outcome of a search.

    Args:
        folder: Where its files are.
        trials: Its trials, by number.
        seconds: The time it took, over all calls that went on with it.
    """

    folder: Path
    trials: list[TrialRecord]
    seconds: float

    @property
    def ranked(self) -> list[TrialRecord]:
        """The trials that have a figure to be chosen by, best first."""
        found = [trial for trial in self.trials if trial.state in _RANKED and trial.valid_mrr is not None]
        return sorted(found, key=lambda trial: -(trial.valid_mrr or 0.0))

    @property
    def best(self) -> TrialRecord:
        """The trial with the best mean validation MRR, the first of equals.

        Raises:
            UserError: if no trial has a figure.
        """
        if self.ranked:
            return self.ranked[0]
        reasons = [trial.reason for trial in self.trials if trial.reason]
        if reasons:
            raise UserError(f"every trial of the search in {self.folder} failed, the first one because {reasons[0]}")
        raise UserError(
            f"no trial of the search in {self.folder} reached a validation of each seed in time: "
            "give more --seconds, or fewer --epochs between validations (--validate-every)."
        )

    @property
    def best_path(self) -> Path:
        """The config file of the best trial."""
        return self.folder / "best.yaml"

    @property
    def trials_path(self) -> Path:
        """The file with a line for each trial."""
        return self.folder / "trials.jsonl"

    def count(self) -> dict[str, int]:
        """How many trials there are of each state that occurs."""
        return dict(Counter(trial.state for trial in self.trials))

    def write_trials(self) -> None:
        """Write ``trials.jsonl``."""
        lines = [json.dumps(asdict(trial), ensure_ascii=False) + "\n" for trial in self.trials]
        write_text(self.trials_path, "".join(lines))

    def write_best(self, base: dict[str, Any], *, how: str, seconds: float | None, seeds: int) -> None:
        """Write ``best.yaml``: the settings of the search with those of the best trial, and where they come from.

        Args:
            base: The settings that were not searched.
            how: How the trials were chosen, as a clause.
            seconds: The time that the search was given.
            seeds: The seeds of a trial.
        """
        best = self.best
        counts = ", ".join(f"{number} {state}" for state, number in self.count().items())
        budget = "no limit of time" if seconds is None else f"a budget of {seconds:g} seconds"
        note = ", interrupted by the end of the budget" if best.state == "interrupted" else ""
        description = (
            f"Best of {len(self.trials)} trials ({counts}) {how} on {base['dataset']} with {budget}, "
            f"{self.seconds:.0f} seconds used: trial {best.number}{note}, mean validation MRR {best.valid_mrr:.4f} "
            f"of {seeds} seed{'s' if seeds > 1 else ''}, known answers of train and valid filtered, test never read."
        )
        merged = {**base, **best.settings}
        order = [name for name in CONFIGS[merged.get("model", "lookup")].model_fields if name in merged]
        content = {DESCRIPTION: description, **{name: merged[name] for name in order}}
        write_text(self.best_path, yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=120))


def read_result(study: Study, folder: Path, seconds: float) -> SearchResult:
    """The outcome so far of a search in a journal."""
    return SearchResult(folder, [TrialRecord.of(trial) for trial in _begun(study)], seconds)


def _begun(study: Study) -> Sequence[FrozenTrial]:
    from optuna.trial import TrialState

    return [trial for trial in study.get_trials(deepcopy=False) if trial.state != TrialState.WAITING]


def write_importance(study: Study, folder: Path) -> None:
    """Write ``importance.json``: how much each setting mattered, by PED-ANOVA, which needs no further package."""
    import optuna

    complete = study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,))
    if len(complete) < _LEAST_FOR_IMPORTANCE or len({trial.value for trial in complete}) == 1:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        evaluator = optuna.importance.PedAnovaImportanceEvaluator()
        importances = optuna.importance.get_param_importances(study, evaluator=evaluator)
    content = {"evaluator": "PED-ANOVA", "num_trials": len(complete), "importances": dict(importances)}
    write_text(folder / "importance.json", json.dumps(content, indent=2) + "\n")
