"""The makers of rows: methods that differ in one torch function are one assignment each, `abs = unary(torch.abs)`.

One executor decides how a row runs: one `torch._foreach_*` call over all leaves where it exists and all leaves are plain,
else leaf by leaf (under vmap, for subclasses of tensors, nested tensors, and under compile, where it makes no difference).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import repeat
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from tensordict._kernel.native import is_plain, regrouped
from tensordict._kernel.ragged import each
from tensordict._ops.operands import align, check_grown, check_stays, regrow, settled, with_default
from tensordict._ops.waist import collect, map_leaves, map_pairs, refill
from tensordict._types import TensorCollection

T = TypeVar("T")
Out = TypeVar("Out", covariant=True)
Function = Callable[..., Any]

_NUMBERS = frozenset((int, float, bool))  # operands that need no look at their shape


# What the methods of the makers look like to a type checker: of a node of type `T` they give one of type `T`.


class _WithDefault(Protocol[Out]):
    def __call__(self, other: Any, *, default: Any = None) -> Out: ...


class _WithAlpha(Protocol[Out]):
    def __call__(self, other: Any, *, alpha: Any = None) -> Out: ...


class _WithBoth(Protocol[Out]):
    def __call__(self, other: Any, *, alpha: Any = None, default: Any = None) -> Out: ...


class Binary(Protocol):
    """`method(other, *, default=None)`."""

    def __get__(self, node: T, owner: Any = None) -> _WithDefault[T]: ...


class Scaled(Protocol):
    """`method(other, *, alpha=None, default=None)`."""

    def __get__(self, node: T, owner: Any = None) -> _WithBoth[T]: ...


class ScaledInPlace(Protocol):
    """`method(other, *, alpha=None)`."""

    def __get__(self, node: T, owner: Any = None) -> _WithAlpha[T]: ...


def foreach_of(name: str) -> Function | None:
    """The `torch._foreach_` function called `name`, if this torch has it."""
    return getattr(torch, f"_foreach_{name}", None)


def _describe(method: Any, name: str, doc: str) -> Any:
    method.__name__ = name
    method.__qualname__ = f"TensorDictBase.{name}"
    method.__doc__ = doc
    return method


def relock(result: Any, source: Any) -> Any:
    """`result`, locked as `source` is: operations that keep the keys keep the lock."""
    return result.lock_() if source.is_locked else result


# Execution.


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
    return isinstance(other, TensorCollection) and other.batch_size == node.batch_size  # type: ignore[attr-defined]


def combine_(node: Any, one: Function, many: Function | None, *others: Any, **options: Any) -> Any:
    """`combine` with functions that write into the leaf: gives `node` itself. A tensordict may have more keys than it."""
    if len(others) == 1 and type(others[0]) in _NUMBERS:
        leaves: list[Any] = []
        tree = collect(node, leaves)
        run_(leaves, one, many, others[0], **options)
        node._wrote(tree, leaves)
        return node
    tree, leaves, others = settled(node, others)
    check_grown(node, tree)
    columns, change = align(tree, leaves, others, False)
    check_stays(node, change)
    run_(leaves, one, many, *columns, **options)
    node._wrote(tree, leaves)
    return node


# Makers.


def unary(function: Function, many: str | None = None) -> Callable[[T], T]:
    """A method that computes `function` of each leaf."""
    name = function.__name__
    foreach = foreach_of(many or name)

    def method(self: Any) -> Any:
        if foreach is None:
            return relock(map_leaves(self, function), self)
        leaves: list[Any] = []
        tree = collect(self, leaves)
        return relock(refill(tree, iter(run(leaves, function, foreach))), self)

    doc = f"`torch.{name}` of each leaf: a tensordict of the same keys and batch size, with leaves of their own."
    return _describe(method, name, doc)


def unary_(name: str) -> Callable[[T], T]:
    """A method that computes the tensor method `name` of each leaf in place."""
    function = getattr(Tensor, name)
    foreach = foreach_of(name)

    def method(self: Any) -> Any:
        leaves: list[Any] = []
        tree = collect(self, leaves)
        run_(leaves, function, foreach)
        self._wrote(tree, leaves)
        return self

    return _describe(method, name, _IN_PLACE.format(name))


_IN_PLACE = "`torch.Tensor.{}` of each leaf, in place. Also of a locked tensordict. Returns the tensordict itself."
_OPERAND = (
    "`torch.{}` of each leaf and a tensordict of the same keys, a number, or a tensor that broadcasts against the batch size."
)
_ARGS = """

    Args:
        other: the tensordict, number or tensor. One with more dimensions than the batch gives a result of its shape.{alpha}
        default: what stands for the leaves that only one of two tensordicts has: a number, or a tensor that broadcasts to
            the batch size. With `"intersection"` the result has the keys that both have.

    Raises:
        KeyError: a tensordict has other keys, and there is no `default`.
        RuntimeError: the shapes do not broadcast.
    """
_ALPHA = "\n        alpha: a factor of {}."


def operator(name: str, function: Function, many: str | None = None, reverse: bool = False) -> Callable[[T, Any], T]:
    """The operator `name`: `function(leaf, other)` of each leaf, or `function(other, leaf)` with `reverse`."""
    foreach = None if reverse else foreach_of(many or function.__name__)
    one = (lambda leaf, other: function(other, leaf)) if reverse else function

    def method(self: Any, other: Any) -> Any:
        return relock(combine(self, one, foreach, other), self)

    return _describe(method, name, _OPERAND.format(function.__name__))


def binary(function: Function) -> Binary:
    """A method that computes `function(leaf, other)` of each leaf."""
    name = function.__name__
    foreach = foreach_of(name)

    def method(self: Any, other: Any, *, default: Any = None) -> Any:
        if default is not None and isinstance(other, TensorCollection):
            return relock(with_default(self, other, function, default), self)
        return relock(combine(self, function, foreach, other), self)

    return _describe(method, name, _OPERAND.format(name) + _ARGS.format(alpha=""))


def scaled(function: Function, factor_of: str = "other") -> Scaled:
    """A method that computes `function(leaf, other, alpha=alpha)` of each leaf."""
    name = function.__name__
    foreach = foreach_of(name)

    def method(self: Any, other: Any, *, alpha: Any = None, default: Any = None) -> Any:
        options = {} if alpha is None else {"alpha": alpha}
        if default is not None and isinstance(other, TensorCollection):
            return relock(with_default(self, other, partial(function, **options), default), self)
        return relock(combine(self, function, _scaling(foreach, other, alpha), other, **options), self)

    return _describe(method, name, _OPERAND.format(name) + _ARGS.format(alpha=_ALPHA.format(f"`{factor_of}`")))


def _scaling(foreach: Function | None, other: Any, alpha: Any) -> Function | None:
    """`foreach` where it takes an `alpha`: with numbers it does not."""
    return foreach if alpha is None or isinstance(other, (Tensor, TensorCollection)) else None


def binary_(name: str, method_name: str | None = None, leaf: Function | None = None) -> Callable[[T, Any], T]:
    """A method that computes the tensor method `name` of each leaf and another operand in place."""
    function = leaf or getattr(Tensor, name)
    foreach = foreach_of(name)

    def method(self: Any, other: Any) -> Any:
        return combine_(self, function, foreach, other)

    return _describe(method, method_name or name, _IN_PLACE.format(name))


def scaled_(name: str) -> ScaledInPlace:
    """A method that computes the tensor method `name` of each leaf and `alpha` times another operand in place."""
    function = getattr(Tensor, name)
    foreach = foreach_of(name)

    def method(self: Any, other: Any, *, alpha: Any = None) -> Any:
        options = {} if alpha is None else {"alpha": alpha}
        return combine_(self, function, _scaling(foreach, other, alpha), other, **options)

    return _describe(method, name, _IN_PLACE.format(name))


def comparison(function: Function, name: str) -> Callable[[Any, Any], Any]:
    """A method that compares each leaf with another operand: never locked, and with names only beside a tensor."""

    def method(self: Any, other: Any) -> Any:
        if isinstance(other, dict):
            other = self._rebuild({}, self.batch_size).update(other)
        elif not isinstance(other, (TensorCollection, Tensor, int, float, complex)):
            return NotImplemented
        result = combine(self, function, None, other)
        if self._names is not None and not (isinstance(other, Tensor) and other.ndim):
            result._adopt_names(None)
        return result

    doc = (
        f"`torch.{function.__name__}` of each leaf and a tensordict or mapping of the same keys, a number, or a tensor that "
        "broadcasts against the batch size: a tensordict that is not locked."
    )
    return _describe(method, name, doc)
