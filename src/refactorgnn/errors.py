"""What a user can mend: one exception type, one clear sentence.

Library code raises :class:`UserError` for anything that the caller's input caused. The command line prints its message
and exits with code 2; in Python it is a ``ValueError`` like any other.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path

# Names whose spelling is compared with an unknown one: less than a tenth of a second.
_MOST_COMPARED = 3000


class UserError(ValueError):
    """A mistake in the input: the message names the file, line or value, and the remedy."""


class NotFoundError(UserError):
    """A :class:`UserError` about a name or an id that nothing has."""


class FileError(UserError):
    """A :class:`UserError` about a file: ``PATH, line N: problem; remedy``.

    Args:
        path: The file.
        problem: What is wrong, as a clause.
        remedy: What to do about it, as a clause.
        line: The 1-based line, where there is one.
    """

    def __init__(self, path: str | Path, problem: str, remedy: str, line: int | None = None) -> None:
        where = f"{path}, line {line}" if line is not None else str(path)
        super().__init__(f"{where}: {problem}; {remedy}.")
        self.path = Path(path)
        self.line = line


def closest_names(name: str, choices: Iterable[str], count: int = 3) -> list[str]:
    """The choices most like ``name``: the same in another case, then those that contain it, then similar spellings."""
    pool = list(dict.fromkeys(choices))
    folded = name.casefold()
    found = [choice for choice in pool if choice.casefold() == folded]
    if len(folded) >= 3:
        found += sorted((c for c in pool if folded in c.casefold()), key=len)
    # Spelling distance is quadratic in the length, so only names of a similar length are compared.
    similar = [c for c in pool if abs(len(c) - len(name)) <= max(2, len(name) // 3)]
    if len(similar) > _MOST_COMPARED:  # a typing mistake is seldom in the first letters
        similar = [c for c in similar if c[:2].casefold() == folded[:2]][:_MOST_COMPARED]
    by_folded = {c.casefold(): c for c in reversed(similar)}
    found += [by_folded[match] for match in difflib.get_close_matches(folded, by_folded, n=count, cutoff=0.6)]
    return list(dict.fromkeys(found))[:count]


def unknown_name(kind: str, name: str, choices: Sequence[str], *, list_all: bool = True) -> NotFoundError:
    """The error for a name that is not among ``choices``; lists them all, or the closest ones of a long list."""
    closest = closest_names(name, choices)
    all_of_them = ", ".join(sorted(choices)) if list_all else ""
    if closest:
        rest = f"the choices are {all_of_them}" if list_all else f"there are {len(choices):,} to choose from"
        return NotFoundError(f"unknown {kind} {name!r}: did you mean {' or '.join(map(repr, closest))} ({rest})?")
    remedy = f"choose one of {all_of_them}" if list_all else f"none of the {len(choices):,} known names is like it"
    return NotFoundError(f"unknown {kind} {name!r}: {remedy}.")


def joined_names(kind: str, names: list[str], choices: Sequence[str]) -> list[str]:
    """``names`` that were joined with ``+``, once it is certain that each is a choice and named once."""
    for name in names:
        if name not in choices:
            raise unknown_name(kind, name, choices)
    if len(set(names)) < len(names):
        verb = "name" if kind.endswith("s") else "names"
        raise UserError(f"{kind} {'+'.join(names)!r} {verb} the same twice: name each once.")
    return names
