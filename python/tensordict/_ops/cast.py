"""Casts to another dtype."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor
from typing_extensions import Self

from tensordict._ops.leafwise import relock
from tensordict._ops.trees import by_member, map_leaves
from tensordict._ops.waist import Waist
from tensordict._types import TensorCollection

Filter = Callable[[Any, Tensor], bool]


def cast(dtype: torch.dtype, name: str = "") -> Callable[..., Any]:
    """A method that casts all leaves, or those that a filter chooses, to `dtype`."""
    name = name or str(dtype).removeprefix("torch.")

    def method(self: Any, *, cast_filter: Filter | None = None) -> Any:
        return cast_leaves(self, lambda leaf: leaf.to(dtype), cast_filter)

    method.__name__ = name
    method.__qualname__ = f"TensorDictBase.{name}"
    method.__doc__ = f"""All leaves cast to `{dtype}`; a leaf that has it already is shared.

    Args:
        cast_filter: `fn(key, leaf)`, true for the leaves to cast, with the key as a tuple; all if not given.
    """
    return method


def quantized(dtype: torch.dtype) -> Callable[..., Any]:
    """A deprecated method that casts to a quantized `dtype`, which torch refuses for leaves that are not quantized."""
    name = str(dtype).removeprefix("torch.")

    def method(self: Any, *, cast_filter: Filter | None = None) -> Any:
        warnings.warn(
            f"TensorDictBase.{name}() is deprecated and will be removed in TensorDict 0.18. Use td.apply(lambda x: "
            f"torch.quantize_per_tensor(x, scale, zero_point, {dtype})) instead.",
            DeprecationWarning,
            stacklevel=2,
        )
        return cast_leaves(self, lambda leaf: leaf.to(dtype), cast_filter)

    method.__name__ = name
    method.__qualname__ = f"TensorDictBase.{name}"
    method.__doc__ = f"""Deprecated: apply `torch.quantize_per_tensor` instead. All leaves cast to `{dtype}`.

    Args:
        cast_filter: `fn(key, leaf)`, true for the leaves to cast, with the key as a tuple; all if not given.

    Raises:
        RuntimeError: torch has no such cast for a leaf.
    """
    return method


def cast_leaves(node: Any, leaf: Callable[[Any], Any], chosen: Filter | None) -> Any:
    """A tree like `node` with `leaf` of each leaf, or of those that a filter chooses; with the lock of `node`."""
    chosen = node._cast_filter if chosen is None else chosen
    return relock(map_leaves(node, leaf) if chosen is None else _cast_chosen(node, leaf, chosen, ()), node)


@by_member()
def _cast_chosen(node: Any, leaf: Callable[[Any], Any], chosen: Filter, path: tuple[str, ...]) -> Any:
    fields = {}
    for key, value in node._entries().items():
        if isinstance(value, TensorCollection):
            fields[key] = _cast_chosen(value, leaf, chosen, (*path, key))
        else:
            fields[key] = leaf(value) if chosen((*path, key), value) else value
    return node._rebuild(fields, node.batch_size, node.device, node._names)


class CastOps(Waist):
    """The casts."""

    __slots__ = ()

    # What is cast where a call does not say so.
    _cast_filter: ClassVar[Filter | None] = None

    def type(self, dst_type: Any, *, cast_filter: Filter | None = None) -> Self:
        """`torch.Tensor.type` of each leaf.

        Args:
            dst_type: a dtype, or a class of tensors such as `torch.DoubleTensor` or its name.
            cast_filter: `fn(key, leaf)`, true for the leaves to cast, with the key as a tuple; all if not given.

        Raises:
            TypeError: there is no type.
            ValueError: the name is not one of a class of tensors.
        """
        if dst_type is None:
            raise TypeError("type() of a tensordict needs the type to cast to, got None; see dtype for the one it has")
        return cast_leaves(self, lambda leaf: leaf.type(dst_type), cast_filter)

    bfloat16 = cast(torch.bfloat16)
    complex128 = cast(torch.complex128)
    complex32 = cast(torch.complex32)
    complex64 = cast(torch.complex64)
    double = cast(torch.float64, "double")
    float16 = cast(torch.float16)
    float32 = cast(torch.float32)
    float64 = cast(torch.float64)
    half = cast(torch.float16, "half")
    int16 = cast(torch.int16)
    int32 = cast(torch.int32)
    int64 = cast(torch.int64)
    int8 = cast(torch.int8)
    qint32 = quantized(torch.qint32)
    qint8 = quantized(torch.qint8)
    quint4x2 = quantized(torch.quint4x2)
    quint8 = quantized(torch.quint8)
    uint16 = cast(torch.uint16)
    uint32 = cast(torch.uint32)
    uint64 = cast(torch.uint64)
    uint8 = cast(torch.uint8)
    # last: they hide the classes of these names
    bool = cast(torch.bool)
    float = cast(torch.float32, "float")
    int = cast(torch.int32, "int")
