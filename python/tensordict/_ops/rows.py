"""The makers of rows: methods that differ in one torch function are one assignment each, `abs = unary(torch.abs)`.

One executor decides how a row runs: one `torch._foreach_*` call over all leaves where it exists and all leaves are plain,
else leaf by leaf (under vmap, for subclasses of tensors, nested tensors, and under compile, where it makes no difference).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

from tensordict._kernel.native import is_plain
from tensordict._kernel.shapes import broadcasts_to
from tensordict._ops.waist import leaves_like, leaves_of, map_pairs, refill
from tensordict._types import TensorCollection

T = TypeVar("T")


def foreach_of(name: str) -> Callable[..., Any] | None:
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


def run(leaves: list[Any], one: Callable[..., Any], many: Callable[..., Any] | None, *args: Any) -> Any:
    """`one(leaf, *args)` of each leaf, by `many(leaves, *args)` where that gives the same."""
    if many is not None and leaves and is_plain(leaves):
        try:
            return many(leaves, *args)
        except NotImplementedError:
            pass  # torch has no such kernel for one of the leaves (nested, sparse), and has not begun
    return [one(leaf, *args) for leaf in leaves]


def run_pairs(
    leaves: list[Any], others: list[Any], one: Callable[..., Any], many: Callable[..., Any] | None, *args: Any
) -> Any:
    """`one(leaf, other, *args)` of each pair, by `many(leaves, others, *args)` where that gives the same."""
    if many is not None and leaves and is_plain(leaves) and is_plain(others):
        try:
            return many(leaves, others, *args)
        except NotImplementedError:
            pass
    return [one(leaf, other, *args) for leaf, other in zip(leaves, others)]


def operand(node: Any, other: Any) -> list[Any] | Any:
    """The second operand of each leaf of `node`: a list from a tensordict or a broadcast tensor, else `other` itself.

    A tensor is broadcast against the batch size, then aligned with the leading dimensions of each leaf.

    Raises:
        KeyError: `other` is a tensordict of other keys.
        RuntimeError: `other` is a tensor that does not broadcast to the batch size.
    """
    if isinstance(other, TensorCollection):
        return leaves_like(node, other)  # type: ignore[arg-type]
    if not isinstance(other, Tensor) or not other.ndim:
        return other
    batch_size = node.batch_size
    if other.shape != batch_size:
        if not broadcasts_to(other.shape, batch_size):
            raise RuntimeError(
                f"the tensor of shape {other.shape} does not broadcast to the batch size {batch_size} of the tensordict"
            )
        other = other.expand(batch_size)
    return [other.reshape(other.shape + (1,) * (leaf.ndim - other.ndim)) for leaf in leaves_of(node)]


def unary(function: Callable[..., Any], many: str | None = None) -> Callable[[T], T]:
    """A method that computes `function` of each leaf."""
    name = function.__name__
    foreach = foreach_of(many or name)

    def method(self: Any) -> Any:
        leaves = leaves_of(self)
        return relock(refill(self, iter(run(leaves, function, foreach))), self)

    doc = f"`torch.{name}` of each leaf: a tensordict of the same keys and batch size, with leaves of their own."
    return _describe(method, name, doc)


def unary_(name: str) -> Callable[[T], T]:
    """A method that computes the tensor method `name` of each leaf in place."""
    function = getattr(Tensor, name)
    foreach = foreach_of(name)

    def method(self: Any) -> Any:
        leaves = leaves_of(self)
        run(leaves, function, foreach)
        self._wrote(leaves)
        return self

    doc = f"`torch.Tensor.{name}` of each leaf, in place. Also of a locked tensordict. Returns the tensordict itself."
    return _describe(method, name, doc)


def binary(function: Callable[..., Any], name: str | None = None, reverse: bool = False) -> Callable[[T, Any], T]:
    """A method that computes `function(leaf, other)` of each leaf, or `function(other, leaf)` with `reverse`."""
    foreach = None if reverse else foreach_of(function.__name__)
    call = (lambda leaf, other: function(other, leaf)) if reverse else function

    def method(self: Any, other: Any) -> Any:
        leaves, others = leaves_of(self), operand(self, other)
        pairs = isinstance(others, list)
        out = run_pairs(leaves, others, call, foreach) if pairs else run(leaves, call, foreach, others)
        return relock(refill(self, iter(out)), self)

    doc = (
        f"`torch.{function.__name__}` of each leaf and a tensordict of the same keys, a number, or a tensor that broadcasts "
        "to the batch size."
    )
    return _describe(method, name or function.__name__, doc)


def binary_(name: str, method_name: str | None = None) -> Callable[[T, Any], T]:
    """A method that computes the tensor method `name` of each leaf and another operand in place."""
    function = getattr(Tensor, name)
    foreach = foreach_of(name)

    def method(self: Any, other: Any) -> Any:
        leaves, others = leaves_of(self), operand(self, other)
        if isinstance(others, list):
            run_pairs(leaves, others, function, foreach)
        else:
            run(leaves, function, foreach, others)
        self._wrote(leaves)
        return self

    doc = f"`torch.Tensor.{name}` of each leaf, in place. Also of a locked tensordict. Returns the tensordict itself."
    return _describe(method, method_name or name, doc)


def comparison(function: Callable[..., Any], name: str) -> Callable[[Any, Any], Any]:
    """A method that compares each leaf with another operand: a tensordict of boolean leaves, never locked."""

    def method(self: Any, other: Any) -> Any:
        if isinstance(other, dict):
            other = self._rebuild({}, self.batch_size).update(other)
        elif not isinstance(other, (TensorCollection, Tensor, int, float, complex)):
            return NotImplemented
        if isinstance(other, TensorCollection):
            result = map_pairs(self, other, function)
        else:
            leaves, others = leaves_of(self), operand(self, other)
            result = refill(self, map(function, leaves, others if isinstance(others, list) else [others] * len(leaves)))
        if self._names is not None:
            result._adopt_names(None)
        return result

    doc = (
        f"`torch.{function.__name__}` of each leaf and a tensordict or mapping of the same keys, a number, or a tensor that "
        "broadcasts to the batch size: a tensordict of boolean leaves."
    )
    return _describe(method, name, doc)
