"""Operations on batch dimensions. Each plans one change, which is then made to every leaf and node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import index
from typing import Any

import torch
from torch import Size, Tensor
from typing_extensions import Self

from tensordict._kernel.change import Change, Outline
from tensordict._kernel.errors import DimsError
from tensordict._kernel.index import parse
from tensordict._kernel.native import regrouped
from tensordict._kernel.numbering import known, no_one_size
from tensordict._kernel.settings import LAZY_LEGACY
from tensordict._kernel.shapes import wrap
from tensordict._leaves.ragged import has_ragged, scattered
from tensordict._leaves.unbatched import is_unbatched, moved
from tensordict._ops.indexing import IndexOps
from tensordict._ops.join import cat_tensordicts
from tensordict._ops.leafwise import relock
from tensordict._ops.trees import collect_own, copy_members, copy_nodes, refill, transform
from tensordict._reexport import lazy_view
from tensordict._types import TensorCollection


def sizes_of(args: tuple[Any, ...]) -> list[int]:
    """Sizes given one by one or as one sequence."""
    if len(args) == 1 and not isinstance(args[0], int):
        return list(args[0])
    return list(args)


def complete(sizes: list[int], numel: int) -> Size:
    """Sizes in which one -1 stands for what is left of `numel` elements.

    Raises:
        RuntimeError: the sizes are no shape for that many elements.
    """
    known = 1
    for size in sizes:
        known *= size if size != -1 else 1
    holes = sizes.count(-1)
    if holes == 1 and known and numel % known == 0:
        return Size([numel // known if size == -1 else size for size in sizes])
    if holes or known != numel:
        raise RuntimeError(f"invalid shape {sizes} for a batch of {numel} elements")
    return Size(sizes)


def regroup(node: Any, sizes: Size, method: Callable[..., Tensor], origins: Sequence[int | None] | None = None) -> Any:
    """The leading dimensions as `sizes`, by `Tensor.view`, `Tensor.reshape` or `Tensor.expand`."""
    consumed = len(node.batch_size)
    came_from = [None] * len(sizes) if origins is None else origins
    leaves: list[Any] = []
    tree = collect_own(node, leaves)
    targets = None if tree is None else regrouped(leaves, consumed, sizes)
    if tree is None or (targets is None and has_ragged(leaves)):
        copied, watched = False, method is Tensor.reshape and node._has_non_tensor

        def leaf(value: Any) -> Any:
            nonlocal copied
            made = method(value, *sizes, *value.shape[consumed:])
            if watched and made._base is None and made is not value:
                copied = copied or not made.is_inference()  # where views have no base nobody knows
            return made

        out = transform(node, Change(leaf, consumed, sizes, came_from, None, method is Tensor.view))
        return copy_nodes(out) if copied else out  # the objects are those of the copies
    if targets is None:
        targets = [(*sizes, *leaf.shape[consumed:]) for leaf in leaves]
    # torch reads single integers twice as fast as a `Size`
    changed = [method(leaf, *target) for leaf, target in zip(leaves, targets)]
    return refill(tree, iter(changed), Outline(consumed, sizes, came_from))


def _regrouped(node: Any, given: tuple[Any, ...], shares: bool) -> Size:
    """The batch size that `view`, which `shares` storage, or `reshape` is asked for.

    Raises:
        RuntimeError: the sizes hold another number of elements, or the members of a lazy stack have no common rows to view.
    """
    sizes, batch_size = sizes_of(given), node.batch_size
    if -1 not in batch_size:
        return complete(sizes, batch_size.numel())
    if Size(sizes) == batch_size:
        return batch_size
    if shares:
        raise no_one_size(batch_size)
    return complete(sizes, node.numel())


def _merged(node: Any, first: int, last: int) -> Any:
    """The dimensions `first` to `last` of a stack of members of unlike batch sizes as one; the stack is along one of them."""
    rows = node.unbind(first)
    if first < last - 1:
        rows = [row.flatten(first, last - 1) for row in rows]
    try:
        return cat_tensordicts(rows, first)
    except (RuntimeError, KeyError):  # they stay rows of a stack
        rows = [element for row in rows for element in row.unbind(first)]
        return rows[0]._joined(rows, first, "lazy")


def _check_options(name: str, given: dict[str, Any], known: tuple[str, ...]) -> None:
    """Raises where a keyword is none that a method has."""
    for key in given:
        if key not in known:
            raise TypeError(f"{name}() got an unexpected keyword argument {key!r}; it has {', '.join(known)}")


def _split_sizes(given: Any, size: int, dim: int) -> list[int]:
    """The checked sizes of pieces of a dimension."""
    try:
        sizes = [] if isinstance(given, str) else [index(part) for part in given]
        known = not isinstance(given, str)
    except TypeError:
        known = False
    if not known:
        raise TypeError(f"split(): argument 'split_size' must be int or list of ints, got {given!r}")
    if not sizes:
        raise RuntimeError("Insufficient number of elements in split_size: the list is empty")
    if sum(sizes) != size or any(part < 0 for part in sizes):
        raise RuntimeError(
            f"split() expects split_size to sum exactly to {size}, the size of the batch dimension {dim}, but got "
            f"split_size={sizes}"
        )
    return sizes


# The operations that are views of the tensordict itself in the legacy mode, with the names of their arguments.
_LAZY = {"view": ("size",), "unsqueeze": ("dim",), "squeeze": ("dim",), "permute": ("dims",), "transpose": ("dim0", "dim1")}


def _viewed(leaf: Any, dims: int, sizes: Size) -> Any:
    return leaf.view(*sizes, *leaf.shape[dims:])


class ShapeOps(IndexOps):
    """Regrouping, reordering, adding and cutting batch dimensions."""

    __slots__ = ()

    def _changed(self, change: Change, name: str = "", *args: Any, inplace: bool = False, lock: bool = True) -> Self:
        """This tensordict with a change made: a new one, which a `with` block can undo if the change has a name."""
        if LAZY_LEGACY.value and name in _LAZY:
            return self._lazily(change, name, *args)
        out = transform(self, change)
        if inplace:
            return self._become(out, name)
        if name:
            self._remember(out, name, *args)
        return relock(out, self) if lock else out

    def _lazily(self, change: Change, name: str, *args: Any) -> Any:
        """The view that the legacy mode gives, or where this tensordict is such a view, what it is a view of."""
        view = lazy_view(self, change, name, dict(zip(_LAZY[name], args)))
        view._rare["last_op"] = ("same", (), None)  # it writes through
        return view

    def _same(self) -> Self:
        """This tensordict as the result of a change that changes nothing: there is nothing to undo for `with`."""
        self._rare["last_op"] = ("same", (), None)
        return self

    def view(self, *shape: Any, size: Any = None, batch_size: Any = None) -> Self:
        """The batch dimensions regrouped; leaves share storage with those of this tensordict.

        Args:
            *shape: the new batch size, one of which may be -1; or a dtype, for `torch.Tensor.view(dtype)` of each leaf.
            size: the same by keyword.
            batch_size: the batch size after a view as another dtype.

        Raises:
            RuntimeError: the sizes hold another number of elements, or a leaf cannot be viewed so.
        """
        given = shape if shape else (() if size is None else size,)
        if len(given) == 1 and isinstance(given[0], torch.dtype):
            dtype = given[0]
            return self.apply(lambda leaf: leaf.view(dtype), batch_size=batch_size)
        sizes = _regrouped(self, given, True)
        if sizes == self.batch_size:
            return self._same()
        if LAZY_LEGACY.value:
            dims = len(self.batch_size)
            leaf = partial(_viewed, dims=dims, sizes=sizes)
            return self._lazily(Change(leaf, dims, sizes, [None] * len(sizes), None, True), "view", sizes)
        out = regroup(self, sizes, Tensor.view)
        self._remember(out, "view")
        return relock(out, self)

    def reshape(self, *args: Any, inplace: bool = False, **kwargs: Any) -> Self:
        """The batch dimensions regrouped; a leaf shares storage where torch can, and is copied where it cannot.

        Args:
            *args: the new batch size, one of which may be -1; also by keyword, as `size` or `shape`.
            inplace: take the result's leaves and batch size into this tensordict and return it.

        Raises:
            RuntimeError: the sizes hold another number of elements.
            NotImplementedError: in place of a lazy stack.
        """
        if inplace:
            self._refuse_stack("reshape")
        if kwargs:
            _check_options("reshape", kwargs, ("size", "shape"))
        given = args if args else (kwargs.get("size", kwargs.get("shape")),)
        sizes = _regrouped(self, given, False)
        if sizes == self.batch_size:
            return self._same()
        out = regroup(self.flatten() if -1 in self.batch_size else self, sizes, Tensor.reshape)
        if inplace:
            return self._become(out, "reshape")
        self._remember(out, "reshape")
        return relock(out, self)

    def unsqueeze(self, *args: Any, **kwargs: Any) -> Self:
        """A batch dimension of size 1 at `dim`; leaves share storage.

        Raises:
            RuntimeError: `dim` is out of range.
        """
        if kwargs:
            _check_options("unsqueeze", kwargs, ("dim",))
        dim: int = args[0] if args else kwargs["dim"]
        dims = len(self.batch_size)
        refusal = "unsqueezing is allowed for dims comprised between `-td.batch_dims - 1` and `td.batch_dims` only. Got"
        at = wrap(dim, dims + 1, lambda: RuntimeError(f"{refusal} dim={dim} with a batch size of {self.batch_size}."))
        sizes = Size((*self.batch_size[:at], 1, *self.batch_size[at:]))
        origins = [*range(at), None, *range(at, dims)]
        change = Change(lambda leaf: leaf.unsqueeze(at), dims, sizes, origins)
        return self._changed(change, "unsqueeze", at)

    def squeeze(self, *args: Any, **kwargs: Any) -> Self:
        """Without the batch dimension `dim` if its size is 1, or without all of size 1; leaves share storage.

        Raises:
            IndexError: `dim` is out of range.
        """
        if kwargs:
            _check_options("squeeze", kwargs, ("dim",))
        dim: int | None = args[0] if args else kwargs.get("dim")
        dims, batch_size = len(self.batch_size), self.batch_size
        gone = [at for at in range(dims) if batch_size[at] == 1]
        if dim is not None:
            at = wrap(dim, dims)
            gone = [at] if batch_size[at] == 1 else []
        if not gone:
            return self._same()
        kept = [place for place in range(dims) if place not in gone]
        drop = tuple(gone)
        change = Change(lambda leaf: leaf.squeeze(drop), dims, Size([batch_size[place] for place in kept]), kept)
        return self._changed(change, "squeeze", None if dim is None else dim % dims)

    def permute(self, *args: Any, **kwargs: Any) -> Self:
        """The batch dimensions in another order; leaves share storage.

        Raises:
            ValueError: the dimensions are no permutation of all batch dimensions; it is an `IndexError` and a `RuntimeError`
                as well.
        """
        if kwargs:
            _check_options("permute", kwargs, ("dims",))
        given = sizes_of(args if args else (kwargs.get("dims", ()),))
        dims = len(self.batch_size)
        order = [dim + dims if dim < 0 else dim for dim in given]
        if sorted(order) != list(range(dims)):
            raise DimsError(f"number of dims don't match in permute (got {given} for {dims} batch dimensions)")
        if order == list(range(dims)):
            return self._same()
        sizes = Size([self.batch_size[dim] for dim in order])

        def leaf(value: Any) -> Any:
            return value.permute(*order, *range(dims, value.ndim))

        return self._changed(Change(leaf, dims, sizes, order), "permute", order)

    def transpose(self, dim0: int, dim1: int) -> Self:
        """Two batch dimensions exchanged; leaves share storage.

        Raises:
            ValueError: a dimension is out of range.
        """
        dims = len(self.batch_size)
        refusal = "The provided dimensions are incompatible with the tensordict batch-size"
        first, second = (wrap(dim, dims, lambda: ValueError(f"{refusal}: {dim0}, {dim1} of {dims}.")) for dim in (dim0, dim1))
        if first == second:
            return self._same()
        order = list(range(dims))
        order[first], order[second] = order[second], order[first]
        sizes = Size([self.batch_size[dim] for dim in order])
        change = Change(lambda leaf: leaf.transpose(first, second), dims, sizes, order)
        return self._changed(change, "transpose", first, second)

    def expand(self, *args: Any, **kwargs: Any) -> Self:
        """The batch dimensions broadcast to new sizes; leaves share storage, so several elements may be one.

        Raises:
            RuntimeError: a size that is not 1 would change.
        """
        if kwargs:
            _check_options("expand", kwargs, ("shape", "size"))
        given = sizes_of(args if args else (kwargs.get("shape", kwargs.get("size", ())),))
        dims, batch_size = len(self.batch_size), self.batch_size
        extra = len(given) - dims
        fits = extra >= 0 and all(size in (1, wanted) or wanted == -1 for size, wanted in zip(batch_size, given[extra:]))
        if not fits:
            raise RuntimeError(
                "Incompatible expanded shape: The expanded shape length at non-singleton dimension should be same as the "
                f"original length. target_shape = {tuple(given)}, existing_shape = {batch_size}"
            )
        sizes = Size([size if size != -1 else batch_size[place - extra] for place, size in enumerate(given)])

        out = regroup(self, sizes, Tensor.expand, [None] * extra + list(range(dims)))
        return relock(out, self)

    def flatten(self, start_dim: int | None = None, end_dim: int | None = None, *, inplace: bool = False) -> Self:
        """Neighbouring batch dimensions merged into one.

        Args:
            start_dim: the first dimension to merge, the first of all if not given.
            end_dim: the last one, the last of all if not given.
            inplace: take the result's leaves and batch size into this tensordict and return it.

        Raises:
            IndexError: a dimension is no batch dimension.
            ValueError: the last dimension comes before the first.
            NotImplementedError: in place of a lazy stack.
        """
        if inplace:
            self._refuse_stack("flatten")
        dims, batch_size = len(self.batch_size), self.batch_size
        first = wrap(start_dim or 0, dims) if dims else 0
        last = wrap(-1 if end_dim is None else end_dim, dims) if dims else 0
        if first > last:
            raise ValueError(f"flatten() needs start_dim <= end_dim, got {start_dim} and {end_dim}")
        if not dims:
            out = self.unsqueeze(0)
            return self._become(out, "flatten") if inplace else out
        if first == last:
            return self._same()
        if -1 in batch_size and first <= self.stack_dim <= last:
            return relock(_merged(copy_members(self), first, last), self)
        merged = batch_size[first : last + 1].numel()
        sizes = Size((*batch_size[:first], merged, *batch_size[last + 1 :]))
        origins = [*range(first), None, *range(last + 1, dims)]
        change = Change(lambda leaf: leaf.flatten(first, last), dims, sizes, origins)
        return self._changed(change, "flatten", inplace=inplace)

    def unflatten(self, dim: int, unflattened_size: Sequence[int], *, inplace: bool = False) -> Self:
        """One batch dimension split into several.

        Args:
            dim: a batch dimension.
            unflattened_size: the sizes, one of which may be -1.
            inplace: take the result's leaves and batch size into this tensordict and return it.

        Raises:
            IndexError: `dim` is no batch dimension.
            RuntimeError: the sizes hold another number of elements.
            NotImplementedError: in place of a lazy stack.
        """
        if inplace:
            self._refuse_stack("unflatten")
        dims, batch_size = len(self.batch_size), self.batch_size
        at = wrap(dim, dims)
        parts = complete(list(unflattened_size), known(batch_size, at))
        sizes = Size((*batch_size[:at], *parts, *batch_size[at + 1 :]))
        origins = [*range(at), *[None] * len(parts), *range(at + 1, dims)]
        change = Change(lambda leaf: leaf.unflatten(at, parts), dims, sizes, origins)
        return self._changed(change, "unflatten", inplace=inplace)

    def unbind(self, dim: int = 0) -> tuple[Self, ...]:
        """The slices along a batch dimension, as a tuple; leaves share storage.

        Raises:
            IndexError: `dim` is no batch dimension.
            RuntimeError: the members of a lazy stack differ in its size.
        """
        at = wrap(dim, len(self.batch_size))
        count = known(self.batch_size, at)
        if -1 in self.batch_size:
            stack = copy_members(self)
            rows = [parse((*(slice(None),) * at, place), stack.batch_size) for place in range(count)]
            return tuple([stack._index(row) for row in rows])
        kept = [place for place in range(len(self.batch_size)) if place != at]
        sizes = Size([self.batch_size[place] for place in kept])
        change = Change(lambda leaf: leaf.unbind(at), len(self.batch_size), sizes, kept)
        return _scatter(self, change, [change] * count)

    def split(self, split_size: int | Sequence[int], dim: int = 0) -> tuple[Self, ...]:
        """Pieces along a batch dimension, as a tuple; leaves share storage.

        Args:
            split_size: the size of each piece (the last may be smaller), or a list of sizes.
            dim: the batch dimension.

        Raises:
            TypeError: the size is no integer, or a list of them.
            ValueError: the size is not positive.
            RuntimeError: the sizes of a list do not add up to the dimension, or the members of a lazy stack differ in it.
            IndexError: `dim` is no batch dimension.
        """
        sizes, at = cuts(self, split_size, dim)
        dims = len(self.batch_size)

        def pieces(leaf: Any) -> Any:
            return leaf.split(sizes, at)

        changes = []
        for part in sizes:
            prefix = Size((*self.batch_size[:at], part, *self.batch_size[at + 1 :]))
            changes.append(Change(pieces, dims, prefix, range(dims)))
        return tuple(relock(piece, self) for piece in _scatter(self, changes[0], changes))

    def chunk(self, chunks: int, dim: int = 0) -> tuple[Self, ...]:
        """At most `chunks` pieces of equal size along a batch dimension (the last may be smaller); leaves share storage.

        Raises:
            ValueError: `chunks` is not positive.
        """
        if chunks < 1:
            raise ValueError(f"chunks must be a strictly positive integer, got {chunks}.")
        size = known(self.batch_size, wrap(dim, len(self.batch_size)))
        return self.split(max(1, -(-size // chunks)), dim)


def cuts(node: Any, split_size: int | Sequence[int], dim: int) -> tuple[Sequence[int], int]:
    """The sizes of the pieces that `split` makes, and the dimension counted from the front."""
    at = wrap(dim, len(node.batch_size))
    size = known(node.batch_size, at)
    if not isinstance(split_size, int):
        return _split_sizes(split_size, size, at), at
    if split_size <= 0:
        raise ValueError(f"{type(node).__name__}.split: split_size must be positive, got {split_size}.")
    return [min(split_size, size - start) for start in range(0, size, split_size)] or [0], at


def _scatter(node: Any, cut: Change, changes: list[Change]) -> Any:
    """One tree for each of `changes`, from leaves that `cut.leaf` cuts into as many pieces."""
    if not node._dict_backed:
        same = (Change(cut.leaf, change.consumed, change.prefix, change.origins) for change in changes)
        node = copy_members(node)
        return tuple(transform(node, change.piece(place)) for place, change in enumerate(same))
    pieces = node._pieces()
    columns = [
        cut.leaf(part)
        if type(part) is Tensor and not part.is_nested
        else _scatter(part, cut, changes)
        if isinstance(part, TensorCollection)
        else _scattered(part, cut, changes)
        for part in pieces.values()
    ]
    if not columns:
        return tuple(node._from_pieces({}, change) for change in changes)
    return tuple(node._from_pieces(dict(zip(pieces, parts)), change) for parts, change in zip(zip(*columns), changes))


def _scattered(leaf: Any, cut: Change, changes: list[Change]) -> Any:
    if is_unbatched(leaf):
        return [moved(leaf, change) for change in changes]
    return scattered(leaf, cut, changes) if leaf.is_nested else cut.leaf(leaf)
