"""The options of ``refactorgnn train``: one for every setting of every model, made from the typed settings.

What an option takes follows from the type of its setting:

- ``int``, ``float``: a number; ``bool``: ``--name`` and ``--no-name``;
- ``Literal``: one of its words; ``int | Literal["inf"]``: a number or that word;
- ``X | None``: also the word ``none``;
- ``list[X]``, ``tuple[X, ...]``: values with commas between them, in place of the whole list.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from rich.markup import escape

from refactorgnn.scorers import SCORERS
from refactorgnn.training.config import CONFIGS, settings_by_name
from refactorgnn.training.setting_types import SettingType, shown

_SETTINGS = settings_by_name()
# What decides about all the rest; their long lists of words have a panel, and so a column width, of their own.
_KIND = ("model", "scorer")
_WORDS = {"scorer": tuple(SCORERS)}  # settings that are a plain str, but not any str


def with_setting_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command an option for every setting in place of its ``**settings``, which then has those given.

    The dataset is left to the command: it is an argument. None stands for an option that was not given.
    """
    signature = inspect.signature(command, eval_str=True)
    own = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    taken = {parameter.name for parameter in own} & (set(_SETTINGS) - {"dataset"})
    if taken:
        raise ValueError(f"{taken} are both settings and parameters of {command.__name__}")
    types = {name: SettingType.of(_SETTINGS[name].values()) for name in _in_order()}
    options = [_option(name, kind) for name, kind in types.items()]

    @functools.wraps(command)
    def typed(**arguments: Any) -> None:
        for name, kind in types.items():
            value = arguments.pop(name)
            if value is not None:
                arguments[name] = kind.parse(value) if kind.plain is str else value
        command(**arguments)

    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in (*own, *options)]
    typed.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    typed.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return typed


def default_text(name: str) -> str:
    """The default of a setting; models are named where they differ, or where not all have it."""
    if name == "model":
        return "default: lookup"
    models_of: dict[str, list[str]] = {}
    for model, field in _SETTINGS[name].items():
        models_of.setdefault(_default(field), []).append(model)
    defaults = [f"{default} ({', '.join(models)})" for default, models in models_of.items()]
    text = "default: " + (", ".join(defaults) if len(defaults) > 1 else next(iter(models_of)))
    return text if len(_SETTINGS[name]) == len(CONFIGS) else f"{', '.join(_SETTINGS[name])} only, {text}"


def metavar(name: str) -> str | None:
    """What stands for the value in the help; None: typer's word for the type."""
    kind = SettingType.of(_SETTINGS[name].values())
    words = kind.choices or _WORDS.get(name, ())
    if kind.plain is not str or not (words or kind.optional or kind.is_list or len(kind.types) > 1):
        return None
    types = [] if name in _WORDS else [part.__name__.upper() for part in kind.types]
    value = "|".join([*types, *map(shown, words)]) + (",…" if kind.is_list else "")
    return f"{value}|none" if kind.optional else value


def panel(name: str) -> str:
    """The part of the help where a setting is shown."""
    if name in _KIND:
        return "The model"
    if len(_SETTINGS[name]) == len(CONFIGS):
        return "Settings of every model"
    return f"Only for {', '.join(_SETTINGS[name])}"


def _in_order() -> list[str]:
    """The settings, panel by panel: those of the most models first, so that the particular follows the general."""
    names = [name for name in _SETTINGS if name != "dataset"]
    return sorted(names, key=lambda name: (name not in _KIND, -len(_SETTINGS[name]), panel(name)))


def _option(name: str, kind: SettingType) -> inspect.Parameter:
    description = next(field.description for field in _SETTINGS[name].values() if field.description)
    # Unescaped, rich takes the brackets for a style.
    text = f"{description} {escape(f'[{default_text(name)}]')}"
    option = typer.Option(help=text, show_default=False, metavar=metavar(name), rich_help_panel=panel(name))
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind.plain | None, option]
    )


def _default(field: FieldInfo) -> str:
    default = field.get_default(call_default_factory=True)
    return "none, it must be given" if default is PydanticUndefined else shown(default)
