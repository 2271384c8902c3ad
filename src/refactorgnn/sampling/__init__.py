"""Stage one of two-stage training: sub-graphs sampled around mini-batches, written once, streamed many times."""

from refactorgnn.sampling.base import Sampler
from refactorgnn.sampling.ladies import Ladies
from refactorgnn.sampling.registry import SAMPLERS, make_sampler
from refactorgnn.sampling.saint import Saint
from refactorgnn.sampling.store import Manifest, read_manifest, write_subgraphs
from refactorgnn.sampling.stream import SubGraphDataset, subgraph_loader
from refactorgnn.sampling.subgraphs import SubGraph

__all__ = [
    "SAMPLERS",
    "Ladies",
    "Manifest",
    "Saint",
    "Sampler",
    "SubGraph",
    "SubGraphDataset",
    "make_sampler",
    "read_manifest",
    "subgraph_loader",
    "write_subgraphs",
]
