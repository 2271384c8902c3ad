"""The model card of an exported model: YAML for the Hub, then words for people."""

from __future__ import annotations

from typing import Any

import yaml

from refactorgnn.errors import UserError
from refactorgnn.evaluation.protocols import Evaluation
from refactorgnn.runs import Run
from refactorgnn.training.ensemble_config import EnsembleConfig, RunConfig

_SHOWN = ("mrr", "hits@1", "hits@3", "hits@10")
_NAMES = {"mrr": "MRR", "hits@1": "Hits@1", "hits@3": "Hits@3", "hits@10": "Hits@10"}


def model_card(run: Run, *, name: str, measured: Evaluation | None, licence: str | None = None) -> str:
    """The text of ``README.md``.

    Args:
        run: The run.
        name: What the model is called.
        measured: How it did, if it was measured; else what the training found on validation, if it kept that.
        licence: Its licence, if known.
    """
    if licence is not None and not licence.strip():
        raise UserError("an empty licence says nothing: give one such as mit, or leave it out.")
    head: dict[str, Any] = {"library_name": "refactorgnn", "pipeline_tag": "graph-ml"}
    head["tags"] = ["knowledge-graph", "link-prediction", run.config.model]
    if licence is not None:
        head["license"] = licence
    result = _result(run, measured)
    if result is not None:
        head["model-index"] = [{"name": name, "results": [result]}]
    front = yaml.safe_dump(head, sort_keys=False, allow_unicode=True)
    return f"---\n{front}---\n\n{_body(run, name, measured)}"


def _result(run: Run, measured: Evaluation | None) -> dict[str, Any] | None:
    """An entry of the Hub's ``model-index``."""
    if measured is not None:
        split, how = str(measured.protocol["split"]), f"filtered, full ranking, {measured.protocol['ties']} ties"
        values = {key: float(measured.metrics[key]) for key in _SHOWN}
    elif run.sidecar.get("valid_mrr") is not None:
        split, how = "valid", "filtered, full ranking, of the training"
        values = {"mrr": float(run.sidecar["valid_mrr"])}
    else:
        return None
    return {
        "task": {"type": "graph-ml", "name": "Knowledge-graph completion"},
        "dataset": {"type": run.graph.name, "name": run.graph.name, "split": split},
        "metrics": [{"type": key, "name": f"{_NAMES[key]} ({how})", "value": value} for key, value in values.items()],
    }


def _make(config: RunConfig) -> str:
    """Scorer and width, if they mean something for such a model."""
    about = {"scorer": f"scorer `{config.scorer}`", "dim": f"width {config.dim}"}
    words = [text for setting, text in about.items() if setting not in config.unused]
    return f" ({', '.join(words)})" if words else ""


def _body(run: Run, name: str, measured: Evaluation | None) -> str:
    graph, config = run.graph, run.config
    result = _result(run, measured)
    lines = [
        f"# {name}",
        "",
        f"A `{config.model}` model{_make(config)} that completes the knowledge graph "
        f"`{graph.name}`: {graph.num_entities:,} entities, {graph.num_relations:,} relations, "
        f"{len(graph.triples('train')):,} training facts.",
        "",
        "## Use",
        "",
        "```python",
        "import refactorgnn  # pip install refactorgnn",
        "",
        'predictor = refactorgnn.from_pretrained("FOLDER or OWNER/NAME")',
        f"predictor.tails({graph.entities[0]!r}, {graph.relations[0]!r}, k=5)",
        "```",
        "",
        *_needs(run),
        "## What is in the folder",
        "",
        *_contents(run),
        "",
        "## Metrics",
        "",
        *_table(result),
    ]
    return "\n".join(lines) + "\n"


def _needs(run: Run) -> list[str]:
    if not _reads_texts(run):
        return []
    return [
        "The model reads entity texts with a sentence encoder: `pip install 'refactorgnn[text]'` brings it.",
        "",
    ]


def _reads_texts(run: Run) -> bool:
    configs = (
        [member.settings for member in run.config.members] if isinstance(run.config, EnsembleConfig) else [run.config]
    )
    return any("text" in str(getattr(config, "features", "")).split("+") for config in configs)


def _contents(run: Run) -> list[str]:
    return [
        "- `config.json`: the settings, and what is known of the weights (fingerprints, provenance).",
        "- `model.safetensors`: the weights. No file of this folder is a pickle.",
        "- `entities.txt`, `relations.txt`: the names, one JSON string a line, in the order of their ids.",
        "- `graph/`: facts and texts of the training graph as Parquet. Known answers are left out of the answers by "
        "them, and a model of finitely many layers computes the states of the entities from them when it is loaded.",
        "- `calibration.json`, if it is there: the curves that make probabilities of scores.",
    ]


def _table(result: dict[str, Any] | None) -> list[str]:
    if result is None:
        return ["None were measured."]
    rows = [f"| {metric['name']} | {metric['value']:.4f} |" for metric in result["metrics"]]
    return [
        f"On the `{result['dataset']['split']}` split, heads and tails asked for:",
        "",
        "| metric | value |",
        "|---|--:|",
        *rows,
    ]
