"""The other operands of a leaf-wise operation: the entry beside each leaf, and the batch size that comes out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Size, Tensor

from tensordict._kernel.change import Change
from tensordict._kernel.keys import key_of
from tensordict._kernel.native import same_shapes
from tensordict._kernel.shapes import broadcast, broadcasts_to
from tensordict._ops.trees import Tree, by_member, collect, dealt_to, is_own, leaves_like, refill
from tensordict._types import Path, TensorCollection

_REFUSED = (str, bytes, list, tuple, dict, set, type(None))


def align(tree: Tree, leaves: list[Any], others: tuple[Any, ...], strict: bool) -> tuple[list[Any], Change | None]:
    """A column for each of the `others`, and what they change of the batch dimensions of a tree.

    A column is a list with an entry for each of the `leaves`, or a number for all of them. A tensor is broadcast against the
    batch size, then stands at the leading dimensions of each leaf.

    Args:
        tree: the tree that the leaves are of.
        leaves: its leaves.
        others: tensordicts, tensors, numbers.
        strict: whether a tensordict may have no keys but those of the tree.

    Raises:
        KeyError: a tensordict lacks a key, or has more keys and `strict` holds.
        RuntimeError: a shape does not broadcast with the batch size.
        TypeError: an operand is none of these.
    """
    columns: list[Any] = []
    shapes: list[Size] = []
    batch_size = tree[0].batch_size
    for other in others:
        if isinstance(other, TensorCollection):
            columns.append(_beside(tree, other, strict))
            if other.batch_size != batch_size:
                shapes.append(other.batch_size)
        elif isinstance(other, Tensor):
            columns.append(_column(tree, leaves, other, len(batch_size)))
            if other.ndim and other.shape != batch_size:
                shapes.append(other.shape)
        elif isinstance(other, _REFUSED):
            raise TypeError(f"expected a tensordict, a tensor or a number as an operand, got {type(other).__name__}")
        else:
            columns.append(other)
    return columns, _growth(batch_size, shapes) if shapes else None


def _beside(tree: Tree, other: Any, strict: bool) -> list[Any]:
    try:
        return leaves_like(tree, other)
    except KeyError:
        if strict:
            raise
    return leaves_like(tree, other, False)


def settled(node: Any, others: tuple[Any, ...]) -> tuple[Tree, list[Any], tuple[Any, ...]]:
    """The tree of `node`, its leaves, and the other operands.

    They have one batch size where there is a stack in the tree, which has to divide the others among its members.
    """
    leaves: list[Any] = []
    tree, batch_size = collect(node, leaves), node.batch_size
    shapes = [other.shape for other in others if isinstance(other, (Tensor, TensorCollection)) and other.shape != batch_size]
    shapes = [shape for shape in shapes if shape]
    if not shapes or is_own(tree):
        return tree, leaves, others
    prefix = _growth(batch_size, shapes).prefix
    wide = tuple([other.expand(prefix) if getattr(other, "shape", ()) else other for other in others])
    if prefix != batch_size:
        leaves = []
        tree = collect(node.expand(prefix), leaves)
    return tree, leaves, wide


def _column(tree: Tree, leaves: list[Any], tensor: Tensor, dims: int) -> list[Any]:
    if not tensor.ndim:
        return [tensor] * len(leaves)
    if not is_own(tree):
        values = dealt_to(tree, tensor)
        return [value.reshape(value.shape + (1,) * (leaf.ndim - value.ndim)) for leaf, value in zip(leaves, values)]
    shape = tensor.shape
    views: dict[int, Tensor] = {dims: tensor}  # by the number of dimensions of the leaf
    out = []
    for leaf in leaves:
        ndim = leaf.ndim
        view = views.get(ndim)
        if view is None:
            view = views[ndim] = tensor.reshape(shape + (1,) * (ndim - dims))
        out.append(view)
    return out


def _same(leaf: Any) -> Any:
    return leaf


def _growth(batch_size: Size, shapes: list[Size]) -> Change:
    prefix = broadcast((batch_size, *shapes))
    if prefix is None:
        raise RuntimeError(
            f"operands of the shapes {[tuple(shape) for shape in shapes]} do not broadcast with the batch size "
            f"{tuple(batch_size)} of the tensordict"
        )
    dims = len(batch_size)
    return Change(_same, dims, prefix, [None] * (len(prefix) - dims) + list(range(dims)))


def check_stays(node: Any, change: Change | None) -> None:
    """Raises where the operands of an operation in place would need a larger batch size than `node` has."""
    if change is not None and change.prefix != node.batch_size:
        raise _too_large(node, change.prefix)


def check_grown(node: Any, tree: Tree) -> None:
    """Raises where `settled` had to enlarge `node`."""
    if tree[0] is not node:
        raise _too_large(node, tree[0].batch_size)


def check_fitting(tree: Tree, leaves: list[Any], columns: Iterable[Any]) -> None:
    """Raises where what stands beside a leaf cannot be broadcast to its shape, before an operation in place has begun."""
    for column in columns:
        if type(column) is not list or same_shapes(leaves, column):
            continue
        for place, (leaf, value) in enumerate(zip(leaves, column)):
            plain = isinstance(value, Tensor) and not (leaf.is_nested or value.is_nested)
            if plain and not broadcasts_to(value.shape, leaf.shape):
                raise RuntimeError(
                    f"the entry {key_of(path_at(tree, place))!r} has the shape {tuple(leaf.shape)}: what is beside it, of the "
                    f"shape {tuple(value.shape)}, cannot be broadcast to that"
                )


def path_at(tree: Tree, place: int) -> Path:
    """The path of the leaf with a number, among those of a tree; members of a stack stand under their numbers."""
    left = [place]

    def find(pieces: dict[Any, Any]) -> Path | None:
        for key, part in pieces.items():
            if type(part) is tuple:
                below = find(part[1])
                if below is not None:
                    return (str(key), *below)
            elif not left[0]:
                return (str(key),)
            else:
                left[0] -= 1
        return None

    return find(tree[1]) or ()


def _too_large(node: Any, size: Size) -> RuntimeError:
    return RuntimeError(
        f"the operands broadcast with the batch size {tuple(node.batch_size)} of the tensordict to {tuple(size)}, "
        "which does not fit into its leaves: in place the batch size stays"
    )


def regrow(tree: Tree, leaves: Iterable[Any], change: Change | None) -> Any:
    """What a tree becomes with the results of an operation, and the batch size that its operands gave."""
    if change is None:
        return refill(tree, iter(leaves))
    leaves = list(leaves)
    prefix = change.prefix
    for leaf in leaves:
        if leaf.shape[: len(prefix)] != prefix:
            raise RuntimeError(
                f"a leaf of the result has the shape {tuple(leaf.shape)}: it does not broadcast to {tuple(prefix)}"
            )
    return refill(tree, iter(leaves), change)


# Operands of unlike keys.


def with_default(node: Any, other: Any, function: Any, default: Any) -> Any:
    """`function` of the entries of two tensordicts, of which one may lack what the other has.

    Args:
        node: the first operand.
        other: the second.
        function: `function(leaf, leaf)`.
        default: `"intersection"` for the keys that both have; a number or a tensor that broadcasts to the batch size, to
            stand for the leaves that are missing on either side.

    Raises:
        TypeError: `default` is something else.
    """
    if node.batch_size != other.batch_size:
        prefix = _growth(node.batch_size, [other.batch_size]).prefix
        node, other = node.expand(prefix), other.expand(prefix)
    if isinstance(default, str):
        if default != "intersection":
            raise TypeError(f"default must be None, 'intersection', a number or a tensor, got {default!r}")
        return _inner(node, other, function)
    fill = torch.as_tensor(default)
    result = _outer(node, other, fill.expand(node.batch_size) if fill.ndim else fill, function)
    if node._names is not None or other._names is not None:
        result._adopt_names(node._names)
    if node.device != other.device:
        result._label_device(node.device)
    return result


def _pair(key: str, mine: Any, theirs: Any) -> bool:
    """Whether both are nodes."""
    nodes = isinstance(mine, TensorCollection)
    if nodes is not isinstance(theirs, TensorCollection):
        raise KeyError(f"under {key!r} a {type(mine).__name__} stands at the place of a {type(theirs).__name__}")
    return nodes


@by_member(others=1)
def _inner(node: Any, other: Any, function: Any) -> Any:
    fields, theirs = {}, other._entries()
    for key, value in node._entries().items():
        if key in theirs:
            if not _pair(key, value, theirs[key]):
                fields[key] = function(value, theirs[key])
            elif (below := _inner(value, theirs[key], function))._fields():
                fields[key] = below
    return node._rebuild(fields, node.batch_size, node.device, node._names)


@by_member(others=2)
def _outer(node: Any, other: Any, default: Tensor, function: Any) -> Any:
    mine, theirs = node._entries(), other._entries()
    fields = {}
    for key, value in mine.items():
        if key not in theirs:
            fields[key] = _one_sided(value, default, function)
        elif _pair(key, value, theirs[key]):
            fields[key] = _outer(value, theirs[key], default, function)
        else:
            fields[key] = function(value, theirs[key])
    for key, value in theirs.items():
        if key not in mine:
            fields[key] = _one_sided(value, default, lambda leaf, fill: function(fill, leaf))
    return node._rebuild(fields, node.batch_size, node.device, node._names)


def _one_sided(value: Any, default: Tensor, function: Any) -> Any:
    """`function(leaf, default)` of a leaf or of all leaves of a node."""
    if isinstance(value, TensorCollection):
        fields = {key: _one_sided(part, default, function) for key, part in value._entries().items()}
        return value._rebuild(fields, value.batch_size, value.device, value._names)
    if default.ndim:
        default = default.reshape(default.shape + (1,) * (value.ndim - default.ndim))
    return function(value, default)
