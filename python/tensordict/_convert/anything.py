"""`from_any`: a table from types to the method that converts them."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Iterable, Mapping
from numbers import Number
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Size, Tensor
from typing_extensions import Self

from tensordict._ops.coerce import as_device, as_size, coerce
from tensordict._ops.leafwise import relock
from tensordict._ops.trees import copy_nodes
from tensordict._ops.waist import Waist
from tensordict._reexport import dense_class, object_stack
from tensordict._types import TensorCollection


class Converter(NamedTuple):
    """A row of the table: which objects it is for, and `convert(cls, obj, **options)`."""

    takes: Callable[[Any], bool]
    convert: Callable[..., Any]


def is_namedtuple(obj: Any) -> bool:
    """Whether `obj` is an instance of a class that `collections.namedtuple` or `typing.NamedTuple` made."""
    return isinstance(obj, tuple) and hasattr(obj, "_fields") and hasattr(obj, "_asdict")


def is_struct_array(obj: Any) -> bool:
    """Whether `obj` is a NumPy array or scalar with named fields."""
    return isinstance(obj, (np.ndarray, np.void)) and obj.dtype.names is not None


def _same(cls: Any, obj: Any, **options: Any) -> Any:
    return obj


def _of_list(cls: Any, obj: list[Any], **options: Any) -> Any:
    """The tensor of a (nested) list of numbers; of any other list the stack of its objects."""
    if _all_numbers(obj):
        try:
            return torch.tensor(obj, device=as_device(options.get("device")))
        except ValueError:
            pass  # the lists in it are of unlike lengths
    return object_stack(obj, nested=True)


def _all_numbers(obj: list[Any]) -> bool:
    return all(isinstance(item, Number) or (type(item) is list and _all_numbers(item)) for item in obj)


# The first row that takes an object converts it. What is in no row stays as it is.
CONVERTERS: list[Converter] = [
    Converter(lambda obj: isinstance(obj, TensorCollection), _same),
    Converter(lambda obj: isinstance(obj, Mapping), lambda cls, obj, **options: cls.from_dict(obj, **options)),
    Converter(dataclasses.is_dataclass, lambda cls, obj, **options: cls.from_dataclass(obj, **options)),
    Converter(is_namedtuple, lambda cls, obj, **options: cls.from_namedtuple(obj, **options)),
    Converter(lambda obj: isinstance(obj, tuple), lambda cls, obj, **options: cls.from_tuple(obj, **options)),
    Converter(is_struct_array, lambda cls, obj, **options: cls.from_struct_array(obj, **options)),
    Converter(lambda obj: isinstance(obj, list), _of_list),
]


def convert(cls: Any, obj: Any, **options: Any) -> Any:
    """`obj` as the first row of the table that takes it converts it."""
    if isinstance(obj, Tensor):
        return obj
    for row in CONVERTERS:
        if row.takes(obj):
            return row.convert(cls, obj, **options)
    return obj


class Batch(NamedTuple):
    """What a conversion does about the batch size."""

    batch_size: Size | None
    auto: bool
    batch_dims: int | None

    @property
    def dims_below(self) -> int | None:
        """The `batch_dims` of the nodes below, before the batch size of the root is found."""
        return 0 if self.auto else None


def batch_of(name: str, batch_size: Any, auto: bool, batch_dims: int | None) -> Batch:
    """The checked options of the conversion called `name`.

    Raises:
        TypeError: both `batch_size` and `auto_batch_size` are given.
    """
    if auto and batch_size is not None:
        raise TypeError(f"conflicting batch sizes in {name}: it takes batch_size or auto_batch_size, not both")
    if batch_dims is not None and not auto:
        warnings.warn(f"{name} ignores batch_dims={batch_dims} without auto_batch_size=True", FutureWarning, stacklevel=3)
    return Batch(None if batch_size is None else as_size(batch_size), auto, batch_dims)


def build(
    out: Any, pairs: Iterable[tuple[Any, Any]], batch: Batch, names: Any = None, nested: Callable[[Any], Any] | None = None
) -> Any:
    """Fills the empty `out` with converted values; gives it the batch size that was asked for.

    Args:
        out: a new tensordict with an empty batch size and the device that all get.
        pairs: keys and values.
        batch: the options.
        names: the names of the batch dimensions of the result.
        nested: converts a value; `from_any` if not given.
    """
    if batch.batch_size is not None:
        out.batch_size = batch.batch_size
    nodes = dense_class()
    # nodes below get their batch size with the one of `out`, once all entries are there
    below = {"device": out.device, "auto_batch_size": batch.auto, "batch_dims": batch.dims_below}
    bare = out.device is None and not out.batch_size  # then every plain tensor fits
    for key, value in pairs:
        if type(value) is Tensor and type(key) is str:
            out._set_str(key, value if bare and not value.is_nested else coerce(out, key, value))
            continue
        try:
            found = convert(nodes, value, **below) if nested is None else nested(value)
        except TypeError as error:
            if type(error) is not TypeError:
                raise
            raise TypeError(f"the value of key {key!r}: {error}") from None
        if found is value and batch.auto and isinstance(value, TensorCollection):
            # the batch size of what is the caller's stays
            found = relock(copy_nodes(value), value)
        out.set(key, found)
    if batch.auto:
        out.auto_batch_size_(batch_dims=batch.batch_dims)
    if names is not None:
        out.names = names
    return out


def new(cls: Any, device: Any) -> Any:
    """An empty tensordict of the class, or a plain one where the class only makes views."""
    return cls._new_empty(as_device(device))


class AnyConversions(Waist):
    """`from_any`."""

    __slots__ = ()

    @classmethod
    def _new_empty(cls, device: torch.device | None) -> Any:
        return (cls if issubclass(cls, dense_class()) else dense_class())(device=device)  # type: ignore[call-arg]

    @classmethod
    def from_any(
        cls,
        obj: Any,
        *,
        auto_batch_size: bool = False,
        batch_dims: int | None = None,
        device: Any = None,
        batch_size: Any = None,
    ) -> Self:
        """A tensordict of whatever has one: a mapping, dataclass, tuple, named tuple or structured array, nested at will.

        A (nested) list of numbers becomes a tensor, any other list a stack of its objects. Tensordicts, tensors and objects
        of every other kind are returned as they are; within what is converted, objects are kept as entries.

        Args:
            obj: what to convert.
            auto_batch_size: take the longest leading dimensions that all leaves share as the batch size.
            batch_dims: the most dimensions that `auto_batch_size` takes.
            device: the device to move the leaves to.
            batch_size: the batch size; empty if neither it nor `auto_batch_size` is given, except for structured arrays.

        Raises:
            TypeError: a value within the object cannot become a tensor or a tensordict.

        >>> import torch
        >>> from tensordict import TensorDict
        >>> td = TensorDict.from_any({"a": (torch.zeros(3), torch.ones(3, 2))}, auto_batch_size=True)
        >>> td.batch_size, td["a", "1"].shape
        (torch.Size([3]), torch.Size([3, 2]))
        """
        return convert(cls, obj, auto_batch_size=auto_batch_size, batch_dims=batch_dims, device=device, batch_size=batch_size)
