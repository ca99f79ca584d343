"""Softmax along a batch dimension."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from typing_extensions import Self

from tensordict._kernel.shapes import wrap
from tensordict._ops.trees import map_batched
from tensordict._ops.waist import Waist


class SoftmaxOps(Waist):
    """`softmax`."""

    __slots__ = ()

    def softmax(self, dim: int, dtype: torch.dtype | None = None) -> Self:
        """`torch.softmax` of each leaf along a batch dimension: an unlocked tensordict.

        Args:
            dim: the dimension; counted from the last batch dimension if negative.
            dtype: what the leaves are cast to before.

        Raises:
            IndexError: `dim` is no batch dimension.
            ValueError: `dim` is no integer.
        """
        return along(self, torch.softmax, dim, dtype)


def along(node: Any, function: Callable[..., Any], dim: int, dtype: torch.dtype | None = None) -> Any:
    """`function(leaf, dim, dtype)` of each leaf, with a batch dimension."""
    if not isinstance(dim, int):
        raise ValueError(f"dim must be an integer, got {dim!r} of type {type(dim).__name__}")
    at = wrap(dim, len(node.batch_size))
    return map_batched(node, lambda leaf: function(leaf, at, dtype))
