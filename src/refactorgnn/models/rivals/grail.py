"""GraIL: a link is judged by the sub-graph around its two ends."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, linear, one_hot
from torch.utils.checkpoint import checkpoint

from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.data.vocabulary import Vocabulary
from refactorgnn.models.base import LinkPredictor
from refactorgnn.models.gnn import drawn_from
from refactorgnn.models.rivals.enclosing import EnclosingSubgraphs, Surroundings, consecutive_groups
from refactorgnn.ops.attended import Attention, attended_sum
from refactorgnn.ops.chunked import memory_budget_on
from refactorgnn.ops.edges import TypedEdges
from refactorgnn.seeds import LAYERS, combined_seed

# Bytes that a step of a search holds: keys of 8 bytes, sorted, searched and compared.
_BYTES_OF_VISIT = 128
# Numbers that the network holds for each node, beside those of the bases, by number of its width and, while learning,
# of its layers; and for each edge, by number of its width.
_NUMBERS_OF_NODE = 8
_NUMBERS_OF_EDGE = 4


class GraILLayer(nn.Module):
    r"""R-GCN with attention to edges, given the relation asked about.

    .. math::
        h'_t = \mathrm{ReLU}\Big(W h_t + \sum_{(s, r, t)} \alpha_{srt} \sum_b a_{rb} V_b h_s\Big), \qquad
        \alpha_{srt} = \sigma\big(A_2\, \mathrm{ReLU}(A_1 [h_s, h_t, e_r, e_{r_q}] + c_1) + c_2\big).

    Args:
        num_relations: The number of relations, without reciprocals.
        in_dim: The width of a state before the layer.
        dim: The width after it, and of ``e``.
        num_bases: How many matrices ``V_b``.
    """

    def __init__(self, num_relations: int, in_dim: int, dim: int, num_bases: int) -> None:
        super().__init__()
        self.in_dim, self.dim = in_dim, dim
        self.own = nn.Linear(in_dim, dim, bias=False)
        self.bases = nn.Linear(in_dim, num_bases * dim, bias=False)
        self.coefficients = nn.Parameter(torch.empty(num_relations, num_bases))
        nn.init.xavier_uniform_(self.coefficients, gain=nn.init.calculate_gain("relu"))
        self.attention_relations = nn.Embedding(num_relations, dim)
        self.attention = nn.Linear(2 * in_dim + 2 * dim, dim)
        self.attention_score = nn.Linear(dim, 1)

    def forward(self, states: Tensor, relations: Tensor, edges: TypedEdges, drop: float) -> Tensor:
        """The new states.

        Args:
            states: Shape ``(num_nodes, in_dim)``.
            relations: The relation asked about of each node's pair; shape ``(num_nodes,)``.
            edges: The facts among the nodes.
            drop: The share of edges that is dropped while training.
        """
        dtype = self.coefficients.dtype  # under autocast, linear maps return less
        bases = self.bases.weight.view(self.coefficients.shape[1], self.dim, self.in_dim)
        values = torch.matmul(states, bases.mT).to(dtype)
        attention = Attention(*(part.to(dtype) for part in self._attention(states, relations)))
        kept = dropout(values.new_ones(edges.num_edges), drop) if self.training and drop else None
        own: Tensor = self.own(states)
        return torch.relu(own + attended_sum(values, self.coefficients, attention, edges, kept))

    def _attention(self, states: Tensor, relations: Tensor) -> Attention:
        """``A_1`` applied to nodes and relations, whose images are added up at edges."""
        widths = [self.in_dim, self.in_dim, self.dim, self.dim]
        to_source, to_target, to_type, to_asked = self.attention.weight.split(widths, dim=1)
        embeddings = self.attention_relations.weight
        of_target = linear(states, to_target, self.attention.bias) + linear(embeddings, to_asked)[relations]
        score = self.attention_score
        return Attention(linear(states, to_source), of_target, linear(embeddings, to_type), score.weight[0], score.bias)


class GraIL(LinkPredictor):
    r"""GraIL (`Teru et al., 2020 <https://arxiv.org/abs/1911.06962>`_).

    The score of ``(u, r, v)`` is ``w · [mean_i h_i, h_u, h_v, e_r]`` over the nodes of its enclosing sub-graph
    (:class:`~refactorgnn.models.rivals.enclosing.Surroundings`), where ``h`` has the states after all layers side by
    side. They start from the distances to ``u`` and ``v``, one-hot. A question for a head is asked by the reciprocal
    relation and means the same triples.

    Cost: every candidate of every question has a sub-graph of its own. A full ranking extracts and judges those of all
    candidates at most ``2 num_hops`` from the subject, in groups within the memory budget; that is many times what a
    model takes that scores all candidates in one pass. The others have no facts, and one score for all. A partial
    ranking does so for its few candidates alone.

    Args:
        relations: The relations.
        dim: The width of a state.
        num_layers: The number of layers.
        num_hops: ``k``, how far a sub-graph reaches from both its ends.
        num_bases: How many matrices those of the relations are made of.
        edge_dropout: The share of edges that is dropped while training.
        seed: The seed of all initial weights.
        memory_budget: Bytes; None: 128 MiB on a CPU, 432 on a GPU. One sub-graph is held at once, whatever it says.
    """

    def __init__(
        self,
        relations: Vocabulary,
        dim: int = 32,
        *,
        num_layers: int = 3,
        num_hops: int = 2,
        num_bases: int = 4,
        edge_dropout: float = 0.5,
        seed: int = 0,
        memory_budget: int | None = None,
    ) -> None:
        super().__init__(relations)
        self.dim, self.num_hops, self.num_bases, self.edge_dropout = dim, num_hops, num_bases, edge_dropout
        self.memory_budget = memory_budget
        widths = [2 * (num_hops + 1), *num_layers * [dim]]
        with drawn_from(combined_seed(seed, LAYERS)):
            self.layers = nn.ModuleList(
                GraILLayer(len(relations), width, dim, num_bases) for width in widths[:num_layers]
            )
            self.relations = nn.Embedding(len(relations), dim)
            self.readout = nn.Linear((3 * num_layers + 1) * dim, 1)

    def bind(self, graph: KnowledgeGraph, message_splits: Sequence[str] = ("train",)) -> GraILScorer:
        """Index the facts that sub-graphs are made of."""
        queries = graph.queries(*message_splits).to(self.relations.weight.device)
        return GraILScorer(self, Surroundings(queries, self.num_hops))

    def forward(self, surroundings: Surroundings, triples: Tensor) -> Tensor:
        """The scores of triples of shape ``(num_triples, 3)``, reciprocal ones among them, differentiable."""
        num_relations = self.relations.num_embeddings
        is_back = triples[:, 1:2] >= num_relations
        facts = torch.where(is_back, triples.flip(1) - triples.new_tensor([0, num_relations, 0]), triples)
        visits = surroundings.most_visits[facts[:, 0]] + surroundings.most_visits[facts[:, 2]]
        most = memory_budget_on(facts.device, self.memory_budget) // 2 // _BYTES_OF_VISIT
        groups = [facts[part] for part in consecutive_groups(visits, most)]
        return torch.cat([part for group in groups for part in self._scores(surroundings, group)])

    def _scores(self, surroundings: Surroundings, facts: Tensor) -> list[Tensor]:
        """The scores of a group whose sub-graphs may be extracted together, in groups that may be judged together."""
        relations = facts[:, 1]
        extracted = surroundings.extract(facts[:, 0], relations, facts[:, 2])
        kept = len(self.layers) if torch.is_grad_enabled() else 1
        width = self.dim * self.relations.weight.element_size()
        of_node = kept * (_NUMBERS_OF_NODE + self.num_bases) * width
        most = memory_budget_on(facts.device, self.memory_budget) // 2
        parts = list(extracted.groups(most, of_node, _NUMBERS_OF_EDGE * width))
        scores, start = [], 0
        for part in parts:
            asked = relations[start : start + part.num_pairs]
            start += part.num_pairs
            if torch.is_grad_enabled() and len(parts) > 1:
                scores.append(checkpoint(self.judge, part, asked, use_reentrant=False))
            else:
                scores.append(self.judge(part, asked))
        return scores

    def scores_without_facts(self, relations: Tensor) -> Tensor:
        """The scores of pairs with nothing near both ends, which the relation alone tells apart; same shape."""
        alone = EnclosingSubgraphs.without_facts(len(relations), relations.device)
        return self.judge(alone, relations % self.relations.num_embeddings)

    def judge(self, subgraphs: EnclosingSubgraphs, relations: Tensor) -> Tensor:
        """The scores of pairs from their sub-graphs; shape ``(num_pairs,)``."""
        labels = one_hot(subgraphs.labels, self.num_hops + 1).flatten(1)
        states = labels.to(self.relations.weight.dtype)
        outputs = []
        edges, asked = subgraphs.edges(self.relations.num_embeddings), relations[subgraphs.pair_of_node]
        for layer in self.layers:
            states = layer(states, asked, edges, self.edge_dropout)
            outputs.append(states)
        combined = torch.cat(outputs, dim=1)
        sizes = torch.bincount(subgraphs.pair_of_node, minlength=subgraphs.num_pairs)
        total = combined.new_zeros(subgraphs.num_pairs, combined.shape[1])
        mean = total.index_add(0, subgraphs.pair_of_node, combined) / sizes[:, None]
        ends = combined[subgraphs.heads], combined[subgraphs.tails]
        scores: Tensor = self.readout(torch.cat([mean, *ends, self.relations(relations)], dim=1))
        return scores.squeeze(-1)


class GraILScorer:
    """A GraIL bound to a graph.

    Args:
        model: The model.
        surroundings: The facts that sub-graphs are made of.
    """

    def __init__(self, model: GraIL, surroundings: Surroundings) -> None:
        self.model = model
        self.surroundings = surroundings

    @property
    def num_entities(self) -> int:
        """The number of candidates."""
        return self.surroundings.num_entities

    @property
    def device(self) -> torch.device:
        """Where questions must be put."""
        return self.surroundings.device

    @torch.no_grad()
    def scores(self, subjects: Tensor, relations: Tensor) -> Tensor:
        """The scores of all entities; shape ``(num_questions, num_entities)``. One question after the other."""
        scores = self.model.scores_without_facts(relations)[:, None].repeat(1, self.num_entities)
        for row, subject, relation in zip(scores, subjects, relations, strict=True):
            near = self.surroundings.connectable(int(subject))
            row[near] = self.candidate_scores(subject[None], relation[None], near[None])[0]
        return scores

    @torch.no_grad()
    def candidate_scores(self, subjects: Tensor, relations: Tensor, candidates: Tensor) -> Tensor:
        """The scores of ``candidates``, and of the same shape: ``(num_questions, num_candidates)``."""
        asked = torch.stack([subjects, relations], dim=1)[:, None].expand(*candidates.shape, 2)
        triples = torch.cat([asked, candidates[..., None]], dim=2).view(-1, 3)
        scores: Tensor = self.model(self.surroundings, triples)
        return scores.view(candidates.shape)
