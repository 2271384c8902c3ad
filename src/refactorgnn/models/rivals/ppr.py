"""Personalised PageRank: how often a walk that keeps returning to the subject is at a candidate; nothing is learned."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.data.vocabulary import Vocabulary
from refactorgnn.models.base import LinkPredictor
from refactorgnn.models.rivals.linked_pairs import LinkedPairs
from refactorgnn.ops.chunked import cached_budget_on, rows_within

RelationRange = Literal["any", "first"]
Neighbours = Literal["any", "consistent"]
# The probabilities of a batch at three steps.
_BUFFERS = 3
_BYTES = 8


class PersonalisedPageRank(LinkPredictor):
    """Scores a candidate by its personalised PageRank from the question's subject, blind to the relation.

    A walker on the undirected facts returns to the subject with probability ``restart`` at each step, and else goes
    along one of the facts of the entity it is at, each as likely. (Where there are none, it stays.) The subject itself
    is no answer and scores 0.

    Args:
        relations: The relations.
        restart: The probability of a return.
        tolerance: The most that the probabilities of a subject may be off, summed over all entities.
        relation_range: ``"any"``: as said; ``"first"``: entities that the facts show as objects of the relation come
            before all others (1 is added).
        neighbours: ``"any"``: as said; ``"consistent"``: entities that facts link to the subject score 0 where these
            exclude the relation (:mod:`~refactorgnn.models.rivals.linked_pairs`).
        memory_budget: Bytes of probabilities held at once, on a CPU no more than its cache holds; None: by the device.
    """

    def __init__(
        self,
        relations: Vocabulary,
        *,
        restart: float = 0.15,
        tolerance: float = 1e-6,
        relation_range: RelationRange = "any",
        neighbours: Neighbours = "any",
        memory_budget: int | None = None,
    ) -> None:
        super().__init__(relations)
        self.memory_budget = memory_budget
        self.restart = restart
        self.tolerance = tolerance
        self.relation_range = relation_range
        self.neighbours = neighbours
        self.gives_probabilities = relation_range == "any"
        # There is no weight to tell the device by.
        self.register_buffer("place", torch.zeros(0), persistent=False)

    def bind(self, graph: KnowledgeGraph, message_splits: Sequence[str] = ("train",)) -> PageRankScorer:
        """Make the matrix of the walk."""
        assert isinstance(self.place, Tensor)
        triples = graph.with_reciprocals(graph.triples(*message_splits)).to(self.place.device)
        shown = triples[:, [1, 2]] if self.relation_range == "first" else None
        linked = None
        if self.neighbours == "consistent":
            linked = LinkedPairs(graph.queries(*message_splits).to(self.place.device))
        return PageRankScorer(
            triples[:, [0, 2]], graph.num_entities, self.restart, self.tolerance, shown, linked, self.memory_budget
        )


class PageRankScorer:
    r"""Personalised PageRank on a graph.

    With ``P`` the matrix of the walk, ``a`` the probability of a return and ``c = 1 − a``, it is the solution of
    ``x = c P x + a e``. Steps of this equation, as a walker makes them, multiply the error by ``c``. Chebyshev's
    semi-iteration (Golub and Varga, 1961) mixes each with the two before,

    .. math::
        x_{k+1} = \omega_{k+1} (c P x_k + a e) + (1 - \omega_{k+1}) x_{k-1}, \qquad
        \omega_1 = 1, \quad \omega_2 = (1 - c^2 / 2)^{-1}, \quad \omega_{k+1} = (1 - \omega_k c^2 / 4)^{-1},

    which multiplies the error by ``T_k(P) / T_k(1/c)``. The roots of the degrees make ``P`` symmetric, so the errors
    of all entities sum to at most ``√(Σ degrees / least degree) / cosh(k arcosh(1/c))``. All iterates sum to 1.

    Args:
        edges: Shape ``(num_edges, 2)``, both directions of each.
        num_entities: The number of entities.
        restart: The probability of a return.
        tolerance: The most that probabilities may be off in all.
        shown: The relations with their objects that come before others, shape ``(num_facts, 2)``; None: none does.
        linked: Links that may exclude a relation; None: none does.
        memory_budget: As of the model.
    """

    def __init__(
        self,
        edges: Tensor,
        num_entities: int,
        restart: float,
        tolerance: float,
        shown: Tensor | None = None,
        linked: LinkedPairs | None = None,
        memory_budget: int | None = None,
    ) -> None:
        self.memory_budget = memory_budget
        self.num_entities = num_entities
        self.restart = restart
        lonely = torch.ones(num_entities, dtype=torch.bool, device=edges.device)
        lonely[edges[:, 0]] = False
        stays = torch.nonzero(lonely).expand(-1, 2)
        source, target = torch.cat([edges, stays]).unbind(1)
        degrees = torch.bincount(source, minlength=num_entities).double()
        # Column v holds where a walker at v goes; several facts between two entities are several ways.
        places, sizes = torch.stack([target, source]), (num_entities, num_entities)
        with torch.sparse.check_sparse_tensor_invariants(enable=False):  # said aloud, for torch warns of silence
            self.transitions = _for_products(torch.sparse_coo_tensor(places, 1 / degrees[source], sizes).coalesce())
        spread = math.sqrt(float(degrees.sum() / degrees.min())) if num_entities else 1.0
        self.num_steps = _steps(spread, 1 - restart, tolerance)
        self._linked = linked
        self._shown = None if shown is None else torch.unique(shown[:, 0] * num_entities + shown[:, 1])

    @property
    def device(self) -> torch.device:
        """Where questions must be put."""
        return self.transitions.device

    def probabilities(self, subjects: Tensor) -> Tensor:
        """Where a walker from each subject is; shape ``(num_subjects, num_entities)``, float64."""
        places = subjects, torch.arange(len(subjects), device=self.device)
        before = torch.zeros(self.num_entities, len(subjects), dtype=torch.float64, device=self.device)
        before[places] = 1.0
        now, weight = self._stepped(before, before, 1.0, places), 2.0
        for _ in range(1, self.num_steps):
            weight = 1 / (1 - weight * (1 - self.restart) ** 2 / 4)
            before, now = now, self._stepped(now, before, weight, places)
        return now.clamp_(min=0).T.contiguous()

    def _stepped(self, now: Tensor, before: Tensor, weight: float, places: tuple[Tensor, Tensor]) -> Tensor:
        """``ω (c P x_k + a e) + (1 − ω) x_{k−1}``; ``e`` is 1 at the places."""
        found = torch.addmm(before, self.transitions, now, beta=1 - weight, alpha=weight * (1 - self.restart))
        found[places] += weight * self.restart
        return found

    def scores(self, subjects: Tensor, relations: Tensor) -> Tensor:
        """Shape ``(num_questions, num_entities)``, float64."""
        different, which = torch.unique(subjects, return_inverse=True)
        budget = cached_budget_on(self.device, self.memory_budget)
        rows = rows_within(budget, self.num_entities, _BUFFERS, _BYTES, device=self.device)
        parts = [self.probabilities(part) for part in different.split(rows)]
        scores = torch.cat(parts)[which] if parts else subjects.new_zeros(0, self.num_entities).double()
        scores[torch.arange(len(subjects), device=self.device), subjects] = 0.0
        if self._linked is not None:
            self._linked.silence_(scores, subjects, relations)
        if self._shown is not None:
            asked, place = torch.unique(relations, return_inverse=True)
            for number, relation in enumerate(asked.tolist()):
                scores[place == number] += self._is_shown(relation)
        return scores

    def _is_shown(self, relation: int) -> Tensor:
        """1 for the objects of a relation, 0 for the others; shape ``(num_entities,)``."""
        assert self._shown is not None
        ends = torch.tensor([relation, relation + 1], device=self.device) * self.num_entities
        first, last = torch.searchsorted(self._shown, ends).tolist()
        is_shown = torch.zeros(self.num_entities, dtype=torch.float64, device=self.device)
        is_shown[self._shown[first:last] % self.num_entities] = 1.0
        return is_shown


def _for_products(transitions: Tensor) -> Tensor:
    """The matrix as it is multiplied fastest: on a CPU by MKL, where torch has it, which wants rows."""
    if transitions.device.type != "cpu" or not torch.backends.mkl.is_available():
        return transitions
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch says that such matrices are new
        return transitions.to_sparse_csr()


def _steps(spread: float, c: float, tolerance: float) -> int:
    """The least ``k``, at least 1, with ``spread / cosh(k arcosh(1/c)) ≤ tolerance``."""
    if not c:
        return 1
    return max(1, math.ceil(math.acosh(max(1.0, spread / tolerance)) / math.acosh(1 / c)))
