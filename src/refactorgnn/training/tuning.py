"""Running a search for hyper-parameters by validation MRR: begun or continued, in one process or several.

The graph that a search trains on has no test split, so that nothing it does can depend on one. A search that was
killed goes on with the same call: unfinished trials are resumed from their last epoch.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import multiprocessing.connection
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from refactorgnn.data.carving import carve_pair
from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.data.loading import load_folder, save_graph
from refactorgnn.errors import FileError, UserError
from refactorgnn.locks import hold_folder
from refactorgnn.progress import counting
from refactorgnn.storage import remove_leftovers, write_text
from refactorgnn.training.building import build_model
from refactorgnn.training.config import LookupConfig, TrainConfig
from refactorgnn.training.loop import check_trainable
from refactorgnn.training.processes import make_fabric
from refactorgnn.training.search import IDENTITY, SPENT, Clock, Search
from refactorgnn.training.search_records import SearchResult, read_result, write_importance
from refactorgnn.training.trials import Worker

if TYPE_CHECKING:
    from optuna import Study

# Seconds between two looks at what the processes have done.
_POLL = 0.5


def check_search(search: Search) -> None:
    """Refuse, before anything is read or written, what could not be searched."""
    if importlib.util.find_spec("optuna") is None:
        raise UserError("a search needs optuna, which is not installed: pip install 'refactorgnn[tune]'.")
    for name, value in (("trials", search.trials), ("jobs", search.jobs), ("seeds", search.seeds)):
        if value < 1:
            raise UserError(f"{name}={value} cannot be used: choose a whole number from 1 on.")
    if search.seconds is not None and not search.seconds > 0:
        raise UserError(f"seconds={search.seconds} cannot be used: choose a number above 0, or leave it out.")
    config = search.config({})
    if search.unseen_share and not _knows_new_entities(config):
        raise UserError(
            f"unseen_share={search.unseen_share} needs a model that can be asked about new entities, which "
            f"{config.model!r} with these settings is not: leave it out."
        )
    if config.log:
        raise UserError(f"log={config.log!r} cannot be used in a search, which deletes its trainings: leave it out.")
    if make_fabric(config).world_size > 1:
        raise UserError(
            f"devices={config.devices!r} cannot be used in a search, whose trainings have one device each: "
            "leave it out, and give --jobs to train several at the same time."
        )
    if not search.journal.is_file() and search.folder.exists() and any(search.folder.iterdir()):
        raise FileError(search.folder, "there is something other than a search here", "choose another --out")


def _knows_new_entities(config: TrainConfig) -> bool:
    """Whether the model can be asked about entities that it has not been trained on."""
    return not isinstance(config, LookupConfig) and getattr(config, "layers", None) != "inf"


def run_search(search: Search, graph: KnowledgeGraph, *, progress: bool = True) -> SearchResult:
    """Search, or go on with the search in the folder; returns at once if it is done.

    Args:
        search: A search that :func:`check_search` has accepted.
        graph: The graph, of which the splits train and valid are used and no other.
        progress: Show a bar with the best figure so far.
    """
    first = search.config({name: dimension.corners[0] for name, dimension in search.space.dimensions.items()})
    check_trainable(first, graph)
    is_new = not search.folder.exists()
    search.folder.mkdir(parents=True, exist_ok=True)
    with hold_folder(search.folder, "search"):
        remove_leftovers(search.folder)
        _drop_cut_line(search.journal)
        if search.journal.is_file():
            _check_same(search, search.open(), graph)
        try:
            _prepare(search, first, graph)
        except UserError:
            if is_new:
                shutil.rmtree(search.folder)
            raise
        study = search.open()
        study.set_user_attr(IDENTITY, search.identity(graph))
        spent = float(study.user_attrs.get(SPENT, 0.0))
        started = time.time()
        _run_trials(search, study, Clock(started, spent, search.seconds), progress)
        spent += time.time() - started
        study.set_user_attr(SPENT, spent)
        result = read_result(study, search.folder, spent)
        result.write_trials()
        how = "of a grid" if search.grid else "chosen by TPE"
        result.write_best(search.settings, how=how, seconds=search.seconds, seeds=search.seeds)
        write_importance(study, search.folder)
        shutil.rmtree(search.work)
    return result


def _drop_cut_line(journal: Path) -> None:
    """A kill may have cut the last line of the journal, and optuna would add the next one to it."""
    content = journal.read_bytes() if journal.is_file() else b""
    if content and not content.endswith(b"\n"):
        write_text(journal, content[: content.rfind(b"\n") + 1].decode())


def _prepare(search: Search, first: TrainConfig, graph: KnowledgeGraph) -> None:
    """Put the graph without its test split where every process finds it, and make sure that there is a model for it.

    With unseen entities it is cut in two: what is learned on, and what is asked about.
    """
    splits = {split: triples for split, triples in graph.splits.items() if split in ("train", "valid")}
    parts = {search.graph: replace(graph, splits=splits, _indices={})}
    if search.unseen_share:
        pair = carve_pair(graph, search.unseen_share, search.first_seed)
        parts = {search.graph: pair.train, search.unseen_graph: pair.unseen}
    for place, part in parts.items():
        shutil.rmtree(place, ignore_errors=True)
        save_graph(part, place, ".parquet")
        build_model(first, load_folder(place))  # reads texts once, for all processes to find them in the cache


def _check_same(search: Search, study: Study, graph: KnowledgeGraph) -> None:
    """Refuse to go on with a search for something else."""
    before, now = study.user_attrs.get(IDENTITY, {}), search.identity(graph)
    changed = [name for name in before if before[name] != now.get(name)]
    if changed:
        problem = f"the search here has another {' and another '.join(changed)}"
        raise FileError(search.folder, problem, "repeat the command it was begun with, or choose another --out")


def _run_trials(search: Search, study: Study, clock: Clock, progress: bool) -> None:
    """Train until there are enough trials or the time is over, and keep ``trials.jsonl`` and the bar up to date."""
    from optuna.trial import TrialState

    unfinished = [trial.number for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))]
    with counting("trials", search.trials, enabled=progress) as bar:
        shown = 0

        def show() -> None:
            nonlocal shown
            result = read_result(study, search.folder, clock.seconds)
            finished = sum(trial.state != "running" for trial in result.trials)
            if finished > shown:
                best = f"best valid MRR {result.best.valid_mrr:.4f}" if result.ranked else "no valid MRR yet"
                bar.advance(finished - shown, note=best)
                result.write_trials()
                shown = finished

        show()
        if search.jobs == 1:
            Worker(search, clock, on_finished=show).run(unfinished)
        else:
            _spawn(search, clock, unfinished, show)
        show()


def _spawn(search: Search, clock: Clock, unfinished: list[int], show: Callable[[], None]) -> None:
    """Train in several processes, each with its share of the trials that were interrupted.

    Raises:
        UserError: the first of any process, or that one has ended early; the trials of all can be resumed.
    """
    context = multiprocessing.get_context("spawn")
    complaints = context.SimpleQueue()
    processes: list[BaseProcess] = [
        context.Process(target=_work, args=(search, clock, unfinished[place :: search.jobs], place, complaints))
        for place in range(search.jobs)
    ]
    try:
        for process in processes:
            process.start()
        while alive := [process for process in processes if process.is_alive()]:
            multiprocessing.connection.wait([process.sentinel for process in alive], timeout=_POLL)
            show()
            failed = [process.exitcode for process in processes if process.exitcode]
            if failed:
                _complain(complaints.get() if not complaints.empty() else None, failed[0])
    finally:
        for process in processes:
            if process.is_alive():
                process.terminate()
            if process.pid is not None:
                process.join()


def _complain(complaint: str | None, code: int | None) -> NoReturn:
    if complaint is not None:
        raise UserError(complaint)
    raise UserError(
        f"a process of the search ended early with code {code}: give fewer --jobs if memory ran out; "
        "the same command goes on."
    )


def _work(search: Search, clock: Clock, unfinished: list[int], place: int, complaints: Any) -> None:
    """What each of several processes does."""
    try:
        with hold_folder(search.folder, "search", shared=True):
            Worker(search, clock, place=place).run(unfinished)
    except UserError as error:
        complaints.put(str(error))
        raise SystemExit(2) from error
    except KeyboardInterrupt:  # the first process says so
        raise SystemExit(0) from None
