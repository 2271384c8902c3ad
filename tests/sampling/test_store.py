"""Sub-graphs on disk: every triple once a pass, the same after a kill and when streamed, by one or more readers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from refactorgnn.data import KnowledgeGraph
from refactorgnn.errors import FileError, UserError
from refactorgnn.sampling import (
    SAMPLERS,
    SubGraph,
    SubGraphDataset,
    make_sampler,
    read_manifest,
    store,
    subgraph_loader,
    write_subgraphs,
)
from refactorgnn.seeds import combined_seed
from tests.conftest import contents
from tests.sampling.graphs import random_graph

GRAPH = random_graph(40, 90)
# 90 triples or a few less in mini-batches of 8: 11 or 12 sub-graphs a pass, 3 shards.
SETTINGS = {"depth": 2, "width": 4, "batch_size": 8, "passes": 3, "seed": 5, "shard_size": 4, "progress": False}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("samples") / "ladies"
    write_subgraphs(folder, GRAPH, "ladies", **SETTINGS)
    return folder


def write(folder: Path, graph: KnowledgeGraph = GRAPH, sampler: str = "ladies", **changes: object) -> None:
    write_subgraphs(folder, graph, sampler, **{**SETTINGS, **changes})


def targets_of(sub: SubGraph) -> list[tuple[int, ...]]:
    head, relation, tail = sub.targets.T
    return list(map(tuple, torch.stack([sub.nodes[head], relation, sub.nodes[tail]], dim=1).tolist()))


def assert_equal(left: SubGraph, right: SubGraph) -> None:
    assert left.global_node == right.global_node
    for name in ("nodes", "triples", "is_target", "targets"):
        one, other = getattr(left, name), getattr(right, name)
        assert one.dtype == other.dtype
        assert torch.equal(one, other)


def test_each_pass_covers_every_train_triple_once_in_an_order_of_its_own(folder: Path) -> None:
    orders = [[t for sub in SubGraphDataset(folder, number) for t in targets_of(sub)] for number in (1, 2, 3)]
    expected = sorted(map(tuple, GRAPH.triples("train").tolist()))
    assert [sorted(order) for order in orders] == [expected] * 3
    assert orders[0] != orders[1] != orders[2] != orders[0]


@pytest.mark.parametrize("name", SAMPLERS)
def test_what_is_read_is_what_was_sampled(name: str, tmp_path: Path) -> None:
    write(tmp_path / "x", sampler=name)
    sampler, triples = make_sampler(name, GRAPH, 2, 4), GRAPH.triples("train")
    seed = combined_seed(5, 2)
    batches = torch.randperm(len(triples), generator=torch.Generator().manual_seed(seed)).split(8)
    dataset = SubGraphDataset(tmp_path / "x", 2)
    assert len(dataset) == len(batches) == read_manifest(tmp_path / "x", GRAPH).num_subgraphs
    for number, batch in enumerate(batches):
        generator = torch.Generator().manual_seed(combined_seed(seed, number))
        assert_equal(dataset[number], sampler.sample(triples[batch], generator))


def test_manifest_says_what_is_there(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest.items() >= {"graph": "random", "sampler": "ladies", "passes": 3, "seed": 5, "format": 1}.items()
    shards = -(-manifest["num_subgraphs"] // 4)
    assert sorted(contents(folder)) == sorted(
        ["manifest.json", *(f"pass-{p:04d}-shard-{s:04d}.safetensors" for p in (1, 2, 3) for s in range(1, shards + 1))]
    )


@pytest.mark.parametrize("kill_at", [0, 1, 4, 8])
def test_killed_and_called_again_gives_the_same_files(
    kill_at: int, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []

    def dying(path: Path, content: bytes) -> None:
        if len(written) == kill_at:
            (path.parent / ".refactorgnn-half").mkdir()  # what a kill leaves behind
            raise KeyboardInterrupt
        written.append(path.name)
        original(path, content)

    original = store.write_bytes
    with monkeypatch.context() as patch:
        patch.setattr(store, "write_bytes", dying)
        with pytest.raises(KeyboardInterrupt):
            write(tmp_path / "x")
    before = contents(tmp_path / "x")
    assert len(before) == 1 + kill_at
    kept = {name: (tmp_path / "x" / name).stat().st_mtime_ns for name in before}
    write(tmp_path / "x")
    assert contents(tmp_path / "x") == contents(folder)
    assert kept == {name: (tmp_path / "x" / name).stat().st_mtime_ns for name in before}
    assert not (tmp_path / "x" / ".refactorgnn-half").exists()


def test_other_settings_are_refused(folder: Path, tmp_path: Path) -> None:
    before = contents(folder)
    for changes, words in [
        ({"seed": 6}, r"seed=5\); choose those settings or another folder"),
        ({"depth": 3, "width": 9}, "depth=2, width=4"),
        ({"sampler": "saint"}, "sampler='ladies'"),
        ({"graph": random_graph(40, 90, seed=1)}, "graph_sha256="),
    ]:
        with pytest.raises(FileError, match=words):
            write(folder, **changes)
    assert contents(folder) == before
    (tmp_path / "mine.txt").write_text("something else")
    with pytest.raises(FileError, match="holds other files; choose a new or empty folder"):
        write(tmp_path)
    for kind in ("batch_size", "passes", "shard_size"):
        with pytest.raises(UserError, match=f"sampling cannot use {kind}=0"):
            write(tmp_path / "x", **{kind: 0})


def test_an_epoch_streams_one_pass_shuffled_by_seed_and_epoch(folder: Path) -> None:
    def order(epoch: int, seed: int = 0) -> list[list[tuple[int, ...]]]:
        return [targets_of(sub) for sub in subgraph_loader(folder, epoch=epoch, seed=seed)]

    def of_pass(number: int) -> list[list[tuple[int, ...]]]:
        return [targets_of(sub) for sub in SubGraphDataset(folder, number)]

    assert order(2) == order(2)
    assert order(2) != of_pass(2)
    assert order(2) != order(2, seed=1)
    for epoch, number in [(1, 1), (2, 2), (3, 3), (4, 1)]:
        assert sorted(order(epoch)) == sorted(of_pass(number))
    assert order(1) != order(4)


def test_ranks_see_a_partition_and_workers_see_the_same(folder: Path) -> None:
    whole = list(subgraph_loader(folder, epoch=1))
    loaders = [subgraph_loader(folder, epoch=1, rank=rank, world_size=2) for rank in (0, 1)]
    first, second = (list(loader) for loader in loaders)
    assert [len(loader) for loader in loaders] == [len(first), len(second)]
    assert len(first) + len(second) == len(whole)
    for got, expected in zip(first + second, whole[0::2] + whole[1::2], strict=True):
        assert_equal(got, expected)
    for got, expected in zip(subgraph_loader(folder, epoch=1, num_workers=2), whole, strict=True):
        assert_equal(got, expected)


def test_reading_leaves_the_default_generator_alone(folder: Path) -> None:
    before = torch.get_rng_state()
    list(subgraph_loader(folder, epoch=1))
    assert torch.equal(torch.get_rng_state(), before)


def test_damage_is_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(FileError, match="holds no sub-graphs; sample some into it first"):
        SubGraphDataset(tmp_path)
    with pytest.raises(FileError, match="of another graph"):
        read_manifest(folder, random_graph(40, 90, seed=1))
    with pytest.raises(UserError, match=r"there is no pass 4 in .*: choose one of 1…3"):
        SubGraphDataset(folder, 4)
    with pytest.raises(UserError, match="there is no epoch 0"):
        subgraph_loader(folder, epoch=0)
    with pytest.raises(UserError, match="rank 2 is none of 2 processes"):
        subgraph_loader(folder, epoch=1, rank=2, world_size=2)
    write(tmp_path / "x", passes=1)
    shard = tmp_path / "x" / "pass-0001-shard-0002.safetensors"
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-9])
    with pytest.raises(FileError, match=r"shard-0002.*is damaged or cut short"):
        SubGraphDataset(tmp_path / "x")[4]
    shard.write_bytes((folder / shard.name).read_bytes())  # three passes: other settings
    with pytest.raises(FileError, match="belongs to other settings than its folder"):
        SubGraphDataset(tmp_path / "x")[4]
    shard.unlink()
    with pytest.raises(FileError, match=r"shard-0002.*is missing; sample again with the same settings"):
        SubGraphDataset(tmp_path / "x")
    (tmp_path / "x" / "manifest.json").write_text("{")
    with pytest.raises(FileError, match=r"manifest.json: is damaged"):
        read_manifest(tmp_path / "x")
