"""Sizes of what is mapped: one size a dimension, or one row of sizes a component of a nested tensor."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Size, Tensor

Shape = Size | Tensor

# What their values mean, a scale for one, has no place in a file or in memory alone.
_QUANTIZED = frozenset((torch.qint8, torch.quint8, torch.qint32, torch.quint4x2, torch.quint2x4))


def size_of(tensor: Tensor) -> Shape:
    """The sizes of a tensor."""
    return tensor._nested_tensor_size() if tensor.is_nested else tensor.shape


def as_size(shape: Any) -> Shape:
    """Sizes that a program gives, also as a tensor."""
    if isinstance(shape, Tensor):
        return shape if shape.dim() == 2 else Size(shape.tolist())
    return Size(shape)


def parse_shape(size: tuple[Any, ...], shape: Any) -> Shape:
    """The sizes of a call that takes them one by one, as one sequence, or by name.

    Raises:
        TypeError: there are none.
    """
    if shape is not None:
        return as_size(shape)
    if not size:
        raise TypeError("a shape is needed, by position or as `shape`")
    return as_size(size[0] if len(size) == 1 and not isinstance(size[0], int) else size)


def listed(shape: Shape) -> list[Any]:
    """Sizes as lists."""
    return shape.tolist() if isinstance(shape, Tensor) else list(shape)


def elements(shape: Shape) -> int:
    """The number of elements."""
    if isinstance(shape, Tensor):
        return int(shape.prod(-1).sum())
    return math.prod(shape)


def bytes_of(shape: Shape, dtype: torch.dtype) -> int:
    """Bytes of a tensor. Sizes are Python's integers: they do not overflow, and what is too large no map will have.

    Raises:
        RuntimeError: a size is negative.
        NotImplementedError: the dtype is that of quantized tensors.
    """
    if not isinstance(shape, Tensor) and min(shape, default=0) < 0:
        raise RuntimeError(f"sizes cannot be negative, got {list(shape)}")
    if dtype in _QUANTIZED:
        raise NotImplementedError(f"quantized tensors cannot be mapped: there is no place for their scales, got {dtype}")
    return elements(shape) * dtype.itemsize
