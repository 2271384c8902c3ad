"""Answers by way of an index: known ones left out, scores exact, probabilities without a pass over all entities.

A probability needs the softmax's normaliser, a sum over all entities that are not known. It is split: the shortlist,
which holds the large terms, is summed exactly; the rest is estimated, without bias, from a fixed random sample of the
entities. The sample also tells its standard error, to which the weight of one term is added that is as large as those
in the middle of the shortlist: a sample can not tell of large terms that it has not met. Where the error could move the
log-odds by more than :data:`MOST_ERROR` (a probability ``p`` by ``a p (1 − p)`` times that, 0.01 at most for
``a = 1``), the sum is taken over all entities after all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from refactorgnn.data.queries import QueryIndex
from refactorgnn.models.base import DotProductScorer
from refactorgnn.ops.chunked import matmul
from refactorgnn.predict.candidates import odds_given_total
from refactorgnn.predict.index import VectorIndex
from refactorgnn.seeds import combined_seed

# The error that the log of a normaliser may have.
MOST_ERROR = 0.04
_SAMPLE = 16_384
# What is summed exactly where probabilities are wanted, even if a shorter list has the answers.
_SUMMED = 2048


@dataclass(frozen=True)
class Found:
    """The best answers to a question, best first.

    Args:
        entities: Their ids.
        scores: The model's own.
        log_odds: See :func:`~refactorgnn.predict.candidates.log_odds`; None unless asked for.
    """

    entities: Tensor
    scores: Tensor
    log_odds: Tensor | None


class IndexedScorer:
    """A bound model with an index of its candidates.

    Args:
        bound: The model; its scores are dot products.
        index: The index.
    """

    def __init__(self, bound: DotProductScorer, index: VectorIndex) -> None:
        assert bound.candidates is not None
        self.bound = bound
        self.index = index
        self.candidates = bound.candidates
        generator = torch.Generator().manual_seed(combined_seed(0, index.num_entities))
        self._sample = torch.randperm(index.num_entities, generator=generator)[:_SAMPLE]
        self._sampled = self.candidates[self._sample.to(bound.device)].contiguous()

    @torch.no_grad()
    def best(
        self,
        subject: int,
        relation: int,
        known: QueryIndex,
        k: int,
        *,
        include_known: bool,
        include_itself: bool = True,
        with_odds: bool,
    ) -> Found | None:
        """The ``k`` best answers to ``(subject, relation, ?)``.

        None if the index cannot give as many as there are; they must then be looked for among all entities.

        Args:
            subject: The subject's id.
            relation: The relation's, reciprocals included.
            known: The facts that count as known.
            k: How many.
            include_known: Whether known answers may be among them.
            include_itself: Whether the subject may.
            with_odds: Whether log-odds are needed.
        """
        asked = torch.tensor([subject]), torch.tensor([relation])
        objects = known.objects_of(*asked).columns.unique()
        query = self.bound.queries(*(part.to(self.bound.device) for part in asked))[0]
        barred = torch.tensor([] if include_itself else [subject], dtype=torch.int64)
        silent = torch.cat([objects, barred]).unique()  # what takes no part in the softmax
        left_out = barred if include_known else silent
        entities = self.index.shortlist(query, k + len(left_out), _SUMMED if with_odds else 0)
        if entities is None:
            return None
        scores = self._scores(query, entities)
        is_left_out = torch.isin(entities, left_out)
        allowed = scores.masked_fill(is_left_out, -torch.inf)
        num_answers = min(k, self.index.num_entities - len(left_out))
        num_found = len(entities) - int(is_left_out.sum())
        if num_found < num_answers:
            return None
        best = torch.topk(allowed, num_answers).indices
        odds = None
        if with_odds:
            is_silent = torch.isin(entities, silent)
            total = self._log_normaliser(query, entities, scores.double(), is_silent, silent)
            odds = odds_given_total(scores[best].double(), is_silent[best], total)
        return Found(entities[best], scores[best], odds)

    def _scores(self, query: Tensor, entities: Tensor) -> Tensor:
        rows = self.candidates.index_select(0, entities.to(self.candidates.device))
        return matmul(rows, query[:, None])[:, 0].cpu()

    def _log_normaliser(
        self, query: Tensor, entities: Tensor, scores: Tensor, is_silent: Tensor, silent: Tensor
    ) -> Tensor:
        """``log Σ exp(s_w)`` over all entities that are not ``silent``."""
        sampled = matmul(self._sampled, query[:, None])[:, 0].cpu().double()
        is_counted = torch.zeros(self.index.num_entities, dtype=torch.bool)
        is_counted[entities] = True
        is_counted[silent] = True
        is_rest = ~is_counted[self._sample]
        shift = torch.maximum(scores.max(), sampled.max())
        listed = torch.exp(scores[~is_silent] - shift).sum()
        terms = torch.where(is_rest, torch.exp(sampled - shift), 0.0)
        weight = self.index.num_entities / len(terms)  # of a sampled term; 1 if all are in the sample
        total = listed + weight * terms.sum()
        spread = weight * terms.std() * math.sqrt(len(terms) * (1 - 1 / weight))
        unseen = (weight - 1) * torch.exp(scores.median() - shift)
        if bool(spread + unseen <= MOST_ERROR * total):
            return torch.log(total) + shift
        all_scores = matmul(self.candidates, query[:, None])[:, 0].double().cpu()
        return torch.logsumexp(all_scores.index_fill(0, silent, -torch.inf), dim=0)
