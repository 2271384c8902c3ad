"""Measuring and asking trained runs: :func:`evaluate`, :func:`predict`, :func:`explain`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import torch

from refactorgnn.data.files import TripleFile, read_entities, read_triples
from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.data.loading import load_graph
from refactorgnn.errors import UserError
from refactorgnn.evaluation.protocols import Evaluation, Ranking, evaluate_ranking
from refactorgnn.evaluation.ranking import Ties
from refactorgnn.models.base import LinkPredictor
from refactorgnn.predict.explaining import Explanation
from refactorgnn.predict.predictor import Answer, Predictor, Question
from refactorgnn.predict.rules import RuleInWords, learned_rules
from refactorgnn.runs import Run


def evaluate(
    run: str | Path | Run,
    *,
    split: str = "test",
    graph: str | Path | KnowledgeGraph | None = None,
    ranking: Ranking = "full",
    ties: Ties = "realistic",
    filter_splits: Sequence[str] | None = None,
    known_splits: Sequence[str] = ("train",),
    seed: int = 0,
    confidence: bool = True,
    device: str = "cpu",
    data_root: str | Path | None = None,
    progress: bool = False,
) -> Evaluation:
    """Measure a trained run; ``refactorgnn evaluate``.

    Args:
        run: The run, or its folder.
        split: The split to ask about.
        graph: Another graph to measure on: a dataset name, a folder or a graph; the training graph if not given.
        ranking: ``"full"``, ``"partial"`` or ``"partial-exact"``.
        ties: ``"realistic"``, ``"optimistic"`` or ``"pessimistic"``.
        filter_splits: Splits whose facts are not counted as mistakes; all if not given.
        known_splits: Splits whose facts the model may use to answer; another than train cannot be asked about as well.
        seed: The seed of the negatives and of the bootstrap.
        confidence: Whether to add bootstrap intervals.
        device: Where to compute.
        data_root: A folder with local copies of the known datasets.
        progress: Show a bar.

    Example:
        >>> import refactorgnn
        >>> run = refactorgnn.train("countries", dim=32, epochs=3, out="runs/measured")
        >>> result = refactorgnn.evaluate(run, ranking="partial-exact")
        >>> list(result.metrics)
        ['mrr', 'mr', 'amri', 'hits@1', 'hits@3', 'hits@10']
        >>> result.protocol["num_negatives"]
        49
    """
    if not 0 <= seed < 2**63:
        raise UserError(f"seed={seed} cannot be used: choose a whole number from 0 on.")
    run = run if isinstance(run, Run) else Run.open(run)
    model = run.load_model(device)
    target = run.graph if graph is None else _graph(graph, data_root, progress)
    target = target.with_relations(model.relation_names)
    known = tuple(dict.fromkeys(known_splits))
    _check_known(known, split, model)
    result = evaluate_ranking(
        model.bind(target, known),
        target,
        split,
        ranking=ranking,
        ties=ties,
        filter_splits=filter_splits,
        seed=seed,
        confidence=confidence,
        progress=progress,
    )
    protocol = result.protocol | {"known": "+".join(known)}
    if graph is not None:
        protocol["num_seen_in_training"] = _num_seen(run.graph.with_relations(model.relation_names), target, split)
    return replace(result, protocol=protocol)


def _num_seen(trained_on: KnowledgeGraph, target: KnowledgeGraph, split: str) -> int:
    """How many facts of a split, by name, the run was trained on or validated by."""
    ids = torch.from_numpy(trained_on.entities.ids(target.entities.names))
    heads, relations, tails = target.triples(split).unbind(1)
    asked = torch.stack([ids[heads], relations, ids[tails]], dim=1)
    asked = asked[(asked >= 0).all(1)]
    seen = torch.cat([trained_on.triples(name) for name in ("train", "valid") if name in trained_on.splits])
    factors = torch.tensor([trained_on.num_relations * trained_on.num_entities, trained_on.num_entities, 1])
    return int(torch.isin((asked * factors).sum(1), (seen * factors).sum(1)).sum())


def _check_known(known: tuple[str, ...], split: str, model: LinkPredictor) -> None:
    """Refuse what a model cannot know, or must not."""
    if not known:
        raise UserError("no split that the model knows is named: train is the usual one.")
    if known == ("train",):  # as usual; how well the training facts are remembered may be asked, too
        return
    if split in known:
        raise UserError(f"split {split!r} is asked about and cannot be known: leave it out of --known.")
    if not model.uses_facts:
        raise UserError(
            f"--known {','.join(known)} changes nothing: this model looks at no facts when it is asked. Leave it out."
        )


def load_predictor(
    run: str | Path | Run,
    *,
    new: str | Path | None = None,
    new_texts: str | Path | None = None,
    new_mode: str | None = None,
    device: str = "cpu",
    index: str = "auto",
    progress: bool = False,
) -> Predictor:
    """A run ready to be asked, with new entities put in if there are any.

    Args:
        run: The run, or its folder.
        new: A file of facts about entities the run has never seen (and others); see :meth:`Predictor.add`.
        new_texts: A file of their texts.
        new_mode: ``"exact"`` (if not given) or ``"local"``.
        device: Where to compute.
        index: ``"auto"``, ``"exact"`` or ``"ann"``; see :meth:`Predictor.load`.
        progress: Show a bar while an index is made.

    Example:
        >>> import refactorgnn
        >>> run = refactorgnn.train("countries", dim=32, epochs=3, out="runs/loaded")
        >>> refactorgnn.load_predictor(run).graph.num_entities == run.graph.num_entities
        True
    """
    predictor = Predictor.load(run, device, index=index, progress=progress)
    if new is not None:
        facts = read_triples(new)
        texts = _texts_of_new(facts, predictor.graph) if new_texts is None else read_entities(new_texts)
        predictor.add(facts.table, texts, mode=new_mode or "exact")  # type: ignore[arg-type]  # checked by add
    elif new_texts is not None or new_mode is not None:
        what = "--new-texts" if new_texts is not None else "--new-mode"
        raise UserError(f"{what} has nothing to say without facts of new entities: add --new FILE or leave it out.")
    return predictor


def _texts_of_new(facts: TripleFile, graph: KnowledgeGraph) -> pa.Table | None:
    """What an RDF file says itself of entities that the graph does not have."""
    if facts.texts is None:
        return None
    return facts.texts.filter(pc.invert(pc.is_in(facts.texts["entity"], value_set=graph.entities.names)))


def predict(
    run: str | Path | Run | Predictor,
    *,
    relation: str | int | None = None,
    head: str | int | None = None,
    tail: str | int | None = None,
    k: int = 10,
    include_known: bool = False,
    typed: bool = False,
    device: str = "cpu",
    index: str = "auto",
) -> list[Answer]:
    """Ask a trained run; ``refactorgnn predict``. Two of relation, head and tail are given, the third is asked for.

    Args:
        run: The run, its folder, or a predictor made of it (to ask many questions without loading again).
        relation: The relation.
        head: The head, to ask for tails.
        tail: The tail, to ask for heads.
        k: The number of answers.
        include_known: Whether answers that the graph already has may be among them.
        typed: Whether only answers seen in that place of the relation in training may be among them.
        device: Where to compute, unless a predictor is given.
        index: ``"auto"``, ``"exact"`` or ``"ann"``, unless a predictor is given; see :meth:`Predictor.load`.

    Example:
        >>> import refactorgnn
        >>> run = refactorgnn.train("countries", dim=32, epochs=3, out="runs/asked")
        >>> answers = refactorgnn.predict(run, head="France", relation="borders", k=5)
        >>> len(answers), any(answer.known for answer in answers)
        (5, False)
    """
    if [head, relation, tail].count(None) != 1:
        raise UserError("a question has one unknown: give either head or tail and the relation, or head and tail.")
    predictor = run if isinstance(run, Predictor) else Predictor.load(run, device, index=index)
    return predictor.answer([Question(head, relation, tail)], k, include_known=include_known, typed=typed)[0]


def explain(
    run: str | Path | Run | Predictor,
    *,
    head: str | int,
    relation: str | int,
    tail: str | int,
    depth: int = 1,
    num_counterfactuals: int = 0,
    device: str = "cpu",
) -> Explanation:
    """Say why a triple has its score; ``refactorgnn explain``.

    Args:
        run: The run, its folder, or a predictor made of it.
        head: The head.
        relation: The relation.
        tail: The tail.
        depth: How many layers to split, from the last one back.
        num_counterfactuals: How many facts to take away, one at a time, running the model again.
        device: Where to compute, unless a predictor is given.

    Example:
        >>> import refactorgnn
        >>> run = refactorgnn.train("countries_part", model="refactor", layers=2, dim=16, epochs=2, out="runs/why")
        >>> reasons = refactorgnn.explain(run, head="France", relation="borders", tail="Spain")
        >>> abs(sum(term.contribution for term in reasons.by_tail) - reasons.score) < 1e-4
        True
    """
    predictor = run if isinstance(run, Predictor) else Predictor.load(run, device, index="exact")
    return predictor.explain(head, relation, tail, depth=depth, num_counterfactuals=num_counterfactuals)


def rules(run: str | Path | Run, *, relation: str | None = None, k: int = 20) -> list[RuleInWords]:
    """The rules that a run of RuleN has learned, the most confident first; ``refactorgnn rules``.

    Args:
        run: The run, or its folder.
        relation: The relation that they are about; all if not given.
        k: How many.

    Example:
        >>> import refactorgnn
        >>> run = refactorgnn.train("countries", model="rulen", out="runs/ruled")
        >>> refactorgnn.rules(run, relation="borders", k=1)[0].text
        'borders(X, Y) ← borders(Y, X)'
    """
    return learned_rules(run if isinstance(run, Run) else Run.open(run), relation, k)


def _graph(source: str | Path | KnowledgeGraph, data_root: str | Path | None, progress: bool) -> KnowledgeGraph:
    return source if isinstance(source, KnowledgeGraph) else load_graph(source, data_root=data_root, progress=progress)
