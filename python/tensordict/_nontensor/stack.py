"""The stack of objects: a lazy stack whose members hold objects."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Size
from typing_extensions import Self

from tensordict._convert.linked_list import LinkedList
from tensordict._io.plan import mark_within
from tensordict._kernel.change import Change
from tensordict._kernel.index import Index, parse
from tensordict._kernel.numbering import Sources
from tensordict._kernel.settings import CAPTURE_NON_TENSOR_STACK
from tensordict._lazy.moves import Places, changed
from tensordict._lazy.stack import LazyStackedTensorDict
from tensordict._nontensor.data import HoldsObjects, MetaData, NonTensorData, NonTensorDataBase, check_own_file, compared
from tensordict._nontensor.values import alike, holders, nested, same, sources
from tensordict._ops.trees import copy_nodes
from tensordict._ops.writes import Writes
from tensordict._types import Names, TensorCollection


class NonTensorStack(HoldsObjects, LazyStackedTensorDict):
    """Python objects for the elements of a batch: the lazy stack of what holds them.

    It moves with a batch as a tensor does. `td[key]` gives the objects as a list, and what is put into that list is written
    to the tensordict.

    Args:
        *args: the objects, or nodes that hold some.
        stack_dim: the dimension along which they stand.
        **kwargs: those of `LazyStackedTensorDict`.

    >>> import torch
    >>> from tensordict import NonTensorStack, TensorDict
    >>> td = TensorDict({"a": torch.zeros(3), "s": NonTensorStack("x", "y", "z")}, [3])
    >>> td["s"][0] = "w"
    >>> td[torch.tensor([2, 1, 0])]["s"]
    LinkedList(['z', 'y', 'w'])
    """

    __slots__ = ()
    _is_non_tensor = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*[_holder(item) for item in args], **kwargs)

    @classmethod
    def from_nontensordata(cls, non_tensor: Any) -> Any:
        """A stack with the object of a holder for each element."""
        return non_tensor.maybe_to_stack()

    @classmethod
    def from_list(cls, input: Iterable[Any], **options: Any) -> Any:
        """A stack of the objects of a list; lists in it become stacks too.

        >>> from tensordict import NonTensorStack
        >>> NonTensorStack.from_list([["a", 1], ["b", None]]).batch_size
        torch.Size([2, 2])
        """
        return NonTensorStack._of([cls.from_list(item) if isinstance(item, list) else _holder(item) for item in input], 0)

    # The objects.

    @property  # type: ignore[misc]
    def data(self) -> Any:
        """The object, if all elements have the same.

        Raises:
            AttributeError: they have not.
        """
        found = holders(self)
        if not found or not all([same(found[0]._data, item._data) for item in found[1:]]):
            raise AttributeError(f"Cannot get the non-unique data of a {type(self).__name__}. Use .tolist() instead.")
        return found[0]._data

    def _exposed(self, node: Any = None, key: str = "") -> Any:
        if node is None or not node._stacked:
            made = _linked(self, self, None, ())
            made._td = weakref.ref(self)
            return made
        return _linked(self, node, key, ())  # the entry of a lazy stack is made when it is read

    def tolist(self, *, as_linked_list: bool = False, **options: Any) -> Any:
        """The objects in lists nested as the batch has dimensions.

        Args:
            as_linked_list: lists that write what is put into them to this stack.
            **options: accepted.
        """
        if as_linked_list:
            return self._exposed()
        size = self.batch_size
        if -1 in size:
            return [member.tolist() for member in self.tensordicts]
        return nested([item._data for item in holders(self)], size)

    def to_dict(self, **options: Any) -> Any:
        """The objects in nested lists."""
        return self.tolist()

    def maybe_to_stack(self) -> Any:
        """This stack."""
        return self

    # The waist, where it differs from that of other lazy stacks.

    def _rebuild(
        self, fields: dict[str, Any], batch_size: Size, device: torch.device | None = None, names: Names = None
    ) -> Any:
        if fields:
            return super()._rebuild(fields, batch_size, device, names)
        size = self.batch_size
        if size[: len(batch_size)] == batch_size:  # more dimensions than asked for are no harm
            return copy_nodes(self)
        try:
            made = NonTensorData._of(self.data, batch_size, device)
        except AttributeError:
            raise RuntimeError(
                f"a {type(self).__name__} of the batch size {size} cannot get the batch size {batch_size}: its objects are for "
                "the elements it has"
            ) from None
        made._set_names(names)
        return made

    def _anew(self, batch_size: Size, device: torch.device | None, names: Names) -> Any:
        fresh = NonTensorData._of(None, device=device)  # nobody knows what the new elements have
        return built([fresh] * math.prod(batch_size), batch_size)

    def _dense(self, must: bool = False) -> Any:
        return self if must else None

    def densify(self, layout: torch.layout = torch.strided) -> Any:
        return self

    def contiguous(self, *args: Any, **kwargs: Any) -> Any:
        """This stack: objects have no other form."""
        return self

    def _from_pieces(self, pieces: dict[Any, Any], change: Change | None = None) -> Any:
        if change is None:
            return super()._from_pieces(pieces)
        return self if change.sizes_only else self._transform(change)

    def _transform(self, change: Change) -> Any:
        return self._snapshot()._moved(change)

    def _moved(self, change: Change) -> Any:
        """This stack, which nobody else has, after a change."""
        size = self.batch_size
        bare = not self.tensordicts and not change.fills
        if self.stack_dim >= change.consumed or bare or -1 in size[: change.consumed]:
            return changed(self, change)
        if change.mixes is not None:
            return _reduced(self, change)
        if not change.fills:
            is_line = len(size) == 1 == change.consumed and 0 not in change.prefix
            if is_line and len(change.prefix) < 2:
                return self._line(change)
            places = None if is_line else Places(self, change)
            if places is not None and places.member.numel() and len(places.varying()) <= 1:
                out = changed(self, change, places)
                # a lazy stack shares its members with the rows of a list of places: objects move as elements do
                if change.copies or _repeats(change, size):
                    out = copy_nodes(out)
                # elements of one member stay elements
                return out if out._stacked else out.maybe_to_stack()
        found = holders(self)
        origin = Sources(change, size)
        fresh = NonTensorData._of(None, device=self.device)
        moved = [fresh if place < 0 else found[place] for place in origin.number.reshape(-1).tolist()]
        names = self._names
        make = arranged if origin.view and not (change.copies or _repeats(change, size)) else built
        return make(moved, change.shape(size), None if names is None else change.names(names))

    def _line(self, change: Change) -> Any:
        """A stack of one dimension after a change that keeps or drops it: its members, or copies of them."""
        members = self.tensordicts
        found = Sources(change, (len(members),))
        places = found.number.tolist()
        if type(places) is int:
            out = members[places]
        else:
            out = self._like([members[place] for place in places], 0, change.origins[0] == 0)
        return out if found.view and not _repeats(change, self.batch_size) else copy_nodes(out)

    def _index(self, index: Index) -> Any:
        if type(index.key) is int or (type(index.key) is slice and index.prefix[0]):
            return super()._index(index)
        return self._transform(index)

    def _plan_assign(self, index: Index, value: Any, plan: Writes) -> None:
        plan.put_call(partial(self._put_rows, index, plan.own(value)))

    def _put_rows(self, index: Index, value: Any) -> None:
        if -1 in self.batch_size:
            self._put_parts(index, value)
            return
        self._put(sources(index, self.batch_size), self._check_objects(value, index.shape(self.batch_size)))

    def _check_objects(self, value: Any, size: Size, rows: bool = False) -> list[Any]:
        check_own_file(self)
        return [] if -1 in size else objects_for(value, size)

    def _put(self, places: list[int], values: list[Any]) -> None:
        """Puts objects in the elements with these numbers, and all back if they cannot be written to the file."""
        self._run(partial(write, self, places, values))

    def _put_parts(self, index: Index, value: Any) -> None:
        """Puts objects in the rows at an index where the members have unlike sizes."""
        check_own_file(self)
        if isinstance(value, list) and index.prefix:
            value = NonTensorStack.from_list(value)
            while value.ndim < len(index.prefix):
                value = value.unsqueeze(-1)
        self._run(partial(write_parts, self, index, value))

    def _run(self, put: Callable[[], None]) -> None:
        put_back = self._held() if self.is_memmap() or -1 in self.batch_size else None
        try:
            put()
            self._resave()
        except BaseException:
            if put_back is not None:
                put_back()
            raise

    def _held(self) -> Callable[[], None]:
        """What puts the objects back that this has now, not in their file."""
        members = self.tensordicts.copy()
        below = [member._held() for member in members]

        def put_back() -> None:
            self.tensordicts[:] = members
            for member in below:
                member()

        return put_back

    def _take_objects(self, value: Any, index: Index | None) -> Any:
        size = self.batch_size
        if index is not None:
            self._put_rows(index, value)
        elif -1 in size:
            self._put_parts(parse(slice(None), size), value)
        else:
            self._put(list(range(math.prod(size))), self._check_objects(value, size))
        return self

    def _take_file(self, other: Any) -> None:
        """Writes this stack to the folder of the mapped holder in whose place it comes."""
        rare = other._extra
        if rare is not None and rare.get("memmap"):
            self._rare.update(memmap=True, prefix=rare.get("prefix"), known=rare.get("known"))
            mark_within(self)
            self._resave()

    def _resave(self) -> None:
        if self._extra is not None and self._extra.get("memmap"):
            from tensordict._nontensor.files import resave

            resave(self)

    def _set_str(self, key: str, value: Any) -> None:
        raise AttributeError(f"a {type(self).__name__} holds objects and has no entries, got the key {key!r}")

    # Methods that see the objects.

    def __setitem__(self, index: Any, value: Any) -> None:
        """Writes an object, a list of objects, or what holds them, into the rows at an index."""
        self._assign(parse(index, self.batch_size), value)

    def update(self, input_dict_or_td: Any = None, *args: Any, **kwargs: Any) -> Self:
        """Takes over the objects of another holder or stack, or of a list."""
        if not kwargs.get("inplace"):
            self._check_unlocked()
        return self._taking(input_dict_or_td)

    def update_(self, input_dict_or_td: Any = None, *args: Any, **kwargs: Any) -> Self:
        """Takes over the objects of another holder or stack, or of a list, also if locked."""
        return self._taking(input_dict_or_td)

    copy_ = update_  # type: ignore[assignment]

    def update_at_(self, input_dict_or_td: Any, idx: Any, clone: bool = False, **kwargs: Any) -> Self:
        """Takes over the objects of another holder or stack, or of a list, for the rows at an index."""
        self._assign(parse(idx, self.batch_size), input_dict_or_td)
        return self

    def append(self, tensordict: Any) -> None:
        """Adds an object, or what holds it, behind the last; raises as `LazyStackedTensorDict.append` does."""
        super().append(_holder(tensordict))

    def insert(self, index: int, tensordict: Any) -> None:
        """Adds an object, or what holds it, before the one at `index`."""
        super().insert(index, _holder(tensordict))

    def extend(self, tensordict: Any) -> None:
        """Adds the objects of a list, or the members of a stack; all of them, or none."""
        if not isinstance(tensordict, TensorCollection):
            tensordict = [_holder(item) for item in tensordict]
        super().extend(tensordict)

    def __eq__(self, other: object) -> Any:
        return compared(self, other, torch.eq) if _has_objects(other) else NotImplemented

    def __ne__(self, other: object) -> Any:
        return compared(self, other, torch.ne) if _has_objects(other) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        text = str(self.tolist())
        if len(text) > 50:
            text = text[:50] + "..."
        return f"{type(self).__name__}(\n    {text},\n    batch_size={self.batch_size},\n    device={self.device})"

    @property
    def _words(self) -> tuple[str, str]:
        found = holders(self)
        return type(self).__name__, type(found[0]._data if found else self).__name__


NonTensorStack.__module__ = "tensordict.tensorclass"


def _has_objects(value: Any) -> bool:
    return isinstance(value, TensorCollection) and bool(value._is_non_tensor)


def _holder(item: Any) -> Any:
    return item if _has_objects(item) else NonTensorData._of(item)


# Making stacks.


def built(found: list[Any], size: Size, names: Names = None) -> Any:
    """A stack of copies of holders, one for each element of a batch; a holder for an empty batch size."""
    return arranged([item._at() for item in found], size, names)


def arranged(found: list[Any], size: Size, names: Names = None) -> Any:
    """A stack of holders, one for each element of a batch: of themselves, so that what is written into it is theirs.

    One that holds the object of several elements has no place for that of one: there is a holder of its own in its place.
    """
    found = [item._at() if item._batch_size else item for item in found]

    def make(rows: list[Any], dim: int) -> Any:
        made = NonTensorStack._of(rows, 0)
        made._empty_size = size[dim + 1 :]
        return made

    made = nested(found, size, make) if size else found[0]
    if names is not None:
        made._adopt_names(names)
    return made


def stacked(items: Sequence[Any], dim: int, name: str | None = None) -> Any:
    """The stack of nodes that hold objects, without a copy: one holder where all have the same object and that is asked for."""
    if not all([_has_objects(item) for item in items]):
        return LazyStackedTensorDict._of(list(items), dim, name)
    one = _unique(items, CAPTURE_NON_TENSOR_STACK.value)
    if one is None:
        return NonTensorStack._of(list(items), dim, name)
    size = items[0].batch_size
    made = one._at(Size((*size[:dim], len(items), *size[dim:])))
    inner = items[0]._names
    if name is not None or inner is not None:
        inner = [None] * len(size) if inner is None else inner
        made._set_names([*inner[:dim], name, *inner[dim:]])
    return made


def _unique(items: Sequence[Any], capture: bool) -> Any:
    """The first of several holders if all hold the same object, and are of one class that shows that as one."""
    first = items[0]
    if not isinstance(first, NonTensorDataBase) or not (capture or all([isinstance(item, MetaData) for item in items])):
        return None
    same_class = all([type(item) is type(first) and item.batch_size == first.batch_size for item in items])
    return first if same_class and all([alike(first._data, item._data) for item in items[1:]]) else None


def joined(items: Sequence[Any], dim: int, cat: bool) -> Any:
    """Nodes that hold objects stacked, or one after the other, along `dim`; the nodes are copied.

    Raises:
        RuntimeError: one of them holds none.
    """
    if not all([_has_objects(item) for item in items]):
        raise RuntimeError(
            f"objects and tensors cannot be joined: the entries are of the classes {sorted({type(i).__name__ for i in items})}"
        )
    if not cat:
        return stacked([copy_nodes(item) for item in items], dim)
    first = items[0]
    if isinstance(first, NonTensorDataBase):
        whole = all([isinstance(item, NonTensorDataBase) and alike(first._data, item._data) for item in items])
        if whole:
            size = list(first.batch_size)
            size[dim] = sum([item.batch_size[dim] for item in items])
            made = first._at(Size(size))
            made._set_names(first._names)
            return made
    rows = NonTensorStack._of([copy_nodes(row) for item in items for row in item.unbind(dim)], dim)
    rows._empty_size = Size((*first.batch_size[:dim], *first.batch_size[dim + 1 :]))
    if first._names is not None:
        rows._adopt_names(first._names)
    return rows


def of_list(values: list[Any], device: Any = None) -> Any:
    """The stack of the objects of a list; lists in it become stacks too, those of numbers tensors."""
    return NonTensorStack._of([_of_item(value, device) for value in values], 0)


def _of_item(value: Any, device: Any) -> Any:
    if _has_objects(value):
        return value
    if isinstance(value, list) and value:
        try:
            value = torch.tensor(value)
        except (TypeError, ValueError, RuntimeError):
            return of_list(value, device)
    return NonTensorData._of(value, device=device)


# Writing and reading.


def _repeats(change: Change, size: Size) -> bool:
    """Whether elements of a batch become several, which are to be written one by one."""
    return change.prefix.numel() > size[: change.consumed].numel()


def _reduced(node: Any, change: Change) -> Any:
    """The objects where elements are computed from several: those that all of the several have.

    Raises:
        RuntimeError: several elements that become one have unlike objects.
    """
    wanted = change.shape(node.batch_size)
    if wanted == node.batch_size:
        return copy_nodes(node)
    mixes: Any = change.mixes
    for dim in sorted(mixes, reverse=True):
        rows = node.unbind(dim)
        first = holders(rows[0])
        for row in rows[1:]:
            if not all([same(one._data, two._data) for one, two in zip(first, holders(row))]):
                raise RuntimeError(
                    f"the objects along the dimension {dim} differ, so that there is none for what is computed from them: "
                    "leave them out first, with filter_non_tensor_data()"
                )
        node = rows[0].unsqueeze(dim) if dim in change.origins else rows[0]
    return copy_nodes(node if node.batch_size == wanted else node.expand(wanted))


def objects_for(value: Any, size: Size) -> list[Any]:
    """The objects that are written into a batch of `size`, one for each element.

    Raises:
        RuntimeError: the value is a list, or a stack, of another shape.
    """
    if _has_objects(value):
        shape = value.batch_size
        if shape != size:
            value = value.expand(size)
        return [item._data for item in holders(value)]
    if isinstance(value, list) and size:
        values = value
        for place in range(len(size)):
            if not all([isinstance(item, list) for item in values]) if place else False:
                break
            if place:
                values = [below for item in values for below in item]
            if len(values) != math.prod(size[: place + 1]):
                raise RuntimeError(f"{len(values)} objects cannot be written into elements of the batch size {size}")
            if place + 1 == len(size):
                return values
        below = math.prod(size[place:])
        return [item for item in values for _ in range(below)]
    return [value] * math.prod(size)


def write(node: Any, places: list[int], values: list[Any]) -> None:
    """Puts objects in the elements of a stack with these numbers."""
    size, dim = node.batch_size, node.stack_dim
    below, count = math.prod(size[dim + 1 :]), size[dim]
    parts: dict[int, tuple[list[int], list[Any]]] = {}
    for place, value in zip(places, values):
        row, inner = divmod(place, below * count)
        at, rest = divmod(inner, below)
        numbers, objects = parts.setdefault(at, ([], []))
        numbers.append(row * below + rest)
        objects.append(value)
    for at, (numbers, objects) in parts.items():
        _write_member(node, at, numbers, objects)


def write_parts(node: Any, index: Index, value: Any) -> None:
    """Puts objects in the rows at an index of a stack whose members have unlike sizes: each takes what is for it."""
    members = node.tensordicts.copy()
    for member, rows, own in node._parts_at(index, value):
        size = member.batch_size
        if -1 in size:
            write_parts(member, parse(slice(None), size) if own is None else own, rows)
            continue
        numbers = list(range(math.prod(size))) if own is None else sources(own, size)
        objects = objects_for(rows, size if own is None else own.shape(size))
        if not numbers:
            continue
        _write_member(node, next(at for at, item in enumerate(members) if item is member), numbers, objects)


def _write_member(node: Any, at: int, numbers: list[int], objects: list[Any]) -> None:
    member = node.tensordicts[at]
    if not member._stacked:
        whole = len(set(numbers)) == math.prod(member.batch_size)
        if whole and all([item is objects[0] for item in objects[1:]]):
            member._hold(objects[0])
            return
        lock = member.is_locked
        member = node.tensordicts[at] = member.maybe_to_stack()
        if lock:
            member.lock_()
    write(member, numbers, objects)


class _Place:
    """What the rows of a linked list write to: an entry of a tensordict, at the first part of an index."""

    __slots__ = ("key", "node", "path")

    def __init__(self, node: Any, key: str | None, path: tuple[int, ...]) -> None:
        self.node = weakref.ref(node)
        self.key = key
        self.path = path

    def __call__(self) -> Any:
        return None if self.node() is None else self

    def __setitem__(self, place: Any, value: Any) -> None:
        node: Any = self.node()
        index = (*self.path, place) if self.path else place
        if self.key is None:
            node[index] = value
        else:
            node.set_at_(self.key, value, index)


def _linked(stack: Any, node: Any, key: str | None, path: tuple[int, ...]) -> LinkedList:
    """The objects of a stack as lists that write to it, or to the entry `key` of `node`."""
    size = stack.batch_size
    if -1 in size:
        rows = [_below(member, node, key, (*path, place)) for place, member in enumerate(stack.tensordicts)]
        return _link(rows, node, key, path)
    made = nested([item._data for item in holders(stack)], size, lambda items, dim: _link(items, node, key, path))
    _place(made, len(size), path)
    return made


def _place(rows: Any, dims: int, path: tuple[int, ...]) -> None:
    rows._td.path = path
    if dims > 1:
        for place, row in enumerate(rows):
            _place(row, dims - 1, (*path, place))


def _below(member: Any, node: Any, key: str | None, path: tuple[int, ...]) -> Any:
    return _linked(member.maybe_to_stack(), node, key, path) if member.batch_size else member._data


def _link(items: Iterable[Any], node: Any, key: str | None, path: tuple[int, ...]) -> LinkedList:
    made = LinkedList(items)
    made._td = _Place(node, key, path)
    return made
