"""Writes into lazy stacks: what goes to which member."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Size, Tensor

from tensordict._kernel.index import Index, parse
from tensordict._kernel.numbering import Sources
from tensordict._kernel.shapes import broadcasts_to
from tensordict._kernel.unbatched import is_unbatched
from tensordict._ops.update import plan_update
from tensordict._ops.writes import Writes
from tensordict._reexport import object_stack
from tensordict._types import TensorCollection


def pieces_of(node: Any, value: Any) -> list[Any]:
    """What of `value` belongs to each member: slices along the stack dimension, or a number for all of them."""
    dim, count = node.stack_dim, len(node.tensordicts)
    if isinstance(value, Mapping) and not isinstance(value, TensorCollection):
        columns = {key: pieces_of(node, entry) for key, entry in value.items()}
        return [{key: column[place] for key, column in columns.items()} for place in range(count)]
    if isinstance(value, TensorCollection):
        return list(value.unbind(dim))  # type: ignore[attr-defined]
    if isinstance(value, (list, tuple)):
        found = _of_sequence(node, value)
        if type(found) is list:
            return found
        value = found
    if not isinstance(value, Tensor) and not hasattr(value, "unbind"):
        try:
            value = torch.as_tensor(value)
        except (TypeError, ValueError, RuntimeError):
            return [value] * count
    if is_unbatched(value):
        size = node.batch_size
        return [value._with_batch(Size((*size[:dim], *size[dim + 1 :])))] * count
    return _slices(node, value)


def _slices(node: Any, value: Any) -> list[Any]:
    dim, count = node.stack_dim, len(node.tensordicts)
    if value.ndim <= dim or (not value.is_nested and value.shape[dim] != count):
        size = node.batch_size
        if value.ndim > len(size) or not broadcasts_to(value.shape, size):
            raise RuntimeError(f"a value of shape {value.shape} cannot be written into a stack of batch size {size}")
        if not value.ndim:
            return [value] * count
        value = value.expand(size)
    return list(value.unbind(dim))


def _of_sequence(node: Any, value: Any) -> Any:
    """A list or tuple as a tensor; or where it cannot be one, what of it belongs to each member: objects."""
    dim, count = node.stack_dim, len(node.tensordicts)
    try:
        return torch.stack(list(value)) if value and isinstance(value[0], Tensor) else torch.tensor(value)
    except (TypeError, ValueError, RuntimeError):
        if not isinstance(value, list):
            return [value] * count  # one object for all
        stack = object_stack(value)
        if stack.batch_size[: dim + 1] != node.batch_size[: dim + 1]:
            raise
        return list(stack.unbind(dim))


def parts_at(node: Any, index: Index, value: Any) -> Iterator[tuple[Any, Any, Index | None]]:
    """The members that `index` meets, each with the elements of `value` that lie in it and the rows of it, None for all."""
    for place, key, own in _targets(node, index):
        yield node.tensordicts[place], _rows_of(value, own, index), key


def plan_assign(node: Any, index: Index, value: Any, plan: Writes) -> None:
    """Plans writes into the rows at `index`: each member gets the elements that lie in it."""
    for member, rows, key in parts_at(node, index, value):
        if key is None and isinstance(rows, (TensorCollection, Mapping)) and not member._is_non_tensor:
            plan_update(member, rows, plan)
            continue
        if key is None:
            dims = len(member.batch_size)
            key = parse((slice(None),) * dims if dims else ..., member.batch_size)
        member._plan_assign(key, rows, plan)


def _targets(node: Any, index: Index) -> list[tuple[int, Index | None, Any]]:
    """For each member that `index` meets: its place, the index within it (None for all of it), the index of the rows."""
    dim, size = node.stack_dim, node.batch_size
    if not dim and type(index.key) is int:
        return [(index.key % size[0], None, None)]
    member, inner = Sources(index, size).along(dim)
    out: list[tuple[int, Index | None, Any]] = []
    rest = Size((*size[:dim], *size[dim + 1 :]))
    for place in torch.unique(member).tolist():
        where = member == place
        own = where.nonzero(as_tuple=True) if where.ndim else None
        at = torch.unravel_index(inner[where], rest) if rest else ()
        key = parse(tuple(at) if where.ndim else tuple([int(places) for places in at]), rest) if rest else None
        if not rest and own is not None:
            own = tuple([int(places[-1]) for places in own])  # of several elements for one, the last stays
        out.append((place, key, own))
    return out


def _rows_of(value: Any, own: Any, index: Index) -> Any:
    """The rows of `value` at places of the result of `index`."""
    if own is None or not (isinstance(value, (TensorCollection, Mapping)) or (isinstance(value, Tensor) and value.ndim)):
        return value
    if isinstance(value, Mapping) and not isinstance(value, TensorCollection):
        return {key: _rows_of(entry, own, index) for key, entry in value.items()}
    prefix = index.prefix
    shape: Any = value.shape  # type: ignore[union-attr]
    if shape[: len(prefix)] != prefix:
        if not broadcasts_to(shape[: len(prefix)], prefix):
            raise RuntimeError(
                f"indexed destination TensorDict batch size is {prefix} (index={index.key}), which differs from the source "
                f"batch size {shape}"
            )
        wide = (*prefix, *shape[len(prefix) :]) if isinstance(value, Tensor) else prefix
        value = value.expand(wide)  # type: ignore[union-attr]
    return value[own]
