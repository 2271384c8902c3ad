"""Sub-graphs on disk: sampled once, so that training never waits for a sampler.

::

    FOLDER/manifest.json                      the settings, and what graph they were applied to
    FOLDER/pass-0001-shard-0001.safetensors   up to ``shard_size`` sub-graphs, end to end, with their offsets

A pass is a shuffled partition of the train triples into mini-batches, with one sub-graph around each. The order of a
pass and the draws of a sub-graph have seeds of their own, so a sub-graph does not depend on what was sampled before
it: sampling can be killed at any moment, and continued to the very same files. A shard bounds the memory of writing; a
reader takes single sub-graphs out of it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import torch
from safetensors.torch import save
from torch import Tensor

from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.errors import FileError, UserError
from refactorgnn.progress import Counter, counting
from refactorgnn.sampling.base import Sampler
from refactorgnn.sampling.registry import make_sampler
from refactorgnn.sampling.subgraphs import SubGraph
from refactorgnn.seeds import combined_seed
from refactorgnn.storage import leftovers, remove_leftovers, write_bytes, write_text

MANIFEST = "manifest.json"
METADATA_ENTRY = "refactorgnn"
# The tensors of a sub-graph, by the names of its fields.
PACKED = ("nodes", "triples", "is_target", "targets")
_FORMAT = 1


@dataclass(frozen=True)
class Manifest:
    """What a folder of sub-graphs holds. Two folders of the same manifest hold the same bytes.

    Attributes:
        format: The version of the layout.
        graph: The graph's name.
        graph_sha256: The fingerprint of its names and train triples.
        sampler: The sampler's name.
        depth: How many hops it goes.
        width: How many entities it draws a hop.
        batch_size: Triples of a mini-batch.
        passes: How often all train triples are gone through.
        seed: The seed of all draws.
        shard_size: The sub-graphs of a shard.
        num_subgraphs: The sub-graphs of a pass.
    """

    format: int
    graph: str
    graph_sha256: str
    sampler: str
    depth: int
    width: int
    batch_size: int
    passes: int
    seed: int
    shard_size: int
    num_subgraphs: int

    @property
    def sha256(self) -> str:
        """The fingerprint of the settings and the graph (not of its name), which every shard carries."""
        settings = {key: value for key, value in asdict(self).items() if key != "graph"}
        return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()

    def shards(self, pass_number: int) -> list[tuple[str, range]]:
        """The file name of each shard of a pass (from 1), and the sub-graphs in it (from 0)."""
        starts = range(0, self.num_subgraphs, self.shard_size)
        return [
            (
                f"pass-{pass_number:04d}-shard-{number:04d}.safetensors",
                range(start, min(start + self.shard_size, self.num_subgraphs)),
            )
            for number, start in enumerate(starts, start=1)
        ]


def write_subgraphs(
    folder: str | Path,
    graph: KnowledgeGraph,
    sampler: str,
    *,
    depth: int,
    width: int = 256,
    batch_size: int = 256,
    passes: int = 20,
    seed: int = 0,
    shard_size: int = 256,
    progress: bool = True,
) -> Manifest:
    """Sample sub-graphs around all train triples, ``passes`` times, and write them; the defaults are the paper's.

    Called again with the same settings, it keeps what is there and does the rest.

    Args:
        folder: A new or empty folder, or one that an earlier call with the same settings has begun.
        graph: The graph.
        sampler: One of :data:`refactorgnn.sampling.SAMPLERS`.
        depth: How many hops to go from the mini-batch.
        width: How many entities to draw a hop.
        batch_size: Triples of a mini-batch.
        passes: How often to go through all train triples.
        seed: The seed of all draws.
        shard_size: The sub-graphs of a file.
        progress: Show a bar.

    Raises:
        FileError: if the folder holds something else.
    """
    for kind, value in (("batch_size", batch_size), ("passes", passes), ("shard_size", shard_size)):
        if value < 1:
            raise UserError(f"sampling cannot use {kind}={value}: choose 1 or more.")
    num_triples = len(graph.triples("train"))
    if num_triples == 0:
        raise UserError(f"graph {graph.name!r} has no train triples to sample around: give one that has some.")
    manifest = Manifest(
        format=_FORMAT,
        graph=graph.name,
        graph_sha256=graph_fingerprint(graph),
        sampler=sampler,
        depth=depth,
        width=width,
        batch_size=batch_size,
        passes=passes,
        seed=seed,
        shard_size=shard_size,
        num_subgraphs=-(-num_triples // batch_size),
    )
    folder, ready_sampler = Path(folder), make_sampler(sampler, graph, depth, width)
    _claim(folder, manifest)
    with counting("Sampling sub-graphs", passes * manifest.num_subgraphs, enabled=progress) as bar:
        for pass_number in range(1, passes + 1):
            _write_pass(folder, graph, ready_sampler, manifest, pass_number, bar)
    return manifest


def read_manifest(folder: str | Path, graph: KnowledgeGraph | None = None) -> Manifest:
    """What a folder of sub-graphs holds.

    Args:
        folder: What :func:`write_subgraphs` has written.
        graph: If given, the graph that the sub-graphs must be of.

    Raises:
        FileError: if the folder holds no sub-graphs, or those of another graph.
    """
    path = Path(folder) / MANIFEST
    if not path.is_file():
        raise FileError(folder, "holds no sub-graphs", "sample some into it first")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        manifest = Manifest(**{field.name: content[field.name] for field in fields(Manifest)})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FileError(path, "is damaged", "delete the folder and sample again") from error
    if manifest.format != _FORMAT:
        raise FileError(path, f"has format {manifest.format}, which this version cannot read", "sample again")
    if graph is not None and manifest.graph_sha256 != graph_fingerprint(graph):
        problem = f"its sub-graphs are of another graph ({manifest.graph!r}) than {graph.name!r} as it is now"
        raise FileError(folder, problem, "sample again into another folder")
    return manifest


def graph_fingerprint(graph: KnowledgeGraph) -> str:
    """The SHA-256 of what sub-graphs depend on: the names and the train triples."""
    digest = hashlib.sha256((graph.entities.sha256 + graph.relations.sha256).encode())
    digest.update(graph.triples("train").numpy().tobytes())
    return digest.hexdigest()


def _claim(folder: Path, manifest: Manifest) -> None:
    """Make the folder this manifest's, unless it is somebody else's."""
    if (folder / MANIFEST).exists():
        found = read_manifest(folder)
        if found.sha256 != manifest.sha256:
            ours, theirs = asdict(manifest), asdict(found)
            different = [f"{key}={theirs[key]!r}" for key in ours if ours[key] != theirs[key] and key != "graph"]
            problem = f"holds sub-graphs of other settings ({', '.join(different)})"
            raise FileError(folder, problem, "choose those settings or another folder")
    elif folder.is_dir() and set(folder.iterdir()) - set(leftovers(folder)):
        raise FileError(folder, "holds other files", "choose a new or empty folder")
    else:
        write_text(folder / MANIFEST, json.dumps(asdict(manifest), indent=2, ensure_ascii=False) + "\n")
    remove_leftovers(folder)


def _write_pass(
    folder: Path, graph: KnowledgeGraph, sampler: Sampler, manifest: Manifest, pass_number: int, bar: Counter
) -> None:
    """Write the shards of a pass that are not there yet."""
    seed = combined_seed(manifest.seed, pass_number)
    triples = graph.triples("train")
    order = torch.randperm(len(triples), generator=torch.Generator().manual_seed(seed))
    batches = order.split(manifest.batch_size)
    for name, numbers in manifest.shards(pass_number):
        if (folder / name).is_file():
            bar.advance(len(numbers))
            continue
        subgraphs = []
        for number in numbers:
            generator = torch.Generator().manual_seed(combined_seed(seed, number))
            subgraphs.append(sampler.sample(triples[batches[number]], generator))
            bar.advance()
        write_bytes(folder / name, save(_packed(subgraphs), metadata={METADATA_ENTRY: manifest.sha256}))


def _packed(subgraphs: Sequence[SubGraph]) -> dict[str, Tensor]:
    """Sub-graphs end to end, with the offsets at which each begins.

    Ids are kept in 32 bits, half of what they take in memory; the names of more than 2³¹ entities fit no memory anyway.
    """
    tensors = {}
    for name in PACKED:
        parts = [getattr(subgraph, name) for subgraph in subgraphs]
        whole = torch.cat(parts)
        tensors[name] = whole if whole.dtype == torch.bool else whole.to(torch.int32)
        tensors[f"{name}_offsets"] = torch.tensor([0, *map(len, parts)]).cumsum(0)
    tensors["global_node"] = torch.tensor([subgraph.global_node for subgraph in subgraphs], dtype=torch.int32)
    return tensors
