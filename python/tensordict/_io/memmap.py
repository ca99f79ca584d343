"""Saving tensordicts as folders of memory-mapped files, and reading them."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Size, Tensor
from typing_extensions import Self

from tensordict._io.background import run
from tensordict._io.plan import CPU, OBJECTS, STACK, Plan, form_of, mark
from tensordict._io.ragged import remapped, zeros_of_sizes
from tensordict._io.tree import Files, check_mode, options_of, read, write_leaf
from tensordict._kernel.collector import PAUSED
from tensordict._kernel.errors import LOCKED, batch_mismatch
from tensordict._kernel.keys import key_of, path_of
from tensordict._kernel.native import key_file_name
from tensordict._kernel.pending import PENDING, wait_for
from tensordict._kernel.registry import is_branch
from tensordict._kernel.shapes import shape_of
from tensordict._kernel.turns import TURNS
from tensordict._leaves.unbatched import check_batched
from tensordict._ops.coerce import as_device, as_size
from tensordict._ops.lock import lock_child
from tensordict._ops.waist import Waist
from tensordict._reexport import dense_class
from tensordict._types import FilePath, TensorCollection
from tensordict.memmap import MemoryMappedTensor

_STORAGES = (None, "memmap", "h5", "zarr", "shared", "redis", "dragonfly")


class TensorDictFuture:
    """A tensordict that is being saved in the background.

    Args:
        futures: what is under way.
        resulting_td: the tensordict that is there when all of it is done; not given, what the last future returns.
    """

    def __init__(self, futures: Any, resulting_td: Any = None) -> None:
        self.futures = futures
        self.resulting_td = resulting_td

    def result(self) -> Any:
        """Waits, and gives the tensordict. An error in the background is raised here."""
        last = None
        for future in self.futures:
            last = future.result()
        return last if self.resulting_td is None else self.resulting_td


TensorDictFuture.__module__ = "tensordict.utils"


class MemmapOps(Waist):
    """`memmap` and its relatives, `load_memmap`, `from_schema`."""

    __slots__ = ()

    def memmap(
        self,
        prefix: FilePath | None = None,
        copy_existing: bool = False,
        *,
        num_threads: int = 0,
        return_early: bool = False,
        share_non_tensor: bool = False,
        existsok: bool = True,
        robust_key: bool | None = True,
        archive: bool | None = None,
        compression: Any = None,
        atomic: bool = False,
        durable: bool = False,
    ) -> Any:
        """Saves all leaves to a folder of memory-mapped files and returns a locked tensordict of the mapped leaves.

        The folder holds exactly this tensordict afterwards: a save that is stopped at any moment leaves the old content
        or the new one. Tensors mapped to files that were replaced keep the old content.

        Args:
            prefix: the folder. None maps memory without files, which other processes can share.
            copy_existing: whether leaves that are mapped from files elsewhere may be copied.
            num_threads: with more than one and `return_early`, saving goes on in the background.
            return_early: return a `TensorDictFuture`.
            share_non_tensor: accepted; objects are saved, and each process has its own.
            existsok: whether files that are there may be replaced.
            robust_key: percent-encode characters in file names that file systems do not take.
            archive: not supported yet.
            compression: not supported yet.
            atomic: accepted; saving always is.
            durable: flush files and folders before the save counts, so that it also survives a power cut.

        Raises:
            RuntimeError: a leaf is mapped from elsewhere and may not be copied, or a file exists and may not be replaced.
            OSError: the disk is full, or the folder cannot be written; nothing is changed then.
            ValueError: a key cannot be a file name.
        """
        _refuse_archive(archive, compression)
        _refuse_shared(self)
        options = options_of(robust_key, copy_existing, existsok, durable=durable)
        return in_background(_storing(self, prefix, options, Plan.rebuilt), prefix, return_early, num_threads)

    def memmap_(
        self,
        prefix: FilePath | None = None,
        copy_existing: bool = False,
        *,
        num_threads: int = 0,
        return_early: bool = False,
        share_non_tensor: bool = False,
        existsok: bool = True,
        robust_key: bool | None = True,
        atomic: bool = False,
        durable: bool = False,
    ) -> Any:
        """Saves all leaves as `memmap` does, and puts the mapped leaves in this tensordict, which is locked.

        Raises:
            RuntimeError: this is a view at an index; else as `memmap`.
        """
        _refuse_shared(self)
        check_own_entries(self)
        options = options_of(robust_key, copy_existing, existsok, durable=durable)
        work = _storing(self, prefix, options, Plan.put)
        if not (return_early and num_threads > 1) or self.is_locked:
            return in_background(work, prefix, return_early, num_threads)
        return TensorDictFuture([_run_locked(work, prefix, self)])

    def memmap_like(
        self,
        prefix: FilePath | None = None,
        copy_existing: bool = False,
        *,
        existsok: bool = True,
        num_threads: int = 0,
        return_early: bool = False,
        share_non_tensor: bool = False,
        robust_key: bool | None = True,
        archive: bool | None = None,
        sparse: bool | None = None,
    ) -> Any:
        """A locked tensordict of mapped leaves like those of this one, all zero. The leaves here are not read.

        The space of the files is reserved. Sparse files take it as they are written to, so that they may be larger than what
        the disk has: for replay buffers that are never filled. A write for which there is no space then ends the process with
        a signal (SIGBUS).

        Args:
            prefix: the folder; None maps memory without files.
            copy_existing: accepted; nothing is copied.
            existsok: whether files that are there may be replaced.
            num_threads: with more than one and `return_early`, the work goes on in the background.
            return_early: return a `TensorDictFuture`.
            share_non_tensor: accepted.
            robust_key: percent-encode characters in file names that file systems do not take.
            archive: not supported yet.
            sparse: take space as it is written to, and do not ask whether there is enough. Default: what the environment
                variable `TD_SPARSE_FILES` says, or False.

        Raises:
            OSError: there is not enough space, or the folder cannot be written; nothing is changed then.
        """
        _refuse_archive(archive, None)
        options = options_of(robust_key, True, existsok, empty=True, sparse=sparse)
        return in_background(_storing(self, prefix, options, Plan.rebuilt), prefix, return_early, num_threads)

    def save(
        self,
        prefix: FilePath | None = None,
        copy_existing: bool = False,
        *,
        num_threads: int = 0,
        return_early: bool = False,
        share_non_tensor: bool = False,
        robust_key: bool | None = True,
        archive: bool | None = None,
        compression: Any = None,
        atomic: bool = False,
        durable: bool = False,
    ) -> Any:
        """Saves to a folder; `memmap` under another name."""
        return self.memmap(
            prefix,
            copy_existing,
            num_threads=num_threads,
            return_early=return_early,
            share_non_tensor=share_non_tensor,
            robust_key=robust_key,
            archive=archive,
            compression=compression,
            atomic=atomic,
            durable=durable,
        )

    dumps = save

    @classmethod
    def load(cls, prefix: FilePath, *args: Any, **kwargs: Any) -> Any:
        """Reads a saved folder; `load_memmap` under another name."""
        return cls.load_memmap(prefix, *args, **kwargs)

    def load_(self, prefix: FilePath, *args: Any, **kwargs: Any) -> Self:
        """Deprecated: use `load_memmap_`."""
        warnings.warn("load_ is deprecated, use load_memmap_", DeprecationWarning, stacklevel=2)
        return self.load_memmap_(prefix, *args, **kwargs)

    @classmethod
    def load_memmap(
        cls,
        prefix: FilePath,
        device: Any = None,
        non_blocking: bool = False,
        *,
        out: Any = None,
        robust_key: bool | None = True,
        subpath: Any = None,
        mode: str | None = None,
        num_threads: int = 0,
        allow_pickle: bool | None = None,
    ) -> Any:
        """Reads a saved folder as a tensordict of mapped leaves, unlocked. Every file is checked before it is mapped.

        Args:
            prefix: the folder.
            device: where to put the leaves; on another device than the CPU they are copies.
            non_blocking: for that copy.
            out: a tensordict to put the entries in, which is returned.
            robust_key: how keys became file names. The other way is tried where that finds nothing.
            subpath: a nested entry, as a path or a tuple of keys: that part alone is read.
            mode: `r+` writes to the files; `r` keeps what is written in this process; None writes where the files'
                permissions allow it.
            num_threads: accepted; reading is parallel where that is worth it.
            allow_pickle: read objects that are pickles, which can run any code. Not given, only those that this process wrote.

        Raises:
            FileNotFoundError: there is no such folder, or a file in it is missing.
            RuntimeError: a file is shorter or longer than its entry says.
            ValueError: the metadata is not valid, or there is no tensordict at `subpath`.
        """
        check_mode(mode)
        if not (allow_pickle is None or isinstance(allow_pickle, bool)):
            raise TypeError(f"allow_pickle must be a bool or None, got {allow_pickle!r}")
        keys = () if subpath is None else _keys(subpath)
        if os.path.isfile(prefix):
            raise ValueError(f"{prefix} is a file, expected a folder of memory maps: archives cannot be read yet")
        options: dict[str, Any] = {"robust_key": robust_key, "mode": mode, "allow_pickle": allow_pickle}
        found = read(prefix, part=keys, device=as_device(device), non_blocking=non_blocking, **options)
        return found if out is None else out.update(found)

    def load_memmap_(
        self, prefix: FilePath, robust_key: bool | None = True, *, allow_pickle: bool | None = None, mode: str | None = None
    ) -> Self:
        """Puts the entries of a saved folder in the place of those here.

        Raises:
            RuntimeError: this tensordict is locked, or the batch sizes do not fit.
        """
        if self.is_locked:
            raise RuntimeError(LOCKED)
        found = read(prefix, robust_key=robust_key, mode=mode, allow_pickle=allow_pickle)
        _put_entries(self, found)
        return self

    def memmap_refresh_(self, *, allow_pickle: bool | None = None) -> Self:
        """Reads the folder of this tensordict again, after another process changed it.

        Raises:
            RuntimeError: this tensordict is not mapped to a folder.
        """
        rare = self._extra
        if not self.is_memmap() or rare is None or rare.get("prefix") is None:
            raise RuntimeError("Cannot refresh a TensorDict that is not memory mapped or has no path associated.")
        found = read(rare["prefix"], allow_pickle=allow_pickle)
        _check_alike(self, found, ())
        _refresh(self, found)
        return mark(self)

    def is_memmap(self) -> bool:
        """Whether this is what `memmap` or a relative made, and nothing was unlocked since: all leaves are mapped."""
        rare = self._extra
        return bool(rare and rare.get("memmap")) and self.is_locked

    @property
    def _is_memmap(self) -> bool:
        """Whether this node was mapped; libraries read it."""
        return bool(self._extra and self._extra.get("memmap"))

    @property
    def saved_path(self) -> Path | None:
        """The folder that the leaves are mapped to; None for mapped memory without files.

        Raises:
            AttributeError: this tensordict is not mapped.
        """
        rare = self._extra or {}
        if not self.is_memmap():
            raise AttributeError(f"The tensordict has no saved path (memmap=False, path={rare.get('prefix')}).")
        return rare.get("prefix")

    def make_memmap(
        self,
        key: Any,
        shape: Any,
        *,
        dtype: torch.dtype | None = None,
        robust_key: bool | None = True,
        sparse: bool | None = None,
    ) -> Tensor:
        """Adds a mapped entry of zeros to this mapped tensordict, and to its folder.

        Args:
            key: where. Levels that are not there are made.
            shape: the shape, which starts with the batch size; or a matrix with the sizes of each component of a nested
                tensor.
            dtype: default: torch's default dtype.
            robust_key: percent-encode characters in file names that file systems do not take.
            sparse: take space as it is written to, as for `memmap_like`.

        Raises:
            RuntimeError: this tensordict is not mapped, the key exists, or the shape does not fit.
            OSError: there is not enough space; nothing is changed then.
        """
        dtype = torch.get_default_dtype() if dtype is None else dtype
        if isinstance(shape, Tensor) and shape.ndim > 1:
            return _add_leaf(self, key, zeros_of_sizes(shape, dtype), options_of(robust_key, True, True))
        shape = shape if isinstance(shape, Size) else as_size(shape)
        template = torch.empty(shape, dtype=dtype, device="meta")
        return _add_leaf(self, key, template, options_of(robust_key, True, True, empty=True, sparse=sparse))

    def make_memmap_from_tensor(
        self, key: Any, tensor: Tensor, *, copy_data: bool = True, existsok: bool = True, robust_key: bool | None = True
    ) -> Tensor:
        """Adds a mapped copy of a tensor to this mapped tensordict, and to its folder.

        Args:
            key: where. Levels that are not there are made.
            tensor: what to copy.
            copy_data: copy the values; zeros otherwise.
            existsok: whether a file of that name may be replaced.
            robust_key: percent-encode characters in file names that file systems do not take.

        Raises:
            RuntimeError: as `make_memmap`, or the file exists.
        """
        return _add_leaf(self, key, tensor, options_of(robust_key, True, existsok, empty=not copy_data))

    def make_memmap_from_storage(
        self, key: Any, storage: Any, shape: Any, *, dtype: torch.dtype | None = None, robust_key: bool | None = True
    ) -> Tensor:
        """Adds an entry over a storage to this mapped tensordict, and to its folder.

        A storage that is the mapped file of that place is kept as it is; one in memory, or whose file is gone, is copied.

        Raises:
            RuntimeError: as `make_memmap`, or the storage is mapped from a file elsewhere.
        """
        size = shape if isinstance(shape, Size) else as_size(shape)
        tensor = MemoryMappedTensor.from_storage(storage, shape=size, dtype=dtype)
        if tensor._filename is not None:
            # one whose file is gone is memory like any other
            tensor._filename = os.path.abspath(tensor._filename) if os.path.exists(tensor._filename) else None
        return _add_leaf(self, key, tensor, options_of(robust_key, True, True), strict=True)

    @classmethod
    def from_schema(
        cls, schema: Any, *, batch_size: Any = None, storage: str | None = None, device: Any = None, **kwargs: Any
    ) -> Any:
        """A tensordict of zeros for pairs of shape and dtype.

        Args:
            schema: a mapping of keys, also nested ones, to `(shape, dtype)`; the batch size is put before the shape.
            batch_size: default: empty.
            storage: None for memory, `memmap` for mapped files (with `prefix=`) or mapped memory, `shared` for memory that
                other processes share.
            device: where to put the leaves.
            **kwargs: for `memmap`: what `memmap_like` takes.

        Raises:
            ValueError: the storage is not known.
        """
        if storage not in _STORAGES:
            listed = ", ".join(map(repr, _STORAGES))
            raise ValueError(f"Unknown storage backend {storage!r}. Expected one of {listed}.")
        if storage not in (None, "memmap", "shared"):
            raise RuntimeError(f"the storage {storage!r} cannot be made yet")
        size = Size(() if batch_size is None else batch_size)
        where = torch.device("meta") if storage == "memmap" else as_device(device)
        kind: Any = cls if issubclass(cls, dense_class()) else dense_class()
        made = kind({}, batch_size=size, device=None if storage == "memmap" else where)
        for key, (shape, dtype) in schema.items():
            made.set(key, torch.zeros((*size, *shape), dtype=dtype, device=where))
        if storage == "memmap":
            return made.memmap_like(**kwargs)
        return made.share_memory_() if storage == "shared" else made


def _refuse_archive(archive: Any, compression: Any) -> None:
    if archive or compression is not None:
        raise RuntimeError("archives in one file cannot be written yet: leave out archive= and compression=")


def check_own_entries(node: Any) -> None:
    """Raises where the entries are those of another container, so that none of them can be replaced by a mapped one."""
    if node._is_rows:
        raise RuntimeError(
            f"Converting a sub-tensordict values to memmap cannot be done: the entries of a {type(node).__name__} are rows of "
            "those of its parent"
        )


def _refuse_shared(node: Any) -> None:
    rare = node._extra
    if rare and rare.get("shared"):
        raise RuntimeError("memmap and shared memory are mutually exclusive features.")


def in_background(work: Any, place: FilePath | None, return_early: bool, num_threads: int) -> Any:
    """The result of `work`, which saves to `place`, or a future of it."""
    early = return_early and num_threads > 1
    result = run(work, place, early)
    return TensorDictFuture([result]) if early else result


def _run_locked(work: Callable[[], Any], prefix: Any, node: Any) -> Any:
    """A future of work on a node that is locked from now on, unless it fails: what comes in meanwhile would be in no file."""
    node.lock_()
    try:
        future = run(partial(_do_or_unlock, work, node), prefix, True)
    except BaseException:
        node.unlock_()
        raise
    future.add_done_callback(lambda future: node.unlock_() if future.cancelled() else None)
    return future


def _do_or_unlock(work: Callable[[], Any], node: Any) -> Any:
    try:
        return work()
    except BaseException:
        node.unlock_()
        raise


def _storing(node: Any, prefix: Any, options: dict[str, bool], then: Callable[..., Any]) -> Callable[[], Any]:
    """What saves a tree as it is now, and does something with its mapped leaves."""
    plan = Plan(node)
    if prefix is None:
        rare = node._extra
        where = rare.get("prefix") if rare else None
        sparse = options["sparse"]
        make = partial(_zeros_like, sparse=sparse) if options["empty"] else _in_memory
        return lambda: then(plan, [make(leaf) for leaf in plan.leaves], plan.folders(where, options["robust_key"]))
    root = Path(os.path.abspath(prefix))
    if then is Plan.put:
        plan.check_apart()
    files = Files(plan)

    def work() -> Any:
        leaves = files.write(root, options)
        with PAUSED:
            return then(plan, leaves, plan.folders(root, options["robust_key"]))

    return work


def _in_memory(leaf: Tensor) -> Tensor:
    """A leaf in mapped memory without a file; one that is mapped already stays."""
    return leaf if type(leaf) is MemoryMappedTensor else _without_file(leaf.detach())


def _without_file(leaf: Tensor) -> Tensor:
    check_batched(leaf, "mapped")
    return remapped(leaf, MemoryMappedTensor.from_tensor) if leaf.is_nested else MemoryMappedTensor.from_tensor(leaf)


def _zeros_like(leaf: Tensor, sparse: bool) -> Tensor:
    make = partial(_zeros, sparse=sparse)
    return remapped(leaf, make) if leaf.is_nested else make(leaf)


def _zeros(leaf: Tensor, sparse: bool) -> Tensor:
    return MemoryMappedTensor.zeros(leaf.shape, dtype=leaf.dtype, sparse=sparse)


def _below(folder: Path | None, key: str, robust_key: bool | None) -> Path | None:
    """The folder of a nested entry, in the spelling in which it is there."""
    if folder is None:
        return None
    wanted, other = [folder / key_file_name(key, robust) for robust in (robust_key is not False, robust_key is False)]
    return other if other.is_dir() and not wanted.is_dir() else wanted


def _put_entries(node: Any, found: Any) -> None:
    """Puts the entries of another tree, whose batch size may be longer, in place of those of `node`."""
    dims, fields = node.batch_size, found._fields()
    for key, value in fields.items():
        shape = value.batch_size if isinstance(value, TensorCollection) else shape_of(value)
        if shape[: len(dims)] != dims:
            raise batch_mismatch(key, dims, shape)
    for key in [key for key in node._fields() if key not in fields]:
        node._del_str(key)
    for key, value in fields.items():
        node._set_str(key, _placed(node, value))


def _placed(node: Any, value: Any) -> Any:
    """A value on the device of a node."""
    return value if node.device in (None, CPU) else value.to(node.device)


def _check_alike(node: Any, found: Any, path: tuple[str, ...]) -> None:
    """Raises if another tree cannot be taken over by `node`, whose path is `path`: nothing is changed then."""
    kinds = [f"a stack of {len(one._parts())} members" if form_of(one) is STACK else "no stack" for one in (node, found)]
    if kinds[0] != kinds[1]:
        where = f"the folder of {key_of(path)!r}" if path else "the folder"
        raise RuntimeError(f"{where} holds {kinds[1]}, and what is mapped to it is {kinds[0]}: load it anew")
    for key, old, value in _shared(node, found):
        _check_alike(old, value, (*path, str(key)))


def _refresh(node: Any, found: Any) -> None:
    """Puts the entries of another tree in place of those of `node`; the nodes that both have stay, with other entries.

    No node is unlocked meanwhile, so that all are locked and mapped wherever this is broken off.
    """
    shared = {key: old for key, old, _ in _shared(node, found)}
    if form_of(node) in (STACK, OBJECTS):  # which has members, or nothing that others hold
        for place, value in found._pieces().items():
            if place in shared:
                _refresh(shared[place], value)
            else:
                node.tensordicts[place] = _held_by(node, value)
        return
    node._set_batch_size(found.batch_size)
    fields = found._fields()
    for key in [key for key in node._fields() if key not in fields]:
        node._del_str(key)
    for key, value in fields.items():
        if key in shared:
            _refresh(shared[key], value)
        else:
            node._set_str(key, _held_by(node, _placed(node, value)))


def _held_by(node: Any, value: Any) -> Any:
    """What comes into a node that is locked and mapped."""
    if isinstance(value, TensorCollection):
        lock_child(node, mark(value))
    return value


def _shared(node: Any, found: Any) -> Iterator[tuple[Any, Any, Any]]:
    """The nodes that stand at the same key, or place, of two trees and can stay: the key and both."""
    others = found._pieces()
    for key, old in node._pieces().items():
        value = others.get(key)
        if is_branch(old) and type(old) is type(value):
            yield key, old, value


def _keys(subpath: Any) -> tuple[str, ...]:
    """The keys of a nested entry."""
    if isinstance(subpath, str):
        return tuple([key for key in subpath.split("/") if key])
    try:
        return path_of(subpath)
    except KeyError:
        raise ValueError("subpath must be a string path or a (nested) tuple of strings.") from None


def _add_leaf(root: Any, key: Any, leaf: Tensor, options: dict[str, bool], strict: bool = False) -> Tensor:
    """Adds a mapped leaf to a mapped tree and its folder."""
    if not root.is_memmap():
        raise RuntimeError("Can only make a memmap tensor within a memory-mapped tensordict.")
    path = path_of(key)
    dims = root.batch_size
    if shape_of(leaf)[: len(dims)] != dims:
        raise batch_mismatch(key, dims, shape_of(leaf))
    node, missing = _descend(root, path)
    if not missing:
        raise RuntimeError(
            f"The key {key} already exists within the target tensordict. Delete that entry before overwriting it."
        )
    schema = node._schema
    if schema is not None and missing[0] not in schema.fields:
        raise schema.foreign({missing[0]})
    prefix = root._rare.get("prefix")
    if prefix is not None:
        if strict:
            _check_place(leaf, prefix, path, options["robust_key"])
        if PENDING:
            wait_for(prefix)
        mapped = write_leaf(root, prefix, path, leaf, options)
    elif options["empty"]:
        mapped = MemoryMappedTensor.zeros(leaf.shape, dtype=leaf.dtype, sparse=options["sparse"])
    else:
        mapped = MemoryMappedTensor.from_tensor(leaf)
    with TURNS.at(id(root)):
        node, missing = _descend(root, path)  # other threads may have made levels meanwhile
        for name in missing[:-1]:
            child = node._rebuild({}, dims, CPU, None)
            child._rare.update(memmap=True, prefix=_below(node._rare.get("prefix"), name, options["robust_key"]))
            lock_child(node, child)
            node._set_str(name, child)
            node = child
        node._set_str(path[-1], mapped)
    return mapped


def _descend(node: Any, path: tuple[str, ...]) -> tuple[Any, tuple[str, ...]]:
    """The deepest node on the path that is there, and the rest of the path."""
    for number, key in enumerate(path):
        value = node._fields().get(key)
        if value is None:
            return node, path[number:]
        if not isinstance(value, TensorCollection):
            break
        node = value
    return node, ()


def _check_place(leaf: Any, prefix: Any, path: tuple[str, ...], robust_key: bool | None) -> None:
    """Raises unless a mapped leaf is the file of its place."""
    own = leaf._filename
    *folders, last = [key_file_name(key, robust_key is not False) for key in path]
    place = os.path.join(prefix, *folders, f"{last}.memmap")
    if own is not None and not (os.path.exists(place) and os.path.samefile(own, place)):
        raise RuntimeError(
            "Providing a storage with an associated filename that differs from the filename argument is not permitted "
            f"unless filename=None. Got filename={place}, storage.filename={own}"
        )
