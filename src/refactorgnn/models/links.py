"""What facts between two entities say for or against another: a part of the score beside the states.

States know how near two entities are, not by which relations they are linked already. Yet that says much: who directs a
film may have written it as well, but a hypernym is no meronym. So each relation ``r`` learns a number for each ``r'``,
which every candidate gets that a fact ``(s, r', o)`` links to the subject:

    score(s, r, o) += Σ_{(s, r', o)} W[r, r']
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from refactorgnn.data.queries import Links, QueryIndex
from refactorgnn.ops.nll import AddedScores
from refactorgnn.ops.residual import add_at

# ``W`` is learned in units of this: with the steps that suit embeddings, its entries would hardly leave 0.
_UNIT = 30.0


class LinkWeights(nn.Module):
    """``W``, 0 to begin with.

    Args:
        num_relations: The number of relations, reciprocals included.
    """

    def __init__(self, num_relations: int) -> None:
        super().__init__()
        self.num_relations = num_relations
        self.table = nn.Parameter(torch.zeros(num_relations, num_relations))

    def forward(self, links: Links, asked: Tensor, weights: Tensor | None = None) -> AddedScores:
        """What is added to the scores of questions.

        Args:
            links: The facts around their subjects.
            asked: Their relations; shape ``(num_questions,)``.
            weights: How much each edge of the facts' index counts; None: 1 each.
        """
        entries = asked[links.objects.rows] * self.num_relations + links.relations
        values = _UNIT * self.table.flatten().index_select(0, entries)
        if weights is not None:
            values = values * weights[links.edges]
        return AddedScores(links.objects, values)


class LinkScorer:
    """The part of the scores that the facts of a graph make.

    Args:
        links: The weights.
        queries: The facts, reciprocals included.
    """

    def __init__(self, links: LinkWeights, queries: QueryIndex) -> None:
        self.links = links
        self.queries = queries

    @property
    def num_entities(self) -> int:
        """The number of candidates."""
        return self.queries.num_entities

    @property
    def device(self) -> torch.device:
        """Where questions must be put."""
        return self.queries.subjects.device

    @torch.no_grad()
    def scores(self, subjects: Tensor, relations: Tensor) -> Tensor:
        """Shape ``(num_questions, num_entities)``; 0 where nothing is linked."""
        added: AddedScores = self.links(self.queries.links_from(subjects), relations)
        places, values = added
        return add_at(values.new_zeros(len(subjects), self.num_entities), places, values)
