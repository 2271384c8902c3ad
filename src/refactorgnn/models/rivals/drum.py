"""DRUM: differentiable rules of a given rank."""

from __future__ import annotations

from itertools import combinations

import torch
from torch import Tensor, nn

from refactorgnn.data.vocabulary import Vocabulary
from refactorgnn.models.rivals.differentiable_rules import DifferentiableRules, initial_embeddings
from refactorgnn.models.rivals.rule_extraction import Alignment
from refactorgnn.ops.relation_steps import HeldOut, RelationOperators


class DRUM(DifferentiableRules):
    """`End-to-End Differentiable Rule Mining on Knowledge Graphs <https://arxiv.org/abs/1911.00055>`_ (NeurIPS 2019).

    The weights of all chains of ``T`` relations are a tensor of order ``T``, here one of rank ``L``:

        u = Σ_l Π_t (Σ_b a[t, b, l] M_b) v_s

    with the identity among the operators, so that a rule may be shorter than ``T``. The attention of rank ``l`` comes
    from a bidirectional LSTM of its own that reads the embedding of the question's relation ``T`` times; all ranks
    share the layer from its states to the operators.

    Args:
        relations: The relations; reciprocals are added.
        dim: The width of the embeddings and of each direction of the LSTMs.
        num_steps: The most relations ``T`` of a rule's body.
        rank: The number ``L`` of products that are added up.
        seed: The seed of all initial weights.
        memory_budget: Bytes of temporaries; None: by the device.
    """

    def __init__(
        self,
        relations: Vocabulary,
        dim: int = 128,
        num_steps: int = 3,
        rank: int = 3,
        *,
        seed: int = 0,
        memory_budget: int | None = None,
    ) -> None:
        self.rank = rank
        super().__init__(relations, dim, num_steps, seed=seed, memory_budget=memory_budget)

    def _make_layers(self, num_relations: int, dim: int) -> None:
        self.embeddings = initial_embeddings(num_relations, dim)
        self.readers = nn.ModuleList(nn.LSTM(dim, dim, bidirectional=True) for _ in range(self.rank))
        self.to_operators = nn.Linear(2 * dim, num_relations + 1)  # the last one is the identity

    @property
    def memories_per_question(self) -> int:
        """The memories before and after a step of each rank, what the identity keeps of them, and the result."""
        return 3 * self.rank + 1

    def attention(self, relations: Tensor) -> Tensor:
        """``a[t, l, i, b]``, of each step, rank, asked relation and operator; they sum up to 1 over operators."""
        read = self.embeddings(relations).expand(self.num_steps, -1, -1)
        states = torch.stack([reader(read)[0] for reader in self.readers], dim=1)
        logits: Tensor = self.to_operators(states)
        return logits.to(self.embeddings.weight.dtype).softmax(dim=-1)

    def reached(  # noqa: D102
        self, operators: RelationOperators, subjects: Tensor, relations: Tensor, held_out: HeldOut | None = None
    ) -> Tensor:
        distinct, place = torch.unique(relations, return_inverse=True)
        attention = self.attention(distinct)
        if held_out is not None:
            held_out = held_out.repeated(self.rank, len(subjects))
        memory = operators.start(subjects.repeat(self.rank), attention.dtype)
        for of_step in attention:
            weights = of_step[:, place].flatten(0, 1).T  # one column for each rank and question
            moved = operators.step(memory, weights[:-1], held_out, self.memory_budget)
            memory = torch.addcmul(moved, memory, weights[-1])
        return memory.view(-1, self.rank, len(subjects)).sum(dim=1)

    @torch.no_grad()
    def alignments(self, relation: int) -> list[Alignment]:  # noqa: D102
        asked = torch.tensor([relation], device=self.embeddings.weight.device)
        attention = self.attention(asked)[:, :, 0].double().cpu()
        steps = range(self.num_steps)
        return [
            Alignment(
                float(of_rank[[step for step in steps if step not in moving], -1].prod()) / self.rank,
                of_rank[list(moving), :-1],
            )
            for of_rank in attention.unbind(1)
            for length in range(self.num_steps + 1)
            for moving in combinations(steps, length)
        ]
