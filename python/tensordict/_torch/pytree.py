"""Tensordicts as pytrees, which is all that `torch.vmap`, `torch.func` and `torch.compile` need.

`torch.vmap` takes one dimension off every leaf, or puts one back, and rebuilds the tree. The rebuilt leaves alone decide
what became of the batch size: one dimension fewer on the leaves is one batch dimension fewer, one more is one more.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Size
from torch.utils import _pytree as pytree

from tensordict._swapped import _Swapped
from tensordict._td import TensorDict
from tensordict._types import Names


class Context:
    """What a flattened node keeps besides its entries. Equal contexts have the same keys, batch dimensions and names."""

    __slots__ = ("batch_size", "device", "keys", "names", "shapes")

    def __init__(
        self, keys: list[str], batch_size: Size, device: torch.device | None, names: Names, shapes: list[Size | None]
    ) -> None:
        self.keys = keys
        self.batch_size = batch_size
        self.device = device
        self.names = names
        self.shapes = shapes

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Context)
            and self.keys == other.keys
            and len(self.batch_size) == len(other.batch_size)
            and self.names == other.names
            and self.device == other.device
        )

    def __hash__(self) -> int:
        return hash((tuple(self.keys), len(self.batch_size)))

    def __repr__(self) -> str:
        return f"Context({self.keys}, batch_size={list(self.batch_size)})"


def flatten(node: TensorDict) -> tuple[list[Any], Context]:
    """The entries of the first level, and what is needed to rebuild."""
    fields = node._tensordict
    # torch also builds trees of dimensions, whose leaves are integers
    shapes = [getattr(value, "shape", None) for value in fields.values()]
    context = Context(list(fields), node._batch_size, node._device, node._td_dim_names, shapes)
    return list(fields.values()), context


def flatten_with_keys(node: TensorDict) -> tuple[list[tuple[Any, Any]], Context]:
    """`flatten` with a key for each entry."""
    values, context = flatten(node)
    return [(pytree.MappingKey(key), value) for key, value in zip(context.keys, values)], context


def unflatten(values: Any, context: Context) -> TensorDict:
    """A node of other entries; its batch size follows from their number of dimensions.

    Entries that are no tensors are taken as they are: torch itself builds trees of dimensions and of specs.
    """
    entries = list(values)
    fields = dict(zip(context.keys, entries))
    batch_size = context.batch_size
    change = _dims_gained(entries, context.shapes)
    if change:
        batch_size = _batch_size(entries, context, change)
    device = context.device
    if device is not None and not all(getattr(value, "device", device) == device for value in entries):
        device = None
    return TensorDict._new(fields, batch_size, device, None if change else context.names)


def _dims_gained(entries: list[Any], shapes: list[Size | None]) -> int:
    """How many dimensions each entry has more than it had, if all tell the same, else 0."""
    pairs = zip(entries, shapes)
    gained = {len(value.shape) - len(shape) for value, shape in pairs if shape is not None and hasattr(value, "shape")}
    return gained.pop() if len(gained) == 1 else 0


def _batch_size(entries: list[Any], context: Context, change: int) -> Size:
    dims = len(context.batch_size)
    size = Size(entries[0].shape[: max(dims + change, 0)])
    for value, shape in zip(entries, context.shapes):
        if shape is not None and value.shape[len(size) :] != shape[dims:] and change in (1, -1):
            raise RuntimeError(
                f"an entry of shape {shape} with the batch size {context.batch_size} came back with the shape {value.shape}: "
                "torch.vmap can only map over batch dimensions of a tensordict (see in_dims and out_dims)"
            )
    return size


def register() -> None:
    """Registers `TensorDict`, and what a swap gives in its place, with torch's pytrees."""
    for kind, name in ((TensorDict, "tensordict.TensorDict"), (_Swapped, "tensordict._Swapped")):
        pytree.register_pytree_node(kind, flatten, unflatten, serialized_type_name=name, flatten_with_keys_fn=flatten_with_keys)


register()
