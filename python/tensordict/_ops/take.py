"""A tree that takes over what another one holds, and whose nodes stay the objects that they are."""

from __future__ import annotations

from typing import Any

from tensordict._types import TensorCollection


def check_nodes_unlocked(node: Any) -> None:
    """Raises where a node of a tree is locked."""
    node._check_unlocked()
    for part in node._parts():
        if isinstance(part, TensorCollection):
            check_nodes_unlocked(part)


def can_become(node: Any, result: Any) -> bool:
    """Whether a node can hold all that another one holds, and stay the object that it is."""
    if node._wrapped is not None and not node._is_non_tensor:
        return can_become(node._wrapped, result if result._wrapped is None else result._wrapped)
    if node._stacked or result._stacked:
        return node._stacked and result._stacked and node.stack_dim == result.stack_dim
    if node._is_non_tensor or result._is_non_tensor:
        return node._is_non_tensor and result._is_non_tensor and node._data is result._data
    return True


def take_over(node: Any, result: Any) -> None:
    """Gives a node, unchecked, the entries, batch size and names of `result`, which may be used up.

    Nodes below stay the objects that they are where both have them.
    """
    if node._wrapped is not None:
        take_over(node._wrapped, result if result._wrapped is None else result._wrapped)
        return
    if node._stacked:
        _take_members(node, result)
        return
    if node.batch_size != result.batch_size:
        node._set_batch_size(result.batch_size)
    if node._names != result._names:
        node._set_names(result._names)
    fields, found = node._entries(), result._entries()
    for key in [key for key in fields if key not in found]:
        node._del_str(key)
    for key, value in found.items():
        own = fields.get(key)
        if isinstance(own, TensorCollection) and isinstance(value, TensorCollection) and can_become(own, value):
            take_over(own, value)
        else:
            node._set_str(key, value)


def _take_members(node: Any, result: Any) -> None:
    """What `take_over` does for a stack: members stay where there are as many as before."""
    own, found = list(node._parts()), list(result._parts())
    if len(own) == len(found) and all([can_become(one, two) for one, two in zip(own, found)]):
        for one, two in zip(own, found):
            take_over(one, two)
    else:
        node._take_members(result)
    if node._names != result._names:
        node._set_names(result._names)
