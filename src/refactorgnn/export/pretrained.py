"""A model in the layout of the Hugging Face Hub: :func:`save_pretrained`, :func:`from_pretrained`.

    FOLDER/README.md            the model card, its metrics in the Hub's ``model-index``
    FOLDER/config.json          the settings, and what is known of the weights
    FOLDER/model.safetensors    the weights, byte for byte those of the run
    FOLDER/entities.txt         the entity names, one JSON string a line, in the order of their ids
    FOLDER/relations.txt        the relation names likewise
    FOLDER/graph/               the facts and texts, as Parquet: a model of finite depth computes its states from them
    FOLDER/calibration.json     what makes probabilities of scores, where the run can tell

The folder holds no pickle and needs no server, no network and no run: the library opens it like a run folder, computes
what the run computes from the same bytes, and so gives the same scores bit for bit on the same machine.
"""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
from pathlib import Path
from typing import Any

from refactorgnn.data.loading import save_graph
from refactorgnn.data.vocabulary import Vocabulary
from refactorgnn.errors import FileError, UserError
from refactorgnn.evaluation.protocols import Evaluation, evaluate_ranking
from refactorgnn.export.model_card import model_card
from refactorgnn.predict.calibration import FILE as CALIBRATION
from refactorgnn.predict.predictor import Predictor
from refactorgnn.runs import PretrainedRun, Run
from refactorgnn.storage import atomic_folder, write_text
from refactorgnn.training.ensemble_config import EnsembleConfig

# A name on the Hub: OWNER/NAME.
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")


def save_pretrained(
    run: str | Path | Run,
    folder: str | Path,
    *,
    measure: bool = True,
    licence: str | None = None,
    progress: bool = False,
) -> Path:
    """Write a trained run as a folder that can be put on the Hugging Face Hub, and loaded without it.

    Args:
        run: The run, or its folder.
        folder: A new or empty folder.
        measure: Measure the model on the test split (on valid if there is none) for the card; else the card has what
            the training found on validation.
        licence: The licence of the model as the Hub writes it (``"mit"``, ``"cc-by-4.0"``), if it is known.
        progress: Show a bar while measuring.

    Returns:
        The folder.

    Example:
        >>> import refactorgnn
        >>> run = refactorgnn.train("countries", dim=32, epochs=3, out="runs/for-the-hub")
        >>> folder = refactorgnn.save_pretrained(run, "countries-distmult", measure=False)
        >>> sorted(path.name for path in folder.iterdir())[:3]
        ['README.md', 'calibration.json', 'config.json']
        >>> len(refactorgnn.from_pretrained(folder).tails("France", "borders", k=3))
        3
    """
    run = run if isinstance(run, Run) else Run.open(run)
    folder = Path(folder)
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise FileError(folder, "there is something here already", "choose a new folder, nothing is overwritten")
    predictor = Predictor.load(run, index="exact")  # refuses what is damaged before anything is written
    calibration = predictor.calibration
    measured = _measure(predictor, progress) if measure else None
    with atomic_folder(folder) as draft:
        save_graph(run.graph, draft / "graph", ".parquet")
        shutil.copyfile(run.weights_path, draft / "model.safetensors")
        write_text(draft / "config.json", json.dumps(_config(run), indent=2, ensure_ascii=False) + "\n")
        for name, names in (("entities", run.graph.entities), ("relations", run.graph.relations)):
            _write_names(draft / f"{name}.txt", names)
        if calibration is not None and (run.path / CALIBRATION).is_file():
            shutil.copyfile(run.path / CALIBRATION, draft / CALIBRATION)
        card = model_card(run, name=folder.resolve().name, measured=measured, licence=licence)
        write_text(draft / "README.md", card)
    return folder


def from_pretrained(source: str | Path, *, device: str = "cpu", index: str = "auto") -> Predictor:
    """What :func:`save_pretrained` wrote, ready to be asked; its ``model`` and ``graph`` are attributes.

    Args:
        source: The folder; or the name ``OWNER/NAME`` of a model on the Hugging Face Hub, which is downloaded (extra
            ``hub``). A folder of that name is preferred.
        device: Where to compute.
        index: As in :meth:`Predictor.load`.
    """
    folder = Path(source)
    if not folder.is_dir():
        folder = _download(str(source))
    run = Run.open(folder)
    if not isinstance(run, PretrainedRun):
        raise FileError(folder, "this is a run folder, not an exported model", "open it with Predictor.load")
    return Predictor.load(run, device, index=index)


def _download(name: str) -> Path:
    if not _HUB_NAME.fullmatch(name):
        raise FileError(name, "there is no such folder", "check the path, or give OWNER/NAME of a model on the Hub")
    if importlib.util.find_spec("huggingface_hub") is None:
        raise UserError(
            f"there is no folder {name!r}, and to download it from the Hub huggingface_hub is needed, which is not "
            "installed: check the path, or pip install 'refactorgnn[hub]'."
        )
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name))
    except (OSError, ValueError) as error:  # what its own errors, and those of the connection, derive from
        reason = str(error).strip().splitlines()[0].rstrip(".") if str(error).strip() else type(error).__name__
        raise UserError(
            f"model {name!r} could not be downloaded ({reason}): check the name and the network."
        ) from error


def _measure(predictor: Predictor, progress: bool) -> Evaluation | None:
    splits = predictor.graph.splits
    split = next((name for name in ("test", "valid") if name in splits and len(splits[name])), None)
    if split is None:
        return None
    return evaluate_ranking(predictor.bound, predictor.graph, split, confidence=False, progress=progress)


def _config(run: Run) -> dict[str, Any]:
    """Settings without the folders of one machine: neither the graph nor members are looked for there again."""
    settings = run.config.model_dump(mode="json")
    if isinstance(run.config, EnsembleConfig):
        for member in settings["members"]:
            member["run"] = Path(member["run"]).name
            member["settings"]["dataset"] = run.graph.name
    else:
        settings["dataset"] = run.graph.name
    return {"library_name": "refactorgnn", "model_type": run.config.model, "settings": settings, "run": run.sidecar}


def _write_names(path: Path, names: Vocabulary) -> None:
    """One JSON string a line, for a name may hold any character."""
    write_text(path, "".join(json.dumps(name, ensure_ascii=False) + "\n" for name in names))
