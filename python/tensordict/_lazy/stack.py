"""The lazy stack: tensordicts seen as one with one more batch dimension."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Size, Tensor
from typing_extensions import Self

from tensordict._kernel.change import Change
from tensordict._kernel.errors import missing_key
from tensordict._kernel.index import ROWS, Index, parse
from tensordict._kernel.native import stack_dicts
from tensordict._kernel.numbering import known
from tensordict._lazy.join import joined
from tensordict._lazy.moves import changed
from tensordict._lazy.ragged import Unlike, nested_of, padded_of, unlike
from tensordict._lazy.write import parts_at, pieces_of, plan_assign
from tensordict._leaves import ragged
from tensordict._leaves.unbatched import first_of, is_unbatched
from tensordict._ops.coerce import as_device, as_size
from tensordict._ops.join import stack_tensordicts
from tensordict._ops.leafwise import relock
from tensordict._ops.lock import lock_parents
from tensordict._ops.shape import cuts
from tensordict._ops.waist import Join
from tensordict._ops.writes import Writes
from tensordict._td import TensorDict
from tensordict._types import NO_DEFAULT, Key, Names, TensorCollection
from tensordict.base import TensorDictBase

_WHOLE = slice(None)
Hook = Callable[[Any], Any]


class _Entries(Mapping[str, Any]):
    """The entries of a lazy stack: those whose keys all members have, each stacked when it is read."""

    __slots__ = ("_node",)

    def __init__(self, node: LazyStackedTensorDict) -> None:
        self._node = node

    def __getitem__(self, key: str) -> Any:
        return self._node._get_str(key)

    def __iter__(self) -> Iterator[str]:
        return iter(self._node._shared_keys())

    def __reversed__(self) -> Iterator[str]:
        return reversed(self._node._shared_keys())

    def __len__(self) -> int:
        return len(self._node._shared_keys())

    def copy(self) -> dict[str, Any]:
        """A dict of the entries of this moment."""
        now = self._node._snapshot()
        return {key: now._get_str(key) for key in now._shared_keys()}

    def __contains__(self, key: object) -> bool:
        members = self._node.tensordicts
        return bool(members) and all([key in member._fields() for member in members])


class LazyStackedTensorDict(TensorDictBase):
    """Tensordicts seen as one with one more batch dimension, without a copy.

    The members may have unlike keys and shapes: the keys are those that all members have, and an entry is stacked when it
    is read. What is written goes to the members.

    Args:
        *tensordicts: the members, of equal batch sizes.
        stack_dim: where the new dimension stands; counted from behind if negative.
        hook_out: called with each entry that is read.
        hook_in: called with each value that is set.
        batch_size: the batch size of a stack, which is checked; without members, that of the members to come.
        device: of a stack without members.
        names: of a stack without members.
        stack_dim_name: the name of the new dimension.
        strict_shape: raise where the batch sizes of the members differ.

    Raises:
        TypeError: a member is no tensordict.
        RuntimeError: `stack_dim` is out of range, or the members have other batch sizes.

    >>> import torch
    >>> from tensordict import TensorDict, LazyStackedTensorDict
    >>> td = LazyStackedTensorDict(TensorDict({"a": torch.zeros(3)}), TensorDict({"a": torch.zeros(5)}))
    >>> td.batch_size, [value.shape for value in td.get("a", as_list=True)]
    (torch.Size([2]), [torch.Size([3]), torch.Size([5])])
    """

    __slots__ = (
        "__weakref__",
        "_empty_device",
        "_empty_size",
        "_extra",
        "_hook_in",
        "_hook_out",
        "_own_lock",
        "_td_dim_name",
        "stack_dim",
        "tensordicts",
    )

    _stacked = True
    _repr_names = ("stack_dim",)

    tensordicts: list[Any]
    stack_dim: int
    _td_dim_name: str | None
    _empty_device: torch.device | None
    _empty_size: Size
    _own_lock: bool
    _extra: dict[str, Any] | None
    _hook_out: Hook | None
    _hook_in: Hook | None

    def __init__(
        self,
        *tensordicts: Any,
        stack_dim: int = 0,
        hook_out: Hook | None = None,
        hook_in: Hook | None = None,
        batch_size: Any = None,
        device: Any = None,
        names: Sequence[str | None] | None = None,
        stack_dim_name: str | None = None,
        strict_shape: bool = False,
    ) -> None:
        for member in tensordicts:
            if not isinstance(member, TensorCollection):
                raise TypeError(f"Expected all inputs to be TensorDictBase instances but got {type(member)} instead.")
        given = None if batch_size is None else as_size(batch_size)
        inner = tensordicts[0].batch_size if tensordicts else given or Size(())
        self._start(list(tensordicts), _stack_dim(stack_dim, len(inner)), stack_dim_name)
        self._hook_out, self._hook_in = hook_out, hook_in
        if not tensordicts:
            self._empty_size, self._empty_device = inner, as_device(device)
            return
        _check_sizes(self, strict_shape)
        if given is not None and given != self.batch_size:
            raise RuntimeError(f"batch_size does not match self.batch_size: {given} vs {self.batch_size}.")

    def _start(self, tensordicts: list[Any], stack_dim: int, name: str | None) -> None:
        self.tensordicts = tensordicts
        self.stack_dim = stack_dim
        self._td_dim_name = name
        self._empty_size = Size(())
        self._empty_device = None
        self._own_lock = False
        self._extra = None
        self._hook_out = self._hook_in = None

    @classmethod
    def _of(cls, tensordicts: list[Any], stack_dim: int, name: str | None = None) -> Self:
        """A stack of members that fit, unchecked."""
        self = object.__new__(cls)
        self._start(tensordicts, stack_dim, name)
        return self

    @classmethod
    def _joined(cls, items: Sequence[Any], dim: int, how: Join, name: str | None = None) -> Any:
        return LazyStackedTensorDict._of(list(items), dim, name) if how == "lazy" else joined(items, dim, how == "cat")

    def _like(self, parts: Iterable[Any], stack_dim: int, named: bool = True) -> Any:
        """A stack of this class of other members."""
        return type(self)._of(list(parts), stack_dim, self._td_dim_name if named else None)

    # The waist.

    def _fields(self) -> dict[str, Any]:
        return _Entries(self)  # type: ignore[return-value]

    def _shared_keys(self) -> list[str]:
        """The keys that all members have, in the order of the first."""
        members = self.tensordicts.copy()
        if not members:
            return []
        first, *others = [member._fields() for member in members]
        if not others:
            return list(first)
        names = list(first)
        shared = set(names).intersection(*map(list, others))
        return [key for key in names if key in shared]

    def _peek(self, key: str) -> Any:
        values = self._column(key, True)
        if isinstance(values[0], TensorCollection):
            return self._nodes(key, values)
        if any([type(value) is Unlike for value in values]):
            return unlike(values, self.stack_dim)
        if ragged.has_ragged(values):
            return ragged.stack(values, self.stack_dim)
        if is_unbatched(values[0]):
            return values[0]._with_batch(self.batch_size)
        shapes = {value.shape for value in values if isinstance(value, Tensor)}
        if len(shapes) > 1:
            return unlike(values, self.stack_dim)
        value = values[0].unsqueeze(self.stack_dim)
        return value.expand(*value.shape[: self.stack_dim], len(values), *value.shape[self.stack_dim + 1 :])

    def _column(self, key: str, peek: bool = False) -> list[Any]:
        """The entries `key` of all members; to `peek`, what stands for those that reading would copy."""
        try:
            members = self.tensordicts.copy()
            values = [member._peek(key) if peek else member._get_str(key) for member in members]
        except KeyError:
            values = []
        if not values:
            raise missing_key(key, type(self).__name__, self._shared_keys())
        return values

    def _nodes(self, key: str, values: list[Any]) -> Any:
        if not all([isinstance(value, TensorCollection) for value in values]):
            raise RuntimeError(f"the entries {key!r} of the members are tensors in some and tensordicts in others")
        return values[0]._joined(values, self.stack_dim, "lazy", self._td_dim_name)

    def _get_str(self, key: str) -> Any:
        members, dim = self.tensordicts.copy(), self.stack_dim
        # one native call for all members, where they and their leaves are plain
        if members and all([type(member) is TensorDict for member in members]):
            entries = [member._tensordict for member in members]
            if type(entries[0].get(key)) is Tensor:
                try:
                    stacked = stack_dicts(entries, [key], dim)
                except (KeyError, RuntimeError):
                    stacked = None
                if stacked is not None:
                    return stacked[0] if self._hook_out is None else self._hook_out(stacked[0])
        value = self._stack_column(key, self._column(key))
        return value if self._hook_out is None else self._hook_out(value)

    def _stack_column(self, key: str, values: list[Any]) -> Any:
        if isinstance(values[0], TensorCollection):
            return self._nodes(key, values)
        if ragged.has_ragged(values):
            return ragged.stack(values, self.stack_dim)
        if is_unbatched(values[0]):
            return first_of(values)._with_batch(self.batch_size)
        if len({value.shape for value in values}) > 1:
            raise RuntimeError(
                f"Failed to stack tensors within a tensordict under the key {key!r}: their shapes are "
                f"{[value.shape for value in values]}. To read them, pass as_padded_tensor=True, as_nested_tensor=True or "
                "as_list=True to get()."
            )
        return torch.stack(values, self.stack_dim)

    def _set_str(self, key: str, value: Any) -> None:
        if self._hook_in is not None:
            value = self._hook_in(value)
        for member, piece in self._dealt(value):
            member._set_str(key, piece)

    def _write_str(self, key: str, value: Any, non_blocking: bool) -> None:
        for member, piece in self._dealt(value):
            member._write_str(key, piece, non_blocking)

    def _dealt(self, value: Any) -> Iterable[tuple[Any, Any]]:
        """Each member with what of `value` belongs to it."""
        members = self.tensordicts.copy()
        pieces = pieces_of(self, value)
        if len(pieces) != len(members):
            raise RuntimeError(f"the stack of {len(members)} tensordicts got a value for {len(pieces)} of them")
        return zip(members, pieces)

    def _del_str(self, key: str) -> None:
        holders = [member for member in self.tensordicts.copy() if key in member._fields()]
        if not holders:
            raise missing_key(key, type(self).__name__, self._shared_keys())
        for member in holders:
            member._del_str(key)

    def _rebuild(
        self, fields: dict[str, Any], batch_size: Size, device: torch.device | None = None, names: Names = None
    ) -> Any:
        if -1 in batch_size and not fields:  # only a stack has unlike sizes: a new one is a stack as this one is
            members = [member._rebuild({}, member.batch_size, device, member._names) for member in self.tensordicts.copy()]
            return LazyStackedTensorDict._of(members, self.stack_dim, self._td_dim_name)
        return TensorDict._new(fields, batch_size, device, names)

    def _pieces(self) -> dict[Any, Any]:
        return dict(enumerate(self.tensordicts.copy()))

    def _from_pieces(self, pieces: dict[Any, Any], change: Change | None = None) -> Self:
        if change is not None:
            raise RuntimeError("a change of the batch is made to a lazy stack by transform()")
        return self._with_members(list(pieces.values()))

    def _with_members(self, members: list[Any]) -> Self:
        made = type(self)._of(members, self.stack_dim, self._td_dim_name)
        made._empty_size, made._hook_in, made._hook_out = self._empty_size, self._hook_in, self._hook_out
        return made

    def _snapshot(self) -> Self:
        """This stack with the members of this moment, for what looks at them several times."""
        made = self._with_members(self.tensordicts.copy())
        made._empty_device = self._empty_device
        return made

    def _transform(self, change: Change) -> Any:
        return changed(self._snapshot(), change)

    def __getitem__(self, index: Any) -> Any:
        if type(index) is int and not self.stack_dim:  # a loop over the members asks for these
            members = self.tensordicts
            if -len(members) <= index < len(members):
                return members[index]
        return super().__getitem__(index)

    def __iter__(self) -> Iterator[Any]:
        return super().__iter__() if self.stack_dim or not self.tensordicts else iter(tuple(self.tensordicts))

    def _index(self, index: Index) -> Any:
        key, dim, members = index.key, self.stack_dim, self.tensordicts
        kind = type(key)
        if not dim and index.consumed:  # the frequent cases need no look at the elements
            if kind is int:
                return members[key]
            if kind is slice and (chosen := members[key]):
                return self._like(chosen, 0)
        if index.consumed and members and _is_simple(key):
            return self._index_simple(key if kind is tuple else (key,))
        now = self._snapshot()
        rows = now._index_rows(index) if index.kind == ROWS and members else None
        return changed(now, index) if rows is None else rows

    def _index_rows(self, index: Index) -> Any:
        """The rows at a list of numbers along one dimension: some of the members, or all members at these rows."""
        dim, members, key = self.stack_dim, self.tensordicts, index.key
        items = key if type(key) is tuple else (key,)
        numbers = items[index.dim]
        if numbers.ndim != 1 or len(items) > index.dim + 1 or any([item != _WHOLE for item in items[: index.dim]]):
            return None
        if index.dim != dim:
            size = members[0].batch_size
            if any([member.batch_size != size for member in members]):
                return None
            inner = parse((*(_WHOLE,) * (index.dim - (index.dim > dim)), numbers), size)
            return self._like([member._index(inner) for member in members], dim)
        chosen, count = numbers.tolist(), len(members)
        if not chosen or min(chosen) < -count or max(chosen) >= count:
            return None
        return self._like([members[place] for place in chosen], dim)

    def _index_simple(self, items: tuple[int | slice, ...]) -> Any:
        """The rows at integers and slices: some of the members, each at the other items."""
        dim, members = self.stack_dim, self.tensordicts.copy()
        own, rest = items[dim] if len(items) > dim else slice(None), (*items[:dim], *items[dim + 1 :])
        chosen: Any = members[own]
        if isinstance(chosen, list) and not chosen:  # what it is without members is known of those there are
            return changed(self._snapshot(), parse(items, self.batch_size))
        if all([item == _WHOLE for item in rest]):
            return self._like(chosen, dim) if isinstance(chosen, list) else chosen
        if not isinstance(chosen, list):
            return chosen[rest]
        size, kept = members[0].batch_size, dim - sum([type(item) is int for item in items[:dim]])
        inner = parse(rest, size)
        return self._like(
            [member._index(inner if member.batch_size == size else parse(rest, member.batch_size)) for member in chosen], kept
        )

    def _plan_assign(self, index: Index, value: Any, plan: Writes) -> None:
        plan_assign(self._snapshot(), parse(index.key, self.batch_size), value, plan)  # it may be that of a node above

    def _parts_at(self, index: Index | None, value: Any) -> Iterable[tuple[Any, Any, Index | None]]:
        if index is not None:
            return parts_at(self._snapshot(), index, value)
        return [(member, piece, None) for member, piece in self._dealt(value)]

    def _set_batch_size(self, batch_size: Size) -> None:
        if batch_size != self.batch_size:
            raise RuntimeError(
                f"Received a new batch size {batch_size} with an existing batch_size {self.batch_size} in a lazy TD. The batch "
                "size of a lazy stack is that of its members; make it dense first, by contiguous()"
            )

    def _set_device(self, device: torch.device | None) -> None:
        """The device is that of the members."""

    def _set_names(self, names: Names) -> None:
        rest = None if names is None else [*names[: self.stack_dim], *names[self.stack_dim + 1 :]]
        self._td_dim_name = None if names is None else names[self.stack_dim]
        for member in self.tensordicts.copy():
            member._adopt_names(rest)

    def _set_lock(self, locked: bool) -> None:
        self._own_lock = locked

    @property
    def is_locked(self) -> bool:
        """Whether all members are locked. Setting it locks or unlocks."""
        for member in self.tensordicts:  # mostly the first says it
            if not member.is_locked:
                return False
        return True if self.tensordicts else self._own_lock

    @is_locked.setter
    def is_locked(self, value: bool) -> None:
        (self.lock_ if value else self.unlock_)()

    @property
    def _lock_parents_weakrefs(self) -> list[Any]:
        return lock_parents(self, [self, *self.tensordicts])

    @property
    def _is_locked(self) -> bool | None:
        """Whether the stack itself was locked; none where its members are as they are without it."""
        return True if self._own_lock and self.is_locked else None

    @property
    def _names(self) -> Names:
        inner = self.tensordicts[0]._names if self.tensordicts else None
        if inner is None:
            if self._td_dim_name is None:
                return None
            inner = [None] * (len(self.batch_size) - 1)
        return [*inner[: self.stack_dim], self._td_dim_name, *inner[self.stack_dim :]]

    @property
    def _batch_size(self) -> Size:
        dim, sizes = self.stack_dim, [member._batch_size for member in self.tensordicts]
        inner = sizes[0] if sizes else self._empty_size
        if sizes.count(inner) != len(sizes):
            inner = Size([known[0] if len({*known}) == 1 else -1 for known in zip(*sizes)])
        return Size((*inner[:dim], len(sizes), *inner[dim:]))

    @property
    def _device(self) -> torch.device | None:
        if not self.tensordicts:
            return self._empty_device
        devices = {member.device for member in self.tensordicts}
        return devices.pop() if len(devices) == 1 else None

    # What stacks have beyond other tensordicts.

    def get(self, key: Key, *args: Any, **kwargs: Any) -> Any:
        """The entry at `key`, stacked from those of the members, or a default.

        Args:
            key: a string, or a tuple of strings for a nested entry.
            default: returned where a member lacks the key.
            as_list: give the list of the members' entries.
            as_nested_tensor: give a nested tensor of them.
            as_padded_tensor: give them padded to one shape and stacked.
            layout: of the nested tensor; `torch.jagged` if not given.
            padding_side: where the padding stands: `"right"` (if not given) or `"left"`.
            padding_value: what is put in.

        Raises:
            RuntimeError: the shapes differ and none of the forms is asked for.
        """
        if not kwargs or kwargs.keys() <= {"default"}:
            return super().get(key, *args, **kwargs)
        default = kwargs.pop("default", args[0] if args else NO_DEFAULT)
        as_list, nested = kwargs.pop("as_list", False), kwargs.pop("as_nested_tensor", False)
        padded = kwargs.pop("as_padded_tensor", False)
        if not (as_list or nested or padded):
            return super().get(key) if default is NO_DEFAULT else super().get(key, default)
        forms = {"as_list": as_list, "as_nested_tensor": nested, "as_padded_tensor": padded, **kwargs}
        values = [_entry_of(member, key, forms) for member in self.tensordicts.copy()]
        if not values or any([value is None for value in values]):
            return super().get(key) if default is NO_DEFAULT else super().get(key, default)
        if any([isinstance(value, TensorCollection) for value in values]):
            return super().get(key)
        if as_list:
            return values
        return nested_of(values, self.stack_dim, **kwargs) if nested else padded_of(values, self.stack_dim, **kwargs)

    def get_nestedtensor(self, key: Key, default: Any = NO_DEFAULT, *, layout: torch.layout | None = None) -> Any:
        """The entries `key` of the members as a nested tensor, strided unless a layout is given.

        Raises:
            RuntimeError: the stack is not along the first dimension.
        """
        if self.stack_dim:
            raise RuntimeError(
                "Because nested tensors can only be stacked along their first dimension, "
                "LazyStackedTensorDict.get_nestedtensor can only be called when the stack_dim is 0."
            )
        options = {} if default is NO_DEFAULT else {"default": default}
        return self.get(key, as_nested_tensor=True, layout=layout or torch.strided, **options)

    def valid_keys(
        self,
        include_nested: bool = False,
        leaves_only: bool = False,
        is_leaf: Callable[[type], bool] | None = None,
        *,
        sort: bool = False,
    ) -> Any:
        """Deprecated: use `keys`."""
        return self.keys(include_nested, leaves_only, is_leaf, sort=sort)

    @property
    def hook_out(self) -> Hook | None:
        """What is called with each entry that is read."""
        return self._hook_out

    @property
    def hook_in(self) -> Hook | None:
        """What is called with each value that is set."""
        return self._hook_in

    def append(self, tensordict: Any) -> None:
        """Adds a member behind the last.

        Raises:
            TypeError: it is no tensordict.
            ValueError: its batch size is not that of the members.
            RuntimeError: the stack is locked.
        """
        self.insert(len(self.tensordicts), tensordict)

    def insert(self, index: int, tensordict: Any) -> None:
        """Adds a member before the one at `index`; raises as `append` does."""
        self._check_unlocked()
        _check_member(self, tensordict)
        self.tensordicts.insert(index, tensordict)

    def extend(self, tensordict: Any) -> None:
        """Adds the members of a list, or the slices of a tensordict along the stack dimension; all of them, or none."""
        if isinstance(tensordict, TensorCollection):
            tensordict = tensordict.unbind(self.stack_dim)
        items = list(tensordict)
        self._check_unlocked()
        for item in items:
            _check_member(self, item)
        self.tensordicts.extend(items)

    def __contains__(self, key: object) -> bool:
        """Whether there is an entry of this key, or a member that is this tensordict."""
        if isinstance(key, TensorCollection):
            return any(member is key for member in self.tensordicts)
        return super().__contains__(key)

    def _take_over(self, result: Any) -> bool:
        result = result if result._wrapped is None else result._wrapped
        if not isinstance(result, LazyStackedTensorDict) or result.stack_dim != self.stack_dim:
            return False
        own, found = self.tensordicts, result.tensordicts.copy()
        if len(own) != len(found):
            own[:] = found
        else:
            for place, member in enumerate(found):
                if not own[place]._take_over(member):
                    own[place] = member
        if self._names != result._names:
            self._set_names(result._names)
        return True

    def unbind(self, dim: int = 0) -> tuple[Any, ...]:
        at, members = self.stack_dim, self.tensordicts.copy()
        dims = len(members[0].batch_size) + 1 if members else 0
        if not -dims <= dim < dims:
            return super().unbind(dim)
        dim %= dims
        if dim == at:
            return tuple(members)
        known(self.batch_size, dim)
        rows = [member.unbind(dim - (dim > at)) for member in members]
        return tuple(self._like(parts, at - (at > dim)) for parts in zip(*rows))

    def split(self, split_size: int | Sequence[int], dim: int = 0) -> tuple[Any, ...]:
        """Pieces along a batch dimension: stacks of some members, or of pieces of all. See `TensorDict.split`."""
        sizes, at = cuts(self, split_size, dim)
        now, end, pieces = self._snapshot(), 0, []
        for part in sizes:
            start, end = end, end + part
            if part and at == now.stack_dim:
                pieces.append(now._like(now.tensordicts[start:end], at))
            else:
                pieces.append(now._index(parse((*(_WHOLE,) * at, slice(start, end)), now.batch_size)))
        return tuple([relock(piece, self) for piece in pieces])

    def to_lazystack(self, dim: int = 0) -> Any:
        """The stack along a batch dimension: this one, if it is along that."""
        dims = len(self.batch_size)
        return self if self.stack_dim == dim % dims and -dims <= dim < dims else super().to_lazystack(dim)

    def contiguous(self, *args: Any, inplace: bool = False, **kwargs: Any) -> Any:
        """The stack with its leaves stacked, as a `TensorDict`: never in place."""
        if inplace:
            self._refuse_stack("contiguous")
        return self._dense(True)

    def is_contiguous(self) -> bool:
        """Whether all leaves are contiguous: not before they are stacked."""
        return False

    def _dense(self, must: bool = False) -> Any:
        """The members stacked into tensors; None, or with `must` an error, where they are unlike."""
        now = self._snapshot()
        if not now.tensordicts:
            return now._rebuild({}, now.batch_size, None, now._names) if must else None
        members = [_plain(member) for member in now.tensordicts]
        if any([member is None for member in members]) and not must:
            return None
        try:
            out = stack_tensordicts(members if None not in members else now.tensordicts, now.stack_dim)
        except (RuntimeError, KeyError):
            if not must:
                return None
            return now._rebuild({key: _solid(value) for key, value in now._entries().items()}, now.batch_size, now.device)
        if now._td_dim_name is not None:
            out._name_dims(now.names)
        return out

    def densify(self, layout: torch.layout = torch.strided) -> Any:
        """The dense tensordict of all keys of the members; a nested tensor where shapes differ or a member lacks a key."""
        fields: dict[str, Any] = {}
        now = self._snapshot()
        found = [member._entries() for member in now.tensordicts]
        for key in dict.fromkeys([key for entries in found for key in entries]):
            values = [entries.get(key) for entries in found]
            if any([isinstance(value, TensorCollection) for value in values]):
                known = [value for value in values if value is not None]
                below = [known[0].empty() if value is None else value for value in values]
                fields[key] = self._nodes(key, below).densify(layout)
            elif None not in values and len({value.shape for value in values}) == 1:
                fields[key] = torch.stack(values, self.stack_dim)
            else:
                known = [value for value in values if value is not None]
                values = [known[0].new_zeros((0,) * known[0].ndim) if value is None else value for value in values]
                fields[key] = nested_of(values, self.stack_dim, layout=layout)
        return self._rebuild(fields, now.batch_size, now.device, now._names)

    # Pickles, in the form of the other package.

    def __getstate__(self) -> dict[str, Any]:
        return {
            "_is_locked": True if self.is_locked else None,
            "stack_dim": self.stack_dim,
            "_batch_size": self.batch_size,
            "tensordicts": self.tensordicts,
            "_hook_out": self._hook_out,
            "_hook_in": self._hook_in,
            "_td_dim_name": self._td_dim_name,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._start(list(state["tensordicts"]), state["stack_dim"], state.get("_td_dim_name"))
        self._hook_out, self._hook_in = state.get("_hook_out"), state.get("_hook_in")
        if not self.tensordicts:
            size, dim = state.get("_batch_size", Size((0,))), self.stack_dim
            self._empty_size = Size((*size[:dim], *size[dim + 1 :]))
        if state.get("_is_locked"):
            self.lock_()


LazyStackedTensorDict.__module__ = "tensordict._lazy"


def _entry_of(member: Any, key: Key, forms: dict[str, Any]) -> Any:
    """The entry of a member, as it is or, where that is a stack of unlike entries, in one of the forms of a stack."""
    try:
        return member.get(key, None)
    except RuntimeError:
        return member.get(key, None, **forms)


def _is_simple(key: Any) -> bool:
    """Whether an index is made of integers and slices alone."""
    if type(key) is not tuple:
        return type(key) is int or type(key) is slice
    return all([type(item) is int or type(item) is slice for item in key])


def _stack_dim(dim: int, inner: int) -> int:
    """The stack dimension counted from the front, for members of `inner` batch dimensions."""
    if dim < 0:
        if dim + inner + 1 < 0:
            raise RuntimeError(f"Couldn't infer stack dim from negative value, got stack_dim={dim}")
        return dim + inner + 1
    if dim > inner:
        raise RuntimeError(f"Stack dim {dim} is too big for members of {inner} batch dimensions.")
    return dim


def _check_sizes(node: LazyStackedTensorDict, strict: bool) -> None:
    sizes = [member.batch_size for member in node.tensordicts]
    if len({len(size) for size in sizes}) > 1 or (strict and any(size != sizes[0] for size in sizes)):
        raise RuntimeError(f"batch sizes in tensordicts differs, LazyStackedTensorDict cannot be created. Got {sizes}")


def _check_member(node: LazyStackedTensorDict, member: Any) -> None:
    if not isinstance(member, TensorCollection):
        raise TypeError(f"Expected new value to be TensorDictBase instance but got {type(member)} instead.")
    if not node.tensordicts:
        node._empty_size = member.batch_size
        return
    size, dim = node.batch_size, node.stack_dim
    own = Size((*size[:dim], *size[dim + 1 :]))
    # members that differ in a dimension take others that do
    if member.ndim != len(own) or not all([-1 in pair or pair[0] == pair[1] for pair in zip(own, member.batch_size)]):
        raise ValueError(
            f"Batch sizes in tensordicts differs: stack has batch_size={own}, new_value has batch_size={member.batch_size}."
        )


def _plain(member: Any) -> Any:
    """A member with its stacks made dense, or None where that cannot be."""
    return member._dense() if member._stacked else member


def _solid(value: Any) -> Any:
    return value._dense(True) if isinstance(value, TensorCollection) and value._stacked else value  # type: ignore[attr-defined]
