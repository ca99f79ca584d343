"""An index of a lazy stack, parted into what concerns the stack dimension and what concerns the dimensions of the members.

No size of a member is asked for: each member applies its own part to itself. So an index of members of unlike batch sizes
means for each of them what it means for it alone, as a place counted from the end does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import repeat
from typing import Any

import torch
from torch import Size, Tensor

from tensordict._kernel.index import Index, parse
from tensordict._kernel.shapes import broadcast

_WHOLE = slice(None)
Key = tuple[Any, ...]


class Parted:
    """Which members an index meets, and the index within each.

    Attributes:
        at: the dimension of the result along which the members stand; those of a tensor of several dimensions begin there.
        shape: how many stand along each of these dimensions; `()` where the index picks one member.
        members: the numbers of the members, in the order of the result.
        keys: the index within each of them, or the one within all of them.
    """

    __slots__ = ("at", "keys", "members", "shape")

    def __init__(self, index: Index, dim: int, count: int) -> None:
        items = _items(index.key)
        place = _place_of(items, dim)
        items += [_WHOLE] * (place + 1 - len(items))
        own = items[place]
        tensors = [where for where, item in enumerate(items) if isinstance(item, Tensor)]
        self.keys: Key | list[Key] = (*items[:place], *items[place + 1 :])
        if isinstance(own, int):
            self.at, self.shape, self.members = 0, Size(()), [range(count)[own]]
        elif isinstance(own, slice):
            self.at = _place_of_slice(items, place, tensors)
            self.members = list(range(count)[own])
            self.shape = Size((len(self.members),))
        else:
            self._of_tensor(items, place, tensors, count)

    def _of_tensor(self, items: list[Any], place: int, tensors: list[int], count: int) -> None:
        """The parts of an index with a tensor at the stack dimension: each of its numbers goes with one of every other."""
        block = broadcast([items[where].shape for where in tensors])
        if block is None:
            shapes = [items[where].shape for where in tensors]
            raise IndexError(f"shape mismatch: the index tensors of shapes {shapes} do not broadcast")
        columns = {where: items[where].expand(block).flatten().tolist() for where in tensors}
        self.at, self.shape = _place_of_block(items, tensors), block
        try:
            self.members = [range(count)[number] for number in columns[place]]
        except IndexError:
            raise IndexError(f"the index {items[place]} is out of bounds for the {count} members of the lazy stack") from None
        if len(tensors) > 1:
            kept = [where for where in range(len(items)) if where != place]
            self.keys = [
                tuple([columns[where][row] if where in columns else items[where] for where in kept])
                for row in range(len(self.members))
            ]

    def rows(self) -> Iterator[tuple[int, Key]]:
        """For each member that is met, in the order of the result, its number and the index within it."""
        keys = self.keys
        return zip(self.members, keys if isinstance(keys, list) else repeat(keys))


def _items(key: Any) -> list[Any]:
    """The elements of a parsed index: masks as the numbers that they stand for, tensors of one number as that."""
    items: list[Any] = []
    masks: list[Tensor] = []
    for item in key if type(key) is tuple else (key,):
        if not isinstance(item, Tensor):
            items.append(item)
        elif item.dtype in (torch.bool, torch.uint8):
            items += [None] if not item.ndim else item.nonzero(as_tuple=True)
            masks += [] if item.ndim else [item]
        else:
            items.append(item if item.ndim else int(item))
    if masks and (not all(masks) or len(masks) > 1 or any([isinstance(item, Tensor) for item in items])):
        raise IndexError(
            f"a boolean in the index {key} adds a dimension of no element, which a lazy stack of unlike members lacks"
        )
    return items


def _place_of(items: list[Any], dim: int) -> int:
    """The place of the element that consumes the dimension `dim`, behind the last if there is none."""
    for place, item in enumerate(items):
        if item is not None:
            if not dim:
                return place
            dim -= 1
    return len(items) + dim


def _made_before(items: list[Any], place: int) -> int:
    """How many dimensions of the result come of slices and None before a place."""
    return sum([item is None or isinstance(item, slice) for item in items[:place]])


def _place_of_block(items: list[Any], tensors: list[int]) -> int:
    """Where the dimensions of the tensors of an index stand: in front if something else makes a dimension between them."""
    first = _made_before(items, tensors[0])
    return first if first == _made_before(items, tensors[-1]) else 0


def _place_of_slice(items: list[Any], place: int, tensors: list[int]) -> int:
    """Where the dimension of a slice at `place` stands in the result."""
    before = _made_before(items, place)
    if not tensors:
        return before
    first, between = _made_before(items, tensors[0]), _made_before(items, tensors[-1]) - _made_before(items, tensors[0])
    if not between and tensors[0] > place:
        return before
    if between == 1 and tensors[0] < place < tensors[-1] and first:
        # without the slice the tensors are neighbours, and stand elsewhere in what a member gives
        raise RuntimeError(
            f"the index {tuple(items)} has tensors on both sides of the stack dimension, and something before them, which a "
            "lazy stack of members of unlike batch sizes does not take; index it in two steps"
        )
    return before + max([items[where].ndim for where in tensors])


def finder(members: list[Any]) -> Callable[[int, Key], Index | None]:
    """What gives the index within a member for its part of an index: None for all of it. One parse for each batch size."""
    known: dict[tuple[int, Size], Index] = {}

    def find(member: int, key: Key) -> Index | None:
        if all([type(item) is slice and item == _WHOLE for item in key]):
            return None
        size = members[member].batch_size
        found = known.get((id(key), size))  # slices have no hash; the keys live as long as their owner
        if found is None:
            found = known[id(key), size] = parse(key, size)
        return found

    return find


def picked(node: Any, index: Index) -> Any:
    """The elements of a lazy stack with members at an index, made of what each member gives for its part of it."""
    members = node.tensordicts
    parted = Parted(index, node.stack_dim, len(members))
    find = finder(members)

    def part(member: int, key: Key) -> Any:
        own = find(member, key)
        return members[member] if own is None else members[member]._index(own)

    found = [part(member, key) for member, key in parted.rows()]
    at, shape = parted.at, parted.shape
    if not shape:
        return found[0]
    if not found:
        return _none_of(members[0], parted)
    for count in reversed(shape[1:]):
        found = [node._like(found[row : row + count], at) for row in range(0, len(found), count)]
    return node._like(found, at)


def _none_of(member: Any, parted: Parted) -> Any:
    """No elements, of the batch size and the entries that those of the first member would have."""
    key = () if isinstance(parted.keys, list) else parted.keys
    made = member._index(parse(key, member.batch_size)) if key else member
    for _ in parted.shape:
        made = made.unsqueeze(parted.at)
    size = made.batch_size
    return made.expand(*size[: parted.at], *parted.shape, *size[parted.at + len(parted.shape) :])
