"""The metrics on ranks that can be checked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from refactorgnn.evaluation import Ranks, outcomes


def make_ranks(better: list[int], candidates: int = 101, relations: list[int] | None = None) -> Ranks:
    half = len(better) // 2
    return Ranks(
        relations=np.array(relations or [0] * len(better)),
        is_head=np.array([False] * half + [True] * half),
        better=np.array(better),
        equal=np.zeros(len(better), dtype=np.int64),
        candidates=np.full(len(better), candidates),
    )


def test_metrics_by_hand() -> None:
    metrics = outcomes(make_ranks([0, 1, 3, 19])).mean()  # ranks 1, 2, 4, 20
    assert metrics["mrr"] == pytest.approx((1 + 1 / 2 + 1 / 4 + 1 / 20) / 4)
    assert metrics["mr"] == pytest.approx(27 / 4)
    assert metrics["amri"] == pytest.approx(1 - (27 / 4 - 1) / (51 - 1))  # chance rank (101 + 1) / 2
    assert (metrics["hits@1"], metrics["hits@3"], metrics["hits@10"]) == (0.25, 0.5, 0.75)


def test_by_direction_and_relation() -> None:
    result = outcomes(make_ranks([0, 9, 1, 4], relations=[0, 2, 0, 2]))
    assert result.by_direction()["tail"]["mr"] == 5.5
    assert result.by_direction()["head"]["mr"] == 3.5
    by_relation = result.by_relation()
    assert set(by_relation) == {0, 2}
    assert by_relation[2]["mr"] == 7.5
    assert by_relation[2]["num_questions"] == 2


def test_bootstrap_interval_has_the_width_of_the_standard_error() -> None:
    """Both questions of a triple move together: with equal halves the error is that of n triples, not of 2n."""
    rng = np.random.default_rng(0)
    hits = rng.random(400) < 0.3
    better = np.where(hits, 0, 50).tolist()
    result = outcomes(make_ranks(better + better))
    low, high = result.confidence(num_resamples=2000)["hits@1"]
    p = hits.mean()
    expected_width = 2 * 1.96 * np.sqrt(p * (1 - p) / 400)
    assert low < p < high
    assert high - low == pytest.approx(expected_width, rel=0.1)
    assert result.confidence(seed=5) == result.confidence(seed=5)


def test_a_perfect_model() -> None:
    metrics = outcomes(make_ranks([0, 0])).mean()
    assert metrics == {"mrr": 1, "mr": 1, "amri": 1, "hits@1": 1, "hits@3": 1, "hits@10": 1}


def test_one_candidate_only() -> None:
    assert outcomes(make_ranks([0, 0], candidates=1)).mean()["amri"] == 1
