"""Indexing: rows at an index, writes into rows, iteration over the first dimension."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Size, Tensor
from typing_extensions import Self

from tensordict._kernel.errors import through_leaf
from tensordict._kernel.index import Index, parse
from tensordict._kernel.keys import is_key, key_of, path_of
from tensordict._kernel.registry import exposed, is_branch
from tensordict._kernel.shapes import broadcasts_to
from tensordict._leaves.unbatched import is_unbatched
from tensordict._ops.access import node_above
from tensordict._ops.coerce import as_tensor, coerce
from tensordict._ops.keys import KeyOps
from tensordict._ops.update import check_copy, check_kinds, plan_copies
from tensordict._ops.writes import ObjectEntry, Writes
from tensordict._reexport import sub_tensordict
from tensordict._types import IndexType, Path, TensorCollection


class IndexOps(KeyOps):
    """`td[index]`, `td[index] = value`, `len`, iteration."""

    __slots__ = ()

    def __getitem__(self, index: IndexType) -> Any:
        """The entry at a key, or the rows at an index of the batch dimensions.

        A key is a string or a tuple of strings. An index is what torch takes, but it may only use batch dimensions:
        integers, slices and None give views, integer and boolean tensors, arrays, lists and ranges give copies.

        Raises:
            KeyError: the key is missing.
            IndexError: the index is out of bounds, has too many elements or a type that torch does not take.
        """
        return self._get_key(index) if is_key(index) else self._get_rows(index)

    def _get_key(self, key: Any) -> Any:
        holder, last = node_above(self, path_of(key))
        return exposed(holder._get_str(last), holder, last)

    def _get_rows(self, index: IndexType) -> Any:
        if (
            index is Ellipsis
            or (type(index) is tuple and not index)
            or (type(index) is slice and index == slice(None) and self.batch_size)
        ):
            return self
        if type(index) is tuple and is_key(index):
            return self._get_key(index)
        return self._index(parse(index, self.batch_size))

    def __getitems__(self, index: Any) -> Self:
        """The rows of a list of integers: what a `DataLoader` asks for a batch, in one call."""
        return self._index(parse(index if isinstance(index, Tensor) else list(index), self.batch_size))

    def __setitem__(self, index: IndexType, value: Any) -> None:
        """Sets the entry at a key, or writes `value` into the rows at an index; all leaves, or none if one does not fit.

        Raises:
            RuntimeError: `value` does not fit, or the tensordict is locked and an entry would be added.
            IndexError: the index is out of bounds.
        """
        self._set_item(index, value)

    def _set_item(self, index: IndexType, value: Any) -> None:
        if is_key(index):
            self.set(index, value)
        else:
            self._assign(parse(index, self.batch_size), value)

    def __len__(self) -> int:
        return self.batch_size[0] if self.batch_size else 0

    def __iter__(self) -> Iterator[Self]:
        if not self.batch_size:
            raise TypeError("iteration over a 0-d tensordict. Use keys(), values() or items() to iterate over its entries.")
        return iter(self.unbind(0))

    def _get_sub_tensordict(self, idx: IndexType) -> Any:
        """A view at `idx`: reads are indexed, writes go to the rows of this tensordict."""
        return sub_tensordict(self, idx)


def plan_rows(node: Any, index: Index, value: Any, plan: Writes) -> None:
    """Plans the write of a tensordict, a mapping, a tensor or a number into the rows at `index` of a dict-backed node."""
    if isinstance(value, (TensorCollection, Mapping)):
        if isinstance(value, TensorCollection):
            value = _fit_rows(node, index, value)
        _plan_entries(node, index, value, plan)
    else:
        _plan_value(node, index, value, plan)


def _plan_value(node: Any, index: Index, value: Any, plan: Writes) -> None:
    """Plans the writes of one value into the rows of all leaves; a stack divides it among its members itself."""
    for part in node._parts():
        if is_branch(part):
            part._plan_assign(index, value, plan)
        elif not isinstance(part, TensorCollection) and not is_unbatched(part):  # that has no rows
            item = value if isinstance(value, (Tensor, int, float, complex)) else as_tensor("value", value, part.device)
            if isinstance(item, Tensor):
                check_copy("value", part, item, index)
            plan.copies.append((part, index, item))


def _fit_rows(node: Any, index: Index, value: Any) -> Any:
    """`value`, expanded to the rows at `index` if its batch size is not theirs."""
    batch_size, rows = value.batch_size, index.shape(node.batch_size)
    if batch_size == rows or batch_size == index.prefix:
        return value
    if not batch_size or not broadcasts_to(batch_size, rows):
        raise RuntimeError(
            f"indexed destination TensorDict batch size is {rows} (batch_size = {node.batch_size}, "
            f"index={index.key}), which differs from the source batch size {batch_size}"
        )
    return value.expand(rows)


def _plan_entries(node: Any, index: Index, value: Any, plan: Writes) -> None:
    """Plans the writes of the entries of `value`: into leaves that are there, and as new entries, zero in all other rows."""
    fields = node._fields()
    items = value._entries() if isinstance(value, TensorCollection) else value
    by_name = isinstance(value, TensorCollection) or all([type(key) is str for key in items])
    for key, item in items.items():
        target = fields.get(key) if type(key) is str else node.get(key, None)
        is_node = isinstance(target, TensorCollection)
        if is_node and not is_branch(target):
            plan.put_objects(ObjectEntry(*node_above(node, path_of(key))), index, item)
        elif is_node and isinstance(item, (TensorCollection, Mapping)):
            if target._dict_backed:  # the batch size is that of the root; nodes below may have more dimensions
                _plan_entries(target, index, item, plan)
            else:
                target._plan_assign(index, item, plan)
        elif target is not None:
            plan_copies(node, {key: item}, index, None, plan)
        else:
            below, rest = _holder_for(node, path_of(key))
            below._check_unlocked()
            if not by_name and _joins(plan, below, rest, index, item):
                continue
            plan.sets.append((below, rest[0], fresh_rows(below, index, rest[0], _nested(rest[1:], item)), False))


def _joins(plan: Writes, node: Any, path: Path, index: Index, item: Any) -> bool:
    """Writes what is new into a new node that an earlier key of the same mapping made, if there is one."""
    made = next((made for holder, key, made, _ in reversed(plan.sets) if holder is node and key == path[0]), None)
    if made is None:
        return False
    if not is_branch(made):
        if len(path) > 1:
            raise through_leaf(path[0], made, key_of(path[1:]))
        return False
    below: Any = made
    for depth in range(1, len(path) - 1):
        below = below._fields().get(path[depth])
        if below is None:
            break
        if not is_branch(below):
            raise through_leaf(path[depth], below, key_of(path[depth + 1 :]))
    item = _nested(path[1:], item)
    check_kinds(path[0], made, item)
    made._assign(index, item)
    return True


def _holder_for(node: Any, path: Path) -> tuple[Any, Path]:
    """The last node there is on the way to `path`, and the rest of the path."""
    while len(path) > 1 and (below := node._fields().get(path[0])) is not None:
        if not isinstance(below, TensorCollection):
            raise through_leaf(path[0], below, key_of(path[1:]))
        node, path = below, path[1:]
    return node, path


def _nested(path: Path, item: Any) -> Any:
    for key in reversed(path):
        item = {key: item}
    return item


def fresh_rows(node: Any, index: Index, key: str, item: Any) -> Any:
    """An entry of zeros whose rows at `index` are `item`; one without a batch is itself."""
    if is_unbatched(item):
        return item._with_batch(node.batch_size)
    outer = node.batch_size[: index.consumed]  # a node below may have more batch dimensions, as the item has
    inner = len(index.prefix)
    if not isinstance(item, (TensorCollection, Mapping, Tensor)):
        item = coerce(node._below()._rebuild({}, index.shape(node.batch_size), node.device), key, item)
    if isinstance(item, TensorCollection) and not is_branch(item):  # one object is for all, until others are written
        return item._anew(Size((*outer, *item.batch_size[inner:])), node.device, None)._taking(item, index)
    if isinstance(item, (TensorCollection, Mapping)):
        if not isinstance(item, TensorCollection):
            item = node._below()._rebuild({}, index.shape(node.batch_size)).update(item)
        child = node._below()._rebuild({}, Size((*outer, *item.batch_size[inner:])), node.device)
        for name, below in item._entries().items():
            child._set_str(name, fresh_rows(node, index, name, below))
        return child
    out = item.new_zeros((*outer, *item.shape[inner:]))
    out[index.key] = item
    return out
