"""The makers of rows: methods that differ in one torch function are one assignment each, `abs = unary(torch.abs)`.

A row makes the method, and enters what the torch functions that are the same do with tensordicts. How it runs, `leafwise` says.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from tensordict._kernel.registry import TORCH_FUNCTIONS
from tensordict._ops.leafwise import combine, combine_, foreach_of, relock, run, run_
from tensordict._ops.operands import with_default
from tensordict._ops.trees import collect, map_leaves, refill, wrote
from tensordict._ops.waist import Waist
from tensordict._types import TensorCollection

T = TypeVar("T")
Method = TypeVar("Method", bound=Callable[..., Any])
Out = TypeVar("Out", covariant=True)
Function = Callable[..., Any]


class Row(NamedTuple):
    """A pointwise method, how it is called (the name of its maker), and the torch functions that are the same."""

    name: str
    kind: str
    functions: tuple[Function, ...]


ROWS: dict[str, Row] = {}


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


def _describe(method: Any, name: str, doc: str) -> Any:
    method.__name__ = name
    method.__qualname__ = f"TensorDictBase.{name}"
    method.__doc__ = doc
    return method


# What torch's functions do with a tensordict.


def leafwise(function: Function) -> Function:
    """`function` of each leaf of a tensordict, which keeps its lock."""

    def call(input: Any, *args: Any, **kwargs: Any) -> Any:
        if "out" in kwargs:
            raise TypeError(f"torch.{function.__name__} of a tensordict takes no out")
        return relock(combine(input, lambda leaf: function(leaf, *args, **kwargs), None), input)

    return call


def _by_name(name: str, function: Function | None = None) -> Function:
    """The method `name` of the first argument; with more arguments than the method has, `function` of each leaf."""
    each = None if function is None else leafwise(function)

    def call(input: Any, *args: Any, **kwargs: Any) -> Any:
        if each is not None and (args or kwargs):
            return each(input, *args, **kwargs)
        return getattr(input, name)(*args, **kwargs)

    return call


def either(function: Function, name: str | None = None, mirrored: str | None = None) -> Function:
    """`function` of two operands, of which either is a tensordict: by a method of that one where there is one.

    Args:
        function: what is computed of each leaf else.
        name: the method of a tensordict that is the first operand.
        mirrored: the method of one that is the second operand.
    """

    def call(input: Any, other: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(input, Waist):
            if name is not None and not args and "rounding_mode" not in kwargs:
                return getattr(input, name)(other, **kwargs)
            return relock(combine(input, lambda leaf, beside: function(leaf, beside, *args, **kwargs), None, other), input)
        if mirrored is not None:
            return getattr(other, mirrored)(input, **kwargs)
        return relock(combine(other, lambda leaf, beside: function(beside, leaf, *args, **kwargs), None, input), other)

    return call


def _enter(name: str, kind: str, functions: tuple[Function, ...], mirrored: str | None = None) -> None:
    """Notes a row, and what the torch functions that are the same do with tensordicts."""
    ROWS[name] = Row(name, kind, functions)
    for function in functions:
        if kind in ("binary", "comparison"):
            TORCH_FUNCTIONS[function] = either(function, name, mirrored)
        else:
            TORCH_FUNCTIONS[function] = _by_name(name, function if kind == "unary" else None)


def _in_torch(name: str) -> tuple[Function, ...]:
    """The function of this name that torch may have beside the method of its tensors."""
    return (getattr(torch, name),) if hasattr(torch, name) else ()


def row(kind: str, *functions: Function) -> Callable[[Method], Method]:
    """Makes a written method a row, which `functions` of torch are; its kind is "other" if it is called in a way of its own."""

    def enter(method: Method) -> Method:
        _enter(method.__name__, kind, functions)
        return method

    return enter


# Makers.


def unary(function: Function, *aliases: Function, name: str | None = None) -> Callable[[T], T]:
    """A method that computes `function` of each leaf."""
    label = function.__name__
    foreach = foreach_of(label)

    def method(self: Any) -> Any:
        if foreach is None:
            return relock(map_leaves(self, function), self)
        leaves: list[Any] = []
        tree = collect(self, leaves)
        return relock(refill(tree, iter(run(leaves, function, foreach))), self)

    _enter(name or label, "unary", (function, *aliases))
    doc = f"`torch.{label}` of each leaf: a tensordict of the same keys and batch size, with leaves of their own."
    return _describe(method, name or label, doc)


def unary_(name: str) -> Callable[[T], T]:
    """A method that computes the tensor method `name` of each leaf in place."""
    function = getattr(Tensor, name)
    foreach = foreach_of(name)

    def method(self: Any) -> Any:
        leaves: list[Any] = []
        tree = collect(self, leaves)
        run_(leaves, function, foreach)
        wrote(tree, leaves)
        return self

    _enter(name, "unary_", _in_torch(name))
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


def operator(name: str, function: Function, *functions: Function, reverse: bool = False) -> Callable[[T, Any], T]:
    """The operator `name`: `function(leaf, other)` of each leaf, or `function(other, leaf)` with `reverse`.

    Torch's functions `functions` are this operator; most are a method that has its default and factor too.
    """
    foreach = None if reverse else foreach_of(function.__name__)
    one = (lambda leaf, other: function(other, leaf)) if reverse else function

    def method(self: Any, other: Any) -> Any:
        return relock(combine(self, one, foreach, other), self)

    _enter(name, "binary", functions)
    return _describe(method, name, _OPERAND.format(function.__name__))


def binary(function: Function, *aliases: Function, leaf: Function | None = None) -> Binary:
    """A method that computes `function(leaf, other)` of each leaf, by `leaf` if that takes more operands."""
    name, one = function.__name__, leaf or function
    foreach = foreach_of(name)

    def method(self: Any, other: Any, *, default: Any = None) -> Any:
        if default is not None and isinstance(other, TensorCollection):
            return relock(with_default(self, other, one, default), self)
        return relock(combine(self, one, foreach, other), self)

    _enter(name, "binary", (function, *aliases))
    return _describe(method, name, _OPERAND.format(name) + _ARGS.format(alpha=""))


def scaled(function: Function, *aliases: Function, factor_of: str = "other") -> Scaled:
    """A method that computes `function(leaf, other, alpha=alpha)` of each leaf."""
    name = function.__name__
    foreach = foreach_of(name)

    def method(self: Any, other: Any, *, alpha: Any = None, default: Any = None) -> Any:
        options = {} if alpha is None else {"alpha": alpha}
        if default is not None and isinstance(other, TensorCollection):
            return relock(with_default(self, other, partial(function, **options), default), self)
        return relock(combine(self, function, _scaling(foreach, other, alpha), other, **options), self)

    _enter(name, "binary", (function, *aliases))
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

    _enter(method_name or name, "binary_", () if method_name else _in_torch(name))
    return _describe(method, method_name or name, _IN_PLACE.format(name))


def scaled_(name: str) -> ScaledInPlace:
    """A method that computes the tensor method `name` of each leaf and `alpha` times another operand in place."""
    function = getattr(Tensor, name)
    foreach = foreach_of(name)

    def method(self: Any, other: Any, *, alpha: Any = None) -> Any:
        options = {} if alpha is None else {"alpha": alpha}
        return combine_(self, function, _scaling(foreach, other, alpha), other, **options)

    _enter(name, "binary_", _in_torch(name))
    return _describe(method, name, _IN_PLACE.format(name))


def comparison(name: str, function: Function, *aliases: Function, mirrored: str | None = None) -> Callable[[Any, Any], Any]:
    """A method that compares each leaf with another operand: never locked, and with names only beside a tensor.

    With `mirrored`, the name of the method with exchanged operands, torch's function and its `aliases` are this method.
    """

    def method(self: Any, other: Any) -> Any:
        if isinstance(other, dict):
            other = self._rebuild({}, self.batch_size).update(other)
        elif not isinstance(other, (TensorCollection, Tensor, int, float, complex)):
            return NotImplemented
        result = combine(self, function, None, other)
        if self._names is not None and not (isinstance(other, Tensor) and other.ndim):
            result._adopt_names(None)
        return result

    _enter(name, "comparison", (function, *aliases) if mirrored else (), mirrored)
    doc = (
        f"`torch.{function.__name__}` of each leaf and a tensordict or mapping of the same keys, a number, or a tensor that "
        "broadcasts against the batch size: a tensordict that is not locked."
    )
    return _describe(method, name, doc)
