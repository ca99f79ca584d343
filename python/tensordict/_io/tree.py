"""Trees of tensordicts as plans for the native code, and back."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Size, Tensor

from tensordict._io.ragged import Structures, built, files_of
from tensordict._kernel.collector import collector_paused
from tensordict._kernel.native import load_tree, save_leaf, save_tree
from tensordict._kernel.unbatched import check_batched
from tensordict._reexport import lazy_stack, plain_tensordict
from tensordict._types import FilePath, TensorCollection
from tensordict.memmap import MemoryMappedTensor

CPU = torch.device("cpu")

# What reads a level that is no plain dictionary, by its class (`_class`, or `_type` in older folders): it is called with
# the folder of the level, its metadata as JSON, and the keyword arguments of `load`.
READERS: dict[str, Callable[..., Any]] = {}

# What gives a container the class of that name, which a folder says it has.
CLASS_READERS: list[Callable[[str, Any], Any]] = []

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
    plain = leaf.detach().as_subclass(Tensor).to(CPU).resolve_conj().resolve_neg()
    return plain.clone(memory_format=torch.contiguous_format).view(-1).view(torch.uint8)


def _origin(leaf: Any) -> str | None:
    """The file that a leaf is mapped from as a whole."""
    if type(leaf) is MemoryMappedTensor and not leaf._index_chain:
        return leaf._filename
    return None


# The folder, below that of a container around another one, in which the other one is.
INNER = "_tensordict"


def _level(parent: int | None, key: str, node: Any, after: int) -> tuple[Any, ...]:
    if node._is_non_tensor:
        return parent, key, type(node).__name__, (), None, after, None, node._described()
    if node._wrapped is not None:
        kind = type(node)
        return parent, key, kind.__name__, (), None, after, None, (json.dumps({"_type": str(kind)}), [])
    names = node._names
    if node._stacked:
        return parent, key, type(node).__name__, node.batch_size, names, after, None, (_stack_metadata(node), [])
    return parent, key, "TensorDict", node.batch_size, names, after, None, None


def _stack_metadata(node: Any) -> str:
    """What a folder says of a stack, whose members lie in sub-folders named by their numbers."""
    kind = type(node)
    return json.dumps(
        {
            "_type": str(kind),
            "_format_version": 1,
            "_class": f"tensordict:{kind.__name__}",
            "stack_dim": node.stack_dim,
            "stack_dim_name": None if node._names is None else node._names[node.stack_dim],
        }
    )


class Plan:
    """What the native code saves of a tree: its levels, and its leaves depth first."""

    __slots__ = ("leaves", "levels", "ragged", "structures")

    def __init__(self, node: Any) -> None:
        self.levels: list[tuple[Any, ...]] = []
        # Level, key, tensor, the file it is mapped from, what the metadata says if it is more or less than a tensor.
        self.leaves: list[tuple[int, str, Tensor, str | None, str | None]] = []
        # Nested leaves by the place of their first file, with the number of files.
        self.ragged: dict[int, tuple[Tensor, int]] = {}
        self.structures: Structures = {}
        self._add(None, "", node)

    def _add(self, parent: int | None, key: str, node: Any) -> None:
        levels, leaves = self.levels, self.leaves
        number = len(levels)
        levels.append(_level(parent, key, node, len(leaves)))
        if node._is_non_tensor:
            return
        if node._wrapped is not None:
            self._add(number, INNER, node._wrapped)
            return
        if node._stacked:
            for place, part in enumerate(node._parts()):
                self._add(number, str(place), part)
            return
        for name, value in node._fields().items():
            if type(value) is Tensor and not value.is_nested:
                leaves.append((number, name, value, None, None))
            elif isinstance(value, TensorCollection):
                self._add(number, name, value)
            elif value.is_nested:
                start = len(leaves)
                files = files_of(name, value, self.structures)
                leaves.extend((number, key, tensor, None, says) for key, tensor, says in files)
                self.ragged[start] = (value, len(leaves) - start)
            else:
                check_batched(value, "saved", name)
                leaves.append((number, name, value, _origin(value), None))

    def results(self, root: str, stored: list[Any]) -> Iterator[Tensor]:
        """The mapped leaves, depth first."""
        at = 0
        structures: Structures = {}
        while at < len(stored):
            if at not in self.ragged:
                yield _result(self.leaves[at][2], root, *stored[at])
                at += 1
                continue
            count = self.ragged[at][1]
            mapped = [_result(self.leaves[place][2], root, *stored[place]) for place in range(at, at + count)]
            yield built(self.leaves[at][4] or "", mapped, structures, stored[at][1])
            at += count


def _options(
    robust_key: bool | None, copy_existing: bool, existsok: bool, empty: bool, durable: bool = False
) -> dict[str, bool]:
    return {
        "robust_key": robust_key is not False,
        "copy_existing": copy_existing,
        "existsok": existsok,
        "durable": durable,
        "empty": empty,
    }


@collector_paused()
def write(
    node: Any,
    prefix: FilePath,
    copy_existing: bool,
    existsok: bool,
    robust_key: bool | None,
    empty: bool = False,
    durable: bool = False,
) -> Iterator[Tensor]:
    """Saves a tree to a folder, or one like it with zeros, and gives its mapped leaves, depth first."""
    plan = Plan(node)
    root = os.path.abspath(prefix)
    leaves = [(number, key, leaf, None, says) for number, key, leaf, _, says in plan.leaves] if empty else plan.leaves
    options = _options(robust_key, copy_existing, existsok, empty, durable)
    try:
        stored = save_tree(root, plan.levels, leaves, prepare, options)
    except FileExistsError as error:
        raise RuntimeError(f"{error}: pass existsok=True to replace it") from None
    if plan.ragged:
        return plan.results(root, stored)
    if all([memory is not None for memory, _ in stored]):
        tensors = ((memory, leaf[2].dtype, leaf[2].shape, file) for leaf, (memory, file) in zip(plan.leaves, stored))
        return MemoryMappedTensor._from_maps(tensors, f"{root}/")
    return (_result(leaf[2], root, *saved) for leaf, saved in zip(plan.leaves, stored))


def _result(leaf: Any, root: str, memory: Any, file: str) -> Tensor:
    """The mapped tensor of a leaf that was saved."""
    if memory is not None:
        return MemoryMappedTensor._from_map(memory, leaf.dtype, leaf.shape, f"{root}/{file}")
    if leaf.numel():
        return leaf
    return MemoryMappedTensor.from_filename(f"{root}/{file}", leaf.dtype, leaf.shape)


def write_leaf(
    root: Any, prefix: FilePath, path: tuple[str, ...], leaf: Tensor, *, empty: bool, existsok: bool, robust_key: bool | None
) -> Tensor:
    """Adds one leaf to the folder of a tree, with the levels that it lacks."""
    levels, node = [_level(None, "", root, 0)], root
    for key in path[:-1]:
        node = node._fields().get(key, node) if node is not None else node
        levels.append(_level(len(levels) - 1, key, node, 0))
    folder = os.path.abspath(prefix)
    options = _options(robust_key, True, existsok, empty)

    def put(key: str, tensor: Tensor, says: str | None) -> Tensor:
        plan = (len(levels) - 1, key, tensor, None if empty else _origin(tensor), says)
        try:
            saved = save_leaf(folder, levels, plan, prepare, options)
        except FileExistsError as error:
            raise RuntimeError(f"{error}: pass existsok=True to replace it") from None
        return _result(tensor, folder, *saved)

    if not leaf.is_nested:
        return put(path[-1], leaf, None)
    if leaf.layout is torch.jagged:  # whether it shares its ragged dimension is said by a number among all leaves
        raise NotImplementedError(f"the jagged leaf {path[-1]!r} cannot be added to a folder by itself: save the whole")
    files = list(files_of(path[-1], leaf, {}))
    # the values last: the metadata names the leaf once all its files are there
    mapped = [put(*file) for file in reversed(files)]
    return built(files[0][2], mapped[::-1], {}, folder)


@collector_paused()
def read(
    prefix: FilePath,
    *,
    part: str = "",
    device: torch.device | None = None,
    non_blocking: bool = False,
    robust_key: bool | None = True,
    mode: str | None = None,
    **options: Any,
) -> Any:
    """Reads a tree, or the part of it in a sub-folder, as tensordicts of mapped tensors."""
    check_mode(mode)
    root = os.path.abspath(prefix)
    levels = load_tree(root, part, robust_key is not False, _MODES[mode], True)
    nodes: list[Any] = [None] * len(levels)
    structures: Structures = {}
    for number in range(len(levels) - 1, -1, -1):
        level = levels[number]
        other = level[8]
        if other is not None:
            nodes[number] = _read_other(root, level, mode=mode, robust_key=robust_key, **options)
            continue
        fields = level[7]
        simple = [found for found in fields.values() if _is_simple(found)]
        mapped = MemoryMappedTensor._from_maps(simple, f"{root}/", mode)
        for key, found in fields.items():
            if _is_simple(found):
                fields[key] = next(mapped)
            else:
                fields[key] = nodes[found] if type(found) is int else _leaf(found, root, mode, structures)
        _fit_objects(fields, Size(level[4]))
        where = CPU if level[5] is not None else None
        node = plain_tensordict(fields, Size(level[4]), where, level[6])
        node._rare["prefix"] = Path(prefix, level[3])
        nodes[number] = node
    top = nodes[0]
    return top if device is None or device.type == "cpu" else top.to(device, non_blocking=non_blocking)


def _fit_objects(fields: dict[str, Any], batch_size: Size) -> None:
    """Gives holders of one object the batch size of the node they are in, where their folder does not say it."""
    for value in fields.values():
        single = isinstance(value, TensorCollection) and value._is_non_tensor and not value._stacked  # type: ignore[attr-defined]
        if single and value.batch_size[: len(batch_size)] != batch_size:
            value._set_batch_size(batch_size)


def _is_simple(found: Any) -> bool:
    """Whether it is a leaf with elements that is not ragged."""
    return type(found) is tuple and len(found) == 4 and found[0] is not None


def _leaf(found: tuple[Any, ...], root: str, mode: str | None, structures: Structures) -> Tensor:
    if len(found) == 2:
        text, files = found
        return built(text, [_mapped(file, root, mode) for file in files], structures, f"{root}/{files[0][3]}")
    return _mapped(found, root, mode)


def _read_stack(folder: str, text: str, **options: Any) -> Any:
    """A stack, whose members lie in sub-folders named by their numbers.

    Raises:
        ValueError: its metadata is not valid.
    """
    metadata = json.loads(text)
    dim, name = metadata.get("stack_dim"), metadata.get("stack_dim_name")
    if type(dim) is not int or not (name is None or isinstance(name, str)):
        raise ValueError(f"the metadata in {folder} is that of a stack, with the stack dimension {dim!r} named {name!r}")
    listed = sum(key.isdecimal() for key in metadata)
    members: list[Any] = []
    while len(members) < listed if listed else os.path.isfile(os.path.join(folder, str(len(members)), "meta.json")):
        members.append(read(os.path.join(folder, str(len(members))), **options))
    if not members:
        raise ValueError(f"the stack in {folder} has no members")
    node = lazy_stack(members, dim, stack_dim_name=name)
    node._rare["prefix"] = Path(folder)
    return node


READERS["tensordict:LazyStackedTensorDict"] = READERS["<class 'tensordict._lazy.LazyStackedTensorDict'>"] = _read_stack


def _mapped(found: tuple[Any, ...], root: str, mode: str | None) -> Tensor:
    memory, dtype, shape, file = found
    if memory is None:
        return torch.empty(shape, dtype=dtype)
    return MemoryMappedTensor._from_map(memory, dtype, shape, f"{root}/{file}", mode)


def _read_other(root: str, level: tuple[Any, ...], **options: Any) -> Any:
    """A level that is no plain dictionary, by what is registered for its class."""
    key, folder = level[1], level[3]
    type_name, class_name, text = level[8]
    reader = READERS.get(class_name) or READERS.get(type_name)
    if reader is None and CLASS_READERS and os.path.isdir(os.path.join(root, folder, INNER)):
        return CLASS_READERS[0](type_name, read(os.path.join(root, folder, INNER), **options))
    if reader is None:
        where = f"the entry {key!r}" if key else "the root"
        raise RuntimeError(
            f"cannot read {where} in {os.path.join(root, folder)}: it is of class {class_name or type_name}, which has no "
            "reader here"
        )
    return reader(os.path.join(root, folder), text, **options)
