"""Replaying on a GPU what is the same every time.

A step on a small graph is a hundred kernels of a few microseconds each, and to launch them takes the host longer than
to run them takes the GPU. As long as no tensor changes its shape or place, a CUDA graph records them once and launches
them all at a stroke.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


class Lane:
    """A stream of a GPU with random numbers of its own: several trainings in several lanes share the GPU.

    Args:
        device: The GPU.
    """

    def __init__(self, device: torch.device) -> None:
        self.index = device.index if device.index is not None else torch.cuda.current_device()
        self.stream = torch.cuda.Stream(device)
        self._randomness = torch.cuda.default_generators[self.index].clone_state()

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Launch in this lane, and draw from its numbers."""
        generator = torch.cuda.default_generators[self.index]
        before = generator.graphsafe_get_state()
        generator.graphsafe_set_state(self._randomness)
        try:
            with torch.cuda.stream(self.stream):
                yield
        finally:
            generator.graphsafe_set_state(before)


class Replayed:
    """A function that works on the same tensors whenever it is called.

    The first call runs it as it is, which also does what is done once (plans of products, the optimiser's state). The
    second records it, and from then on a call replays the record. Random numbers differ between calls as they would
    without the record: the generator's seed and place are read when a replay begins.

    Args:
        function: It must neither wait for the GPU nor depend on anything that changes on the host.
        lane: Where it runs; calls must be made inside it.
    """

    def __init__(self, function: Callable[[], Tensor], lane: Lane) -> None:
        self._function = function
        self._lane = lane
        self._num_calls = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._result: Tensor | None = None

    def __call__(self) -> Tensor:
        """The result, in a tensor that the next call overwrites."""
        self._num_calls += 1
        if self._num_calls == 1:
            return self._function()
        if self._graph is None:
            graph = torch.cuda.CUDAGraph()
            with _without_collection(), torch.cuda.graph(graph, stream=self._lane.stream):
                self._result = self._function()
            self._graph = graph
        self._graph.replay()
        assert self._result is not None
        return self._result


@contextmanager
def _without_collection() -> Iterator[None]:
    """Collect no garbage for a moment: to destroy an earlier training's record would spoil the one being made."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
