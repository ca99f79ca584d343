"""From and to plain Python: dicts, lists, tuples, dataclasses."""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import Size, Tensor
from typing_extensions import Self

from tensordict._convert.anything import Batch, batch_of, build, is_namedtuple, new
from tensordict._convert.linked_list import LinkedList
from tensordict._kernel.registry import is_branch
from tensordict._ops.coerce import as_device, as_size
from tensordict._ops.join import stack_tensordicts
from tensordict._ops.waist import Waist
from tensordict._reexport import lazy_stack, maybe_dense_stack
from tensordict._types import Key, TensorCollection


def _mapping(obj: Any) -> Mapping[Any, Any]:
    """A mapping, or pairs of keys and values as one."""
    if isinstance(obj, Mapping):
        return obj
    try:
        return dict(obj)
    except TypeError:
        raise TypeError(f"expected a mapping or pairs of keys and values, got a {type(obj).__name__}") from None
    except ValueError:
        raise ValueError(f"expected a mapping or pairs of keys and values, got a {type(obj).__name__} of others") from None


def _dict_batch(name: str, batch_size: Any, auto: bool | None, batch_dims: int | None) -> Batch:
    """The options of the conversions of dicts, where `batch_dims` alone asks for a batch size and a given one wins."""
    if batch_size is None:
        if auto is None:
            auto = batch_dims is not None
        return batch_of(name, None, auto, batch_dims)
    if batch_dims is not None:
        raise ValueError(f"{name} takes batch_size or batch_dims, not both")
    return batch_of(name, batch_size, False, None)


def _plain(value: Any, lists: bool, tensors: bool, retain_none: bool = True) -> Any:
    """An entry as `to_dict` gives it."""
    if isinstance(value, TensorCollection):
        if not is_branch(value):
            return value.to_dict()
        if lists and value.batch_size:
            return [_plain(row, lists, tensors, retain_none) for row in value.unbind(0)]
        return value.to_dict(retain_none=retain_none, convert_tensors=tensors, tolist_first=lists)
    return value.tolist() if tensors and isinstance(value, Tensor) else value


def _named(node: Any, dest_cls: Any) -> Any:
    return node.to_namedtuple(dest_cls) if is_branch(node) else node.to_dict()


@functools.lru_cache(maxsize=256)
def _tuple_class(keys: tuple[str, ...]) -> Any:
    return collections.namedtuple("GenericDict", keys)


def _structure_fields(obj: Any) -> Iterable[tuple[str, Any]]:
    """The names and values of a named tuple, of one of torch's own, or of a mapping."""
    if is_namedtuple(obj):
        return obj._asdict().items()
    if isinstance(obj, tuple) and hasattr(obj, "n_sequence_fields"):
        return zip(type(obj).__match_args__, obj)  # type: ignore[attr-defined]
    if isinstance(obj, Mapping):
        return obj.items()
    raise TypeError(f"from_namedtuple takes a named tuple, got a {type(obj).__name__}")


class PythonConversions(Waist):
    """From and to dicts, lists, tuples and dataclasses."""

    __slots__ = ()

    @classmethod
    def from_dict(
        cls,
        input_dict: Any,
        *,
        auto_batch_size: bool | None = None,
        batch_size: Any = None,
        device: Any = None,
        batch_dims: int | None = None,
        names: Sequence[str | None] | None = None,
    ) -> Self:
        """A tensordict of a nested dict.

        Args:
            input_dict: the entries, or pairs of keys and values; what `from_any` converts becomes a nested tensordict, with
                the same batch size.
            auto_batch_size: without `batch_size`, take the longest leading dimensions that all leaves share.
            batch_size: the batch size; empty if neither it nor `auto_batch_size` is given.
            device: the device to move the leaves to.
            batch_dims: the most dimensions that `auto_batch_size` takes; alone it turns that on.
            names: names of the batch dimensions.

        Raises:
            TypeError: `input_dict` is no mapping, or a value cannot become a tensor or a tensordict.
            ValueError: both `batch_size` and `batch_dims` are given.
        """
        if isinstance(input_dict, TensorCollection):
            return input_dict  # type: ignore[return-value]
        batch = _dict_batch("from_dict", batch_size, auto_batch_size, batch_dims)
        return build(new(cls, device), _mapping(input_dict).items(), batch, names)

    def from_dict_instance(
        self,
        input_dict: Any,
        *,
        auto_batch_size: bool | None = None,
        batch_size: Any = None,
        device: Any = None,
        batch_dims: int | None = None,
        names: Sequence[str | None] | None = None,
    ) -> Self:
        """`from_dict`, with nodes of the types that this tensordict has under the same keys."""
        if isinstance(input_dict, TensorCollection) and batch_size is None and not auto_batch_size and batch_dims is None:
            batch_size = input_dict.batch_size
        batch = _dict_batch("from_dict_instance", batch_size, auto_batch_size, batch_dims)
        out = self._rebuild({}, Size(()), as_device(device))
        return build(out, self._converted(_mapping(input_dict), device, batch), batch, names)

    def _converted(self, source: Mapping[Any, Any], device: Any, batch: Batch) -> Iterable[tuple[Any, Any]]:
        """The entries of `source`, mappings at the place of a node as such a node."""
        own = self._fields()
        for key, value in source.items():
            node = own.get(key)
            if isinstance(node, PythonConversions) and isinstance(value, Mapping) and not isinstance(value, TensorCollection):
                value = node.from_dict_instance(value, device=device, auto_batch_size=batch.auto, batch_dims=batch.dims_below)
            yield key, value

    @classmethod
    def from_list(
        cls,
        input: Iterable[Any],
        *,
        auto_batch_size: bool | None = None,
        batch_size: Any = None,
        device: Any = None,
        batch_dims: int | None = None,
        names: Sequence[str | None] | None = None,
        lazy: bool | None = None,
    ) -> Self:
        """The stack, along a new first dimension, of a list of dicts or tensordicts of the same keys and shapes.

        Args:
            input: the elements.
            auto_batch_size: as for `from_dict`, of each element.
            batch_size: the batch size of the stack.
            device: the device to move the leaves to.
            batch_dims: the most dimensions of the stack's batch size.
            names: names of the batch dimensions of the stack.
            lazy: True for a lazy stack, False for a dense one; not given, dense where keys and shapes agree.

        Raises:
            RuntimeError: the list is empty, or keys or shapes differ.
            ValueError: the batch size does not start with the length of the list.
        """
        input = list(input)
        options: dict[str, Any] = {"device": device}
        if batch_size is not None:
            size = as_size(batch_size)
            if size[:1] != (len(input),):
                raise ValueError(f"the batch size {size} does not start with the length of the list, {len(input)}")
            options["batch_size"] = size[1:]
        else:
            options["auto_batch_size"] = auto_batch_size
            options["batch_dims"] = None if batch_dims is None else max(batch_dims - 1, 0)
        items = [item if isinstance(item, TensorCollection) else cls.from_dict(item, **options) for item in input]
        out = stack_tensordicts(items, 0) if lazy is False else (lazy_stack if lazy else maybe_dense_stack)(items, 0)
        if names is not None:
            out.names = names
        return out

    @classmethod
    def fromkeys(cls, keys: Iterable[Key], value: Any = 0) -> Self:
        """A tensordict with an empty batch size that has `value` under each key."""
        out: Any = new(cls, None)
        for key in keys:
            out.set(key, value)
        return out

    @classmethod
    def from_tuple(
        cls,
        obj: Iterable[Any],
        *,
        auto_batch_size: bool = False,
        batch_dims: int | None = None,
        device: Any = None,
        batch_size: Any = None,
    ) -> Self:
        """A tensordict of a tuple, with the keys "0", "1", ...; the options are those of `from_any`.

        >>> import torch
        >>> from tensordict import TensorDict
        >>> list(TensorDict.from_tuple((torch.zeros(2), {"a": torch.ones(2)})).keys(True, True))
        ['0', ('1', 'a')]
        """
        batch = batch_of("from_tuple", batch_size, auto_batch_size, batch_dims)
        return build(new(cls, device), ((str(place), value) for place, value in enumerate(obj)), batch)

    @classmethod
    def from_namedtuple(
        cls,
        named_tuple: Any,
        *,
        auto_batch_size: bool = False,
        batch_dims: int | None = None,
        device: Any = None,
        batch_size: Any = None,
    ) -> Self:
        """A tensordict of a named tuple, also one that a torch function returned; the options are those of `from_any`.

        Raises:
            TypeError: `named_tuple` has no names.

        >>> import torch
        >>> from tensordict import TensorDict
        >>> list(TensorDict.from_namedtuple(torch.ones(2, 3).max(0)).keys())
        ['values', 'indices']
        """
        batch = batch_of("from_namedtuple", batch_size, auto_batch_size, batch_dims)
        return build(new(cls, device), _structure_fields(named_tuple), batch)

    def to_namedtuple(self, dest_cls: Any = None) -> Any:
        """A named tuple of the entries, nodes as named tuples too; the leaves are shared.

        Args:
            dest_cls: the class, for this node and those below; one made of the keys if not given.

        Raises:
            TypeError: the keys are not the fields of `dest_cls`.
            ValueError: a key cannot be the name of a field.

        >>> import torch
        >>> from tensordict import TensorDict
        >>> TensorDict({"a": torch.tensor(1), "b": {"c": torch.tensor(2)}}).to_namedtuple()
        GenericDict(a=tensor(1), b=GenericDict(c=tensor(2)))
        """
        values = {
            key: _named(value, dest_cls) if isinstance(value, PythonConversions) else value
            for key, value in self._entries().items()
        }
        return (_tuple_class(tuple(values)) if dest_cls is None else dest_cls)(**values)

    @classmethod
    def from_dataclass(
        cls,
        dataclass: Any,
        *,
        dest_cls: Any = None,
        auto_batch_size: bool = False,
        batch_dims: int | None = None,
        as_tensorclass: bool = False,
        device: Any = None,
        batch_size: Any = None,
    ) -> Self:
        """A tensordict of the fields of a dataclass; the options are those of `from_any`.

        Args:
            dataclass: an instance of a dataclass; nested ones become nodes.
            dest_cls: the tensorclass to make, with `as_tensorclass`.
            auto_batch_size: as for `from_any`.
            batch_dims: as for `from_any`.
            as_tensorclass: make a tensorclass, which this version does not have.
            device: as for `from_any`.
            batch_size: as for `from_any`.

        Raises:
            TypeError: `dataclass` is no dataclass, or the class instead of an instance.

        >>> import dataclasses, torch
        >>> from tensordict import TensorDict
        >>> @dataclasses.dataclass
        ... class Pair:
        ...     x: torch.Tensor
        ...     y: float
        >>> TensorDict.from_dataclass(Pair(torch.ones(2), 3.0))["y"]
        tensor(3.)
        """
        if as_tensorclass:
            raise NotImplementedError("as_tensorclass=True gives tensorclasses, which this version does not have yet")
        if not dataclasses.is_dataclass(dataclass):
            raise TypeError(f"from_dataclass takes an instance of a dataclass, got a {type(dataclass).__name__}")
        if isinstance(dataclass, type):
            raise TypeError(f"from_dataclass takes an instance of a dataclass, got the class {dataclass.__name__}")
        batch = batch_of("from_dataclass", batch_size, auto_batch_size, batch_dims)
        names = [field.name for field in dataclasses.fields(dataclass)]
        return build(new(cls, device), ((name, getattr(dataclass, name)) for name in names), batch)

    def to_dict(self, *, retain_none: bool = True, convert_tensors: bool = False, tolist_first: bool = False) -> dict[str, Any]:
        """A nested dict of the entries; the leaves are shared.

        Args:
            retain_none: keep entries that are None.
            convert_tensors: give the leaves as (nested) lists.
            tolist_first: give each node below as (nested) lists of dicts, one for each element of its batch.
        """
        entries = self._entries()
        for key, value in entries.items():
            entries[key] = _plain(value, tolist_first, convert_tensors, retain_none)
        return entries

    def tolist(
        self,
        *,
        convert_nodes: bool = True,
        convert_tensors: bool = False,
        tolist_first: bool = False,
        as_linked_list: bool = False,
    ) -> Any:
        """The elements of the batch as dicts, in lists nested as the batch has dimensions; one dict for an empty batch size.

        Args:
            convert_nodes: give dicts; else tensordicts with an empty batch size.
            convert_tensors: give the leaves as (nested) lists of numbers; else as tensors that share storage.
            tolist_first: give nodes with more batch dimensions as (nested) lists of dicts.
            as_linked_list: make the outer list a `LinkedList`, whose rows write to this tensordict when they are replaced.

        Raises:
            TypeError: `convert_tensors` without `convert_nodes`.

        >>> import torch
        >>> from tensordict import TensorDict
        >>> TensorDict({"a": torch.tensor([1, 2])}, [2]).tolist(convert_tensors=True)
        [{'a': 1}, {'a': 2}]
        """
        if convert_tensors and not convert_nodes:
            raise TypeError("convert_tensors requires convert_nodes to be set to True")
        if not self.batch_size:
            return self.to_dict(convert_tensors=convert_tensors, tolist_first=tolist_first) if convert_nodes else self
        rows = [
            row.tolist(convert_nodes=convert_nodes, convert_tensors=convert_tensors, tolist_first=tolist_first)
            for row in self.unbind(0)
        ]
        return LinkedList(rows, td=self) if as_linked_list else rows
