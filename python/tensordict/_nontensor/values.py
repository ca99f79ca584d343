"""The objects of a batch, element by element."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from torch import Size, Tensor

from tensordict._kernel.change import Change
from tensordict._kernel.numbering import Sources


def same(one: Any, two: Any) -> bool:
    """Whether two objects are equal; those whose comparison gives no truth value are if all of it holds."""
    if one is two:
        return True
    if isinstance(one, Tensor) or isinstance(two, Tensor):
        return isinstance(one, Tensor) and isinstance(two, Tensor) and one.shape == two.shape and bool((one == two).all())
    try:
        found = one == two
        return bool(found.all()) if isinstance(found, np.ndarray) else bool(found)
    except Exception:  # a comparison of the user's objects that has no answer
        return False


def holders(node: Any) -> list[Any]:
    """For each element of a batch of objects, in the order of the elements, what holds its object."""
    if not node._stacked:
        return [node] * math.prod(node.batch_size)
    members = node.tensordicts.copy()
    if not node.stack_dim and not any([member._stacked or member._batch_size for member in members]):
        return members
    size = node.batch_size
    columns = [holders(member) for member in members]
    if -1 in size:  # there are no rows across members of unlike sizes: one member comes after the other
        return [item for column in columns for item in column]
    below = math.prod(size[node.stack_dim + 1 :])
    above = math.prod(size[: node.stack_dim])
    return [item for row in range(above) for column in columns for item in column[row * below : (row + 1) * below]]


def sources(change: Change, size: Size) -> list[int]:
    """For each element that a change makes of a batch, in order, the number of the one it comes from; -1 if from none."""
    return Sources(change, size).number.reshape(-1).tolist()


def nested(values: Sequence[Any], size: Sequence[int], make: Callable[[list[Any], int], Any] | None = None) -> Any:
    """Values in lists nested as the batch has dimensions; `make(rows, dim)` of each list, from the inside."""
    if not size:
        return values[0]
    return _rows(values, size, 0, make)


def _rows(values: Sequence[Any], size: Sequence[int], dim: int, make: Callable[[list[Any], int], Any] | None) -> Any:
    if dim == len(size) - 1:
        rows = list(values)
    else:
        step = math.prod(size[dim + 1 :])
        rows = [_rows(values[at * step : (at + 1) * step], size, dim + 1, make) for at in range(size[dim])]
    return rows if make is None else make(rows, dim)
