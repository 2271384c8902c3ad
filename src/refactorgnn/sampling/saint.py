"""Random-walk sampling."""

from __future__ import annotations

import torch
from torch import Tensor

from refactorgnn.sampling.base import Sampler


class Saint(Sampler):
    """The random-walk sampler of GraphSAINT (Zeng et al., ICLR 2020), with walks from the seeds.

    ``width`` roots are drawn from the seeds, uniformly with replacement, and each walks ``depth`` steps over the
    undirected facts, to a neighbour with a probability in proportion to the facts in between (from an entity without
    facts, nowhere). The entities visited are added: at most ``width`` a hop, the budget of LADIES.

    Two things of GraphSAINT are not done. Its roots come from all of the graph; here they come from the mini-batch, as
    that is what the sub-graph serves. Its normalisation coefficients undo the sampler's preference for some edges and
    nodes in *averages*; a ReFactor layer is the gradient of the sub-graph's own likelihood and has no weights for
    edges, so none are estimated. Its node and edge samplers ignore the mini-batch and are left out.
    """

    name = "saint"

    def _around(self, seeds: Tensor, generator: torch.Generator) -> Tensor:
        here = seeds[torch.randint(len(seeds), (self.width,), generator=generator)]
        visited = [here]
        for _ in range(self.depth):
            here = self._step(here, generator)
            visited.append(here)
        return torch.cat(visited)

    def _step(self, here: Tensor, generator: torch.Generator) -> Tensor:
        """A uniformly drawn neighbour of each entity, or the entity itself if it has none."""
        degrees = self.neighbours.counts[here]
        uniform = torch.rand(len(here), generator=generator, dtype=torch.float64)
        pick = torch.minimum((uniform * degrees).long(), degrees - 1)  # rounding could reach the degree itself
        edges = (self.neighbours.offsets[here] + pick).clamp(0, max(0, self.neighbours.num_edges - 1))
        return torch.where(degrees > 0, self.neighbours.columns[edges], here)
