"""Embeddings as files: every number, name and label in its place, whatever the format, in bounded memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

import refactorgnn
from refactorgnn import Predictor, Run
from refactorgnn.export import embeddings
from refactorgnn.models.base import EmbeddingScorer
from tests.conftest import QUICK, Cli, contents


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """RESCAL, whose relations are wider than its entities, on a graph with labels."""
    out = tmp_path_factory.mktemp("runs") / "run"
    return refactorgnn.train("countries", out=out, scorer="rescal", dim=4, epochs=1, progress=False)


def read(path: Path) -> dict[str, Any]:
    """The same six things out of any of the formats."""
    if path.suffix == ".npz":
        with np.load(path) as file:
            found: dict[str, Any] = {name: file[name] for name in file.files}
        return found | {"parts": json.loads(str(found["parts"][0]))}
    if path.suffix == ".npy":
        named = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        return {"entities": np.load(path), "relations": np.load(path.with_suffix(".relations.npy")), **named}
    table = pq.read_table(path)
    found = {"parts": json.loads(table.schema.metadata[b"parts"])}
    for kind, plural in (("entity", "entities"), ("relation", "relations")):
        rows = [row for row in table.to_pylist() if row["kind"] == kind]
        assert [row["id"] for row in rows] == list(range(len(rows)))
        found[plural] = np.array([row["embedding"] for row in rows], dtype=np.float32)
        found |= {f"{kind}_names": [row["name"] for row in rows], f"{kind}_labels": [row["label"] for row in rows]}
    return found


@pytest.mark.parametrize("suffix", embeddings.SUFFIXES)
def test_every_number_and_name_is_there(run: Run, suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embeddings, "_CHUNK_BYTES", 300)  # a few rows at a time
    path = tmp_path / f"countries{suffix}"
    files = refactorgnn.export_embeddings(run, path)
    assert sorted(files) == sorted(tmp_path.iterdir())
    found, bound, graph = read(path), Predictor.load(run).bound, run.graph
    assert isinstance(bound, EmbeddingScorer)
    assert np.array_equal(found["entities"], bound.states.numpy())
    assert np.array_equal(found["relations"], bound.relations.numpy())
    assert found["entities"].dtype == found["relations"].dtype == np.float32
    assert list(found["entity_names"]) == list(graph.entities)
    assert list(found["entity_labels"]) == [graph.label(entity) for entity in range(graph.num_entities)]
    assert list(found["relation_names"]) == [graph.relation_name(number) for number in range(2 * graph.num_relations)]
    assert found["parts"] == [{"scorer": "rescal", "weight": 1.0, "dim": 4, "relation_dim": 16}]


def test_parts_of_a_sum_stand_side_by_side(tiny: Path, tmp_path: Path) -> None:
    settings = {name: value for name, value in QUICK.items() if name != "batch_size"}
    refactor = {"model": "refactor", "layers": 2, "features": "random", "alpha": 0.3, "draws": 2}
    run = refactorgnn.train(tiny, out=tmp_path / "run", progress=False, **settings, **refactor)
    refactorgnn.export_embeddings(run, tmp_path / "tiny.npz")
    found = read(tmp_path / "tiny.npz")
    assert [part["weight"] for part in found["parts"]] == [0.5, 0.5]
    # Scores by hand from the file alone: DistMult of each part, weighted.
    head, relation = 3, 1
    scores, start = np.zeros(len(found["entities"])), 0
    for part in found["parts"]:
        columns = slice(start, start + part["dim"])
        states, psi = found["entities"][:, columns], found["relations"][relation, columns]
        scores += part["weight"] * (states @ (states[head] * psi))
        start += part["dim"]
    bound = Predictor.load(run).bound
    expected = bound.scores(torch.tensor([head]), torch.tensor([relation]))[0].numpy()
    assert np.allclose(scores, expected, rtol=1e-5, atol=1e-6)


def test_bad_input(run: Run, tmp_path: Path, cli: Cli) -> None:
    path = tmp_path / "x.parquet"
    path.write_text("mine")
    cli("export", "embeddings", run.path, "--out", path).refused(path, "there is something here already")
    cli("export", "embeddings", run.path, "--out", tmp_path / "x.pkl").refused("names no format", ".parquet, .npz")
    (tmp_path / "y.json").write_text("mine too")  # it would be written beside
    cli("export", "embeddings", run.path, "--out", tmp_path / "y.npy").refused(tmp_path / "y.json")
    assert contents(tmp_path) == {"x.parquet": b"mine", "y.json": b"mine too"}
    done = cli("export", "embeddings", run.path, "--out", tmp_path / "z.npz", "--json")
    assert json.loads(done.out) == {"files": [str(tmp_path / "z.npz")]}
