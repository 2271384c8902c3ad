"""Graphs, vocabularies, the query index, splits and pairs."""

from __future__ import annotations

import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from refactorgnn.data import (
    InductivePair,
    KnowledgeGraph,
    QueryIndex,
    Vocabulary,
    graph_from_tables,
    load_file,
    load_folder,
    load_graph,
    load_pair,
    save_graph,
    split_triples,
)
from refactorgnn.errors import UserError
from tests.strategies import Case, cases


def table(*rows: tuple[str, str, str]) -> pa.Table:
    heads, relations, tails = zip(*rows, strict=True)
    return pa.table({"head": heads, "relation": relations, "tail": tails})


@pytest.fixture
def graph() -> KnowledgeGraph:
    train = table(("b", "likes", "a"), ("a", "knows", "c"), ("b", "likes", "a"), ("c", "likes", "c"))
    return graph_from_tables("toy", {"train": train, "test": table(("a", "likes", "b"))})


def test_ids_depend_on_the_set_of_triples_alone(graph: KnowledgeGraph) -> None:
    assert list(graph.entities) == ["a", "b", "c"]
    assert list(graph.relations) == ["knows", "likes"]
    assert graph.triples("train").tolist() == [[1, 1, 0], [0, 0, 2], [2, 1, 2]]
    assert graph.notes == ("1 duplicate triples in train were dropped",)


def test_reciprocals_and_shared_index(graph: KnowledgeGraph) -> None:
    index = graph.queries("train")
    assert index is graph.queries("train")
    assert index.num_triples == 6
    assert index.num_relations == 4
    assert index.objects_of(torch.tensor([0, 0, 2, 1]), torch.tensor([3, 0, 3, 0])).columns.tolist() == [1, 2, 2]
    assert graph.relation_name(3) == "likes⁻¹"
    assert graph.queries().num_triples == 8
    assert graph.queries("test", "train") is graph.queries("train", "test")


@given(case=cases())
@settings(max_examples=60, deadline=None)
def test_index_holds_every_triple_as_often_as_it_occurs(case: Case) -> None:
    index = case.queries
    rows = index.answers.rows
    back = torch.stack([index.subjects[rows], index.relations[rows], index.answers.columns], dim=1)
    assert sorted(back.tolist()) == sorted(case.triples.tolist())
    pairs = torch.stack([index.subjects, index.relations], dim=1).tolist()
    assert pairs == sorted([h, r] for h, r in {(h, r) for h, r, _ in case.triples.tolist()})
    assert index.find(index.subjects, index.relations).tolist() == list(range(index.num_queries))
    loops = sum(1 for h, _, t in case.triples.tolist() if h == t)
    assert int(index.self_loops.sum()) == loops
    assert index.by_subject.counts.tolist() == torch.bincount(index.subjects, minlength=case.num_entities).tolist()


def test_find_says_where_there_is_no_such_query() -> None:
    index = QueryIndex.from_triples(torch.tensor([[0, 0, 1], [2, 1, 0]]), 3, 2)
    assert index.find(torch.tensor([0, 0, 2, 2]), torch.tensor([0, 1, 0, 1])).tolist() == [0, -1, -1, 1]
    empty = QueryIndex.from_triples(torch.empty(0, 3, dtype=torch.long), 3, 2)
    assert empty.find(torch.tensor([0]), torch.tensor([0])).tolist() == [-1]
    assert empty.objects_of(torch.tensor([0]), torch.tensor([0])).counts.tolist() == [0]


def test_ids_too_large_for_one_sort_key() -> None:
    """With 2³¹ entities the three ids do not fit 63 bits: the other sort must give the same grouping."""
    triples = torch.tensor([[5, 1, 9], [2**31 - 1, 0, 3], [5, 1, 2], [5, 0, 7]])
    index = QueryIndex.from_triples(triples, 2**31, 2**3)
    assert index.subjects.tolist() == [5, 5, 2**31 - 1]
    assert index.answers.columns.tolist() == [7, 2, 9, 3]


def test_closest_names_of_unknown_ones(graph: KnowledgeGraph) -> None:
    with pytest.raises(UserError, match="unknown relation 'like': did you mean 'likes'"):
        graph.relations.id("like")
    with pytest.raises(UserError, match="no split 'dev': choose one of train, test"):
        graph.triples("dev")


def test_labels_find_entities_when_they_are_unambiguous(graph: KnowledgeGraph) -> None:
    texts = pa.table({"entity": ["c", "a", "b"], "label": ["Same", "Anna", "Same"], "description": ["", "x", ""]})
    named = graph_from_tables("toy", {"train": graph.named_triples("train")}, texts)
    assert named.entity_id("Anna") == 0
    assert named.label(0) == "Anna"
    with pytest.raises(UserError, match=r"several entities are labelled 'Same'.*'b', 'c'"):
        named.entity_id("Same")
    with pytest.raises(UserError, match="unknown entity 'Ana': did you mean 'Anna'"):
        named.entity_id("Ana")


def test_pair_renumbers_relations_and_refuses_unseen_ones(graph: KnowledgeGraph) -> None:
    unseen = graph_from_tables("new", {"train": table(("x", "likes", "y"))})
    pair = InductivePair(graph, unseen)
    assert pair.unseen.triples("train").tolist() == [[0, 1, 1]]
    assert pair.num_shared_entities == 0
    stranger = graph_from_tables("strange", {"train": table(("x", "liked", "y"))})
    with pytest.raises(UserError, match=r"'strange' has 1 relation\(s\) unseen in training, such as 'liked'.*'likes'"):
        InductivePair(graph, stranger)


@given(case=cases(max_entities=7, max_triples=30), seed=st.integers(0, 9))
@settings(max_examples=80, deadline=None)
def test_split_keeps_every_entity_and_relation_in_train(case: Case, seed: int) -> None:
    triples = torch.unique(case.triples, dim=0)
    splits = split_triples(triples, valid=0.2, test=0.3, seed=seed)
    train = splits["train"]
    assert set(train[:, [0, 2]].flatten().tolist()) == set(triples[:, [0, 2]].flatten().tolist())
    assert set(train[:, 1].tolist()) == set(triples[:, 1].tolist())
    together = sorted(row for part in splits.values() for row in part.tolist())
    assert together == sorted(triples.tolist())
    again = split_triples(triples, valid=0.2, test=0.3, seed=seed)
    assert all(torch.equal(splits[name], again[name]) for name in splits)


def test_split_has_the_asked_sizes_where_it_can() -> None:
    generator = torch.Generator().manual_seed(0)
    triples = torch.unique(torch.randint(0, 20, (900, 3), generator=generator), dim=0)
    splits = split_triples(triples, valid=0.1, test=0.2)
    assert len(splits["valid"]) == int(0.1 * len(triples))
    assert len(splits["test"]) == int(0.2 * len(triples))
    with pytest.raises(UserError, match="less than 1"):
        split_triples(triples, valid=0.5, test=0.5)


@pytest.mark.parametrize("suffix", [".tsv", ".csv", ".tsv.gz", ".parquet", ".nt", ".ttl"])
def test_saved_graphs_load_to_the_same_ids(graph: KnowledgeGraph, tmp_path, suffix: str) -> None:
    save_graph(graph, tmp_path / "saved", suffix)
    back = load_folder(tmp_path / "saved")
    assert back.entities == graph.entities
    assert back.relations == graph.relations
    assert all(torch.equal(back.triples(split), graph.triples(split)) for split in graph.splits)


def test_one_file_is_split_by_the_rule(tmp_path) -> None:
    rows = [f"e{i}\tr{i % 2}\te{(i * 7 + j) % 10}" for i in range(10) for j in range(4)]
    (tmp_path / "facts.tsv").write_text("\n".join(rows), encoding="utf-8")
    graph = load_file(tmp_path / "facts.tsv", seed=1)
    assert graph.name == "facts"
    assert {split: len(triples) for split, triples in graph.splits.items()} == {"train": 32, "valid": 4, "test": 4}


def test_bundled_graphs_need_nothing() -> None:
    graph = load_graph("countries")
    france = graph.entity_id("France")
    borders = graph.queries().objects_of(torch.tensor([france]), torch.tensor([graph.relations.id("borders")]))
    assert {"Spain", "Belgium", "Germany"} <= {graph.label(entity) for entity in borders.columns.tolist()}
    pair = load_pair("countries_part")
    assert 0 < pair.num_shared_entities < pair.unseen.num_entities
    with pytest.raises(UserError, match="has no unseen graph"):
        load_pair("countries")


def test_a_name_that_is_no_dataset_and_no_path() -> None:
    with pytest.raises(UserError, match="unknown dataset 'contries': did you mean 'countries'"):
        load_graph("contries")
    with pytest.raises(UserError, match="no such file or folder"):
        load_graph("nowhere/at/all")


def test_vocabulary_looks_whole_columns_up() -> None:
    vocabulary = Vocabulary(["x", "y", "z"], "entity")
    column = pa.array(["z", "q", "x", "z"]).dictionary_encode()
    assert vocabulary.ids(column).tolist() == [2, -1, 0, 2]
    assert vocabulary.names_of(vocabulary.ids(pa.array(["y", "x"]))).to_pylist() == ["y", "x"]
    assert vocabulary.sha256 != Vocabulary(["y", "x", "z"], "entity").sha256
    with pytest.raises(UserError, match="twice"):
        Vocabulary(["x", "x"], "entity")
