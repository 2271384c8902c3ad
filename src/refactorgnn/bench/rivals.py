"""Others that do the same work: the published formulation of the layer, and DistMult's evaluation in PyG and PyKEEN."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.data.interop import to_pykeen
from refactorgnn.data.queries import QueryIndex

PUBLISHED = "published formulation"
# |T|×|V| matrices alive at once: scores and probabilities; backward, also the derivatives of probabilities (two parts
# and their sum) by the time that of the scores is made.
_MATRICES_FORWARD = 2
_MATRICES_BACKWARD = 5
# PyG asks its questions one by one, in Python: more of them tell nothing new.
_MOST_PYG_QUESTIONS = 200
_MOST_PYG_NUMBERS = 10**9
# Questions that PyKEEN answers at once on a CPU, through an array of questions × entities × dim; on a GPU it tries.
_PYKEEN_BATCH = 32


@dataclass(frozen=True)
class Rival:
    """Another way to do the work of a row.

    Args:
        name: Whose.
        run: Does it; None where it cannot be done here.
        share: The share of the work that ``run`` does.
        note: Why it cannot be done, or what differs.
    """

    name: str
    run: Callable[[], Any] | None = None
    share: float = 1.0
    note: str = ""


def published_layer(states: Tensor, relations: Tensor, triples: Tensor, alpha: float) -> Tensor:
    """The layer as published: DistMult, SGD, a row of ``|V|`` scores and one of probabilities for every triple.

    Args:
        states: ``H``, shape ``(num_entities, dim)``.
        relations: ``ψ``, shape ``(num_relations, dim)``.
        triples: Shape ``(num_triples, 3)``, reciprocals included.
        alpha: The step size.

    Returns:
        What :class:`refactorgnn.ReFactorConv` returns, by plain operations that autograd differentiates.
    """
    heads, kinds, tails = triples.unbind(1)
    psi = relations[kinds]
    queries = states[heads] * psi
    P = torch.softmax(queries @ states.T, dim=1)
    to_heads = (states[tails] - P @ states) * psi
    gradient = torch.zeros_like(states).index_add(0, heads, to_heads).index_add(0, tails, queries) - P.T @ queries
    return states + alpha * gradient


def published(
    states: Tensor, relations: Tensor, queries: QueryIndex, alpha: float, run: Callable[[Callable[[], Tensor]], Any]
) -> Rival:
    """The published formulation, unless its matrices do not fit into the memory that is free.

    Args:
        states: ``H``.
        relations: ``ψ``.
        queries: The triples, grouped.
        alpha: The step size.
        run: What is done with a forward pass: call it, or call it and differentiate what it returns.
    """
    triples = torch.stack(queries.facts, dim=1)
    backward = states.requires_grad
    matrices = _MATRICES_BACKWARD if backward else _MATRICES_FORWARD
    needed = matrices * len(triples) * len(states) * states.element_size()
    if needed > (free := free_bytes(states.device)):
        return Rival(
            PUBLISHED,
            note=f"needs {needed / 1e9:,.0f} GB for {matrices} matrices of {len(triples):,} × {len(states):,}; "
            f"{free / 1e9:,.0f} GB are free",
        )
    return Rival(PUBLISHED, lambda: run(lambda: published_layer(states, relations, triples, alpha)))


def free_bytes(device: torch.device) -> int:
    """The memory that is free where tensors of ``device`` live."""
    if device.type == "cuda":
        free: int = torch.cuda.mem_get_info(device)[0]
        return free
    try:
        about = Path("/proc/meminfo").read_text(encoding="ascii")
    except OSError:  # not Linux: all that there is
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return 1024 * next(int(line.split()[1]) for line in about.splitlines() if line.startswith("MemAvailable:"))


def pyg_evaluation(graph: KnowledgeGraph, states: Tensor, relations: Tensor, triples: Tensor) -> Rival:
    """``torch_geometric.nn.kge.DistMult.test``: it ranks tails only, so the head questions go to it as reciprocals.

    Args:
        graph: The graph.
        states: ``H``, float32.
        relations: ``ψ``, reciprocals in the second half.
        triples: What to rank, in both directions.
    """
    from torch_geometric.nn.kge import DistMult  # slow to import

    questions = graph.with_reciprocals(triples)
    affordable = max(1, min(_MOST_PYG_QUESTIONS, _MOST_PYG_NUMBERS // states.numel()))
    places = torch.linspace(0, len(questions) - 1, min(affordable, len(questions))).long()
    asked = questions[places].to(states.device)
    model = DistMult(graph.num_entities, len(relations), states.shape[1]).to(states.device)
    with torch.no_grad():
        model.node_emb.weight.copy_(states)
        model.rel_emb.weight.copy_(relations)
    return Rival(
        "PyG DistMult.test",
        lambda: model.test(*asked.unbind(1), batch_size=graph.num_entities, log=False),
        share=len(asked) / len(questions),
        note=f"less work than ours: known answers are not filtered; timed on {len(asked):,} of "
        f"{len(questions):,} questions",
    )


def pykeen_evaluation(graph: KnowledgeGraph, states: Tensor, relations: Tensor, triples: Tensor) -> Rival:
    """PyKEEN's ``RankBasedEvaluator`` on its DistMult with the same weights; arguments as :func:`pyg_evaluation`."""
    name = "PyKEEN DistMult"
    if find_spec("pykeen") is None:
        return Rival(name, note="not installed: pip install 'refactorgnn[pykeen]'")
    needed = _PYKEEN_BATCH * states.nbytes
    if needed > (free := free_bytes(states.device)):
        return Rival(name, note=f"needs {needed / 1e9:,.0f} GB for a batch; {free / 1e9:,.0f} GB are free")
    from pykeen.evaluation import RankBasedEvaluator
    from pykeen.models import DistMult

    logging.disable(logging.WARNING)  # its advice on batch sizes
    model = DistMult(triples_factory=to_pykeen(graph), embedding_dim=states.shape[1], random_seed=0).to(states.device)
    tables = (model.entity_representations[0], states), (model.relation_representations[0], relations)
    with torch.no_grad():
        for representation, table in tables:
            (parameter,) = representation.parameters()
            parameter.copy_(table[: len(parameter)])  # a symmetric score needs no reciprocals
    filters = [facts for split, facts in graph.splits.items() if split != "test"]

    def evaluate() -> dict[str, float]:
        evaluator = RankBasedEvaluator(filtered=True)
        result = evaluator.evaluate(model, triples, additional_filter_triples=filters, use_tqdm=False)
        return {"mrr": float(result.get_metric("both.realistic.inverse_harmonic_mean_rank"))}

    return Rival(name, evaluate)
