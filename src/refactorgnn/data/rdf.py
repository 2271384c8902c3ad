"""RDF files: N-Triples, Turtle and N3, read and written with pyoxigraph.

An entity's label is its IRI, or ``_:id`` for a blank node. Any other label is written as an IRI of our own,
``urn:refactorgnn:`` and the percent-encoded label, and turned back on reading, so that nothing is lost.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import IO, TYPE_CHECKING, NamedTuple
from urllib.parse import quote, unquote

import pyarrow as pa

from refactorgnn.data.columns import encode
from refactorgnn.data.content import check_text
from refactorgnn.errors import FileError, UserError

if TYPE_CHECKING:
    from pyoxigraph import BlankNode, Literal, NamedNode, Triple

RDF_SUFFIXES = (".nt", ".ttl", ".n3")
OWN_PREFIX = "urn:refactorgnn:"
RDFS_LABEL = "http://www.w3.org/2000/01/rdf-schema#label"
RDFS_COMMENT = "http://www.w3.org/2000/01/rdf-schema#comment"

# The predicates that name or describe their subject, the most telling first.
_LABEL_PREDICATES = (
    RDFS_LABEL,
    "http://www.w3.org/2004/02/skos/core#prefLabel",
    "http://schema.org/name",
    "https://schema.org/name",
)
_DESCRIPTION_PREDICATES = (
    RDFS_COMMENT,
    "http://schema.org/description",
    "https://schema.org/description",
    "http://purl.org/dc/terms/description",
)
_TEXT_PREDICATES = {
    predicate: (column, rank)
    for column, predicates in (("label", _LABEL_PREDICATES), ("description", _DESCRIPTION_PREDICATES))
    for rank, predicate in enumerate(predicates)
}
_PLAIN_BLANK = re.compile(r"_:[A-Za-z][A-Za-z0-9]*", re.ASCII)
_BLANK_IN_TEXT = re.compile(r"_:([\w.\-·]+)")


class RdfContent(NamedTuple):
    """What an RDF file holds: encoded triples, texts if it has any, and remarks on what was left out."""

    table: pa.Table
    texts: pa.Table | None
    notes: tuple[str, ...]


def read_rdf(path: Path, content: bytes, suffix: str) -> RdfContent:
    """Read an RDF file: triples between resources, and the names and descriptions among its literals.

    Raises:
        FileError: for a syntax error, with its line.
    """
    reader = _Reader(check_text(path, content))
    try:
        reader.read(suffix)
    except SyntaxError as error:
        reason = re.sub(r"^Parser error [^:]*: ", "", error.msg or str(error)).rstrip(".")
        problem = f"not valid {_format_words(suffix)}: {reason}"
        raise FileError(path, problem, "mend this line", line=error.lineno) from error
    if not reader.columns["head"]:
        problem = "has no triple whose subject and object are both resources"
        raise FileError(path, problem, "give a file with links between entities, not only literals")
    table = pa.table({name: encode(pa.chunked_array([values])) for name, values in reader.columns.items()})
    return RdfContent(table, reader.text_table(), reader.notes())


class _Reader:
    """Collects the columns, texts and skipped statements of one file."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.columns: dict[str, list[str]] = {"head": [], "relation": [], "tail": []}
        self.skipped: Counter[str] = Counter()
        self._texts: dict[str, dict[str, tuple[tuple[int, int], str]]] = {}
        self._written: set[str] | None = None
        self._labels: dict[NamedNode | BlankNode, str] = {}
        self._num_anonymous = 0

    def read(self, suffix: str) -> None:
        """Go through the statements of the file."""
        oxigraph = _oxigraph()
        resources = (oxigraph.NamedNode, oxigraph.BlankNode)
        if suffix != ".nt":
            self._written = {found.rstrip(".") for found in _BLANK_IN_TEXT.findall(self.content.decode())}
        heads, relations, tails = self.columns.values()
        for subject, predicate, obj, graph in oxigraph.parse(self.content, format=_format(suffix)):
            if isinstance(obj, oxigraph.Literal):
                if isinstance(subject, resources) and predicate.value in _TEXT_PREDICATES:
                    self._add_text(self._label(subject), predicate.value, obj)
                else:
                    self.skipped["whose object is a literal"] += 1
            elif not isinstance(subject, resources) or not isinstance(obj, resources):
                self.skipped["about a quoted triple"] += 1
            elif not isinstance(graph, oxigraph.DefaultGraph):
                self.skipped["inside a formula"] += 1
            else:
                heads.append(self._label(subject))
                relations.append(self._label(predicate))
                tails.append(self._label(obj))

    def _label(self, node: NamedNode | BlankNode) -> str:
        label = self._labels.get(node)
        if label is None:
            text = str(node)
            label = _decode_iri(node.value) if text.startswith("<") else self._blank_label(node.value)
            self._labels[node] = label
        return label

    def _blank_label(self, identifier: str) -> str:
        """Return ``_:id``; a node without an id gets one that is the same whenever the file is read.

        The parser draws random ids for ``[ ... ]``. Ours carry a digest of the file instead,
        because the first such node of train.ttl and that of test.ttl are not the same thing.
        """
        if self._written is None or identifier in self._written:
            return f"_:{identifier}"
        self._num_anonymous += 1
        return f"_:anon{hashlib.sha256(self.content).hexdigest()[:8]}x{self._num_anonymous}"

    def _add_text(self, entity: str, predicate: str, literal: Literal) -> None:
        column, predicate_rank = _TEXT_PREDICATES[predicate]
        rank = (_language_rank(literal.language), predicate_rank)
        texts = self._texts.setdefault(entity, {})
        if column not in texts or rank < texts[column][0]:
            texts[column] = (rank, literal.value)

    def text_table(self) -> pa.Table | None:
        """Return the texts found, a row for each entity that has any; it stands in for its missing label."""
        if not self._texts:
            return None
        labels = [texts["label"][1] if "label" in texts else entity for entity, texts in self._texts.items()]
        descriptions = [texts["description"][1] if "description" in texts else "" for texts in self._texts.values()]
        columns = {"entity": list(self._texts), "label": labels, "description": descriptions}
        return pa.table({name: pa.array(values, pa.string()) for name, values in columns.items()})

    def notes(self) -> tuple[str, ...]:
        """One remark for each kind of statement that was left out."""
        return tuple(
            f"skipped {count:,} {'triple' if count == 1 else 'triples'} {why}" for why, count in self.skipped.items()
        )


def _language_rank(language: str | None) -> int:
    """Rank English first, then text without a language, then dialects of English, then the rest."""
    if language is None:
        return 1
    if language == "en":
        return 0
    return 2 if language.startswith("en-") else 3


def write_rdf(stream: IO[bytes], table: pa.Table, texts: pa.Table | None, suffix: str) -> None:
    """Write encoded triples, and texts as ``rdfs:label`` and ``rdfs:comment``."""
    oxigraph = _oxigraph()
    oxigraph.serialize(_statements(oxigraph, table, texts), stream, format=_format(suffix))


def _statements(oxigraph: ModuleType, table: pa.Table, texts: pa.Table | None) -> Iterator[Triple]:
    nodes: dict[str, list[NamedNode | BlankNode]] = {}
    indices = []
    for name in ("head", "relation", "tail"):
        column = table.column(name).chunk(0)
        # The grammar has no blank predicates, so a relation is always an IRI.
        nodes[name] = [_node(oxigraph, label, blank=name != "relation") for label in column.dictionary.to_pylist()]
        indices.append(column.indices.to_pylist())
    for head, relation, tail in zip(*indices, strict=True):
        yield oxigraph.Triple(nodes["head"][head], nodes["relation"][relation], nodes["tail"][tail])
    if texts is None:
        return
    predicates = {"label": oxigraph.NamedNode(RDFS_LABEL), "description": oxigraph.NamedNode(RDFS_COMMENT)}
    for row in texts.to_pylist():
        for column, predicate in predicates.items():
            if row[column]:
                yield oxigraph.Triple(_node(oxigraph, row["entity"]), predicate, oxigraph.Literal(row[column]))


def _node(oxigraph: ModuleType, label: str, *, blank: bool = True) -> NamedNode | BlankNode:
    """Return the node of a label: itself if it is an IRI or a blank node, else an IRI that encodes it."""
    if blank and _PLAIN_BLANK.fullmatch(label):
        found: BlankNode = oxigraph.BlankNode(label[2:])
        return found
    try:
        # A label that looks like our own encoding would come back decoded, so it is encoded too.
        iri: NamedNode = oxigraph.NamedNode(_encode_iri(label) if label.startswith(OWN_PREFIX) else label)
    except ValueError:
        iri = oxigraph.NamedNode(_encode_iri(label))
    return iri


def _encode_iri(label: str) -> str:
    return OWN_PREFIX + quote(label, safe="")


def _decode_iri(iri: str) -> str:
    """Return the label behind an IRI; one that we would not have written is kept as it is."""
    if not iri.startswith(OWN_PREFIX):
        return iri
    label = unquote(iri.removeprefix(OWN_PREFIX))
    return label if label and _encode_iri(label) == iri else iri


def _oxigraph() -> ModuleType:
    """Return the RDF library, which is optional because most users have tables."""
    try:
        import pyoxigraph
    except ImportError as error:
        raise UserError("RDF files need pyoxigraph: install it with pip install 'refactorgnn[rdf]'.") from error
    return pyoxigraph


def _format(suffix: str) -> object:
    formats = _oxigraph().RdfFormat
    return {".nt": formats.N_TRIPLES, ".ttl": formats.TURTLE, ".n3": formats.N3}[suffix]


def _format_words(suffix: str) -> str:
    return {".nt": "N-Triples", ".ttl": "Turtle", ".n3": "N3"}[suffix]
