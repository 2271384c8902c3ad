"""The GNN baselines: each layer stack equals the formula written out densely, on any graph."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import elu, leaky_relu, relu
from torch_geometric.nn import GATConv, RGCNConv

from refactorgnn import UserError, load_pair
from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.data.queries import QueryIndex
from refactorgnn.data.vocabulary import Vocabulary
from refactorgnn.evaluation import evaluate_ranking
from refactorgnn.models import GAT, RGCN, NoPretrain, ReFactorGNN
from refactorgnn.models.attention import attend
from refactorgnn.models.basis_conv import BasisConv
from refactorgnn.models.encoder import StateEncoder
from refactorgnn.models.features import RANDOM_SCALE, RandomFeatures, SignatureFeatures
from refactorgnn.ops import filtered_negative_log_likelihood
from refactorgnn.training.building import build_model
from refactorgnn.training.config import TrainConfig

DIM, HEADS, BASES, NUM_ENTITIES, NUM_RELATIONS, ISOLATED = 6, 2, 2, 7, 3, 6
RELATIONS = Vocabulary(["p", "q", "r"], "relation")
# Several objects of one query, a self-loop, two relations between the same entities, a repeated fact; 6 is isolated.
FACTS = torch.tensor(
    [[0, 0, 1], [0, 0, 2], [1, 1, 0], [2, 1, 2], [3, 2, 0], [0, 2, 1], [4, 0, 5], [4, 0, 5], [5, 1, 3]]
)
LAYERED = {
    "rgcn": partial(RGCN, num_bases=BASES),
    "gat": partial(GAT, heads=HEADS),
    "gat, combined": partial(GAT, heads=HEADS, combine=True),
}
layered = pytest.mark.parametrize("build", LAYERED.values(), ids=LAYERED.keys())
Build = Callable[..., StateEncoder]


def both_ways(facts: Tensor) -> Tensor:
    head, relation, tail = facts.unbind(1)
    return torch.cat([facts, torch.stack([tail, relation + NUM_RELATIONS, head], 1)])


def indexed(facts: Tensor) -> QueryIndex:
    return QueryIndex.from_triples(both_ways(facts), NUM_ENTITIES, 2 * NUM_RELATIONS)


def states_of(seed: int = 0) -> Tensor:
    return torch.randn(NUM_ENTITIES, DIM, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def toy_graph() -> KnowledgeGraph:
    entities = Vocabulary(map(str, range(NUM_ENTITIES)), "entity")
    return KnowledgeGraph("toy", entities, RELATIONS, {"train": FACTS})


def shaken(model: StateEncoder, seed: int = 1) -> StateEncoder:
    """The model in double precision with no parameter left at a value, such as 0, that would hide a mistake."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.double().parameters():
        parameter.data = 0.7 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return model.eval()


def made(build: Build, **settings) -> StateEncoder:
    return shaken(build(RELATIONS, RandomFeatures(DIM), dim=DIM, num_layers=3, **settings))


def edges_of(queries: QueryIndex) -> tuple[Tensor, Tensor]:
    """The facts as PyG wants them: ``(s, r, o)`` is an edge of type ``r`` from ``o`` to ``s``."""
    subjects, relations, objects = queries.facts
    return torch.stack([objects, subjects]), relations


def dense_rgcn_layer(layer, states: Tensor, facts: Tensor) -> Tensor:
    result = states @ layer.root + layer.bias
    for r in range(2 * NUM_RELATIONS):
        W = sum(layer.comp[r, b] * layer.weight[b] for b in range(BASES))
        A = torch.zeros(NUM_ENTITIES, NUM_ENTITIES, dtype=torch.float64)
        for s, relation, o in both_ways(facts).tolist():
            A[s, o] += relation == r
        result = result + A / A.sum(1, keepdim=True).clamp(min=1) @ states @ W
    return result


def test_a_layer_of_rgcn_is_that_of_pyg_down_to_its_draws_and_derivatives() -> None:
    """Ours sums in another order, for PyG's fills the gradients of all relations for each of them."""
    facts, direction = indexed(FACTS), states_of().flip(0)
    torch.manual_seed(4)
    ours = BasisConv(DIM, 2 * NUM_RELATIONS, BASES)
    torch.manual_seed(4)
    theirs = RGCNConv(DIM, DIM, 2 * NUM_RELATIONS, num_bases=BASES)
    assert all(torch.equal(value, theirs.state_dict()[name]) for name, value in ours.state_dict().items())
    found = []
    for layer, arguments in ((ours.double(), (facts,)), (theirs.double(), edges_of(facts))):
        states = states_of().requires_grad_()
        result = layer(states, *arguments)
        learned = [states, layer.weight, layer.comp, layer.root, layer.bias]
        found.append((result, *torch.autograd.grad(result, learned, direction)))
    torch.testing.assert_close(*found, rtol=1e-10, atol=1e-10)


def dense_gat_layer(layer, embedding: Tensor, states: Tensor, facts: Tensor) -> Tensor:
    """Entity by entity and head by head: PyG's formula with a loop at every entity in place of the facts' own."""
    triples = [tuple(triple) for triple in both_ways(facts).tolist() if triple[0] != triple[2]]
    width = DIM // HEADS
    result = torch.zeros_like(states)
    for s in range(NUM_ENTITIES):
        heard = [(embedding[r], o) for subject, r, o in triples if subject == s]
        typed = [e for e, _ in heard]
        heard.append((torch.stack(typed).mean(0) if typed else torch.zeros_like(embedding[0]), s))
        for k in range(HEADS):
            part = slice(k * width, (k + 1) * width)
            theta, theta_edge = layer.lin.weight[part], layer.lin_edge.weight[part]
            a_s, a_t, a_e = layer.att_src[0, k], layer.att_dst[0, k], layer.att_edge[0, k]
            logits = [a_t @ theta @ states[s] + a_s @ theta @ states[o] + a_e @ theta_edge @ e for e, o in heard]
            alpha = torch.softmax(leaky_relu(torch.stack(logits), 0.2), 0)
            result[s, part] = sum(weight * (theta @ states[o]) for weight, (_, o) in zip(alpha, heard, strict=True))
    return result + layer.bias


@torch.no_grad()
def dense(model: StateEncoder, states: Tensor, facts: Tensor) -> Tensor:
    """The whole stack, from the parameters of the model."""
    if isinstance(model, RGCN):
        for number, layer in enumerate(model.layers):
            states = dense_rgcn_layer(layer, relu(states) if number else states, facts)
        return states
    outputs: list[Tensor] = []
    for layer, embedding in zip(model.layers, model.edge_types, strict=True):
        states = elu(outputs[-1]) if outputs else states
        outputs.append(dense_gat_layer(layer, embedding.weight, states, facts))
    if model.combined is None:
        return outputs[-1]
    linear = model.combined[1]
    return torch.cat(outputs, 1) @ linear.weight.T + linear.bias


@layered
@pytest.mark.parametrize("facts", [FACTS, FACTS[:0]], ids=["facts", "no facts"])
@torch.no_grad()
def test_the_stack_equals_its_dense_formula(build: Build, facts: Tensor) -> None:
    model, states = made(build), states_of()
    got, expected = model.propagate(states, indexed(facts)), dense(model, states, facts)
    assert got.abs().mean() > 0.1
    torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("facts", [FACTS, FACTS[:0]], ids=["facts", "no facts"])
def test_a_layer_of_gat_is_that_of_pyg_down_to_its_derivatives(facts: Tensor) -> None:
    """Ours sums head by head, without storing messages."""
    torch.manual_seed(4)
    layer = GATConv(DIM, DIM // HEADS, heads=HEADS, edge_dim=4).double()
    layer.bias.data += torch.randn(DIM)
    types = torch.randn(2 * NUM_RELATIONS, 4, dtype=torch.float64).requires_grad_()
    queries, states, direction = indexed(facts), states_of().requires_grad_(), states_of(1)
    edge_index, edge_type = edges_of(queries)
    learned = [states, types, *layer.parameters()]
    results = attend(layer, states, queries, types), layer(states, edge_index, types[edge_type])
    found = [(one, *torch.autograd.grad(one, learned, direction)) for one in results]
    torch.testing.assert_close(*found, rtol=1e-10, atol=1e-10)


@layered
@torch.no_grad()
def test_renumbered_entities_have_renumbered_states(build: Build) -> None:
    model, states = made(build), states_of()
    new_id = torch.tensor([3, 6, 0, 5, 1, 2, 4])
    renumbered = torch.stack([new_id[FACTS[:, 0]], FACTS[:, 1], new_id[FACTS[:, 2]]], 1)
    moved = torch.empty_like(states).index_copy_(0, new_id, states)
    expected = model.propagate(states, indexed(FACTS))
    torch.testing.assert_close(model.propagate(moved, indexed(renumbered))[new_id], expected, rtol=1e-10, atol=1e-10)


@layered
@torch.no_grad()
def test_an_isolated_entity_hears_and_tells_nobody(build: Build) -> None:
    model, states, queries = made(build), states_of(), indexed(FACTS)
    before = model.propagate(states, queries)
    others = torch.arange(NUM_ENTITIES) != ISOLATED
    changed = states.clone()
    changed[ISOLATED] += 1
    after = model.propagate(changed, queries)
    torch.testing.assert_close(after[others], before[others])
    assert not torch.allclose(after[ISOLATED], before[ISOLATED])
    torch.testing.assert_close(model.propagate(states, indexed(FACTS[:0]))[ISOLATED], before[ISOLATED])


@layered
@torch.no_grad()
def test_the_relation_of_a_fact_matters(build: Build) -> None:
    model, states = made(build), states_of()
    retyped = FACTS.clone()
    retyped[4, 1] = 0  # (3, r, 0) becomes (3, p, 0)
    difference = model.propagate(states, indexed(FACTS)) - model.propagate(states, indexed(retyped))
    assert difference[[0, 3]].abs().amin(1).min() > 1e-6
    assert difference[ISOLATED].abs().max() == 0


@pytest.mark.parametrize("depth", [1, 4])
def test_parameters_grow_with_the_depth(depth: int) -> None:
    def count(build: Build) -> int:
        return build(RELATIONS, RandomFeatures(DIM), dim=DIM, num_layers=depth).num_parameters

    decoder = 2 * NUM_RELATIONS * DIM
    of_gat_layer = DIM**2 + HEADS * DIM + 4 * DIM + 2 * NUM_RELATIONS * HEADS
    assert count(LAYERED["rgcn"]) == decoder + depth * ((BASES + 1) * DIM**2 + 2 * NUM_RELATIONS * BASES + DIM)
    assert count(LAYERED["gat"]) == decoder + depth * of_gat_layer
    assert count(LAYERED["gat, combined"]) == decoder + depth * of_gat_layer + depth * DIM**2 + DIM
    assert count(ReFactorGNN) == decoder
    assert NoPretrain(RELATIONS, SignatureFeatures(2 * NUM_RELATIONS, DIM), dim=DIM).num_parameters == 0


@layered
def test_the_seed_alone_decides_the_weights(build: Build) -> None:
    def weights(seed: int) -> list[Tensor]:
        return list(build(RELATIONS, RandomFeatures(DIM), dim=DIM, num_layers=2, seed=seed).parameters())

    torch.manual_seed(5)
    first, unused = weights(0), torch.rand(3)
    torch.manual_seed(5)
    torch.testing.assert_close(unused, torch.rand(3), rtol=0, atol=0)  # the global generator was left as it was
    assert all(map(torch.equal, first, weights(0)))
    constant = [bool((weight == weight.flatten()[0]).all()) for weight in first]  # the biases start at 0
    assert [torch.equal(*pair) for pair in zip(first, weights(1), strict=True)] == constant


def test_relation_embeddings_are_no_copy_of_the_features_of_the_same_seed() -> None:
    features = SignatureFeatures(2 * NUM_RELATIONS, DIM, seed=3)
    model = NoPretrain(RELATIONS, features, dim=DIM, seed=3)
    assert not torch.isclose(model.relation_embeddings, features.weight).any()
    assert model.relation_embeddings.shape == (2 * NUM_RELATIONS, DIM)
    torch.testing.assert_close(
        NoPretrain(RELATIONS, features, dim=DIM, seed=3, init_scale=0.2).relations.std(), 2 * model.relations.std()
    )


@layered
def test_dropout_acts_while_training_only(build: Build) -> None:
    without, dropped = made(build), made(build, dropout=0.5)
    states, queries = states_of(), indexed(FACTS)
    torch.manual_seed(0)
    expected = without.propagate(states, queries)
    assert torch.equal(dropped.propagate(states, queries), expected)
    assert torch.equal(without.train().propagate(states, queries), expected)
    dropped.train()
    first, second = (dropped.propagate(states, queries) for _ in range(2))
    assert not torch.equal(first, second)


def mean_loss(model: StateEncoder, states: Tensor, targets: QueryIndex, known: QueryIndex) -> Tensor:
    """The filtered negative log-likelihood of a target triple, as all encoders are trained on."""
    asked = targets.subjects, targets.relations
    queries = model.scorer.query(states[asked[0]], model.relation_embeddings[asked[1]])
    total = filtered_negative_log_likelihood(
        queries, model.scorer.candidates(states), targets.answers, known.objects_of(*asked)
    )
    return total / targets.num_triples


@layered
def test_every_parameter_gets_a_gradient(build: Build) -> None:
    model = build(RELATIONS, SignatureFeatures(2 * NUM_RELATIONS, DIM), dim=DIM, num_layers=3)
    queries, graph = indexed(FACTS), toy_graph()
    # An entity's own part of the attention cancels in the softmax wherever all its logits have the same sign, so the
    # gradients of several models are added up.
    for seed in range(5):
        shaken(model, seed)
        mean_loss(model, model.encode(graph, queries), queries, queries).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 1e-6, name


@pytest.mark.parametrize("build", [NoPretrain, *LAYERED.values()], ids=["no-pretrain", *LAYERED])
@pytest.mark.parametrize(("scorer", "relation_dim"), [("cp", DIM // 2), ("rescal", DIM**2), ("rotate", DIM // 2)])
def test_any_scorer_decodes(build: Build, scorer: str, relation_dim: int) -> None:
    model, graph = build(RELATIONS, RandomFeatures(DIM), scorer, DIM, init_scale=1.0).eval(), toy_graph()
    assert model.relation_embeddings.shape == (2 * NUM_RELATIONS, relation_dim)
    asked = torch.tensor([0, ISOLATED]), torch.tensor([1, 5])
    with torch.no_grad():
        states, psi = model.encode(graph, indexed(FACTS)), model.relation_embeddings
        expected = model.scorer.score_all(states[asked[0]], psi[asked[1]], states)
    torch.testing.assert_close(model.bind(graph).scores(*asked), expected)


def trained(model: StateEncoder, graph: KnowledgeGraph) -> list[float]:
    """The losses of 20 steps of Adam; each holds out a share of the facts and passes messages over the others."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    generator = torch.Generator().manual_seed(0)
    known, triples, losses = graph.queries("train"), graph.triples("train"), []
    for _ in range(20):
        is_target = torch.rand(len(triples), generator=generator) < 0.3
        messages, targets = (
            QueryIndex.from_triples(graph.with_reciprocals(part), graph.num_entities, 2 * graph.num_relations)
            for part in (triples[~is_target], triples[is_target])
        )
        loss = mean_loss(model, model.encode(graph, messages), targets, known)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def mrr(model: StateEncoder, graph: KnowledgeGraph, split: str) -> float:
    return evaluate_ranking(model.eval().bind(graph), graph, split=split, confidence=False).metrics["mrr"]


@pytest.mark.parametrize("build", [RGCN, partial(GAT, combine=True)], ids=["rgcn", "gat"])
def test_a_short_training_beats_none_on_seen_and_unseen_entities(build: Build) -> None:
    pair = load_pair("countries_part")
    relations = pair.train.relations

    def features() -> SignatureFeatures:
        return SignatureFeatures(2 * len(relations), 32, seed=0)

    untrained = NoPretrain(relations, features(), dim=32)
    model = build(relations, features(), dim=32, num_layers=2)
    losses = trained(model, pair.train)
    assert losses[0] == pytest.approx(torch.tensor(pair.train.num_entities).log().item(), abs=0.1)
    assert losses[-1] < losses[0] - 1
    assert mrr(model, pair.train, "valid") > 2 * mrr(untrained, pair.train, "valid")
    assert mrr(model, pair.unseen, "test") > 2 * mrr(untrained, pair.unseen, "test")


@pytest.mark.parametrize(
    "settings", [{"model": "rgcn", "bases": 8}, {"model": "gat", "combine": True}], ids=["rgcn", "gat"]
)
def test_random_features_are_large_enough_to_learn_from(settings: dict[str, Any]) -> None:
    """As the settings are by default; those of a ReFactor GNN leave the loss of a GAT where it starts."""
    graph = load_pair("countries_part").train
    config = TrainConfig.from_dict({"dataset": "countries_part", "dim": 32, "layers": 2, **settings})
    last = {}
    for scale in (config.model_dump()["feature_scale"], RANDOM_SCALE):
        model = build_model(config.model_copy(update={"feature_scale": scale}), graph)
        assert isinstance(model, StateEncoder)
        last[scale] = trained(model, graph)[-1]
    assert last[1.0] < math.log(graph.num_entities) - 1.5
    assert last[1.0] < last[RANDOM_SCALE] - 0.4


def test_without_training_random_features_answer_by_chance() -> None:
    graph = load_pair("countries_part").train
    chance = sum(1 / rank for rank in range(1, graph.num_entities + 1)) / graph.num_entities  # of uniform ranks: 0.0054
    model = NoPretrain(graph.relations, RandomFeatures(32), dim=32)
    assert torch.equal(model.bind(graph).states, RandomFeatures(32)(graph, graph.queries("train")))
    assert mrr(model, graph, "valid") == pytest.approx(chance, rel=0.5)


@layered
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@torch.no_grad()
def test_a_gpu_computes_the_same(build: Build) -> None:
    model, states = made(build), states_of()
    expected = [model.propagate(states, indexed(facts)) for facts in (FACTS, FACTS[:0])]
    model.cuda()
    got = [model.propagate(states.cuda(), indexed(facts).to("cuda")).cpu() for facts in (FACTS, FACTS[:0])]
    torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (partial(GAT, dim=12), "dim=12 cannot be shared by 8 heads: choose a dim that is a multiple of 8."),
        (partial(GAT, heads=0), "heads=0 leaves nothing to compute: choose 1 or more."),
        (partial(RGCN, num_bases=0), "num_bases=0 leaves nothing to compute: choose 1 or more."),
        (partial(RGCN, num_layers=0), "num_layers=0 leaves nothing to compute: choose 1 or more."),
    ],
)
def test_what_cannot_be_built_is_refused_in_one_sentence(build: Build, message: str) -> None:
    with pytest.raises(UserError) as refused:
        build(RELATIONS, RandomFeatures(DIM))
    assert str(refused.value) == message
