"""How many known facts join the ends of those asked about."""

from __future__ import annotations

import pyarrow as pa
import pytest
import torch

from refactorgnn.data import KnowledgeGraph, graph_from_tables, load_graph
from refactorgnn.data.reach import reach
from refactorgnn.errors import UserError
from tests.benchmark_copies import BENCHMARK_COPIES, needs_benchmarks


def graph_of(**splits: str) -> KnowledgeGraph:
    """Splits written as ``ab bc``: facts between letters."""
    facts = {name: [(word[0], "r", word[1]) for word in words.split()] for name, words in splits.items()}
    columns = ("head", "relation", "tail")
    return graph_from_tables(
        "letters",
        {name: pa.table(dict(zip(columns, zip(*rows, strict=True), strict=True))) for name, rows in facts.items()},
    )


def test_a_chain_is_followed_in_both_directions_and_no_further_than_asked() -> None:
    graph = graph_of(train="ab bc dc ef", test="ab ac da af")
    assert reach(graph) == [0.25, 0.5, 0.75, 0.75]
    assert reach(graph, most_steps=2) == [0.25, 0.5]
    assert reach(graph, message_splits=("train", "test"), most_steps=1) == [1.0]


def test_an_entity_reaches_itself_by_a_fact_and_back_not_by_standing_still() -> None:
    assert reach(graph_of(train="ab cc", test="aa cc"), most_steps=2) == [0.5, 1.0]


def test_chunks_count_what_one_pass_counts() -> None:
    generator = torch.Generator().manual_seed(0)
    letters = torch.randint(26, (60, 2), generator=generator).tolist()
    words = ["".join(chr(97 + letter) for letter in pair) for pair in letters]
    graph = graph_of(train=" ".join(words[:30]), test=" ".join(words[30:]))
    assert reach(graph, memory_budget=1) == reach(graph)


def test_no_questions_reach_nothing() -> None:
    graph = graph_of(train="ab", test="ab")
    splits = {"train": graph.triples("train"), "test": graph.triples("test")[:0]}
    empty = KnowledgeGraph("empty", graph.entities, graph.relations, splits)
    assert reach(empty) == [0.0] * 4


def test_a_split_that_is_not_there_is_refused() -> None:
    with pytest.raises(UserError, match="valid"):
        reach(graph_of(train="ab", test="ab"), "valid")


@needs_benchmarks
def test_less_than_half_of_fb237_v1_is_within_two_facts() -> None:
    assert reach(load_graph("fb237_v1_ind", data_root=BENCHMARK_COPIES, progress=False)) == pytest.approx(
        [0.327, 0.449, 0.702, 0.776], abs=5e-4
    )
