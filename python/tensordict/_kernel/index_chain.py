"""Indices that were applied to a tensor one after the other, as one index."""

from __future__ import annotations

import operator
from typing import Any

from torch import Size, Tensor


class NotAnIndexError(Exception):
    """A chain of indices that no single index stands for."""


def compose(shape: Size | Tensor, chain: tuple[Any, ...]) -> Any:
    """The one index that does what the indices of `chain` do one after the other to a tensor of `shape`."""
    if not chain:
        return None
    if not chain[0]:
        # `None` by itself would stand for no index.
        return chain[1] if chain[1] is not None else (None,)
    if isinstance(shape, Tensor):
        raise NotAnIndexError
    indices = []
    while chain:
        chain, index = chain
        indices.append(index)
    axes: list[Any] = [range(size) for size in shape]
    for index in reversed(indices):
        axes = _apply(axes, index)
    return tuple(slice(axis.start, axis.stop, axis.step) if isinstance(axis, range) else axis for axis in axes)


def _apply(axes: list[Any], index: Any) -> list[Any]:
    """Indexes `axes`: the positions of a dimension that are left, the one position of one that is gone, `None` for a
    new dimension."""
    items = list(index) if isinstance(index, tuple) else [index]
    gone = sum(type(axis) is int for axis in axes)
    taken = sum(item is not None and item is not Ellipsis for item in items)
    # Whatever the index does not name is taken whole, where the ellipsis is or at the end.
    at = next((at for at, item in enumerate(items) if item is Ellipsis), len(items))
    items[at : at + 1] = [slice(None)] * (len(axes) - gone - taken)
    result: list[Any] = []
    rest = iter(axes)
    for item in items:
        if item is None:
            result.append(None)
            continue
        axis = next(rest)
        while type(axis) is int:
            result.append(axis)
            axis = next(rest)
        if axis is not None:
            result.append(axis[item if isinstance(item, slice) else operator.index(item)])
        elif isinstance(item, slice):
            if not range(1)[item]:
                raise NotAnIndexError
            result.append(None)
    return result + list(rest)
