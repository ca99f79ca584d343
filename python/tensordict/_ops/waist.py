"""The waist: what a container must write, and what it may. Every other method is written once, on these."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, final

import torch
from torch import Size, Tensor
from typing_extensions import Self

from tensordict._kernel.change import Change
from tensordict._kernel.index import Index
from tensordict._ops.take import take_entries
from tensordict._ops.trees import divided, map_pieces, over_batch, transform
from tensordict._ops.writes import Writes
from tensordict._reexport import stack_lazily
from tensordict._types import Names, Root, TensorCollection

# How containers are joined.
Join = Literal["lazy", "stack", "cat"]


class Waist(Root):
    """The methods that a container writes itself, in three groups: for all of them, for stacks, for holders of objects.

    `_fields` and `_rebuild` see a container as its entries; `_pieces` and `_from_pieces` see it as the pieces that a
    leaf-wise operation runs on, which are the same for a container of named fields and the members for a stack.

    Another thread, or the function of a leaf, may change the entries while an operation runs. So `_fields` is for looking up
    a key; whoever walks the entries takes them first, by `_entries` or `_pieces`.
    """

    __slots__ = ()

    # Whether `_fields` is the dict of the entries themselves, and `_pieces` a copy of it: then the short ways hold.
    _dict_backed = False
    # Whether `_pieces` are members along a batch dimension, `stack_dim`, which the members do not have.
    _stacked = False

    # Whether the entries are those of another container, seen at an index or with another batch size.
    _is_view = False
    # Whether they are some rows of those.
    _is_rows = False
    # Whether leaves that are read may be copies, so that what is written into them is given to `update_` afterwards.
    _gives_copies: Any = False
    # The words for this container inside others, where it counts as one entry: in a tensordict, and in a stack.
    _words: Any = None

    # The container that this one only gives a class to, which is saved in a folder below its own; None for all others.
    _wrapped: Any = None

    # Whether this describes a tensor, for `to`.
    _describes = False

    # What a container with declared fields makes of a value: `_schema.admit(node, key, value)`; None for all others.
    _schema: ClassVar[Any] = None

    # The state that a container keeps, each in its own way; it is set by the methods for it below.
    if TYPE_CHECKING:

        @property
        def _batch_size(self) -> Size: ...
        @property
        def _device(self) -> torch.device | None: ...
        @property
        def _is_locked(self) -> Any: ...
        @property
        def _names(self) -> Names:
            """The names of the batch dimensions, None where no dimension has one."""

        # What is made of the state.
        batch_size: Size
        device: torch.device | None
        is_locked: bool

        # A container like one that is around another, around a third.
        _wrap: Any

        # What mixins call of one another.
        stack_dim: Any
        tensordicts: Any
        apply: Any
        copy: Any
        empty: Any
        get: Any
        is_memmap: Any
        is_shared: Any
        unbind: Any
        update: Any
        _become: Any
        _has_non_tensor: Any
        _put_objects: Any
        _refuse_stack: Any
        _remember: Any

    # State that few containers have: lock parents, last operation, memory-map folder. None until first used.
    _extra: dict[str, Any] | None

    # What every container writes.

    @abstractmethod
    def _fields(self) -> dict[str, Any]:
        """The entries of the first level, by name: a dict, or a mapping with its `copy`. Not to be written to."""

    @abstractmethod
    def _get_str(self, key: str) -> Any:
        """The entry `key` of the first level; raises `KeyError`."""

    @abstractmethod
    def _set_str(self, key: str, value: Any) -> None:
        """Stores a checked value under `key`, without a look at the lock."""

    @abstractmethod
    def _del_str(self, key: str) -> None:
        """Removes `key` from the first level; raises `KeyError`."""

    @abstractmethod
    def _rebuild(
        self, fields: dict[str, Any], batch_size: Size, device: torch.device | None = None, names: Names = None
    ) -> Any:
        """An unlocked container of other fields, taken as they are."""

    @abstractmethod
    def _index(self, index: Index) -> Self:
        """The rows at a parsed index."""

    @abstractmethod
    def _plan_assign(self, index: Index, value: Any, plan: Writes) -> None:
        """Plans writes into the rows at a parsed index: what does not fit is an error now, before anything is written."""

    @abstractmethod
    def _set_batch_size(self, batch_size: Size) -> None:
        """Stores a checked batch size."""

    @abstractmethod
    def _set_device(self, device: torch.device | None) -> None:
        """Stores the device label, of this node alone."""

    @abstractmethod
    def _set_names(self, names: Names) -> None:
        """Stores the names of the batch dimensions, of this node alone."""

    @abstractmethod
    def _set_lock(self, locked: bool) -> None:
        """Stores the lock, of this node alone."""

    # What a container writes where it knows better.

    def _pieces(self) -> dict[Any, Any]:
        """The pieces that leaf-wise operations run on, leaves and nodes, as they are at this moment.

        The dict is the caller's own. They stand under their names, or under their places in a stack. An operation puts what
        it makes of each in its place and gives the dict to `_from_pieces`: so each result has the key of what it was made
        of, whatever becomes of this container meanwhile.
        """
        return self._entries()

    def _from_pieces(self, pieces: dict[Any, Any], change: Change | None = None) -> Any:
        """An unlocked container like this one with other pieces, whose dict it keeps, and with changed batch dimensions."""
        if change is None:
            return self._rebuild(pieces, self.batch_size, self.device, self._names)
        return self._rebuild(pieces, change.shape(self.batch_size), self.device, change.names(self._names))

    def _transform(self, change: Change) -> Any:
        """An unlocked container with `change` made to each leaf and node; for those that are not dict-backed."""
        leaf, pieces = change.leaf, self._pieces()
        for key, part in pieces.items():
            pieces[key] = transform(part, change) if isinstance(part, TensorCollection) else leaf(part)
        return self._from_pieces(pieces, change)

    def _write_str(self, key: str, value: Any, non_blocking: bool) -> None:
        """Writes a checked value into the storage of the entry `key` of the first level."""
        target = self._get_str(key)
        if isinstance(target, TensorCollection):
            made = target._taking(value, None, non_blocking)
            if made is not target:
                self._put_objects(key, made)
        elif target is not value:
            target.copy_(value, non_blocking=non_blocking)

    @classmethod
    def _joined(cls, items: Sequence[Any], dim: int, how: Join, name: str | None = None) -> Any:
        """The join of containers that fit, of which one is of this class; None where their leaves are to be joined.

        Args:
            items: the containers.
            dim: the batch dimension along which they are joined.
            how: a lazy stack, a stack, or one after the other.
            name: of the new dimension of a lazy stack.
        """
        return stack_lazily(items, dim, name) if how == "lazy" else None

    def _peek(self, key: str) -> Any:
        """The entry `key`, or where reading it is a copy, something of the same class, shape and dtype in its place."""
        return self._get_str(key)

    def _take_over(self, result: Any) -> bool:
        """Takes the entries, batch size and names of `result`, unchecked, which may be used up; False if this cannot.

        Nodes below stay the objects that they are where both have them and they can.
        """
        return take_entries(self, result)

    # What stacks write besides.

    def _parts_at(self, index: Index | None, value: Any) -> Iterable[tuple[Any, Any, Index | None]]:
        """Which nodes the rows at an index are stored in, with what of a value belongs to each, and its rows; None for all.

        A stack stores nothing itself: it gives the members that the index meets.
        """
        return ((self, value, index),)

    # What holders of objects write besides.

    def _exposed(self, node: Any = None, key: str = "") -> Any:
        """What a reader of the entry `key` of a node gets, where this is the entry."""
        return self

    def _taking(self, value: Any, index: Index | None = None, non_blocking: bool = False, check: bool = False) -> Any:
        """This entry with a value written into its storage, or into the rows at an index; or what stands in its place then.

        With `check` nothing is written: what cannot be, for what it is, is an error.
        """
        target: Any = self
        if index is None:
            target.update(value, inplace=True, non_blocking=non_blocking)
        else:
            self._assign(index, value)
        return self

    def _kept(self) -> Callable[[], None] | None:
        """What puts back, here and in its file, the objects that this has now; None where a write of them cannot fail."""
        return None

    def _combined(self, other: Any, function: Callable[..., Any], *args: Any) -> Any:
        """A container of `function(mine, other's)` for what stands at the same places of two."""
        return map_pieces(self, other, function)

    def _apart(self, known: dict[int, Any] | None, copy: Callable[..., Any] | None = None) -> Any:
        """A holder of a copy of the object: deep, by `copy(object, known)` if given; without `known` of its lists and dicts."""
        return self

    def _anew(self, batch_size: Size, device: torch.device | None, names: Names) -> Any:
        """A container without leaves for a batch of new elements, with what objects they have."""
        return self._rebuild({}, batch_size, device, names)

    # What is made of these.

    @final
    def _assign(self, index: Index, value: Any) -> None:
        """Writes checked values into the rows at a parsed index."""
        plan = Writes()
        self._plan_assign(index, value, plan)
        plan.run()

    @final
    def _entries(self) -> dict[str, Any]:
        """The entries of the first level, by name, as they are at this moment: a dict of the caller's own."""
        return self._fields().copy()

    @final
    def _below(self) -> Any:
        """An empty, unlocked node to be held by this one."""
        node = self if self._wrapped is None else self._wrapped
        return node._rebuild({}, self.batch_size, self.device, self._names)

    @final
    def _pieces_of(self, other: Any, pieces: dict[Any, Any], strict: bool = True) -> list[Any]:
        """What of another container, or of a tensor over the leading batch dimensions, stands beside the pieces of this one.

        Raises:
            KeyError: a key is missing in the other one or, with `strict`, it has others.
            RuntimeError: the other one does not fit the members of this stack.
        """
        if isinstance(other, Tensor):
            other = over_batch(other, self.batch_size)
        parts = None if self._dict_backed else divided(self, other)
        if parts is not None:
            if len(parts) != len(pieces):
                raise RuntimeError(f"the stack of {len(pieces)} tensordicts is beside a value for {len(parts)} of them")
            return [piece for _, piece, _ in parts]
        if not isinstance(other, TensorCollection):
            return [other] * len(pieces)
        if not strict:
            return [other._get_str(key) for key in pieces]
        fields = other._fields()
        if len(pieces) == len(fields):
            try:
                return [fields[key] for key in pieces]
            except KeyError:
                pass
        left, right = sorted(pieces.keys() - fields.keys()), sorted(fields.keys() - pieces.keys())
        raise KeyError(f"keys in tensordicts mismatch: only the first has the keys {left}, only the second {right}")

    @final
    def _parts(self) -> Collection[Any]:
        """The pieces, where no others will stand in their places."""
        return self._pieces().values()

    @final
    def _outline(self) -> Iterable[tuple[str, Any]]:
        """The entries by name, each as `_peek` gives it."""
        return self._entries().items() if self._dict_backed else [(key, self._peek(key)) for key in list(self._fields())]

    @property
    def _rare(self) -> dict[str, Any]:
        """`_extra`, made if it is not there."""
        if self._extra is None:
            self._extra = {}  # type: ignore[misc]
        return self._extra
