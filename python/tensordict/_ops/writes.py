"""Writes that are planned as a whole, and done once all of them are found to fit, so that one that fails changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from tensordict._kernel.index import Index, parse
from tensordict._kernel.ragged import write
from tensordict._ops.leafwise import run_

Write = tuple[Any, str, Any, bool]  # (node, key, checked value, whether to write into the storage that is there)
Copy = tuple[Tensor, Index | None, Any]  # a leaf, the rows of it, None for all, and what is written into them


class ObjectEntry:
    """The place of an entry that holds objects."""

    __slots__ = ("key", "node")

    def __init__(self, node: Any, key: str) -> None:
        self.node = node
        self.key = key

    def check(self, index: Index | None, value: Any) -> None:
        """Raises where `value` cannot be written into all elements, or the rows at an index, for what it is."""
        entry = self.node._get_str(self.key)
        size = entry.batch_size
        entry._check_objects(value, size if index is None else parse(index.key, size).shape(size), index is not None)

    def put(self, index: Index | None, value: Any) -> None:
        """Takes over the objects of `value`, in the rows at an index if one is given."""
        node, key = self.node, self.key
        if index is None:
            node._write_str(key, value, False)
        elif node._stacked:
            node._assign(parse(index.key, node.batch_size), {key: value})
        else:
            entry = node._get_str(key)
            node._put_objects(key, entry, entry._with_rows(parse(index.key, entry.batch_size), value))

    def kept(self) -> Callable[[], None] | None:
        """What puts the objects back as they are now, here and in their file; None where they have none, so cannot fail."""
        node, key = self.node, self.key
        entry = node._get_str(key)
        if node._stacked or not entry.is_memmap():
            return None
        put_back = entry._kept()

        def put_all_back() -> None:
            put_back()
            if node._get_str(key) is not entry:
                node._set_str(key, entry)
            with suppress(Exception):  # the error to be seen is that for which this is done
                entry._resave()

        return put_all_back


class Writes:
    """What one operation writes, all of it checked.

    Attributes:
        copies: what is written into leaves.
        sets: what is stored in nodes, or written into entries by these.
        objects: what is written into entries of objects; None while that is nothing.
        calls: writes that are not checked, into what computes its entries from those of another container; None as well.
    """

    __slots__ = ("calls", "copies", "objects", "sets")

    def __init__(self) -> None:
        self.copies: list[Copy] = []
        self.sets: list[Write] = []
        self.objects: list[tuple[ObjectEntry, Index | None, Any]] | None = None
        self.calls: list[Callable[[], object]] | None = None

    def put_objects(self, entry: ObjectEntry, index: Index | None, value: Any) -> None:
        """Plans a write of objects into all elements of an entry, or into the rows at an index."""
        entry.check(index, value)
        if self.objects is None:
            self.objects = []
        self.objects.append((entry, index, value))

    def put_call(self, call: Callable[[], object]) -> None:
        """Plans the call of what writes."""
        if self.calls is None:
            self.calls = []
        self.calls.append(call)

    def run(self, non_blocking: bool = False) -> None:
        """Writes."""
        if self.objects is not None:
            self._run_with_objects(self.objects, non_blocking)
            return
        if self.copies:
            _copy(self.copies, non_blocking)
        if self.calls is not None:
            for call in self.calls:
                call()
        for node, key, value, into in self.sets:
            if into:
                node._write_str(key, value, non_blocking)
            else:
                node._set_str(key, value)

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


def _copy(copies: list[Copy], non_blocking: bool) -> None:
    leaves: list[Tensor] = []
    values: list[Any] = []
    for leaf, index, value in copies:
        if leaf.is_nested:
            write(None, leaf, value, index)
        elif index is not None:
            leaf[index.key] = value
        elif leaf is not value:
            leaves.append(leaf)
            values.append(value)
    if leaves:
        run_(leaves, _copy_into, torch._foreach_copy_, values, non_blocking=non_blocking)


def _copy_into(leaf: Any, value: Any, non_blocking: bool) -> None:
    leaf.copy_(value, non_blocking=non_blocking)
