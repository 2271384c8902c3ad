"""How far the answers of questions are from their subjects: what any model that follows facts can find at most."""

from __future__ import annotations

import torch
from torch import Tensor

from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.ops.chunked import chunks, rows_within
from refactorgnn.ops.sparse import SparsePattern, sum_neighbours

MOST_STEPS = 4
# |V|-wide arrays of float32 alive at once: what has been reached, the last step, the next one.
_BUFFERS = 3


@torch.no_grad()
def reach(
    graph: KnowledgeGraph,
    split: str = "test",
    *,
    message_splits: tuple[str, ...] = ("train",),
    most_steps: int = MOST_STEPS,
    memory_budget: int | None = None,
) -> list[float]:
    """The share of the facts of a split whose ends are joined by one, two, … known facts, in whatever direction.

    Rules with bodies of two relations, or a network of two layers without features, answer no more of the questions
    than the second of these; what is beyond is a matter of chance to them.

    Args:
        graph: The graph.
        split: The split whose facts are asked about.
        message_splits: The splits whose facts are known.
        most_steps: How many facts to follow at the most.
        memory_budget: Bytes of temporaries; None: 128 MiB.

    Returns:
        A share for each number of steps, each at least as large as the one before; 0 for a split without facts.
    """
    heads, _, tails = graph.triples(split).unbind(1)
    subjects, question_of = torch.unique(heads, return_inverse=True)
    neighbours = _neighbours(graph, message_splits)
    rows = rows_within(memory_budget, graph.num_entities, _BUFFERS, device=heads.device)
    num_reached = torch.zeros(most_steps, dtype=torch.int64)
    for chunk in chunks(len(subjects), rows):
        asked = torch.nonzero((question_of >= chunk.start) & (question_of < chunk.stop)).flatten()
        places = tails[asked], question_of[asked] - chunk.start
        last = torch.zeros(graph.num_entities, chunk.stop - chunk.start)
        last[subjects[chunk], torch.arange(last.shape[1])] = 1
        reached = torch.zeros_like(last)
        for step in range(most_steps):
            last = sum_neighbours(neighbours, last).clamp_(max=1)
            torch.maximum(reached, last, out=reached)
            num_reached[step] += int(reached[places].sum())
    return (num_reached / max(1, len(heads))).tolist()


def _neighbours(graph: KnowledgeGraph, splits: tuple[str, ...]) -> SparsePattern:
    """The entities that each entity has a fact with, once each."""
    heads, _, tails = graph.triples(*splits).unbind(1)
    pairs: Tensor = torch.unique(torch.cat([heads, tails]) * graph.num_entities + torch.cat([tails, heads]))
    rows, columns = pairs // graph.num_entities, pairs % graph.num_entities
    return SparsePattern.from_rows(rows, columns, graph.num_entities, graph.num_entities)
