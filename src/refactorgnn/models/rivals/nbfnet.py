"""NBFNet: a neural Bellman–Ford recursion from the subject of each question."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from torch.utils.checkpoint import checkpoint

from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.data.queries import QueryIndex
from refactorgnn.data.vocabulary import Vocabulary
from refactorgnn.models.base import LinkPredictor
from refactorgnn.models.gnn import drawn_from
from refactorgnn.ops.edges import TypedEdges
from refactorgnn.ops.passes import aggregate_kernels_for
from refactorgnn.ops.relational import combined_aggregates
from refactorgnn.seeds import LAYERS, combined_seed

# The scalers of an isolated node, whose logarithm of degree is 0, end here.
_LEAST_SCALE = 1e-2
# With less, questions go through in more groups, whose forward pass is done twice, and messages in more chunks: a step
# takes up to twice as long on a CPU.
DEFAULT_BUDGET = 2**30
# Numbers that a layer keeps for the backward pass, by number of its outputs: its input, before and after the norm; of
# kernels the aggregates as well. And those that it holds while it computes.
KEPT_BY_LAYER, KEPT_BY_KERNELS, HELD_BY_LAYER = 3, 7, 14


def edges_from_subjects(queries: QueryIndex) -> TypedEdges:
    """The fact ``(s, r, o)`` as an edge of type ``r`` from ``s`` to ``o``: paths of a question begin at its subject."""
    return TypedEdges.sort(*queries.facts, queries.num_entities, queries.num_relations)


class NBFLayer(nn.Module):
    r"""One step of the recursion, with principal neighbourhood aggregation.

    That is PNA (`Corso et al., 2020 <https://arxiv.org/abs/2004.05718>`_), the boundary being one more message:

    .. math::
        M_v = \{h_u \circ w_q(r) : (u, r, v)\} \cup \{b_v\}, \qquad
        a_v = [\mathrm{mean}, \max, \min, \mathrm{std}](M_v), \\
        h'_v = h_v + \mathrm{ReLU}\,\mathrm{LayerNorm}\,
        W [h_v,\; a_v,\; s_v a_v,\; s_v^{-1} a_v] + c, \qquad
        s_v = \frac{\log |M_v|}{\mathrm{mean}_u \log |M_u|}.

    ``b`` is the boundary: the query at its subject, 0 elsewhere. ``w_q(r)`` is a linear map of the query, or one vector
    for each relation if the layer is not ``dependent`` on it. The twelve scaled aggregates are never put side by side
    (:func:`~refactorgnn.ops.relational.combined_aggregates`).

    Args:
        num_types: The number of relations, reciprocals included.
        dim: The width of a state.
        dependent: Whether relations depend on the query.
    """

    def __init__(self, num_types: int, dim: int, *, dependent: bool) -> None:
        super().__init__()
        self.num_types, self.dim, self.dependent = num_types, dim, dependent
        self.relations = nn.Linear(dim, num_types * dim) if dependent else nn.Embedding(num_types, dim)
        self.combine = nn.Linear(13 * dim, dim)
        self.norm = nn.LayerNorm(dim)

    def relation_states(self, query: Tensor) -> Tensor:
        """``w_q(r)``; shape ``(num_types, num_questions, dim)``, or ``(num_types, 1, dim)`` without dependence."""
        if not self.dependent:
            assert isinstance(self.relations, nn.Embedding)
            return self.relations.weight[:, None]
        of_question: Tensor = self.relations(query)
        return of_question.view(-1, self.num_types, self.dim).transpose(0, 1).contiguous()

    def forward(
        self, states: Tensor, boundary: Tensor, query: Tensor, edges: TypedEdges, memory_budget: int | None
    ) -> Tensor:
        """States and boundary of shape ``(num_nodes, num_questions, dim)``, queries ``(num_questions, dim)``."""
        own, *scaled = self.combine.weight.split([self.dim, *3 * (4 * self.dim,)], dim=1)
        scale = degree_scale(edges)
        scales = torch.stack([torch.ones_like(scale), scale, 1 / scale.clamp(min=_LEAST_SCALE)])
        relations = self.relation_states(query)
        update = linear(states, own, self.combine.bias) + combined_aggregates(
            states, boundary, relations, torch.stack(scaled), scales, edges, memory_budget
        )
        return states + torch.relu(self.norm(update))


def degree_scale(edges: TypedEdges) -> Tensor:
    """``s_v``, of messages and boundary; shape ``(num_nodes,)``."""
    scale = (edges.degrees + 1).double().log()
    return scale / scale.mean().clamp(min=_LEAST_SCALE)


class NBFNet(LinkPredictor):
    r"""NBFNet (`Zhu et al., 2021 <https://arxiv.org/abs/2106.06935>`_), with DistMult messages and PNA.

    A question ``(s, r, ?)`` starts a recursion of ``L`` layers (:class:`NBFLayer`) from the boundary, the embedding
    ``q_r`` at ``s``; the score of ``v`` is ``MLP([h_v, q_r])``, of two layers. Nothing is known of an entity but the
    paths that reach it, so the model answers about any graph with the same relations.

    Cost: a question takes about ``L (|E| dim + 13 |V| dim²)`` multiplications for all candidates together. Questions go
    through in groups that fit in half of the memory budget, and messages in chunks of edges that fit in the other half
    (:mod:`refactorgnn.ops.relational`); while learning, a group that is not the only one is computed again in the
    backward pass, so that what is kept does not grow with the batch. A single question needs about
    ``4 * 3 (L + 1) |V| dim`` bytes (on a GPU 7 instead of 3), whatever the budget says.

    Args:
        relations: The relations; reciprocals are added.
        dim: The width of a state.
        num_layers: ``L``.
        dependent: Whether the relations of a layer depend on the query's.
        seed: The seed of all initial weights.
        memory_budget: Bytes; None: 1 GiB.
    """

    def __init__(
        self,
        relations: Vocabulary,
        dim: int = 32,
        *,
        num_layers: int = 6,
        dependent: bool = True,
        seed: int = 0,
        memory_budget: int | None = None,
    ) -> None:
        super().__init__(relations)
        self.dim = dim
        self.memory_budget = DEFAULT_BUDGET if memory_budget is None else memory_budget
        num_types = 2 * len(relations)
        with drawn_from(combined_seed(seed, LAYERS)):
            self.queries = nn.Embedding(num_types, dim)
            self.layers = nn.ModuleList(NBFLayer(num_types, dim, dependent=dependent) for _ in range(num_layers))
            self.readout = nn.Sequential(nn.Linear(2 * dim, 2 * dim), nn.ReLU(), nn.Linear(2 * dim, 1))

    def bind(self, graph: KnowledgeGraph, message_splits: Sequence[str] = ("train",)) -> NBFScorer:
        """Sort the facts that messages pass over."""
        queries = graph.queries(*message_splits).to(self.queries.weight.device)
        return NBFScorer(self, edges_from_subjects(queries))

    def forward(self, edges: TypedEdges, subjects: Tensor, relations: Tensor, candidates: Tensor | None) -> Tensor:
        """Scores of candidates as answers, differentiable.

        Args:
            edges: The facts that carry messages, from their subjects on.
            subjects: Shape ``(num_questions,)``.
            relations: Shape ``(num_questions,)``.
            candidates: Shape ``(num_questions, num_candidates)``; None: all entities.
        """
        size = self.questions_within(edges)
        if len(subjects) <= size:
            return self._scores(edges, subjects, relations, candidates)
        score = partial(self._scores, edges)
        if torch.is_grad_enabled():
            score = partial(checkpoint, score, use_reentrant=False, preserve_rng_state=False)
        # Nearly equal groups, so that the last one is not a leftover.
        groups = torch.arange(len(subjects), device=subjects.device).tensor_split(-(-len(subjects) // size))
        return torch.cat(
            [score(subjects[g], relations[g], None if candidates is None else candidates[g]) for g in groups]
        )

    def questions_within(self, edges: TypedEdges) -> int:
        """The questions of a group: what is kept of them fits in half of the budget."""
        weight = self.queries.weight
        kept_by_layer = KEPT_BY_KERNELS if aggregate_kernels_for(weight) else KEPT_BY_LAYER
        kept = kept_by_layer * (len(self.layers) + 1) if torch.is_grad_enabled() else HELD_BY_LAYER
        # With dependence, a question has relations of its own in each layer, and their derivatives.
        numbers = (kept * edges.num_nodes + 2 * len(self.layers) * edges.num_types) * self.dim
        return max(1, self.memory_budget // 2 // (numbers * weight.element_size()))

    def _scores(self, edges: TypedEdges, subjects: Tensor, relations: Tensor, candidates: Tensor | None) -> Tensor:
        query: Tensor = self.queries(relations)
        places = torch.arange(len(subjects), device=subjects.device)
        boundary = query.new_zeros(edges.num_nodes, len(subjects), self.dim).index_put((subjects, places), query)
        states = boundary
        for layer in self.layers:
            states = layer(states, boundary, query, edges, self.memory_budget // 2)
        asked = states.transpose(0, 1) if candidates is None else states[candidates, places[:, None]]
        pairs = torch.cat([asked, query[:, None].expand(-1, asked.shape[1], -1)], dim=-1)
        scores: Tensor = self.readout(pairs)
        return scores.squeeze(-1)


class NBFScorer:
    """An NBFNet bound to a graph.

    Args:
        model: The model.
        edges: The facts that carry messages.
    """

    def __init__(self, model: NBFNet, edges: TypedEdges) -> None:
        self.model = model
        self.edges = edges

    @property
    def num_entities(self) -> int:
        """The number of candidates."""
        return self.edges.num_nodes

    @property
    def device(self) -> torch.device:
        """Where questions must be put."""
        return self.edges.sources.device

    @torch.no_grad()
    def scores(self, subjects: Tensor, relations: Tensor) -> Tensor:
        """The scores of all entities; shape ``(num_questions, num_entities)``."""
        scores: Tensor = self.model(self.edges, subjects, relations, None)
        return scores
