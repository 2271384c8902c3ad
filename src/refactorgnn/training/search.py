"""What a search for hyper-parameters is: its settings, its folder, its journal, its time.

A search folder has ``journal.jsonl``, all that is known of the search, one JSON object a line; ``trials.jsonl`` and
``best.yaml``, which are for people and made from it (see :mod:`~refactorgnn.training.search_records`); and ``work``
while it lasts, with the graph and the trainings that are under way.
"""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.runs import CIRCUMSTANCES
from refactorgnn.training.config import TrainConfig
from refactorgnn.training.search_space import Space

if TYPE_CHECKING:
    from optuna import Study

DEFAULT_TRIALS = 40
_STUDY = "search"
# Under which the time that was used, and what is searched for, stand in the journal.
SPENT, IDENTITY = "seconds", "identity"


@dataclass(frozen=True)
class Search:
    """What to search for, and how.

    Args:
        folder: Where its files are.
        settings: The settings that stay as they are, the dataset among them.
        space: What the others are chosen from.
        trials: How many trials there are to be, all combinations of the space for a grid.
        seconds: The time for all trials together; None: as long as they take.
        jobs: The processes that train at the same time.
        seeds: The trainings of a trial, with seeds from that of the settings on.
        grid: Whether the trials are the combinations of the space, in its order, or chosen by TPE.
        prune: Whether trials are stopped that stay below the median.
        unseen_share: The share of the entities that trials do not learn of but are validated on; 0: validation is that
            of the graph, whose entities are all known.
    """

    folder: Path
    settings: dict[str, Any]
    space: Space
    trials: int = DEFAULT_TRIALS
    seconds: float | None = None
    jobs: int = 1
    seeds: int = 1
    grid: bool = False
    prune: bool = False
    unseen_share: float = 0.0

    @property
    def journal(self) -> Path:
        """The file with all that is known of the search."""
        return self.folder / "journal.jsonl"

    @property
    def work(self) -> Path:
        """Where the graph and the trainings under way are."""
        return self.folder / "work"

    @property
    def graph(self) -> Path:
        """What trials learn on."""
        return self.work / "graph"

    @property
    def unseen_graph(self) -> Path:
        """What they are asked about, where that is another graph."""
        return self.work / "unseen"

    @property
    def first_seed(self) -> int:
        """The seed of the first training of each trial, and of the sampler."""
        return int(self.settings.get("seed", 0))

    def config(self, chosen: dict[str, Any], seed: int | None = None) -> TrainConfig:
        """The settings of a training with what was ``chosen``."""
        return TrainConfig.from_dict({**self.settings, **chosen, "seed": self.first_seed if seed is None else seed})

    def open(self) -> Study:
        """The study in the journal."""
        import optuna
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        storage = JournalStorage(JournalFileBackend(str(self.journal)))
        if any(summary.study_name == _STUDY for summary in optuna.get_all_study_summaries(storage)):
            return optuna.load_study(storage=storage, study_name=_STUDY)
        return optuna.create_study(storage=storage, study_name=_STUDY, direction="maximize")

    def identity(self, graph: KnowledgeGraph) -> dict[str, Any]:
        """What must be the same when a search is continued, as JSON has it."""
        content = hashlib.sha256()
        for split in ("train", "valid"):
            for column in graph.named_triples(split).itercolumns():
                content.update("\n".join(column.to_pylist()).encode() + b"\0")
        settings = {name: value for name, value in self.settings.items() if name not in CIRCUMSTANCES}
        found = {
            "set of fixed settings": settings,
            "space": self.space.to_dict(),
            "number of seeds": self.seeds,
            "grid": self.grid,
            "pruning": self.prune,
            "share of unseen entities": self.unseen_share,
            "graph": content.hexdigest(),
        }
        return dict(json.loads(json.dumps(found)))


@dataclass(frozen=True)
class Clock:
    """The time of a search, by the clock on the wall, which all processes share.

    Args:
        started: When this call began.
        spent: The seconds that earlier calls used.
        budget: The seconds of all calls together.
    """

    started: float
    spent: float
    budget: float | None

    @property
    def seconds(self) -> float:
        """The seconds used so far."""
        return self.spent + time.time() - self.started

    @property
    def is_over(self) -> bool:
        """Whether the time is used up."""
        return self.budget is not None and self.seconds >= self.budget
