"""Neural-LP: differentiable rules by attention over operators and over memories."""

from __future__ import annotations

from itertools import combinations, pairwise

import torch
from torch import Tensor, nn

from refactorgnn.models.rivals.differentiable_rules import DifferentiableRules, initial_embeddings
from refactorgnn.models.rivals.rule_extraction import Alignment
from refactorgnn.ops.relation_steps import HeldOut, RelationOperators


class NeuralLP(DifferentiableRules):
    """`Differentiable Learning of Logical Rules for Knowledge Base Reasoning <https://arxiv.org/abs/1702.08367>`_.

    (NeurIPS 2017.) An LSTM reads the embedding of the question's relation ``T`` times, then an end token. Its states
    ``h_1, …, h_{T+1}`` (``h_0 = 0``) control both which operators a step applies and what memory it applies them to:

        u_0 = v_s
        u_t = (Σ_b a_t[b] M_b) Σ_{τ<t} b_t[τ] u_τ                  a_t = softmax(W h_t + w)
        u   = Σ_{τ≤T} b_{T+1}[τ] u_τ                               b_t = softmax_τ(h_τ · h_t)

    Args:
        relations: The relations; reciprocals are added.
        dim: The width of the embeddings and of the LSTM.
        num_steps: The most relations ``T`` of a rule's body.
        seed: The seed of all initial weights.
        memory_budget: Bytes of temporaries; None: by the device.
    """

    def _make_layers(self, num_relations: int, dim: int) -> None:
        self.embeddings = initial_embeddings(num_relations + 1, dim)  # the last one is the end token
        self.controller = nn.LSTM(dim, dim)
        self.to_operators = nn.Linear(dim, num_relations)

    @property
    def memories_per_question(self) -> int:
        """All memories, what is read from them, and the result."""
        return self.num_steps + 3

    def attention(self, relations: Tensor) -> tuple[Tensor, list[Tensor]]:
        """The attention over operators and over memories.

        Returns:
            ``a[t, i, b]`` of each step, asked relation and operator, and for each of ``T + 1`` reads ``b[τ, i]`` of the
            memories so far; both sum up to 1.
        """
        end = torch.full_like(relations, self.embeddings.num_embeddings - 1)
        read = self.embeddings(torch.stack([relations] * self.num_steps + [end]))
        states = self.controller(read)[0].to(read.dtype)
        over_operators = self.to_operators(states[:-1]).to(read.dtype).softmax(dim=-1)
        states = torch.cat([torch.zeros_like(states[:1]), states])
        reads = range(1, self.num_steps + 2)
        return over_operators, [torch.linalg.vecdot(states[:read], states[read]).softmax(dim=0) for read in reads]

    def reached(  # noqa: D102
        self, operators: RelationOperators, subjects: Tensor, relations: Tensor, held_out: HeldOut | None = None
    ) -> Tensor:
        distinct, place = torch.unique(relations, return_inverse=True)
        over_operators, over_memories = self.attention(distinct)
        memories = [operators.start(subjects, over_operators.dtype)]
        for weights, choice in zip(over_operators, over_memories, strict=False):
            read = _read(memories, choice[:, place])
            memories.append(operators.step(read, weights[place].T, held_out, self.memory_budget))
        return _read(memories, over_memories[-1][:, place])

    @torch.no_grad()
    def alignments(self, relation: int) -> list[Alignment]:  # noqa: D102
        asked = torch.tensor([relation], device=self.embeddings.weight.device)
        over_operators, over_memories = self.attention(asked)
        operators = over_operators[:, 0].double().cpu()
        choices = [choice[:, 0].double().cpu() for choice in over_memories]
        found = []
        for length in range(self.num_steps + 1):
            for moving in combinations(range(1, self.num_steps + 1), length):
                # From memory 0 through those of the steps that move to the last read, which is step T + 1.
                route = pairwise((0, *moving, self.num_steps + 1))
                weight = torch.stack([choices[step - 1][memory] for memory, step in route]).prod()
                found.append(Alignment(float(weight), operators[[step - 1 for step in moving]]))
        return found


def _read(memories: list[Tensor], choice: Tensor) -> Tensor:
    """``Σ_τ b[τ] u_τ`` of each column."""
    total = memories[0] * choice[0]
    for memory, weight in zip(memories[1:], choice[1:], strict=True):
        total = torch.addcmul(total, memory, weight)
    return total
