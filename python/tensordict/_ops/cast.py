"""Moves between devices and casts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Size, Tensor
from typing_extensions import Self

from tensordict._ops.coerce import as_device, as_size
from tensordict._ops.rows import relock
from tensordict._ops.waist import Waist, copy_nodes, leaves_of, map_leaves
from tensordict._types import TensorCollection

T = TypeVar("T")
Filter = Callable[[Any, Tensor], bool]


def cast(dtype: torch.dtype, name: str) -> Callable[..., Any]:
    """A method that casts all leaves, or those that a filter chooses, to `dtype`."""

    def method(self: Any, *, cast_filter: Filter | None = None) -> Any:
        return _cast(self, dtype, cast_filter)

    method.__name__ = name
    method.__qualname__ = f"TensorDictBase.{name}"
    method.__doc__ = f"""All leaves cast to `{dtype}`; a leaf that has it already is shared.

    Args:
        cast_filter: `fn(key, leaf)`, true for the leaves to cast, with the key as a tuple; all if not given.
    """
    return method


def _cast(node: Any, dtype: torch.dtype, chosen: Filter | None) -> Any:
    if chosen is None:
        return relock(map_leaves(node, lambda leaf: leaf.to(dtype)), node)
    return relock(_cast_chosen(node, dtype, chosen, ()), node)


def _cast_chosen(node: Any, dtype: torch.dtype, chosen: Filter, path: tuple[str, ...]) -> Any:
    fields = {}
    for key, value in node._fields().items():
        if isinstance(value, TensorCollection):
            fields[key] = _cast_chosen(value, dtype, chosen, (*path, key))
        else:
            fields[key] = value.to(dtype) if chosen((*path, key), value) else value
    return node._rebuild(fields, node.batch_size, node.device, node._names)


class _Target:
    """What the arguments of `to` ask for."""

    __slots__ = ("batch_size", "cast_filter", "device", "dtype", "inplace", "memory_format", "non_blocking")

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        options = dict(kwargs)
        self.device = options.pop("device", None)
        self.dtype = options.pop("dtype", None)
        self.non_blocking = bool(options.pop("non_blocking", False))
        self.batch_size = options.pop("batch_size", None)
        self.cast_filter = options.pop("cast_filter", None)
        self.memory_format = options.pop("memory_format", None)
        self.inplace = bool(options.pop("inplace", False))
        others = list(args)
        other = options.pop("other", None)
        if other is not None:
            others.append(other)
        for ignored in ("copy", "non_blocking_pin", "num_threads"):
            options.pop(ignored, None)
        if options:
            raise TypeError(f"to() got unexpected keyword arguments {sorted(options)}")
        for value in others:
            self._take(value)
        self.device = as_device(self.device)

    def _take(self, value: Any) -> None:
        if isinstance(value, torch.dtype):
            self.dtype = value
        elif isinstance(value, bool):
            self.non_blocking = value
        elif isinstance(value, (str, int, torch.device)):
            self.device = value
        elif isinstance(value, TensorCollection):
            self.device, self.dtype = value.device, value.dtype  # type: ignore[attr-defined]
        elif isinstance(value, Tensor):
            self.device, self.dtype = value.device, value.dtype
        elif value is not None:
            raise TypeError(
                f"to() takes devices, dtypes, tensors and tensordicts, got {value!r} of type {type(value).__name__}"
            )


class CastOps(Waist):
    """`to` and the casts."""

    __slots__ = ()

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """The tensordict on another device or with another dtype.

        Args:
            *args: a device, a dtype, a device and a dtype, a tensor or a tensordict to be like.
            device: the device.
            dtype: the dtype of the leaves.
            non_blocking: let copies from pinned memory to a GPU run while the CPU goes on. Copies to the CPU are always
                waited for, so that no value is read too early.
            batch_size: the batch size of the result.
            cast_filter: `fn(key, leaf)`, true for the leaves that are cast to `dtype`, with the key as a tuple.
            inplace: replace the leaves of this tensordict and return it.

        Returns:
            This tensordict itself, where it has the device already and nothing else is asked for; otherwise a new one,
            whose leaves share storage where nothing had to change.
        """
        target = _Target(args, kwargs)
        result: Any = self
        if target.dtype is not None:
            result = _cast(result, target.dtype, target.cast_filter)
        if target.device is not None and (target.device != self.device or target.memory_format is not None):
            result = _moved(result, target)
        if target.batch_size is not None and as_size(target.batch_size) != result.batch_size:
            result = copy_nodes(result) if result is self else result
            result.batch_size = target.batch_size
        if target.inplace:
            return _adopt(self, result)
        return result

    def cpu(self, **kwargs: Any) -> Self:
        """The tensordict on the CPU."""
        return self.to("cpu", **kwargs)

    def cuda(self, device: Any = None, **kwargs: Any) -> Self:
        """The tensordict on a CUDA device, the current one if not given."""
        return self.to(
            torch.device("cuda") if device is None else torch.device("cuda", device) if isinstance(device, int) else device,
            **kwargs,
        )

    def type(self, dst_type: torch.dtype, *, cast_filter: Filter | None = None) -> Self:
        """All leaves cast to `dst_type` (see `to`)."""
        return _cast(self, dst_type, cast_filter)

    half = cast(torch.float16, "half")
    float = cast(torch.float32, "float")
    double = cast(torch.float64, "double")
    bfloat16 = cast(torch.bfloat16, "bfloat16")
    int = cast(torch.int32, "int")
    bool = cast(torch.bool, "bool")


def _moved(node: Any, target: _Target) -> Any:
    # without a wait the CPU could read what has not arrived
    waits = target.device.type == "cpu"
    options: dict[str, Any] = {"non_blocking": target.non_blocking and not waits}
    if target.memory_format is not None:
        options["memory_format"] = target.memory_format
    device = target.device
    result = map_leaves(node, lambda leaf: leaf.to(device, **options))
    result._label_device(device)
    return relock(result, node)


def _adopt(node: Any, result: Any) -> Any:
    """Makes the leaves, device and batch size of `result` those of `node`, whose entries must not change if it is locked."""
    if result is node:
        return node
    if node.is_locked and any(new is not old for new, old in zip(leaves_of(result), leaves_of(node))):
        node._check_unlocked()
    for key, value in result._fields().items():
        current = node._fields()[key]
        if isinstance(value, TensorCollection):
            _adopt(current, value)
        else:
            node._set_str(key, value)
    node._set_device(result.device)
    node._set_batch_size(Size(result.batch_size))
    return node
