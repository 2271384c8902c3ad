"""From finished runs to an ensemble: whether they fit together, what weights they get, the run folder it becomes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.errors import UserError
from refactorgnn.models.base import LinkPredictor
from refactorgnn.models.ensemble import Ensemble, bind_for_logits, check_weights
from refactorgnn.provenance import provenance
from refactorgnn.runs import Run
from refactorgnn.training.ensemble_config import EnsembleConfig, MemberConfig, setting_of
from refactorgnn.training.member_choice import DEFAULT_ROUNDS, Choice, choose_weights, measure_weights
from refactorgnn.training.validation import graph_to_validate_on


def make_ensemble(
    runs: Sequence[Run],
    out: str | Path,
    *,
    weights: Sequence[float] | None = None,
    rounds: int | None = None,
    device: str = "cpu",
    progress: bool = True,
) -> Run:
    """Write an ensemble of finished runs to a folder; see :func:`refactorgnn.ensemble`."""
    started = time.perf_counter()
    Run(out).check_vacant(can_resume=False)  # before the search
    if weights is not None and rounds is not None:
        raise UserError("weights are either given or searched for: leave out the weights or the rounds.")
    if weights is not None:
        check_weights(weights, len(runs))
    _check_compatible(runs)
    models, graph = [run.load_model(device) for run in runs], _graph_to_choose_on(runs)
    bound = [bind_for_logits(model, graph) for model in models]
    choice = (
        choose_weights(bound, graph, rounds=DEFAULT_ROUNDS if rounds is None else rounds, progress=progress)
        if weights is None
        else measure_weights(bound, graph, weights)
    )
    config, ensemble = _assemble(runs, models, choice)
    return Run.create_ensemble(
        out,
        config,
        runs[0].graph,
        ensemble,
        valid_mrr=choice.valid_mrr,
        candidates=_about_candidates(runs, choice),
        steps=[{"weights": step.weights, "valid_mrr": step.valid_mrr} for step in choice.steps],
        seconds=round(time.perf_counter() - started, 3),
        trained_with=provenance(device),
    )


def _graph_to_choose_on(runs: Sequence[Run]) -> KnowledgeGraph:
    """What the members were validated on; where some knew fewer facts than others, what those knew."""
    graphs = [graph_to_validate_on(run.train_config, run.graph) for run in runs]
    return min(graphs, key=lambda graph: len(graph.triples("train")))


def _assemble(runs: Sequence[Run], models: Sequence[LinkPredictor], choice: Choice) -> tuple[EnsembleConfig, Ensemble]:
    """The chosen members, as settings and as a model."""
    chosen = [place for place, weight in enumerate(choice.weights) if weight]
    members = [
        MemberConfig(run=str(runs[place].path), weight=choice.weights[place], settings=runs[place].train_config)
        for place in chosen
    ]
    config = EnsembleConfig(members=tuple(members))
    return config, Ensemble([models[place] for place in chosen], config.weights)


def _about_candidates(runs: Sequence[Run], choice: Choice) -> list[dict[str, Any]]:
    """What is to be known of the runs that were considered, also when they are gone; weight 0: not chosen."""
    kept = ("model", "dim", "num_parameters", "features", "best_epoch", "seconds", "trained_with")
    return [
        {"run": str(run.path), "weight": weight, "valid_mrr": mrr}
        | {key: run.sidecar.get(key) for key in kept}
        | {"scorer": setting_of(run.config, "scorer")}
        for run, weight, mrr in zip(runs, choice.weights, choice.member_mrrs, strict=True)
    ]


def _check_compatible(runs: Sequence[Run]) -> None:
    if len(runs) < 2:
        raise UserError("an ensemble needs at least two runs: name another one.")
    for place, run in enumerate(runs):
        if run.path.resolve() in {other.path.resolve() for other in runs[:place]}:
            raise UserError(f"run {run.path} is given twice: name it once.")
        if isinstance(run.config, EnsembleConfig):
            raise UserError(f"run {run.path} is an ensemble itself: name the runs it was made of.")
        difference = _difference(runs[0].graph, run.graph)
        if difference:
            raise UserError(
                f"runs {runs[0].path} and {run.path} were trained on different graphs ({difference}): "
                "train them on the same folder with train, valid and test."
            )


def _difference(one: KnowledgeGraph, other: KnowledgeGraph) -> str | None:
    """What tells two graphs apart, as a clause.

    The splits count too: a single file is split by the seed of the training, so two seeds give the same names, but what
    one member is validated on the other may have been trained on.
    """
    if one.relations != other.relations:
        return "their relations differ"
    if one.entities != other.entities:
        return "their entities differ"
    for split in sorted({*one.splits, *other.splits}):
        mine, theirs = (graph.splits.get(split, torch.empty(0, 3, dtype=torch.int64)) for graph in (one, other))
        if not torch.equal(torch.unique(mine, dim=0), torch.unique(theirs, dim=0)):
            return f"the triples of {split} differ"
    if (one.texts is None) != (other.texts is None) or (one.texts is not None and not one.texts.equals(other.texts)):
        return "the texts of their entities differ"
    return None
