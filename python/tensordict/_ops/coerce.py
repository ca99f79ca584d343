"""Turning what a user gives into what a tensordict stores."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Number
from typing import Any

import numpy as np
import torch
from torch import Size, Tensor

from tensordict._kernel.errors import batch_mismatch
from tensordict._kernel.registry import is_branch
from tensordict._kernel.settings import LIST_TO_STACK
from tensordict._kernel.shapes import shape_of
from tensordict._leaves.unbatched import is_unbatched
from tensordict._ops.trees import copy_nodes, divided
from tensordict._reexport import dense_class, maybe_dense_stack, non_tensor, object_stack
from tensordict._types import TensorCollection

# What is kept as it is without an attempt to make a tensor of it.
_OBJECTS = (str, bytes, type(None))


class Dealt(list[Any]):
    """What is to be stored in each member of a stack, checked by it."""


def _deal(node: Any, key: str, value: Any, non_blocking: bool) -> Any:
    """What of `value` is to be stored in each member of a stack of unlike batch sizes, which knows its own; else None."""
    parts = divided(node, value)
    return None if parts is None else Dealt([coerce(part, key, piece, non_blocking) for part, piece, _ in parts])


def as_size(batch_size: Any) -> Size:
    """A batch size given as a size, a list or tuple of integers, or one integer.

    Raises:
        ValueError: it is none of these.
    """
    if type(batch_size) is Size:
        return batch_size
    if isinstance(batch_size, int):
        return Size((batch_size,))
    if isinstance(batch_size, Tensor):
        return Size(batch_size.tolist())
    try:
        return Size(batch_size)
    except (TypeError, ValueError):
        raise ValueError(
            f"batch_size must be an integer or a sequence of integers, got {batch_size!r} of type {type(batch_size).__name__}"
        ) from None


def as_device(device: Any) -> torch.device | None:
    """A device given as a device, a string or an index; a CUDA device without an index gets the current one."""
    if device is None:
        return None
    device = torch.device(device)
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", torch.cuda.current_device() if torch.cuda.is_available() else 0)
    return device


def coerce(node: Any, key: str, value: Any, non_blocking: bool = False) -> Any:
    """The leaf or node to store in `node` under `key` for `value`.

    Tensors are stored as they are (moved to the device of `node`, if it has one); mappings become nodes; numbers, arrays
    and lists become tensors; a node whose batch size or device does not fit is copied, its leaves shared; any other object,
    and the elements of any other list, are kept as objects.

    Raises:
        RuntimeError: the leading dimensions of `value` are not the batch size of `node`.
    """
    if node._schema is not None:
        value = node._schema.admit(node, key, value)
    if isinstance(value, Tensor):
        return _coerce_tensor(node, key, value, non_blocking)
    if isinstance(value, TensorCollection):
        return coerce_node(node, value, non_blocking, key)
    if isinstance(value, Mapping):
        child = node._below()
        fill(child, value, non_blocking)
        return child
    if isinstance(value, np.ndarray) and value.dtype.names is not None:
        return coerce_node(node, dense_class().from_struct_array(value), non_blocking)
    if isinstance(value, _OBJECTS):
        return non_tensor(value, node.batch_size, node.device)
    if type(value) is list and any([isinstance(item, TensorCollection) for item in value]):
        return _coerce_object(node, key, value, non_blocking)  # torch takes them for sequences
    try:
        tensor = as_tensor(key, value, node.device)
    except TypeError:
        return _coerce_object(node, key, value, non_blocking)
    return _coerce_tensor(node, key, tensor, non_blocking, isinstance(value, Number))


def _coerce_object(node: Any, key: str, value: Any, non_blocking: bool) -> Any:
    """The node that holds what cannot become a tensor: one for each element of a list, else one for the batch."""
    if type(value) is list and -1 in node.batch_size and (dealt := _deal(node, key, value, non_blocking)) is not None:
        return dealt
    if type(value) is not list or not LIST_TO_STACK.value:
        return non_tensor(value, node.batch_size, node.device)
    if all(map(is_branch, value)):
        return coerce_node(node, maybe_dense_stack(value), non_blocking)
    return coerce_node(node, object_stack(value, node.device), non_blocking, key)


def _coerce_tensor(node: Any, key: str, value: Tensor, non_blocking: bool, scalar: bool = False) -> Tensor:
    batch_size = node.batch_size
    shape = shape_of(value) if value.is_nested else value.shape
    if type(value) is not Tensor and is_unbatched(value):
        value = value._with_batch(batch_size)  # type: ignore[attr-defined]
    elif shape[: len(batch_size)] != batch_size:
        dealt = _deal(node, key, value, non_blocking) if value.is_nested and -1 in batch_size else None
        if dealt is not None:
            return dealt
        raise batch_mismatch(key, batch_size, shape, scalar)
    device = node.device
    if device is not None and value.device != device:
        value = value.to(device, non_blocking=non_blocking)
    return value


def coerce_node(node: Any, value: Any, non_blocking: bool = False, key: str = "") -> Any:
    """A node as it is stored below `node`: itself where batch size, device and names fit, else a copy that shares leaves."""
    batch_size = node.batch_size
    if -1 in batch_size and (dealt := _deal(node, key, value, non_blocking)) is not None:
        return dealt
    if value.batch_size[: len(batch_size)] != batch_size:
        try:
            value = _rebatched(node, value, non_blocking)
        except RuntimeError as error:
            if is_branch(value):
                raise
            raise batch_mismatch(key, batch_size, value.batch_size) from error
    device = node.device
    if device is not None and value.device != device:
        value = value.to(device, non_blocking=non_blocking)
    return _with_names(node, value)


def _rebatched(node: Any, value: Any, non_blocking: bool) -> Any:
    value._check_batch_size(node.batch_size)
    child = value._rebuild({}, node.batch_size, value.device, None)
    for key, entry in value._entries().items():
        child._set_str(key, coerce(child, key, entry, non_blocking))
    return child


def _with_names(node: Any, value: Any) -> Any:
    """Gives the names of the shared dimensions to whichever side lacks them: to `node` itself, or to a copy of `value`.

    Raises:
        RuntimeError: both sides have a name for a dimension, and they differ.
    """
    outer, inner = node._names, value._names
    if outer is None and inner is None:
        return value
    dims = len(node.batch_size)
    if outer is None:
        if any(name is not None for name in inner[:dims]):
            node._adopt_names(inner[:dims])
        return value
    inner = inner if inner is not None else [None] * len(value.batch_size)
    if any(name is not None and name != wanted for wanted, name in zip(outer, inner)):
        raise RuntimeError(f"the dimensions of the tensordict are named {outer}, those of the value {inner}")
    names = [*outer, *inner[dims:]]
    if names != inner:
        value = copy_nodes(value)
        value._adopt_names(names)
    return value


def as_tensor(key: str, value: Any, device: torch.device | None) -> Tensor:
    """A number, array or (nested) list of numbers or tensors as a tensor.

    Raises:
        TypeError: the value is none of these; it names the key and the type.
    """
    try:
        if isinstance(value, (bool, int, float, complex)):
            return torch.tensor(value, device=device)
        if isinstance(value, np.ndarray):
            return torch.as_tensor(value, device=device)
        if isinstance(value, np.generic):
            return torch.as_tensor(value, device=device)
        if isinstance(value, (list, tuple)):
            if value and all(isinstance(item, Tensor) for item in value):
                return torch.stack(list(value))
            return torch.tensor(value, device=device)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"the value of key {key!r}, a {type(value).__name__}, cannot become a tensor: {error}") from error
    raise TypeError(
        f"the value of key {key!r} is a {type(value).__name__}; expected a tensor, a tensordict, a mapping, a number, an "
        "array or a list of numbers"
    )


def fill(node: Any, source: Mapping[Any, Any], non_blocking: bool = False) -> None:
    """Stores every entry of `source` in a new, unlocked `node`."""
    for key, value in source.items():
        if type(key) is str:
            node._set_str(key, coerce(node, key, value, non_blocking))
        else:
            node.set(key, value, non_blocking=non_blocking)
