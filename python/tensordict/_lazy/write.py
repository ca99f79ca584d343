"""Writes into lazy stacks: what goes to which member."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import repeat
from typing import Any

import numpy as np
import torch
from torch import Size, Tensor

from tensordict._kernel.index import Index, parse
from tensordict._kernel.numbering import Sources, stand_in
from tensordict._kernel.shapes import broadcasts_to
from tensordict._lazy.parted import Parted, finder
from tensordict._leaves.unbatched import is_unbatched
from tensordict._ops.coerce import Dealt
from tensordict._ops.update import plan_update
from tensordict._ops.writes import Writes
from tensordict._reexport import object_stack
from tensordict._types import TensorCollection


def pieces_of(node: Any, value: Any) -> list[Any]:
    """What of `value` belongs to each member: slices along the stack dimension, or a number for all of them."""
    count = len(node.tensordicts)
    if isinstance(value, Mapping) and not isinstance(value, TensorCollection):
        columns = {key: pieces_of(node, entry) for key, entry in value.items()}
        return [{key: column[place] for key, column in columns.items()} for place in range(count)]
    if isinstance(value, TensorCollection):
        return _of_node(node, value)
    if type(value) is Dealt:
        return value
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
    return (
        [value._with_batch(member.batch_size) for member in node.tensordicts] if is_unbatched(value) else _slices(node, value)
    )


def _of_node(node: Any, value: Any) -> list[Any]:
    """The slices of a tensordict; or of the holder of one object for the whole batch, a holder for each member."""
    dim = node.stack_dim
    if value._is_non_tensor and not value._stacked and (-1 in value.batch_size or value.ndim <= dim):
        return [value._at(member.batch_size) for member in node.tensordicts]
    if value.ndim <= dim:
        raise RuntimeError(f"the batch sizes {node.batch_size} and {value.batch_size} differ")
    return list(value.unbind(dim))


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
        if not dim and len(value) == count and (-1 in node.batch_size or any([isinstance(item, Tensor) for item in value])):
            return value  # each item is for a member, which knows its own size
        stack = object_stack(value)
        if stack.batch_size[: dim + 1] != node.batch_size[: dim + 1]:
            raise
        return list(stack.unbind(dim))


def parts_at(node: Any, index: Index, value: Any) -> Iterator[tuple[Any, Any, Index | None]]:
    """The members that `index` meets, each with the elements of `value` that lie in it and the rows of it, None for all."""
    if -1 in node.batch_size[: index.consumed] or _is_view(index.key):
        yield from _parted_at(node, index, value)
        return
    for place, key, own in _targets(node, index):
        yield node.tensordicts[place], _rows_of(value, own, index), key


def _is_view(key: Any) -> bool:
    """Whether an index is made of integers and slices alone: then the members it meets are known without their elements."""
    return all([type(item) is int or type(item) is slice for item in (key if type(key) is tuple else (key,))])


def _parted_at(node: Any, index: Index, value: Any) -> Iterator[tuple[Any, Any, Index | None]]:
    members = node.tensordicts
    parted = Parted(index, node.stack_dim, len(members))
    find = finder(members)
    rows: Iterable[Any] = zip(parted.rows(), _dealt_rows(value, parted, index))
    if type(parted.keys) is tuple and len(set(parted.members)) < len(parted.members):
        rows = {member: ((member, key), row) for (member, key), row in rows}.values()  # the last for each stays
    for (number, key), row in rows:
        member, own = members[number], find(number, key)
        if isinstance(row, TensorCollection) and len(row.batch_size) < len(index.prefix) - len(parted.shape):
            wanted = member.batch_size if own is None else own.shape(member.batch_size)
            row = row if -1 in wanted else row.expand(wanted)
        if own is not None and own.copies:
            own.leaf(torch.zeros(()).expand(stand_in(member.batch_size)))  # raises where a number is out of bounds
        yield member, row, own


def _dealt_rows(value: Any, parted: Parted, index: Index) -> Iterable[Any]:
    """What of `value` is for each member that an index meets, whose result may have sizes that are not known."""
    if isinstance(value, (list, np.ndarray)) and parted.shape:
        value = _as_batch(value, len(index.prefix))
    if not (isinstance(value, (TensorCollection, Mapping)) or (isinstance(value, Tensor) and value.ndim)):
        return repeat(value)
    if isinstance(value, Mapping) and not isinstance(value, TensorCollection):
        columns = [_dealt_rows(entry, parted, index) for entry in value.values()]
        return (dict(zip(value, row)) for row in zip(*columns)) if columns else repeat({})
    prefix, sizes = index.prefix, tuple(value.shape)
    missing = max(len(prefix) - len(sizes), 0)
    if not all([size in (1, wanted) or -1 in (size, wanted) for size, wanted in zip(sizes, prefix[missing:])]):
        raise _unfit(index, sizes)
    rows: list[Any] = [value]
    at = max(parted.at - missing, 0)
    for count in parted.shape[max(missing - parted.at, 0) :]:
        cut = [row.unbind(at) for row in rows]
        rows = [part for parts in cut for part in (parts if len(parts) == count else parts * count)]
    return rows * (len(parted.members) // max(len(rows), 1))


def _as_batch(value: Any, dims: int) -> Any:
    """A list or array as a tensor, or as a stack of objects with as many dimensions as the rows that it is written into."""
    try:
        return (
            torch.stack(value) if isinstance(value, list) and value and isinstance(value[0], Tensor) else torch.as_tensor(value)
        )
    except (TypeError, ValueError, RuntimeError):
        made = object_stack(list(value))
    while made.ndim < dims:
        made = made.unsqueeze(-1)
    return made


def _unfit(index: Index, shape: Any) -> RuntimeError:
    return RuntimeError(
        f"indexed destination TensorDict batch size is {index.prefix} (index={index.key}), which differs from the source "
        f"batch size {shape}"
    )


def plan_assign(node: Any, index: Index, value: Any, plan: Writes) -> None:
    """Plans writes into the rows at `index`: each member gets the elements that lie in it."""
    plan.parted = True
    for member, rows, key in parts_at(node, index, value):
        if (
            key is None
            and isinstance(rows, TensorCollection)
            and rows.batch_size == member.batch_size
            and not member._is_non_tensor
        ):
            plan_update(member, rows, plan)
            continue
        if key is None:
            dims = len(member.batch_size)
            key = parse((slice(None),) * dims if dims else ..., member.batch_size)
        member._plan_assign(key, rows, plan)


def _targets(node: Any, index: Index) -> list[tuple[int, Index | None, Any]]:
    """For each member that `index` meets: its place, the index within it (None for all of it), the index of the rows."""
    dim, size = node.stack_dim, node.batch_size
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
    if isinstance(value, (list, np.ndarray)) and own is not None:
        value = _as_batch(value, len(index.prefix))
    if own is None or not (isinstance(value, (TensorCollection, Mapping)) or (isinstance(value, Tensor) and value.ndim)):
        return value
    if isinstance(value, Mapping) and not isinstance(value, TensorCollection):
        return {key: _rows_of(entry, own, index) for key, entry in value.items()}
    prefix = index.prefix
    shape: Any = value.shape
    if shape[: len(prefix)] != prefix:
        if not broadcasts_to(shape[: len(prefix)], prefix):
            raise _unfit(index, shape)
        wide = (*prefix, *shape[len(prefix) :]) if isinstance(value, Tensor) else prefix
        value = value.expand(wide)
    return value[own]
