"""An inductive pair cut out of one graph: how well settings do on unseen entities, without a second graph."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from torch import Tensor

from refactorgnn.data.graph import InductivePair, KnowledgeGraph, graph_from_tables
from refactorgnn.data.splits import split_triples
from refactorgnn.errors import UserError

# Of the facts among the unseen entities, those to be predicted.
_VALID_SHARE = 0.15


def carve_pair(graph: KnowledgeGraph, share: float, seed: int = 0) -> InductivePair:
    """Set a region of entities apart, and what is known among them.

    The region grows from a random entity along facts, so that it hangs together as an unseen graph does. Facts between
    it and the rest are left out. Nothing but the splits train and valid is looked at.

    Args:
        graph: The graph.
        share: The share of its entities to set apart.
        seed: The seed of the region and of the facts that are held out.

    Returns:
        ``train``: the facts among the other entities, valid ones apart. ``unseen``: those of the region, some of them
        as its split valid; relations that ``train`` has no fact of are left out.
    """
    if not 0 < share < 1:
        raise UserError(f"a share of {share} unseen entities cannot be set apart: choose a number between 0 and 1.")
    facts = {split: graph.triples(split) for split in ("train", "valid")}
    region = _region(facts["train"], graph.num_entities, share, np.random.default_rng(seed))
    ends_inside = {split: region[triples[:, [0, 2]].numpy()].sum(axis=1) for split, triples in facts.items()}
    seen = {split: triples[torch.from_numpy(ends_inside[split] == 0)] for split, triples in facts.items()}
    seen["valid"] = _only_known(seen["valid"], seen["train"])
    inside = torch.cat([triples[torch.from_numpy(ends_inside[split] == 2)] for split, triples in facts.items()])
    inside = inside[torch.isin(inside[:, 1], seen["train"][:, 1])]
    unseen = split_triples(inside, valid=_VALID_SHARE, test=0.0, seed=seed)
    for part, triples in (("the others", seen["train"]), ("them", unseen["valid"])):
        if not len(triples):
            raise UserError(
                f"with a share of {share} unseen entities, graph {graph.name!r} has too few facts among {part}: "
                "choose another share."
            )
    return InductivePair(
        graph_from_tables(f"{graph.name} (seen part)", _named(graph, seen), graph.texts),
        graph_from_tables(
            f"{graph.name} (unseen part)", _named(graph, {name: unseen[name] for name in seen}), graph.texts
        ),
    )


def _only_known(triples: Tensor, train: Tensor) -> Tensor:
    """The triples whose entities and relation occur in ``train``."""
    entities = torch.cat([train[:, 0], train[:, 2]])
    known = torch.isin(triples[:, [0, 2]], entities).all(1) & torch.isin(triples[:, 1], train[:, 1])
    return triples[known]


def _region(triples: Tensor, num_entities: int, share: float, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
    """Entities that grow together along facts, from random ones on, until they are as many as asked for."""
    ends = np.concatenate([triples[:, [0, 2]].numpy(), triples[:, [2, 0]].numpy()])
    ends = ends[np.argsort(ends[:, 0], kind="stable")]
    starts = np.searchsorted(ends[:, 0], np.arange(num_entities + 1))
    inside, wanted, num_inside = np.zeros(num_entities, dtype=bool), max(1, round(share * num_entities)), 0
    border: list[int] = []
    for root in rng.permutation(num_entities).tolist():
        border.append(root)
        while border and num_inside < wanted:
            place = int(rng.integers(len(border)))
            border[place], border[-1] = border[-1], border[place]
            entity = border.pop()
            if inside[entity]:
                continue
            inside[entity] = True
            num_inside += 1
            border += ends[starts[entity] : starts[entity + 1], 1].tolist()
        if num_inside >= wanted:
            break
    return inside


def _named(graph: KnowledgeGraph, splits: dict[str, Tensor]) -> dict[str, pa.Table]:
    part = replace(graph, splits=splits, _indices={})
    return {split: part.named_triples(split) for split in splits}
