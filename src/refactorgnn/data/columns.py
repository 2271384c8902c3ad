"""Which column is which: the layouts of triple and entity tables, and the names people give their columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from refactorgnn.errors import FileError

LABEL_TYPE = pa.dictionary(pa.int32(), pa.string())


@dataclass(frozen=True)
class Layout:
    """The columns of one kind of table.

    Attributes:
        rows: What one row is called in messages, in the plural.
        aliases: For each column, the names it goes by in files, the most telling first.
        letters: Headers of single letters. They count only as a whole set, because toy graphs are full of
            entities called ``s`` or ``t``, and their first row must not be taken for a header.
        required: The columns that must be there and must not be empty.
        widths: The numbers of columns that make sense without a header.
        blanks: Whether blanks may separate the columns of a ``.txt`` file; not where labels have words.
        unique: The column whose values must differ from row to row, if any.
        column_type: The type of every column once read.
    """

    rows: str
    aliases: Mapping[str, tuple[str, ...]]
    letters: tuple[tuple[str, ...], ...]
    required: tuple[str, ...]
    widths: tuple[int, ...]
    blanks: bool
    unique: str | None
    column_type: pa.DataType

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns, in order."""
        return tuple(self.aliases)

    def match(self, header: Sequence[str]) -> dict[str, int]:
        """Return the position of each column recognised in ``header``."""
        folded = [_fold(name) for name in header]
        found: dict[str, int] = {}
        for column, aliases in self.aliases.items():
            position = next((folded.index(alias) for alias in aliases if alias in folded), None)
            if position is not None:
                found[column] = position
        for letters in self.letters:
            if not found and set(letters) <= set(folded):
                found = {column: folded.index(letter) for column, letter in zip(self.aliases, letters, strict=True)}
        return found

    def is_header(self, fields: Sequence[str]) -> bool:
        """Whether a file's first row is a header: at least two columns are recognised, or the only one is.

        One name in a row of three may well be a label ("type", "label"); two are no accident.
        """
        return len(self.match(fields)) >= min(2, len(fields))

    def locate(self, path: Path, header: Sequence[str], line: int | None = None) -> dict[str, int]:
        """Like :meth:`match`, for what is known to be a header: every required column must be there, once."""
        found = self.match(header)
        for column in self.required:
            if column not in found:
                given = ", ".join(map(repr, header))
                problem = f"the header has no column for the {column} (its columns are {given})"
                remedy = f"name one of them {column!r} (or {', '.join(map(repr, self.aliases[column][1:]))}), " + (
                    "or put a header above this line if it is data" if line is not None else "or add such a column"
                )
                raise FileError(path, problem, remedy, line=line)
        folded = [_fold(name) for name in header]
        for position in found.values():
            if folded.count(folded[position]) > 1:
                problem = f"the header has two columns named {header[position]!r}"
                raise FileError(path, problem, "rename one of them", line=line)
        return found


def _fold(name: str) -> str:
    """Return a column name without case, blanks and the marks of ``:START_ID`` (Neo4j) or ``?s`` (SPARQL)."""
    return name.strip().lstrip(":?#").strip().casefold().replace(" ", "_").replace("-", "_")


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


TRIPLES = Layout(
    rows="triples",
    aliases={
        "head": _words(
            "head subject source from start src subj head_entity head_id subject_id source_id from_id"
            " start_id node1 entity1"
        ),
        "relation": _words(
            "relation predicate property edge rel pred relation_type relationship edge_type relation_id"
            " predicate_id type label"
        ),
        "tail": _words(
            "tail object target to end dst obj destination tail_entity tail_id object_id target_id to_id"
            " end_id node2 entity2"
        ),
    },
    letters=(("h", "r", "t"), ("s", "p", "o")),
    required=("head", "relation", "tail"),
    widths=(3,),
    blanks=True,
    unique=None,
    column_type=LABEL_TYPE,
)

ENTITIES = Layout(
    rows="entities",
    aliases={
        "entity": _words("entity id entity_id node node_id iri uri identifier key"),
        "label": _words("label name title entity_label entity_name"),
        "description": _words("description desc comment text summary definition entity_description"),
    },
    letters=(),
    required=("entity",),
    widths=(1, 2, 3),
    blanks=False,
    unique="entity",
    column_type=pa.string(),
)

# A triple with one unknown, left empty.
QUESTIONS = replace(TRIPLES, rows="questions", required=(), blanks=False, column_type=pa.string())


def encode(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column of strings as one chunk of ``dictionary<int32, string>``, values as they first appear.

    Values that no row uses (a filtered table keeps them) are dropped: the dictionary is the vocabulary.
    """
    plain = column.cast(pa.string())
    if plain.num_chunks == 0:
        return pa.chunked_array([pa.array([], LABEL_TYPE)])
    return pa.chunked_array([single_chunk(plain.dictionary_encode())])


def single_chunk(column: pa.ChunkedArray) -> pa.DictionaryArray:
    """Return the only chunk of a dictionary column, after merging the dictionaries of its chunks."""
    merged = column.unify_dictionaries().combine_chunks()
    return merged.chunk(0) if isinstance(merged, pa.ChunkedArray) else merged
