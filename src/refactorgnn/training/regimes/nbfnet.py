"""Training NBFNet: facts are asked about while they, and what gives them away, are not in the graph."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from refactorgnn.models.rivals.nbfnet import NBFNet, edges_from_subjects
from refactorgnn.ops.edges import TypedEdges
from refactorgnn.training.regimes.asking import AskedFacts, AskingRegime
from refactorgnn.training.rivals.nbfnet import NBFNetConfig


class NBFNetRegime(AskingRegime):
    """Questions go through a graph that lacks the facts of the whole batch.

    The loss is binary cross-entropy, of the true answer and of wrong ones weighted by their own scores (as in `Sun et
    al., 2019 <https://arxiv.org/abs/1902.10197>`_), the truth and the wrong ones one half each.
    """

    model: NBFNet
    config: NBFNetConfig

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.edges = edges_from_subjects(self.known.to(self.device))

    def total_loss(self, mine: AskedFacts, batch: AskedFacts) -> Tensor:  # noqa: D102
        subjects, relations, _ = mine.questions.unbind(1)
        scores = self.model(self.edges_for(batch), subjects, relations, mine.candidates)
        return adversarial_loss(scores[:, 0], scores[:, 1:], mine.negatives >= 0, self.config.temperature)

    def edges_for(self, batch: AskedFacts) -> TypedEdges:
        """What messages pass over while a batch is asked.

        Where facts between entities are removed, they are so for wrong answers as well: if only right ones lost them,
        whatever is linked to the subject would be wrong, and that is all that would be learned.
        """
        if not self.config.remove_one_hop:
            return without_facts(self.edges, batch.questions)
        candidates = batch.candidates
        subjects = batch.questions[:, :1].expand_as(candidates)
        return without_links(self.edges, subjects.flatten(), candidates.flatten())


def adversarial_loss(truth: Tensor, others: Tensor, is_real: Tensor, temperature: float) -> Tensor:
    """The summed loss of questions: ``½ (−log σ(truth) − Σ_j w_j log σ(−others_j))``, ``w = softmax(others / T)``.

    Args:
        truth: Scores of the true answers; shape ``(num_questions,)``.
        others: Scores of wrong answers; shape ``(num_questions, num_negatives)``.
        is_real: Which of them count; same shape.
        temperature: ``T``.
    """
    logits = (others.detach() / temperature).masked_fill(~is_real, -torch.inf)
    weights = torch.softmax(logits, dim=1).nan_to_num(0.0)  # a question without any wrong answer has no weights
    return 0.5 * (softplus(-truth) + (weights * softplus(others)).sum(1)).sum()


def without_facts(edges: TypedEdges, facts: Tensor) -> TypedEdges:
    """The edges less those of some facts, in both directions.

    Args:
        edges: Facts and their reciprocals.
        facts: The facts to remove, some of them reciprocal; shape ``(num_facts, 3)``.
    """
    subjects, relations, objects = facts.unbind(1)
    backwards = (relations + edges.num_types // 2) % edges.num_types
    pairs = torch.cat([subjects * edges.num_nodes + objects, objects * edges.num_nodes + subjects])
    removed = pairs * edges.num_types + torch.cat([relations, backwards])
    return edges.keep(~torch.isin(_pairs(edges) * edges.num_types + edges.types, removed))


def without_links(edges: TypedEdges, some: Tensor, others: Tensor) -> TypedEdges:
    """The edges less all between ``some[i]`` and ``others[i]``, in both directions."""
    removed = torch.cat([some * edges.num_nodes + others, others * edges.num_nodes + some])
    return edges.keep(~torch.isin(_pairs(edges), removed))


def _pairs(edges: TypedEdges) -> Tensor:
    return edges.sources * edges.num_nodes + edges.targets
