"""The card of dataset and model: how large, with which settings, how good, and where it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from refactorgnn.data.datasets import DATASETS
from refactorgnn.page.elements import heading, tag

_METRICS = {
    "valid_mrr": "MRR",
    "valid_mr": "Mean rank",
    "valid_hits@1": "Hits@1",
    "valid_hits@3": "Hits@3",
    "valid_hits@10": "Hits@10",
}


def show_card(about: Mapping[str, Any]) -> None:
    """Show the card.

    Args:
        about: What :meth:`~refactorgnn.server.service.PredictorService.about` says.
    """
    heading(2, "About this graph and model")
    with tag("div", "", "cards"):
        with tag("div", "", "panel"):
            _dataset(about["dataset"], about["added"])
        with tag("div", "", "panel"):
            _model(about["model"])
        with tag("div", "", "panel"):
            _quality(about["metrics"], about["calibration"])


def _dataset(dataset: Mapping[str, Any], added: Mapping[str, int]) -> None:
    heading(3, f"Dataset: {dataset['name']}")
    spec = DATASETS.get(dataset["name"])
    if spec is not None:
        tag("p", f"{spec.description}. Source: {spec.source}.", "muted")
    rows = {"Entities": dataset["num_entities"], "Relations": dataset["num_relations"], "Facts": dataset["num_triples"]}
    rows |= {f"… {split}": size for split, size in dataset["splits"].items()}
    if added["num_entities"] or added["num_facts"]:
        rows |= {"Entities added here": added["num_entities"], "Facts added here": added["num_facts"]}
    _rows({title: f"{value:,}" for title, value in rows.items()})
    for note in dataset["notes"]:
        tag("p", f"Note: {note}.", "muted")


def _model(model: Mapping[str, Any]) -> None:
    heading(3, f"Model: {model['name']}")
    _rows({"Scorer": model["scorer"], "Width": model["dim"], "Parameters": f"{model['num_parameters']:,}"})
    if model["settings"]:
        with tag("details"):
            tag("summary", "All settings")
            _rows({name: _setting(value) for name, value in sorted(model["settings"].items())}, "settings")


def _quality(metrics: Mapping[str, float], calibration: Mapping[str, Any] | None) -> None:
    heading(3, "How good it is")
    if metrics:
        tag("p", "On the validation facts, filtered, every entity a candidate.", "muted")
        _rows({title: f"{metrics[name]:.3f}" for name, title in _METRICS.items() if name in metrics})
    else:
        tag("p", "This model's run has no validation figures.", "muted")
    if calibration is None:
        tag("p", "No probabilities: the graph has too few validation facts to tell.", "muted")
    else:
        tag("p", "On held-out questions, the probability of the best answer is off on average by", "muted")
        _rows({"Calibration error": f"{calibration['top_ece']:.3f}"})


def _rows(rows: Mapping[str, object], classes: str = "") -> None:
    with tag("dl", "", f"sizes {classes}"):
        for title, value in rows.items():
            if value is not None:
                with tag("div"):
                    tag("dt", title)
                    tag("dd", str(value))


def _setting(value: object) -> str:
    return "—" if value is None else str(value)
