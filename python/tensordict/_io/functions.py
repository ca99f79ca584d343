"""Saving and loading as functions of the package."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import Size

from tensordict._io.consolidate import open_file
from tensordict._io.memmap import MemmapOps
from tensordict._io.plan import OBJECTS, STACK, Plan, form_of
from tensordict._io.tree import Files, options_of, read
from tensordict._kernel.native import FolderMoment
from tensordict._kernel.pending import PENDING, wait_for
from tensordict._types import FilePath, TensorCollection


def memmap(data: Any, prefix: FilePath | None = None, copy_existing: bool = False, **options: Any) -> Any:
    """Saves a tensordict to a folder of mapped files; the options are those of `TensorDict.memmap`."""
    return data.memmap(prefix, copy_existing, **options)


def save(data: Any, prefix: FilePath | None = None, copy_existing: bool = False, **options: Any) -> Any:
    """Saves a tensordict to a folder of mapped files; the options are those of `TensorDict.save`."""
    return data.save(prefix, copy_existing, **options)


def load_memmap(prefix: FilePath, device: Any = None, non_blocking: bool = False, **options: Any) -> Any:
    """Reads a saved folder; the options are those of `TensorDict.load_memmap`."""
    return MemmapOps.load_memmap(prefix, device, non_blocking, **options)


def load(prefix: FilePath, device: Any = None, non_blocking: bool = False, **options: Any) -> Any:
    """Reads a saved folder; the options are those of `TensorDict.load`."""
    return MemmapOps.load(prefix, device, non_blocking, **options)


def from_consolidated(filename: FilePath) -> Any:
    """Opens a file that `consolidate` wrote (see `TensorDict.from_consolidated`)."""
    return open_file(filename)


def append_memmap(prefix: FilePath, rows: Any, *, allow_pickle: bool | None = None) -> None:
    """Adds rows to a saved folder, along the first batch dimension: all of them, or none if it fails or is stopped.

    Where others save to the folder meanwhile, the rows go behind what they saved: several processes may append to one folder.
    What is written in place to mapped tensors of it during the call may be lost.

    Tensors that are mapped already keep the rows they have; `memmap_refresh_` or loading again shows the new ones.

    Args:
        prefix: the folder.
        rows: a tensordict with the same keys, dtypes and sizes but for the first batch dimension.
        allow_pickle: accepted; nothing is pickled yet.

    Raises:
        TypeError: `rows` is no tensordict.
        ValueError: the folder holds no tensordict, or the rows do not fit it.
    """
    if not isinstance(rows, TensorCollection):
        raise TypeError(f"rows must be a tensordict or a tensorclass, got {type(rows)}.")
    if PENDING:
        wait_for(prefix)
    # Each round in which others come first is one in which they are done with their change.
    while not _appended(prefix, rows, allow_pickle):
        pass


def _appended(prefix: FilePath, rows: Any, allow_pickle: bool | None) -> bool:
    """Appends rows to a folder, unless others change it meanwhile: whether they did not."""
    if not os.path.isfile(os.path.join(prefix, "meta.json")):
        raise ValueError(f"append_memmap appends to a directory written by save or memmap, and {prefix} is not one.")
    since = FolderMoment(prefix)
    saved = read(prefix, mode="r", allow_pickle=allow_pickle)
    size, more = saved.batch_size, rows.batch_size
    if not size or not more:
        raise ValueError(
            f"append_memmap appends along the first batch dimension, which the saved tensordict (batch size {size}) and the "
            f"rows (batch size {more}) must both have."
        )
    if size[1:] != more[1:]:
        raise ValueError(
            f"Cannot append rows of batch size {more} to the saved tensordict, of batch size {size}: they differ beyond the "
            "first dimension."
        )
    if STACK in (form_of(saved), form_of(rows)):
        raise ValueError(f"append_memmap appends to saved tensordicts, and {prefix} or the rows are a lazy stack.")
    joined = _joined(saved, rows, ())
    return not more[0] or Files(Plan(joined)).write(prefix, options_of(True, True, True), since) is not None


def _joined(saved: Any, rows: Any, path: tuple[str, ...]) -> Any:
    """The rows of `saved` and then those of `rows`."""
    old, new = saved._fields(), rows._fields()
    if old.keys() != new.keys():
        raise ValueError(
            f"Cannot append rows with the keys {sorted(new)} to the saved tensordict, which has the keys {sorted(old)}."
        )
    fields = {}
    for key, value in old.items():
        here = (*path, key)
        if isinstance(value, TensorCollection) and isinstance(new[key], TensorCollection):
            _check_nodes(value, new[key], here)
            fields[key] = _joined(value, new[key], here)
            continue
        if isinstance(value, TensorCollection) or not _fits(value, new[key]):
            name = here[0] if len(here) == 1 else here
            raise ValueError(f"Cannot append rows {_described(new[key])} to the entry {name!r}, {_described(value)}.")
        fields[key] = torch.cat([value, new[key].to(value.device)])
    size = Size((saved.batch_size[0] + rows.batch_size[0], *saved.batch_size[1:]))
    return saved._rebuild(fields, size, saved.device, saved._names)


def _check_nodes(old: Any, new: Any, path: tuple[str, ...]) -> None:
    """Raises where the rows of a node cannot be put behind those of another."""
    name = path[0] if len(path) == 1 else path
    if any([form_of(node) in (OBJECTS, STACK) for node in (old, new)]):
        raise ValueError(f"Cannot append rows to the entry {name!r}, of type {type(old).__name__}: only tensors grow.")
    if not old.batch_size or old.batch_size[1:] != new.batch_size[1:] or len(old.batch_size) != len(new.batch_size):
        raise ValueError(f"Cannot append rows of batch size {new.batch_size} to the entry {name!r}, of {old.batch_size}.")


def _fits(value: Any, more: Any) -> bool:
    return isinstance(more, torch.Tensor) and value.dtype == more.dtype and value.shape[1:] == more.shape[1:]


def _described(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"of dtype {value.dtype} and shape {tuple(value.shape)}"
    return f"of type {type(value).__name__}"
