"""Answers by name: the top-k heads or tails of a question, from a trained run."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.errors import UserError
from refactorgnn.models.base import LinkPredictor
from refactorgnn.runs import Run


@dataclass(frozen=True)
class Answer:
    """One answer to a question.

    Args:
        entity: The entity's name, as in the data.
        label: Its label for people.
        score: The model's score; comparable among the answers to one question.
        known: Whether the graph already says so.
        split: The split in which the graph says so, if it does.
    """

    entity: str
    label: str
    score: float
    known: bool
    split: str | None

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


class Predictor:
    """Answers questions about a graph with a trained model.

    Args:
        model: The model.
        graph: The graph to answer about.

    Example:
        >>> import refactorgnn
        >>> run = refactorgnn.train("countries", dim=32, epochs=3, out="runs/predictor")
        >>> predictor = Predictor.load(run)
        >>> len(predictor.tails("France", "borders", k=3)), len(predictor.heads("borders", "France", k=3))
        (3, 3)
    """

    def __init__(self, model: LinkPredictor, graph: KnowledgeGraph) -> None:
        self.graph = graph
        self._bound = model.bind(graph)

    @classmethod
    def load(cls, run: str | Path | Run, device: str = "cpu") -> Predictor:
        """The predictor of a run, about the graph it was trained on."""
        run = run if isinstance(run, Run) else Run.open(run)
        return cls(run.load_model(device), run.graph)

    def tails(self, head: str, relation: str, k: int = 10, *, include_known: bool = False) -> list[Answer]:
        """The ``k`` best answers to ``(head, relation, ?)``; answers the graph has already are left out by default."""
        return self._answer(self.graph.entity_id(head), self.graph.relations.id(relation), k, include_known)

    def heads(self, relation: str, tail: str, k: int = 10, *, include_known: bool = False) -> list[Answer]:
        """The ``k`` best answers to ``(?, relation, tail)``; answers the graph has already are left out by default."""
        reciprocal = self.graph.relations.id(relation) + self.graph.num_relations
        return self._answer(self.graph.entity_id(tail), reciprocal, k, include_known)

    def _answer(self, subject: int, relation: int, k: int, include_known: bool) -> list[Answer]:
        if k < 1:
            raise UserError(f"k={k} answers cannot be given: ask for at least 1.")
        question = torch.tensor([subject]), torch.tensor([relation])
        split_of = self._splits_of_answers(*question)
        device = self._bound.device
        with torch.no_grad():
            scores = self._bound.scores(question[0].to(device), question[1].to(device))[0].cpu()
        if not include_known:
            scores[list(split_of)] = -torch.inf
        best = torch.topk(scores, min(k, len(scores)))
        return [
            Answer(
                self.graph.entities[entity], self.graph.label(entity), score, entity in split_of, split_of.get(entity)
            )
            for score, entity in zip(best.values.tolist(), best.indices.tolist(), strict=True)
            if score > -torch.inf
        ]

    def _splits_of_answers(self, subject: Tensor, relation: Tensor) -> dict[int, str]:
        """The answers the graph has, each with the first split that has it."""
        found: dict[int, str] = {}
        for split in self.graph.splits:
            for entity in self.graph.queries(split).objects_of(subject, relation).columns.tolist():
                found.setdefault(entity, split)
        return found
