"""Writes that are planned as a whole, and done once all of them are found to fit, so that one that fails changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from typing_extensions import Self

from tensordict._kernel.index import Index, parse
from tensordict._kernel.native import is_plain, overwritten
from tensordict._kernel.registry import is_branch, is_non_tensor
from tensordict._leaves.ragged import write
from tensordict._ops.leafwise import run_
from tensordict._ops.trees import copy_nodes
from tensordict._types import TensorCollection

Write = tuple[Any, str, Any, bool]  # (node, key, checked value, whether to write into the storage that is there)
Copy = tuple[Tensor, Index | None, Any]  # a leaf, the rows of it, None for all, and what is written into them


class ObjectEntry:
    """The place of an entry that holds objects."""

    __slots__ = ("in_members", "key", "node")

    def __init__(self, node: Any, key: str) -> None:
        self.node = node
        self.key = key
        self.in_members = bool(node._stacked)  # the entry is made of theirs whenever it is read

    @classmethod
    def of(cls, entry: Any, node: Any, key: str) -> Self | None:
        """The place of an entry, that under `key` of a node, where it holds objects; else None."""
        return cls(node, key) if is_non_tensor(entry) else None

    def check(self, index: Index | None, value: Any) -> None:
        """Raises where `value` cannot be written into all elements, or the rows at an index, for what it is."""
        entry = self.node._get_str(self.key)
        entry._taking(value, None if index is None else parse(index.key, entry.batch_size), check=True)

    def put(self, index: Index | None, value: Any) -> None:
        """Takes over the objects of `value`, in the rows at an index if one is given."""
        node, key = self.node, self.key
        if index is None:
            node._write_str(key, value, False)
        elif self.in_members:
            node._assign(parse(index.key, node.batch_size), {key: value})
        else:
            entry = node._get_str(key)
            made = entry._taking(value, parse(index.key, entry.batch_size))
            if made is not entry:
                node._put_objects(key, made)

    def kept(self) -> Callable[[], None] | None:
        """What puts the objects back as they are now, here and in their file; None where they have none, so cannot fail."""
        node, key = self.node, self.key
        entry = node._get_str(key)
        put_back = None if self.in_members else entry._kept()
        if put_back is None:
            return None

        def put_all_back() -> None:
            if node._get_str(key) is not entry:
                node._set_str(key, entry)
            put_back()

        return put_all_back


class Writes:
    """What one operation writes, all of it checked.

    Attributes:
        copies: what is written into leaves.
        leaves, values: what else is: the whole of plain leaves by plain tensors of their shape, which most writes are.
        sets: what is stored in nodes, or written into entries by these.
        objects: what is written into entries of objects; None while that is nothing.
        calls: writes that are not checked, into what computes its entries from those of another container; None as well.
        parted: whether one value is written in parts, each of which may be what another part is written into.
    """

    __slots__ = ("calls", "copies", "leaves", "objects", "parted", "sets", "values")

    def __init__(self) -> None:
        self.copies: list[Copy] = []
        self.leaves: list[Any] = []
        self.values: list[Any] = []
        self.sets: list[Write] = []
        self.objects: list[tuple[ObjectEntry, Index | None, Any]] | None = None
        self.calls: list[Callable[[], object]] | None = None
        self.parted = False

    def put_objects(self, entry: ObjectEntry, index: Index | None, value: Any) -> None:
        """Plans a write of objects into all elements of an entry, or into the rows at an index."""
        entry.check(index, value)
        value = self.own(value)
        if self.objects is None:
            self.objects = []
        self.objects.append((entry, index, value))

    def put_call(self, call: Callable[[], object]) -> None:
        """Plans the call of what writes."""
        if self.calls is None:
            self.calls = []
        self.calls.append(call)

    def own(self, value: Any) -> Any:
        """`value`, or where it is a container that earlier writes of this plan may change, a copy of it."""
        if not (self.parted and isinstance(value, TensorCollection)):
            return value
        return value.clone() if is_branch(value) else copy_nodes(value)

    def run(self, non_blocking: bool = False) -> None:
        """Writes."""
        if self.parted:
            self.parted = False
            self._keep_sources()
        if self.objects is not None:
            self._run_with_objects(self.objects, non_blocking)
            return
        if self.leaves or self.copies:
            self._copy(non_blocking)
        if self.calls is not None:
            for call in self.calls:
                call()
        for node, key, value, into in self.sets:
            if into:
                node._write_str(key, value, non_blocking)
            else:
                node._set_str(key, value)

    def _keep_sources(self) -> None:
        """Takes copies of the values that would be others when their turn comes."""
        copies, sets = self.copies, self.sets
        leaves = [*self.leaves, *[leaf for leaf, _, _ in copies]]
        values = [*self.values, *[value for _, _, value in copies]]
        parts = [*[False for _ in self.leaves], *[index is not None for _, index, _ in copies], *[False for _ in sets]]
        if sets:
            leaves += [node._get_str(key) if into else None for node, key, _, into in sets]
            values += [value for _, _, value, _ in sets]
        for number in _overwritten(leaves, values, parts):
            value = values[number].clone()
            place = number - len(self.leaves)
            if place < 0:
                self.values[number] = value
            elif place < len(copies):
                copies[place] = (*copies[place][:2], value)
            else:
                place -= len(copies)
                sets[place] = (*sets[place][:2], value, True)

    def _copy(self, non_blocking: bool) -> None:
        leaves, values = self.leaves, self.values
        for leaf, index, value in self.copies:
            if leaf.is_nested:
                write(None, leaf, value, index)
            elif index is not None:
                leaf[index.key] = value
            else:
                leaves.append(leaf)
                values.append(value)
        if any([leaf is value for leaf, value in zip(leaves, values)]):
            pairs = [(leaf, value) for leaf, value in zip(leaves, values) if leaf is not value]
            leaves, values = [leaf for leaf, _ in pairs], [value for _, value in pairs]
        if not leaves:
            return
        if not self.copies and is_plain(leaves):
            torch._foreach_copy_(leaves, values, non_blocking)  # as `run_` would, of what is known to be dense
            return
        # torch knows no derivative of many copies at once
        with_gradient = any([tensor.requires_grad for tensor in leaves]) or any([value.requires_grad for value in values])
        many = None if with_gradient else torch._foreach_copy_
        run_(leaves, _copy_into, many, values, non_blocking=non_blocking)

    def _run_with_objects(self, objects: list[tuple[ObjectEntry, Index | None, Any]], non_blocking: bool) -> None:
        done: list[Callable[[], None]] = []
        try:
            # first what can fail for other reasons than its shape: it has files that are written anew
            for entry, index, value in objects:
                put_back = entry.kept()
                if put_back is not None:
                    done.append(put_back)
                entry.put(index, value)
            self.objects = None
            self.run(non_blocking)
        except BaseException:
            for put_back in reversed(done):
                put_back()
            raise


def _overwritten(leaves: list[Any], values: list[Any], parts: list[bool]) -> Iterable[int]:
    """The numbers of the values that may be others once those before them, or a part of them, were copied into their leaves.

    Leaves that are None stay as they are, and what is no tensor does.
    """
    found = overwritten(leaves, values, parts)
    if found is not None:
        return found
    written: set[Any] = set()
    changed = []
    for number, (leaf, value) in enumerate(zip(leaves, values)):
        owner, other = _owner(leaf), _owner(value)
        if owner is None or other is None:
            is_changed = leaf is not None and hasattr(value, "clone")
        else:
            is_changed = other in written or (owner == other and (parts[number] or leaf is not value))
        if is_changed:
            changed.append(number)
        written.add(owner)
    return changed


def _owner(value: Any) -> Any:
    """What tells whose memory a tensor has; None where it cannot be asked."""
    try:
        return value.untyped_storage()._cdata
    except (AttributeError, NotImplementedError, RuntimeError):
        return None


def _copy_into(leaf: Any, value: Any, non_blocking: bool) -> None:
    leaf.copy_(value, non_blocking=non_blocking)
