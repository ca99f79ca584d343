"""A tree that takes over what another one holds, and whose nodes stay the objects that they are (see `Waist._take_over`)."""

from __future__ import annotations

from typing import Any

from tensordict._types import TensorCollection


def check_nodes_unlocked(node: Any) -> None:
    """Raises where a node of a tree is locked."""
    node._check_unlocked()
    for part in node._parts():
        if isinstance(part, TensorCollection):
            check_nodes_unlocked(part)


def take_state(node: Any, result: Any) -> None:
    """Gives a node the batch size and names of another one."""
    if node.batch_size != result.batch_size:
        node._set_batch_size(result.batch_size)
    if node._names != result._names:
        node._set_names(result._names)


def take_entries(node: Any, result: Any) -> bool:
    """`Waist._take_over` for containers of named entries."""
    if result._wrapped is not None:
        result = result._wrapped
    if not result._dict_backed:
        return False
    take_state(node, result)
    fields, found = node._entries(), result._entries()
    for key in [key for key in fields if key not in found]:
        node._del_str(key)
    for key, value in found.items():
        own = fields.get(key)
        if not (isinstance(own, TensorCollection) and isinstance(value, TensorCollection) and own._take_over(value)):
            node._set_str(key, value)
    return True
