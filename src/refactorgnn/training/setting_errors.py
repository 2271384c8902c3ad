"""Sentences about settings that are not what they should be."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pydantic import BaseModel, ValidationError

from refactorgnn.errors import UserError, closest_names
from refactorgnn.relation_prediction import can_predict_relations
from refactorgnn.scorers import make_scorer


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


def refuse_unless_bilinear(config: BaseModel, scorer: str, dim: int) -> None:
    """Refuse to predict relations with scores that are no products with them."""
    if not can_predict_relations(make_scorer(scorer, dim)):
        refuse_changed(config, ("relation_loss",), f"needs a bilinear scorer, which {scorer!r} is not")


def first_problem(error: ValidationError, known: Iterable[str]) -> str:
    """The sentence about the first of the values that are not what they should be."""
    problem = error.errors()[0]
    name = str(problem["loc"][0]) if problem["loc"] else "setting"
    if problem["type"] == "missing":
        return f"setting {name!r} is missing."
    if problem["type"] == "extra_forbidden":
        return unknown_setting(name, list(known))
    cause = problem.get("ctx", {}).get("error")
    if isinstance(cause, UserError):
        return str(cause)
    # A value of several alternatives, such as int | Literal["inf"], has one problem with each of them.
    reasons = [
        str(other["msg"]).removeprefix("Input ")
        for other in error.errors()
        if other["loc"][:1] == problem["loc"][:1] and repr(other["input"]) == repr(problem["input"])
    ]
    return f"setting {name} cannot be {problem['input']!r}: it {', or '.join(dict.fromkeys(reasons))}."


def refuse_unused_by_features(config: BaseModel, features: Sequence[str]) -> None:
    """Refuse settings of features that are not among those chosen."""
    encoder = getattr(config, "text_encoder", "")
    if encoder and "text" not in features:
        raise UserError(
            f"setting text_encoder is {encoder!r}, but features {'+'.join(features)!r} read no texts: "
            "add text to the features, or leave it out."
        )
    if "random" not in features and "draws" in type(config).model_fields:
        refuse_changed(config, ("draws",), "needs random features")
    if not {"random", "learned"} & set(features):
        refuse_changed(config, ("feature_scale",), "needs random or learned features")


def refuse_learned(features: str, reason: str) -> None:
    """Refuse features that are learned where nothing would learn them."""
    if "learned" in features.split("+"):
        raise UserError(f"features={features} {reason}: choose random, text or signature.")
