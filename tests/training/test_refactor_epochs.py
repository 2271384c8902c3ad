"""Layer-wise training: its split of the facts, its loss, its gradient, its resume."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import refactorgnn
from refactorgnn import load_graph
from refactorgnn.errors import UserError
from refactorgnn.runs import build_model, load_tensors
from refactorgnn.training.config import ReFactorConfig, TrainConfig
from refactorgnn.training.epochs import ReFactorEpochs, make_epochs
from tests.conftest import Cli

SMALL = {"model": "refactor", "dim": 8, "layers": 2, "epochs": 4, "validate_every": 2}


def make(graph, **settings) -> ReFactorEpochs:
    config = ReFactorConfig(dataset="x", **{"dim": 6, "layers": 3, "init_scale": 1.0, **settings})
    epochs = make_epochs(build_model(config, graph), config, graph, torch.device("cpu"))
    assert isinstance(epochs, ReFactorEpochs)
    return epochs


def test_targets_and_messages_share_no_pair_of_entities() -> None:
    """A held-out border must not come back as the same border told from the other side."""
    graph = load_graph("countries")
    epochs = make(graph, mask=0.4)
    torch.manual_seed(0)
    messages, targets = epochs._split()

    def triples(index):
        rows = index.answers.rows
        return torch.stack([index.subjects[rows], index.relations[rows], index.answers.columns], dim=1)

    def pairs(index):
        return {(min(h, t), max(h, t)) for h, _, t in triples(index).tolist()}

    assert not pairs(messages) & pairs(targets)
    together = sorted(triples(messages).tolist() + triples(targets).tolist())
    assert together == sorted(graph.with_reciprocals(graph.triples("train")).tolist())
    assert 0.35 < targets.num_triples / len(together) < 0.45


def test_without_a_mask_all_facts_are_both_as_in_the_paper() -> None:
    graph = load_graph("countries_part_ind")
    messages, targets = make(graph, mask=0)._split()
    assert messages is targets
    assert messages.num_triples == 2 * len(graph.triples("train"))


@pytest.mark.parametrize("scorer", ["distmult", "complex", "rotate"])
def test_loss_is_that_of_the_formula(scorer: str) -> None:
    graph = load_graph("countries_part_ind")
    epochs = make(graph, scorer=scorer, dim=4)
    states = torch.randn(graph.num_entities, 4, generator=torch.Generator().manual_seed(0), requires_grad=True)
    torch.manual_seed(1)
    _, targets = epochs._split()
    relations = epochs.model.layer.relations
    s, r = states[targets.subjects], relations[targets.relations]
    scores = epochs.model.scorer.score_all(s, r, states)
    known = epochs.known.objects_of(targets.subjects, targets.relations)
    negatives = scores.index_put((known.rows, known.columns), torch.tensor(-torch.inf)).logsumexp(1)
    positive = scores[targets.answers.rows, targets.answers.columns]
    expected = (torch.logaddexp(positive, negatives[targets.answers.rows]) - positive).mean()
    got = epochs._loss(states, targets)
    torch.testing.assert_close(got, expected)
    for by in (states, relations):
        ours, theirs = (torch.autograd.grad(loss, by, retain_graph=True)[0] for loss in (got, expected))
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


def test_a_step_learns_through_one_layer_only() -> None:
    """The cached states are detached: the graph behind a step's loss holds one layer, however deep the model."""
    graph = load_graph("countries_part_ind")
    seen = []
    epochs = make(graph, layers=4)
    step = epochs.model.layer.step

    def watched(states, queries, sums):
        seen.append((states.requires_grad, sums is None or not sums.requires_grad))
        return step(states, queries, sums)

    epochs.model.layer.step = watched
    epochs.run(torch.optim.Adam(epochs.model.parameters()), epoch=1)
    assert seen == [(False, True)] * 4  # random features have no parameters either


def test_the_loss_goes_down() -> None:
    graph = load_graph("countries")
    epochs = make(graph, dim=32, layers=3, features="signature+random", init_scale=0.1, alpha=0.3)
    optimizer = torch.optim.Adam(epochs.model.parameters(), lr=0.03)
    losses = [epochs.run(optimizer, epoch) for epoch in range(1, 13)]
    assert sum(losses[-3:]) < 0.9 * sum(losses[:3])


def test_train_and_answer_on_the_unseen_graph(cli: Cli, tmp_path: Path) -> None:
    run = tmp_path / "run"
    options = ("--model", "refactor", "--layers", "2", "--dim", "8", "--epochs", "2", "--validate-every", "1")
    assert cli("train", "countries_part", *options, "--features", "signature+random", "--out", run).code == 0
    assert set(refactorgnn.Run.open(run).sidecar["features"]) == {"signature", "random"}
    outcome = cli("evaluate", run, "--graph", "countries_part_ind", "--json")
    assert outcome.code == 0
    assert '"graph": "countries_part_ind"' in outcome.out
    answers = cli("predict", run, "--head", "France", "--relation", "speaks", "-k", "3", "--json")
    assert answers.code == 0


def test_resumed_training_is_the_same_bit_for_bit(tmp_path: Path) -> None:
    settings = {**SMALL, "features": "signature+random", "progress": False}
    whole = refactorgnn.train("countries_part_ind", out=tmp_path / "whole", **settings)
    interrupted = tmp_path / "interrupted"
    with pytest.MonkeyPatch.context() as patch:
        original, calls = ReFactorEpochs._run, []

        def failing(self, optimizer, epoch):
            calls.append(epoch)
            if epoch == 3:
                raise KeyboardInterrupt
            return original(self, optimizer, epoch)

        patch.setattr(ReFactorEpochs, "_run", failing)
        with pytest.raises(KeyboardInterrupt):
            refactorgnn.train("countries_part_ind", out=interrupted, **settings)
    refactorgnn.train("countries_part_ind", out=interrupted, resume=True, **settings)
    for name in ("last.safetensors", "model.safetensors"):
        ours, theirs = (load_tensors(folder / name)[0] for folder in (interrupted, whole.path))
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[key], theirs[key]) for key in ours)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": "lookup", "layers": 3}, "setting 'layers' belongs to model refactor: leave it out for lookup"),
        ({"model": "refactor", "batch_size": 3}, "setting 'batch_size' belongs to model lookup"),
        ({"model": "refactor", "features": "txt"}, "unknown features 'txt': did you mean 'text'"),
        ({"model": "refactor", "features": "random+random"}, "name the same twice"),
        ({"model": "refactor", "layers": 0}, "setting layers cannot be 0"),
        ({"model": "refactr"}, "unknown model 'refactr': did you mean 'refactor'"),
        ({"model": "refactor", "n_term": "exactly"}, "setting n_term cannot be 'exactly'"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        TrainConfig.from_dict({"dataset": "countries", **settings})
