"""``refactorgnn train``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from refactorgnn import api
from refactorgnn.cli.model import AsJson, DataRoot, Dataset
from refactorgnn.cli.output import print_json, print_table, say
from refactorgnn.cli.settings import with_setting_options
from refactorgnn.training.config_files import ConfigFile
from refactorgnn.training.processes import is_helper


@with_setting_options
def train(
    dataset: Dataset = None,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.yaml", help="Take the settings from this file; options override it.", show_default=False
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The run folder to make.", show_default="runs/DATASET-MODEL-SCORER-SEED")
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Go on with the run in --out if it was interrupted (needs nothing else); else start it."
        ),
    ] = False,
    data_root: DataRoot = None,
    as_json: AsJson = False,
    **settings: Any,
) -> None:
    """Train a model and keep what was best on validation.

    Examples: refactorgnn train countries --scorer complex --dim 128 --out runs/countries;
    refactorgnn train --config configs/umls-distmult.yaml --seed 1
    """
    experiment = None if config is None else ConfigFile.read(config)
    if experiment is not None and experiment.description:
        # Checked first: a mistake in the options is answered by its sentence and nothing else.
        experiment.train_config(settings if dataset is None else {**settings, "dataset": dataset})
        if not is_helper():
            say(experiment.description)
    run = api.train(dataset, config=experiment, out=out, resume=resume, data_root=data_root, **settings)
    for note in run.graph.notes:
        say(f"note: {note}")
    summary = {
        "run": str(run.path),
        **{key: run.sidecar[key] for key in ("best_epoch", "valid_mrr", "seconds", "num_parameters")},
    }
    if as_json:
        print_json(summary)
        return
    print_table(f"trained {' '.join(run.train_config.kind)} on {run.graph.name}", ("", ""), list(summary.items()))
    split = "" if "test" in run.graph.splits else " --split valid"
    say(f"The run is in {run.path}. Next: refactorgnn evaluate {run.path}{split}")
