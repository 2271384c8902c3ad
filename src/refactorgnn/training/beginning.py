"""How a run begins: a new folder, or one that an interrupted training has left."""

from __future__ import annotations

from pathlib import Path

from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.data.loading import load_graph
from refactorgnn.errors import FileError
from refactorgnn.runs import CIRCUMSTANCES, Run
from refactorgnn.training.config import TrainConfig
from refactorgnn.training.loop import check_trainable


def begin_run(
    config: TrainConfig,
    path: Path,
    *,
    resume: bool,
    graph: KnowledgeGraph | None = None,
    data_root: str | Path | None = None,
    progress: bool = True,
) -> Run:
    """Make the run, or make sure that it is the one to go on with.

    Args:
        config: The settings.
        path: The folder.
        resume: Whether there may be a run, interrupted, to go on with.
        graph: The dataset of the settings, if it was loaded before.
        data_root: A folder with local copies of the known datasets.
        progress: Show a bar while a dataset is downloaded.
    """
    if resume and (path / "config.yaml").is_file():
        _same_settings(run := Run.open(path), config)
        run.replace_config(config)
        return run
    Run(path).check_vacant()  # before a download
    if graph is None:
        graph = load_graph(config.dataset, data_root=data_root, seed=config.seed, progress=progress)
    check_trainable(config, graph)
    return Run.create(path, config, graph)


def _same_settings(run: Run, config: TrainConfig) -> None:
    """Refuse a resume with other settings, but for those that say where and how to compute."""
    what = CIRCUMSTANCES - {"dataset"}
    old, new = run.train_config.model_dump(exclude=what), config.model_dump(exclude=what)
    changed = [f"{name} was {old[name]!r}" for name in old if old[name] != new.get(name)]
    if changed:
        raise FileError(
            run.path,
            f"the run to resume has other settings ({', '.join(changed)})",
            "repeat them or choose another --out",
        )
