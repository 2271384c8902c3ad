"""Sub-graphs from disk, one at a time, in an order of their own each epoch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch.utils.data import DataLoader, Dataset

from refactorgnn.errors import FileError, UserError
from refactorgnn.sampling.store import METADATA_ENTRY, PACKED, read_manifest
from refactorgnn.sampling.subgraphs import SubGraph
from refactorgnn.seeds import combined_seed


class SubGraphDataset(Dataset[SubGraph]):
    """The sub-graphs of one pass over the train triples, read from disk when asked for.

    Only the slices of one sub-graph are read; nothing is kept open, so that worker processes can share the dataset.

    Args:
        folder: What :func:`refactorgnn.sampling.write_subgraphs` has written.
        pass_number: Which pass, from 1.
    """

    def __init__(self, folder: str | Path, pass_number: int = 1) -> None:
        self.folder = Path(folder)
        self.manifest = read_manifest(folder)
        if not 1 <= pass_number <= self.manifest.passes:
            raise UserError(f"there is no pass {pass_number} in {folder}: choose one of 1…{self.manifest.passes}.")
        self.pass_number = pass_number
        self._shards = [self.folder / name for name, _ in self.manifest.shards(pass_number)]
        for path in self._shards:
            if not path.is_file():
                raise FileError(path, "is missing", "sample again with the same settings, which does what is left")

    def __len__(self) -> int:
        return self.manifest.num_subgraphs

    def __getitem__(self, index: int) -> SubGraph:
        if not 0 <= index < len(self):
            raise IndexError(index)
        shard, row = divmod(index, self.manifest.shard_size)
        path = self._shards[shard]
        try:
            return self._read(path, row)
        except FileError:
            raise
        except (SafetensorError, OSError, ValueError) as error:
            raise FileError(
                path, "is damaged or cut short", "delete it and sample again, which makes it anew"
            ) from error

    def _read(self, path: Path, row: int) -> SubGraph:
        with safe_open(path, framework="pt") as file:
            if (file.metadata() or {}).get(METADATA_ENTRY) != self.manifest.sha256:
                raise FileError(path, "belongs to other settings than its folder", "delete it and sample again")
            tensors = {}
            for name in PACKED:
                start, stop = file.get_slice(f"{name}_offsets")[row : row + 2].tolist()
                part = file.get_slice(name)[start:stop]
                tensors[name] = part if part.dtype == torch.bool else part.to(torch.int64)
            return SubGraph(**tensors, global_node=int(file.get_slice("global_node")[row : row + 1]))


def subgraph_loader(
    folder: str | Path, *, epoch: int, seed: int = 0, num_workers: int = 0, rank: int = 0, world_size: int = 1
) -> DataLoader[SubGraph]:
    """The sub-graphs of an epoch, one at a time.

    An epoch is one pass; after the last pass the first comes again, in another order. The order depends on
    ``(seed, epoch)`` alone, and each of several processes takes every ``world_size``-th of it: together they see each
    sub-graph once. Where the number does not divide, the first ranks have one more; ``len(loader)`` says how many.

    Args:
        folder: What :func:`refactorgnn.sampling.write_subgraphs` has written.
        epoch: The epoch, from 1.
        seed: The seed of the orders.
        num_workers: Processes that read ahead; 0 reads in this one.
        rank: The number of this process, from 0.
        world_size: How many processes train together.
    """
    if epoch < 1:
        raise UserError(f"there is no epoch {epoch}: they are counted from 1.")
    if not 0 <= rank < world_size:
        raise UserError(f"rank {rank} is none of {world_size} processes: choose one of 0…{world_size - 1}.")
    dataset = SubGraphDataset(folder, 1 + (epoch - 1) % read_manifest(folder).passes)
    # A generator of its own, also for the loader, which would draw from torch's default one otherwise.
    generator = torch.Generator().manual_seed(combined_seed(seed, epoch))
    order = torch.randperm(len(dataset), generator=generator)[rank::world_size].tolist()
    return DataLoader(
        dataset, batch_size=None, sampler=order, num_workers=num_workers, collate_fn=_as_it_is, generator=generator
    )


def _as_it_is(item: Any) -> Any:
    return item
