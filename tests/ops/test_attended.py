"""Attended sums against their formula, edge by edge, in float64, and what they keep in memory."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from refactorgnn.ops import attended
from refactorgnn.ops.attended import Attention, attended_sum
from refactorgnn.ops.edges import TypedEdges

NODES, TYPES, BASES, DIM, WIDTH = 9, 4, 3, 5, 2


def drawn(*shape: int, seed: int) -> Tensor:
    draw = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return draw.requires_grad_()


def edges_of(number: int) -> TypedEdges:
    generator = torch.Generator().manual_seed(number)
    ends = torch.randint(NODES - 1, (2, number), generator=generator)  # the last node has no edges
    return TypedEdges.sort(ends[0], torch.randint(TYPES, (number,), generator=generator), ends[1], NODES, TYPES)


def inputs() -> list[Tensor]:
    shapes = [(BASES, NODES, DIM), (TYPES, BASES), (NODES, WIDTH), (NODES, WIDTH), (TYPES, WIDTH), (WIDTH,), (1,)]
    return [drawn(*shape, seed=seed) for seed, shape in enumerate(shapes)]


def naive(values: Tensor, mixing: Tensor, attention: Attention, edges: TypedEdges, kept: Tensor | None) -> Tensor:
    rows = [torch.zeros(DIM, dtype=torch.float64) for _ in range(NODES)]
    ends = zip(edges.sources.tolist(), edges.types.tolist(), edges.targets.tolist(), strict=True)
    for place, (source, kind, target) in enumerate(ends):
        hidden = attention.of_source[source] + attention.of_target[target] + attention.of_type[kind]
        alpha = torch.sigmoid(attention.weight @ torch.relu(hidden) + attention.bias)
        message = sum(mixing[kind, basis] * values[basis, source] for basis in range(BASES))
        rows[target] = rows[target] + (1.0 if kept is None else kept[place]) * alpha * message
    return torch.stack(rows)


@pytest.mark.parametrize("chunk", [1, 6, 2**17])
@pytest.mark.parametrize("number", [0, 1, 40])
@pytest.mark.parametrize("masked", [False, True])
def test_sums_and_all_their_derivatives_are_those_of_the_formula(
    monkeypatch: pytest.MonkeyPatch, chunk: int, number: int, masked: bool
) -> None:
    monkeypatch.setattr(attended, "_CHUNK", chunk)
    edges, given = edges_of(number), inputs()
    kept = 2.0 * (torch.arange(number) % 3 != 0).double() if masked else None
    values, mixing, *parts = given
    ours = attended_sum(values, mixing, Attention(*parts), edges, kept)
    theirs = naive(values, mixing, Attention(*parts), edges, kept)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    if not number:  # nothing of what was given has a part in it
        assert not ours.any()
        return
    weights = drawn(NODES, DIM, seed=99).detach()
    found = torch.autograd.grad((weights * ours).sum(), given)
    for one, other in zip(found, torch.autograd.grad((weights * theirs).sum(), given), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-12)


def test_what_is_kept_for_the_backward_pass_is_one_number_an_edge() -> None:
    edges, (values, mixing, *parts) = edges_of(1000), inputs()
    sizes: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda saved: sizes.append(saved.numel()) or saved, lambda kept: kept
    ):
        attended_sum(values, mixing, Attention(*parts), edges)
    assert sorted(sizes)[-1] == edges.num_edges
    assert sum(sizes) == edges.num_edges + sum(part.numel() for part in (values, mixing, *parts))
