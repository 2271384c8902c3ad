"""Random small graphs for property tests: multigraphs with self-loops, isolated nodes, one relation, one entity."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from torch import Tensor

from refactorgnn.data.queries import QueryIndex
from refactorgnn.scorers import Scorer, make_scorer


@dataclass(frozen=True)
class Case:
    num_entities: int
    num_relations: int
    triples: Tensor
    seed: int

    @property
    def queries(self) -> QueryIndex:
        return QueryIndex.from_triples(self.triples, self.num_entities, self.num_relations)

    def tensors(self, scorer_name: str, dim: int = 4, scale: float = 1.0) -> tuple[Scorer, Tensor, Tensor]:
        scorer = make_scorer(scorer_name, dim)
        generator = torch.Generator().manual_seed(self.seed)
        states = scale * torch.randn(self.num_entities, dim, dtype=torch.float64, generator=generator)
        relations = torch.randn(self.num_relations, scorer.relation_dim, dtype=torch.float64, generator=generator)
        return scorer, states, relations


@st.composite
def cases(draw: st.DrawFn, max_entities: int = 7, max_relations: int = 3, max_triples: int = 12) -> Case:
    num_entities = draw(st.integers(1, max_entities))
    num_relations = draw(st.integers(1, max_relations))
    triple = st.tuples(
        st.integers(0, num_entities - 1), st.integers(0, num_relations - 1), st.integers(0, num_entities - 1)
    )
    triples = draw(st.lists(triple, min_size=1, max_size=max_triples))  # repeats allowed: a multigraph
    return Case(num_entities, num_relations, torch.tensor(triples), draw(st.integers(0, 2**16)))
