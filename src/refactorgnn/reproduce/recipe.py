"""A recipe: for each row of the tables the settings to train with, read from ``recipes/NAME.yaml``.

    description: What the recipe stands for.
    include: rivals.yaml                 # rows of another file, which the recipes share
    defaults: {dim: 768}
    rows:
      ReFactorGNN(6) [T]:
        like: ReFactorGNN(6) [R]         # take over what that row has, then change it
        settings: {features: text}
        families: {fb237: {alpha: 0.1}}  # fb237_v1 … fb237_v4
        datasets: {fb237_v2: {n3: 0.005}}
        selected: [fb237_v1]             # where settings were searched on validation MRR; true: everywhere
        notes: What was tried, for the page.
      ComplEx + relations:
        like: ComplEx
        only: [FB15k-237]                # no such row on other datasets
      ensemble [T]:
        members:
          - {row: "ReFactorGNN(6) [T]"}
          - {row: "ReFactorGNN(6) [T]", seed_offset: 100}   # with another seed
          - {row: NBFNet, seed: 0, datasets: [WN18RR_v1]}   # one run for the ensembles of all seeds, there only

Settings are merged in that order: defaults, row, family, dataset; of each, those of the row that it is like come first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from refactorgnn.errors import FileError, closest_names, unknown_name
from refactorgnn.reproduce.experiments import Experiment
from refactorgnn.training.strict_yaml import read_mapping

FOLDER = Path(__file__).parent / "recipes"
RECIPES = ("paper", "best")
_KEYS = ("description", "include", "defaults", "rows")
_ROW_KEYS = ("like", "settings", "families", "datasets", "only", "selected", "notes", "members")
_MEMBER_KEYS = ("row", "seed_offset", "seed", "datasets")
_REMEDY = "correct it"


def family_of(dataset: str) -> str:
    """The family that a dataset is of: ``fb237`` for ``fb237_v1``, the dataset itself where it has no version."""
    return re.sub(r"_v\d+$", "", dataset)


@dataclass(frozen=True)
class Member:
    """A member of an ensemble: a row of the same recipe.

    Args:
        row: The row.
        seed_offset: How far its seed is above that of the ensemble.
        seed: Its seed, if it is the same one in the ensembles of all seeds.
        datasets: Where it is a member; None: on all.
    """

    row: str
    seed_offset: int = 0
    seed: int | None = None
    datasets: tuple[str, ...] | None = None

    def is_in(self, dataset: str) -> bool:
        """Whether it is a member on that dataset."""
        return self.datasets is None or dataset in self.datasets

    def seed_in(self, ensemble_seed: int) -> int:
        """The seed of the member in an ensemble of that seed."""
        return ensemble_seed + self.seed_offset if self.seed is None else self.seed


@dataclass(frozen=True)
class RecipeRow:
    """What a recipe says of one row.

    Args:
        settings: Settings for every dataset.
        families: Settings for a family of datasets, over those.
        datasets: Settings for one dataset, over those.
        only: The datasets that have this row; None: all.
        selected: Whether settings were selected by a search on validation data: everywhere, nowhere, or where.
        notes: What was tried, for the page.
        members: The members, if the row is an ensemble.
    """

    settings: dict[str, Any] = field(default_factory=dict)
    families: dict[str, dict[str, Any]] = field(default_factory=dict)
    datasets: dict[str, dict[str, Any]] = field(default_factory=dict)
    only: tuple[str, ...] | None = None
    selected: bool | tuple[str, ...] = False
    notes: str = ""
    members: tuple[Member, ...] = ()

    def over(self, other: RecipeRow) -> RecipeRow:
        """The row with the settings of another underneath; all else stays its own."""
        return replace(
            self,
            settings=other.settings | self.settings,
            families=_merged(other.families, self.families),
            datasets=_merged(other.datasets, self.datasets),
        )


@dataclass(frozen=True)
class Recipe:
    """A recipe, read and checked.

    Args:
        name: Its name.
        description: What it stands for.
        defaults: Settings of every row.
        rows: The rows.
    """

    name: str
    description: str
    defaults: dict[str, Any]
    rows: dict[str, RecipeRow]

    @classmethod
    def load(cls, name: str) -> Recipe:
        """One of the recipes that come with the package."""
        if name not in RECIPES:
            raise unknown_name("recipe", name, RECIPES)
        return cls.read(FOLDER / f"{name}.yaml")

    @classmethod
    def read(cls, path: Path) -> Recipe:
        """Read a file; an error names it and what is wrong."""
        content = read_mapping(path, remedy=_REMEDY)
        _check_keys(content, _KEYS, path, "the recipe")
        included = _raw_rows(path.parent / content["include"]) if "include" in content else {}
        raw = included | _raw_rows(path)
        rows = {name: _resolve(name, raw, path) for name in raw}
        for name, resolved in rows.items():
            for member in resolved.members:
                if member.row not in rows or rows[member.row].members:
                    problem = f"row {name!r} has the member {member.row!r}, which is no row that can be trained"
                    raise FileError(path, problem, _REMEDY)
        return cls(path.stem, content.get("description", ""), content.get("defaults", {}), rows)

    def has(self, row: str, dataset: str) -> bool:
        """Whether there is such a row on a dataset; an ensemble has none where nothing is a member of it."""
        about = self.rows[row]
        if about.only is not None:
            return dataset in about.only
        return not about.members or bool(self.members(row, dataset))

    def settings(self, row: str, dataset: str) -> dict[str, Any]:
        """The settings of a row on a dataset."""
        about = self.rows[row]
        by_family, by_dataset = about.families.get(family_of(dataset), {}), about.datasets.get(dataset, {})
        return self.defaults | about.settings | by_family | by_dataset

    def members(self, row: str, dataset: str) -> list[Member]:
        """The members of a row on a dataset; none if it is no ensemble."""
        return [member for member in self.rows[row].members if member.is_in(dataset)]

    def experiment(self, row: str, dataset: str, graph: str | None, seed: int) -> Experiment:
        """The experiment that a row is on a dataset."""
        members = tuple(
            self.experiment(member.row, dataset, graph, member.seed_in(seed)) for member in self.members(row, dataset)
        )
        settings = {} if members else self.settings(row, dataset)
        return Experiment(dataset, graph, settings, seed, members, label=f"{row} on {dataset}, seed {seed}")

    def is_selected(self, row: str, dataset: str) -> bool:
        """Whether the settings of a row on a dataset were selected by a search on validation data."""
        selected, members = self.rows[row].selected, self.members(row, dataset)
        if members:
            return all(self.is_selected(member.row, dataset) for member in members)
        return selected if isinstance(selected, bool) else dataset in selected


def _resolve(name: str, raw: dict[str, dict[str, Any]], path: Path, met: tuple[str, ...] = ()) -> RecipeRow:
    """A row over the rows that it is like."""
    content = dict(raw[name])
    base = content.pop("like", None)
    members, only = content.pop("members", ()), content.pop("only", None)
    for member in members:
        _check_keys(member, _MEMBER_KEYS, path, f"a member of row {name!r}")
        if "seed" in member and "seed_offset" in member:
            raise FileError(path, f"a member of row {name!r} has both 'seed' and 'seed_offset'", "leave one out")
    selected = content.pop("selected", False)
    row = RecipeRow(
        **{key: value for key, value in content.items() if value is not None},
        only=None if only is None else tuple(only),
        selected=selected if isinstance(selected, bool) else tuple(selected),
        members=tuple(_member(member) for member in members),
    )
    if base is None:
        return row
    if base not in raw or base in (*met, name):
        raise FileError(path, f"row {name!r} is like {base!r}, which is no other row", _REMEDY)
    return row.over(_resolve(base, raw, path, (*met, name)))


def _member(content: dict[str, Any]) -> Member:
    datasets = content.get("datasets")
    return Member(**content | {"datasets": None if datasets is None else tuple(datasets)})


def _raw_rows(path: Path) -> dict[str, dict[str, Any]]:
    """The rows of a file, as it has them."""
    raw = {name: dict(row or {}) for name, row in read_mapping(path, remedy=_REMEDY).get("rows", {}).items()}
    for name, row in raw.items():
        _check_keys(row, _ROW_KEYS, path, f"row {name!r}")
    return raw


def _merged(under: dict[str, dict[str, Any]], over: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {name: under.get(name, {}) | over.get(name, {}) for name in dict.fromkeys([*under, *over])}


def _check_keys(content: Iterable[str], known: tuple[str, ...], path: Path, place: str) -> None:
    for key in content:
        if key not in known:
            closest = closest_names(key, known)
            hint = f"did you mean {closest[0]!r}" if closest else f"known are {', '.join(known)}"
            raise FileError(path, f"{place} has the unknown key {key!r}", hint)
