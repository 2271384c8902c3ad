"""Where to compute."""

from __future__ import annotations

import torch

from refactorgnn.errors import UserError


def usable_device(name: str) -> torch.device:
    """The device of that name, once something has been computed on it.

    Raises:
        UserError: if there is no such device here.
    """
    try:
        torch.zeros(1, device=name).item()
    except (RuntimeError, AssertionError, ImportError) as error:
        raise UserError(f"device {name!r} cannot be used here: choose cpu, or cuda where there is a GPU.") from error
    return torch.device(name)
