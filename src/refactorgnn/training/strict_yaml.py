"""Reading YAML so that a slip is refused, with its line, where PyYAML would quietly take the last of two values."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from refactorgnn.errors import FileError


def read_mapping(path: str | Path, remedy: str) -> dict[str, Any]:
    """The names and values of a YAML file.

    Args:
        path: The file.
        remedy: What to do about a file that cannot be read or holds no names and values, as a clause.

    Raises:
        FileError: if the file is missing or no YAML, if it names something twice, or a key is not a name.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise FileError(path, "there is no such file", "check the path") from error
    except OSError as error:
        raise FileError(path, f"the file cannot be read ({(error.strerror or str(error)).lower()})", remedy) from error
    except UnicodeDecodeError as error:
        raise FileError(path, "this is not a YAML file (it is not UTF-8)", remedy) from error
    try:
        content = yaml.load(text, Loader=_StrictLoader)  # a SafeLoader
    except _SlipError as slip:
        raise FileError(path, slip.problem, slip.remedy, line=slip.line) from slip
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark is not None else None
        raise FileError(path, f"this is not a YAML file ({error.problem})", remedy, line=line) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # odd characters, no such date, nested too deeply
        raise FileError(path, "this is not a YAML file", remedy) from error
    if not isinstance(content, dict):
        raise FileError(path, "this YAML file holds no settings", remedy)
    return content


class _SlipError(Exception):
    """Valid YAML that means something other than its writer thinks."""

    def __init__(self, problem: str, remedy: str, line: int) -> None:
        super().__init__(problem)
        self.problem, self.remedy, self.line = problem, remedy, line


class _StrictLoader(yaml.SafeLoader):
    """PyYAML's safe loader, but each key is a name and is given once."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        first_lines: dict[str, int] = {}
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":  # `<<` brings the keys of another mapping
                continue
            name, line = self.construct_object(key_node, deep=True), key_node.start_mark.line + 1
            if not isinstance(name, str):
                raise _SlipError(f"the key {name!r} is not a name", "correct it", line)
            if name in first_lines:
                raise _SlipError(
                    f"{name!r} is given twice, first in line {first_lines[name]}", "keep one of them", line
                )
            first_lines[name] = line
        return super().construct_mapping(node, deep)
