"""Answers by name: the best heads, tails or relations of a question, with probabilities, from a trained run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor

from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.errors import NotFoundError, UserError
from refactorgnn.models.base import LinkPredictor, QueryScorer
from refactorgnn.predict.calibration import Calibration, calibration_of, fit_calibration
from refactorgnn.predict.candidates import Kinds, ScoredQuestions, irreflexive, scored_questions
from refactorgnn.predict.explaining import Explanation, explain_triple
from refactorgnn.predict.growing import Added, Facts, LocalState, Mode, Texts, grow
from refactorgnn.predict.run_index import grown_index, indexed
from refactorgnn.predict.searching import Found, IndexedScorer
from refactorgnn.runs import Run

# A name or label, or an id.
Name: TypeAlias = str | int


@dataclass(frozen=True)
class Question:
    """A triple with one unknown, which is None: ``(head, relation, ?)``, ``(?, relation, tail)``, ``(head, ?, tail)``.

    Entities are given by name, label or id, relations by name or id.
    """

    head: Name | None
    relation: Name | None
    tail: Name | None

    def __post_init__(self) -> None:
        if [self.head, self.relation, self.tail].count(None) != 1:
            raise UserError("a question has one unknown: give two of head, relation and tail.")

    def __str__(self) -> str:
        return f"({', '.join('?' if part is None else str(part) for part in (self.head, self.relation, self.tail))})"


@dataclass(frozen=True)
class Answer:
    """One answer to a question.

    Args:
        entity: The entity's name, as in the data; a relation's where the relation was asked for.
        label: Its label for people.
        score: The model's score; comparable among the answers to one question.
        known: Whether the graph already says so.
        split: The split in which the graph says so, if it does.
        probability: How likely it is to be true (see :mod:`refactorgnn.predict.calibration`), seen as if it were not
            known; None where the graph has too few validation triples to tell.
    """

    entity: str
    label: str
    score: float
    known: bool
    split: str | None
    probability: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


class Predictor:
    """Answers questions about a graph with a trained model.

    Args:
        model: The model.
        graph: The graph to answer about, its relations numbered as the model's.
        calibration: The map from scores to probabilities; fitted on the validation split of ``graph`` when it is first
            needed, if not given.
        index: ``"auto"``, ``"exact"`` or ``"ann"``; see :meth:`load`.
        run: The run whose model and graph these are, if they are: what is made once is kept in its folder.
        progress: Show a bar while an index is made.

    Example:
        >>> import refactorgnn
        >>> run = refactorgnn.train("countries", dim=32, epochs=3, out="runs/predictor")
        >>> predictor = Predictor.load(run)
        >>> len(predictor.tails("France", "borders", k=3)), len(predictor.heads("borders", "France", k=3))
        (3, 3)
        >>> [len(answers) for answers in predictor.answer([Question("France", "borders", None)] * 2, k=4)]
        [4, 4]
    """

    def __init__(
        self,
        model: LinkPredictor,
        graph: KnowledgeGraph,
        calibration: Calibration | None = None,
        *,
        index: str = "auto",
        run: Run | None = None,
        progress: bool = False,
    ) -> None:
        self.model = model
        self.graph = graph
        self.bound: QueryScorer = model.bind(graph)
        self.run = run
        self._indexed: IndexedScorer | None = indexed(self.bound, graph, index, run=run, progress=progress)
        self._local: LocalState | None = None
        self.new_entities: tuple[str, ...] = ()
        if calibration is not None:
            self.calibration = calibration

    @classmethod
    def load(
        cls, run: str | Path | Run, device: str = "cpu", *, index: str = "auto", progress: bool = False
    ) -> Predictor:
        """The predictor of a run, about the graph it was trained on.

        Args:
            run: The run, or its folder.
            device: Where to compute.
            index: How the best entities are found. ``"exact"`` scores all of them. ``"ann"`` scores a shortlist that an
                index of vectors finds (:mod:`refactorgnn.predict.index`; extra ``ann``), kept in the run's folder.
                ``"auto"`` is exact below 200,000 entities and for models whose scores are not dot products.
            progress: Show a bar while an index is made.
        """
        run = run if isinstance(run, Run) else Run.open(run)
        return cls(run.load_model(device), run.graph, index=index, run=run, progress=progress)

    @cached_property
    def calibration(self) -> Calibration | None:
        """The map from scores to probabilities, with its reliability; None where it cannot be told."""
        return fit_calibration(self.bound, self.graph) if self.run is None else calibration_of(self.run, self.bound)

    @cached_property
    def kinds(self) -> Kinds:
        """Which entities the train split shows as heads and tails of each relation."""
        return Kinds(self.graph.queries("train"))

    @cached_property
    def irreflexive(self) -> Tensor:
        """Of each relation and reciprocal, whether no fact of the train split links an entity to itself by it."""
        return irreflexive(self.graph.queries("train"))

    def tails(
        self, head: Name, relation: Name, k: int = 10, *, include_known: bool = False, typed: bool = False
    ) -> list[Answer]:
        """The ``k`` best answers to ``(head, relation, ?)``; see :meth:`answer`."""
        return self.answer([Question(head, relation, None)], k, include_known=include_known, typed=typed)[0]

    def heads(
        self, relation: Name, tail: Name, k: int = 10, *, include_known: bool = False, typed: bool = False
    ) -> list[Answer]:
        """The ``k`` best answers to ``(?, relation, tail)``; see :meth:`answer`."""
        return self.answer([Question(None, relation, tail)], k, include_known=include_known, typed=typed)[0]

    def relations(
        self, head: Name, tail: Name, k: int = 10, *, include_known: bool = False, typed: bool = False
    ) -> list[Answer]:
        """The ``k`` best answers to ``(head, ?, tail)``; see :meth:`answer`."""
        return self.answer([Question(head, None, tail)], k, include_known=include_known, typed=typed)[0]

    def answer(
        self, questions: Sequence[Question], k: int = 10, *, include_known: bool = False, typed: bool = False
    ) -> list[list[Answer]]:
        """The best answers to many questions, in one product for as many of them as memory allows, or by an index.

        An entity is no answer to a question about itself, unless the train split has such a fact of the relation.
        An index finds entities, of any kind; questions with ``typed`` and those for relations score all candidates.
        Relations between two given entities are put in the order of their log-odds, for the scores of different
        relations cannot be compared.

        Args:
            questions: The questions, of all three kinds.
            k: The number of answers to each.
            include_known: Whether answers that the graph already has may be among them.
            typed: Only answers that the train split shows in that place of the relation: borders are shared by
                countries alone.
        """
        if k < 1:
            raise UserError(f"k={k} answers cannot be given: ask for at least 1.")
        found: list[list[Answer]] = [[] for _ in questions]
        for_entities = [place for place, question in enumerate(questions) if question.relation is not None]
        if self._indexed is not None and not typed:
            for_entities = [
                place
                for place in for_entities
                if not self._find(self._indexed, questions[place], k, include_known, found[place])
            ]
        asked = torch.tensor([self._asked(questions[place]) for place in for_entities]).reshape(-1, 2)
        for rows in self._scored(asked[:, 0], asked[:, 1]):
            for place, answers in zip(
                for_entities[rows.places], self._best(rows, asked[rows.places], k, include_known, typed), strict=True
            ):
                found[place] = answers
        for place, question in enumerate(questions):
            if question.relation is None:
                found[place] = self._best_relations(question, k, include_known, typed)
        return found

    def score(self, triples: Sequence[tuple[Name, Name, Name]]) -> list[Answer]:
        """How good whole triples are: each tail as an answer to ``(head, relation, ?)``."""
        places = [self._triple(*triple) for triple in triples]
        asked = torch.tensor(places).reshape(-1, 3)
        answers: list[Answer] = []
        for rows in self._scored(asked[:, 0], asked[:, 1]):
            mine = torch.arange(len(rows.scores)), asked[rows.places, 2]
            probabilities = self._probabilities(rows.log_odds[mine], asked[rows.places, 1])
            answers += self._answers(asked[rows.places], rows.scores[mine].tolist(), probabilities, rows.known[mine])
        return answers

    def add(self, facts: Facts, texts: Texts | None = None, *, mode: Mode = "exact") -> Added:
        """Put entities never seen, or a whole new graph, in, without training; see :mod:`refactorgnn.predict.growing`.

        If anything is wrong with what is given, it is refused and the predictor stays as it was.

        Args:
            facts: Triples of names, a table of them, or a graph; entities old or new, known relations only.
            texts: For new entities, a label or ``(label, description)`` by name, or a table of entity texts.
            mode: ``"exact"`` runs the layers again on the grown graph; ``"local"`` computes the new entities only, in
                milliseconds, the others staying where they are (ReFactor GNNs of finite depth).
        """
        calibration = self.calibration  # of the graph that has the validation split, before it grows
        growth = grow(self.model, self.graph, facts, texts, mode=mode, local=self._local)
        if self._indexed is not None:
            self._indexed = grown_index(self._indexed, growth.bound, growth.graph)
        self.graph, self.bound, self._local = growth.graph, growth.bound, growth.local
        self.calibration = calibration
        self.new_entities += growth.added.entities
        for derived in ("kinds", "irreflexive"):
            self.__dict__.pop(derived, None)
        return growth.added

    def explain(
        self, head: Name, relation: Name, tail: Name, *, depth: int = 1, num_counterfactuals: int = 0
    ) -> Explanation:
        """Why a triple has its score: its exact split, and what becomes of it without certain facts.

        Args:
            head: The head.
            relation: The relation.
            tail: The tail.
            depth: How many layers to split, from the last one back.
            num_counterfactuals: From how many facts to take away, one at a time, the model runs again: those that
                contribute most or, where a model does not say, those between head and tail first; see
                :mod:`refactorgnn.predict.explaining`.
        """
        if self._local is not None:
            raise UserError("states that were added with mode 'local' cannot be explained: add with mode 'exact'.")
        triple = self._triple(head, relation, tail)
        return explain_triple(
            self.model, self.graph, self.bound, triple, depth=depth, num_counterfactuals=num_counterfactuals
        )

    def entity_id(self, name: Name) -> int:
        """The id of an entity given by name, label or id."""
        return (
            self.graph.entity_id(name) if isinstance(name, str) else _in_range("entity", name, self.graph.num_entities)
        )

    def relation_id(self, name: Name) -> int:
        """The id of a relation given by name or id."""
        if isinstance(name, str):
            return self.graph.relations.id(name)
        return _in_range("relation", name, self.graph.num_relations)

    def _triple(self, head: Name, relation: Name, tail: Name) -> tuple[int, int, int]:
        return self.entity_id(head), self.relation_id(relation), self.entity_id(tail)

    def _asked(self, question: Question) -> tuple[int, int]:
        """Subject and relation of a question for an entity, a head question by way of the reciprocal."""
        given = question.tail if question.head is None else question.head
        assert given is not None
        assert question.relation is not None
        subject, relation = self.entity_id(given), self.relation_id(question.relation)
        return subject, relation + (self.graph.num_relations if question.head is None else 0)

    def _find(
        self, scorer: IndexedScorer, question: Question, k: int, include_known: bool, answers: list[Answer]
    ) -> bool:
        """Put the best answers by the index into ``answers``; False if all entities must be scored."""
        subject, relation = self._asked(question)
        with_odds = self.calibration is not None
        best: Found | None = scorer.best(
            subject,
            relation,
            self.graph.queries(),
            k,
            include_known=include_known,
            include_itself=not bool(self.irreflexive[relation]),
            with_odds=with_odds,
        )
        if best is None:
            return False
        asked = torch.tensor([subject, relation]).expand(len(best.entities), 2)
        odds = torch.empty(len(best.entities)) if best.log_odds is None else best.log_odds
        triples = torch.cat([asked, best.entities[:, None]], dim=1)
        objects = self.graph.queries().objects_of(torch.tensor([subject]), torch.tensor([relation])).columns
        known = torch.isin(best.entities, objects)
        answers += self._answers(triples, best.scores.tolist(), self._probabilities(odds, asked[:, 1]), known)
        return True

    def _scored(self, subjects: Tensor, relations: Tensor) -> Iterator[ScoredQuestions]:
        return scored_questions(self.bound, self.graph.queries(), subjects, relations, self.irreflexive)

    def _probabilities(self, odds: Tensor, relations: Tensor) -> list[float] | list[None]:
        """Of one candidate for each question, or of the same number for each if ``odds`` has two dimensions."""
        if self.calibration is None:
            return [None] * odds.numel()
        found: list[float] = (
            self.calibration.probabilities(odds, relations >= self.graph.num_relations).flatten().tolist()
        )
        return found

    def _best(
        self, rows: ScoredQuestions, asked: Tensor, k: int, include_known: bool, typed: bool
    ) -> Iterator[list[Answer]]:
        allowed = ~rows.itself if include_known else ~(rows.known | rows.itself)
        if typed:
            allowed &= self.kinds.masks(asked[:, 1]).to(allowed.device)
        best = torch.topk(rows.scores.masked_fill(~allowed, -torch.inf), min(k, rows.scores.shape[1]))
        odds = rows.log_odds.gather(1, best.indices)
        probabilities = self._probabilities(odds, asked[:, 1])
        width = best.indices.shape[1]
        for row, (scores, entities) in enumerate(zip(best.values.tolist(), best.indices.tolist(), strict=True)):
            kept = [place for place, score in enumerate(scores) if score > -torch.inf]
            triples = torch.tensor([[*asked[row].tolist(), entities[place]] for place in kept]).reshape(-1, 3)
            mine = [probabilities[row * width + place] for place in kept]
            known = rows.known[row, triples[:, 2]]
            yield self._answers(triples, [scores[place] for place in kept], mine, known)

    def _best_relations(self, question: Question, k: int, include_known: bool, typed: bool) -> list[Answer]:
        assert question.head is not None
        assert question.tail is not None
        head, tail = self.entity_id(question.head), self.entity_id(question.tail)
        relations = torch.arange(self.graph.num_relations)
        parts = [
            torch.stack([rows.scores[:, tail].double(), rows.log_odds[:, tail], rows.known[:, tail].double()]).cpu()
            for rows in self._scored(torch.full_like(relations, head), relations)
        ]
        scores, odds, known = torch.cat(parts, dim=1)
        allowed = torch.ones_like(relations, dtype=torch.bool) if include_known else known == 0
        if typed:
            allowed &= torch.tensor(
                [tail in self.kinds.of(r) and head in self.kinds.of(r + len(relations)) for r in relations.tolist()]
            )
        order = torch.argsort(odds, descending=True, stable=True)
        order = order[allowed[order]][:k]
        triples = torch.stack([torch.full_like(order, head), order, torch.full_like(order, tail)], dim=1)
        probabilities = self._probabilities(odds[order], order)
        answers = self._answers(triples, scores[order].tolist(), probabilities, known[order] > 0)
        names = [self.graph.relations[relation] for relation in order.tolist()]
        return [
            Answer(name, name, answer.score, answer.known, answer.split, answer.probability)
            for name, answer in zip(names, answers, strict=True)
        ]

    def _answers(
        self, triples: Tensor, scores: Sequence[float], probabilities: Sequence[float | None], known: Tensor
    ) -> list[Answer]:
        """The object of each triple as an answer to the question before it."""
        splits = self._splits_of(triples, known.cpu())
        return [
            Answer(self.graph.entities[entity], self.graph.label(entity), score, split is not None, split, probability)
            for entity, score, split, probability in zip(
                triples[:, 2].tolist(), scores, splits, probabilities, strict=True
            )
        ]

    def _splits_of(self, triples: Tensor, known: Tensor) -> list[str | None]:
        """The first split that has each triple; only those that are ``known`` are looked for."""
        found: list[str | None] = [None] * len(triples)
        places = torch.nonzero(known).flatten()
        for split in self.graph.splits if len(places) else ():
            asked = triples[places]
            objects = self.graph.queries(split).objects_of(asked[:, 0], asked[:, 1])
            hits = objects.rows[objects.columns == asked[objects.rows, 2]]
            for place in places[hits].tolist():
                found[place] = found[place] or split
        return found


def _in_range(kind: str, number: int, count: int) -> int:
    if not 0 <= number < count:
        raise NotFoundError(f"there is no {kind} of id {number}: ids are 0 to {count - 1}, or give its name.")
    return number
