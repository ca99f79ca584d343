"""Joins of lazy stacks, whose members stay members."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensordict._ops.join import cat_tensordicts, stack_tensordicts


def joined(items: Sequence[Any], dim: int, cat: bool) -> Any:
    """The join of containers of which one is a lazy stack, as a stack; None where it is a join of leaves."""
    return _catenated(items, dim) if cat else _stacked(items, dim)


def _congruent(items: Sequence[Any]) -> bool:
    """Whether all are stacks of as many members along the same dimension."""
    if not all([item._stacked for item in items]):
        return False
    return len({(item.stack_dim, len(item.tensordicts)) for item in items}) == 1


def _stacked(items: Sequence[Any], at: int) -> Any:
    """The stack of congruent stacks: a stack of the stacks of their members; None if they are not congruent."""
    if not _congruent(items):
        return None
    first = items[0]
    dim = first.stack_dim
    rows = zip(*(item._parts() for item in items))
    return first._like([stack_tensordicts(row, at - (at > dim)) for row in rows], dim + (at <= dim))


def _catenated(items: Sequence[Any], at: int) -> Any:
    """The join of tensordicts of which one is a stack: one stack of all members, or a join member by member.

    None where there is no stack, or where members are joined and there are stacks along other dimensions.
    """
    stacks = [item for item in items if item._stacked]
    if not stacks:
        return None
    first = stacks[0]
    dim = first.stack_dim
    if any([item.stack_dim != dim for item in stacks]):
        return None
    if at == dim:
        return first._like([part for item in items for part in item.unbind(dim)], dim)
    if len({item.batch_size[dim] for item in items}) > 1:
        raise RuntimeError(
            f"joining along another dimension than that of the stack, {dim}, takes tensordicts with the same number of stacked "
            f"tensordicts, got the batch sizes {[item.batch_size for item in items]}"
        )
    if not items[0]._stacked:
        return None
    rows = zip(*(item.unbind(dim) for item in items))
    return first._like([cat_tensordicts(row, at - (at > dim)) for row in rows], dim)
