"""docs/architecture.md's table of who may import whom, kept true."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import refactorgnn

ROOT = Path(refactorgnn.__file__).parent
# Rooms from the ground up; a module may import from its own room and those below.
FLOORS = [
    {"errors", "storage", "progress", "interrupts", "provenance", "devices", "seeds", "measuring", "locks"},
    {"ops"},
    {"data"},
    {"sampling"},
    {"scorers"},
    {"autograd_path", "row_work", "relation_prediction"},
    {"streamed"},
    {"likelihood"},
    {"layers"},
    {"models"},
    {"evaluation"},
    {"training", "runs"},
    {"predict", "reproduce"},
    {"bench", "export", "server"},
    {"page"},
    {"api"},
    {"cli", "demo", "__main__", "__init__"},
]
FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
MODULES = sorted(ROOT.rglob("*.py"))


def room_of(parts: tuple[str, ...]) -> str:
    return parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> set[str]:
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "refactorgnn":
            parts = node.module.split(".")[1:]
            rooms |= {parts[0]} if parts else {alias.name for alias in node.names}
    return rooms & set(FLOOR_OF)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_downwards(path: Path) -> None:
    room = room_of(path.relative_to(ROOT).parts)
    above = {other for other in imported_rooms(path) if FLOOR_OF[other] > FLOOR_OF[room]}
    assert not above, f"{room} may not import {above}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_can_be_held_in_mind(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 400


def test_nothing_pickles() -> None:
    for path in MODULES:
        source = path.read_text(encoding="utf-8")
        for word in ("import pickle", "torch.load(", "torch.save("):
            assert word not in source, f"{path.name} uses {word}"
