"""The view at an index of a tensordict: reads are indexed, writes go to the rows of the parent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Size, Tensor
from typing_extensions import Self

from tensordict._io.tree import READERS, Saved
from tensordict._kernel.errors import LOCKED
from tensordict._kernel.index import VIEW, Index, parse
from tensordict._kernel.keys import path_of
from tensordict._kernel.registry import is_branch
from tensordict._ops.access import descend, node_above
from tensordict._ops.coerce import as_tensor
from tensordict._ops.indexing import fresh_rows
from tensordict._ops.trees import has_own
from tensordict._ops.writes import Writes
from tensordict._types import IndexType, Key, Names, Path, TensorCollection
from tensordict._views.base import View
from tensordict.base import TensorDictBase


class _SubTensorDict(View):
    """What `td._get_sub_tensordict(index)` gives: the rows of `td` at an index, without a copy.

    Reading an entry indexes the entry of the parent. Writing one writes into the rows of the parent's entry; a new entry is
    zero in all other rows. Every operation that gives a new tensordict gives a plain `TensorDict`.
    """

    __slots__ = ("__weakref__", "_extra", "_parsed", "_source", "idx")

    _is_rows = True

    def __init__(self, source: TensorDictBase, idx: IndexType, parsed: Index | None = None) -> None:
        self._source = source
        self.idx = idx
        self._parsed: Index = parse(idx, source.batch_size) if parsed is None else parsed
        self._extra: dict[str, Any] | None = None

    def get_parent_tensordict(self) -> TensorDictBase:
        """The tensordict that this is a view of."""
        return self._source

    @property
    def _batch_size(self) -> Size:
        return self._parsed.shape(self._source.batch_size)

    @property
    def _names(self) -> Names:
        return self._parsed.names(self._source._names)

    def _fields(self) -> dict[str, Any]:
        return {key: self._view(value) for key, value in self._source._entries().items()}

    def _view(self, value: Any) -> Any:
        return self._shown(value, self._parsed)

    def _again(self, source: Any) -> Self:
        # a node below may have more batch dimensions: the index is that of the root, not parsed anew
        return type(self)(source, self.idx, self._parsed)

    def _get_str(self, key: str) -> Any:
        return self._view(self._source._get_str(key))

    def _set_str(self, key: str, value: Any) -> None:
        if not self._source._stacked and key not in self._source._fields():
            if self._source.is_locked:
                raise RuntimeError(LOCKED)
            self._source._set_str(key, fresh_rows(self._source, self._parsed, key, value))
        else:
            self._store_at((key,), value)

    def _store_at(self, path: Path, value: Any) -> None:
        """Writes into the rows of the parent's entry at a path."""
        holder, last = node_above(self._source, path)
        target = holder._peek(last) if last in holder._fields() else None
        if isinstance(target, TensorCollection):
            self._store(target, value)
        elif holder._stacked:
            holder._assign(self._parsed, {last: value})
        else:
            self._store(holder._get_str(last), value)

    def _store(self, target: Any, value: Any) -> None:
        """Writes into the rows of an entry of the parent.

        Raises:
            ValueError: a tensor would take the place of a tensordict, in some of its rows.
        """
        if isinstance(target, TensorCollection):
            if isinstance(value, Tensor) and is_branch(target):
                raise ValueError(
                    f"Tried to replace a tensordict with a tensor of shape {tuple(value.shape)} in some rows: the entry has "
                    f"the keys {sorted(target._fields())}"
                )
            target._assign(self._parsed, value)
        else:
            target[self._parsed.key] = value

    def _plan_assign(self, index: Index, value: Any, plan: Writes) -> None:
        plan.put_call(partial(self._put, index, plan.own(value)))

    def _put(self, index: Index, value: Any) -> None:
        if self._source._stacked and type(index.key) is slice and index.key == slice(None):
            self._source._assign(self._parsed, value)  # also where the members are unlike, and have no rows to be read
            return
        # the rows of rows may be copies, so they are changed and written back
        rows = self._plain()._cloned()
        rows._assign(index, value)
        self._source._assign(self._parsed, rows)

    # Writes into entries: rows that are copies of the parent's would lose them.

    @property
    def _gives_copies(self) -> bool:
        return self._parsed.kind != VIEW or not has_own(self._source)

    def _write_str(self, key: str, value: Any, non_blocking: bool) -> None:
        self._store_at((key,), value)

    def update(self, input_dict_or_td: Any = None, clone: bool = False, inplace: bool = False, **kwargs: Any) -> Self:
        if self._source._stacked and not kwargs and isinstance(input_dict_or_td, (TensorCollection, Mapping)):
            self._source._assign(self._parsed, input_dict_or_td)
            return self
        return super().update(input_dict_or_td, clone, inplace, **kwargs)

    def update_(self, input_dict_or_td: Any = None, clone: bool = False, **kwargs: Any) -> Self:
        options = {name: kwargs.pop(name) for name in ("non_blocking", "keys_to_update") if name in kwargs}
        source = kwargs if input_dict_or_td is None else input_dict_or_td
        self._source._update_rows(source, self._parsed, options.get("keys_to_update"))
        return self

    def update_at_(self, input_dict_or_td: Any, idx: IndexType, clone: bool = False, **kwargs: Any) -> Self:
        rows = self._plain()._cloned().update_at_(input_dict_or_td, idx, **kwargs)
        self._source._assign(self._parsed, rows)
        return self

    def set_at_(self, key: Key, value: Any, index: IndexType, *, non_blocking: bool = False) -> Self:
        entry = descend(self, path_of(key))
        rows: Any = entry._cloned() if isinstance(entry, TensorCollection) else entry.clone()
        if isinstance(value, np.ndarray):
            value = as_tensor(path_of(key)[-1], value, rows.device)
        rows[index] = value
        self._store_at(path_of(key), rows)
        return self

    def fill_(self, key: Key, value: Any) -> Self:
        self._store_at(path_of(key), value)
        return self

    def _set_data(self, value: Any) -> None:
        with torch.no_grad():
            self.update_(value)

    # the leaves here are views or copies made for each access: their own `.data` is nobody's
    data = TensorDictBase.data.setter(_set_data)  # type: ignore[attr-defined]

    def to(self, *args: Any, **kwargs: Any) -> Self:
        if kwargs.get("inplace"):
            raise TypeError(f"Cannot send a {type(self).__name__} instance to device/dtype inplace: move the parent instead.")
        return super().to(*args, **kwargs)

    def pin_memory(self, num_threads: int | None = None, inplace: bool = False) -> Self:
        raise RuntimeError(f"Cannot pin memory of a {type(self).__name__}: pin that of the parent tensordict instead.")

    def contiguous(self, *, canonical: bool = False, inplace: bool = False) -> Self:
        """Contiguous copies of the rows, not in place: the rows of the parent stay where they are."""
        if inplace:
            raise RuntimeError("contiguous(inplace=True): the leaves of a view at an index are rows of its parent")
        return super().contiguous(canonical=canonical)

    def _set_batch_size(self, batch_size: Size) -> None:
        if batch_size != self._batch_size:
            raise RuntimeError(
                f"the batch size of a view at an index follows from its parent; it cannot be set to {batch_size}"
            )

    def _set_device(self, device: torch.device | None) -> None:
        raise RuntimeError("the device of a view at an index is that of its parent; it cannot be set")

    def _set_names(self, names: Names) -> None:
        raise RuntimeError("Names of a subtensordict cannot be modified: they follow from its parent.")

    def _set_lock(self, locked: bool) -> None:
        if locked != self._is_locked:
            do = "lock" if locked else "unlock"
            raise RuntimeError(f"Cannot {do} a {type(self).__name__}. {do.capitalize()} the parent tensordict instead.")

    def clone(self, recurse: bool = True, **kwargs: Any) -> Self:
        """A plain copy of the rows; without `recurse`, a view at the same index of a shallow copy of the parent."""
        if recurse:
            return super().clone(**kwargs)
        return type(self)(self._source.clone(recurse=False), self.idx, self._parsed)


_SubTensorDict.__module__ = "tensordict._td"  # where programs and pickles find it


def _index_of(item: Any) -> Any:
    """An element of an index, as the metadata of a folder has it.

    Raises:
        ValueError: it is none.
    """
    if item is None or isinstance(item, (bool, int)):
        return item
    kind: str
    value: Any
    kind, value = (*item, None)[:2]
    if kind == "tuple":
        return tuple([_index_of(part) for part in value])
    if kind in ("slice", "range"):
        return {"slice": slice, "range": range}[kind](value["start"], value["stop"], value["step"])
    if kind == "list":
        return value
    if kind == "tensor":
        return torch.tensor(value)
    if kind == "ellipsis":
        return Ellipsis
    raise ValueError(f"there is no index of the kind {kind!r}")


def _read_view(saved: Saved) -> _SubTensorDict:
    """A view at an index, whose parent is in the sub-folder `_source`.

    Raises:
        ValueError: the metadata has no valid index.
    """
    given = json.loads(saved.text).get("index")
    try:
        index = _index_of(list(given))
    except (TypeError, KeyError, IndexError, ValueError, RuntimeError) as error:
        raise ValueError(f"the metadata in {saved.folder} is that of a view, at {given!r}, no index: {error}") from None
    if "_source" not in saved.members:
        raise ValueError(f"the metadata in {saved.folder} is that of a view, and its parent is not in the folder _source")
    return _SubTensorDict(saved.members["_source"], index)


READERS["tensordict._td:_SubTensorDict"] = READERS["<class 'tensordict._td._SubTensorDict'>"] = _read_view
