"""Where the elements of a batch go: a change is made to a tensor of their numbers, and the result tells it.

Elements are numbered in the order of the rows of the batch, from 0. Lazy stacks learn so which member each element of a result
is of, holders of objects which object, and nested leaves which component.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Size, Tensor

from tensordict._kernel.change import Change


def known(size: Sequence[int], dim: int) -> int:
    """The size of the dimension `dim` of a batch.

    Raises:
        RuntimeError: it has no one size: the members of a lazy stack differ in it.
    """
    if size[dim] == -1:
        raise no_one_size(size, dim)
    return size[dim]


def no_one_size(size: Sequence[int], dim: int | None = None) -> RuntimeError:
    """The error for what needs the size of a dimension, the first if not given, in which the members of a lazy stack differ."""
    dim = list(size).index(-1) if dim is None else dim
    return RuntimeError(
        f"the dimension {dim} of the batch size {list(size)} has no one size, since the members of the lazy stack differ in "
        "it, and the operation needs one. Do it for each member, of which unbind() along the stack dimension gives a tuple"
    )


def stand_in(size: Sequence[int]) -> Size:
    """A batch size with a number in the place of each -1."""
    return Size([2 if count == -1 else count for count in size])


def numbers(size: Sequence[int]) -> Tensor:
    """The number of each element of a batch of the shape `size`."""
    if -1 in size:
        raise no_one_size(size)
    return torch.arange(math.prod(size)).view(tuple(size))


class Sources:
    """Where each element of the result of a change comes from.

    Attributes:
        number: of each element of the result, the number of the one that it was; -1 for those put in from outside.
        fresh: whether some are put in from outside, as a padding does.
        view: whether the change only looks at storage in another way.
    """

    __slots__ = ("_size", "fresh", "number", "view")

    def __init__(self, change: Change, size: Sequence[int]) -> None:
        self._size = size
        self.fresh = self.view = False
        if change.fills:
            self._find_filled(change)
            return
        before = numbers(size)
        self.number = change.leaf(before)
        self.view = self.number.untyped_storage().data_ptr() == before.untyped_storage().data_ptr()

    def _find_filled(self, change: Change) -> None:
        """Numbers the elements twice, by other numbers: what is put in from outside is the same both times."""
        # A filling may be no integer, nor one that fits an integer.
        before = numbers(self._size).double()
        apart = before.numel() + 1
        found = change.leaf(before)
        moved = change.leaf(before + apart) - found == apart
        self.number = torch.where(moved, found, -1.0).long()
        self.fresh = not bool(moved.all())

    def along(self, dim: int) -> tuple[Tensor, Tensor]:
        """For each element of the result its place along `dim`, and its number in a batch without `dim`; -1 if it has none."""
        size, number = self._size, self.number
        below, count = max(math.prod(size[dim + 1 :]), 1), max(size[dim], 1)
        place = number // below % count
        inner = number // (below * count) * below + number % below
        if self.fresh:
            outside = number < 0
            return place.masked_fill(outside, -1), inner.masked_fill(outside, 0)
        return place, inner


def moved(change: Change, size: Sequence[int]) -> Tensor:
    """The numbers of the elements that a change puts at each place.

    Raises:
        RuntimeError: it does not only put elements at places, but computes with them, or puts others in: then what it gives
            does not follow the elements when these are dealt out anew.
    """
    before, apart = numbers(size), 3  # no result of an `argmax` or the like of few elements
    function, total = change.leaf, before.numel()
    where = function(before + apart) - apart
    moves = where.dtype is torch.int64 and bool(((where >= 0) & (where < total)).all())
    for dealt in (before.flatten().flip(0), before.flatten().roll(1)):
        moves = moves and torch.equal(function(dealt.view(tuple(size)) + apart) - apart, dealt[where])
    if not moves:
        raise RuntimeError(
            "the operation computes across the rows of a nested (ragged) leaf, which have no shape in common; "
            "`to_padded_tensor` makes one of them"
        )
    return where
