"""The theorem, the gradient and the edge view, written down once more in the most literal way, to compare with."""

from __future__ import annotations

import torch
from torch import Tensor

from refactorgnn.scorers import Scorer


def log_likelihood(scorer: Scorer, states: Tensor, relations: Tensor, triples: Tensor) -> Tensor:
    """``Σ log P(o | s, r)``, one triple at a time."""
    total = states.new_zeros(())
    for s, r, o in triples.tolist():
        scores = torch.stack([scorer.score(states[s], relations[r], states[u]) for u in range(len(states))])
        total = total + torch.log_softmax(scores, dim=0)[o]
    return total


def autograd_gradient(scorer: Scorer, states: Tensor, relations: Tensor, triples: Tensor) -> Tensor:
    """What autograd says the gradient is."""
    leaf = states.detach().clone().requires_grad_()
    total = log_likelihood(scorer, leaf, relations, triples)
    if not len(triples):
        return torch.zeros_like(states)
    return torch.autograd.grad(total, leaf)[0]


def theorem_1(states: Tensor, relations: Tensor, triples: Tensor) -> tuple[Tensor, Tensor]:
    """Theorem 1 as printed, node by node, for DistMult: ``(z[v], n[v])`` for every ``v``.

    ``n[v]`` is the printed normaliser (with its 1/|T|); the update is ``φ[v] + α z[v] − β n[v]`` with ``β = α |T|``.
    """
    T = [tuple(triple) for triple in triples.tolist()]

    def P(s: int, r: int) -> Tensor:  # noqa: N802
        return torch.softmax((states[s] * relations[r]) @ states.T, dim=0)

    z, n = torch.zeros_like(states), torch.zeros_like(states)
    for v in range(len(states)):
        outgoing = [(r, w) for s, r, w in T if s == v]
        incoming = [(r, w) for w, r, o in T if o == v]
        for r, w in outgoing:
            z[v] += states[w] * relations[r]
        for r, w in incoming:
            z[v] += (1 - P(w, r)[v]) * states[w] * relations[r]
        without_v = [(s, r, o) for s, r, o in T if s != v and o != v]
        if outgoing:
            inner = [sum(P(v, r)[u] * relations[r] * states[u] for u in range(len(states))) for r, _ in outgoing]
            n[v] += len(outgoing) / len(T) * torch.stack(inner).mean(dim=0)
        if without_v:
            outer = [P(s, r)[v] * relations[r] * states[s] for s, r, _ in without_v]
            n[v] += len(without_v) / len(T) * torch.stack(outer).mean(dim=0)
    return z, n


def edge_view(states: Tensor, relations: Tensor, triples: Tensor) -> Tensor:
    """Section 3.1 for DistMult: what each single edge adds to its subject, its object and all other nodes.

    The paper writes subject, object and bystanders as three disjoint cases; a subject is a candidate of its own query
    too, and a self-loop is subject and object at once, so here the candidate's part is added to *every* node.
    """
    total = torch.zeros_like(states)
    for s, r, o in triples.tolist():
        P = torch.softmax((states[s] * relations[r]) @ states.T, dim=0)
        total[s] += relations[r] * states[o] - relations[r] * (P @ states)  # w → v, u → v
        total[o] += relations[r] * states[s]  # v → w
        for u in range(len(states)):
            total[u] -= P[u] * states[s] * relations[r]  # v → u
    return total
