"""Conversions to and from the graph types of PyTorch Geometric and PyKEEN."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.data.vocabulary import Vocabulary
from refactorgnn.errors import UserError

if TYPE_CHECKING:  # both are slow to import, and few callers need them
    from pykeen.triples import TriplesFactory
    from torch_geometric.data import Data


def to_pyg(graph: KnowledgeGraph, split: str = "train", *, reciprocals: bool = False) -> Data:
    """A split as PyG ``Data`` with ``edge_index`` (``[heads, tails]``), ``edge_type`` and ``num_nodes``."""
    from torch_geometric.data import Data

    triples = graph.triples(split)
    if reciprocals:
        triples = graph.with_reciprocals(triples)
    edge_index, edge_type = to_edges(triples)
    return Data(edge_index=edge_index, edge_type=edge_type, num_nodes=graph.num_entities)


def from_pyg(
    data: Data,
    name: str = "graph",
    entities: Sequence[str] | None = None,
    relations: Sequence[str] | None = None,
) -> KnowledgeGraph:
    """PyG ``Data`` with ``edge_index`` and ``edge_type`` as a graph with one split, ``train``.

    Names default to the ids written in digits, zero-padded so that they sort as numbers.
    """
    if data.edge_index is None or data.get("edge_type") is None:
        raise UserError("this Data has no edge_index or no edge_type: set both, one relation id for each edge.")
    triples = from_edges(data.edge_index, data.edge_type)
    num_relations = int(data.edge_type.max()) + 1 if len(triples) else 0
    return KnowledgeGraph(
        name,
        Vocabulary(entities or _numbered(int(data.num_nodes or 0)), "entity"),
        Vocabulary(relations or _numbered(num_relations), "relation"),
        {"train": triples},
    )


def to_edges(triples: Tensor) -> tuple[Tensor, Tensor]:
    """``(edge_index, edge_type)`` of triples: ``edge_index[0]`` are the heads, ``edge_index[1]`` the tails."""
    return triples[:, [0, 2]].t().contiguous(), triples[:, 1].contiguous()


def from_edges(edge_index: Tensor, edge_type: Tensor) -> Tensor:
    """Triples of shape ``(num_edges, 3)`` from ``edge_index`` and ``edge_type``."""
    if edge_index.dim() != 2 or edge_index.shape[0] != 2 or edge_type.shape != edge_index.shape[1:]:
        raise UserError(
            f"edge_index of shape {tuple(edge_index.shape)} and edge_type of shape {tuple(edge_type.shape)} "
            "do not fit: they must be (2, num_edges) and (num_edges,)."
        )
    return torch.stack([edge_index[0], edge_type, edge_index[1]], dim=1)


def to_pykeen(graph: KnowledgeGraph, split: str = "train") -> TriplesFactory:
    """A split as a PyKEEN ``TriplesFactory`` with this graph's ids and names (needs the extra ``pykeen``)."""
    try:
        from pykeen.triples import TriplesFactory
    except ImportError as error:
        raise UserError("PyKEEN is not installed: pip install 'refactorgnn[pykeen]'.") from error
    return TriplesFactory(
        mapped_triples=graph.triples(split),
        entity_to_id={name: index for index, name in enumerate(graph.entities)},
        relation_to_id={name: index for index, name in enumerate(graph.relations)},
    )


def from_pykeen(name: str = "graph", **splits: TriplesFactory) -> KnowledgeGraph:
    """A graph from PyKEEN factories over one vocabulary: ``from_pykeen("umls", train=…, valid=…, test=…)``."""
    factories = list(splits.values())
    if not factories:
        raise UserError("no TriplesFactory was given: pass at least train=….")
    first = factories[0]
    if any(f.entity_to_id != first.entity_to_id or f.relation_to_id != first.relation_to_id for f in factories):
        raise UserError("these factories number their entities differently: build them over one vocabulary.")
    return KnowledgeGraph(
        name,
        Vocabulary(_in_id_order(first.entity_to_id), "entity"),
        Vocabulary(_in_id_order(first.relation_to_id), "relation"),
        {split: factory.mapped_triples.to(torch.int64) for split, factory in splits.items()},
    )


def _numbered(count: int) -> list[str]:
    width = len(str(max(0, count - 1)))
    return [f"{index:0{width}d}" for index in range(count)]


def _in_id_order(ids: Mapping[str, int]) -> list[str]:
    return sorted(ids, key=ids.__getitem__)
