"""One walk over a tree that goes to disk: its nodes with what they are, and its leaves, taken at one moment.

Whatever is done with the tree then (files planned, leaves mapped, a tree like it built, the leaves put in it) goes by this
record and not by the tree, which another thread may change meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nsmallest
from pathlib import Path
from typing import Any

import torch
from torch import Size, Tensor

from tensordict._kernel.keys import key_of
from tensordict._kernel.native import Map, key_file_name
from tensordict._ops.lock import lock_child
from tensordict._ops.trees import copy_nodes
from tensordict._types import Names, TensorCollection
from tensordict.memmap import MemoryMappedTensor, origin_of

CPU = torch.device("cpu")

# The folder, below that of a container around another one, in which the other one is.
INNER = "_tensordict"

# Mapped files of a save, by name, which tell it from others that come to be at its place. The maps keep the numbers of the
# files from being given to others.
Known = list[tuple[str, Map]]
_ENOUGH = 4

# What a node is: a dictionary of fields, a stack of members, a container around another one, a holder of objects.
DICT, STACK, WRAPPER, OBJECTS = "dict", "stack", "wrapper", "objects"


def kind_of(value: Any) -> str | None:
    """What an entry is; None for a leaf."""
    if not isinstance(value, TensorCollection):
        return None
    node: Any = value
    if node._is_non_tensor:
        return OBJECTS
    if node._wrapped is not None:
        return WRAPPER
    return STACK if node._stacked else DICT


def form_of(value: Any) -> str | None:
    """What an entry is below the containers that only give it a class."""
    kind = kind_of(value)
    while kind is WRAPPER:
        value = value._wrapped
        kind = kind_of(value)
    return kind


def is_one_object(value: Any) -> bool:
    """Whether an entry holds one object for the whole batch."""
    return kind_of(value) is OBJECTS and not value._stacked


class Spot:
    """One node of a tree.

    Attributes:
        node: the node.
        kind: what it is.
        number: its place among the nodes, each of which comes after the one that it is in.
        parent: the number of that one; None for the root.
        key: its key there, or its name where that has no keys.
        fields: the number of a leaf, or the node, by key.
        size: its batch size.
        names: the names of its dimensions.
    """

    __slots__ = ("fields", "key", "kind", "names", "node", "number", "parent", "size")

    def __init__(self, node: Any, number: int, parent: int | None, key: str) -> None:
        self.node = node
        self.kind: str = kind_of(node)  # type: ignore[assignment]
        self.number = number
        self.parent = parent
        self.key = key
        self.fields: dict[str, int | Spot] = {}
        self.size: Size = node.batch_size
        self.names: Names = node._names

    def inside(self) -> list[tuple[str, Any]]:
        """What is in it, each under its key, taken at one moment."""
        node = self.node
        if self.kind is DICT:
            return list(node._entries().items())
        if self.kind is STACK:
            return [(str(place), part) for place, part in enumerate(node._pieces().values())]
        return [(INNER, node._wrapped)] if self.kind is WRAPPER else []


class Plan:
    """The nodes and leaves of a tree, as they were when this was made.

    Attributes:
        spots: the nodes, each after the one that it is in.
        leaves: the leaves in the order of fields, depth first.
    """

    __slots__ = ("leaves", "spots")

    def __init__(self, root: Any) -> None:
        self.spots: list[Spot] = []
        self.leaves: list[Tensor] = []
        self._add(root, None, "")

    def _add(self, node: Any, parent: int | None, key: str) -> Spot:
        spot = Spot(node, len(self.spots), parent, key)
        self.spots.append(spot)
        leaves, fields, number = self.leaves, spot.fields, spot.number
        for name, value in spot.inside():
            if type(value) is Tensor or not isinstance(value, TensorCollection):
                fields[name] = len(leaves)
                leaves.append(value)
            else:
                fields[name] = self._add(value, number, name)
        return spot

    def folders(self, root: Path | None, robust_key: bool | None) -> list[Path | None]:
        """The folder of each node in a folder `root`."""
        found: list[Path | None] = [root]
        for spot in self.spots[1:]:
            above = found[spot.parent]  # type: ignore[index]
            found.append(None if above is None else above / key_file_name(spot.key, robust_key is not False))
        return found

    def rebuilt(self, leaves: list[Tensor], folders: list[Path | None]) -> Any:
        """A tree like this one of other leaves on the CPU, which is locked and marked as mapped to folders."""
        made: list[Any] = [None] * len(self.spots)
        for spot in reversed(self.spots):
            made[spot.number] = self._rebuilt_node(spot, leaves, made)
        return _locked_as_mapped(self.spots, made, folders, leaves)

    def _rebuilt_node(self, spot: Spot, leaves: list[Tensor], made: list[Any]) -> Any:
        node = spot.node
        if spot.kind is OBJECTS:
            node = copy_nodes(node)
            node._label_device(CPU)
            return node
        fields = {
            key: leaves[found] if type(found) is int else made[found.number]  # type: ignore[union-attr]
            for key, found in spot.fields.items()
        }
        if spot.kind is WRAPPER:
            return node._wrap(fields[INNER])
        if spot.kind is STACK:
            return node._from_pieces(dict(enumerate(fields.values())))
        return node._rebuild(fields, spot.size, CPU, spot.names)

    def check_apart(self) -> None:
        """Raises where a node is in the tree twice, so that it cannot be mapped to the folders of both places."""
        first: dict[int, Spot] = {}
        for spot in self.spots:
            before = first.setdefault(id(spot.node), spot)
            if before is not spot and spot.kind is not OBJECTS:
                raise RuntimeError(
                    f"the {type(spot.node).__name__} at {self._path(spot)} is the one at {self._path(before)} too: in place it "
                    "cannot be mapped to the files of both. memmap() gives a tree with one for each; copy() before it does too"
                )

    def _path(self, spot: Spot) -> str:
        keys: list[str] = []
        while spot.parent is not None:
            keys.append(spot.key)
            spot = self.spots[spot.parent]
        return repr(key_of(tuple([key for key in reversed(keys) if key != INNER])))

    def _part_objects(self) -> None:
        """Gives each place its own holder of objects, where one is at several: each has a file."""
        seen: set[int] = set()
        for spot in self.spots:
            if spot.kind is OBJECTS and id(spot.node) in seen and spot.parent is not None:
                above = self.spots[spot.parent].node
                spot.node = copy_nodes(spot.node)
                if above.is_locked:
                    lock_child(above, spot.node)
                above._set_str(spot.key, spot.node)
            seen.add(id(spot.node))

    def put(self, leaves: list[Tensor], folders: list[Path | None]) -> Any:
        """Puts other leaves in the tree itself, which is locked and marked as mapped to folders."""
        self._part_objects()
        for spot in self.spots:
            if spot.kind is OBJECTS:
                spot.node._label_device(CPU)
            elif spot.kind is DICT:
                for key, found in spot.fields.items():
                    if type(found) is int:
                        spot.node._set_str(key, leaves[found])
                spot.node._set_device(CPU)
        return _locked_as_mapped(self.spots, [spot.node for spot in self.spots], folders, leaves)


def known_files(leaves: Iterable[Any]) -> Known:
    """Some of the files that leaves are mapped from, the smallest."""
    mapped = [leaf for leaf in leaves if type(leaf) is MemoryMappedTensor and not leaf._index_chain and leaf.numel()]
    few = nsmallest(_ENOUGH, mapped, key=lambda leaf: leaf.untyped_storage().nbytes())
    found = [origin_of(leaf) for leaf in few]
    return [origin for origin in found if origin is not None and origin[1] is not None]  # type: ignore[misc]


def _locked_as_mapped(spots: list[Spot], nodes: list[Any], folders: list[Path | None], leaves: list[Tensor]) -> Any:
    """Locks a tree and marks its nodes as mapped to folders."""
    nodes[0].lock_()
    # objects are written again without a look at the leaves, whose files say whether the folder still is that of the tree
    known = known_files(leaves) if any([spot.kind is OBJECTS for spot in spots]) else None
    for spot, node, folder in zip(spots, nodes, folders):
        rare = node._rare
        rare["memmap"] = True
        if spot.kind is not WRAPPER:
            rare["prefix"] = folder
        if known is not None:
            rare["known"] = known
        if spot.kind is OBJECTS:
            rare["within"] = False
            mark_within(node)
    return nodes[0]


def mark_within(node: Any) -> None:
    """Marks the parts of a stack of objects, which is in one file."""
    for part in node._parts():
        if isinstance(part, TensorCollection):
            # it may have been in a folder of its own before
            part._rare.update(memmap=True, within=True, prefix=None, known=None)
            mark_within(part)


def mark(node: Any) -> Any:
    """Locks a tree whose nodes know their folders, and marks them as mapped."""
    node.lock_()
    for spot in Plan(node).spots:
        spot.node._rare["memmap"] = True
        if spot.kind is OBJECTS:
            mark_within(spot.node)
    return node
