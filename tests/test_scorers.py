"""Every registered scorer: its forms agree, its adjoints are transposes, and its formula is the published one."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from refactorgnn.errors import UserError
from refactorgnn.scorers import SCORERS, DotScorer, make_scorer

DIM = 6


def tensors(name: str) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    scorer = make_scorer(name, DIM)
    draw = lambda *shape: torch.randn(*shape, dtype=torch.float64, generator=generator)  # noqa: E731
    return draw(4, DIM), draw(4, scorer.relation_dim), draw(5, DIM)


def literal(name: str, s: Tensor, r: Tensor, o: Tensor) -> Tensor:
    """The published formula of one triple, written with whole vectors, matrices and complex numbers."""
    half = DIM // 2
    if name == "distmult":
        return (s * r * o).sum()
    if name == "complex":
        as_complex = [torch.complex(x[:half], x[half:]) for x in (s, r, o)]
        return (as_complex[0] * as_complex[1] * as_complex[2].conj()).sum().real
    if name == "cp":
        return (s[:half] * r * o[half:]).sum()
    if name == "simple":
        return ((s[:half] * r[:half] * o[half:]).sum() + (o[:half] * r[half:] * s[half:]).sum()) / 2
    if name == "rescal":
        return s @ r.reshape(DIM, DIM) @ o
    if name == "transe":
        return -((s + r - o).norm() ** 2)
    if name == "rotate":
        turned = torch.complex(s[:half], s[half:]) * torch.polar(torch.ones_like(r), r)
        return -(turned - torch.complex(o[:half], o[half:])).abs().sum()
    raise AssertionError(f"scorer {name!r} is registered but has no formula here: add it")


@pytest.mark.parametrize("name", sorted(SCORERS))
def test_all_forms_equal_the_published_formula(name: str) -> None:
    scorer = make_scorer(name, DIM)
    subjects, relations, states = tensors(name)
    expected = torch.stack(
        [torch.stack([literal(name, s, r, o) for o in states]) for s, r in zip(subjects, relations, strict=True)]
    )
    torch.testing.assert_close(scorer.score_all(subjects, relations, states), expected, rtol=1e-9, atol=1e-9)
    for column, state in enumerate(states):
        objects = state.expand_as(subjects)
        torch.testing.assert_close(
            scorer.score(subjects, relations, objects), expected[:, column], rtol=1e-9, atol=1e-9
        )


@pytest.mark.parametrize("name", sorted(name for name, cls in SCORERS.items() if issubclass(cls, DotScorer)))
def test_adjoints_are_the_transposed_derivatives(name: str) -> None:
    scorer = make_scorer(name, DIM)
    assert isinstance(scorer, DotScorer)
    subjects, relations, states = tensors(name)
    subjects, states = subjects.requires_grad_(), states.requires_grad_()
    query, candidates = scorer.query(subjects, relations), scorer.candidates(states)
    grad_query, grad_candidates = torch.randn_like(query), torch.randn_like(candidates)
    expected = torch.autograd.grad(query, subjects, grad_query)[0]
    torch.testing.assert_close(scorer.adjoint(grad_query, subjects, relations), expected)
    expected = torch.autograd.grad(candidates, states, grad_candidates)[0]
    torch.testing.assert_close(scorer.candidates_adjoint(grad_candidates, states), expected)


@pytest.mark.parametrize("name", sorted(SCORERS))
def test_n3_gradient_is_three_times_modulus_times_value(name: str) -> None:
    scorer = make_scorer(name, DIM)
    states = tensors(name)[2].requires_grad_()
    gradient = torch.autograd.grad(scorer.n3_norm(states).sum(), states)[0]
    torch.testing.assert_close(gradient, 3 * scorer.modulus(states) * states)
    zero = torch.zeros(1, DIM, requires_grad=True)
    assert torch.isfinite(torch.autograd.grad(scorer.n3_norm(zero).sum(), zero)[0]).all()


def test_unknown_names_list_the_choices() -> None:
    with pytest.raises(UserError, match=r"unknown scorer 'ComplEx': did you mean 'complex'.*complex, cp, distmult"):
        make_scorer("ComplEx", 4)
    with pytest.raises(UserError, match="cannot use dim=5: choose an even number"):
        make_scorer("rotate", 5)
