"""From and to plain Python: dicts and lists."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import Size, Tensor
from typing_extensions import Self

from tensordict._ops.coerce import as_device, as_size
from tensordict._ops.join import stack_tensordicts
from tensordict._ops.waist import Waist
from tensordict._types import Key, TensorCollection


def _filled(empty: Any, source: Mapping[Any, Any]) -> Any:
    for key, value in source.items():
        if isinstance(value, Mapping):
            value = _filled(empty._rebuild({}, Size(()), empty.device), value)
        empty.set(key, value)
    return empty


class PythonConversions(Waist):
    """`from_dict`, `from_list`, `fromkeys`, `to_dict`."""

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
            input_dict: the entries; nested dicts become nested tensordicts, with the same batch size.
            auto_batch_size: take the longest leading dimensions that all leaves share as batch size.
            batch_size: the batch size; empty if neither it nor `auto_batch_size` is given.
            device: the device to move the leaves to.
            batch_dims: the most dimensions that `auto_batch_size` takes.
            names: names of the batch dimensions.

        Raises:
            ValueError: both `batch_size` and `auto_batch_size` are given.
        """
        if isinstance(input_dict, TensorCollection):
            return input_dict  # type: ignore[return-value]
        if batch_size is not None and auto_batch_size:
            raise ValueError("from_dict takes batch_size or auto_batch_size, not both")
        out = _filled(cls(device=as_device(device)), input_dict)  # type: ignore[call-arg]
        if auto_batch_size or (batch_dims is not None and batch_size is None):
            out.auto_batch_size_(batch_dims=batch_dims)
        elif batch_size is not None:
            out.batch_size = as_size(batch_size)
        if names is not None:
            out.names = names
        return out

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
        if isinstance(input_dict, TensorCollection):
            return input_dict  # type: ignore[return-value]
        out = self._rebuild({}, Size(()), as_device(device))
        for key, value in input_dict.items():
            own = self._fields().get(key)
            if isinstance(value, Mapping) and isinstance(own, PythonConversions):
                value = own.from_dict_instance(value)
            out.set(key, value)
        if auto_batch_size or (batch_dims is not None and batch_size is None):
            out.auto_batch_size_(batch_dims=batch_dims)
        elif batch_size is not None:
            out.batch_size = as_size(batch_size)
        if names is not None:
            out.names = names
        return out

    @classmethod
    def from_list(
        cls,
        input: Sequence[Any],
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
            batch_dims: as for `from_dict`, of each element.
            names: names of the batch dimensions of the stack.
            lazy: whether to stack without copies; only dense stacks are there yet.

        Raises:
            RuntimeError: the list is empty, or keys or shapes differ.
        """
        if lazy:
            raise RuntimeError("from_list(lazy=True) makes lazy stacks, which this version does not have")
        options = {"auto_batch_size": auto_batch_size, "batch_dims": batch_dims, "device": device}
        inner = None if batch_size is None else as_size(batch_size)[1:]
        items = [
            item if isinstance(item, TensorCollection) else cls.from_dict(item, batch_size=inner, **options) for item in input
        ]
        out = stack_tensordicts(items, 0)
        if names is not None:
            out.names = names
        return out

    @classmethod
    def fromkeys(cls, keys: Iterable[Key], value: Any = 0) -> Self:
        """A tensordict with an empty batch size that has `value` under each key."""
        out: Any = cls()
        for key in keys:
            out.set(key, value)
        return out

    def to_dict(self, *, retain_none: bool = True, convert_tensors: bool = False, tolist_first: bool = False) -> dict[str, Any]:
        """A nested dict of the entries; the leaves are shared.

        Args:
            retain_none: keep entries that are None.
            convert_tensors: give the leaves as (nested) lists.
        """
        return {
            key: value.to_dict(retain_none=retain_none, convert_tensors=convert_tensors)  # type: ignore[attr-defined]
            if isinstance(value, TensorCollection)
            else value.tolist()
            if convert_tensors and isinstance(value, Tensor)
            else value
            for key, value in self._fields().items()
        }
