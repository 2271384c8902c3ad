"""The choice of an ensemble's members on validation: planted members are found, useless ones left out."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from refactorgnn import load_graph
from refactorgnn.data import KnowledgeGraph
from refactorgnn.errors import UserError
from refactorgnn.evaluation import evaluate_ranking
from refactorgnn.models import ConcatenatedScorer
from refactorgnn.training import member_choice
from refactorgnn.training.member_choice import choose_weights, measure_weights


@dataclass
class Planted:
    """Scores 1 for the true answers of some relations, plus noise: a specialist."""

    graph: KnowledgeGraph
    knows: tuple[int, ...]
    noise: float = 0.1
    scale: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        generator = torch.Generator().manual_seed(self.seed)
        sizes = self.num_entities, 2 * self.graph.num_relations
        self._of_subjects, self._of_relations = (
            torch.randn(size, self.num_entities, generator=generator) for size in sizes
        )

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    @property
    def num_entities(self) -> int:
        return self.graph.num_entities

    def scores(self, subjects: Tensor, relations: Tensor) -> Tensor:
        noise = self._of_subjects[subjects] + self._of_relations[relations]
        found = self.graph.queries("valid").objects_of(subjects, relations)
        truth = torch.zeros_like(noise)
        truth[found.rows, found.columns] = 1
        known = torch.tensor([r % self.graph.num_relations in self.knows for r in relations.tolist()])
        return self.scale * (truth * known[:, None] + self.noise * noise)


@pytest.fixture(scope="module")
def graph() -> KnowledgeGraph:
    return load_graph("countries_part")


@pytest.fixture(scope="module")
def halves(graph: KnowledgeGraph) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return tuple(range(0, graph.num_relations, 2)), tuple(range(1, graph.num_relations, 2))


def test_the_planted_pair_is_found_and_the_useless_left_out(graph: KnowledgeGraph, halves) -> None:
    members = [
        Planted(graph, (), noise=1.0, seed=1),
        Planted(graph, halves[0], seed=2),
        Planted(graph, (), noise=3.0, seed=3),
        Planted(graph, halves[1], seed=4),
    ]
    choice = choose_weights(members, graph)
    assert [bool(weight) for weight in choice.weights] == [False, True, False, True]
    assert sum(choice.weights) == pytest.approx(1)
    assert choice.valid_mrr > 0.95
    assert max(choice.member_mrrs) < 0.7
    chosen = ConcatenatedScorer([members[1], members[3]], [choice.weights[1], choice.weights[3]])
    assert evaluate_ranking(chosen, graph, "valid").metrics["mrr"] == pytest.approx(choice.valid_mrr, abs=1e-6)


@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_members_of_another_scale_are_heard(graph: KnowledgeGraph, halves, scale: float) -> None:
    members = [Planted(graph, halves[0], seed=2), Planted(graph, halves[1], scale=scale, seed=4)]
    choice = choose_weights(members, graph)
    assert choice.valid_mrr > 0.95
    # Alike but for the scale, they get about the same influence.
    influence = choice.weights[1] * scale / choice.weights[0]
    assert 0.2 < influence < 5
    assert measure_weights(members, graph, [1, 1]).valid_mrr < 0.7


def test_every_step_gains_and_can_be_measured_again(graph: KnowledgeGraph, halves) -> None:
    members = [Planted(graph, halves[0], seed=2), Planted(graph, halves[1], seed=4), Planted(graph, (3, 4), seed=5)]
    choice = choose_weights(members, graph)
    mrrs = [step.valid_mrr for step in choice.steps]
    assert all(after > before + 1e-4 for before, after in itertools.pairwise(mrrs))
    assert mrrs[0] == max(choice.member_mrrs)
    assert choice.steps[-1].weights == choice.weights
    assert choose_weights(members, graph) == choice
    short = choose_weights(members, graph, rounds=1)
    assert short.steps == choice.steps[:2]
    again = measure_weights(members[:2], graph, [5 * weight for weight in short.weights[:2]])
    assert again.valid_mrr == pytest.approx(short.valid_mrr, abs=1e-6)


@pytest.mark.parametrize("kept", [0, 2**30])
def test_only_validation_questions_are_scored_and_each_once_in_a_round(
    graph: KnowledgeGraph, halves, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member_choice, "_MOST_KEPT", {"cpu": kept})
    asked: list[Tensor] = []

    class Watched(Planted):
        def scores(self, subjects: Tensor, relations: Tensor) -> Tensor:
            asked.append(torch.stack([subjects, relations], dim=1))
            return super().scores(subjects, relations)

    choice = choose_weights([Watched(graph, half, seed=seed) for seed, half in enumerate(halves)], graph)
    questions = graph.with_reciprocals(graph.triples("valid"))[:, :2]
    together = torch.cat(asked)
    assert torch.equal(together.unique(dim=0), questions.unique(dim=0))
    if kept:
        assert len(together) == 2 * len(questions)
    else:  # for the spread, for each member alone, and for every round with the last one, which gains nothing
        assert len(together) <= 2 * len(questions) * (2 + len(choice.steps))


def test_spread_is_the_mean_deviation_within_a_question(graph: KnowledgeGraph, monkeypatch) -> None:
    member = Planted(graph, (0, 1), noise=0.7)
    questions = graph.with_reciprocals(graph.triples("valid"))
    expected = member.scores(questions[:, 0], questions[:, 1]).double().std(1, correction=0).mean()
    monkeypatch.setattr(member_choice, "ranking_budget", lambda num_entities: 7 * 4 * 4 * num_entities)  # chunks of 7
    assert member_choice._Scores([member], graph).spread(0) == pytest.approx(float(expected), rel=1e-5)


def test_rounds_must_be_some(graph: KnowledgeGraph) -> None:
    with pytest.raises(UserError, match="rounds=0"):
        choose_weights([Planted(graph, ())], graph, rounds=0)


@pytest.mark.parametrize("usual", ["lowest", "highest", "neither"])
def test_scores_are_kept_to_the_bit_in_less_room_where_most_are_one_number(usual: str) -> None:
    scores = torch.randn(30, 50, generator=torch.Generator().manual_seed(0))
    kept_elsewhere = scores.clone()
    if usual != "neither":
        low = usual == "lowest"
        scores = torch.where(torch.arange(50) % 10 > 0, scores.min() - 1 if low else scores.max() + 1, scores)
        kept_elsewhere = scores.clone()
    kept = member_choice._KeptScores(scores)
    assert torch.equal(kept.scores(), kept_elsewhere)
    # A tenth of the numbers, with 4 bytes for the place of each beside their 4.
    assert kept.is_compact is (usual != "neither")
    assert kept.nbytes == (scores.nbytes if usual == "neither" else 0.2 * scores.nbytes)


def test_scores_of_rules_are_made_once_where_others_fill_the_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first member's are kept first, and give way to the few numbers of the second."""
    graph = load_graph("countries_part", progress=False)
    asked: list[int] = []

    class Rules(Planted):
        def scores(self, subjects: Tensor, relations: Tensor) -> Tensor:
            asked.append(len(subjects))
            found = super().scores(subjects, relations)
            return torch.where(found > 0.8, found, 0.0)

    members = [Planted(graph, knows=(0, 1)), Rules(graph, knows=(2, 3), seed=1)]
    num_questions = 2 * len(graph.triples("valid"))
    monkeypatch.setitem(member_choice._MOST_KEPT, "cpu", num_questions * graph.num_entities * 2)
    choose_weights(members, graph)
    assert sum(asked) == num_questions
