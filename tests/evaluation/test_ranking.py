"""Ranking against the most literal implementation, the tie policies, the filter, and partial ranking."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.data.loading import load_graph
from refactorgnn.data.vocabulary import Vocabulary
from refactorgnn.errors import UserError
from refactorgnn.evaluation import (
    Ranking,
    evaluate_ranking,
    evaluate_rankings,
    expected_outcomes,
    outcomes,
    rank_triples,
)
from refactorgnn.evaluation.counting import ThresholdCounter
from refactorgnn.evaluation.device_ranking import count_all, question_batches
from refactorgnn.evaluation.ranking import Ranks, rank_in_ways, ranking_budget
from refactorgnn.evaluation.sampling import draw_without
from refactorgnn.ops import SparsePattern
from refactorgnn.ops.chunked import rows_within


class TableScorer:
    """Scores from a given table, indexed by subject and relation."""

    def __init__(self, table: Tensor) -> None:
        self.table = table  # (num_entities, 2 * num_relations, num_entities)
        self.num_asked = 0
        self.most_rows = 0

    num_entities = property(lambda self: self.table.shape[0])
    device = torch.device("cpu")

    def scores(self, subjects: Tensor, relations: Tensor) -> Tensor:
        self.num_asked += len(subjects)
        self.most_rows = max(self.most_rows, len(subjects))
        return self.table[subjects, relations].clone()


def make_graph(triples: dict[str, list[tuple[int, int, int]]], num_entities: int, num_relations: int) -> KnowledgeGraph:
    return KnowledgeGraph(
        "toy",
        Vocabulary([f"e{i}" for i in range(num_entities)], "entity"),
        Vocabulary([f"r{i}" for i in range(num_relations)], "relation"),
        {split: torch.tensor(rows).reshape(-1, 3) for split, rows in triples.items()},
    )


@st.composite
def ranking_cases(draw: st.DrawFn) -> tuple[KnowledgeGraph, Tensor]:
    num_entities, num_relations = draw(st.integers(1, 7)), draw(st.integers(1, 2))
    entity, relation = st.integers(0, num_entities - 1), st.integers(0, num_relations - 1)
    triples = draw(st.lists(st.tuples(entity, relation, entity), min_size=2, max_size=16, unique=True))
    cut = draw(st.integers(1, len(triples) - 1))
    graph = make_graph({"train": triples[cut:], "test": triples[:cut]}, num_entities, num_relations)
    generator = torch.Generator().manual_seed(draw(st.integers(0, 999)))
    levels = draw(st.sampled_from([2, 4, 1000]))  # few levels make many ties
    table = torch.randint(0, levels, (num_entities, 2 * num_relations, num_entities), generator=generator).float()
    return graph, table


def literal_ranks(graph: KnowledgeGraph, table: Tensor, ties: str) -> list[float]:
    facts = {tuple(t) for t in graph.triples().tolist()}
    ranks = []
    for direction in ("tail", "head"):
        for h, r, t in graph.triples("test").tolist():
            subject, relation, truth = (h, r, t) if direction == "tail" else (t, r + graph.num_relations, h)
            better = equal = 0
            for u in range(graph.num_entities):
                fact = (h, r, u) if direction == "tail" else (u, r, t)
                if u == truth or fact in facts:
                    continue
                better += bool(table[subject, relation, u] > table[subject, relation, truth])
                equal += bool(table[subject, relation, u] == table[subject, relation, truth])
            optimistic, pessimistic = better + 1, better + equal + 1
            mean = (optimistic + pessimistic) / 2
            ranks.append({"optimistic": optimistic, "pessimistic": pessimistic, "realistic": mean}[ties])
    return ranks


@given(case=ranking_cases(), ties=st.sampled_from(["realistic", "optimistic", "pessimistic"]), rows=st.integers(1, 9))
@settings(max_examples=120, deadline=None)
def test_ranks_equal_the_literal_ones(case: tuple[KnowledgeGraph, Tensor], ties: str, rows: int) -> None:
    graph, table = case
    scorer = TableScorer(table)
    budget = rows * 2 * graph.num_entities * 4
    ranks = rank_triples(scorer, graph, graph.triples("test"), memory_budget=budget)
    assert ranks.ranks(ties).tolist() == literal_ranks(graph, table, ties)
    assert scorer.most_rows <= rows


def test_each_distinct_question_is_scored_once() -> None:
    graph = make_graph({"train": [(0, 0, 4)], "test": [(0, 0, 1), (0, 0, 2), (0, 0, 3)]}, 5, 1)
    scorer = TableScorer(torch.rand(5, 2, 5))
    rank_triples(scorer, graph, graph.triples("test"))
    assert scorer.num_asked == 4  # (0, r, ?) once, and three different head questions


def test_a_constant_scorer_does_not_win() -> None:
    """Realistic ties give it the middle rank, which AMRI calls 0; optimistic ones would give it rank 1."""
    rng = np.random.default_rng(0)
    triples = [(int(h), 0, int(t)) for h, t in rng.integers(0, 40, (30, 2))]
    graph = make_graph({"train": triples[10:], "test": list(dict.fromkeys(triples[:10]))}, 40, 1)
    scorer = TableScorer(torch.zeros(40, 2, 40))
    realistic = evaluate_ranking(scorer, graph).metrics
    assert realistic["amri"] == pytest.approx(0.0)
    assert realistic["hits@10"] == 0
    assert evaluate_ranking(scorer, graph, ties="optimistic").metrics["mrr"] == 1.0
    assert evaluate_ranking(scorer, graph, ties="pessimistic").metrics["mr"] > 35


def test_the_filter_is_not_mutated_and_only_removes_known_answers() -> None:
    graph = make_graph({"train": [(0, 0, 1), (0, 0, 2)], "test": [(0, 0, 3)]}, 5, 1)
    table = torch.zeros(5, 2, 5)
    table[0, 0] = torch.tensor([9.0, 8, 7, 6, 5])
    known = graph.queries()
    parts = (known.subjects, known.relations, known.answers.offsets, known.answers.columns)
    before = [tensor.clone() for tensor in parts]
    first = rank_triples(TableScorer(table), graph, graph.triples("test"))
    second = rank_triples(TableScorer(table), graph, graph.triples("test"))
    assert all(torch.equal(a, b) for a, b in zip(before, parts, strict=True))
    assert first.ranks()[0] == second.ranks()[0] == 2  # only entity 0 beats it; 1 and 2 are known
    assert first.candidates[0] == 3


def test_self_loops_and_repeated_facts_in_the_filter() -> None:
    """The same fact in two splits is one known answer, not two."""
    graph = make_graph({"train": [(0, 0, 1), (0, 0, 0)], "valid": [(0, 0, 1)], "test": [(0, 0, 2)]}, 4, 1)
    table = torch.zeros(4, 2, 4)
    table[0, 0] = torch.tensor([3.0, 4, 2, 5])
    ranks = rank_triples(TableScorer(table), graph, graph.triples("test"))
    assert (ranks.better[0], ranks.equal[0], ranks.candidates[0]) == (1, 0, 2)


def test_scores_that_are_no_numbers_are_refused() -> None:
    graph = make_graph({"train": [(0, 0, 1)], "test": [(0, 0, 2)]}, 4, 1)
    with pytest.raises(UserError, match="NaN"):
        rank_triples(TableScorer(torch.full((4, 2, 4), torch.nan)), graph, graph.triples("test"))


@given(num_columns=st.integers(1, 70), num_rows=st.integers(1, 5), seed=st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_counter_equals_comparison(num_columns: int, num_rows: int, seed: int) -> None:
    scores = torch.randint(0, 5, (num_rows, num_columns), generator=torch.Generator().manual_seed(seed)).float()
    thresholds = torch.arange(num_rows).float()
    counter = ThresholdCounter(num_columns)
    for _ in range(2):  # the kept buffer must not remember
        greater, equal = counter(scores, thresholds)
        assert greater.tolist() == (scores > thresholds[:, None]).sum(1).tolist()
        assert equal.tolist() == (scores == thresholds[:, None]).sum(1).tolist()


@pytest.mark.parametrize("num_columns", [2039, 2040, 2041, 4081, 40_943, 100_003])
def test_counter_does_not_overflow_its_byte_lanes(num_columns: int) -> None:
    scores = torch.ones(3, num_columns)
    greater, equal = ThresholdCounter(num_columns)(scores, torch.tensor([0.0, 1.0, 2.0]))
    assert greater.tolist() == [num_columns, 0, 0]
    assert equal.tolist() == [0, num_columns, 0]


def test_negatives_are_distinct_allowed_and_uniform() -> None:
    """Each allowed column is drawn with probability count/allowed; a chi-square far out would be a wrong sampler."""
    num_rows, num_columns, count = 20_000, 12, 4
    excluded_columns = torch.tensor([0, 5, 6, 11])
    excluded = SparsePattern(torch.arange(0, 4 * num_rows + 1, 4), excluded_columns.repeat(num_rows), num_columns)
    drawn = draw_without(excluded, count, np.random.default_rng(0))
    assert not torch.isin(drawn, excluded_columns).any()
    assert (drawn.sort(dim=1).values.diff(dim=1) > 0).all()
    allowed = [1, 2, 3, 4, 7, 8, 9, 10]
    observed = torch.bincount(drawn.flatten(), minlength=num_columns)[allowed].double()
    expected = num_rows * count / len(allowed)
    assert ((observed - expected) ** 2 / expected).sum() < 30  # 7 degrees of freedom: p < 1e-4


def test_negatives_where_too_few_are_allowed() -> None:
    excluded = SparsePattern(torch.tensor([0, 3, 3]), torch.tensor([0, 1, 3]), 4)
    drawn = draw_without(excluded, 3, np.random.default_rng(0))
    assert drawn[0].tolist() == [2, -1, -1]
    assert (drawn[1] >= 0).all()


def random_case(seed: int, levels: int) -> tuple[KnowledgeGraph, TableScorer]:
    rng = np.random.default_rng(seed)
    triples = list(dict.fromkeys((int(h), 0, int(t)) for h, t in rng.integers(0, 30, (60, 2))))
    graph = make_graph({"train": triples[20:], "test": triples[:20]}, 30, 1)
    table = torch.randint(0, levels, (30, 2, 30), generator=torch.Generator().manual_seed(seed)).float()
    return graph, TableScorer(table)


def test_partial_ranking_is_seeded_and_does_not_depend_on_batching() -> None:
    graph, scorer = random_case(0, 1000)
    arguments = {"num_negatives": 9, "seed": 3}
    whole = rank_triples(scorer, graph, graph.triples("test"), **arguments)
    bits = rank_triples(scorer, graph, graph.triples("test"), **arguments, memory_budget=3 * 30 * 2 * 4)
    other = rank_triples(scorer, graph, graph.triples("test"), num_negatives=9, seed=4)
    assert whole.better.tolist() == bits.better.tolist()
    assert whole.better.tolist() != other.better.tolist()
    assert set(whole.candidates) == {10}


@pytest.mark.parametrize("ties", ["realistic", "optimistic", "pessimistic"])
@pytest.mark.parametrize("levels", [3, 1000])
def test_closed_form_is_the_expectation_of_partial_ranking(ties: str, levels: int) -> None:
    graph, scorer = random_case(1, levels)
    triples = graph.triples("test")
    exact = expected_outcomes(rank_triples(scorer, graph, triples), 9, ties).mean()
    draws = [
        outcomes(rank_triples(scorer, graph, triples, num_negatives=9, seed=seed), ties).mean() for seed in range(300)
    ]
    for name in exact:
        sampled = np.array([draw[name] for draw in draws])
        error = sampled.std() / np.sqrt(len(draws))
        assert abs(sampled.mean() - exact[name]) <= 4 * error + 1e-9, name


def test_closed_form_with_all_negatives_is_full_ranking() -> None:
    graph, scorer = random_case(2, 4)
    ranks = rank_triples(scorer, graph, graph.triples("test"))
    assert expected_outcomes(ranks, 1000).mean() == pytest.approx(outcomes(ranks).mean())


def test_several_rankings_are_those_one_by_one_and_share_one_pass() -> None:
    graph, scorer = random_case(2, 4)
    names: tuple[Ranking, ...] = get_args(Ranking)
    alone = {name: evaluate_ranking(scorer, graph, ranking=name, num_negatives=3, seed=7) for name in names}
    scorer.num_asked = 0
    together = evaluate_rankings(scorer, graph, num_negatives=3, seed=7)
    assert scorer.num_asked == len(graph.with_reciprocals(graph.triples("test"))[:, :2].unique(dim=0))
    assert list(together) == list(names)
    for name in names:
        assert replace(together[name], seconds=0) == replace(alone[name], seconds=0)
    assert together["full"].seconds == together["partial-exact"].seconds


class CheapForFew(TableScorer):
    """Can score a few candidates alone."""

    def candidate_scores(self, subjects: Tensor, relations: Tensor, candidates: Tensor) -> Tensor:
        """Those of the table, without asking for all."""
        return self.table[subjects[:, None], relations[:, None], candidates]


def test_samples_of_a_model_to_which_a_few_cost_less_have_a_pass_of_their_own() -> None:
    graph, scorer = random_case(2, 4)
    triples = graph.triples("test")
    cheap = CheapForFew(scorer.table)
    ways = [None, 3, 5]
    found = rank_in_ways(cheap, graph, triples, ways, seed=7, memory_budget=4 * 30 * 2 * 4)
    assert cheap.num_asked == len(graph.with_reciprocals(triples)[:, :2].unique(dim=0))
    assert cheap.most_rows <= 4
    expected = rank_in_ways(scorer, graph, triples, ways, seed=7)
    for way in ways:
        for name in ("better", "equal", "candidates"):
            assert getattr(found[way][0], name).tolist() == getattr(expected[way][0], name).tolist()


def test_the_draws_of_a_sample_are_those_of_the_triples_in_their_order() -> None:
    """Questions are scored sorted by what they ask; negatives are drawn in the order of the triples, as ever."""
    graph = make_graph({"train": [(0, 0, 1)], "test": [(3, 0, 4), (0, 0, 2), (3, 0, 5), (0, 0, 6)]}, 9, 1)
    table = torch.arange(9.0).expand(9, 2, 9)
    questions = graph.with_reciprocals(graph.triples("test"))
    rng = np.random.default_rng(5)
    better = []
    for subject, relation, truth in questions.tolist():
        known = {t for s, r, t in graph.with_reciprocals(graph.triples()).tolist() if (s, r) == (subject, relation)}
        excluded = SparsePattern.from_rows(
            torch.zeros(len(known), dtype=torch.int64), torch.tensor(sorted(known)), 1, graph.num_entities
        )
        better.append(int((draw_without(excluded, 3, rng) > truth).sum()))
    ranks = rank_triples(TableScorer(table), graph, graph.triples("test"), num_negatives=3, seed=5)
    assert ranks.better.tolist() == better


def test_a_filter_of_fewer_splits_takes_other_answers_for_mistakes() -> None:
    graph, scorer = random_case(2, 4)
    usual, less = (evaluate_ranking(scorer, graph, filter_splits=splits) for splits in (None, ("test",)))
    known = graph.queries("test")
    assert less.metrics == outcomes(rank_triples(scorer, graph, graph.triples("test"), known=known)).mean()
    assert less.metrics["mr"] > usual.metrics["mr"]
    assert (usual.protocol["filter"], less.protocol["filter"]) == ("train+test", "test")
    with pytest.raises(UserError, match=r"no split to filter by is named: graph .* has train, test"):
        evaluate_ranking(scorer, graph, filter_splits=())


def test_unknown_protocols_list_the_choices() -> None:
    graph, scorer = random_case(0, 9)
    with pytest.raises(UserError, match="unknown ranking 'fully': did you mean 'full'"):
        evaluate_ranking(scorer, graph, ranking="fully")
    with pytest.raises(UserError, match="unknown tie policy"):
        evaluate_ranking(scorer, graph, ties="random")
    with pytest.raises(UserError, match="no split 'tset': choose one of train, test"):
        evaluate_ranking(scorer, graph, "tset")
    with pytest.raises(UserError, match="bind the model"):
        rank_triples(TableScorer(torch.zeros(3, 2, 3)), graph, graph.triples("test"))


# The counts of a GPU ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [3, 7, 1000])
def test_batches_of_a_gpu_count_what_a_cpu_counts(rows: int) -> None:
    """Ties everywhere, questions asked several times, and truths that are no known answers."""
    graph = load_graph("countries_part_ind")
    generator = torch.Generator().manual_seed(0)
    table = torch.randint(0, 4, (graph.num_entities, 2 * graph.num_relations, graph.num_entities), generator=generator)
    predictor = TableScorer(table.float())
    triples = graph.triples("valid", "test")
    for known in (graph.queries(), graph.queries("train")):
        expected = rank_triples(predictor, graph, triples, known=known)
        batches = question_batches(graph.with_reciprocals(triples), known, torch.device("cpu"), rows)
        ranks = Ranks.from_counts(triples, count_all(predictor, batches))
        for name in ("relations", "is_head", "better", "equal", "candidates"):
            assert getattr(ranks, name).tolist() == getattr(expected, name).tolist(), name


def test_a_truth_that_is_no_number_is_refused_by_the_batches_of_a_gpu() -> None:
    graph = load_graph("countries_part_ind")
    predictor = TableScorer(torch.full((graph.num_entities, 2 * graph.num_relations, graph.num_entities), torch.nan))
    triples = graph.triples("valid")
    batches = question_batches(graph.with_reciprocals(triples), graph.queries(), torch.device("cpu"), 100)
    with pytest.raises(UserError, match="not numbers"):
        Ranks.from_counts(triples, count_all(predictor, batches))


def test_a_large_graph_is_asked_many_questions_at_a_time() -> None:
    """The budget is 64 MiB, but never so little that a product has a handful of rows."""
    assert ranking_budget(14_505) == 64 * 2**20
    assert rows_within(ranking_budget(14_505), 14_505, 2, device=torch.device("cpu")) > 500
    assert rows_within(ranking_budget(1_000_000), 1_000_000, 2, device=torch.device("cpu")) == 64
