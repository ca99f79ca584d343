"""Indices over batch dimensions, parsed once for a whole tree.

An index consumes leading batch dimensions. `parse` turns it into the object that is applied to each leaf, the batch size
that results, and where each resulting dimension comes from; nodes and leaves below need no parsing of their own.

A size of -1 is that of a dimension in which the members of a lazy stack differ. What an index asks of it, each member checks
against its own size, when the stack parts the index (`_lazy/parted.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import numpy as np
import torch
from torch import Size, Tensor

from tensordict._kernel.change import Change
from tensordict._kernel.shapes import broadcast

VIEW, ROWS, GENERAL = range(3)
_INDEX_DTYPES = (torch.int64, torch.int32, torch.int16, torch.int8)


class Index(Change):
    """A parsed index: a change of the batch dimensions whose `leaf` is `leaf[key]`.

    Attributes:
        key: what each leaf is indexed with.
        kind: `VIEW` (integers, slices, None), `ROWS` (one integer tensor at dimension `dim`, or one boolean tensor as the
            integer tensor of its rows), `GENERAL` (any other mix).
        dim: the dimension that a `ROWS` index replaces.
    """

    __slots__ = ("dim", "key", "kind")

    picks = True

    def __init__(self, key: Any, kind: int, consumed: int, prefix: Size, origins: Sequence[int | None], dim: int = 0) -> None:
        self.key = key
        self.kind = kind
        self.dim = dim
        super().__init__(itemgetter(key), consumed, prefix, origins)

    @property
    def copies(self) -> bool:  # type: ignore[override]
        return self.kind != VIEW


def parse(index: Any, batch_size: Size) -> Index:
    """Parses `index` against `batch_size`.

    Raises:
        IndexError: too many indices, an integer out of bounds, a mask of another shape, an unusable type.
        RuntimeError: there are no batch dimensions to index, or two ellipses.
    """
    kind = type(index)
    dims = len(batch_size)
    if kind is int:
        return _parse_int(index, batch_size, dims)
    if kind is slice and dims:
        size = len(range(batch_size[0])[index]) if _plain_slice(index) else _slice_length(index, batch_size[0])
        if not size and batch_size[0] == -1:
            size = -1
        return Index(index, VIEW, dims, Size((size, *batch_size[1:])), range(dims))
    if isinstance(index, Tensor):
        return _parse_tensor(index, batch_size, dims)
    if kind is tuple or kind is Size:
        return _parse_tuple(tuple(index), batch_size, dims)
    index = _as_item(index)
    if isinstance(index, Tensor):
        return _parse_tensor(index, batch_size, dims)
    return _parse_tuple((index,), batch_size, dims)


def batch_size_at(batch_size: Sequence[int], index: Any) -> Size:
    """The shape of a tensor of shape `batch_size` at `index`; raises as `parse` does."""
    return parse(index, Size(batch_size)).prefix


def without_ellipsis(index: Any, batch_size: Sequence[int]) -> tuple[Any, ...]:
    """`index` as a tuple in which full slices stand for the ellipsis.

    Raises:
        IndexError: it has too many elements.
        RuntimeError: it has two ellipses.
    """
    items = index if isinstance(index, tuple) else (index,)
    if not any(item is Ellipsis for item in items):
        return items
    widths = [_width(_as_item(item)) for item in items if item is not Ellipsis]
    fill = (slice(None),) * (len(batch_size) - sum(widths))
    at = next(place for place, item in enumerate(items) if item is Ellipsis)
    if any(item is Ellipsis for item in items[at + 1 :]):
        raise RuntimeError(f"an index can only have one ellipsis at most, got {index}")
    if sum(widths) > len(batch_size):
        raise IndexError(f"the index {index} has too many elements for the batch size {tuple(batch_size)}")
    return (*items[:at], *fill, *items[at + 1 :])


def _parse_int(index: int, batch_size: Size, dims: int) -> Index:
    if not dims:
        raise _no_batch(index)
    size = batch_size[0]
    if not -size <= index < size and size != -1:
        raise IndexError(f"index {index} is out of bounds for dimension 0 with size {size}")
    return Index(index, VIEW, dims, Size(batch_size[1:]), range(1, dims))


def _no_batch(index: Any) -> RuntimeError:
    return RuntimeError(f"indexing a tensordict with td.batch_dims==0 is not permitted; got the index {index}")


def _plain_slice(index: slice) -> bool:
    """Whether a slice needs no check: no step, or a positive one."""
    return index.step is None or (isinstance(index.step, int) and index.step > 0)


def _slice_length(index: slice, size: int) -> int:
    if not _plain_slice(index):
        raise ValueError(f"step must be greater than zero, got the slice {index}")
    return len(range(size)[index]) if size != -1 else -1


def _parse_tensor(index: Tensor, batch_size: Size, dims: int) -> Index:
    if index.dtype in _INDEX_DTYPES and dims:
        new = index.shape
        if not new:
            return Index(index, VIEW, dims, Size(batch_size[1:]), range(1, dims))
        names: Sequence[int | None] = range(dims) if len(new) == 1 else [None] * len(new) + list(range(1, dims))
        return Index(index, ROWS, dims, Size(new + batch_size[1:]), names)
    if index.dtype in (torch.bool, torch.uint8) and 0 < index.ndim <= dims:
        _check_mask(index, batch_size, 0)
        many = index.ndim
        origins: list[int | None] = [0 if many == 1 else None, *range(many, dims)]
        if many == 1:
            rows = index.nonzero().squeeze(1)
            return Index(rows, ROWS, dims, Size((rows.shape[0], *batch_size[1:])), origins)
        key = index.nonzero(as_tuple=True)
        return Index(key, GENERAL, dims, Size((key[0].shape[0], *batch_size[many:])), origins)
    return _parse_tuple((index,), batch_size, dims)


def _check_mask(mask: Tensor, batch_size: Size, at: int) -> None:
    wanted = batch_size[at : at + mask.ndim]
    if mask.shape != wanted:
        raise IndexError(
            f"The shape of the mask {list(mask.shape)} at index {at} does not match the batch dimensions {list(wanted)}"
        )


def _as_item(item: Any) -> Any:
    """One element of an index in the form that the parser and torch understand."""
    if item is None or item is Ellipsis or isinstance(item, (slice, Tensor, bool, int)):
        return item
    if isinstance(item, np.bool_):
        return bool(item)
    if isinstance(item, np.integer):
        return int(item)
    if isinstance(item, range):
        return torch.arange(item.start, item.stop, item.step)
    if isinstance(item, np.ndarray):
        return torch.from_numpy(item) if item.dtype != object else torch.tensor(item.tolist())
    if isinstance(item, (list, tuple)):
        return torch.tensor(item) if len(item) else torch.zeros(0, dtype=torch.int64)
    if hasattr(item, "__index__"):
        return item.__index__()
    raise IndexError(
        "only integers, slices (`:`), ellipsis (`...`), None, lists, arrays and integer or boolean tensors are valid "
        f"indices (got {type(item).__name__}: {item!r})"
    )


def _width(item: Any) -> int:
    """Number of batch dimensions that one element of an index consumes."""
    if item is None or isinstance(item, bool):
        return 0
    if isinstance(item, Tensor) and item.dtype in (torch.bool, torch.uint8):
        return item.ndim
    return 1


def _expand(items: Sequence[Any], batch_size: Size, dims: int) -> list[Any]:
    """The elements with the ellipsis replaced by full slices over the batch dimensions."""
    used = sum(_width(item) for item in items if item is not Ellipsis)
    if used and not dims:
        raise _no_batch(tuple(items))
    if used > dims:
        raise IndexError(f"too many indices for a tensordict of batch size {batch_size}: the index consumes {used}")
    spots = [place for place, item in enumerate(items) if item is Ellipsis]
    fill = [slice(None)] * (dims - used)
    if len(spots) > 1 and fill:
        raise RuntimeError("an index can only have a single ellipsis ('...')")
    at = spots[0] if spots else len(items)
    return [*items[:at], *fill, *(item for item in items[at + 1 :] if item is not Ellipsis)]


class _Shape:
    """The dimensions that a tuple index produces, element by element, as torch does: integers select first, tensors are
    broadcast together and stand where the first stood if they are adjacent, else in front."""

    __slots__ = ("advanced", "at", "batch_size", "origins", "places", "sizes", "used")

    def __init__(self, batch_size: Size) -> None:
        self.batch_size = batch_size
        self.at = 0
        self.sizes: list[int] = []
        self.origins: list[int | None] = []
        self.advanced: list[Size] = []
        self.places: list[int] = []
        self.used: list[int] = []

    def add(self, item: Any) -> Any:
        """Accounts for one element; returns what stands for it in the key."""
        if item is None:
            self.sizes.append(1)
            self.origins.append(None)
        elif isinstance(item, bool):
            item = torch.tensor(item)
            self._advance(Size((int(item),)), 0)
        elif isinstance(item, int):
            size = self.batch_size[self.at]
            if not -size <= item < size and size != -1:
                raise IndexError(f"index {item} is out of bounds for dimension {self.at} with size {size}")
            self.at += 1
        elif isinstance(item, slice):
            self.sizes.append(_slice_length(item, self.batch_size[self.at]))
            self.origins.append(self.at)
            self.at += 1
        else:
            self._tensor(item)
        return item

    def _tensor(self, item: Tensor) -> None:
        if item.dtype in (torch.bool, torch.uint8):
            if item.ndim:
                _check_mask(item, self.batch_size, self.at)
            self._advance(Size((int(item.sum()) if item.dtype is torch.bool else int((item != 0).sum()),)), item.ndim)
        elif item.dtype in _INDEX_DTYPES and not item.ndim:
            self.at += 1  # torch selects with it, as with an integer, and checks its bounds
        elif item.dtype in _INDEX_DTYPES:
            self._advance(item.shape, 1)
        else:
            raise IndexError(f"tensors used as indices must be integer or boolean tensors, got {item.dtype}")

    def _advance(self, shape: Size, width: int) -> None:
        self.advanced.append(shape)
        self.places.append(len(self.sizes))
        self.used.append(self.at)
        if width != 1:
            self.used.extend(range(self.at + 1, self.at + max(width, 2)))
        self.at += width

    def result(self) -> tuple[Size, list[int | None]]:
        """The batch size after indexing and the origins of its dimensions."""
        if not self.advanced:
            return Size(self.sizes), self.origins
        block = broadcast(self.advanced)
        if block is None:
            raise IndexError(f"shape mismatch: the index tensors of shapes {self.advanced} do not broadcast")
        adjacent = all(place == self.places[0] for place in self.places)
        at = self.places[0] if adjacent else 0
        kept = self.used[0] if len(self.used) == 1 and len(block) == 1 else None
        sizes = [*self.sizes[:at], *block, *self.sizes[at:]]
        origins = [*self.origins[:at], *([kept] * len(block)), *self.origins[at:]]
        return Size(sizes), origins


def _parse_tuple(items: tuple[Any, ...], batch_size: Size, dims: int) -> Index:
    items = tuple(map(_as_item, items))
    full = _expand(items, batch_size, dims)
    shape = _Shape(batch_size)
    key = tuple([shape.add(item) for item in full])
    prefix, origins = shape.result()
    tensors = [place for place, item in enumerate(key) if isinstance(item, Tensor) and (item.ndim or not _width(item))]
    if not tensors:
        return Index(key, VIEW, dims, prefix, origins)
    only = tensors[0]
    if (
        len(tensors) == 1
        and key[only].dtype in _INDEX_DTYPES
        and all(isinstance(item, slice) and item == slice(None) for place, item in enumerate(key) if place != only)
    ):
        return Index(key, ROWS, dims, prefix, origins, only)
    return Index(key, GENERAL, dims, prefix, origins)
