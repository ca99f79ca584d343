"""The conversions to plain tensordicts, as functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tensordict._reexport import dense_class
from tensordict._types import Key


def from_any(
    obj: Any,
    *,
    auto_batch_size: bool = False,
    batch_dims: int | None = None,
    device: Any = None,
    batch_size: Any = None,
) -> Any:
    """A tensordict of whatever has one (see `TensorDict.from_any`)."""
    return dense_class().from_any(
        obj, auto_batch_size=auto_batch_size, batch_dims=batch_dims, device=device, batch_size=batch_size
    )


def from_dict(
    d: Any,
    *,
    auto_batch_size: bool | None = None,
    batch_dims: int | None = None,
    device: Any = None,
    batch_size: Any = None,
    names: Sequence[str | None] | None = None,
) -> Any:
    """A tensordict of a nested dict (see `TensorDict.from_dict`)."""
    return dense_class().from_dict(
        d, auto_batch_size=auto_batch_size, batch_dims=batch_dims, device=device, batch_size=batch_size, names=names
    )


def fromkeys(keys: Iterable[Key], value: Any = 0) -> Any:
    """A tensordict with an empty batch size that has `value` under each key."""
    return dense_class().fromkeys(keys, value)


def from_namedtuple(
    named_tuple: Any,
    *,
    auto_batch_size: bool = False,
    batch_dims: int | None = None,
    device: Any = None,
    batch_size: Any = None,
) -> Any:
    """A tensordict of a named tuple (see `TensorDict.from_namedtuple`)."""
    return dense_class().from_namedtuple(
        named_tuple, auto_batch_size=auto_batch_size, batch_dims=batch_dims, device=device, batch_size=batch_size
    )


def from_pytree(pytree: Any, *, batch_size: Any = None, auto_batch_size: bool = False, batch_dims: int | None = None) -> Any:
    """A tensordict of a tree of Python containers (see `TensorDict.from_pytree`)."""
    return dense_class().from_pytree(pytree, batch_size=batch_size, auto_batch_size=auto_batch_size, batch_dims=batch_dims)


def from_struct_array(
    struct_array: Any,
    *,
    auto_batch_size: bool = False,
    batch_dims: int | None = None,
    device: Any = None,
    batch_size: Any = None,
) -> Any:
    """A tensordict of the fields of a NumPy structured array (see `TensorDict.from_struct_array`)."""
    return dense_class().from_struct_array(
        struct_array, auto_batch_size=auto_batch_size, batch_dims=batch_dims, device=device, batch_size=batch_size
    )


def from_tuple(
    obj: Any,
    *,
    auto_batch_size: bool = False,
    batch_dims: int | None = None,
    device: Any = None,
    batch_size: Any = None,
) -> Any:
    """A tensordict of a tuple (see `TensorDict.from_tuple`)."""
    return dense_class().from_tuple(
        obj, auto_batch_size=auto_batch_size, batch_dims=batch_dims, device=device, batch_size=batch_size
    )
