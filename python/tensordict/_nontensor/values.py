"""The objects of a batch, element by element."""

from __future__ import annotations

import copy
import math
from collections import OrderedDict, defaultdict, deque
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
    if isinstance(one, np.ndarray) and isinstance(two, np.ndarray) and one.shape != two.shape:
        return False
    try:
        found = one == two
        return found if type(found) is bool else bool(np.asarray(found).all())
    except Exception:  # a comparison of the user's objects that has no answer, or of a list or dict that holds such
        return _same_within(one, two)


def _same_within(one: Any, two: Any) -> bool:
    kind = type(one)
    if kind is not type(two) or kind not in (list, tuple, dict) or len(one) != len(two):
        return False
    try:
        if kind is dict:
            return one.keys() == two.keys() and all([same(value, two[key]) for key, value in one.items()])
        return all([same(item, other) for item, other in zip(one, two)])
    except RecursionError:  # it holds itself
        return False


def interchangeable(one: Any, two: Any) -> bool:
    """Whether nobody can tell two objects apart: then one may stand for the other. 1 and True can, and two equal dicts."""
    if one is two:
        return True
    kind = type(one)
    if kind is not type(two):
        return False
    if kind is tuple:
        return len(one) == len(two) and all(map(interchangeable, one, two))
    return kind in _FIXED and (repr(one) == repr(two) if kind is float or kind is complex else one == two)


def alike(one: Any, two: Any) -> bool:
    """Whether two objects are of one class and equal, so that one holder may hold the first of them for both."""
    return type(one) is type(two) and same(one, two)


# Objects of these classes cannot change, so that no copy of them is needed.
_FIXED = frozenset({str, int, float, bool, type(None), bytes, complex, type, type(same), type(len)})
_CONTAINERS = (list, tuple, dict, deque, OrderedDict, defaultdict)


def copied(value: Any, known: dict[int, Any]) -> Any:
    """A deep copy of an object; where it cannot be copied, the object, or if it is a list, tuple or dict one of copies.

    Args:
        value: the object.
        known: the copies of objects that were met before, by their ids; it is written to.
    """
    if type(value) in _FIXED:
        return value
    if id(value) not in known:
        try:
            known[id(value)] = copy.deepcopy(value)
        except Exception:  # a lock, a file, a tensor with a history, what the class of the object says
            known[id(value)] = value  # also within itself
            known[id(value)] = _made(value, lambda item: copied(item, known))
    return known[id(value)]


def rebuilt(value: Any) -> Any:
    """An object as a shallow copy has it: the same, but for lists, tuples and dicts, which are made anew at all depths."""
    if type(value) not in _CONTAINERS:
        return value
    try:
        return _rebuilt(value)
    except RecursionError:  # it holds itself
        return value


def _rebuilt(value: Any) -> Any:
    return _made(value, _rebuilt) if type(value) in _CONTAINERS else value


def _made(value: Any, function: Callable[[Any], Any]) -> Any:
    """A list, tuple or dict like this one with what a function makes of its values; all other objects as they are."""
    kind = type(value)
    if kind is tuple:
        items = tuple([function(item) for item in value])
        return items if any([item is not before for item, before in zip(items, value)]) else value
    if kind not in _CONTAINERS:
        return value
    made = copy.copy(value)
    for key in range(len(made)) if kind is list or kind is deque else made:
        made[key] = function(made[key])
    return made


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
