"""The samplers by name."""

from __future__ import annotations

from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.errors import unknown_name
from refactorgnn.sampling.base import Sampler
from refactorgnn.sampling.ladies import Ladies
from refactorgnn.sampling.saint import Saint

_CLASSES: dict[str, type[Sampler]] = {cls.name: cls for cls in (Ladies, Saint)}
SAMPLERS = tuple(_CLASSES)


def make_sampler(name: str, graph: KnowledgeGraph, depth: int, width: int = 256) -> Sampler:
    """The sampler of that name, over the train split of a graph; arguments as for :class:`Sampler`."""
    if name not in _CLASSES:
        raise unknown_name("sampler", name, SAMPLERS)
    return _CLASSES[name](graph, depth, width)
