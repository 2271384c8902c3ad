"""Neural-LP and DRUM are their equations: dense matrix products in float64, with the queried fact taken out."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
import torch
from torch import Tensor

from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.data.vocabulary import Vocabulary
from refactorgnn.models.rivals.differentiable_rules import (
    FLOOR,
    DifferentiableRules,
    operators_of,
    relations_that_meet,
    reverse_edges,
)
from refactorgnn.models.rivals.drum import DRUM
from refactorgnn.models.rivals.neural_lp import NeuralLP
from refactorgnn.models.rivals.rules_protocol import LearnedRules

NUM_ENTITIES, NUM_RELATIONS, STEPS = 9, 3, 3
RELATIONS = Vocabulary(["a", "b", "c"], "relation")
Matrices = Tensor  # (2 * NUM_RELATIONS, NUM_ENTITIES, NUM_ENTITIES); [r, v, w] = 1: a fact leads from w to v by r


def make_graph(seed: int = 0, num_entities: int = NUM_ENTITIES) -> KnowledgeGraph:
    """Random facts, with self-loops, mirrored pairs, and one fact in two splits."""
    generator = torch.Generator().manual_seed(seed)
    triples = torch.randint(num_entities, (22, 3), generator=generator)
    triples[:, 1] %= NUM_RELATIONS
    triples = torch.cat([triples, torch.tensor([[2, 0, 2], [3, 1, 4], [4, 1, 3]])]).unique(dim=0)
    entities = Vocabulary([f"e{number}" for number in range(num_entities)], "entity")
    more = torch.tensor([[0, 2, 1], triples[0].tolist()])
    return KnowledgeGraph("drawn", entities, RELATIONS, {"train": triples, "valid": more})


def drum(num_steps: int = STEPS) -> DRUM:
    return DRUM(RELATIONS, 4, num_steps, rank=2, seed=5).double()


def neural_lp(num_steps: int = STEPS) -> NeuralLP:
    return NeuralLP(RELATIONS, 4, num_steps, seed=5).double()


Make = Callable[..., DifferentiableRules]
each_model = pytest.mark.parametrize("make", [drum, neural_lp], ids=["drum", "neural-lp"])


def sharpened(model: DifferentiableRules) -> DifferentiableRules:
    """Initial weights attend to everything alike; here they do not."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(4)
    return model


def matrices_of(triples: Tensor) -> Matrices:
    matrices = torch.zeros(2 * NUM_RELATIONS, NUM_ENTITIES, NUM_ENTITIES, dtype=torch.float64)
    for head, relation, tail in triples.tolist():
        matrices[relation, tail, head] = 1
        matrices[relation + NUM_RELATIONS, head, tail] = 1
    return matrices


def one_hot(subject: int) -> Tensor:
    return torch.eye(NUM_ENTITIES, dtype=torch.float64)[subject]


def dense_drum(model: DRUM, matrices: Matrices, subject: int, relation: int) -> Tensor:
    attention = model.attention(torch.tensor([relation]))[:, :, 0]
    operators = torch.cat([matrices, torch.eye(NUM_ENTITIES, dtype=torch.float64)[None]])
    total = torch.zeros(NUM_ENTITIES, dtype=torch.float64)
    for rank in range(model.rank):
        chain = torch.eye(NUM_ENTITIES, dtype=torch.float64)
        for step in range(model.num_steps):
            chain = torch.einsum("r,rvw->vw", attention[step, rank], operators) @ chain
        total = total + chain @ one_hot(subject)
    return total


def dense_neural_lp(model: NeuralLP, matrices: Matrices, subject: int, relation: int) -> Tensor:
    over_operators, over_memories = model.attention(torch.tensor([relation]))
    memories = [one_hot(subject)]
    for step in range(model.num_steps):
        read = sum(weight * memory for weight, memory in zip(over_memories[step][:, 0], memories, strict=True))
        memories.append(torch.einsum("r,rvw->vw", over_operators[step, 0], matrices) @ read)
    return torch.stack([w * memory for w, memory in zip(over_memories[-1][:, 0], memories, strict=True)]).sum(0)


def dense(model: DifferentiableRules, matrices: Matrices, subject: int, relation: int) -> Tensor:
    if isinstance(model, DRUM):
        return dense_drum(model, matrices, subject, relation)
    assert isinstance(model, NeuralLP)
    return dense_neural_lp(model, matrices, subject, relation)


@each_model
@pytest.mark.parametrize("splits", [("train",), ("train", "valid")], ids=str)
def test_scores_are_those_of_matrix_products(make: Make, splits: tuple[str, ...]) -> None:
    model, graph = sharpened(make()), make_graph()
    matrices = matrices_of(graph.triples(*splits))
    questions = torch.cartesian_prod(torch.arange(NUM_ENTITIES), torch.arange(2 * NUM_RELATIONS))
    got = model.bind(graph, splits).scores(*questions.T)
    for scores, (subject, relation) in zip(got, questions.tolist(), strict=True):
        reached = dense(model, matrices, subject, relation)
        expected = (reached / reached.sum()).clamp(min=FLOOR).log()
        torch.testing.assert_close(scores, expected, rtol=0, atol=1e-10)


@each_model
def test_the_loss_hides_each_fact_and_its_reverse_from_its_own_question(make: Make) -> None:
    """Against matrices with just these two places set to 0; gradients of all parameters too."""
    model, graph = sharpened(make()), make_graph()
    triples = graph.triples("train")
    both = graph.with_reciprocals(triples)
    operators = operators_of(graph, ("train",), torch.device("cpu"))
    reverse = reverse_edges(operators, NUM_RELATIONS)
    ours = model.total_loss(operators, reverse, torch.arange(operators.num_edges))
    theirs = torch.zeros((), dtype=torch.float64)
    for subject, relation, answer in both.tolist():
        matrices = matrices_of(triples)
        matrices[relation, answer, subject] = 0
        matrices[(relation + NUM_RELATIONS) % (2 * NUM_RELATIONS), subject, answer] = 0
        reached = dense(model, matrices, subject, relation)
        theirs = theirs - (reached[answer] / reached.sum()).clamp(min=FLOOR).log()
    assert len(both) == operators.num_edges
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)
    got, expected = (torch.autograd.grad(loss, list(model.parameters())) for loss in (ours, theirs))
    for name, one, other in zip(dict(model.named_parameters()), got, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-10, msg=name)
        assert one.abs().max() > 1e-6, name  # every parameter learns


def test_reverses_are_found() -> None:
    operators = operators_of(make_graph(), ("train", "valid"), torch.device("cpu"))
    reverse = reverse_edges(operators, NUM_RELATIONS)
    assert torch.equal(operators.sources[reverse], operators.targets)
    assert torch.equal(operators.targets[reverse], operators.sources)
    assert torch.equal(operators.relations[reverse], (operators.relations + NUM_RELATIONS) % (2 * NUM_RELATIONS))
    assert torch.equal(reverse[reverse], torch.arange(operators.num_edges))


@each_model
def test_an_answer_that_only_its_own_fact_reaches_has_the_floor(make: Make) -> None:
    """With one fact in the graph there is no other way: nothing leaks."""
    entities = Vocabulary(["x", "y"], "entity")
    graph = KnowledgeGraph("one", entities, RELATIONS, {"train": torch.tensor([[0, 1, 1]])})
    operators, model = operators_of(graph, ("train",), torch.device("cpu")), make()
    loss = model.total_loss(operators, reverse_edges(operators, NUM_RELATIONS), torch.tensor([0, 1]))
    assert loss.item() == pytest.approx(-2 * torch.tensor(FLOOR, dtype=torch.float64).log().item())
    loss.backward()
    assert all(not parameter.grad.any() for parameter in model.parameters() if parameter.grad is not None)


@each_model
def test_questions_are_scored_alike_in_any_batch_and_budget(make: Make) -> None:
    model, graph = make(), make_graph(num_entities=40)
    subjects, relations = torch.randint(40, (30,)), torch.randint(2 * NUM_RELATIONS, (30,))
    expected = model.bind(graph).scores(subjects, relations)
    model.memory_budget = 4 * 40 * 8 * 5  # a few questions at a time, a few edges at a time
    torch.testing.assert_close(model.bind(graph).scores(subjects, relations), expected, rtol=0, atol=1e-12)
    pairs = zip(subjects.split(1), relations.split(1), strict=True)
    alone = torch.cat([model.bind(graph).scores(*pair) for pair in pairs])
    torch.testing.assert_close(alone, expected, rtol=0, atol=1e-12)


@each_model
def test_renaming_entities_renames_the_answers(make: Make) -> None:
    """What makes it answer about graphs never seen: nothing depends on who an entity is."""
    model, graph = make(), make_graph()
    order = torch.randperm(NUM_ENTITIES)
    train = graph.triples("train").clone()
    train[:, 0], train[:, 2] = order[train[:, 0]], order[train[:, 2]]
    renamed = KnowledgeGraph("renamed", graph.entities, RELATIONS, {"train": train})
    subjects, relations = torch.arange(NUM_ENTITIES), torch.arange(NUM_ENTITIES) % (2 * NUM_RELATIONS)
    scores = model.bind(renamed).scores(order[subjects], relations)[:, order]
    torch.testing.assert_close(scores, model.bind(graph).scores(subjects, relations), rtol=0, atol=1e-12)


@each_model
@pytest.mark.parametrize("num_steps", [1, 2, 3])
def test_rules_are_all_that_scores_are_made_of(make: Make, num_steps: int) -> None:
    """Paths of each chain, counted by matrix products, times the confidence of its rule: the weight that arrives."""
    model, graph = sharpened(make(num_steps)), make_graph()
    assert isinstance(model, LearnedRules)
    matrices = matrices_of(graph.triples("train"))
    operators = operators_of(graph, ("train",), torch.device("cpu"))
    bodies = [body for length in range(1, num_steps + 1) for body in product(range(6), repeat=length)]
    for relation in (1, 4):
        rules = model.rules(relation, 1000)
        assert sorted(rule.body for rule in rules) == sorted(bodies)
        assert rules == sorted(rules, key=lambda rule: -rule.confidence)
        assert sum(rule.confidence for rule in rules) == pytest.approx(1)
        staying = sum(way.weight for way in model.alignments(relation) if not len(way.attentions))
        assert 0 < staying < 1
        reached = staying * one_hot(7)
        for rule in rules:
            chain = one_hot(7)
            for step in rule.body:
                chain = matrices[step] @ chain
            reached = reached + (1 - staying) * rule.confidence * chain
        ranks = model.rank if isinstance(model, DRUM) else 1
        with torch.no_grad():
            expected = model.reached(operators, torch.tensor([7]), torch.tensor([relation]))[:, 0] / ranks
        torch.testing.assert_close(reached, expected, rtol=0, atol=1e-10)


@each_model
def test_chains_that_nobody_can_follow_are_no_rules(make: Make) -> None:
    """0 -a-> 1 -b-> 2 and 3 -c-> 4, apart: ``a`` has no rule through ``c``, and ``c`` none through ``a`` or ``b``."""
    model = make(2)
    entities = Vocabulary([str(number) for number in range(5)], "entity")
    facts = torch.tensor([[0, 0, 1], [1, 1, 2], [3, 2, 4]])
    model.look_at(KnowledgeGraph("parted", entities, RELATIONS, {"train": facts}))
    assert {rule.body for rule in model.rules(0, 100)} == {(0,)}
    assert {rule.body for rule in model.rules(2, 100)} == {(2,)}
    longer = make(3)
    longer.look_at(KnowledgeGraph("parted", entities, RELATIONS, {"train": facts}))
    back = NUM_RELATIONS
    assert {rule.body for rule in longer.rules(0, 100)} == {(0,), (0, back, 0), (0, 1, 1 + back)}


def test_relations_meet_where_one_ends_and_the_other_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    operators = operators_of(make_graph(), ("train",), torch.device("cpu"))
    expected = torch.zeros(6, 6, dtype=torch.float64)
    for one, middle in zip(operators.relations.tolist(), operators.targets.tolist(), strict=True):
        expected[one, operators.relations[operators.sources == middle]] = 1
    assert torch.equal(relations_that_meet(operators, 6), expected)
    monkeypatch.setattr("refactorgnn.models.rivals.differentiable_rules._ENTITIES_PER_CHUNK", 4)
    assert torch.equal(relations_that_meet(operators, 6), expected)


@each_model
def test_initial_weights_depend_on_the_seed_alone(make: Make) -> None:
    torch.manual_seed(1)
    one = make().state_dict()
    torch.manual_seed(2)
    assert all(torch.equal(one[name], tensor) for name, tensor in make().state_dict().items())
