"""The vector index: what it finds beside exact scoring, whatever the norms, the filter, the newcomers and the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import refactorgnn
from refactorgnn import KnowledgeGraph, Predictor, Run, UserError
from refactorgnn.data.vocabulary import Vocabulary
from refactorgnn.models.base import EmbeddingScorer
from refactorgnn.models.concatenated import ConcatenatedScorer
from refactorgnn.models.lookup import Lookup
from refactorgnn.predict import index as index_module
from refactorgnn.predict import run_index, searching
from refactorgnn.predict.candidates import log_odds
from refactorgnn.predict.index import VectorIndex
from refactorgnn.predict.predictor import Question
from refactorgnn.predict.run_index import indexed
from refactorgnn.predict.searching import MOST_ERROR, IndexedScorer
from refactorgnn.scorers import make_scorer
from tests.conftest import QUICK, Cli

pytest.importorskip("faiss", reason="the extra ann")
DIM = 32
HUB, RARE = 0, 1  # relations: one whose first query has hundreds of known answers, one with a single one


def vectors(kind: str, count: int, generator: torch.Generator) -> Tensor:
    found = torch.randn(count, DIM, generator=generator)
    if kind == "clusters":
        centres = torch.randn(50, DIM, generator=torch.Generator().manual_seed(9))
        return centres[torch.randint(50, (count,), generator=generator)] + 0.5 * found
    if kind == "norms":  # from about 1/50 to 50, so that distance and inner product disagree about almost everything
        return found * torch.exp(torch.randn(count, 1, generator=generator))
    return found


@pytest.mark.parametrize("kind", ["gaussian", "clusters", "norms"])
def test_it_finds_the_best_of_20000_vectors(kind: str) -> None:
    generator = torch.Generator().manual_seed(0)
    candidates, asked, others = (vectors(kind, count, generator) for count in (20_000, 64, 100))
    index = VectorIndex.build(candidates, asked)
    best = (others @ candidates.T).topk(10).indices
    found = [index.shortlist(query, 10) for query in others]
    recall = sum(float(torch.isin(top, ids).float().mean()) for top, ids in zip(best, found, strict=True)) / len(best)
    assert recall >= 0.95
    assert max(len(ids) for ids in found if ids is not None) <= 2500  # and not by looking at all of them
    assert abs(index.effort.recall - recall) < 0.04  # what it says of itself is so
    for ids in found:
        assert ids is not None
        assert len(ids.unique()) == len(ids)


def test_norms_are_divided_into_shells_of_a_factor_of_two() -> None:
    candidates = vectors("norms", 20_000, torch.Generator().manual_seed(0))
    index = VectorIndex.build(candidates, candidates[:64])
    norms = candidates.norm(dim=1)
    assert len(index.shells) >= 4
    for shell in index.shells:
        mine = norms[torch.from_numpy(shell.entities)]
        assert float(mine.max()) == pytest.approx(shell.longest)
        assert float(mine.max() / mine.min()) <= 2.001
    everything = torch.cat([index.apart, *(torch.from_numpy(shell.entities) for shell in index.shells)])
    assert torch.equal(everything.sort().values, torch.arange(20_000))


def test_an_index_that_finds_too_little_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "_LONGEST_SHORTLIST", 10)
    candidates = vectors("gaussian", 20_000, torch.Generator().manual_seed(0))
    with pytest.raises(UserError, match=r"finds only \d+\.\d% of the best answers"):
        VectorIndex.build(candidates, torch.randn(64, DIM))


def test_without_faiss_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'refactorgnn\[ann\]', or use the index 'exact'"):
        VectorIndex.build(torch.zeros(3, 4), torch.zeros(2, 4))


def test_zeros_and_copies_are_indexed_too() -> None:
    candidates = torch.zeros(5000, DIM)
    candidates[:40] = torch.eye(DIM)[0]
    index = VectorIndex.build(candidates, torch.ones(8, DIM))
    ids = index.shortlist(torch.ones(DIM), 10)
    assert ids is not None
    assert int((ids < 40).sum()) >= 10


NUM_ENTITIES = 6000


@pytest.fixture(scope="module")
def graph() -> KnowledgeGraph:
    """One question with 700 known answers, and a few thousand with one or two."""
    generator = torch.Generator().manual_seed(3)
    hub = torch.stack([torch.zeros(700), torch.full((700,), HUB), torch.randperm(6000, generator=generator)[:700]], 1)
    rest = torch.randint(NUM_ENTITIES, (3000, 3), generator=generator)
    rest[:, 1] = RARE
    valid = torch.randint(NUM_ENTITIES, (60, 3), generator=generator)
    valid[:, 1] = RARE
    names = [f"e{number:05d}" for number in range(NUM_ENTITIES)]
    splits = {"train": torch.cat([hub.long(), rest]), "valid": valid}
    return KnowledgeGraph("wide", Vocabulary(names, "entity"), Vocabulary(["hub", "rare"], "relation"), splits)


@pytest.fixture(scope="module")
def model(graph: KnowledgeGraph) -> Lookup:
    # Scores of a few units, so that no softmax is flat and none is all in one place.
    return Lookup(graph.entities, graph.relations, "complex", 2 * DIM, init_scale=0.7).eval()


@pytest.fixture(scope="module")
def pair(model: Lookup, graph: KnowledgeGraph) -> tuple[Predictor, Predictor]:
    return Predictor(model, graph, index="ann"), Predictor(model, graph, index="exact")


QUESTIONS = [Question(number, RARE, None) for number in range(0, 6000, 100)] + [Question(None, RARE, 7)]


def test_answers_have_the_exact_scores_and_probabilities(pair: tuple[Predictor, Predictor]) -> None:
    by_index, exact = pair
    assert by_index._indexed is not None
    assert exact._indexed is None
    ours, theirs = by_index.answer(QUESTIONS), exact.answer(QUESTIONS)
    shared = 0
    for mine, yours in zip(ours, theirs, strict=True):
        assert len(mine) == 10
        assert [answer.score for answer in mine] == sorted((answer.score for answer in mine), reverse=True)
        truth = {answer.entity: answer for answer in yours}
        for answer in mine:
            if answer.entity in truth:
                shared += 1
                assert answer.score == pytest.approx(truth[answer.entity].score, rel=1e-5, abs=1e-5)
                assert answer.probability == pytest.approx(truth[answer.entity].probability, rel=0.06)
                assert (answer.known, answer.split) == (truth[answer.entity].known, truth[answer.entity].split)
    assert shared >= 0.95 * 10 * len(QUESTIONS)


@pytest.mark.parametrize("k", [1, 10, 200])
def test_known_answers_are_left_out_and_the_number_is_kept(pair: tuple[Predictor, Predictor], k: int) -> None:
    by_index, exact = pair
    ours, theirs = (predictor.tails(0, HUB, k=k) for predictor in (by_index, exact))
    assert len(ours) == len(theirs) == k
    assert not any(answer.known for answer in ours)
    assert len({answer.entity for answer in ours} & {answer.entity for answer in theirs}) >= 0.95 * k
    with_known = by_index.tails(0, HUB, k=k, include_known=True)
    assert len(with_known) == k


def test_all_that_is_left_is_given_when_more_is_asked_for(pair: tuple[Predictor, Predictor]) -> None:
    by_index, exact = pair
    assert by_index.tails(0, HUB, k=7000) == exact.tails(0, HUB, k=7000)  # scored exactly: a shortlist would be all
    assert len(by_index.tails(0, HUB, k=7000)) == NUM_ENTITIES - 700 - 1  # the known ones and itself


def test_a_shortlist_of_known_answers_falls_back_to_exact(
    pair: tuple[Predictor, Predictor], monkeypatch: pytest.MonkeyPatch
) -> None:
    by_index, exact = pair
    assert by_index._indexed is not None
    known = by_index.graph.queries().objects_of(torch.tensor([0]), torch.tensor([HUB])).columns
    monkeypatch.setattr(by_index._indexed.index, "shortlist", lambda *asked: known)
    assert by_index.tails(0, HUB, k=10) == exact.tails(0, HUB, k=10)


@pytest.mark.parametrize("scale", [0.2, 0.7, 1.5])
def test_the_normaliser_is_within_its_error(
    graph: KnowledgeGraph, scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searching, "_SAMPLE", 512)
    bound = Lookup(graph.entities, graph.relations, "complex", 2 * DIM, init_scale=scale).eval().bind(graph)
    scorer = indexed(bound, graph, "ann")
    assert isinstance(scorer, IndexedScorer)
    off = []
    for subject in range(0, 2000, 40):
        found = scorer.best(subject, RARE, graph.queries(), 3, include_known=False, with_odds=True)
        assert found is not None
        assert found.log_odds is not None
        asked = torch.tensor([subject]), torch.tensor([RARE])
        known = torch.zeros(1, graph.num_entities, dtype=torch.bool)
        known[0, graph.queries().objects_of(*asked).columns] = True
        with torch.no_grad():
            exact = log_odds(bound.scores(*asked), known)[0, found.entities]
        off.append(float((found.log_odds - exact).abs().max()))
    assert max(off) <= 3 * MOST_ERROR
    assert sum(value > MOST_ERROR for value in off) <= 0.32 * len(off)
    # Where all terms are alike, a sample is enough; where a few are the sum, the shortlist is; or it is taken in full.
    assert (max(off) > 1e-9) or scale > 1


@pytest.mark.slow
def test_transe_and_ensembles_are_dot_products_too(graph: KnowledgeGraph) -> None:
    generator = torch.Generator().manual_seed(5)
    parts = [
        EmbeddingScorer(
            make_scorer(name, 2 * DIM),
            0.4 * torch.randn(NUM_ENTITIES, 2 * DIM, generator=generator),
            torch.randn(4, 2 * DIM, generator=generator),
        )
        for name in ("transe", "distmult")
    ]
    for bound in (parts[0], ConcatenatedScorer(parts, [1.0, 0.5])):
        scorer = indexed(bound, graph, "ann")
        assert scorer is not None
        hits = 0
        for subject in range(50):
            found = scorer.best(subject, RARE, graph.queries("valid"), 10, include_known=True, with_odds=False)
            exact = bound.scores(torch.tensor([subject]), torch.tensor([RARE]))[0].topk(10)
            assert found is not None
            hits += int(torch.isin(exact.indices, found.entities).sum())
            assert torch.allclose(found.scores[0], exact.values[0], rtol=1e-4) or exact.indices[0] not in found.entities
        assert hits >= 475


def test_auto_is_exact_below_200000_entities(
    model: Lookup, graph: KnowledgeGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_index.FEWEST_ENTITIES == 200_000
    assert Predictor(model, graph)._indexed is None
    monkeypatch.setattr(run_index, "FEWEST_ENTITIES", NUM_ENTITIES)
    assert Predictor(model, graph)._indexed is not None
    rotating = Lookup(graph.entities, graph.relations, "rotate", 8).eval()
    assert Predictor(rotating, graph)._indexed is None
    with pytest.raises(UserError, match="not dot products"):
        Predictor(rotating, graph, index="ann")
    with pytest.raises(UserError, match="unknown index 'hnsw'"):
        Predictor(model, graph, index="hnsw")


@pytest.mark.parametrize("mode", ["exact", "local"])
def test_entities_that_are_added_are_found(tiny_inductive: Run, mode: Any) -> None:
    by_index, exact = (Predictor.load(tiny_inductive, index=name) for name in ("ann", "exact"))
    facts = [("new", "next to", "person 1"), ("new", "across", "person 7"), ("person 2", "across", "new")]
    for predictor in (by_index, exact):
        predictor.add(facts, mode=mode)
    assert by_index._indexed is not None
    assert by_index._indexed.index.num_entities == by_index.graph.num_entities
    ours = by_index.tails("person 2", "next to", k=25, include_known=True)
    assert "new" in {answer.entity for answer in ours}
    theirs = exact.tails("person 2", "next to", k=25, include_known=True)
    assert [answer.entity for answer in ours] == [answer.entity for answer in theirs]
    assert [answer.score for answer in ours] == pytest.approx([answer.score for answer in theirs], rel=1e-5, abs=1e-6)


def test_newcomers_stand_apart_until_they_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    candidates = vectors("gaussian", 4000, torch.Generator().manual_seed(0))
    index = VectorIndex.build(candidates, candidates[:64])
    grown = index.grown(4003)
    assert grown is not None
    ids = grown.shortlist(candidates[0], 10)
    assert ids is not None
    assert {4000, 4001, 4002} <= set(ids.tolist())
    monkeypatch.setattr(index_module, "_MOST_APART", 2)
    assert index.grown(4003) is None


@pytest.fixture(scope="module")
def tiny_inductive(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    settings = {name: value for name, value in QUICK.items() if name != "batch_size"}
    out = tmp_path_factory.mktemp("inductive") / "run"
    return refactorgnn.train(
        tiny, out=out, progress=False, **settings, model="refactor", layers=2, features="random", alpha=0.3
    )


@pytest.fixture
def saved(graph: KnowledgeGraph, tmp_path: Path) -> Run:
    """A run of the wide graph with one epoch of training and its index."""
    refactorgnn.data.loading.save_graph(graph, tmp_path / "wide")
    run = refactorgnn.train(tmp_path / "wide", out=tmp_path / "run", dim=16, epochs=1, progress=False)
    refactorgnn.build_index(run)
    return run


def test_an_index_is_kept_and_made_again_when_stale(saved: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved.path / run_index.FILE
    asked = Question(1, "rare", None)
    before, answers = path.read_bytes(), Predictor.load(saved, index="ann").answer([asked])
    assert path.read_bytes() == before
    with monkeypatch.context() as patch:  # nothing is built when it is there
        patch.setattr(run_index, "new_index", lambda *given, **options: pytest.fail("built again"))
        assert Predictor.load(saved.path, index="ann").answer([asked]) == answers
    model = saved.load_model()
    with torch.no_grad():
        model.states.mul_(-1.5)  # type: ignore[operator, union-attr]
    saved.save_tensors(saved.weights_path, model.state_dict())
    new = Predictor.load(saved.path, index="ann").answer([asked])
    assert path.read_bytes() != before
    assert new != answers
    exact = Predictor.load(saved.path, index="exact").answer([asked])[0]
    assert len({a.entity for a in new[0]} & {a.entity for a in exact}) >= 9


@pytest.mark.parametrize("damage", ["cut", "flip", "text"])
def test_a_damaged_index_is_refused_in_one_sentence(saved: Run, damage: str, tmp_path: Path, cli: Cli) -> None:
    path = saved.path / run_index.FILE
    content = bytearray(path.read_bytes())
    if damage == "cut":
        content = content[: len(content) // 2]
    elif damage == "flip":
        content[-200] ^= 0xFF
    else:
        content = bytearray(b"no index")
    path.write_bytes(content)
    result = cli("predict", str(saved.path), "--head", saved.graph.entities[0], "--relation", "rare", "--index", "ann")
    assert result.code == 2
    assert f"{path}: this index is damaged; delete the file, it will be made again." in result.err.replace("\n", "")


def test_commands(saved: Run, cli: Cli) -> None:
    (saved.path / run_index.FILE).unlink()
    made = cli("index", str(saved.path), "--json")
    assert made.code == 0
    assert '"num_entities": ' in made.out
    assert (saved.path / run_index.FILE).is_file()
    asked = ("predict", str(saved.path), "--head", saved.graph.entities[0], "--relation", "rare", "--json")
    assert cli(*asked, "--index", "ann").code == 0
    refused = cli("predict", str(saved.path), "--all-above", "0.9", "--answers", "x.tsv", "--index", "ann")
    assert refused.code == 2
    assert "leave it out" in refused.err
