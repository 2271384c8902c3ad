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
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from rich.markup import escape

from refactorgnn.scorers import SCORERS
from refactorgnn.training.config import CONFIGS, settings_by_name
from refactorgnn.training.setting_types import SettingType, shown

# What decides about all the rest: listed first, the words to choose from in the text, for they are many.
_WORDS = {"model": tuple(CONFIGS), "scorer": tuple(SCORERS)}
# What changes no result, or hardly: where to compute and what to log, apart from how to learn.
_MACHINE = ("accelerator", "devices", "strategy", "precision", "threads", "memory_budget_mb", "tf32", "replay", "log")


def with_setting_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command an option for every setting in place of its ``**settings``, which then has those given.

    The dataset is left to the command: it is an argument. None stands for an option that was not given.
    """
    signature = inspect.signature(command, eval_str=True)
    own = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    options = setting_options()
    taken = {parameter.name for parameter in own} & set(options)
    if taken:
        raise ValueError(f"{taken} are both settings and parameters of {command.__name__}")

    @functools.wraps(command)
    def typed(**arguments: Any) -> None:
        for name, option in options.items():
            value = arguments.pop(name)
            if value is not None:
                arguments[name] = option.type.parse(value) if isinstance(value, str) else value
        command(**arguments)

    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own]
    parameters += [option.parameter() for option in options.values()]
    # typer reads both.
    typed.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    typed.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return typed


def setting_options() -> dict[str, SettingOption]:
    """The options by setting, panel by panel: what more models have comes first, then in the order of the models."""
    options = [SettingOption(name, fields) for name, fields in settings_by_name().items() if name != "dataset"]
    models = list(CONFIGS)

    def place(option: SettingOption) -> tuple[Any, ...]:
        owners = [models.index(model) for model in option.fields]
        return option.name not in _WORDS, -len(owners), owners, option.name in _MACHINE

    options.sort(key=place)
    return {option.name: option for option in options}


@dataclass(frozen=True)
class SettingOption:
    """The option of a setting.

    Args:
        name: The setting.
        fields: What it is in each model that has it.
    """

    name: str
    fields: Mapping[str, FieldInfo]

    @functools.cached_property
    def type(self) -> SettingType:
        """What the setting takes."""
        return SettingType.of(self.fields.values())

    @property
    def default_text(self) -> str:
        """The default of most models that have the setting, and the models that have another."""
        if self.name == "model":
            return "default: lookup"
        models_of: dict[str, list[str]] = {}
        for model, field in self.fields.items():
            models_of.setdefault(_default(field), []).append(model)
        most, *others = sorted(models_of.items(), key=lambda item: -len(item[1]))
        return "; ".join([f"default: {most[0]}", *(f"{', '.join(models)}: {default}" for default, models in others)])

    @property
    def metavar(self) -> str | None:
        """What stands for the value in the help; None: typer's word for the type."""
        kind = self.type
        if self.name in _WORDS:
            return "NAME"
        if kind.plain is not str or kind.is_any_text:
            return None
        types = [part.__name__.upper() for part in kind.types]
        value = "|".join([*types, *map(shown, kind.choices)]) + (",…" if kind.is_list else "")
        return f"{value}|none" if kind.optional else value

    @property
    def panel(self) -> str:
        """The part of the help where the option is shown."""
        if self.name in _WORDS:
            return "The model"
        if self.name in _MACHINE:
            return "Devices and logs"
        without = [model for model in CONFIGS if model not in self.fields]
        if len(without) == 1:
            return f"For every model but {without[0]}"
        return f"Only for {', '.join(self.fields)}" if without else "Settings of every model"

    def parameter(self) -> inspect.Parameter:
        """The option as typer reads it off a signature; its default, None, means that it was not given."""
        description = next(field.description for field in self.fields.values() if field.description)
        if self.name in _WORDS:
            description = f"{str(description).rstrip('.')}: {', '.join(_WORDS[self.name])}."
        text = escape(f"{description} [{self.default_text}]")  # or rich takes the brackets for a style
        option = typer.Option(help=text, show_default=False, metavar=self.metavar, rich_help_panel=self.panel)
        annotation = Annotated[self.type.plain | None, option]  # type: ignore[name-defined]  # a type made here
        return inspect.Parameter(self.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _default(field: FieldInfo) -> str:
    default = field.get_default(call_default_factory=True)
    return "none, it must be given" if default is PydanticUndefined else shown(default) or "empty"
