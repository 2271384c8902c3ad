"""What facts between two entities say about others: added to every score, learned, and left out where it must be."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from torch import Tensor

import refactorgnn
from refactorgnn import UserError
from refactorgnn.data import KnowledgeGraph, load_graph
from refactorgnn.data.vocabulary import Vocabulary
from refactorgnn.models.features import RandomFeatures
from refactorgnn.models.refactor import ReFactorGNN
from refactorgnn.training.building import build_model
from refactorgnn.training.config import TrainConfig
from refactorgnn.training.regimes import make_regime
from tests.strategies import Case, cases

SETTINGS = {"model": "refactor", "dim": 8, "layers": 2, "features": "random", "mask_by": "fact", "links": True}


@pytest.fixture(scope="module")
def graph(tiny: Path) -> KnowledgeGraph:
    return load_graph(str(tiny), progress=False)


@given(cases())
def test_links_are_the_facts_of_each_subject(case: Case) -> None:
    queries = case.queries
    subjects = torch.arange(2 * case.num_entities) % case.num_entities
    links = queries.links_from(subjects)
    rows = queries.answers.rows
    columns = queries.subjects[rows].tolist(), queries.relations[rows].tolist(), queries.answers.columns.tolist()
    facts = list(zip(*columns, strict=True))
    found = zip(links.objects.rows.tolist(), links.relations.tolist(), links.objects.columns.tolist(), strict=True)
    expected = [(row, r, o) for row, subject in enumerate(subjects.tolist()) for s, r, o in facts if s == subject]
    assert sorted(found) == sorted(expected)
    assert torch.equal(queries.answers.columns[links.edges], links.objects.columns)
    assert queries.links_from(subjects) is links
    assert queries.weighted(torch.ones(queries.num_triples)).links_from(subjects) is links


def naive_addition(model: ReFactorGNN, graph: KnowledgeGraph, subject: int, relation: int) -> Tensor:
    assert model.links is not None
    total = torch.zeros(graph.num_entities)
    for s, r, o in graph.with_reciprocals(graph.triples("train")).tolist():
        if s == subject:
            total[o] += 30.0 * model.links.table[relation, r].item()
    return total


@pytest.mark.parametrize("num_draws", [1, 3])
def test_scores_are_those_of_the_states_and_of_the_links(graph: KnowledgeGraph, num_draws: int) -> None:
    def made(links: bool) -> ReFactorGNN:
        features = RandomFeatures(8, seed=0)
        return ReFactorGNN(graph.relations, features, dim=8, num_layers=2, num_draws=num_draws, links=links)

    model, plain = made(True), made(False)
    assert model.links is not None
    torch.nn.init.normal_(model.links.table, generator=torch.Generator().manual_seed(0))
    subjects, relations = torch.tensor([0, 5, 5, 20]), torch.tensor([0, 1, 4, 5])
    difference = model.bind(graph).scores(subjects, relations) - plain.bind(graph).scores(subjects, relations)
    expected = [naive_addition(model, graph, s, r) for s, r in zip(subjects.tolist(), relations.tolist(), strict=True)]
    torch.testing.assert_close(difference, torch.stack(expected), rtol=1e-4, atol=1e-4)
    assert (difference != 0).any()


@pytest.mark.parametrize("regime", ["layerwise", "unrolled"])
def test_what_is_held_out_links_nothing(graph: KnowledgeGraph, regime: str) -> None:
    """Split by weights or by grouping anew, a step has the same loss: facts of weight 0 are no links."""
    config = TrainConfig.from_dict({"dataset": "tiny", **SETTINGS, "regime": regime, "mask": 0.4})
    losses = []
    for fixed in (False, True):
        model = build_model(config, graph)
        assert isinstance(model, ReFactorGNN)
        assert model.links is not None
        torch.nn.init.normal_(model.links.table, std=0.1, generator=torch.Generator().manual_seed(0))
        learner = make_regime(model, config, graph, torch.device("cpu"))
        learner.facts.fixed_shapes = fixed
        learner.begin(1)
        torch.manual_seed(3)
        batch = next(iter(learner.batches(1)))
        torch.manual_seed(4)
        loss = learner(batch)
        loss.backward()
        losses.append((loss.detach(), model.links.table.grad))
    for one, other in zip(*losses, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    assert losses[0][1].count_nonzero() > 0


def excluding_graph(folder: Path) -> Path:
    """Everyone is near their own members and guests; whoever is the one is not the other."""
    lines: dict[str, list[str]] = {"train": [], "valid": [], "test": []}
    for club in range(12):
        for place in range(8):
            relation = "member" if place < 4 else "guest"
            split = "valid" if place in (0, 4) and club % 2 else "train"
            lines[split].append(f"club {club}\t{relation}\tperson {club} {place}\n")
            lines["train"].append(f"club {club}\tknows\tperson {club} {place}\n")
    folder.mkdir()
    for split, rows in lines.items():
        (folder / f"{split}.tsv").write_text("".join(rows or lines["valid"]))
    return folder


def test_exclusion_and_implication_are_learned(tmp_path: Path) -> None:
    data = excluding_graph(tmp_path / "clubs")
    options = {"epochs": 40, "validate_every": 40, "alpha": 0.1, "learning_rate": 0.01, "mask": 0.3, "seed": 1}
    run = refactorgnn.train(data, out=tmp_path / "run", progress=False, **{**SETTINGS, **options})
    model = run.load_model()
    assert isinstance(model, ReFactorGNN)
    assert model.links is not None
    names: Vocabulary = run.graph.relations
    member, guest, knows = (names.id(name) for name in ("member", "guest", "knows"))
    learned = 30 * model.links.table.detach()
    assert learned[member, guest] < -1
    assert learned[guest, member] < -1
    assert learned[member, knows] > 1


@pytest.fixture(scope="module")
def predictor(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> refactorgnn.Predictor:
    """Of a model whose links have been learned to some degree."""
    out = tmp_path_factory.mktemp("links") / "run"
    options = {"epochs": 8, "learning_rate": 0.01, "draws": 2, "alpha": 0.1}
    return refactorgnn.Predictor.load(refactorgnn.train(tiny, out=out, progress=False, **SETTINGS, **options))


def test_links_are_a_part_of_the_reasons(predictor: refactorgnn.Predictor) -> None:
    """The mirror image of what is asked counts directly; all parts make up the score."""
    explanation = predictor.explain("person 2", "twin of", "person 3")
    for terms in (explanation.by_tail, explanation.by_head):
        assert sum(term.contribution for term in terms) == pytest.approx(explanation.score, abs=1e-4)
        (link,) = (term for term in terms if term.kind == "link")
        assert link.fact == ("person 3", "twin of", "person 2")
        assert link.contribution > 0.1


def test_a_new_entity_is_linked_by_its_facts(predictor: refactorgnn.Predictor) -> None:
    """Local and exact growth differ by what is far away, not by the links."""
    new = [("newcomer", "next to", "person 1"), ("person 4", "across", "newcomer")]
    scores = []
    for mode in ("exact", "local"):
        grown = refactorgnn.Predictor(predictor.model, predictor.graph)
        grown.add(new, mode=mode)
        scores.append(grown.bound.scores(torch.tensor([24]), torch.tensor([0])))
    torch.testing.assert_close(scores[0], scores[1], rtol=0, atol=0.05)


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"mask_by": "pair"}, "needs mask_by fact"),
        ({"layers": "inf"}, "needs a finite depth"),
        ({"scorer": "rotate"}, "dot-product scorer"),
    ],
)
def test_where_it_means_nothing_it_is_refused(changed: dict[str, object], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        TrainConfig.from_dict({"dataset": "tiny", **SETTINGS, **changed})
