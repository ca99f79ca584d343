"""Tensordicts as pytrees, which is all that `torch.vmap`, `torch.func` and `torch.compile` need.

`torch.vmap` takes one dimension off every leaf, or puts one back, and rebuilds the tree. The rebuilt leaves alone decide
what became of the batch size: one dimension fewer on the leaves is one batch dimension fewer, one more is one more.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Size
from torch.utils import _pytree as pytree

from tensordict._convert.linked_list import LinkedList
from tensordict._kernel.registry import CLASS_HOOKS, CLASSES, is_non_tensor
from tensordict._kernel.settings import EXCLUDE_FROM_PYTREE
from tensordict._lazy import LazyStackedTensorDict
from tensordict._leaves.unbatched import is_unbatched
from tensordict._module.swapped import _Swapped
from tensordict._nontensor import MetaData, NonTensorData, NonTensorDataBase, NonTensorStack
from tensordict._nontensor.pytree import followed, register_objects
from tensordict._td import TensorDict
from tensordict._types import Names, TensorCollection
from tensordict._views.batch import VIEWS
from tensordict._views.rows import _SubTensorDict

_ENTRY = (torch.Tensor, TensorCollection)


class Context:
    """What a flattened node keeps besides its entries. Equal contexts have the same keys, batch dimensions and names."""

    __slots__ = ("batch_size", "device", "keys", "kinds", "names", "shapes", "stack")

    def __init__(
        self, keys: list[str], batch_size: Size, device: torch.device | None, names: Names, shapes: list[Size | None]
    ) -> None:
        self.keys = keys
        self.batch_size = batch_size
        self.device = device
        self.names = names
        self.shapes = shapes
        self.kinds: list[type] = []  # of the entries, where they are known
        self.stack: Any = None  # of a lazy stack: its dimension, the name of that, its class

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Context)
            and self.keys == other.keys
            and len(self.batch_size) == len(other.batch_size)
            and self.names == other.names
            and self.device == other.device
            and self.stack == other.stack
        )

    def __hash__(self) -> int:
        return hash((tuple(self.keys), len(self.batch_size)))

    def __repr__(self) -> str:
        return f"Context({self.keys}, batch_size={list(self.batch_size)})"


def flatten(node: TensorDict) -> tuple[list[Any], Context]:
    """The entries of the first level, and what is needed to rebuild."""
    fields = node._tensordict.copy()
    # torch also builds trees of dimensions, whose leaves are integers
    shapes = [getattr(value, "shape", None) for value in fields.values()]
    context = Context(list(fields), node._batch_size, node._device, node._td_dim_names, shapes)
    context.kinds = list(map(type, fields.values()))
    return list(fields.values()), context


def flatten_with_keys(node: TensorDict) -> tuple[list[tuple[Any, Any]], Context]:
    """`flatten` with a key for each entry."""
    values, context = flatten(node)
    return [(pytree.MappingKey(key), value) for key, value in zip(context.keys, values)], context


def unflatten(values: Any, context: Context) -> TensorDict:
    """A node of other entries; its batch size follows from their shapes.

    Entries that are no tensors are taken as they are: torch itself builds trees of dimensions and of specs.
    """
    entries = list(values)
    fields = dict(zip(context.keys, entries))
    batch_size, names = context.batch_size, context.names
    if any([shape is not None and getattr(value, "shape", shape) != shape for value, shape in zip(entries, context.shapes)]):
        batch_size = _batch_size(entries, context)
        if len(batch_size) != len(context.batch_size):
            names = None
        if batch_size != context.batch_size:
            # what torch.vmap takes away objects keep: it comes back
            mapped = any(map(_is_mapped, entries))
            fields = {key: _follow(value, context.batch_size, batch_size, mapped) for key, value in fields.items()}
    device = context.device
    if device is not None and not all(getattr(value, "device", device) == device for value in entries):
        device = None
    return TensorDict._new(fields, batch_size, device, names)


def _batch_size(entries: list[Any], context: Context) -> Size:
    """The batch size of entries of other shapes than before.

    Where all have one dimension fewer or more, in front of the same features, it is that of the batch: so does vmap. Else
    it is what they share of as many dimensions as there were.
    """
    dims = len(context.batch_size)
    pairs = [
        (value.shape, shape)
        for value, shape in zip(entries, context.shapes)
        if shape is not None and hasattr(value, "shape") and not (_is_bare(value) or is_unbatched(value))
    ]
    gained = {len(new) - len(old) for new, old in pairs}
    change = gained.pop() if len(gained) == 1 else 0
    if change in (1, -1) and not _holds_trees(entries, context):
        size = Size(pairs[0][0][: max(dims + change, 0)])
        if all([new[: len(size)] == size and new[len(size) :] == old[dims:] for new, old in pairs]):
            return size
        if any(map(_is_mapped, entries)):
            raise RuntimeError(
                f"the entries {context.keys} of shapes {[old for _, old in pairs]} with the batch size {context.batch_size} "
                f"came back with the shapes {[new for new, _ in pairs]}: torch.vmap can only map over batch dimensions of a "
                "tensordict (see in_dims)"
            )
    shared = list(pairs[0][0][:dims]) if pairs else list(context.batch_size)
    for new, _ in pairs:
        while tuple(new[: len(shared)]) != tuple(shared):
            shared.pop()
    return Size(shared)


def _holds_trees(entries: list[Any], context: Context) -> bool:
    """Whether a node stands in the place of a leaf, as in Jacobians: then no dimension of the leaf was mapped."""
    return any(
        isinstance(value, TensorCollection) and not issubclass(kind, TensorCollection)
        for value, kind in zip(entries, context.kinds)
    )


def _is_bare(value: Any) -> bool:
    """Whether `value` is a node without leaves: no dimension of it was mapped."""
    return is_non_tensor(value) or (isinstance(value, TensorDict) and all(map(_is_bare, value._tensordict.values())))


def _is_mapped(value: Any) -> bool:
    if isinstance(value, TensorDict):
        return any(map(_is_mapped, value._tensordict.values()))
    return isinstance(value, torch.Tensor) and torch._C._functorch.is_batchedtensor(value)


def _follow(value: Any, before: Size, after: Size, mapped: bool) -> Any:
    """`value`, or if it is a node without leaves one with the batch size that its parent has now."""
    if is_non_tensor(value):
        return followed(value, before, after, mapped)
    if is_unbatched(value):
        return value._with_batch(after)
    if not _is_bare(value):
        return value
    fields = {key: _follow(below, before, after, mapped) for key, below in value._tensordict.items()}
    return TensorDict._new(fields, Size(after + value._batch_size[len(before) :]), value._device)


def flatten_wrapper(node: Any) -> tuple[list[Any], Any]:
    """The container in a tensorclass, and its class."""
    return [node._tensordict], type(node)


def flatten_wrapper_with_keys(node: Any) -> tuple[list[tuple[Any, Any]], Any]:
    """`flatten_wrapper` with a key."""
    return [(pytree.GetAttrKey("_tensordict"), node._tensordict)], type(node)


def unflatten_wrapper(values: Any, cls: Any) -> Any:
    """A tensorclass around another container, or around what torch put in its place."""
    (inner,) = values
    return cls._wrap(inner)


def register_wrapper(cls: Any) -> None:
    """Registers a class of containers around others."""
    if cls._is_non_tensor:
        register_objects(cls)
        return
    name = f"{cls.__module__}.{cls.__qualname__}"
    pytree.register_pytree_node(
        cls, flatten_wrapper, unflatten_wrapper, serialized_type_name=name, flatten_with_keys_fn=flatten_wrapper_with_keys
    )


# The classes that are registered: `TensorDict`, and what a swap gives in its place.
REGISTERED = (TensorDict, _Swapped)


def flatten_view(node: Any) -> tuple[list[Any], Context]:
    """The entries that a view shows: what is built of them is a plain tensordict."""
    return flatten(node._plain())


def flatten_view_with_keys(node: Any) -> tuple[list[tuple[Any, Any]], Context]:
    """`flatten_view` with a key for each entry."""
    return flatten_with_keys(node._plain())


def flatten_stack(node: LazyStackedTensorDict) -> tuple[list[Any], Context]:
    """The stacked entries of a lazy stack, so that a dimension of them is one of the batch; else its members.

    Members that cannot be stacked are given as they are: they can be mapped over, but not along a batch dimension.
    """
    dense = node._dense()
    if dense is None or not node.tensordicts:
        context = Context([str(place) for place in range(len(node.tensordicts))], node.batch_size, None, None, [])
        context.stack = (node.stack_dim, node._td_dim_name, type(node))
        return list(node.tensordicts), context
    values, context = flatten(dense)
    context.stack = (node.stack_dim, node._td_dim_name, type(node))
    return values, context


def unflatten_stack(values: Any, context: Context) -> Any:
    """A lazy stack of other entries; a dense tensordict where their number of batch dimensions is another one."""
    dim, name, kind = context.stack
    if not context.shapes and (context.keys or not context.batch_size[dim]):
        members = list(values)
        return kind._of(members, dim, name) if members else kind(stack_dim=dim)
    dense = unflatten(values, context)
    if dense.batch_size != context.batch_size or not all(isinstance(value, _ENTRY) for value in dense._tensordict.values()):
        return dense
    return kind._of(list(dense.unbind(dim)), dim, name)


def flatten_stack_with_keys(node: LazyStackedTensorDict) -> tuple[list[tuple[Any, Any]], Context]:
    """`flatten_stack` with a key for each entry."""
    values, context = flatten_stack(node)
    return [(pytree.MappingKey(key), value) for key, value in zip(context.keys, values)], context


def register() -> None:
    """Registers the classes with torch's pytrees, unless `EXCLUDE_TD_FROM_PYTREE` is set."""
    if EXCLUDE_FROM_PYTREE.value:
        return
    for kind in REGISTERED:
        name = f"tensordict.{kind.__name__}"
        pytree.register_pytree_node(kind, flatten, unflatten, serialized_type_name=name, flatten_with_keys_fn=flatten_with_keys)
    views: tuple[type[Any], ...] = (_SubTensorDict, *VIEWS)
    for view in views:
        name = f"tensordict.{view.__name__}"
        pytree.register_pytree_node(
            view, flatten_view, unflatten, serialized_type_name=name, flatten_with_keys_fn=flatten_view_with_keys
        )
    pytree.register_pytree_node(
        LazyStackedTensorDict,
        flatten_stack,
        unflatten_stack,
        serialized_type_name="tensordict.LazyStackedTensorDict",
        flatten_with_keys_fn=flatten_stack_with_keys,
    )
    for cls in (MetaData, NonTensorData, NonTensorDataBase, NonTensorStack):
        register_objects(cls)
    pytree.register_pytree_node(
        LinkedList,
        lambda items: (list(items), None),
        lambda items, _: list(items),
        serialized_type_name="tensordict.LinkedList",
        flatten_with_keys_fn=lambda items: ([(pytree.SequenceKey(place), item) for place, item in enumerate(items)], None),
    )
    for cls in CLASSES:
        register_wrapper(cls)
    CLASS_HOOKS.append(register_wrapper)


register()
