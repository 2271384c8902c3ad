"""Files of questions in, files of answers out."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from refactorgnn.data.files import TableWriter, read_questions
from refactorgnn.errors import FileError, UserError
from refactorgnn.predict.predictor import Answer, Predictor, Question
from refactorgnn.progress import counting

ANSWER_SCHEMA = pa.schema(
    [
        ("question", pa.int64()),
        ("rank", pa.int64()),
        ("head", pa.string()),
        ("relation", pa.string()),
        ("tail", pa.string()),
        ("score", pa.float64()),
        ("probability", pa.float64()),
        ("known", pa.string()),
    ]
)
# What stands for the unknown in a file, beside nothing at all.
_UNKNOWN = ("", "?")
# Questions that are read, answered and written together.
_BATCH = 1024


def load_questions(path: str | Path) -> list[Question]:
    """The questions of a file (TSV, CSV, Parquet): head, relation and tail, the unknown left empty or ``?``.

    Raises:
        FileError: if a row does not have just one unknown; it names the row.
    """
    table = read_questions(path)
    empty = [None] * table.num_rows
    columns = [
        table[name].to_pylist() if name in table.column_names else empty for name in ("head", "relation", "tail")
    ]
    questions = []
    for number, row in enumerate(zip(*columns, strict=True), start=1):
        parts = [None if part is None or part in _UNKNOWN else part for part in row]
        if parts.count(None) != 1:
            problem = f"question {number} does not have just one unknown"
            raise FileError(path, problem, "leave one of head, relation and tail empty")
        questions.append(Question(*parts))
    return questions


def answer_file(
    predictor: Predictor,
    questions: str | Path,
    answers: str | Path,
    k: int = 10,
    *,
    include_known: bool = False,
    typed: bool = False,
    progress: bool = False,
) -> int:
    """Answer the questions of one file in another, which appears when all are answered.

    Args:
        predictor: What answers.
        questions: See :func:`load_questions`.
        answers: A TSV, CSV or Parquet file of ``question`` (the row, from 1 on), ``rank``, ``head``, ``relation``,
            ``tail``, ``score``, ``probability`` and ``known`` (the split that has it, or nothing).
        k: The number of answers to each question.
        include_known: As in :meth:`Predictor.answer`.
        typed: As in :meth:`Predictor.answer`.
        progress: Show a bar.

    Returns:
        The number of answers.
    """
    asked = load_questions(questions)
    _check_names(predictor, questions, asked)
    total = 0
    with TableWriter(answers, ANSWER_SCHEMA) as writer, counting("answering", len(asked), enabled=progress) as bar:
        for start in range(0, len(asked), _BATCH):
            batch = asked[start : start + _BATCH]
            found = predictor.answer(batch, k, include_known=include_known, typed=typed)
            rows = [
                _row(start + place + 1, rank, question, answer)
                for place, (question, best) in enumerate(zip(batch, found, strict=True))
                for rank, answer in enumerate(best, start=1)
            ]
            writer.write({name: [row[name] for row in rows] for name in ANSWER_SCHEMA.names})
            total += len(rows)
            bar.advance(len(batch))
    return total


def _check_names(predictor: Predictor, path: str | Path, questions: list[Question]) -> None:
    """Refuse a name that is not in the graph before the first question is answered."""
    for number, question in enumerate(questions, start=1):
        _check_question(predictor, path, number, question)


def _check_question(predictor: Predictor, path: str | Path, number: int, question: Question) -> None:
    try:
        for name in (question.head, question.tail):
            _ = name is None or predictor.entity_id(name)
        _ = question.relation is None or predictor.relation_id(question.relation)
    except UserError as error:
        raise FileError(path, f"question {number}: {str(error).rstrip('.?')}", "mend or remove that row") from error


def _row(number: int, rank: int, question: Question, answer: Answer) -> dict[str, object]:
    unknown = next(name for name in ("head", "relation", "tail") if getattr(question, name) is None)
    triple = {name: str(getattr(question, name)) for name in ("head", "relation", "tail")} | {unknown: answer.entity}
    told = {"score": answer.score, "probability": answer.probability, "known": answer.split or ""}
    return {"question": number, "rank": rank, **triple, **told}
