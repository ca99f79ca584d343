"""Holders of objects in torch's pytrees: nodes without leaves, which are kept with the structure."""

from __future__ import annotations

from typing import Any

from torch import Size
from torch.utils import _pytree as pytree

from tensordict._nontensor.values import holders, same
from tensordict._ops.trees import copy_nodes


class Held:
    """What is kept of a node that holds objects, which has no leaves: the node. Equal ones hold equal objects."""

    __slots__ = ("node",)

    def __init__(self, node: Any) -> None:
        self.node = node

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Held) or type(other.node) is not type(self.node):
            return False
        mine, others = self.node, other.node
        return mine.batch_dims == others.batch_dims and bool(
            same(mine.tolist(), others.tolist()) if mine._stacked else same(mine.data, others.data)
        )

    def __hash__(self) -> int:
        return hash((type(self.node), self.node.batch_dims))


def flatten_objects(node: Any) -> tuple[list[Any], Held]:
    """No leaves, and the node."""
    return [], Held(node)


def flatten_objects_with_keys(node: Any) -> tuple[list[tuple[Any, Any]], Held]:
    """`flatten_objects`."""
    return [], Held(node)


def unflatten_objects(values: Any, context: Held) -> Any:
    """A copy of the node, which shares its objects."""
    return copy_nodes(context.node)


def register_objects(cls: Any) -> None:
    """Registers a class of holders."""
    pytree.register_pytree_node(
        cls,
        flatten_objects,
        unflatten_objects,
        serialized_type_name=f"tensordict.{cls.__name__}",
        flatten_with_keys_fn=flatten_objects_with_keys,
    )


def followed(node: Any, before: Size, after: Size, mapped: bool) -> Any:
    """A node that holds objects in a batch of another size; a stack itself where the batch is mapped over.

    Raises:
        RuntimeError: it has several objects, and nobody knows which of them are those of the elements that there are now.
    """
    size, dims = node.batch_size, len(before)
    if mapped and node._stacked:
        return node
    if len(after) >= dims and size[: len(after)] == after:
        return node
    whole = Size((*after, *size[dims:]))
    if not node._stacked:
        return node._at(whole)
    if len(after) > dims and after[len(after) - dims :] == before == size[:dims]:
        return node.expand(whole)  # there are more of the same elements, as in a stack
    found = holders(node)
    if found and all([same(found[0]._data, item._data) for item in found[1:]]):
        return found[0]._at(whole)
    raise RuntimeError(
        f"the leaves of a tensordict of the batch size {list(before)} came back for the batch size {list(after)}, and the "
        f"objects beside them, of the batch size {list(size)}, are no leaves of a tree: nobody knows which of them are meant. "
        "Do the same to the tensordict itself, which moves objects as it moves tensors, or leave them out first, with "
        "filter_non_tensor_data()"
    )
