"""A graph that knows less: what validation needs to tell how settings do on a sparser graph than they learn on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from refactorgnn.data.graph import KnowledgeGraph

# Where the facts stand that were taken away: they carry no messages but are still known to be true.
HELD_BACK = "held back"


def thinned(graph: KnowledgeGraph, share: float, seed: int = 0) -> KnowledgeGraph:
    """The graph with a random share of its training facts; the others are in the split :data:`HELD_BACK`.

    Every entity that has facts keeps one of them, as in a graph that was sampled by its entities; where that alone
    takes more facts than asked for, there are more.

    Args:
        graph: The graph.
        share: The share of the facts to keep, above 0; 1: the graph itself.
        seed: Which.
    """
    if share == 1:
        return graph
    facts = graph.triples("train")
    order = np.random.default_rng(seed).permutation(len(facts))
    shuffled = facts.numpy()[order]
    # The first fact of each entity, then as many others as there is room for.
    _, firsts = np.unique(shuffled[:, [0, 2]].ravel(), return_index=True)
    is_kept = np.zeros(len(facts), dtype=bool)
    is_kept[firsts // 2] = True
    others = np.flatnonzero(~is_kept)
    is_kept[others[: max(0, round(share * len(facts)) - int(is_kept.sum()))]] = True
    kept = torch.from_numpy(np.sort(order[is_kept]))
    rest = torch.from_numpy(np.sort(order[~is_kept]))
    splits = {**graph.splits, "train": facts[kept], HELD_BACK: facts[rest]}
    return replace(graph, splits=splits, _indices={})
