"""What an operation on batch dimensions does to a tree: to each leaf, to each batch size, to the names of dimensions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Size

from tensordict._types import Names


class Change:
    """A change of the leading batch dimensions, the same for every node and leaf of a tree.

    A node below the root may have more batch dimensions than the root; those stay as they are, behind the new ones.

    Attributes:
        leaf: what is applied to each leaf.
        consumed: number of leading dimensions that `prefix` replaces.
        prefix: the leading dimensions after the change.
        origins: for each dimension of `prefix` the dimension it comes from, or None for a new one.
        mixes: the dimensions along which values are computed from several elements, as a sum does; None where every element
            of the result is one of the leaf, or a constant.
        shares: whether the result has to share storage with the leaf, as a view does.
        fills: whether some elements may be put in from outside, as by padding.
        ragged: what was made of the structure of nested leaves so far; not there until the first of them.
        picks: whether elements are picked as by an index: whole members of a stack, and what holds one object for all
            elements, stay themselves.
        copies: whether the elements are copied one by one, also where they could be a view.
        sizes_only: whether only nodes are changed by it: what becomes of the leaves is known already.
    """

    __slots__ = ("consumed", "fills", "leaf", "mixes", "origins", "prefix", "ragged", "shares")

    ragged: dict[Any, Any]
    picks = False
    copies = False
    sizes_only = False

    def __init__(
        self,
        leaf: Callable[[Any], Any],
        consumed: int,
        prefix: Size,
        origins: Sequence[int | None],
        mixes: Sequence[int] | None = None,
        shares: bool = False,
        fills: bool = False,
    ) -> None:
        self.leaf = leaf
        self.consumed = consumed
        self.prefix = prefix
        self.origins = origins
        self.mixes = mixes
        self.shares = shares
        self.fills = fills

    def shape(self, shape: Size) -> Size:
        """The shape of a node or leaf that had `shape`."""
        return self.prefix if len(shape) == self.consumed else Size(self.prefix + shape[self.consumed :])

    def names(self, names: Names) -> Names:
        """The names of the dimensions of a node that had `names`."""
        if names is None:
            return None
        head = [None if origin is None else names[origin] for origin in self.origins]
        return head + names[self.consumed :]

    def piece(self, place: int, dim: int | None = None) -> Change:
        """The change that gives one of several pieces: the one at `place`, or the elements at `place` along `dim`."""
        leaf = self.leaf
        if dim is None:
            return self._like(lambda value: leaf(value)[place], self.prefix, self.origins)
        at = dim
        prefix = Size((*self.prefix[:at], *self.prefix[at + 1 :]))
        origins = [*self.origins[:at], *self.origins[at + 1 :]]
        return self._like(lambda value: leaf(value).select(at, place), prefix, origins)

    def _like(self, leaf: Callable[[Any], Any], prefix: Size, origins: Sequence[int | None]) -> Change:
        return Change(leaf, self.consumed, prefix, origins, self.mixes, self.shares, self.fills)


class Outline(Change):
    """A change of sizes and names alone, for trees whose leaves were changed by other means."""

    __slots__ = ()

    sizes_only = True

    def __init__(self, consumed: int, prefix: Size, origins: Sequence[int | None]) -> None:
        super().__init__(_leafless, consumed, prefix, origins)


def _leafless(leaf: Any) -> Any:
    raise AssertionError("a change of sizes alone was made to a leaf")
