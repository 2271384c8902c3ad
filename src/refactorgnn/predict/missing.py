"""All likely missing links of a graph, streamed to a file: every ``(head, relation, ?)`` is asked."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import torch
from torch import Tensor

from refactorgnn.data.files import TableWriter
from refactorgnn.errors import UserError
from refactorgnn.predict.calibration import Curve
from refactorgnn.predict.candidates import scored_questions
from refactorgnn.predict.open_questions import curve_over_all_questions, heads_to_ask
from refactorgnn.predict.predictor import Name, Predictor
from refactorgnn.progress import counting

MISSING_SCHEMA = pa.schema(
    [
        ("head", pa.string()),
        ("relation", pa.string()),
        ("tail", pa.string()),
        ("score", pa.float64()),
        ("probability", pa.float64()),
    ]
)


def write_missing_links(
    predictor: Predictor,
    path: str | Path,
    threshold: float,
    *,
    relation: Name | None = None,
    typed: bool = False,
    progress: bool = False,
) -> int:
    """Write all facts that the graph does not have and that are at least ``threshold`` likely.

    The probability is that of a fact nobody asked about: most questions have no answer left
    (:mod:`refactorgnn.predict.open_questions`). The same fact as the answer to a question has a higher one.
    They come relation by relation and head by head, the likeliest tail first; memory does not grow with their number.

    Args:
        predictor: What answers.
        path: A TSV, CSV or Parquet file of ``head``, ``relation``, ``tail``, ``score`` and ``probability``, which
            appears when it is complete.
        threshold: The least probability, between 0 and 1.
        relation: Look at this relation only.
        typed: Only heads and tails that the train split shows in that place of the relation: less to compute.
        progress: Show a bar.

    Returns:
        The number of links.
    """
    if not 0 < threshold < 1:
        raise UserError(f"threshold {threshold:g} is no probability between 0 and 1: choose one such as 0.9.")
    curve = curve_over_all_questions(predictor, typed=typed)
    if curve is None:
        raise UserError(
            f"graph {predictor.graph.name!r} has too few validation triples to tell probabilities: "
            "ask single questions instead, or train on a graph with a larger valid split."
        )
    chosen = range(predictor.graph.num_relations) if relation is None else [predictor.relation_id(relation)]
    heads = dict(enumerate(heads_to_ask(predictor, typed=typed)))
    heads = {number: heads[number] for number in chosen}
    total = 0
    with (
        TableWriter(path, MISSING_SCHEMA) as writer,
        counting("looking for links", sum(map(len, heads.values())), enabled=progress) as bar,
    ):
        for number, subjects in heads.items():
            found = _likely(predictor, number, subjects, curve, threshold, typed)
            for triples, scores, probabilities, num_asked in found:
                entities = predictor.graph.entities
                writer.write(
                    {
                        "head": [entities[head] for head in triples[:, 0].tolist()],
                        "relation": [predictor.graph.relations[number]] * len(triples),
                        "tail": [entities[tail] for tail in triples[:, 1].tolist()],
                        "score": scores.tolist(),
                        "probability": probabilities.tolist(),
                    }
                )
                total += len(triples)
                bar.advance(num_asked, note=f"{total:,} found")
    return total


def _likely(
    predictor: Predictor, relation: int, subjects: Tensor, curve: Curve, threshold: float, typed: bool
) -> Iterator[tuple[Tensor, Tensor, Tensor, int]]:
    """``(head, tail)`` pairs with their scores and probabilities, and how many heads were asked about, by chunks."""
    relations = torch.full_like(subjects, relation)
    known = predictor.graph.queries()
    for rows in scored_questions(predictor.bound, known, subjects, relations, predictor.irreflexive):
        likely = curve.slope * rows.log_odds + curve.offset >= math.log(threshold / (1 - threshold))
        likely &= ~(rows.known | rows.itself)
        if typed:
            likely &= predictor.kinds.masks(torch.tensor([relation])).to(likely.device)
        places, tails = likely.nonzero(as_tuple=True)
        scores, odds = rows.scores[places, tails].cpu(), rows.log_odds[places, tails].cpu()
        places, tails = places.cpu(), tails.cpu()
        order = torch.argsort(-scores, stable=True)
        order = order[torch.argsort(places[order], stable=True)]
        pairs = torch.stack([subjects[rows.places][places], tails], dim=1)[order]
        yield pairs, scores[order], curve(odds[order]), len(rows.scores)
