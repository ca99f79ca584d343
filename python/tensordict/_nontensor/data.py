"""The holder of one Python object, which all elements of a batch have."""

from __future__ import annotations

import dataclasses
import functools
import operator
import typing
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import GenericAlias
from typing import Any, ClassVar

import torch
from torch import Size, Tensor
from typing_extensions import Self

from tensordict._kernel.change import Change
from tensordict._kernel.index import Index, parse
from tensordict._kernel.numbering import Sources, no_one_size
from tensordict._kernel.registry import new_class
from tensordict._kernel.shapes import expand_right
from tensordict._nontensor.values import copied, holders, interchangeable, nested, rebuilt, same, sources
from tensordict._ops.coerce import as_device, as_size
from tensordict._ops.take import take_state
from tensordict._ops.trees import copy_nodes
from tensordict._ops.waist import Join, Waist
from tensordict._ops.writes import Writes
from tensordict._td import TensorDict
from tensordict._tensorclass.cls import TensorClass
from tensordict._tensorclass.meta import TensorClassMeta
from tensordict._tensorclass.schema import alternatives
from tensordict._types import Key, Names, TensorCollection

_NO_BATCH = Size(())


@dataclasses.dataclass
class _Shape:
    """The fields, as dataclasses describe them."""

    data: Any
    _metadata: dict[str, Any] | None = None
    _is_non_tensor: bool = True


class HoldsObjects(Waist):
    """A node without entries, which holds Python objects: one for all its elements, or one for each.

    Its kinds say how objects are taken over (`_take_objects`) and which of them are refused (`_check_objects`).
    """

    __slots__ = ()

    def _take_objects(self, value: Any, index: Index | None) -> Any:
        """Takes over the objects of `value`, in the rows at an index if there is one; gives the node that has them then."""
        raise NotImplementedError

    def _check_objects(self, value: Any, size: Size, rows: bool = False) -> Any:
        """Raises where `value` cannot be written into all elements, or into rows of the batch size `size`, for what it is."""
        raise NotImplementedError

    def _taking(self, value: Any, index: Index | None = None, non_blocking: bool = False, check: bool = False) -> Any:
        if not check:
            return self._take_objects(value, index)
        size = self.batch_size
        return self._check_objects(value, size if index is None else index.shape(size), index is not None)

    def _kept(self) -> Callable[[], None] | None:
        return kept(self) if self.is_memmap() else None

    def _combined(self, other: Any, function: Callable[..., Any], *args: Any) -> Any:
        return chosen(self, args[0], other) if function is torch.where else compared(self, other, function)

    @classmethod
    def _joined(cls, items: Sequence[Any], dim: int, how: Join, name: str | None = None) -> Any:
        from tensordict._nontensor.stack import joined, stacked

        return stacked(items, dim, name) if how == "lazy" else joined(items, dim, how == "cat")

    def is_empty(self) -> bool:
        """False: there are objects."""
        return False

    def filter_empty_(self) -> Self:
        """Removes nothing."""
        return self

    def select(self, *keys: Key, inplace: bool = False, strict: bool = True, as_tensordict: bool = False) -> Any:
        """This node: it has no entries to leave out."""
        return self


class NonTensorDataBase(HoldsObjects, TensorClass):
    """What holds one Python object for a batch.

    It is a tensorclass around an empty tensordict, which has the batch size, device, names and lock; the object stands
    beside it. So it moves with a batch as any node does, and the object stays what it is.
    """

    __slots__ = ("__dict__", "_data", "_metadata")
    __match_args__ = ("data",)
    _is_root = True
    _is_non_tensor = True
    _dict_backed = False
    _stacked = False
    _wrapped = None  # what it is around has no entries: it is saved by its object
    __dataclass_fields__: ClassVar[dict[str, Any]] = _Shape.__dataclass_fields__

    # `MetaData[str]`, as annotations write it
    __class_getitem__ = classmethod(GenericAlias)  # type: ignore[assignment, var-annotated]

    _data: Any
    _metadata: dict[str, Any] | None

    def __init__(
        self,
        data: Any,
        _metadata: dict[str, Any] | None = None,
        _is_non_tensor: bool = True,
        *,
        batch_size: Any = None,
        device: Any = None,
        names: Any = None,
        lock: bool = False,
    ) -> None:
        if isinstance(data, TensorCollection) and data._is_non_tensor:
            data = data.data
        size = _NO_BATCH if batch_size is None else as_size(batch_size)
        _start(self, data, TensorDict._new({}, size, as_device(device)), _metadata)
        if names is not None:
            self.names = names
        if lock:
            self.lock_()

    @classmethod
    def _of(cls, data: Any, batch_size: Size = _NO_BATCH, device: torch.device | None = None) -> Self:
        """A holder of `data`, unchecked."""
        return _start(object.__new__(cls), data, TensorDict._new({}, batch_size, device), None)

    def _at(self, batch_size: Size = _NO_BATCH) -> Self:
        """A holder of the same object for another batch."""
        return self._of(self._data, batch_size, self._tensordict._device)

    def _wrap(self, inner: Any) -> Self:  # type: ignore[override]
        return _start(object.__new__(type(self)), self._data, inner, self._metadata)

    def _apart(self, known: dict[int, Any] | None, copy: Callable[..., Any] | None = None) -> Self:
        value = self._data
        made = rebuilt(value) if known is None else copied(value, known) if copy is None else copy(value, known)
        return self if made is value else _start(object.__new__(type(self)), made, self._tensordict, self._metadata)

    # The object.

    @property
    def data(self) -> Any:
        """The object."""
        return self._data

    @data.setter
    def data(self, value: Any) -> None:
        self._check_unlocked()
        check_own_file(self)
        self._hold(value)

    def _hold(self, value: Any) -> None:
        before = self._data
        object.__setattr__(self, "_data", value)
        if self._extra is not None and self._extra.get("memmap"):
            try:
                self._resave()
            except BaseException:
                object.__setattr__(self, "_data", before)
                raise

    def _held(self) -> Callable[[], None]:
        """What puts the object back that this has now, not in its file."""
        return functools.partial(object.__setattr__, self, "_data", self._data)

    def _is_memmaped_from_above(self) -> bool:
        return in_file_of_stack(self)

    def _resave(self) -> None:
        from tensordict._nontensor.files import resave

        resave(self)

    def _exposed(self, node: Any = None, key: str = "") -> Any:
        return self._data

    def tolist(self, **options: Any) -> Any:
        """The object in lists nested as the batch has dimensions; the object itself for an empty batch size."""
        return nested([self._data] * self.batch_size.numel(), self.batch_size)

    def to_dict(self, **options: Any) -> Any:
        """The object."""
        return self._data

    def maybe_to_stack(self) -> Any:
        """A `NonTensorStack` with the object for each element, or this holder where the batch size is empty."""
        from tensordict._nontensor.stack import built

        if not self.batch_size:
            return self
        return built(
            [NonTensorData._of(self._data, device=self.device)] * self.batch_size.numel(), self.batch_size, self._names
        )

    def __replace__(self, /, **changes: Any) -> Any:
        """A holder of another object; what `copy.replace` calls. `batch_size`, `device` and `names` can be changed too."""
        given = {name: changes.pop(name, getattr(self, name)) for name in ("data", "batch_size", "device", "names")}
        for name in changes:
            getattr(self, name)  # there is no other field: this says so
        return type(self)(given.pop("data"), **given)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"{type(self).__name__!r} object has no attribute or field {name!r}. Its fields are ['data'].", name=name, obj=self
        )

    def __setattr__(self, name: str, value: Any) -> None:
        if not hasattr(getattr(type(self), name, None), "__set__"):
            raise AttributeError(
                f"Cannot set the attribute {name!r}: {type(self).__name__} has no such field. Its field is 'data'."
            )
        object.__setattr__(self, name, value)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the object."""
        return self._data(*args, **kwargs)

    # The waist, where it is not that of the empty tensordict.

    def _rebuild(
        self, fields: dict[str, Any], batch_size: Size, device: torch.device | None = None, names: Names = None
    ) -> Any:
        inner = self._tensordict._rebuild(fields, batch_size, device, names)
        return inner if fields else self._wrap(inner)

    def _take_over(self, result: Any) -> bool:
        if not _is_holder(result) or result._data is not self._data:
            return False
        take_state(self, result)
        return True

    def _anew(self, batch_size: Size, device: torch.device | None, names: Names) -> Any:
        return self._of(self._data, batch_size, device)

    def _set_str(self, key: str, value: Any) -> None:
        raise AttributeError(f"Cannot set the attribute {key!r}: {type(self).__name__} has no such field. Its field is 'data'.")

    def _from_pieces(self, pieces: dict[Any, Any], change: Change | None = None) -> Any:
        made = self._wrap(self._tensordict._from_pieces({}, change))
        return made if change is None else self._for_more(made, change)

    def _for_more(self, made: Any, change: Change) -> Any:
        """What becomes of the holder where a change adds elements or dimensions."""
        return made

    def _transform(self, change: Change) -> Any:
        moved = self._wrap(self._tensordict._transform(change))
        if not change.fills:
            return self._for_more(moved, change)
        from tensordict._nontensor.stack import built

        places = sources(change, self.batch_size)
        if all([place >= 0 for place in places]):
            return moved
        fresh = self._of(None, device=self.device)
        return built([fresh if place < 0 else self for place in places], moved.batch_size, moved._names)

    def _plan_assign(self, index: Index, value: Any, plan: Writes) -> None:
        plan.put_call(functools.partial(self._put, index, plan.own(value)))

    def _put(self, index: Index, value: Any) -> None:
        made = self._taking(value, index)
        if made is not self:
            raise ValueError(
                f"A {type(self).__name__} holds one value for all its elements, so it cannot take another value at an index. "
                "Call maybe_to_stack() to get a NonTensorStack, which holds a value for each element."
            )

    def _take_objects(self, value: Any, index: Index | None) -> Any:
        if index is not None and self.batch_size and not self._has(value):
            stack = self.maybe_to_stack()
            stack._assign(index, value)
            return self._in_file(stack)
        self._check_objects(value, self.batch_size)
        if isinstance(value, TensorCollection) and value._stacked:
            found = holders(value)
            if not found or any([not interchangeable(found[0]._data, item._data) for item in found[1:]]):
                return self._in_file(self.maybe_to_stack()._taking(value))
            value = found[0]
        self._hold(value._data if _is_holder(value) else value)
        return self

    def _in_file(self, stack: Any) -> Any:
        """A stack that comes in the place of this holder, written to its folder if this is mapped."""
        stack._take_file(self)
        return stack

    def _check_objects(self, value: Any, size: Size, rows: bool = False) -> Any:
        check_own_file(self)
        if isinstance(value, TensorCollection) and not value._is_non_tensor:
            raise _refused(self, value)
        if rows and self.batch_size and not self._has(value):
            from tensordict._nontensor.stack import objects_for

            objects_for(value, size)
        elif isinstance(value, TensorCollection) and value._stacked and len(holders(value)) > 1:
            value.expand(size)
        return value

    def _has(self, value: Any) -> bool:
        """Whether an object, or that of a holder, is the one that this has, or cannot be told from it."""
        return interchangeable(value._data if _is_holder(value) else value, self._data)

    # Methods that see the object.

    def get(self, key: Key, *args: Any, **kwargs: Any) -> Any:
        """The object for the key `"data"`; a default for all others."""
        if key == "data":
            return self._data
        return self._tensordict.get(key, *args, **kwargs)

    def set(self, key: Key, item: Any, inplace: bool = False, *, non_blocking: bool = False, **kwargs: Any) -> Self:
        """Replaces the object, for the key `"data"`.

        Raises:
            AttributeError: the key is another one.
        """
        if key != "data":
            raise AttributeError(
                f"Cannot set the attribute {key!r}: {type(self).__name__} has no such field. Its field is 'data'."
            )
        self._data_in(item, not inplace)
        return self

    def _data_in(self, value: Any, structural: bool) -> None:
        if structural:
            self._check_unlocked()
        check_own_file(self)
        self._hold(value)

    def update(self, input_dict_or_td: Any = None, *args: Any, **kwargs: Any) -> Self:
        """Takes over the object of another holder.

        Raises:
            ValueError: the other one has several objects.
        """
        self._data_in(_one_of(self, input_dict_or_td, ValueError), not kwargs.get("inplace"))
        return self

    def update_(self, input_dict_or_td: Any = None, *args: Any, **kwargs: Any) -> Self:
        """Takes over the object of another holder, also if locked.

        Raises:
            RuntimeError: the other one has several objects.
        """
        self._data_in(_one_of(self, input_dict_or_td, RuntimeError), False)
        return self

    copy_ = update_  # type: ignore[assignment]

    def update_at_(self, input_dict_or_td: Any, idx: Any, clone: bool = False, **kwargs: Any) -> Self:
        """Takes over the object of another holder for the rows at an index: all of them, or it has to be the same."""
        self._assign(parse(idx, self.batch_size), input_dict_or_td)
        return self

    def to_tensordict(self, *, retain_none: bool | None = None) -> Any:
        """A copy of the holder: the object has no place in a tensordict of its own."""
        return copy_nodes(self)

    @classmethod
    def from_tensordict(cls, tensordict: Any, non_tensordict: Any = None, safe: Any = None) -> Self:
        """A holder with the batch size, device and names of a tensordict, and the object under `"data"` of a dict."""
        if not isinstance(tensordict, TensorCollection):
            raise RuntimeError(f"Expected a TensorDictBase instance but got {type(tensordict)}")
        state = non_tensordict or {}
        return _start(object.__new__(cls), state.get("data"), tensordict.empty(), state.get("_metadata"))

    @classmethod
    def from_dict(cls, input_dict: Any, **options: Any) -> Self:
        """A holder of the object under `"data"`."""
        return cls(input_dict["data"], batch_size=options.get("batch_size"), device=options.get("device"))

    def __eq__(self, other: object) -> Any:
        return compared(self, other, torch.eq) if _is_objects(other) else NotImplemented

    def __ne__(self, other: object) -> Any:
        return compared(self, other, torch.ne) if _is_objects(other) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    # Copies, pickles, prints.

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        import copy

        return _start(object.__new__(type(self)), copy.deepcopy(self._data, memo), self._tensordict.copy(), self._metadata)

    def __getstate__(self) -> dict[str, Any]:
        held = {"data": self._data, "_metadata": self._metadata, "_is_non_tensor": True}
        return {"tensordict": self._tensordict, "non_tensordict": held}

    def __setstate__(self, state: dict[str, Any]) -> None:
        held = state["non_tensordict"]
        _start(self, held["data"], state["tensordict"], held.get("_metadata"))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(data={self._data}, batch_size={self.batch_size}, device={self.device})"

    @property
    def _words(self) -> tuple[str, str]:
        return (type(self._data).__name__,) * 2


def _start(holder: Any, data: Any, inner: Any, metadata: Any) -> Any:
    put = object.__setattr__
    put(holder, "_tensordict", inner)
    put(holder, "_data", data)
    put(holder, "_metadata", metadata)
    return holder


class NonTensorData(NonTensorDataBase):
    """The holder of one Python object, which all elements of a batch have.

    A tensordict makes one of what it is given that is no tensor: a string, a function, any object. `td[key]` gives the
    object, `td.get(key)` the holder. Stacked with others it becomes a `NonTensorStack`, with an object for each element.

    Args:
        data: the object.
        batch_size: of the batch that has it.
        device: the device label.
        names: names of the batch dimensions.

    >>> import torch
    >>> from tensordict import NonTensorData, TensorDict
    >>> td = TensorDict({"a": torch.zeros(3), "name": "run 7"}, [3])
    >>> td["name"], td[0].get("name").batch_size
    ('run 7', torch.Size([]))
    >>> torch.stack([NonTensorData("a"), NonTensorData("b")]).tolist()
    ['a', 'b']
    """

    __slots__ = ()
    _is_root = True

    def _for_more(self, made: Any, change: Change) -> Any:
        """A stack with the object for each element, where there are more elements or dimensions than before."""
        size, prefix, origins = self.batch_size, change.prefix, change.origins
        if change.picks:
            return made
        grown = prefix.numel() > size[: change.consumed].numel()
        # the same elements regrouped lack a dimension that they come from
        kept = all([place in origins for place in range(change.consumed)])
        added = kept and None in origins and (not change.sizes_only or bool(size))
        if not (grown or added):
            return made
        if not size and prefix.numel() == 1 and not change.sizes_only and Sources(change, size).view:
            from tensordict._nontensor.stack import arranged

            return arranged([self], prefix, made._names)  # what is written to the element is written here
        return made.maybe_to_stack()


class MetaData(NonTensorDataBase):
    """The holder of one Python object for a batch as a whole: equal ones stay one when they are stacked.

    >>> import torch
    >>> from tensordict import MetaData
    >>> torch.stack([MetaData("a"), MetaData("a")])
    MetaData(data=a, batch_size=torch.Size([2]), device=None)
    """

    __slots__ = ()
    _is_root = True
    # what `MetaData[kind]` was made with
    _kind: ClassVar[Any] = None

    def __init__(self, data: Any, *args: Any, **options: Any) -> None:
        super().__init__(data, *args, **options)
        if self._kind is not None and not _is_of(self._data, self._kind):
            name = getattr(self._kind, "__name__", str(self._kind))
            raise TypeError(f"Expected data of type {name}, got {type(self._data).__name__}")

    @classmethod
    def __class_getitem__(cls, kind: Any) -> Any:
        """The class of holders whose object is of a type; the same one each time.

        Raises:
            TypeError: the class has a type already.
        """
        if cls._kind is not None:
            raise TypeError(f"{cls.__name__} has a type already, it cannot be given {kind!r} as well")
        try:
            return _typed(cls, kind)
        except TypeError:  # what cannot be hashed is a note for readers alone
            return cls

    def __reduce_ex__(self, protocol: Any) -> Any:
        if self._kind is None:
            return super().__reduce_ex__(protocol)
        return _empty_typed, (self._kind,), self.__getstate__()


@functools.cache
def _typed(cls: Any, kind: Any) -> Any:
    name = f"{cls.__name__}[{getattr(kind, '__name__', kind)}]"
    body = {"__slots__": (), "__module__": cls.__module__, "_is_root": True, "_kind": kind}
    made = TensorClassMeta(name, (cls,), body)
    new_class(made)
    return made


def _empty_typed(kind: Any) -> Any:
    return object.__new__(_typed(MetaData, kind))


def _is_of(value: Any, kind: Any) -> bool:
    """Whether an object is of a type; true for annotations of which one cannot tell."""
    try:
        return any([isinstance(value, typing.get_origin(item) or item) for item in alternatives(kind)])
    except TypeError:
        return True


for _kind in (NonTensorDataBase, NonTensorData, MetaData):
    _kind.__module__ = "tensordict.tensorclass"


def kept(node: Any) -> Callable[[], None]:
    """What puts back the objects that a node has now, here and in its file."""
    put_back = node._held()

    def put_all_back() -> None:
        put_back()
        with suppress(Exception):  # the error to be seen is that for which this is done
            node._resave()

    return put_all_back


def _is_holder(value: Any) -> bool:
    return isinstance(value, NonTensorDataBase)


def _is_objects(value: Any) -> bool:
    return isinstance(value, TensorCollection) and bool(value._is_non_tensor)


def in_file_of_stack(node: Any) -> bool:
    """Whether a node is a part of a mapped stack of objects, all of which are in one file."""
    extra = node._extra
    return extra is not None and bool(extra.get("within") and extra.get("memmap"))


def _starts_in_file(node: Any) -> bool:
    """Whether a node, or the first element of a stack, is a part of a mapped stack of objects."""
    while node._stacked and node.tensordicts and not in_file_of_stack(node):
        node = node.tensordicts[0]
    return in_file_of_stack(node)


def check_own_file(node: Any) -> None:
    """Raises where the file of a node's objects is that of a stack that holds more, so that it could not be written."""
    if in_file_of_stack(node) or (node._stacked and not node.is_memmap() and any(map(_starts_in_file, node._parts()))):
        raise RuntimeError(
            "Cannot update a leaf NonTensorDataBase from a memmaped parent NonTensorStack: the objects of the stack are in one "
            "file. Write to the stack, at the index of this element."
        )


def _refused(node: Any, value: Any) -> Exception:
    from tensordict._kernel.errors import _InplaceWriteError

    return _InplaceWriteError(f"a {type(node).__name__} holds objects: a {type(value).__name__} cannot be written into it")


def _one_of(node: Any, value: Any, error: type[Exception]) -> Any:
    """The one object of what a holder is updated from."""
    if _is_objects(value):
        if value._stacked:
            raise error(
                f"Cannot update a NonTensorDataBase object with a {type(value).__name__}. Call "
                "`non_tensor_data.maybe_to_stack()` before calling update()."
            )
        return value._data
    if isinstance(value, dict) and "data" in value:
        return value["data"]
    raise AttributeError(f"a {type(node).__name__} is updated from another holder, got a {type(value).__name__}")


def compared(node: Any, other: Any, function: Callable[..., Any]) -> Any:
    """For each element whether the objects of two nodes are equal, or what `|` or `^` says; `node` for what orders them."""
    if isinstance(other, Tensor):
        return function(torch.as_tensor(node.tolist()), other)
    test = _TESTS.get(function)
    if test is None or not _is_objects(other):
        return node
    if -1 in node.batch_size:
        raise no_one_size(node.batch_size)
    if node.batch_size != other.batch_size:
        raise RuntimeError(f"the batch sizes {node.batch_size} and {other.batch_size} of the objects to compare differ")
    try:
        if not node._stacked and not other._stacked:
            return torch.full(node.batch_size, bool(test(node._data, other._data)), device=node.device)
        found = [bool(test(one._data, two._data)) for one, two in zip(holders(node), holders(other))]
    except TypeError:  # there is no `|` of such objects
        return node
    return torch.tensor(found, dtype=torch.bool, device=node.device).reshape(node.batch_size)


def _unlike(one: Any, two: Any) -> bool:
    return not same(one, two)


_TESTS: dict[Callable[..., Any], Callable[[Any, Any], Any]] = {
    torch.eq: same,
    torch.ne: _unlike,
    torch.bitwise_or: operator.or_,
    torch.bitwise_xor: operator.xor,
}


def chosen(node: Any, condition: Tensor, other: Any) -> Any:
    """The objects of `node` where a condition holds, and those of `other` elsewhere; of what has no objects, none."""
    if not _is_objects(other) or (_is_holder(node) and _is_holder(other) and interchangeable(node._data, other._data)):
        return copy_nodes(node)
    from tensordict._nontensor.stack import built

    size = node.batch_size
    wide = expand_right(condition, size) if condition.ndim < len(size) else condition.expand(size)
    rows = zip(wide.reshape(-1).tolist(), holders(node), holders(other.expand(size)))
    return built([one if first else two for first, one, two in rows], size, node._names)
