r"""The layer of a GAT that reads edge types, with no message stored.

PyG's ``GATConv`` makes of each edge its type's and its source's numbers, ``dim`` of each, and sorts out self-loops
anew in every call, for which a GPU waits. Here a type comes to one number for each head, the edges of a graph are put
in order once, and the sum over them is a product with a sparse matrix, whose rows are the heads of the targets and
whose columns are those of the sources. What is kept is one number for each edge and head.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import leaky_relu
from torch_geometric.nn import GATConv
from torch_geometric.utils import softmax

from refactorgnn.data.queries import QueryIndex
from refactorgnn.ops.sparse import SparsePattern, sum_neighbours


@dataclass(frozen=True)
class AttendedEdges:
    """The edges of a graph, a loop at every entity in place of the facts ``(s, r, s)``, head by head.

    Args:
        by_head: Row ``target * heads + k`` holds ``source * heads + k`` for each edge.
        kinds: The type of each of these, ``type * heads + k``; a loop's type is ``num_types + entity``.
        heard: Row ``s`` holds the types of the edges that reach ``s`` from others.
    """

    by_head: SparsePattern
    kinds: Tensor
    heard: SparsePattern

    @classmethod
    def of(cls, queries: QueryIndex, heads: int) -> AttendedEdges:
        """Those of an index, found once: ``(s, r, o)`` is an edge of type ``r`` from ``o`` to ``s``."""
        return queries.answers.remembered(("attended", heads), lambda: cls._find(queries, heads))

    @classmethod
    def _find(cls, queries: QueryIndex, heads: int) -> AttendedEdges:
        targets, types, sources = queries.facts
        is_kept = sources != targets
        targets, types, sources = targets[is_kept], types[is_kept], sources[is_kept]
        num_entities = queries.num_entities
        entities = torch.arange(num_entities, device=targets.device)
        heard = SparsePattern.from_rows(targets, types, num_entities, queries.num_relations)
        order = torch.argsort(torch.cat([targets, entities]), stable=True)
        sources = torch.cat([sources, entities])[order]
        types = torch.cat([types, queries.num_relations + entities])[order]
        incoming = SparsePattern.from_counts(heard.counts + 1, sources, num_entities)
        edges = incoming.take_edges(entities.repeat_interleave(heads))
        of_head = edges.rows % heads
        columns = sources[edges.columns] * heads + of_head
        by_head = SparsePattern(edges.offsets, columns, num_entities * heads)
        return cls(by_head, types[edges.columns] * heads + of_head, heard)


def attend(layer: GATConv, states: Tensor, queries: QueryIndex, types: Tensor) -> Tensor:
    """What ``layer`` makes of ``states``: equal to a call of it, in another order of the sums.

    Args:
        layer: It has the weights.
        states: Shape ``(num_entities, dim)``.
        queries: The facts that carry messages.
        types: What the layer is told of each relation; shape ``(num_relations, edge_dim)``.

    Returns:
        Shape ``(num_entities, dim)``.
    """
    assert queries.weights is None, "all facts count once"
    heads, width = layer.heads, layer.out_channels
    edges = AttendedEdges.of(queries, heads)
    values = layer.lin(states).view(-1, heads, width)
    of_source, of_target = ((values * weights).sum(-1) for weights in (layer.att_src, layer.att_dst))
    of_type = (layer.lin_edge(types).view(-1, heads, width) * layer.att_edge).sum(-1)
    of_loop = sum_neighbours(edges.heard, of_type) / edges.heard.counts.clamp(min=1)[:, None]
    rows, columns = edges.by_head.rows, edges.by_head.columns
    logits = of_source.flatten().index_select(0, columns) + of_target.flatten().index_select(0, rows)
    logits = logits + torch.cat([of_type, of_loop]).flatten().index_select(0, edges.kinds)
    shares = softmax(leaky_relu(logits, layer.negative_slope), rows, num_nodes=edges.by_head.num_rows)
    heard = sum_neighbours(edges.by_head, values.reshape(-1, width), shares.to(values.dtype))
    result: Tensor = heard.view(-1, heads * width) + layer.bias
    return result
