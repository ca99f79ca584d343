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
        if isinstance(value, Mapping) and not isinstance(value, TensorCollection):
            value = _filled(empty._rebuild({}, Size(()), empty.device), value)
        empty.set(key, value)
    return empty


def _batched(out: Any, batch_size: Any, auto: bool | None, batch_dims: int | None, names: Any) -> Any:
    """`out` with the batch size that was given or, if asked, found."""
    if batch_size is not None:
        out.batch_size = as_size(batch_size)
    elif auto or batch_dims is not None:
        out.auto_batch_size_(batch_dims=batch_dims)
    if names is not None:
        out.names = names
    return out


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
            auto_batch_size: without `batch_size`, take the longest leading dimensions that all leaves share.
            batch_size: the batch size; empty if neither it nor `auto_batch_size` is given.
            device: the device to move the leaves to.
            batch_dims: the most dimensions that `auto_batch_size` takes.
            names: names of the batch dimensions.

        Raises:
            TypeError: `input_dict` is no mapping.
            ValueError: both `batch_size` and `batch_dims` are given.
        """
        if isinstance(input_dict, TensorCollection):
            return input_dict  # type: ignore[return-value]
        if not isinstance(input_dict, Mapping):
            raise TypeError(f"from_dict takes a mapping, got a {type(input_dict).__name__}")
        if batch_size is not None and batch_dims is not None:
            raise ValueError("from_dict takes batch_size or batch_dims, not both")
        out = _filled(cls(device=as_device(device)), input_dict)  # type: ignore[call-arg]
        return _batched(out, batch_size, auto_batch_size, batch_dims, names)

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
        return _batched(out, batch_size, auto_batch_size, batch_dims, names)

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
            batch_dims: the most dimensions of the stack's batch size.
            names: names of the batch dimensions of the stack.
            lazy: whether to stack without copies; only dense stacks are there yet.

        Raises:
            RuntimeError: the list is empty, or keys or shapes differ.
            ValueError: the batch size does not start with the length of the list.
        """
        if lazy:
            raise RuntimeError("from_list(lazy=True) makes lazy stacks, which this version does not have")
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
            tolist_first: give each node below as (nested) lists of dicts, one for each element of its batch.
        """

        def plain(value: Any) -> Any:
            if isinstance(value, TensorCollection):
                if tolist_first and value.batch_size:  # type: ignore[attr-defined]
                    return [plain(row) for row in value.unbind(0)]  # type: ignore[attr-defined]
                return {key: plain(entry) for key, entry in value._fields().items()}  # type: ignore[attr-defined]
            return value.tolist() if convert_tensors and isinstance(value, Tensor) else value

        return {key: plain(value) for key, value in self._fields().items()}
