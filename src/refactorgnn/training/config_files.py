"""Experiments as files: the settings of a training in YAML, with a sentence that says what the experiment is.

A file has the names of :class:`~refactorgnn.training.config.TrainConfig` as its keys;
what it leaves out has its default::

    description: DistMult on UMLS, a small graph of medical concepts.
    dataset: UMLS
    dim: 256

It must be valid by itself, but may leave the dataset to the command line, whose options override the file.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from refactorgnn.errors import FileError
from refactorgnn.training.config import TrainConfig, settings_by_name
from refactorgnn.training.setting_errors import models_in_words, unknown_setting
from refactorgnn.training.setting_types import SettingType
from refactorgnn.training.strict_yaml import read_mapping

DESCRIPTION = "description"


@dataclass(frozen=True)
class ConfigFile:
    """A file of settings, read and checked.

    Args:
        path: The file.
        settings: What it says of the training, by the names of the settings.
        description: What it says of itself, on one line.
    """

    path: Path
    settings: dict[str, Any]
    description: str = ""

    @classmethod
    def read(cls, path: str | Path) -> ConfigFile:
        """Read a file; an error names the file, the key, the value and what is expected."""
        content = read_mapping(path, remedy="write one setting on each line, such as dim: 256")
        description = content.pop(DESCRIPTION, "")
        if not isinstance(description, str):
            raise FileError(
                path, f"the description cannot be {description!r}", "write a sentence, in quotes if need be"
            )
        _check_names(content, path)
        check_truth_values(content, path)
        # The dataset may come later; anything else must be right by itself.
        TrainConfig.from_dict({"dataset": "", **content}, source=path)
        return cls(Path(path), content, " ".join(description.split()))

    def train_config(self, changes: dict[str, Any]) -> TrainConfig:
        """The settings of the file with others in place of some of them."""
        merged = self.settings | changes
        if "dataset" not in merged:
            raise FileError(self.path, "this file names no dataset", "add a line such as dataset: UMLS, or name one")
        self._check_owners(merged.get("model"), changes)
        return TrainConfig.from_dict(merged)

    def _check_owners(self, model: Any, changes: dict[str, Any]) -> None:
        """With another model, settings of the file may have lost their meaning: say that they are the file's."""
        owners = settings_by_name()
        if model not in owners["model"]:
            return  # TrainConfig refuses it
        for name in self.settings:
            if model not in owners[name] and name not in changes:
                raise FileError(
                    self.path,
                    f"setting {name!r} belongs to {models_in_words(owners[name])}, not to {model}",
                    "keep the file's model or use another file",
                )


def _check_names(settings: dict[str, Any], path: str | Path) -> None:
    """Refuse unknown keys; the settings would do it, but the description is none of theirs to suggest."""
    known = [*settings_by_name(), DESCRIPTION]
    for name in settings:
        if name not in known:
            raise FileError(path, unknown_setting(name, known).rstrip(".?"), "correct it")


def check_truth_values(settings: dict[str, Any], path: str | Path) -> None:
    """Refuse ``dim: yes``: to YAML it is a truth value, to pydantic the number 1."""
    known = settings_by_name()
    for name, value in settings.items():
        if isinstance(value, bool) and name in known and not SettingType.of(known[name].values()).takes(bool):
            raise FileError(
                path,
                f"setting {name} cannot be {value!r}: yes, no, on, off, true and false are truth values in YAML",
                "give the value it should have, in quotes if it is such a word",
            )
