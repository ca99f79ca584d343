"""How an operation runs on all leaves: in one call of torch where that gives the same, else leaf by leaf.

One `torch._foreach_*` call is made where the function exists and all leaves are plain; under vmap, for subclasses of tensors,
for nested tensors, and under compile, where it makes no difference, the function is called for each leaf.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import repeat
from typing import Any

import torch

from tensordict._kernel.native import is_plain, regrouped
from tensordict._leaves.ragged import each
from tensordict._ops.operands import align, check_fitting, check_grown, check_stays, regrow, settled
from tensordict._ops.trees import collect, map_pairs, refill, wrote
from tensordict._types import TensorCollection

Function = Callable[..., Any]

_NUMBERS = frozenset((int, float, bool))  # operands that need no look at their shape


def foreach_of(name: str) -> Function | None:
    """The `torch._foreach_` function called `name`, if this torch has it."""
    return getattr(torch, f"_foreach_{name}", None)


def relock(result: Any, source: Any) -> Any:
    """`result`, locked as `source` is: operations that keep the keys keep the lock."""
    return result.lock_() if source.is_locked else result


def run(leaves: list[Any], one: Function, many: Function | None, *columns: Any, **options: Any) -> list[Any]:
    """`one(leaf, *row, **options)` of each leaf, by `many(leaves, *columns, **options)` where that gives the same.

    A column is a list with an entry for each leaf, or one value for all of them.
    """
    if many is not None and leaves and _all_plain(leaves, columns):
        try:
            return many(leaves, *columns, **options)
        except NotImplementedError:
            pass  # torch has no such kernel for one of the leaves (nested, sparse); what it did before is thrown away
        except RuntimeError as error:
            # so it is where a leaf with gradient stands beside one of integers
            if "Autograd not support dtype" not in str(error):
                raise
    return _each(leaves, one, columns, options)


def run_(leaves: list[Any], one: Function, many: Function | None, *columns: Any, **options: Any) -> None:
    """`run` for functions in place, which are called once for each leaf: where one fails, those before it stay done.

    Torch has no kernels for many nested leaves at once, and where it finds out it has begun with the leaves before them.
    """
    if many is not None and leaves and _all_plain(leaves, columns) and _all_dense(leaves):
        many(leaves, *columns, **options)
    else:
        _each(leaves, one, columns, options)


def _all_dense(leaves: list[Any]) -> bool:
    """Whether no leaf is nested. The native function declines what has no plain shape; of others it is asked leaf by leaf."""
    return regrouped(leaves, 0, ()) is not None or not any([leaf.is_nested for leaf in leaves])


def _each(leaves: list[Any], one: Function, columns: tuple[Any, ...], options: dict[str, Any]) -> list[Any]:
    if options:
        one = partial(one, **options)
    return each(one, leaves, *[column if type(column) is list else repeat(column) for column in columns])


def _all_plain(leaves: list[Any], columns: tuple[Any, ...]) -> bool:
    if not is_plain(leaves):
        return False
    return not columns or all([type(column) is not list or is_plain(column) for column in columns])


def combine(node: Any, one: Function, many: Function | None, *others: Any, strict: bool = True, **options: Any) -> Any:
    """`one(leaf, *row, **options)` of each leaf of `node` and what stands beside it in the `others`: an unlocked tree.

    The `others` are tensordicts, numbers, and tensors that broadcast against the batch size, which may grow by it.

    Args:
        node: the tensordict.
        one: the function of a leaf.
        many: the function of a list of leaves that does the same, or None.
        *others: the other operands.
        strict: whether tensordicts among them may have no keys but those of `node`.
        **options: of both functions.

    Raises:
        KeyError: the keys of an operand do not fit.
        RuntimeError: a shape does not fit.
    """
    if len(others) == 1:
        other = others[0]
        if type(other) in _NUMBERS:
            leaves: list[Any] = []
            tree = collect(node, leaves)
            return refill(tree, iter(run(leaves, one, many, other, **options)))
        if many is None and strict and not options and _is_like(node, other):
            return map_pairs(node, other, one)  # one walk where no list of leaves is needed
    tree, leaves, others = settled(node, others)
    columns, change = align(tree, leaves, others, strict)
    return regrow(tree, run(leaves, one, many, *columns, **options), change)


def _is_like(node: Any, other: Any) -> bool:
    return isinstance(other, TensorCollection) and other.batch_size == node.batch_size


def combine_(node: Any, one: Function, many: Function | None, *others: Any, **options: Any) -> Any:
    """`combine` with functions that write into the leaf: gives `node` itself. A tensordict may have more keys than it."""
    if len(others) == 1 and type(others[0]) in _NUMBERS:
        leaves: list[Any] = []
        tree = collect(node, leaves)
        run_(leaves, one, many, others[0], **options)
        wrote(tree, leaves)
        return node
    tree, leaves, others = settled(node, others)
    check_grown(node, tree)
    columns, change = align(tree, leaves, others, False)
    check_stays(node, change)
    check_fitting(tree, leaves, columns)
    run_(leaves, one, many, *columns, **options)
    wrote(tree, leaves)
    return node
