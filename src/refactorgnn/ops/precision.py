"""Mixed precision: what autocast means for the score products."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import torch
from torch import Tensor

Result = TypeVar("Result")


def product_dtype(tensor: Tensor) -> torch.dtype:
    """What a product's operands are to be: under autocast its type, else that of the tensor."""
    device = tensor.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else tensor.dtype


def mixed_precision(product: Callable[..., Result]) -> Callable[..., Result]:
    """Under autocast, give a product of queries and candidates narrow operands, and keep its sums in float32.

    Autocast itself would narrow the result of every product inside as well, logits and normalisers included. The states
    stay float32 outside, and so does their gradient.
    """

    @wraps(product)
    def narrowed(queries: Tensor, candidates: Tensor, *arguments: Any, **options: Any) -> Result:
        device = queries.device.type
        if not torch.is_autocast_enabled(device):
            return product(queries, candidates, *arguments, **options)
        dtype = product_dtype(queries)
        with torch.autocast(device, enabled=False):
            return product(queries.to(dtype), candidates.to(dtype), *arguments, **options)

    return narrowed


def full_precision(product: Callable[..., Result]) -> Callable[..., Result]:
    """Keep autocast out of a method whose first argument is a tensor: it computes in the type it is given."""

    @wraps(product)
    def widened(self: Any, queries: Tensor, *arguments: Any, **options: Any) -> Result:
        with torch.autocast(queries.device.type, enabled=False):
            return product(self, queries, *arguments, **options)

    return widened
