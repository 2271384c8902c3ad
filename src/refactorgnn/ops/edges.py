"""Directed edges with types, and the orders that aggregation wants them in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from refactorgnn.ops.sparse import SparsePattern

# A target takes as much room as so many edges.
TARGET_SIZE = 2


@dataclass(frozen=True)
class TypedEdges:
    """Directed edges with types, sorted by target.

    Args:
        sources: Shape ``(num_edges,)``.
        types: Shape ``(num_edges,)``.
        targets: Shape ``(num_edges,)``, ascending.
        num_nodes: Sources and targets are below it.
        num_types: Types are below it.
    """

    sources: Tensor
    types: Tensor
    targets: Tensor
    num_nodes: int
    num_types: int

    @classmethod
    def sort(cls, sources: Tensor, types: Tensor, targets: Tensor, num_nodes: int, num_types: int) -> TypedEdges:
        """Edges given in any order."""
        order = torch.argsort(targets, stable=True)
        return cls(sources[order], types[order], targets[order], num_nodes, num_types)

    @property
    def num_edges(self) -> int:
        """The number of edges."""
        return self.sources.numel()

    @cached_property
    def degrees(self) -> Tensor:
        """The number of edges that end at each node; shape ``(num_nodes,)``."""
        return torch.bincount(self.targets, minlength=self.num_nodes)

    @cached_property
    def incoming(self) -> SparsePattern:
        """The sources of the edges that end at each node."""
        return SparsePattern.from_counts(self.degrees, self.sources, self.num_nodes)

    @cached_property
    def arriving(self) -> SparsePattern:
        """The edges that end at each node."""
        edges = torch.arange(self.num_edges, device=self.targets.device)
        return SparsePattern(self.incoming.offsets, edges, self.num_edges)

    @cached_property
    def outgoing(self) -> SparsePattern:
        """The edges that begin at each node."""
        order = torch.argsort(self.sources, stable=True)
        return SparsePattern.from_rows(self.sources[order], order, self.num_nodes, self.num_edges)

    @cached_property
    def most_degree(self) -> int:
        """The largest of the degrees; read once, for to read from a GPU is to wait for it."""
        return int(self.degrees.max())

    def keep(self, kept: Tensor) -> TypedEdges:
        """The edges that a mask of shape ``(num_edges,)`` keeps."""
        parts = self.sources[kept], self.types[kept], self.targets[kept]
        return TypedEdges(*parts, self.num_nodes, self.num_types)

    @cached_property
    def by_degree(self) -> list[tuple[Tensor, Tensor]]:
        """For each degree, ``(targets, edges)`` of shapes ``(num_targets,)`` and ``(num_targets, degree)``."""
        order = torch.argsort(self.degrees, stable=True)
        degrees, counts = torch.unique_consecutive(self.degrees[order], return_counts=True)
        groups = zip(degrees.tolist(), order.split(counts.tolist()), strict=True)
        steps = torch.arange(self.most_degree, device=order.device)
        return [(targets, self.incoming.offsets[targets, None] + steps[:degree]) for degree, targets in groups]

    def chunks(self, most_edges: int) -> Iterator[tuple[Tensor, Tensor]]:
        """As ``by_degree``, cut where targets and edges take more than ``most_edges`` do, or at each target."""
        for targets, edges in self.by_degree:
            length = max(1, most_edges // (edges.shape[1] + TARGET_SIZE))
            yield from zip(targets.split(length), edges.split(length), strict=True)
