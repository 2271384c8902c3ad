"""What the values of a setting may be, read off the annotations of its fields."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

_PLAIN = (int, float, str, bool)


@dataclass(frozen=True)
class SettingType:
    """The alternatives that a setting takes, over all models that have it.

    Args:
        types: Those of int, float, str and bool that it may be.
        choices: The values of its ``Literal``.
        optional: Whether it may be None.
        is_list: Whether it is a list or tuple of these.
    """

    types: tuple[type, ...]
    choices: tuple[Any, ...]
    optional: bool
    is_list: bool

    @classmethod
    def of(cls, fields: Iterable[FieldInfo]) -> SettingType:
        """The type of a setting with these fields.

        Raises:
            TypeError: if an annotation is not made of int, float, str, bool, None, ``Literal``, ``list[X]`` and
                ``tuple[X, ...]``: such a setting could not be given on a command line.
        """
        parts = list(dict.fromkeys(part for field in fields for part in _alternatives(field.annotation)))
        elements = [_element(part) for part in parts if part is not NoneType]
        is_list = any(element is not None for element in elements)
        if is_list and None in elements:
            raise TypeError(f"a setting is either a list or it is not: {parts}")
        leaves = [leaf for part in (elements if is_list else parts) for leaf in _alternatives(part)]
        types = tuple(dict.fromkeys(leaf for leaf in leaves if leaf in _PLAIN))
        literals = [leaf for leaf in leaves if get_origin(leaf) is Literal]
        unknown = [leaf for leaf in leaves if leaf not in (*types, *literals) and (is_list or leaf is not NoneType)]
        if unknown:
            raise TypeError(f"a setting cannot be of type {unknown[0]}")
        choices = dict.fromkeys(value for literal in literals for value in get_args(literal))
        return cls(types, tuple(choices), NoneType in parts, is_list)

    def takes(self, kind: type) -> bool:
        """Whether a value of this type may be given."""
        return kind in self.types or any(type(choice) is kind for choice in self.choices)

    @property
    def plain(self) -> type:
        """The type, where a value can be one of int, float and bool only; else ``str``: it is read from text."""
        only = self.types[0] if len(self.types) == 1 else str
        return str if self.choices or self.optional or self.is_list else only

    @property
    def is_any_text(self) -> bool:
        """Whether the value is a text and nothing else."""
        return self == SettingType((str,), (), optional=False, is_list=False)

    def parse(self, text: str) -> Any:
        """The value that a text on the command line means; what pydantic reads from text is left to pydantic."""
        choices = {shown(choice): choice for choice in self.choices}
        if self.optional and text == "none" and text not in choices:
            return None
        if self.is_list:
            parts = [part.strip() for part in text.split(",") if part.strip()]
            return [choices.get(part, part) for part in parts]
        return choices.get(text, text)


def shown(value: Any) -> str:
    """A value as it is written on the command line."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(map(shown, value)) if isinstance(value, list | tuple) else str(value)


def _alternatives(annotation: Any) -> Iterator[Any]:
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _alternatives(get_args(annotation)[0])
    elif origin in (Union, UnionType):
        for part in get_args(annotation):
            yield from _alternatives(part)
    else:
        yield annotation


def _element(annotation: Any) -> Any:
    """What a list or a tuple of any length is made of; None for anything else."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is list or (origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis):
        return arguments[0]
    return None
