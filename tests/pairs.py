"""A container that keeps its entries in a plain list of pairs: all that a container has to write, and nothing else.

It stands for the containers to come (a file, a store): if a method of the package needs more than the waist declares, the
tests that run on every container fail on this one.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Size, Tensor

from tensordict import TensorDictBase
from tensordict._kernel.index import Index
from tensordict._ops.indexing import plan_rows
from tensordict._ops.trees import transform
from tensordict._ops.writes import Writes
from tensordict._types import Names


class Pairs(TensorDictBase):
    """A tensordict over a list of `(key, entry)`."""

    __slots__ = ("__weakref__", "_batch_size", "_device", "_extra", "_is_locked", "_names", "_pairs_of_entries")

    def __init__(self, pairs: list[tuple[str, Any]], batch_size: Any, device: Any = None, names: Names = None) -> None:
        self._pairs_of_entries = pairs
        self._batch_size = Size(batch_size)
        self._device: torch.device | None = device
        self._names: Names = names
        self._is_locked = False
        self._extra: dict[str, Any] | None = None

    def _fields(self) -> dict[str, Any]:
        return dict(self._pairs_of_entries)

    def _get_str(self, key: str) -> Any:
        for name, entry in self._pairs_of_entries:
            if name == key:
                return entry
        raise KeyError(f'key "{key}" not found in Pairs with keys {sorted(self._fields())}')

    def _set_str(self, key: str, value: Any) -> None:
        for place, (name, _) in enumerate(self._pairs_of_entries):
            if name == key:
                self._pairs_of_entries[place] = (key, value)
                return
        self._pairs_of_entries.append((key, value))

    def _del_str(self, key: str) -> None:
        self._get_str(key)  # raises
        self._pairs_of_entries[:] = [pair for pair in self._pairs_of_entries if pair[0] != key]

    def _rebuild(self, fields: dict[str, Any], batch_size: Size, device: Any = None, names: Names = None) -> Any:
        return Pairs(list(fields.items()), batch_size, device, names)

    def _index(self, index: Index) -> Any:
        return transform(self, index)

    def _plan_assign(self, index: Index, value: Any, plan: Writes) -> None:
        plan_rows(self, index, value, plan)

    def _set_batch_size(self, batch_size: Size) -> None:
        self._batch_size = batch_size

    def _set_device(self, device: torch.device | None) -> None:
        self._device = device

    def _set_names(self, names: Names) -> None:
        self._names = names

    def _set_lock(self, locked: bool) -> None:
        self._is_locked = locked


def pairs_of(node: Any) -> Pairs:
    """A tensordict as a tree of `Pairs`, which shares its leaves."""
    pairs = [(key, entry if isinstance(entry, Tensor) else pairs_of(entry)) for key, entry in node.items()]
    return Pairs(pairs, node.batch_size, node.device)
