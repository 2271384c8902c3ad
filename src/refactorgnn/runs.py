"""The run folder: everything a trained model needs, in files that anyone can open.

    RUN/config.yaml         the settings
    RUN/metrics.jsonl       one line for each epoch
    RUN/graph/              the graph it was trained on, as Parquet
    RUN/model.json          what the weights are: model, sizes, fingerprints of the vocabularies, provenance
    RUN/model.safetensors   the weights that were best on validation
    RUN/last.safetensors    the state of the training, to resume from

Weights are safetensors, never pickles. Each file is replaced in one step, and what belongs together (weights, epoch,
best score so far) is in one file, so a run can be killed at any moment and resumed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.data.loading import load_folder, save_graph
from refactorgnn.errors import FileError
from refactorgnn.models.base import LinkPredictor
from refactorgnn.models.lookup import Lookup
from refactorgnn.provenance import provenance
from refactorgnn.storage import atomic_path, write_text
from refactorgnn.training.config import TrainConfig

FORMAT = "refactorgnn-run-1"


class Run:
    """A run folder on disk.

    Args:
        path: The folder.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @classmethod
    def create(cls, path: str | Path, config: TrainConfig, graph: KnowledgeGraph) -> Run:
        """Start a run in a new or empty folder."""
        run = cls(path)
        if run.path.exists() and (not run.path.is_dir() or any(run.path.iterdir())):
            raise FileError(path, "there is something here already", "choose another --out, or add --resume to go on")
        model = build_model(config, graph)
        save_graph(graph, run.path / "graph", ".parquet")
        run.write_sidecar(config, graph, model)
        write_text(run.path / "metrics.jsonl", "")
        write_text(run.path / "config.yaml", config.to_yaml())  # last: its presence makes the folder a run
        return run

    @classmethod
    def open(cls, path: str | Path) -> Run:
        """Open a run; the folder must hold one."""
        run = cls(path)
        if not run.path.is_dir():
            raise FileError(path, "there is no such run folder", "check the path, or make one with refactorgnn train")
        if not (run.path / "config.yaml").is_file():
            raise FileError(
                path, "this folder holds no run (no config.yaml)", "point at a folder made by refactorgnn train"
            )
        return run

    @cached_property
    def config(self) -> TrainConfig:
        """The settings of the run."""
        return TrainConfig.from_yaml(self.path / "config.yaml")

    @cached_property
    def graph(self) -> KnowledgeGraph:
        """The graph the run was trained on."""
        return load_folder(self.path / "graph", name=self.sidecar["graph"])

    @cached_property
    def sidecar(self) -> dict[str, Any]:
        """What ``model.json`` says of the weights."""
        path = self.path / "model.json"
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise FileError(path, "this is not readable JSON", "restore the file or train again") from error
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise FileError(path, f"this was not written by refactorgnn (no format {FORMAT!r})", "train again")
        return content

    @property
    def weights_path(self) -> Path:
        """Where the best weights are."""
        return self.path / "model.safetensors"

    @property
    def last_path(self) -> Path:
        """Where the state of the training is."""
        return self.path / "last.safetensors"

    def load_model(self, device: str | None = None) -> LinkPredictor:
        """The trained model with its best weights."""
        tensors, _ = load_tensors(self.weights_path)
        model = build_model(self.config, self.graph)
        expected = {name: tensor.shape for name, tensor in model.state_dict().items()}
        found = {name: tensor.shape for name, tensor in tensors.items()}
        if found != expected or self.sidecar["entities_sha256"] != self.graph.entities.sha256:
            raise FileError(
                self.weights_path, "these weights do not belong to this run's settings and graph", "train again"
            )
        model.load_state_dict(tensors)
        return model.to(device or "cpu").eval()

    def write_sidecar(self, config: TrainConfig, graph: KnowledgeGraph, model: LinkPredictor, **more: Any) -> None:
        """Write ``model.json``."""
        content = {
            "format": FORMAT,
            "model": config.model,
            "scorer": config.scorer,
            "dim": config.dim,
            "num_parameters": model.num_parameters,
            "graph": graph.name,
            "num_entities": graph.num_entities,
            "num_relations": graph.num_relations,
            "entities_sha256": graph.entities.sha256,
            "relations_sha256": graph.relations.sha256,
            "trained_with": provenance(config.device),
            **more,
        }
        write_text(self.path / "model.json", json.dumps(content, indent=2, ensure_ascii=False) + "\n")

    def records(self) -> list[dict[str, Any]]:
        """The lines of ``metrics.jsonl``."""
        path = self.path / "metrics.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        return [json.loads(line) for line in lines if line.endswith("}")]  # a kill may have cut the last line

    def append_record(self, record: Mapping[str, Any]) -> None:
        """Add a line to ``metrics.jsonl``."""
        with (self.path / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    def drop_records_after(self, epoch: int) -> None:
        """Forget the epochs that a resumed training will do again."""
        kept = [json.dumps(record) + "\n" for record in self.records() if record["epoch"] <= epoch]
        write_text(self.path / "metrics.jsonl", "".join(kept))


def build_model(config: TrainConfig, graph: KnowledgeGraph) -> LinkPredictor:
    """The untrained model that the settings describe."""
    return Lookup(
        graph.entities,
        graph.relations,
        config.scorer,
        config.dim,
        init_scale=config.init_scale,
        dropout=config.dropout,
        n3=config.n3,
        seed=config.seed,
    )


def save_tensors(path: Path, tensors: Mapping[str, Tensor], **about: Any) -> None:
    """Write tensors, and what is to be known about them, in one step."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with atomic_path(path) as temporary:
        save_file(plain, temporary, metadata={"format": FORMAT, "about": json.dumps(about)})


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what :func:`save_tensors` wrote.

    Raises:
        FileError: if the file is missing, cut short, or not one of ours.
    """
    if not path.is_file():
        raise FileError(path, "the weights are missing", "train again, or wait for the first validation to finish")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT:
                raise FileError(
                    path, f"these weights were not written by refactorgnn (no format {FORMAT!r})", "train again"
                )
            return {name: file.get_tensor(name) for name in file.keys()}, json.loads(metadata["about"])  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        if isinstance(error, FileError):
            raise
        raise FileError(path, "the file is damaged or cut short", "restore it or train again") from error


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimiser's running sums as named tensors."""
    state = optimizer.state_dict()["state"]
    return {f"optimizer.{index}.{key}": value for index, values in state.items() for key, value in values.items()}


def load_optimizer_tensors(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Put back what :func:`optimizer_tensors` took out."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        if name.startswith("optimizer."):
            _, index, key = name.split(".")
            state.setdefault(int(index), {})[key] = tensor
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
