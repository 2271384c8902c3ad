"""Score functions ``Γ(s, r, o)``.

Most are dot products: a *query* made from subject and relation, against a *candidate* made from the object. Such a
:class:`DotScorer` needs only ``query`` and its ``adjoint`` (and, where a candidate is not the entity's state itself,
the same two for candidates); the layer, the loss, the ranking and the filters follow. Any other smooth function is a
:class:`Scorer` with ``score_all`` and goes through autograd, as the paper's general lemma allows.

Shapes: ``Q`` queries, ``V`` entities, ``D`` the width of an entity state (``dim``), ``R`` that of a relation embedding
(``relation_dim``), ``C`` that of a query or candidate.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

from refactorgnn.errors import UserError, unknown_name
from refactorgnn.ops.processor import product_library

SCORERS: dict[str, Callable[[int], Scorer]] = {}


class Scorer(ABC):
    """A smooth score function of subject, relation and object.

    Args:
        dim: The width of an entity state, in real numbers.
    """

    name: str

    def __init__(self, dim: int) -> None:
        if dim < 1 or (self.needs_even_dim and dim % 2):
            even = "an even" if self.needs_even_dim else "a positive"
            raise UserError(f"scorer {self.name!r} cannot use dim={dim}: choose {even} number.")
        self.dim = dim

    needs_even_dim = False

    @property
    def relation_dim(self) -> int:
        """The width of a relation embedding."""
        return self.dim

    @abstractmethod
    def score_all(self, subjects: Tensor, relations: Tensor, states: Tensor) -> Tensor:
        """The scores of every entity as the object; ``(Q, D), (Q, R), (V, D) → (Q, V)``."""

    @abstractmethod
    def score(self, subjects: Tensor, relations: Tensor, objects: Tensor) -> Tensor:
        """The scores of single triples; ``(Q, D), (Q, R), (Q, D) → (Q,)``."""

    def modulus(self, vectors: Tensor) -> Tensor:
        """The modulus of each number in a state or relation, in the same shape: ``|·|`` of the N3 regulariser."""
        return vectors.abs()

    def n3_norm(self, vectors: Tensor) -> Tensor:
        """``Σ_k |x_k|³`` of each vector, a complex number counted once; its gradient is ``3 |x| x``."""
        return (self.modulus(vectors) * vectors.square()).sum(-1)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(dim={self.dim})"


class DotScorer(Scorer):
    """A score that is a dot product: ``Γ(s, r, o) = query(h_s, ψ_r) · candidate(h_o)``."""

    # Whether query and candidate are linear in the states, so that a sum of states has the sum of their scores, and the
    # query is linear in the relation.
    is_bilinear = True

    @abstractmethod
    def query(self, subjects: Tensor, relations: Tensor) -> Tensor:
        """``(Q, D), (Q, R) → (Q, C)``."""

    @abstractmethod
    def adjoint(self, grad: Tensor, subjects: Tensor, relations: Tensor) -> Tensor:
        """``(∂query/∂subject)ᵀ grad``: what a change wanted of the query asks of the subject; ``(Q, C) → (Q, D)``."""

    def candidates(self, states: Tensor) -> Tensor:
        """``(V, D) → (V, C)``; the states themselves unless a scorer says otherwise."""
        return states

    def candidates_adjoint(self, grad: Tensor, states: Tensor) -> Tensor:
        """``(∂candidate/∂state)ᵀ grad``; ``(V, C), (V, D) → (V, D)``."""
        return grad

    def relation_query(self, subjects: Tensor, objects: Tensor) -> Tensor:
        """What makes the score of a relation by a dot product, ``∂Γ/∂ψ``; ``(Q, D), (Q, D) → (Q, R)``.

        Only of bilinear scorers.
        """
        raise NotImplementedError(f"the score of {self.name} is not linear in the relation")

    def score_all(self, subjects: Tensor, relations: Tensor, states: Tensor) -> Tensor:  # noqa: D102
        queries, keys = self.query(subjects, relations), self.candidates(states).T
        with product_library(queries, keys):
            return queries @ keys

    def score(self, subjects: Tensor, relations: Tensor, objects: Tensor) -> Tensor:  # noqa: D102
        return (self.query(subjects, relations) * self.candidates(objects)).sum(-1)


def register(name: str) -> Callable[[type[Scorer]], type[Scorer]]:
    """Make a scorer known by ``name``, for :func:`make_scorer` and the command line."""

    def add(cls: type[Scorer]) -> type[Scorer]:
        cls.name = name
        SCORERS[name] = cls
        return cls

    return add


def make_scorer(name: str, dim: int) -> Scorer:
    """The scorer of that name.

    Example:
        >>> make_scorer("complex", 64).relation_dim
        64
    """
    if name not in SCORERS:
        raise unknown_name("scorer", name, list(SCORERS))
    return SCORERS[name](dim)


@register("distmult")
class DistMult(DotScorer):
    r"""DistMult (Yang et al., 2015): ``Γ = Σ_k h_s[k] ψ_r[k] h_o[k]``."""

    def query(self, subjects: Tensor, relations: Tensor) -> Tensor:  # noqa: D102
        return subjects * relations

    def adjoint(self, grad: Tensor, subjects: Tensor, relations: Tensor) -> Tensor:  # noqa: D102
        return grad * relations

    def relation_query(self, subjects: Tensor, objects: Tensor) -> Tensor:  # noqa: D102
        return subjects * objects


@register("complex")
class ComplEx(DotScorer):
    """ComplEx (Trouillon et al., 2016): ``Γ = Re Σ_k h_s[k] ψ_r[k] conj(h_o[k])``.

    A state of width ``dim`` holds ``dim/2`` real parts, then ``dim/2`` imaginary parts.
    """

    needs_even_dim = True

    def query(self, subjects: Tensor, relations: Tensor) -> Tensor:  # noqa: D102
        a, b = subjects.chunk(2, dim=-1)
        c, d = relations.chunk(2, dim=-1)
        return torch.cat([a * c - b * d, a * d + b * c], dim=-1)

    def adjoint(self, grad: Tensor, subjects: Tensor, relations: Tensor) -> Tensor:  # noqa: D102
        # The transpose of multiplying by ψ is multiplying by its conjugate.
        a, b = grad.chunk(2, dim=-1)
        c, d = relations.chunk(2, dim=-1)
        return torch.cat([a * c + b * d, b * c - a * d], dim=-1)

    def relation_query(self, subjects: Tensor, objects: Tensor) -> Tensor:  # noqa: D102
        a, b = subjects.chunk(2, dim=-1)
        x, y = objects.chunk(2, dim=-1)
        return torch.cat([a * x + b * y, a * y - b * x], dim=-1)

    def modulus(self, vectors: Tensor) -> Tensor:  # noqa: D102
        return complex_modulus(vectors)


@register("cp")
class CP(DotScorer):
    """Canonical polyadic decomposition (Hitchcock, 1927): ``Γ = Σ_k h_s[k] ψ_r[k] t_o[k]``.

    A state holds the entity's vector ``h`` as a subject, then its vector ``t`` as an object, ``dim/2`` numbers each.
    """

    needs_even_dim = True

    @property
    def relation_dim(self) -> int:  # noqa: D102
        return self.dim // 2

    def query(self, subjects: Tensor, relations: Tensor) -> Tensor:  # noqa: D102
        return subjects[..., : self.dim // 2] * relations

    def adjoint(self, grad: Tensor, subjects: Tensor, relations: Tensor) -> Tensor:  # noqa: D102
        as_subject = grad * relations
        return torch.cat([as_subject, torch.zeros_like(as_subject)], dim=-1)

    def relation_query(self, subjects: Tensor, objects: Tensor) -> Tensor:  # noqa: D102
        return subjects[..., : self.dim // 2] * self.candidates(objects)

    def candidates(self, states: Tensor) -> Tensor:  # noqa: D102
        return states[..., self.dim // 2 :]

    def candidates_adjoint(self, grad: Tensor, states: Tensor) -> Tensor:  # noqa: D102
        return torch.cat([torch.zeros_like(grad), grad], dim=-1)


@register("simple")
class SimplE(DotScorer):
    """SimplE (Kazemi and Poole, 2018): ``Γ = ½ (⟨h_s, ψ_r, t_o⟩ + ⟨h_o, ψ'_r, t_s⟩)``.

    States hold ``h`` then ``t``, relations ``ψ`` then ``ψ'``, ``dim/2`` numbers each.
    """

    needs_even_dim = True

    def query(self, subjects: Tensor, relations: Tensor) -> Tensor:  # noqa: D102
        h, t = subjects.chunk(2, dim=-1)
        forward, backward = relations.chunk(2, dim=-1)
        return 0.5 * torch.cat([t * backward, h * forward], dim=-1)

    def adjoint(self, grad: Tensor, subjects: Tensor, relations: Tensor) -> Tensor:  # noqa: D102
        of_h, of_t = grad.chunk(2, dim=-1)
        forward, backward = relations.chunk(2, dim=-1)
        return 0.5 * torch.cat([of_t * forward, of_h * backward], dim=-1)

    def relation_query(self, subjects: Tensor, objects: Tensor) -> Tensor:  # noqa: D102
        return 0.5 * subjects * objects.roll(self.dim // 2, dims=-1)


@register("rescal")
class RESCAL(DotScorer):
    """RESCAL (Nickel et al., 2011): ``Γ = h_sᵀ Ψ_r h_o`` with a full ``dim×dim`` matrix for each relation."""

    @property
    def relation_dim(self) -> int:  # noqa: D102
        return self.dim * self.dim

    def query(self, subjects: Tensor, relations: Tensor) -> Tensor:  # noqa: D102
        return self._product("...i,...ij->...j", subjects, relations)

    def adjoint(self, grad: Tensor, subjects: Tensor, relations: Tensor) -> Tensor:  # noqa: D102
        return self._product("...j,...ij->...i", grad, relations)

    def relation_query(self, subjects: Tensor, objects: Tensor) -> Tensor:  # noqa: D102
        return (subjects[..., :, None] * objects[..., None, :]).flatten(-2)

    def _product(self, equation: str, vectors: Tensor, relations: Tensor) -> Tensor:
        """Of each vector and its matrix; autocast may narrow the product, but not the type of the result."""
        matrices = relations.reshape(*relations.shape[:-1], self.dim, self.dim)
        return torch.einsum(equation, vectors, matrices).to(torch.promote_types(vectors.dtype, relations.dtype))


@register("transe")
class TransE(DotScorer):
    """TransE (Bordes et al., 2013) with squared distance: ``Γ = −‖h_s + ψ_r − h_o‖²``.

    Expanded, it is the dot product ``2 (h_s + ψ_r) · h_o`` plus a bias ``−‖h_o‖²`` of the candidate and a bias
    ``−‖h_s + ψ_r‖²`` of the query. The two biases are two more columns, so that all dot-product code serves.
    """

    is_bilinear = False

    def query(self, subjects: Tensor, relations: Tensor) -> Tensor:  # noqa: D102
        moved = subjects + relations
        return torch.cat([2 * moved, torch.ones_like(moved[..., :1]), -_squared_norm(moved)], dim=-1)

    def adjoint(self, grad: Tensor, subjects: Tensor, relations: Tensor) -> Tensor:  # noqa: D102
        return 2 * grad[..., :-2] - 2 * grad[..., -1:] * (subjects + relations)

    def candidates(self, states: Tensor) -> Tensor:  # noqa: D102
        return torch.cat([states, -_squared_norm(states), torch.ones_like(states[..., :1])], dim=-1)

    def candidates_adjoint(self, grad: Tensor, states: Tensor) -> Tensor:  # noqa: D102
        return grad[..., :-2] - 2 * grad[..., -2:-1] * states


@register("rotate")
class RotatE(Scorer):
    """RotatE (Sun et al., 2019): ``Γ = −Σ_k |h_s[k] e^{i ψ_r[k]} − h_o[k]|``, complex numbers stored as in ComplEx.

    A distance is no dot product, so this is a :class:`Scorer` on the autograd path. ``√(x² + ε)`` stands for ``|x|``,
    which keeps it smooth where subject and object meet.
    """

    needs_even_dim = True
    _EPSILON = 1e-12

    @property
    def relation_dim(self) -> int:  # noqa: D102
        return self.dim // 2

    def score_all(self, subjects: Tensor, relations: Tensor, states: Tensor) -> Tensor:  # noqa: D102
        return self.score(subjects[:, None], relations[:, None], states[None])

    def score(self, subjects: Tensor, relations: Tensor, objects: Tensor) -> Tensor:  # noqa: D102
        a, b = subjects.chunk(2, dim=-1)
        cos, sin = relations.cos(), relations.sin()
        x, y = objects.chunk(2, dim=-1)
        gap = (a * cos - b * sin - x).square() + (a * sin + b * cos - y).square()
        return -(gap + self._EPSILON).sqrt().sum(-1)

    def modulus(self, vectors: Tensor) -> Tensor:  # noqa: D102
        return complex_modulus(vectors) if vectors.shape[-1] == self.dim else vectors.abs()


def complex_modulus(states: Tensor) -> Tensor:
    """The modulus of complex numbers stored as real parts, then imaginary parts; given twice, once for each part."""
    real, imaginary = states.chunk(2, dim=-1)
    squared = real.square() + imaginary.square()
    # The derivative of √ at 0 is infinite; there the modulus is 0 and so is what it multiplies.
    safe = torch.where(squared > 0, squared, 1)
    modulus = torch.where(squared > 0, safe.sqrt(), 0)
    return torch.cat([modulus, modulus], dim=-1)


def _squared_norm(vectors: Tensor) -> Tensor:
    return vectors.square().sum(-1, keepdim=True)
