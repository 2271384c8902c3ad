"""Node features ``X``: what the states of entities start from, on any graph.

``random`` draws them, ``text`` reads them off the entities' texts, ``signature`` counts the relations around an entity,
``learned`` has a table of them; a sum of these is written with ``+``. All but ``learned`` are inductive: they say
something of an entity that was never seen.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, cast

import pyarrow as pa
import torch
from torch import Tensor, nn

from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.data.queries import QueryIndex
from refactorgnn.data.vocabulary import Vocabulary
from refactorgnn.errors import joined_names
from refactorgnn.models.lookup import known_entity_ids
from refactorgnn.seeds import PROJECTION, SIGNATURE, TABLE, combined_seed

FEATURES = ("random", "text", "signature", "learned")
RANDOM_SCALE = 1e-3


class Features(nn.Module, ABC):
    """A way to give every entity of a graph its first state."""

    @abstractmethod
    def forward(self, graph: KnowledgeGraph, queries: QueryIndex, draw: int | None = 0) -> Tensor:
        """The features of all entities; shape ``(num_entities, dim)``.

        Args:
            graph: The graph.
            queries: The facts that may be used, reciprocals included.
            draw: Which random draw, where there is randomness: the same on every device. None, in training: a new one,
                from torch's default generator of the device.
        """

    def rows(self, graph: KnowledgeGraph, queries: QueryIndex, entities: Tensor, draw: int = 0) -> Tensor:
        """The features of ``entities`` alone, equal to those rows of the whole; shape ``(len(entities), dim)``."""
        rows: Tensor = self(graph, queries, draw)[entities]
        return rows

    @abstractmethod
    def provenance(self) -> dict[str, Any]:
        """What these features are, for records."""


class RandomFeatures(Features):
    """Gaussian noise.

    Args:
        dim: The width.
        scale: The standard deviation. Where it is small, the first step of a ReFactor GNN takes its direction from the
            graph alone; a layer whose output is as small as its input learns next to nothing from it.
        seed: The seed, together with the number of the draw.
    """

    def __init__(self, dim: int, scale: float = RANDOM_SCALE, seed: int = 0) -> None:
        super().__init__()
        self.dim, self.scale, self.seed = dim, scale, seed
        self._held: dict[int, Tensor] = {}

    def forward(self, graph: KnowledgeGraph, queries: QueryIndex, draw: int | None = 0) -> Tensor:  # noqa: D102
        shape, device = (queries.num_entities, self.dim), queries.subjects.device
        if draw is None:
            return self.scale * torch.randn(shape, device=device)
        held = self._held.get(draw)
        if held is not None and held.shape == shape and held.device == device:
            return held
        generator = torch.Generator().manual_seed(combined_seed(self.seed, draw))
        return self.scale * torch.randn(shape, generator=generator).to(device)

    def hold(self, graph: KnowledgeGraph, queries: QueryIndex, draws: Iterable[int]) -> None:
        """Keep these draws for the entities of ``graph``: whoever asks for them after every epoch need not wait."""
        self._held = {draw: self(graph, queries, draw) for draw in draws}

    def provenance(self) -> dict[str, Any]:  # noqa: D102
        return {"random": {"scale": self.scale, "seed": self.seed}}


class SignatureFeatures(Features):
    """``log(1 + number of edges of each relation) @ W``, with ``W`` learned: no text needed, and still inductive.

    Args:
        num_relations: The number of relations, reciprocals included.
        dim: The width.
        scale: The standard deviation of the initial ``W``.
        seed: The seed of ``W``.
    """

    def __init__(self, num_relations: int, dim: int, scale: float = 0.1, seed: int = 0) -> None:
        super().__init__()
        self.scale = scale
        generator = torch.Generator().manual_seed(combined_seed(seed, SIGNATURE))
        self.weight = nn.Parameter(scale * torch.randn(num_relations, dim, generator=generator))

    def forward(self, graph: KnowledgeGraph, queries: QueryIndex, draw: int | None = 0) -> Tensor:  # noqa: D102
        counts = self.weight.new_zeros(queries.num_entities, queries.num_relations)
        # No two queries have the same subject and relation, so nothing is summed.
        counts.index_put_((queries.subjects, queries.relations), queries.counts.to(counts.dtype))
        return _product(counts.log1p(), self.weight)

    def rows(self, graph: KnowledgeGraph, queries: QueryIndex, entities: Tensor, draw: int = 0) -> Tensor:  # noqa: D102
        own = queries.by_subject.take_rows(entities)
        counts = self.weight.new_zeros(len(entities), queries.num_relations)
        edges = queries.counts[own.columns].to(counts.dtype)
        counts.index_put_((own.rows, queries.relations[own.columns]), edges)
        return _product(counts.log1p(), self.weight)

    def provenance(self) -> dict[str, Any]:  # noqa: D102
        return {"signature": {"num_relations": self.weight.shape[0], "initial_scale": self.scale}}


class TextFeatures(Features):
    """The texts of the entities, encoded by a sentence encoder; a learned projection where the widths differ.

    Args:
        dim: The width.
        graph: A graph whose texts tell the encoder's width; they are encoded once and cached.
        encoder: The name or folder of a sentence-transformers model, the bundled one if not given.
        seed: The seed of the projection.
    """

    def __init__(self, dim: int, graph: KnowledgeGraph, encoder: str | None = None, seed: int = 0) -> None:
        super().__init__()
        self.encoder = encoder
        self._encoded: dict[str, tuple[pa.Table | None, Tensor]] = {}
        self._about: dict[str, Any] = {}
        width = self._matrix(graph, torch.device("cpu")).shape[1]
        self.projection: nn.Parameter | None = None
        if width != dim:
            generator = torch.Generator().manual_seed(combined_seed(seed, PROJECTION))
            self.projection = nn.Parameter(torch.randn(width, dim, generator=generator) / width**0.5)

    def forward(self, graph: KnowledgeGraph, queries: QueryIndex, draw: int | None = 0) -> Tensor:  # noqa: D102
        return self._projected(self._matrix(graph, queries.subjects.device))

    def rows(self, graph: KnowledgeGraph, queries: QueryIndex, entities: Tensor, draw: int = 0) -> Tensor:  # noqa: D102
        from refactorgnn.data.text_features import encode_texts

        return self._projected(encode_texts(graph.only(entities), self.encoder).matrix.to(entities.device))

    def _projected(self, matrix: Tensor) -> Tensor:
        return matrix if self.projection is None else _product(matrix, self.projection)

    def provenance(self) -> dict[str, Any]:  # noqa: D102
        return {"text": self._about}

    def _matrix(self, graph: KnowledgeGraph, device: torch.device) -> Tensor:
        """The encoded texts, kept where they were last needed."""
        texts, matrix = self._encoded.get(graph.entities.sha256, (None, None))
        if matrix is None or not (texts is graph.texts or (texts and graph.texts and texts.equals(graph.texts))):
            from refactorgnn.data.text_features import encode_texts

            encoded = encode_texts(graph, self.encoder)
            matrix = encoded.matrix
            self._about = {**encoded.provenance, "num_without_text": encoded.num_without_text}
        matrix = matrix.to(device)
        self._encoded[graph.entities.sha256] = graph.texts, matrix
        return matrix


class LearnedFeatures(Features):
    """A table with a learned row for each entity, for the graph that it was learned on and no other.

    It makes of a message-passing model what the papers of R-GCN and its kin evaluate on one graph: embeddings of
    entities that are learned together with the layers above them.

    Args:
        entities: The entities to learn.
        dim: The width.
        scale: The standard deviation of the initial table.
        seed: The seed of the initial table.
    """

    def __init__(self, entities: Vocabulary, dim: int, scale: float = 1.0, seed: int = 0) -> None:
        super().__init__()
        self.entity_names, self.scale = entities, scale
        generator = torch.Generator().manual_seed(combined_seed(seed, TABLE))
        self.table = nn.Parameter(scale * torch.randn(len(entities), dim, generator=generator))

    def forward(self, graph: KnowledgeGraph, queries: QueryIndex, draw: int | None = 0) -> Tensor:  # noqa: D102
        if graph.entities is self.entity_names:
            return self.table
        return self.table[known_entity_ids(self.entity_names, graph, "a model with learned features")]

    def provenance(self) -> dict[str, Any]:  # noqa: D102
        return {"learned": {"num_entities": len(self.entity_names), "initial_scale": self.scale}}


class SumOfFeatures(Features):
    """The sum of several features."""

    def __init__(self, parts: Sequence[Features]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, graph: KnowledgeGraph, queries: QueryIndex, draw: int | None = 0) -> Tensor:  # noqa: D102
        return torch.stack([part(graph, queries, draw) for part in self.parts]).sum(0)

    def rows(self, graph: KnowledgeGraph, queries: QueryIndex, entities: Tensor, draw: int = 0) -> Tensor:  # noqa: D102
        parts = (cast(Features, part) for part in self.parts)
        return torch.stack([part.rows(graph, queries, entities, draw) for part in parts]).sum(0)

    def provenance(self) -> dict[str, Any]:  # noqa: D102
        return {name: about for part in self.parts for name, about in part.provenance().items()}  # type: ignore[operator]


def _product(left: Tensor, right: Tensor) -> Tensor:
    """``left @ right``, kept from autocast: what states start from is no product of scores."""
    with torch.autocast(left.device.type, enabled=False):
        return left @ right


def feature_names(names: str) -> list[str]:
    """The names joined in ``names``, once it is certain that each is known and named once."""
    return joined_names("features", names.split("+"), FEATURES)


def make_features(
    names: str,
    dim: int,
    graph: KnowledgeGraph,
    *,
    encoder: str | None = None,
    scale: float = RANDOM_SCALE,
    seed: int = 0,
) -> Features:
    """The features of a name such as ``"text"`` or ``"signature+random"``.

    Args:
        names: Names joined with ``+``.
        dim: The width.
        graph: The graph to train on.
        encoder: The name or folder of the sentence encoder of ``text``, the bundled one if not given.
        scale: The standard deviation of ``random``, and of the initial table of ``learned``.
        seed: The seed.
    """
    parts: list[Features] = []
    for name in feature_names(names):
        if name == "random":
            parts.append(RandomFeatures(dim, scale, seed))
        elif name == "signature":
            parts.append(SignatureFeatures(2 * graph.num_relations, dim, seed=seed))
        elif name == "learned":
            parts.append(LearnedFeatures(graph.entities, dim, scale, seed))
        else:
            parts.append(TextFeatures(dim, graph, encoder, seed=seed))
    return parts[0] if len(parts) == 1 else SumOfFeatures(parts)
