"""To PyG and PyKEEN and back."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Data

from refactorgnn import load_graph
from refactorgnn.data import from_pyg, from_pykeen, to_pyg, to_pykeen
from refactorgnn.errors import UserError


def test_pyg_round_trip() -> None:
    graph = load_graph("countries")
    data = to_pyg(graph)
    assert data.edge_index[:, 0].tolist() == graph.triples("train")[0, [0, 2]].tolist()
    back = from_pyg(data, "countries", list(graph.entities), list(graph.relations))
    assert torch.equal(back.triples("train"), graph.triples("train"))
    assert to_pyg(graph, reciprocals=True).edge_type.max() == 2 * graph.num_relations - 1


def test_pyg_without_names() -> None:
    data = Data(edge_index=torch.tensor([[0, 11], [3, 1]]), edge_type=torch.tensor([0, 2]), num_nodes=12)
    graph = from_pyg(data)
    assert list(graph.entities)[:2] == ["00", "01"]
    assert (graph.num_entities, graph.num_relations) == (12, 3)
    with pytest.raises(UserError, match="edge_type"):
        from_pyg(Data(edge_index=torch.tensor([[0], [1]])))


def test_pykeen_round_trip() -> None:
    pytest.importorskip("pykeen", reason="PyKEEN is an optional extra and not installed")
    graph = load_graph("countries")
    factories = {split: to_pykeen(graph, split) for split in graph.splits}
    back = from_pykeen("countries", **factories)
    assert back.entities == graph.entities
    assert all(torch.equal(back.triples(split), graph.triples(split)) for split in graph.splits)


class _Factory:
    """The attributes of a PyKEEN ``TriplesFactory`` that matter here, to test the conversion without PyKEEN."""

    def __init__(self, triples: list[list[int]], entity_to_id: dict[str, int]) -> None:
        self.mapped_triples = torch.tensor(triples)
        self.entity_to_id = entity_to_id
        self.relation_to_id = {"r": 0}


def test_from_pykeen_keeps_the_numbering() -> None:
    ids = {"b": 0, "a": 1}
    graph = from_pykeen("toy", train=_Factory([[0, 0, 1]], ids), test=_Factory([[1, 0, 0]], ids))
    assert list(graph.entities) == ["b", "a"]
    with pytest.raises(UserError, match="number their entities differently"):
        from_pykeen("toy", train=_Factory([[0, 0, 1]], ids), test=_Factory([[1, 0, 0]], {"a": 0, "b": 1}))
    with pytest.raises(UserError, match="at least train"):
        from_pykeen("toy")


def test_without_pykeen_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pykeen.triples", None)
    with pytest.raises(UserError, match=r"pip install 'refactorgnn\[pykeen\]'"):
        to_pykeen(load_graph("countries"))
