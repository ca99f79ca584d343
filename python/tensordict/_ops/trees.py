"""Walks over trees: their leaves as a list with the tree they were found in, and trees put together again of other leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

import torch
from torch import Tensor

from tensordict._kernel.change import Change
from tensordict._kernel.native import all_tensors
from tensordict._kernel.native import collect as collect
from tensordict._kernel.native import copy_nodes as copy_nodes
from tensordict._kernel.registry import exposed, is_branch
from tensordict._kernel.shapes import expand_right
from tensordict._leaves.ragged import call, changed, has_ragged
from tensordict._leaves.unbatched import is_unbatched, moved
from tensordict._types import TensorCollection

# A tree as it was found: a node, and its pieces with trees in the places of the nodes among them. What is made of its leaves
# is put together by `refill`, under the keys that the leaves had when they were collected.
Tree = tuple[Any, dict[Any, Any]]


def leaves_of(node: Any) -> list[Any]:
    """All leaves below `node`, depth first; for those who put nothing in their places."""
    out: list[Any] = []
    collect(node, out)
    return out


def is_own(tree: Tree) -> bool:
    """Whether all leaves of a tree have its batch dimensions: those of the members of a stack lack one, some have none."""
    node, pieces = tree
    if node._stacked:
        return False
    for part in pieces.values():
        if type(part) is not Tensor and (not is_own(part) if type(part) is tuple else is_unbatched(part)):
            return False
    return True


def collect_own(node: Any, leaves: list[Any]) -> Tree | None:
    """`collect`, or None where a leaf lacks batch dimensions (see `is_own`)."""
    if node._stacked:
        return None
    pieces = node._pieces()
    for key, part in pieces.items():
        if type(part) is Tensor:
            leaves.append(part)
        elif isinstance(part, TensorCollection):
            below = collect_own(part, leaves)
            if below is None:
                return None
            pieces[key] = below
        elif is_unbatched(part):
            return None
        else:
            leaves.append(part)
    return node, pieces


def has_own(node: Any) -> bool:
    """Whether all leaves below `node` have its batch dimensions (see `is_own`)."""
    return collect_own(node, []) is not None


def solid(node: Any) -> Any:
    """`node` itself, or if there is a stack in the tree, the tree with stacked leaves in its place."""
    if node._stacked:
        return node.contiguous()
    return node if has_own(node) else map_nodes(node, solid)


def wrote(tree: Tree, leaves: list[Any]) -> None:
    """To be called after all leaves of a tree were changed in place: some containers have given copies of theirs."""
    node = tree[0]
    if node._gives_copies:
        node.update_(refill(tree, iter(leaves)))


def dealt_to(tree: Tree, value: Any) -> list[Any]:
    """For each leaf of a tree what belongs to it of a tensor over the leading batch dimensions."""
    out: list[Any] = []
    _dealt_to(tree, value, out)
    return out


def over_batch(value: Any, batch_size: Any) -> Any:
    """A tensor over the leading batch dimensions as one over all of them, so that a stack knows what is for which member."""
    return expand_right(value, batch_size) if value.ndim < len(batch_size) and -1 not in batch_size else value


def _dealt_to(tree: Tree, value: Any, out: list[Any]) -> None:
    node, pieces = tree
    for part, row in zip(pieces.values(), node._pieces_of(value, pieces)):
        if type(part) is tuple:
            _dealt_to(part, row, out)
        else:
            out.append(row)


def by_member(others: int = 0, whole: bool = True) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Makes a function of a node one that is done to a stack member by member: its result is the stack of the results.

    Where all results are None so is that of the stack; where some are, there is an empty member.

    Args:
        others: how many of the arguments after the node are divided among the members: trees, and tensors over the batch.
            Other values, and all other arguments, are the same for each.
        whole: whether a stack of objects is given to the function as it is.
    """

    def make(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(node: Any, *args: Any) -> Any:
            if not node._stacked or (whole and node._is_non_tensor):
                return function(node, *args)
            members = node._pieces()
            beside = [node._pieces_of(value, members) for value in args[:others]]
            rest = args[others:]
            found = [call(part, *row, *rest) for part, *row in zip(members.values(), *beside)]
            return restacked(node, members, found)

        return call

    return make


def divided(node: Any, source: Any, index: Any = None) -> list[tuple[Any, Any, Any]] | None:
    """What of a source belongs to each member of a stack, with its rows; None for what is no stack."""
    parts = list(node._parts_at(index, source))
    return None if len(parts) == 1 and parts[0][0] is node else parts


def restacked(node: Any, members: dict[Any, Any], results: list[Any]) -> Any:
    """The results for the members of a stack as one; an empty member for None, and None where all of them are."""
    if results and all([result is None for result in results]):
        return None
    rows = zip(members.items(), results)
    return node._from_pieces({place: part.empty() if result is None else result for (place, part), result in rows})


def leaves_like(tree: Tree, other: Any, strict: bool = True) -> list[Any]:
    """The leaves of `other` in the order of those of a tree.

    Raises:
        KeyError: a key is missing in `other` or, with `strict`, it has others.
    """
    out: list[Any] = []
    _collect_like(tree, other, strict, out)
    return out


def _collect_like(tree: Tree, other: Any, strict: bool, out: list[Any]) -> None:
    node, pieces = tree
    for mine, part in zip(pieces.values(), node._pieces_of(other, pieces, strict)):
        if type(mine) is Tensor and type(part) is Tensor:
            out.append(part)
            continue
        is_node = type(mine) is tuple
        if is_node and not is_branch(mine[0]):
            continue
        if is_node is not isinstance(part, TensorCollection):
            kind = type(mine[0] if is_node else mine)
            raise KeyError(f"a {kind.__name__} stands at the place of a {type(part).__name__}")
        if is_node:
            _collect_like(mine, part, strict, out)
        else:
            out.append(part)


# From so many pieces on it is worth asking whether all of them are leaves.
_MANY = 32


def refill(tree: Tree, leaves: Iterator[Any], change: Change | None = None) -> Any:
    """A container like the one that a tree was collected of, with other leaves and, if given, changed batch dimensions."""
    node, pieces = tree
    if change is not None and node._is_non_tensor:
        return node._from_pieces(pieces, change)
    if len(pieces) > _MANY and all_tensors(list(pieces.values())):
        return node._from_pieces(dict(zip(pieces, leaves)), change)
    fields = {key: refill(part, leaves, change) if type(part) is tuple else next(leaves) for key, part in pieces.items()}
    return node._from_pieces(fields, change)


def transform(node: Any, change: Change) -> Any:
    """A tree like `node` with `change` made to each leaf and node."""
    if not node._dict_backed:
        return node._transform(change)
    leaf, pieces = change.leaf, node._pieces()
    left = iter(pieces.items())
    try:
        for key, part in left:
            if type(part) is Tensor:
                pieces[key] = leaf(part)
            else:
                pieces[key] = transform(part, change) if isinstance(part, TensorCollection) else change_other(part, change)
    except Exception:
        if type(part) is not Tensor or not part.is_nested:
            raise
        pieces[key] = change_other(part, change)
        for key, part in left:
            pieces[key] = transform(part, change) if isinstance(part, TensorCollection) else change_other(part, change)
    return node._from_pieces(pieces, change)


def change_other(part: Any, change: Change) -> Any:
    """`change` made to a leaf that is no plain tensor."""
    if is_unbatched(part):
        return moved(part, change)
    return changed(part, change) if part.is_nested else change.leaf(part)


def map_batched(node: Any, function: Callable[[Any], Any]) -> Any:
    """A tree like `node` with `function`, which looks at batch dimensions, of each leaf that has them."""
    return map_leaves(solid(node), lambda leaf: leaf if is_unbatched(leaf) else function(leaf))


def map_leaves(node: Any, function: Callable[[Any], Any]) -> Any:
    """A tree like `node` with `function` of each leaf."""
    pieces = node._pieces()
    left = iter(pieces.items())
    try:
        for key, part in left:
            pieces[key] = map_leaves(part, function) if isinstance(part, TensorCollection) else function(part)
    except Exception:
        # What was done before stays: the function may draw numbers. It goes on at the leaf where it failed.
        if not has_ragged((part,)):
            raise
        pieces[key] = call(function, part)
        for key, part in left:
            if isinstance(part, TensorCollection):
                pieces[key] = map_leaves(part, function)
            else:
                pieces[key] = call(function, part) if has_ragged((part,)) else function(part)
    return node._from_pieces(pieces)


def map_pairs(node: Any, other: Any, function: Callable[[Any, Any], Any]) -> Any:
    """A tree like `node` with `function` of each leaf and the leaf of `other` at its place."""
    return node._combined(other, function)


def map_pieces(node: Any, other: Any, function: Callable[[Any, Any], Any]) -> Any:
    """`map_pairs` for a node whose leaves are tensors."""
    pieces = node._pieces()
    left = iter(zip(pieces.items(), node._pieces_of(other, pieces)))
    try:
        for (key, mine), part in left:
            if isinstance(mine, TensorCollection):
                pieces[key] = mine._combined(part, function)
            else:
                pieces[key] = function(mine, part if type(part) is Tensor else _operand(part))
    except Exception:
        if not has_ragged((mine, part)) or isinstance(mine, TensorCollection):
            raise
        pieces[key] = call(function, mine, _operand(part))
        for (key, mine), part in left:
            if isinstance(mine, TensorCollection):
                pieces[key] = mine._combined(part, function)
            else:
                row = (mine, _operand(part))
                pieces[key] = call(function, *row) if has_ragged(row) else function(*row)
    return node._from_pieces(pieces)


def _operand(part: Any) -> Any:
    """What stands beside a leaf: a leaf, or objects as a tensor."""
    shown = exposed(part)
    return part if shown is part else torch.as_tensor(shown)


def map_nodes(node: Any, function: Callable[[Any], Any]) -> Any:
    """A container like `node` with `function` of each node right below it."""
    pieces = node._pieces()
    for key, part in pieces.items():
        if isinstance(part, TensorCollection):
            pieces[key] = function(part)
    return node._from_pieces(pieces)


def copy_members(stack: Any) -> Any:
    """The stack of the members that a stack has at this moment, which nobody changes: they are numbered once."""
    return stack._from_pieces(stack._pieces())
