"""Stacking and concatenating tensordicts of the same keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Size

from tensordict._kernel import native
from tensordict._kernel.change import Change
from tensordict._ops.waist import leaves_like, leaves_of, refill


def _columns(items: Sequence[Any]) -> list[list[Any]]:
    """For each leaf of the first item, the leaves of all items at its place."""
    first = items[0]
    rows = [leaves_of(first)] + [leaves_like(first, item) for item in items[1:]]
    return [list(column) for column in zip(*rows)]


def _device(items: Sequence[Any]) -> torch.device | None:
    """The device that all items have, if it is one."""
    device: torch.device | None = items[0].device
    return device if all(item.device == device for item in items) else None


def _finish(items: Sequence[Any], leaves: list[Any], change: Change, out: Any) -> Any:
    result = refill(items[0], iter(leaves), change)
    if _device(items) != result.device:
        result.clear_device_()
    return result if out is None else out.update_(result)


def stack_tensordicts(items: Sequence[Any], dim: int = 0, out: Any = None) -> Any:
    """A tensordict with a new batch dimension at `dim`, along which its leaves are those of `items`.

    Raises:
        RuntimeError: there is no item, the batch sizes, keys or shapes differ.
        IndexError: `dim` is out of range.
    """
    items = list(items)
    if not items:
        raise RuntimeError("stack expects a non-empty list of tensordicts")
    batch_size = items[0].batch_size
    for place, item in enumerate(items):
        if item.batch_size != batch_size:
            raise RuntimeError(
                "stacking tensordicts requires them to have congruent batch sizes, got "
                f"td[{place}].batch_size={item.batch_size} and td[0].batch_size={batch_size}"
            )
    dims = len(batch_size)
    if not -dims - 1 <= dim <= dims:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-dims - 1}, {dims}], but got {dim})")
    at = dim % (dims + 1)
    try:
        columns = _columns(items)
    except KeyError as error:
        raise RuntimeError(
            f"The sets of keys in the tensordicts to stack are exclusive ({error.args[0]}). Consider using "
            "`LazyStackedTensorDict.maybe_dense_stack` instead."
        ) from error
    _check_shapes(items, columns)
    sizes = Size((*batch_size[:at], len(items), *batch_size[at:]))
    change = Change(None, dims, sizes, [*range(at), None, *range(at, dims)])  # type: ignore[arg-type]
    leaves = native.stack(columns, at)
    if leaves is None:
        leaves = [torch.stack(column, at) for column in columns]
    return _finish(items, leaves, change, out)


def _check_shapes(items: Sequence[Any], columns: list[list[Any]]) -> None:
    for place, column in enumerate(columns):
        shape = column[0].shape
        for value in column:
            if value.shape != shape:
                key = list(items[0].keys(True, True))[place]
                raise RuntimeError(
                    f"The shapes of the tensors to stack is incompatible: {value.shape} vs {shape} for key {key}."
                )


def cat_tensordicts(items: Sequence[Any], dim: int = 0, out: Any = None) -> Any:
    """A tensordict whose leaves are those of `items` one after the other along the batch dimension `dim`.

    Raises:
        RuntimeError: there is no item, `dim` is no batch dimension, or the other dimensions differ.
        KeyError: the keys differ.
    """
    items = list(items)
    if not items:
        raise RuntimeError("cat expects a non-empty list of tensordicts")
    batch_size = items[0].batch_size
    dims = len(batch_size)
    if not -dims <= dim < dims:
        raise RuntimeError(
            f"dim must be in the range 0 <= dim < len(batch_size), got dim={dim} and batch_size={list(batch_size)}"
        )
    at = dim % dims
    for place, item in enumerate(items):
        size = item.batch_size
        if len(size) != dims or size[:at] != batch_size[:at] or size[at + 1 :] != batch_size[at + 1 :]:
            raise RuntimeError(
                f"concatenating along dim {at} requires the other batch dimensions to be equal, got "
                f"td[{place}].batch_size={size} and td[0].batch_size={batch_size}"
            )
    columns = _columns(items)
    total = sum(item.batch_size[at] for item in items)
    sizes = Size((*batch_size[:at], total, *batch_size[at + 1 :]))
    leaves = native.cat(columns, at)
    if leaves is None:
        leaves = [torch.cat(column, at) for column in columns]
    return _finish(items, leaves, Change(None, dims, sizes, range(dims)), out)  # type: ignore[arg-type]


class JoinOps:
    """The joins as class methods."""

    __slots__ = ()

    @classmethod
    def stack(cls, input: Sequence[Any], dim: int = 0, *, out: Any = None) -> Any:
        """A tensordict with a new batch dimension at `dim`: `torch.stack` of each leaf (see `tensordict.stack`)."""
        return stack_tensordicts(input, dim, out)

    @classmethod
    def cat(cls, input: Sequence[Any], dim: int = 0, *, out: Any = None) -> Any:
        """The leaves one after the other along a batch dimension: `torch.cat` of each leaf (see `tensordict.cat`)."""
        return cat_tensordicts(input, dim, out)
