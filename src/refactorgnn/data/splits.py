"""How one file of triples becomes train, valid and test, and how triples are cut into random parts."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from refactorgnn.errors import UserError


def split_triples(triples: Tensor, *, valid: float = 0.1, test: float = 0.1, seed: int = 0) -> dict[str, Tensor]:
    """Split triples so that every entity and every relation stays in train.

    The rule: shuffle the triples with ``seed``. A triple that is the first, in that order, to mention its head, its
    tail or its relation belongs to train. Of the others the first ``test`` share of all triples become test, the next
    ``valid`` share become valid, and the rest joins train. When there are too few others, test and valid shrink in
    proportion. Within each split the triples keep their original order.

    Args:
        triples: Shape ``(num_triples, 3)``, distinct.
        valid: The share of all triples to set aside for validation.
        test: The share of all triples to set aside for testing.
        seed: The seed of the shuffle.

    Returns:
        Tensors by split name, together a partition of ``triples``.
    """
    if valid < 0 or test < 0 or valid + test >= 1:
        raise UserError(
            f"shares valid={valid} and test={test} leave nothing to train on: they must add up to less than 1."
        )
    num_triples = len(triples)
    order = np.random.default_rng(seed).permutation(num_triples)
    movable = order[~_is_first_mention(triples.numpy()[order])]
    wanted_test, wanted_valid = int(num_triples * test), int(num_triples * valid)
    shrink = min(1.0, len(movable) / max(1, wanted_test + wanted_valid))
    num_test, num_valid = int(wanted_test * shrink), int(wanted_valid * shrink)
    split_of = np.zeros(num_triples, dtype=np.int8)
    split_of[movable[:num_test]] = 2
    split_of[movable[num_test : num_test + num_valid]] = 1
    names = ("train", "valid", "test")
    return {name: triples[torch.from_numpy(split_of == code)] for code, name in enumerate(names)}


def _is_first_mention(shuffled: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Which triples, in the given order, are the first to mention one of their entities or their relation."""
    head, relation, tail = shuffled.T
    first = np.zeros(len(shuffled), dtype=bool)
    first[np.unique(relation, return_index=True)[1]] = True
    # Heads and tails interleaved: position 2i is the head of triple i, 2i + 1 its tail.
    mentions = np.stack([head, tail], axis=1).reshape(-1)
    first[np.unique(mentions, return_index=True)[1] // 2] = True
    return first
