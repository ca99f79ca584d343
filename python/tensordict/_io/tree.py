"""Trees of tensordicts in folders: what the native code saves of one, and one of what it reads."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Size, Tensor

from tensordict._io.plan import CPU, DICT, INNER, OBJECTS, STACK, WRAPPER, Plan, Spot, is_one_object, kind_of, known_files
from tensordict._io.ragged import Structures, files_of, from_files
from tensordict._kernel.collector import PAUSED
from tensordict._kernel.errors import UnreadableError
from tensordict._kernel.fork import close_inherited_locks
from tensordict._kernel.native import FolderMoment, Level, load_tree, save_leaf, save_tree
from tensordict._kernel.settings import SPARSE_FILES
from tensordict._leaves.unbatched import check_batched
from tensordict._reexport import lazy_stack, plain_tensordict
from tensordict._types import FilePath, TensorCollection
from tensordict.memmap import MemoryMappedTensor, check_whole, origin_of


class Saved(NamedTuple):
    """A level that is no plain dictionary, as it was read.

    Attributes:
        folder: its folder.
        text: its metadata as JSON.
        files: the files beside that: name and content.
        members: the levels in it by the names of their folders, numbers in their order.
        allow_pickle: whether pickles may be read; None for those that this process wrote.
    """

    folder: str
    text: str
    files: dict[str, bytes]
    members: dict[str, Any]
    allow_pickle: bool | None

    def metadata(self) -> dict[str, Any]:
        """What the metadata says.

        Raises:
            UnreadableError: Python cannot read it.
            RecursionError: it is nested too deeply for the interpreter.
        """
        try:
            found: dict[str, Any] = json.loads(self.text)
        except RecursionError as error:
            raise self.too_deep() from error
        except ValueError as error:  # a number that is too long
            raise self.unreadable(str(error)) from error
        return found

    def unreadable(self, why: str) -> UnreadableError:
        """The error that the level is not what its metadata says it is."""
        return UnreadableError(f"{os.path.join(self.folder, 'meta.json')} cannot be read: {why}")

    def too_deep(self) -> RecursionError:
        """The error that the level cannot be read with so few frames."""
        path = os.path.join(self.folder, "meta.json")
        return RecursionError(f"{path} is nested so deeply that it takes a higher limit to read it, see sys.setrecursionlimit")


# What makes a node of a level that is no plain dictionary, by its class (`_class`, or `_type` in older folders).
READERS: dict[str, Callable[[Saved], Any]] = {}

# What gives a container the class of that name, which a folder says it has.
CLASS_READERS: list[Callable[[str, Any], Any]] = []
# What a folder says of a holder of objects, and the files beside it; one function.
OBJECT_WRITERS: list[Callable[[Any], tuple[str, list[tuple[str, bytes]]]]] = []

close_inherited_locks()

_MODES = {None: "r+", "r+": "r+", "r": "c"}


def check_mode(mode: str | None) -> None:
    """Raises `ValueError` unless `mode` is one of those that files are read in."""
    if mode not in _MODES:
        raise ValueError(f"mode must be 'r', 'r+' or None, got {mode!r}.")


def prepare(leaf: Tensor) -> Tensor:
    """A dense CPU tensor of the type that the native code reads, with the same values."""
    if leaf.layout is not torch.strided:
        raise RuntimeError(f"only dense tensors can be saved, got a tensor of layout {leaf.layout}")
    if leaf.is_meta:
        raise NotImplementedError("Cannot copy out of meta tensor; no data!")
    if leaf.is_quantized:
        raise NotImplementedError("quantized tensors cannot be saved: the files have no place for their scales")
    check_whole(leaf)
    plain = leaf.detach().as_subclass(Tensor).to(CPU).resolve_conj().resolve_neg()
    return plain.clone(memory_format=torch.contiguous_format).view(-1).view(torch.uint8)


def _origin(leaf: Any) -> tuple[str, Any] | None:
    """The file that a leaf is mapped from as a whole, and its map where it is known."""
    return origin_of(leaf) if type(leaf) is MemoryMappedTensor and not leaf._index_chain else None


def _level(spot: Spot, after: int) -> Level:
    """What a folder says of a node, which comes after that many files of leaves."""
    kind = type(spot.node)
    if spot.kind is DICT:
        return Level(spot.parent, spot.key, "TensorDict", spot.size, spot.names, after)
    files: list[tuple[str, bytes]] = []
    if spot.kind is OBJECTS:
        text, files = OBJECT_WRITERS[0](spot.node)
    elif spot.kind is WRAPPER:
        text = json.dumps({"_type": str(kind)})
    else:
        text = json.dumps(_stack_metadata(spot))
    return Level(spot.parent, spot.key, kind.__name__, (), None, after, text, files)


def _stack_metadata(spot: Spot) -> dict[str, Any]:
    """What a folder says of a stack, whose members lie in sub-folders named by their numbers."""
    node, kind = spot.node, type(spot.node)
    return {
        **{place: {"type": type(member.node).__name__} for place, member in spot.fields.items()},  # type: ignore[union-attr]
        "_type": str(kind),
        "_format_version": 1,
        "_class": f"tensordict:{kind.__name__}",
        "stack_dim": node.stack_dim,
        "stack_dim_name": None if spot.names is None else spot.names[node.stack_dim],
    }


class Files:
    """The files of a tree.

    Attributes:
        levels: what the native code writes of its nodes.
        rows: level, key, tensor, the file it is mapped from, and what the metadata says if it is more or less than a tensor,
            for each file of a leaf.
    """

    __slots__ = ("_ragged", "_structures", "levels", "rows")

    def __init__(self, plan: Plan) -> None:
        self.levels: list[Level] = []
        self.rows: list[tuple[int, str, Tensor, tuple[str, Any] | None, str | None]] = []
        # Nested leaves by the place of their first file, with the number of files.
        self._ragged: dict[int, tuple[Tensor, int]] = {}
        self._structures: Structures = {}
        self._add(plan.spots[0], plan.leaves)

    def _add(self, spot: Spot, leaves: list[Tensor]) -> None:
        # nodes are numbered in the order in which this comes to them
        self.levels.append(_level(spot, len(self.rows)))
        rows, number = self.rows, spot.number
        for key, found in spot.fields.items():
            if type(found) is not int:
                self._add(found, leaves)  # type: ignore[arg-type]
                continue
            leaf: Any = leaves[found]
            if type(leaf) is Tensor and not leaf.is_nested:
                rows.append((number, key, leaf, None, None))
            elif leaf.is_nested:
                start = len(rows)
                files = files_of(key, leaf, self._structures)
                rows.extend((number, name, tensor, None, says) for name, tensor, says in files)
                self._ragged[start] = (leaf, len(rows) - start)
            else:
                check_batched(leaf, "saved", key)
                rows.append((number, key, leaf, _origin(leaf), None))

    def write(self, prefix: FilePath, options: dict[str, bool], since: FolderMoment | None = None) -> list[Tensor] | None:
        """Saves the tree to a folder, or one like it of zeros, and gives its mapped leaves, depth first.

        Nothing is saved, and None is what there is, where others have changed the folder since the moment `since`.
        """
        root = os.path.abspath(prefix)
        empty = options["empty"]
        rows = [(number, key, leaf, None, says) for number, key, leaf, _, says in self.rows] if empty else self.rows
        try:
            stored = save_tree(root, self.levels, rows, prepare, options, since)
        except OSError as error:
            raise _explained(error, [row[2] for row in rows]) from None
        if stored is None:
            return None
        with PAUSED:
            return self._mapped(root, stored)

    def _mapped(self, root: str, stored: list[Any]) -> list[Tensor]:
        """The mapped leaves of what was saved."""
        if self._ragged:
            return list(self._results(root, stored))
        if all([memory is not None for memory, _ in stored]):
            tensors = ((memory, leaf[2].dtype, leaf[2].shape, file) for leaf, (memory, file) in zip(self.rows, stored))
            return list(MemoryMappedTensor._from_maps(tensors, f"{root}/"))
        return [_result(leaf[2], root, *saved) for leaf, saved in zip(self.rows, stored)]

    def _results(self, root: str, stored: list[Any]) -> Iterator[Tensor]:
        at = 0
        structures: Structures = {}
        while at < len(stored):
            if at not in self._ragged:
                yield _result(self.rows[at][2], root, *stored[at])
                at += 1
                continue
            count = self._ragged[at][1]
            mapped = [_result(self.rows[place][2], root, *stored[place]) for place in range(at, at + count)]
            yield from_files(self.rows[at][4] or "", mapped, structures, stored[at][1])
            at += count


def _explained(error: OSError, leaves: list[Tensor]) -> Exception:
    """What to raise where the system refuses to save some leaves."""
    if isinstance(error, FileExistsError):
        return RuntimeError(f"{error.strerror}: pass existsok=True to replace it")
    if error.errno == errno.EFAULT:  # what the system says where a signal would else end the process
        for leaf in leaves:
            try:
                check_whole(leaf)
            except RuntimeError as cut:
                return cut
    return error


def options_of(
    robust_key: bool | None,
    copy_existing: bool,
    existsok: bool,
    empty: bool = False,
    durable: bool = False,
    sparse: bool | None = None,
) -> dict[str, bool]:
    """How the native code saves."""
    return {
        "robust_key": robust_key is not False,
        "copy_existing": copy_existing,
        "existsok": existsok,
        "durable": durable,
        "empty": empty,
        "sparse": SPARSE_FILES.value if sparse is None else sparse,
    }


def _result(leaf: Any, root: str, memory: Any, file: str) -> Tensor:
    """The mapped tensor of a leaf that was saved."""
    if memory is not None:
        return MemoryMappedTensor._from_map(memory, leaf.dtype, leaf.shape, f"{root}/{file}")
    if leaf.numel():
        return leaf
    return MemoryMappedTensor.from_filename(f"{root}/{file}", leaf.dtype, leaf.shape)


def _path_levels(root: Any, path: tuple[str, ...]) -> list[Level]:
    """The levels that lead from a tree to the one of an entry; those that are not there are plain."""
    node = root
    while kind_of(node) is WRAPPER:  # whose folder is known as that of what it wraps
        node = node._wrapped
    spots = [Spot(node, 0, None, "")]
    for key in path[:-1]:
        while kind_of(node) is WRAPPER:
            node = node._wrapped
            spots.append(Spot(node, len(spots), len(spots) - 1, INNER))
        below = node._fields().get(key, node)
        if isinstance(below, TensorCollection):
            node = below
        spots.append(Spot(node, len(spots), len(spots) - 1, key))
    while kind_of(node) is WRAPPER:
        node = node._wrapped
        spots.append(Spot(node, len(spots), len(spots) - 1, INNER))
    if any([spot.kind in (STACK, OBJECTS) for spot in spots]):
        raise RuntimeError(f"an entry cannot be added to the folder of a lazy stack, got the key {path}")
    return [_level(spot, 0) for spot in spots]


def write_leaf(root: Any, prefix: FilePath, path: tuple[str, ...], leaf: Tensor, options: dict[str, bool]) -> Tensor:
    """Adds one leaf to the folder of a tree, with the levels that it lacks."""
    empty = options["empty"]
    levels = _path_levels(root, path)
    folder = os.path.abspath(prefix)

    def put(key: str, tensor: Tensor, says: str | None) -> Tensor:
        plan = (len(levels) - 1, key, tensor, None if empty else _origin(tensor), says)
        try:
            saved = save_leaf(folder, levels, plan, prepare, options)
        except OSError as error:
            raise _explained(error, [tensor]) from None
        return _result(tensor, folder, *saved)

    if not leaf.is_nested:
        return put(path[-1], leaf, None)
    if leaf.layout is torch.jagged:  # whether it shares its ragged dimension is said by a number among all leaves
        raise NotImplementedError(f"the jagged leaf {path[-1]!r} cannot be added to a folder by itself: save the whole")
    files = list(files_of(path[-1], leaf, {}))
    # the values last: the metadata names the leaf once all its files are there
    mapped = [put(*file) for file in reversed(files)]
    return from_files(files[0][2], mapped[::-1], {}, folder)


def read(
    prefix: FilePath,
    *,
    part: Sequence[str] = (),
    device: torch.device | None = None,
    non_blocking: bool = False,
    robust_key: bool | None = True,
    mode: str | None = None,
    allow_pickle: bool | None = None,
) -> Any:
    """Reads a tree, or the part of it at some keys, as tensordicts of mapped tensors."""
    check_mode(mode)
    root = os.path.abspath(prefix)
    with PAUSED:
        try:
            levels = load_tree(root, list(part), robust_key is not False, _MODES[mode], True)
        except KeyError as error:
            raise ValueError(f"No tensordict found under subpath {'/'.join(part)!r}: {error.args[0]}") from None
        top = _root_of(_nodes(levels, root, mode, allow_pickle))
        return top if device is None or device.type == "cpu" else top.to(device, non_blocking=non_blocking)


def _nodes(levels: list[Level], root: str, mode: str | None, allow_pickle: bool | None) -> list[Any]:
    """The nodes of the levels that were read."""
    nodes: list[Any] = [None] * len(levels)
    structures: Structures = {}
    for number in range(len(levels) - 1, -1, -1):
        level = levels[number]
        folder = os.path.join(root, level.folder) if level.folder else root
        if level.text is not None:
            members = {key: nodes[found] for key, found in level.fields.items()}
            nodes[number] = _other(level, Saved(folder, level.text, dict(level.files), members, allow_pickle))
            continue
        fields = level.fields
        simple = [found for found in fields.values() if _is_simple(found)]
        mapped = MemoryMappedTensor._from_maps(simple, f"{root}/", mode)
        for key, found in fields.items():
            if _is_simple(found):
                fields[key] = next(mapped)
            else:
                fields[key] = nodes[found] if type(found) is int else _leaf(found, root, mode, structures)
        size = Size(level.batch_size)
        _fit_objects(fields, size)
        node = plain_tensordict(fields, size, CPU if level.device is not None else None, level.names)
        node._rare["prefix"] = Path(folder)
        nodes[number] = node
    return nodes


def _root_of(nodes: list[Any]) -> Any:
    """The root of a tree that was read; where there are objects in it, all know which files tell its save from others."""
    if OBJECTS in map(kind_of, nodes):
        known = known_files([leaf for node in nodes if kind_of(node) is DICT for leaf in node._fields().values()])
        for node in nodes:
            node._rare["known"] = known
    return nodes[0]


def _fit_objects(fields: dict[str, Any], batch_size: Size) -> None:
    """Gives holders of one object the batch size of the node they are in, where their folder does not say it."""
    for value in fields.values():
        if is_one_object(value) and value.batch_size[: len(batch_size)] != batch_size:
            value._set_batch_size(batch_size)


def _is_simple(found: Any) -> bool:
    """Whether it is a leaf with elements that is not ragged."""
    return type(found) is tuple and len(found) == 4 and found[0] is not None


def _leaf(found: tuple[Any, ...], root: str, mode: str | None, structures: Structures) -> Tensor:
    if len(found) == 2:
        text, files = found
        return from_files(text, [_mapped(file, root, mode) for file in files], structures, f"{root}/{files[0][3]}")
    return _mapped(found, root, mode)


def _mapped(found: tuple[Any, ...], root: str, mode: str | None) -> Tensor:
    memory, dtype, shape, file = found
    if memory is None:
        return torch.empty(shape, dtype=dtype)
    return MemoryMappedTensor._from_map(memory, dtype, shape, f"{root}/{file}", mode)


def _other(level: Level, saved: Saved) -> Any:
    """The node of a level that is no plain dictionary, by what is registered for its class."""
    type_name, class_name = level.class_names
    reader = READERS.get(class_name or "") or READERS.get(type_name)
    if reader is None and CLASS_READERS and INNER in saved.members:
        try:
            return CLASS_READERS[0](type_name, saved.members[INNER])
        except (RuntimeError, ValueError) as error:
            raise saved.unreadable(str(error)) from error
    if reader is None:
        where = f"the entry {level.key!r}" if level.key else "the root"
        raise saved.unreadable(f"{where} is of class {class_name or type_name}, which has no reader here")
    node = reader(saved)
    node._rare["prefix"] = Path(saved.folder)
    return node


def _read_stack(saved: Saved) -> Any:
    """A stack, whose members lie in sub-folders named by their numbers.

    Raises:
        UnreadableError: its metadata is not valid.
    """
    metadata = saved.metadata()
    dim, name = metadata.get("stack_dim"), metadata.get("stack_dim_name")
    if type(dim) is not int or not (name is None or isinstance(name, str)):
        raise saved.unreadable(f"it is that of a stack, with the stack dimension {dim!r} named {name!r}")
    if list(saved.members) != [str(place) for place in range(len(saved.members))] or not saved.members:
        raise saved.unreadable(f"a stack has the members {list(saved.members)}, expected numbers from 0 on")
    try:
        return lazy_stack(list(saved.members.values()), dim, stack_dim_name=name)
    except (LookupError, OverflowError, RuntimeError, TypeError, ValueError) as error:
        raise saved.unreadable(f"its members make no stack along dimension {dim} named {name!r}: {error}") from error


READERS["tensordict:LazyStackedTensorDict"] = READERS["<class 'tensordict._lazy.LazyStackedTensorDict'>"] = _read_stack
