"""The run folder: everything a trained model needs, in files that anyone can open.

    RUN/config.yaml         the settings
    RUN/metrics.jsonl       one line for each epoch
    RUN/graph/              the graph it was trained on, as Parquet
    RUN/model.json          what the weights are: model, sizes, fingerprints of the vocabularies, provenance
    RUN/model.safetensors   the weights that were best on validation
    RUN/last.safetensors    the state of the training, to resume from

Weights are safetensors, never pickles. Each file is replaced in one step, and what belongs together (weights, epoch,
best score so far) is in one file, so a run can be killed at any moment and resumed. Weights carry the fingerprint of
the settings and the graph they come from, so those of another run are refused.

An ensemble of finished runs is a run as well, without ``metrics.jsonl`` and ``last.safetensors``: ``config.yaml`` has
the settings and the weight of each member, ``model.safetensors`` the parameters of all, named ``members.0.…``.

A folder in the layout of the Hugging Face Hub (:mod:`refactorgnn.export.pretrained`) is opened as a run too: its
``config.json`` has what ``config.yaml`` and ``model.json`` say.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.data.loading import load_folder, save_graph
from refactorgnn.devices import usable_device
from refactorgnn.errors import FileError
from refactorgnn.models.base import LinkPredictor
from refactorgnn.models.ensemble import Ensemble
from refactorgnn.models.features import Features
from refactorgnn.provenance import provenance
from refactorgnn.storage import (
    atomic_folder,
    atomic_path,
    leftovers,
    remove_leftovers,
    write_error,
    write_text,
)
from refactorgnn.training.averaging import PREFIX as AVERAGE
from refactorgnn.training.building import build_model
from refactorgnn.training.config import TrainConfig
from refactorgnn.training.ensemble_config import EnsembleConfig, RunConfig, config_from, read_config

FORMAT = "refactorgnn-run-1"
_OPTIMIZER = "optimizer."
_BESIDE_WEIGHTS = (_OPTIMIZER, AVERAGE)
# Settings that say where and how to compute, not what.
CIRCUMSTANCES = {
    "dataset", "accelerator", "devices", "strategy", "log", "threads", "memory_budget_mb", "tf32", "replay",
}  # fmt: skip
_SIDECAR_KEYS = ("model", "scorer", "dim", "graph", "notes", "entities_sha256", "relations_sha256", "fingerprint")


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
        run.check_vacant()
        sidecar = _describe(config, graph, build_model(config, graph)) | {"trained_with": provenance()}
        with atomic_folder(run.path) as draft:
            save_graph(graph, draft / "graph", ".parquet")
            write_text(draft / "model.json", _to_json(sidecar))
            write_text(draft / "metrics.jsonl", "")
            write_text(draft / "config.yaml", config.to_yaml())
        remove_leftovers(run.path)
        vars(run)["graph"] = graph  # to read it again would give the same
        return run

    @classmethod
    def create_ensemble(
        cls, path: str | Path, config: EnsembleConfig, graph: KnowledgeGraph, model: Ensemble, **about: Any
    ) -> Run:
        """Write a finished ensemble to a new or empty folder, with what is to be known ``about`` it in ``model.json``.

        The weights of all members are in the one file: the runs they come from are not needed any more.
        """
        run = cls(path)
        run.check_vacant(can_resume=False)
        sidecar = _describe(config, graph, model) | {"weights": config.weights} | about
        with atomic_folder(run.path) as draft:
            save_graph(graph, draft / "graph", ".parquet")
            save_tensors(draft / "model.safetensors", model.state_dict(), fingerprint=sidecar["fingerprint"])
            write_text(draft / "model.json", _to_json(sidecar))
            write_text(draft / "config.yaml", config.to_yaml())
        remove_leftovers(run.path)
        return run

    def check_vacant(self, *, can_resume: bool = True) -> None:
        """Refuse a place where something is already, other than what a killed process left."""
        if self.path.is_dir() and not set(self.path.iterdir()) - set(leftovers(self.path)):
            return
        if self.path.exists():
            is_run = (self.path / "config.yaml").is_file()
            resume = ", or add --resume to go on with it" if is_run and can_resume else ""
            remedy = f"choose another --out{resume}"
            raise FileError(self.path, f"there is {'a run' if is_run else 'something'} here already", remedy)

    @classmethod
    def open(cls, path: str | Path) -> Run:
        """Open a run; the folder must hold one."""
        run = cls(path)
        if not run.path.is_dir():
            raise FileError(path, "there is no such run folder", "check the path, or make one with refactorgnn train")
        if (run.path / "config.json").is_file() and not (run.path / "config.yaml").exists():
            return PretrainedRun(path)
        if not (run.path / "config.yaml").is_file():
            raise FileError(
                path, "this folder holds no run (no config.yaml)", "point at a folder made by refactorgnn train"
            )
        return run

    @cached_property
    def config(self) -> RunConfig:
        """The settings of the run: of a training, or of an ensemble of finished ones."""
        return read_config(self.path / "config.yaml")

    def replace_config(self, config: TrainConfig) -> None:
        """Go on with other circumstances: another device, other logs."""
        if config != self.config:
            write_text(self.path / "config.yaml", config.to_yaml())
            self.config = config

    @property
    def train_config(self) -> TrainConfig:
        """The settings of the training."""
        if isinstance(self.config, EnsembleConfig):
            raise FileError(self.path, "this run is an ensemble, which is not trained itself", "choose another run")
        return self.config

    @cached_property
    def graph(self) -> KnowledgeGraph:
        """The graph the run was trained on."""
        graph = load_folder(self.path / "graph", name=self.sidecar["graph"])
        return replace(graph, notes=tuple(self.sidecar["notes"]))

    @cached_property
    def sidecar(self) -> dict[str, Any]:
        """What ``model.json`` says of the weights."""
        path = self.path / "model.json"
        return _checked_sidecar(path, _read_json(path))

    @property
    def is_finished(self) -> bool:
        """Whether the training has come to its end."""
        return "best_epoch" in self.sidecar

    def update_sidecar(self, **more: Any) -> None:
        """Add to ``model.json``."""
        self.sidecar.update(more)
        write_text(self.path / "model.json", _to_json(self.sidecar))

    @property
    def weights_path(self) -> Path:
        """Where the best weights are."""
        return self.path / "model.safetensors"

    @property
    def last_path(self) -> Path:
        """Where the state of the training is."""
        return self.path / "last.safetensors"

    def load_model(self, device: str = "cpu") -> LinkPredictor:
        """The trained model with its best weights, on a device."""
        place = usable_device(device)
        model = build_model(self.config, self.graph)
        tensors, _ = self.load_tensors(self.weights_path, model)
        model.load_state_dict(tensors)
        return model.to(place).eval()

    def save_tensors(self, path: Path, tensors: Mapping[str, Tensor], **about: Any) -> None:
        """Write weights of this run, and what is to be known about them."""
        save_tensors(path, tensors, fingerprint=self.sidecar["fingerprint"], **about)

    def load_tensors(self, path: Path, model: LinkPredictor) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Read what :meth:`save_tensors` wrote, once it is certain that it belongs to this run and fits ``model``."""
        self._check_consistent()
        tensors, about = load_tensors(path)
        expected = {name: tensor.shape for name, tensor in model.state_dict().items()}
        found = {name: tensor.shape for name, tensor in tensors.items() if not name.startswith(_BESIDE_WEIGHTS)}
        if about.pop("fingerprint", None) != self.sidecar["fingerprint"] or found != expected:
            raise FileError(
                path, "these weights do not belong to this run's settings and graph", "restore the file or train again"
            )
        return tensors, about

    def _check_consistent(self) -> None:
        """Refuse settings or a graph that were changed after the training had begun."""
        extra = ("weights",) if isinstance(self.config, EnsembleConfig) else ()
        for key in ("model", "scorer", "dim", *extra):
            now, then = getattr(self.config, key), self.sidecar.get(key)
            if now != then:
                problem = f"{key} is {now!r}, but the run was trained with {then!r}"
                raise FileError(self.path / "config.yaml", problem, "put it back or train again")
        for vocabulary in (self.graph.entities, self.graph.relations):
            plural = {"entity": "entities", "relation": "relations"}[vocabulary.kind]
            if self.sidecar[f"{plural}_sha256"] != vocabulary.sha256:
                problem = f"its {plural} are not those the run was trained on"
                raise FileError(self.path / "graph", problem, "restore the folder or train again")

    def records(self) -> list[dict[str, Any]]:
        """The lines of ``metrics.jsonl``."""
        path = self.path / "metrics.jsonl"
        try:
            lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
            return [json.loads(line) for line in lines if line.endswith("}")]  # a kill may have cut the last line
        except ValueError as error:
            raise FileError(path, "this is not readable JSON", "mend or delete the file") from error

    def append_record(self, record: Mapping[str, Any]) -> None:
        """Add a line to ``metrics.jsonl``."""
        path = self.path / "metrics.jsonl"
        try:
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
        except OSError as error:
            raise write_error(path, error) from error

    def drop_records_after(self, epoch: int) -> None:
        """Forget the epochs that a resumed training will do again."""
        kept = [json.dumps(record) + "\n" for record in self.records() if record["epoch"] <= epoch]
        write_text(self.path / "metrics.jsonl", "".join(kept))


class PretrainedRun(Run):
    """A run in the layout of the Hugging Face Hub: settings and what is known of the weights are in ``config.json``."""

    @cached_property
    def _content(self) -> dict[str, Any]:
        path = self.path / "config.json"
        content = _read_json(path)
        if not isinstance(content, dict) or not all(isinstance(content.get(key), dict) for key in ("settings", "run")):
            raise FileError(path, "this was not written by refactorgnn (no settings, no run)", "choose another folder")
        return content

    @cached_property
    def config(self) -> RunConfig:
        """The settings of the run."""
        return config_from(self._content["settings"], self.path / "config.json")

    @cached_property
    def sidecar(self) -> dict[str, Any]:
        """What is known of the weights."""
        return _checked_sidecar(self.path / "config.json", self._content["run"])


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FileError(path, "this is not readable JSON", "restore the file or train again") from error


def _checked_sidecar(path: Path, content: Any) -> dict[str, Any]:
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise FileError(path, f"this was not written by refactorgnn (no format {FORMAT!r})", "train again")
    for key in _SIDECAR_KEYS:
        if key not in content:
            raise FileError(path, f"the entry {key!r} is missing", "restore the file or train again")
    return content


def _describe(config: RunConfig, graph: KnowledgeGraph, model: LinkPredictor) -> dict[str, Any]:
    """What ``model.json`` says of a model before it is trained."""
    features = getattr(model, "features", None)
    return {
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
        "fingerprint": _fingerprint(config, graph),
        "notes": list(graph.notes),
        "features": features.provenance() if isinstance(features, Features) else None,
    }


def _fingerprint(config: RunConfig, graph: KnowledgeGraph) -> str:
    """What the weights are the outcome of: settings, names and training triples, wherever they lie or are computed."""
    if isinstance(config, EnsembleConfig):
        members = [(member.weight, _fingerprint(member.settings, graph)) for member in config.members]
        return hashlib.sha256(json.dumps(members).encode()).hexdigest()
    settings = config.model_dump(exclude=CIRCUMSTANCES)
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    digest.update((graph.entities.sha256 + graph.relations.sha256).encode())
    digest.update(graph.triples("train").numpy().tobytes())
    return digest.hexdigest()


def _to_json(content: Mapping[str, Any]) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def save_tensors(path: Path, tensors: Mapping[str, Tensor], **about: Any) -> None:
    """Write tensors, and what is to be known about them, in one step."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with atomic_path(path) as temporary:
        try:
            # One entry only: safetensors writes several in an order that changes from process to process.
            save_file(plain, temporary, metadata={FORMAT: json.dumps(about)})
        except SafetensorError as error:  # it wraps the system's errors, such as that of a full disk
            code = re.search(r"(?:os error|code:) (\d+)", str(error))
            number = int(code[1]) if code else errno.EIO
            raise OSError(number, os.strerror(number)) from error


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
            if FORMAT not in metadata:
                raise FileError(
                    path, f"these weights were not written by refactorgnn (no entry {FORMAT!r})", "train again"
                )
            return {name: file.get_tensor(name) for name in file.keys()}, json.loads(metadata[FORMAT])  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        if isinstance(error, FileError):
            raise
        raise FileError(path, "the file is damaged or cut short", "restore it or train again") from error


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimiser's running sums as named tensors."""
    state = optimizer.state_dict()["state"]
    return {f"{_OPTIMIZER}{index}.{key}": value for index, values in state.items() for key, value in values.items()}


def load_optimizer_tensors(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Put back what :func:`optimizer_tensors` took out."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        if name.startswith(_OPTIMIZER):
            index, key = name.removeprefix(_OPTIMIZER).split(".")
            state.setdefault(int(index), {})[key] = tensor
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
