"""Functions on tensordicts: constructors, joins, collation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tensordict._ops.join import cat_tensordicts, stack_tensordicts
from tensordict._td import TensorDict
from tensordict._types import Key
from tensordict.data.collate import collate

__all__ = ["cat", "collate", "from_dict", "fromkeys", "make_tensordict", "stack"]


def from_dict(
    d: Any,
    *,
    auto_batch_size: bool | None = None,
    batch_dims: int | None = None,
    device: Any = None,
    batch_size: Any = None,
    names: Sequence[str | None] | None = None,
) -> TensorDict:
    """A tensordict of a nested dict (see `TensorDict.from_dict`)."""
    return TensorDict.from_dict(
        d, auto_batch_size=auto_batch_size, batch_dims=batch_dims, device=device, batch_size=batch_size, names=names
    )


def fromkeys(keys: Iterable[Key], value: Any = 0) -> TensorDict:
    """A tensordict with an empty batch size that has `value` under each key."""
    return TensorDict.fromkeys(keys, value)


def make_tensordict(
    input_dict: Mapping[Any, Any] | None = None,
    batch_size: Any = None,
    device: Any = None,
    auto_batch_size: bool | None = None,
    **kwargs: Any,
) -> TensorDict:
    """A tensordict of a nested dict, of keywords, or of both, where the dict wins (see `TensorDict.from_dict`)."""
    source = kwargs if input_dict is None else {**kwargs, **input_dict}
    return TensorDict.from_dict(source, batch_size=batch_size, device=device, auto_batch_size=auto_batch_size)


def stack(input: Sequence[Any], dim: int = 0, *, out: Any = None) -> Any:
    """The stack of tensordicts of the same keys and shapes along a new batch dimension; the leaves are copied.

    Args:
        input: tensordicts of batch size `(*B)`.
        dim: where the new dimension stands; counted from behind if negative.
        out: a tensordict to write the result into.

    Raises:
        RuntimeError: batch sizes, keys or shapes differ, or there is no tensordict.

    >>> import torch
    >>> import tensordict
    >>> td = tensordict.TensorDict({"a": torch.zeros(3, 4)}, [3])
    >>> tensordict.stack([td, td], 1).batch_size
    torch.Size([3, 2])
    """
    return stack_tensordicts(input, dim, out)


def cat(input: Sequence[Any], dim: int = 0, *, out: Any = None) -> Any:
    """Tensordicts of the same keys one after the other along a batch dimension; the leaves are copied.

    Raises:
        RuntimeError: `dim` is no batch dimension, other dimensions differ, or there is no tensordict.
        KeyError: the keys differ.
    """
    return cat_tensordicts(input, dim, out)
