"""Sentences about settings that are not what they should be."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import BaseModel

from refactorgnn.errors import UserError, closest_names


def models_in_words(models: Iterable[str]) -> str:
    """Models that have a setting, for a sentence about it."""
    *others, last = models
    return f"models {', '.join(others)} and {last}" if others else f"model {last}"


def unknown_setting(name: str, known: list[str]) -> str:
    """The sentence about a name that is no setting."""
    closest = closest_names(name, known)
    hint = f"did you mean {closest[0]!r}?" if closest else f"known are {', '.join(known)}."
    return f"unknown setting {name!r}: {hint}"


def refuse_changed(config: BaseModel, names: Iterable[str], reason: str) -> None:
    """Refuse settings that other settings leave without effect."""
    for name in names:
        if (value := getattr(config, name)) != type(config).model_fields[name].default:
            raise UserError(f"setting {name}={value!r} {reason}: leave it out.")
