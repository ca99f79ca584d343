"""All leaves in one buffer, in memory or in a file."""

from __future__ import annotations

import json
import math
import operator
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from torch import Size, Tensor

from tensordict._io.as_json import is_kept, same_in_python
from tensordict._io.memmap import check_own_entries, in_background
from tensordict._io.plan import OBJECTS, STACK, form_of, is_one_object
from tensordict._io.ragged import MARKS, Pieces, from_buffer
from tensordict._io.tree import CLASS_READERS
from tensordict._kernel.errors import UnreadableError
from tensordict._kernel.keys import key_of
from tensordict._kernel.native import (
    all_tensors,
    consolidate,
    consolidate_to_file,
    open_consolidated,
    packed_places,
    places_in,
)
from tensordict._leaves.unbatched import check_batched
from tensordict._ops.coerce import as_device
from tensordict._ops.trees import Tree, collect, leaves_of, refill
from tensordict._ops.waist import Waist
from tensordict._reexport import lazy_stack, non_tensor, object_stack, plain_tensordict
from tensordict._types import FilePath, TensorCollection
from tensordict.memmap import MemoryMappedTensor

_CPU = torch.device("cpu")
_CLASS = "TensorDict"
_STACK = "LazyStackedTensorDict"
_OBJECTS = "NonTensorStack"
_CLASSES = (_CLASS, _STACK, _OBJECTS, "_SubTensorDict")
# What else a level of the metadata has, beside its nested levels: these have no such names.
_RESERVED = ("cls", "non_tensors", "leaves", "cls_metadata")


class Buffer:
    """What the root of a consolidated tensordict remembers.

    Attributes:
        storage: the bytes that the leaves are views of.
        locks: for each node, depth first, whether it was locked before that: what pickles and files hold.
        filename: the file that `storage` was written to, if it was.
    """

    __slots__ = ("filename", "locks", "storage")

    def __init__(self, storage: Tensor, locks: tuple[bool, ...], filename: str | None = None) -> None:
        self.storage = storage
        self.locks = locks
        self.filename = filename

    def moved(self, node: Any, device: torch.device, non_blocking: bool, pin: bool = False) -> Any:
        """The tensordict `node` of this buffer on another device, moved as one tensor; None if it is no longer consolidated."""
        leaves: list[Any] = []
        tree = collect(node, leaves)
        pieces = Pieces(leaves)
        pieces.part()
        places = places_in(pieces.tensors, self.storage)
        if places is None:
            return None
        source = self.storage.pin_memory() if pin else self.storage
        storage = source.to(device, non_blocking=non_blocking)
        if storage is not self.storage:
            viewer = _Viewer(storage)
            places_of = zip(pieces.tensors, places[0])
            leaves = pieces.leaves([viewer(piece.dtype, piece.shape, start) for piece, start in places_of])
        result = refill(tree, iter(leaves))
        result._label_device(device)
        filename = self.filename if storage is self.storage else None
        result = _held(result, Buffer(storage, self.locks, filename))
        return result.lock_() if node.is_locked else result


class ConsolidateOps(Waist):
    """`consolidate` and its inverse, and what a consolidated tensordict is pickled as."""

    __slots__ = ()

    def consolidate(
        self,
        filename: FilePath | None = None,
        *,
        num_threads: int = 0,
        device: Any = None,
        non_blocking: bool = False,
        inplace: bool = False,
        return_early: bool = False,
        use_buffer: bool = False,
        share_memory: bool = False,
        pin_memory: bool = False,
        metadata: bool = False,
    ) -> Any:
        """A locked tensordict whose leaves are views of one buffer: it moves to a device, and is pickled, as one tensor.

        Values may be written in place, which writes to the buffer. Unlocking gives the buffer up: from then on the leaves
        are tensors like any others. Leaves have no gradient. One that is consolidated as it is asked for is returned itself.

        Args:
            filename: a file to put the buffer in; the leaves are then mapped from it, and writing to them writes to it. The
                file is replaced when the new one is complete.
            num_threads: with more than one and `return_early`, the work goes on in the background.
            device: where the buffer is to be; where the leaves are if not given.
            non_blocking: for the move to `device`. A move to the CPU is always waited for.
            inplace: put the views in the place of the leaves of this tensordict, and return it.
            return_early: return a `TensorDictFuture`.
            use_buffer: accepted; leaves go to the file directly.
            share_memory: make the buffer in memory that other processes see.
            pin_memory: make the buffer in pinned memory.
            metadata: accepted; where the leaves lie is always known.

        Raises:
            RuntimeError: a device that is not the CPU and a file are given, or with `inplace` the tensordict is locked.
            NotImplementedError: work in the background is asked for with `use_buffer` or `non_blocking`.
            ValueError: for a file, a nested key is one of those that its format needs.
            OSError: the file cannot be written; what was there is as it was.
        """
        target = as_device(device)
        early = return_early and (num_threads or 0) > 1
        if filename is not None and target not in (None, _CPU):
            raise RuntimeError("device and filename are mutually exclusive arguments.")
        for option, given in (("use_buffer", use_buffer), ("non_blocking", non_blocking)):
            if early and given:
                raise NotImplementedError(f"consolidate: return_early=True is not supported with {option}=True")

        if filename is None and _is_done(self, target, share_memory, pin_memory):
            return in_background(lambda: self, None, early, num_threads)
        if inplace:
            _check_inplace(self)
        # as it is now, whenever the work is done: the program may change it meanwhile
        tree, leaves = _collected(self)
        pieces, locks = Pieces(leaves), tuple(_locks(tree))
        if filename is not None:
            path = os.path.abspath(os.fspath(filename))
            return in_background(_writing(tree, leaves, pieces, locks, inplace, path), path, early, num_threads)
        if early and not inplace:
            tree = collect(refill(tree, iter(leaves)), [])

        def work() -> Any:
            storage, views = _to_memory(tree, pieces, target, non_blocking, share_memory, pin_memory)
            return _with_views(tree, storage, views, locks, inplace)

        return in_background(work, None, early, num_threads)

    def is_consolidated(self) -> bool:
        """Whether all leaves are views of one buffer, which `consolidate` made, and which holds nothing else."""
        return _places(self) is not None

    @classmethod
    def from_consolidated(cls, filename: FilePath) -> Any:
        """Opens a file that `consolidate` wrote: an unlocked tensordict whose leaves are mapped from it.

        What is written to the leaves stays in this process: the file is as it was.

        Raises:
            FileNotFoundError: there is no such file.
            RuntimeError: the file is too short.
            ValueError: the file holds something else, or is damaged.
        """
        return open_file(filename)

    @property
    def _consolidated(self) -> dict[str, Any]:
        """The buffer as `storage`, where the leaves lie in it as `metadata`, and the file if there is one."""
        found = _as_now(self)
        if found is None:
            raise AttributeError(f"the {type(self).__name__} is not consolidated")
        buffer, metadata = found[0], _describe(*found[1:], found[0].locks)
        out = {"storage": buffer.storage, "metadata": metadata}
        if buffer.filename is not None:
            facts = os.stat(buffer.filename)
            out["filename"] = Path(buffer.filename)
            out["file_id"] = (facts.st_dev, facts.st_ino, facts.st_size)
        return out

    def __reduce_ex__(self, protocol: Any) -> Any:
        found = _as_now(self) if self._wrapped is None else None  # what is wrapped is pickled by itself
        if found is None:
            return super().__reduce_ex__(protocol)
        buffer, taken = found[:2]
        if not _is_plain(self) or _reserved_key(taken) is not None:
            # torch.save refuses views of one storage as several dtypes
            is_shared = buffer.storage.is_shared()  # type: ignore[no-untyped-call]
            return super().__reduce_ex__(protocol) if is_shared else _plain_reduce(self, protocol)
        return _rebuild_tensordict_files_consolidated, (_describe(*found[1:], buffer.locks), buffer.storage)


def _is_plain(node: Any) -> bool:
    """Whether the metadata says all there is to say of the class of a tensordict that wraps no other."""
    if _class_of(node) != _CLASS:
        return type(node).__name__ == _STACK and node.hook_in is None and node.hook_out is None
    return type(node._rebuild({}, node.batch_size)) is type(node)


def _plain_reduce(node: Any, protocol: Any) -> Any:
    """What a tensordict with leaves of its own is pickled as."""
    return node._cloned().lock_().__reduce_ex__(protocol)


def _places(node: Any) -> tuple[list[int], list[int]] | None:
    """First byte of each piece in the buffer, and of what follows; None if the pieces are not, or no longer, all it holds."""
    rare = node._extra
    buffer = rare.get("buffer") if rare is not None else None
    return None if buffer is None else places_in(Pieces(leaves_of(node)).tensors, buffer.storage)


def _as_now(node: Any) -> tuple[Buffer, Any, Pieces, list[int], list[int]] | None:
    """The buffer, the tree and its pieces as they are now, and their places; None where it is not consolidated.

    Nobody else knows the nodes and the pieces: what is said of them is of one moment, whatever becomes of the leaves.
    """
    rare = node._extra
    buffer = rare.get("buffer") if rare is not None else None
    if buffer is None:
        return None
    leaves: list[Any] = []
    taken = refill(collect(node, leaves), iter(leaves))
    pieces = Pieces(leaves)
    pieces.part()
    places = places_in(pieces.tensors, buffer.storage)
    return None if places is None else (buffer, taken, pieces, *places)


def _is_done(node: Any, target: torch.device | None, share: bool, pin: bool) -> bool:
    if _places(node) is None:
        return False
    storage = node._extra["buffer"].storage
    return (
        (target is None or storage.device == target) and (not share or storage.is_shared()) and (not pin or storage.is_pinned())
    )


def _check_inplace(node: Any) -> None:
    """Raises where the leaves cannot be replaced."""
    check_own_entries(node)
    node._check_unlocked()


def _collected(node: Any) -> tuple[Tree, list[Any]]:
    """The tree below `node`, and its leaves, all of which can be consolidated."""
    leaves: list[Any] = []
    tree = collect(node, leaves)
    if not all_tensors(leaves):
        for leaf in leaves:
            check_batched(leaf, "consolidated")
    return tree, leaves


def _to_memory(
    tree: Tree, pieces: Pieces, target: torch.device | None, non_blocking: bool, share: bool, pin: bool
) -> tuple[Tensor, list[Tensor]]:
    """A buffer with copies of the leaves, and its views. It is filled where the leaves are, and moved in one piece."""
    own = _CPU
    moves = target is not None and target != own

    def allocate(size: int) -> Tensor:
        made = torch.empty(size, dtype=torch.uint8, device=own, pin_memory=pin and own.type == "cpu")
        return made.share_memory_() if share and not moves else made  # type: ignore[no-untyped-call]

    # that gives None where a leaf is not on the CPU, before it allocates
    made = consolidate(pieces.tensors, allocate) if pieces.tensors else None
    if made is None:
        pieces.part()
        devices = {leaf.device for leaf in pieces.tensors}
        own = devices.pop() if len(devices) == 1 else target or tree[0].device or _CPU
        moves = target is not None and target != own
        made = _copied(tree, pieces.tensors, allocate)
    storage, views = made
    if moves:
        # without a wait the CPU could read what has not arrived
        storage = storage.to(target, non_blocking=non_blocking and target != _CPU)
        storage = storage.pin_memory() if pin and target == _CPU else storage
        storage = storage.share_memory_() if share else storage
        views = _views_like(storage, views)
    return storage, pieces.leaves(views)


def _sizes(leaves: list[Tensor]) -> list[tuple[int, int]]:
    return [(leaf.numel() * leaf.itemsize, leaf.itemsize) for leaf in leaves]


def _copied(tree: Tree, leaves: list[Tensor], allocate: Any) -> tuple[Tensor, list[Tensor]]:
    """The buffer and its views by torch's own copies, for leaves that are not plain memory; nobody else knows `leaves`."""
    _check_dense(tree, leaves)
    storage = allocate(packed_places(_sizes(leaves))[1]).zero_()
    views = _views_like(storage, leaves)
    for view, leaf in zip(views, leaves):
        view.copy_(leaf)
    return storage, views


def _check_dense(tree: Tree, pieces: list[Tensor]) -> None:
    if any([piece.layout is not torch.strided or piece.is_nested for piece in pieces]):
        raise RuntimeError(
            f"sparse tensors, and nested ones in the strided layout, cannot be consolidated, found {_odd_leaf(tree, ())}"
        )


def _entries(node: Any) -> list[tuple[str, Any]]:
    """The entries by name; the members of a stack by their numbers."""
    return [(str(key), part) for key, part in node._pieces().items()]


def _odd_leaf(tree: Tree, path: tuple[str, ...]) -> str | None:
    """Which leaf is no dense tensor."""
    for key, part in tree[1].items():
        if type(part) is tuple:
            found = _odd_leaf(part, (*path, str(key)))
            if found is not None:
                return found
        elif part.layout is not torch.jagged and (part.layout is not torch.strided or part.is_nested):
            return f"{part.layout} at {(*path, key)!r}"
    return None


class _Viewer:
    """Makes views of parts of a buffer of bytes, which starts at the byte `base` of its storage."""

    def __init__(self, storage: Tensor, base: int = 0) -> None:
        self._storage = storage
        self._base = base
        self._bytes = storage.numel()
        self._typed: dict[torch.dtype, Tensor] = {}
        self._known: dict[Size, tuple[int, ...]] = {}
        self._kept: dict[int, Tensor] = {}

    def kept(self, dtype: torch.dtype, shape: Iterable[int], start: int) -> Tensor:
        """The one view of a place that leaves share."""
        if start not in self._kept:
            self._kept[start] = self(dtype, shape, start)
        return self._kept[start]

    def __call__(self, dtype: torch.dtype, shape: Iterable[int], start: int) -> Tensor:
        size = Size(shape)
        count, item = math.prod(size), dtype.itemsize
        if not 0 <= start <= self._bytes - count * item or (start % item and count):
            raise ValueError(f"{dtype} of shape {list(size)} at byte {start} has no place in a buffer of {self._bytes} bytes")
        typed = self._typed.get(dtype)
        if typed is None:
            typed = self._typed[dtype] = self._storage.narrow(0, 0, self._bytes // item * item).view(dtype)
        offset = (self._base + start) // item if count else 0
        # One that is given a gradient in place gives none to the others, of which all know of a write to the buffer.
        return typed.as_strided(size, self._strides(size), offset).detach()

    def _strides(self, size: Size) -> tuple[int, ...]:
        found = self._known.get(size)
        if found is None:
            steps = accumulate((max(length, 1) for length in reversed(size[1:])), operator.mul, initial=1)
            found = self._known[size] = tuple(steps)[::-1][: len(size)]
        return found


def _views_like(storage: Tensor, leaves: list[Tensor]) -> list[Tensor]:
    viewer = _Viewer(storage)
    starts, _ = packed_places(_sizes(leaves))
    return [viewer(leaf.dtype, leaf.shape, start) for leaf, start in zip(leaves, starts)]


def _with_views(
    tree: Tree, storage: Tensor, views: list[Tensor], locks: tuple[bool, ...], inplace: bool, filename: str | None = None
) -> Any:
    """The locked tensordict of the views: a new one like that of `tree`, or that one itself."""
    if inplace:
        _put(tree, iter(views))
        result = tree[0]
    else:
        result = refill(tree, iter(views))
    if result.device is not None or (filename is not None and not inplace):
        result._label_device(storage.device)
    return _held(result, Buffer(storage, locks, filename)).lock_()


def _held(node: Any, buffer: Buffer) -> Any:
    node._rare["buffer"] = buffer
    return node


def _locks(tree: Tree) -> Iterator[bool]:
    node, pieces = tree
    yield node.is_locked
    if all_tensors(list(pieces.values())):
        return
    for part in pieces.values():
        if type(part) is tuple and not is_one_object(part[0]):
            yield from _locks(part)


def _put(tree: Tree, views: Iterator[Tensor]) -> None:
    node, pieces = tree
    for key, part in pieces.items():
        if type(part) is tuple:
            _put(part, views)
        else:
            node._set_str(key, next(views))


# Metadata: where the leaves lie, as files and pickles hold it.


def _describe(node: Any, pieces: Pieces, starts: list[int], stops: list[int], locks: Iterable[bool]) -> dict[str, Any]:
    """The metadata of a tree. That of a tensorclass is that of the tensordict in it: only those below are named."""
    return {**_level(node, iter(pieces.about(starts, stops)), iter(locks)), "cls": _class_of(node)}


def _class_of(node: Any) -> str:
    form = form_of(node)
    return _STACK if form is STACK else _OBJECTS if form is OBJECTS and not is_one_object(node) else _CLASS


def _level(node: Any, said: Iterator[list[tuple[str, Any]]], locks: Iterator[bool]) -> dict[str, Any]:
    leaves: dict[str, Any] = {}
    objects: dict[str, Any] = {}
    nested: dict[str, Any] = {}
    about = {**(_about(node) if _class_of(node) == _CLASS else _about_stack(node)), "is_locked": next(locks, False)}
    for key, value in _entries(node):
        if is_one_object(value):
            objects[key] = (value.data, list(value.batch_size), None if value.device is None else str(value.device))
        elif isinstance(value, TensorCollection):
            nested[key] = _level(value, said, locks)
        else:
            leaves.update([(mark + key, about) for mark, about in next(said)])
    cls = _class_of(node) if node._wrapped is None else type(node)
    return {"cls": cls, "non_tensors": objects, "leaves": leaves, "cls_metadata": about, **nested}


def _about(node: Any) -> dict[str, Any]:
    return {
        "device": None if node.device is None else str(node.device),
        "names": list(node.names),
        "batch_size": list(node.batch_size),
    }


def _about_stack(node: Any) -> dict[str, Any]:
    return {"stack_dim": node.stack_dim, "stack_dim_name": None if node._names is None else node._names[node.stack_dim]}


def _check_text(node: Any) -> None:
    """Raises where there are keys, names or objects that are not the same when they are read from the text of a file."""
    reserved = _reserved_key(node)
    if reserved is not None:
        raise ValueError(f"a nested key cannot be {reserved!r} in a consolidated file, which has its own entry of that name")
    for path, kept in _names_and_objects(node, ()):
        if not kept:
            raise RuntimeError(
                f"the entry {key_of(path)!r} has a name, or holds an object, that JSON does not give back as it is: it has "
                "no place in a consolidated file: consolidate without a file, or leave it out, with exclude()"
            )


def _names_and_objects(node: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], bool]]:
    """For each entry that is more than a tensor of a plain name, whether it comes back from JSON; tensors are not read."""
    yield from [((*path, name), is_kept(name)) for name in node._names or () if name is not None]
    for key, value in _entries(node):
        if not key.isascii():
            yield (*path, key), is_kept(key)
        if is_one_object(value):
            yield (*path, key), same_in_python(value.data)
        elif isinstance(value, TensorCollection):
            yield from _names_and_objects(value, (*path, key))


def _objects_in(level: Any) -> dict[str, Any]:
    return {
        key: non_tensor(value, Size(size), None if device is None else torch.device(device))
        for key, (value, size, device) in level["non_tensors"].items()
    }


def _reserved_key(node: Any) -> str | None:
    """A key that the metadata has another use for, of a node or as those of the pieces of nested leaves begin."""
    for key, value in _entries(node):
        if isinstance(value, TensorCollection):
            found = key if key in _RESERVED else _reserved_key(value)
            if found is not None:
                return found
        elif key.startswith(MARKS):
            return key
    return None


def _tree(level: Any, viewer: _Viewer) -> Any:
    """The tensordict that a level of metadata describes."""
    about, cls = level["cls_metadata"], level["cls"]
    fields: dict[str, Any] = _objects_in(level)
    if "stack_dim" in about:
        fields.update({key: _tree(below, viewer) for key, below in level.items() if key not in _RESERVED})
        members = [fields[str(place)] for place in range(len(fields))]
        made = lazy_stack(members, about["stack_dim"], stack_dim_name=about["stack_dim_name"]) if members else None
        return _in_class(cls, object_stack([]) if made is None else made)
    fields.update(from_buffer(level["leaves"], viewer))
    for key, below in level.items():
        if key not in _RESERVED:
            fields[key] = _tree(below, viewer)
    names = about["names"]
    if not names or all(name is None for name in names):
        names = None
    device = None if about["device"] is None else torch.device(about["device"])
    return _in_class(cls, plain_tensordict(fields, Size(about["batch_size"]), device, names))


def _in_class(cls: Any, made: Any) -> Any:
    """What a level describes, in the tensorclass that it names: a pickle by the class itself, a file by its text."""
    if isinstance(cls, type) and issubclass(cls, TensorCollection):
        wrap = getattr(cls, "_wrap", None)
        return made if wrap is None else wrap(made)
    if cls in _CLASSES:
        return made
    if str(cls).startswith("<class ") and CLASS_READERS:
        return CLASS_READERS[0](str(cls), made)
    raise ValueError(f"a consolidated {cls} cannot be read yet")


def _relock(node: Any, locks: Iterator[bool]) -> None:
    if next(locks):
        node.lock_()
    for part in node._parts():
        if isinstance(part, TensorCollection) and not is_one_object(part):
            _relock(part, locks)


def _locks_in(level: Any) -> Iterator[bool]:
    yield level["cls_metadata"]["is_locked"]
    for key, below in level.items():
        if key not in _RESERVED:
            yield from _locks_in(below)


def _rebuild_tensordict_files_consolidated(metadata: Any, storage: Tensor) -> Any:
    """The tensordict whose leaves lie in `storage` as `metadata` says: what pickles and files give."""
    result = _tree(metadata, _Viewer(storage, int(storage.storage_offset())))
    locks = tuple(_locks_in(metadata))
    _relock(result, iter(locks))
    return _held(result, Buffer(storage, locks))


# Pickles name it so, here and in the package that this one replaces.
_rebuild_tensordict_files_consolidated.__module__ = "tensordict._reductions"


# Files.


_LENGTH = 8  # bytes at the end of a file that say how long the text before them is
_GRAIN = 16  # bytes of the largest element


def _writing(
    tree: Tree, leaves: list[Any], pieces: Pieces, locks: tuple[bool, ...], inplace: bool, path: str
) -> Callable[[], Any]:
    """What writes a tree as it is now to a file, and gives the tensordict that is mapped from it."""
    taken = refill(tree, iter(leaves))
    _check_text(taken)
    pieces.part()  # what the text says has to be what is written
    own = collect(taken, [])
    _check_dense(own, pieces.tensors)
    starts, size = packed_places(_sizes(pieces.tensors))
    text = json.dumps(_describe(taken, pieces, starts, [*starts[1:], size], locks), default=str)
    # torch.save cannot save a view, of another dtype, of a storage that has not a whole number of its elements
    text += " " * (-(size + len(text) + _LENGTH) % _GRAIN)

    def work() -> Any:
        storage, views = _to_file(own, pieces, text, size, path)
        return _with_views(tree if inplace else own, storage, views, locks, inplace, path)

    return work


def _to_file(tree: Tree, pieces: Pieces, text: str, size: int, path: str) -> tuple[Tensor, list[Tensor]]:
    """Writes the leaves of a tree that nobody else knows to a file; gives its mapped bytes and the views of them."""
    leaves = pieces.tensors
    memory = consolidate_to_file(leaves, path, text)
    if memory is None:
        packed, _ = _copied(tree, [leaf.cpu() for leaf in leaves], _bytes)
        # Modes, such as a default device, are those of a thread. The bytes are written as they are, whatever is active here.
        with ThreadPoolExecutor(1) as thread:
            memory = thread.submit(consolidate_to_file, [packed], path, text).result()
    if memory is None:
        raise RuntimeError(f"the leaves cannot be written to {path}: they have no memory, such as those of a FakeTensorMode")
    storage = _bytes_of(memory, path, size)
    return storage, pieces.leaves(_views_like(storage, leaves))


def _bytes(size: int) -> Tensor:
    return torch.empty(size, dtype=torch.uint8, device=_CPU)


def _bytes_of(memory: Any, path: str, size: int) -> Tensor:
    """The first `size` mapped bytes of a file, as a plain tensor."""
    # The storage is of the whole file, which is how another process that is sent a view maps it.
    whole = MemoryMappedTensor._from_map(memory, torch.uint8, [len(memory)], path)
    return _bytes(0).set_(whole.untyped_storage(), 0, (size,), (1,))


def open_file(filename: FilePath) -> Any:
    """The tensordict in a file that `consolidate` wrote."""
    path = os.path.abspath(os.fspath(filename))
    memory, size, text = open_consolidated(path, "c")
    storage = torch.frombuffer(memory, dtype=torch.uint8).narrow(0, 0, size)
    try:
        return _rebuild_tensordict_files_consolidated(json.loads(text), storage)
    except RecursionError as error:
        raise RecursionError(
            f"{path} is nested so deeply that it takes a higher limit to read it, see sys.setrecursionlimit"
        ) from error
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise UnreadableError(f"{path} cannot be read: {error}") from error
