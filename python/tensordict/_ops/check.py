"""Whether what a tree says of itself holds for all that is below it."""

from __future__ import annotations

import functools
from typing import Any

from torch import Size

from tensordict._kernel.shapes import shape_of
from tensordict._leaves.unbatched import is_unbatched
from tensordict._types import Path, TensorCollection


class _TensorDictPropertyError(RuntimeError):
    """A batch size, device, name or lock that does not hold for an entry below."""


_TensorDictPropertyError.__module__ = "tensordict.utils"


def check_tree(node: Any, raise_exception: bool = True) -> bool:
    """Whether batch sizes, devices, names and locks of a tree agree with those of its entries.

    Args:
        node: a tensordict.
        raise_exception: raise where they do not, instead of returning False.

    Raises:
        _TensorDictPropertyError: they do not agree; it names the key.
    """
    found = _disagreement(node, ())
    if found is not None and raise_exception:
        raise _TensorDictPropertyError(found)
    return found is None


def checked(new: Any) -> Any:
    """A static method that builds nodes, with a check that the entries fit the batch size.

    What it then raises is an `AssertionError`: the method is only given what fits.
    """

    @functools.wraps(new)
    def build(fields: dict[str, Any], batch_size: Size, *args: Any, **kwargs: Any) -> Any:
        for key, value in fields.items():
            # trees of dimensions and specs, which torch builds, have leaves without a shape
            shape = batch_size if is_unbatched(value) else getattr(value, "shape", batch_size)
            assert shape[: len(batch_size)] == batch_size, (
                f"the entry {key!r} of shape {shape} has not the batch size {batch_size}"
            )
        return new(fields, batch_size, *args, **kwargs)

    return staticmethod(build)


def _disagreement(node: Any, path: Path) -> str | None:
    if node._stacked:
        below = (_disagreement(part, (*path, str(place))) for place, part in enumerate(node._parts()))
        return next(filter(None, below), None)
    size = node.batch_size
    for key, value in node._entries().items():
        here = (*path, key)
        is_node = isinstance(value, TensorCollection)
        # a leaf without a batch says which batch it is of
        shape = value.batch_size if is_node or is_unbatched(value) else shape_of(value)
        if shape[: len(size)] != size:
            return f"Batch-size mismatch: parent batch_size={size}, shape={shape} at key {here}"
        if node.device is not None and value.device != node.device:
            kind = "node" if is_node else "leaf"
            return f"Device mismatch: parent device={node.device}, {kind} device={value.device} at key {here}"
        if is_node:
            found = _node_disagreement(node, value, here) or _disagreement(value, here)
            if found is not None:
                return found
    return None


def _node_disagreement(node: Any, value: Any, path: Path) -> str | None:
    if node.is_locked and not value.is_locked:
        return f"Lock mismatch: the parent is locked, the tensordict at key {path} is not"
    names = node._names
    if names is not None and value.names[: len(names)] != names:
        return f"Names mismatch: parent names={names}, names={value.names} at key {path}"
    return None
