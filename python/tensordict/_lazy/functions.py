"""Making lazy stacks, and dense ones of what may be unlike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tensordict._lazy.stack import LazyStackedTensorDict
from tensordict._ops.join import stack_tensordicts
from tensordict._types import TensorCollection


def lazy_stack(input: Sequence[Any], dim: int = 0, *, out: Any = None, **kwargs: Any) -> Any:
    """The stack of tensordicts along a new batch dimension, without a copy; of tensors, `torch.stack`.

    Args:
        input: tensordicts of one batch size; their keys and shapes may differ.
        dim: where the new dimension stands; counted from behind if negative.
        out: a tensordict that the result is written into.
        **kwargs: for `LazyStackedTensorDict`.

    Raises:
        RuntimeError: there is no item, or `dim` is out of range.

    >>> import torch
    >>> from tensordict import TensorDict, lazy_stack
    >>> lazy_stack([TensorDict({"a": torch.zeros(n)}) for n in (2, 3)])
    LazyStackedTensorDict(batch_size=[2], stack_dim=0, fields={a: f32[-1]})
    """
    items = list(input)
    if not items:
        raise RuntimeError("items cannot be empty")
    if all(isinstance(item, Tensor) for item in items):
        return torch.stack(items, dim, out=out)
    if kwargs.get("strict_shape") and len({item.batch_size for item in items}) > 1:
        raise RuntimeError(
            f"stacking tensordicts requires them to have congruent batch sizes, got {[item.batch_size for item in items]}"
        )
    if kwargs.keys() - {"stack_dim_name"}:
        result: Any = LazyStackedTensorDict(*items, stack_dim=dim, **kwargs)
    else:
        checked = LazyStackedTensorDict(*items, stack_dim=dim)
        result = items[0]._joined(items, checked.stack_dim, "lazy", kwargs.get("stack_dim_name"))
    return result if out is None else out.update(result, inplace=True)


def maybe_dense_stack(input: Sequence[Any], dim: int = 0, *, out: Any = None, **kwargs: Any) -> Any:
    """The dense stack of tensordicts, or the lazy one where their keys or shapes differ."""
    items = list(input)
    if items and all(isinstance(item, Tensor) for item in items):
        return torch.stack(items, dim, out=out)
    try:
        return stack_tensordicts(items, dim, out)
    except (RuntimeError, KeyError):
        return _partly_dense(items, dim) if out is None and not kwargs else lazy_stack(items, dim, out=out, **kwargs)


def _partly_dense(items: list[Any], dim: int) -> Any:
    """A dense tensordict of the leaves where only nodes below are unlike, which are stacked lazily; else a lazy stack."""
    lazy = lazy_stack(items, dim)
    # a stack among them has entries only as far as its members are alike
    first = items[0]._entries() if items[0]._dict_backed else {}
    if not all([item._dict_backed and item._fields().keys() == first.keys() for item in items]):
        return lazy
    fields: dict[str, Any] = {}
    for key in first:
        column = [item._get_str(key) for item in items]
        nodes = [isinstance(value, TensorCollection) for value in column]
        if all(nodes):
            fields[key] = maybe_dense_stack(column, lazy.stack_dim)
        elif any(nodes) or len({value.shape for value in column}) > 1:
            return lazy
        else:
            fields[key] = torch.stack(column, lazy.stack_dim)
    return items[0]._rebuild(fields, lazy.batch_size, lazy.device, lazy._names)


def dense_stack_tds(td_list: Any, dim: int | None = None) -> Any:
    """The dense stack of a list of tensordicts, or of the members of a lazy stack; lazy where they are unlike.

    A tensordict that is no stack is returned itself.

    Raises:
        ValueError: a list is given without `dim`.
    """
    if isinstance(td_list, TensorCollection):
        if not td_list._stacked:
            return td_list
        dim, td_list = td_list.stack_dim, td_list.tensordicts
    elif dim is None:
        raise ValueError("If a list of tensordicts is provided, stack_dim must not be None")
    return maybe_dense_stack(td_list, dim)
