"""``refactorgnn tune``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from refactorgnn import api
from refactorgnn.cli.model import AsJson, DataRoot, Dataset
from refactorgnn.cli.output import print_json, print_table, say
from refactorgnn.cli.settings import with_setting_options
from refactorgnn.training.search import DEFAULT_TRIALS
from refactorgnn.training.search_records import SearchResult
from refactorgnn.training.search_space import shipped_spaces
from refactorgnn.training.setting_types import shown

_NUM_SHOWN = 10


@with_setting_options
def tune(
    space: Annotated[
        str,
        typer.Option(
            metavar="FILE.yaml",
            help=f"The settings to choose, and from what; or one of {', '.join(shipped_spaces())}. "
            "What is given as an option is not searched.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="The search folder to make, or to go on with.")],
    dataset: Dataset = None,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.yaml", help="Take the other settings from this file; options override it.", show_default=False
        ),
    ] = None,
    trials: Annotated[
        int | None, typer.Option(help="How many trials there are to be.", show_default=str(DEFAULT_TRIALS))
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            help="The time for all trials; those under way are interrupted at their next validation.",
            show_default="as long as they take",
        ),
    ] = None,
    jobs: Annotated[int, typer.Option(help="Processes that train at the same time, on one device.")] = 1,
    seeds: Annotated[int, typer.Option(help="Trainings of a trial, with different seeds; their mean counts.")] = 1,
    grid: Annotated[
        bool, typer.Option("--grid", help="Train every combination of a space of choices, in its order.")
    ] = False,
    prune: Annotated[
        bool, typer.Option("--prune", help="Stop trials below the median of the complete ones at the same epoch.")
    ] = False,
    unseen_share: Annotated[
        float,
        typer.Option(help="Set this share of the entities apart, to validate on: settings for entities never seen."),
    ] = 0.0,
    data_root: DataRoot = None,
    as_json: AsJson = False,
    **settings: Any,
) -> None:
    """Search for the settings with the best validation MRR; the test split is left out.

    The same command goes on with a search that was interrupted.

    Example: refactorgnn tune countries_part --model refactor --layers 2 --space best-signature
    --trials 20 --out searches/part
    """
    result = api.tune(
        dataset,
        space=space,
        out=out,
        config=config,
        trials=trials,
        seconds=seconds,
        jobs=jobs,
        seeds=seeds,
        grid=grid,
        prune=prune,
        unseen_share=unseen_share,
        data_root=data_root,
        **settings,
    )
    if as_json:
        print_json(_summary(result))
        return
    _print(result)
    say(
        "Validation MRRs are to be compared with each other, not with those of train, which filters the answers of the "
        f"test split as well. The trials are in {result.trials_path}, the best settings in {result.best_path}. "
        f"Next: refactorgnn train --config {result.best_path}"
    )


def _summary(result: SearchResult) -> dict[str, Any]:
    best = result.best
    return {
        "folder": str(result.folder),
        "best": str(result.best_path),
        "number": best.number,
        "settings": best.settings,
        "valid_mrr": best.valid_mrr,
        "best_epoch": best.best_epoch,
        "state": best.state,
        "trials": result.count(),
        "seconds": round(result.seconds, 3),
    }


def _print(result: SearchResult) -> None:
    names = list(result.best.settings)
    rows = [
        [trial.number, trial.valid_mrr, *(shown(trial.settings[name]) for name in names), trial.best_epoch,
         f"{trial.seconds:.1f}", trial.state]
        for trial in result.ranked[:_NUM_SHOWN]
    ]  # fmt: skip
    counts = ", ".join(f"{number} {state}" for state, number in result.count().items())
    title = f"best {len(rows)} of {len(result.trials)} trials ({counts}) in {result.seconds:.0f} seconds"
    print_table(title, ["trial", "valid MRR", *names, "best epoch", "seconds", "state"], rows)
