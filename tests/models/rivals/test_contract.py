"""What every rival can do that conditions on the question: unseen graphs, newcomers, ensembles."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
import torch

from refactorgnn import Predictor
from refactorgnn.data import KnowledgeGraph, load_graph
from refactorgnn.data.vocabulary import Vocabulary
from refactorgnn.models.base import LinkPredictor
from refactorgnn.models.ensemble import Ensemble
from refactorgnn.training.building import build_model
from refactorgnn.training.config import TrainConfig
from tests.training.settings import TRAININGS

RIVALS = ["nbfnet", "grail"]
QUESTIONS = torch.tensor([0, 7, 9]), torch.tensor([1, 3, 5])


@pytest.fixture(scope="module")
def graph(tiny: Path) -> KnowledgeGraph:
    return load_graph(str(tiny), progress=False)


def model_of(name: str, graph: KnowledgeGraph) -> LinkPredictor:
    return build_model(TrainConfig.from_dict({"dataset": "x", **TRAININGS[name]}), graph).double().eval()


@pytest.mark.parametrize("name", RIVALS)
def test_entities_never_seen_are_told_apart_by_their_facts(name: str, graph: KnowledgeGraph) -> None:
    """The same graph under other names and numbers, with one more entity, gets the same scores."""
    model, size = model_of(name, graph), graph.num_entities
    order = torch.randperm(size, generator=torch.Generator().manual_seed(2))
    triples = graph.triples("train").clone()
    triples[:, [0, 2]] = order[triples[:, [0, 2]]]
    triples = torch.cat([triples, torch.tensor([[size, 0, size]])])
    names = Vocabulary(pa.array([f"stranger {number}" for number in range(size + 1)]), "entity")
    unseen = KnowledgeGraph("unseen", names, graph.relations, {"train": triples})
    before = model.bind(graph)
    scores = model.bind(unseen).scores(order[QUESTIONS[0]], QUESTIONS[1])
    assert scores.shape == (3, size + 1)
    if name == "grail":  # whose sub-graphs know nothing of the rest of the graph, such as its mean degree
        torch.testing.assert_close(scores[:, order], before.scores(*QUESTIONS), rtol=1e-9, atol=1e-12)
    without = KnowledgeGraph("same", graph.entities, graph.relations, {"train": triples[:-1]})
    found = model.bind(without).scores(order[QUESTIONS[0]], QUESTIONS[1])
    torch.testing.assert_close(found[:, order], before.scores(*QUESTIONS), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", RIVALS)
def test_newcomers_are_answered_about_as_if_they_had_always_been_there(name: str, graph: KnowledgeGraph) -> None:
    model = model_of(name, graph)
    predictor = Predictor(model, graph)
    assert predictor.add([("newcomer", "next to", "person 3"), ("person 4", "across", "newcomer")]).num_facts == 2
    newcomer = torch.tensor([predictor.graph.entity_id("newcomer")]), torch.tensor([0])
    expected = model.bind(predictor.graph).scores(*newcomer)
    assert torch.equal(predictor.bound.scores(*newcomer), expected)
    assert expected.shape == (1, graph.num_entities + 1)


def test_scores_of_an_ensemble_are_the_weighted_sum(graph: KnowledgeGraph) -> None:
    members = [model_of(name, graph) for name in RIVALS]
    together = Ensemble(members, [0.25, 2.0]).bind(graph).scores(*QUESTIONS)
    one, two = (member.bind(graph).scores(*QUESTIONS) for member in members)
    torch.testing.assert_close(together, 0.25 * one + 2.0 * two)
