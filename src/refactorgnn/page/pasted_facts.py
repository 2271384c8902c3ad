"""Facts that somebody pasted: a head, a relation and a tail in each line, by tabs or commas; mistakes line by line."""

from __future__ import annotations

import csv
from dataclasses import dataclass

from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.errors import closest_names

MOST_LINES = 1000
MOST_CHARACTERS = 100_000
_HEADER = ("head", "relation", "tail")


@dataclass(frozen=True)
class Mistake:
    """What is wrong with a line, as a sentence."""

    line: int
    problem: str

    def __str__(self) -> str:
        return f"Line {self.line}: {self.problem}"


@dataclass(frozen=True)
class PastedFacts:
    """What was understood of a pasted text.

    Args:
        triples: The facts of the lines that are right.
        mistakes: What is wrong with the others.
    """

    triples: tuple[tuple[str, str, str], ...]
    mistakes: tuple[Mistake, ...]


def read_pasted(text: str, graph: KnowledgeGraph) -> PastedFacts:
    """Read pasted facts; relations must be those of ``graph``, entities may be new.

    Blank lines are passed over, and so is a first line ``head relation tail``.
    """
    lines = [(number, line) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]
    if len(text) > MOST_CHARACTERS or len(lines) > MOST_LINES:
        limit = f"at most {MOST_LINES:,} lines and {MOST_CHARACTERS:,} characters can be added here at once"
        return PastedFacts((), (Mistake(lines[0][0] if lines else 1, f"{limit}: split the facts, or use the API."),))
    triples, mistakes = [], []
    for place, (number, line) in enumerate(lines):
        fields = [field.strip() for field in _fields(line)]
        if place == 0 and tuple(field.casefold() for field in fields) == _HEADER:
            continue
        if problem := _problem(fields, graph):
            mistakes.append(Mistake(number, problem))
        else:
            triples.append((fields[0], fields[1], fields[2]))
    return PastedFacts(tuple(triples), tuple(mistakes))


def _fields(line: str) -> list[str]:
    if "\t" in line:
        return line.split("\t")
    try:
        return next(csv.reader([line], skipinitialspace=True), [])
    except csv.Error:  # a field too long to be a name
        return [line]


def _problem(fields: list[str], graph: KnowledgeGraph) -> str | None:
    if len(fields) != 3:
        found = "1 field" if len(fields) == 1 else f"{len(fields)} fields"
        return f"{found} where 3 are needed; write head, relation and tail with tabs or commas between."
    if empty := next((name for name, field in zip(_HEADER, fields, strict=True) if not field), None):
        return f"the {empty} is empty; fill it in or remove the line."
    relation = fields[1]
    if relation not in graph.relations:
        closest = closest_names(relation, graph.relations)
        hint = f"did you mean {' or '.join(map(repr, closest))}?" if closest else "use one the model was trained on."
        return f"relation {relation!r} was not seen in training; {hint}"
    return None
