"""Pointwise `torch.*` functions of tensordicts that are no method of theirs, and losses. Those that are one are its row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Size, Tensor
from torch.nn import functional

from tensordict._kernel.change import Change
from tensordict._kernel.registry import PYTHON_FUNCTIONS, TORCH_FUNCTIONS
from tensordict._ops.leafwise import run
from tensordict._ops.makers import either, leafwise
from tensordict._ops.operands import align
from tensordict._ops.softmax import along
from tensordict._ops.trees import Tree, collect, leaves_like, solid
from tensordict._types import TensorCollection
from tensordict.base import TensorDictOps

Function = Callable[..., Any]

# Functions of one operand that no method has.
UNARY: tuple[Function, ...] = (
    torch.exp2,
    torch.isinf,
    torch.logical_not,
    torch.nan_to_num,
    torch.relu,
    torch.rsqrt,
    torch.square,
)
# Functions of two operands, of which either may be the tensordict, that no method has.
BINARY: tuple[Function, ...] = (torch.isclose, torch.logical_or, torch.logical_xor)
# Operators that torch writes in Python and dynamo calls for `td - tensor` too, and the functions that they are, with exchanged
# operands where the name has an r.
OPERATORS: tuple[tuple[Function, Function], ...] = (
    (Tensor.__pow__, torch.pow),
    (Tensor.__rdiv__, lambda input, other: torch.div(other, input)),
    (Tensor.__rmod__, lambda input, other: torch.remainder(other, input)),
    (Tensor.__rpow__, lambda input, other: torch.pow(other, input)),
    (Tensor.__rsub__, lambda input, other: torch.sub(other, input)),
)
LOSSES: tuple[Function, ...] = (functional.l1_loss, functional.mse_loss, functional.smooth_l1_loss)


def _reduction(size_average: bool | None, reduce: bool | None, reduction: str) -> str:
    """The reduction of a loss, from its three arguments, of which torch has deprecated two."""
    if reduce is False:
        return "none"
    if size_average is not None or reduce is not None:
        return "sum" if size_average is False else "mean"
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"reduction must be 'none', 'mean' or 'sum', got {reduction!r}")
    return reduction


def loss(function: Function) -> Function:
    """A loss of each leaf of a tensordict: a tensordict without batch dimensions, or one like it with `reduction="none"`."""

    def call(
        input: Any,
        target: Any,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        *args: Any,
        weight: Any = None,
        **kwargs: Any,
    ) -> Any:
        reduction = _reduction(size_average, reduce, reduction)
        if not isinstance(input, TensorDictOps) or not isinstance(target, (TensorCollection, Tensor)):
            given = f"{type(input).__name__} and {type(target).__name__}"
            raise TypeError(f"a loss takes a tensordict, and a tensordict or tensor as its target; got {given}")

        def leaf(value: Tensor, wanted: Tensor, factor: Tensor | None = None) -> Tensor:
            options = kwargs if factor is None else {**kwargs, "weight": factor.expand_as(value)}
            return function(value, wanted.expand_as(value), None, None, reduction, *args, **options)

        input = solid(input)
        leaves: list[Any] = []
        tree = collect(input, leaves)
        columns, _ = align(tree, leaves, (target,) if weight is None else (target, weight), False)
        return _losses(tree, iter(run(leaves, leaf, None, *columns)), reduction == "none")

    return call


def _losses(tree: Tree, losses: Any, kept: bool) -> Any:
    node, pieces = tree
    found = {key: _losses(part, losses, kept) if type(part) is tuple else next(losses) for key, part in pieces.items()}
    return node._from_pieces(found, None if kept else Change(_no_leaf, len(node.batch_size), Size(()), ()))


def _no_leaf(leaf: Any) -> Any:
    return leaf


def _softmax(input: Any, dim: int, dtype: torch.dtype | None = None) -> Any:
    return along(input, torch.softmax, dim, dtype)


def _log_softmax(input: Any, dim: int, dtype: torch.dtype | None = None) -> Any:
    return along(input, torch.log_softmax, dim, dtype)


def _with_stacklevel(function: Function) -> Function:
    """`function` with the arguments that it has in `torch.nn.functional`."""

    def call(input: Any, dim: Any = None, _stacklevel: int = 3, dtype: torch.dtype | None = None) -> Any:
        return function(input, dim, dtype)

    return call


def _allclose(input: Any, other: Any, *args: Any, **kwargs: Any) -> bool:
    node, beside = (input, other) if isinstance(input, TensorDictOps) else (other, input)
    leaves: list[Any] = []
    columns, _ = align(collect(node, leaves), leaves, (beside,), True)
    return all(run(leaves, lambda leaf, value: torch.allclose(leaf, value, *args, **kwargs), None, *columns))


def _equal(input: Any, other: Any) -> bool:
    if not isinstance(input, TensorDictOps) or not isinstance(other, TensorCollection):
        raise TypeError(f"torch.equal takes two tensordicts, got {type(input).__name__} and {type(other).__name__}")
    if input.batch_size != other.batch_size:
        return False
    leaves: list[Any] = []
    tree = collect(input, leaves)
    try:
        others = leaves_like(tree, other)
    except KeyError:
        return False
    return all(map(torch.equal, leaves, others))


TORCH_FUNCTIONS.update({function: leafwise(function) for function in UNARY})
TORCH_FUNCTIONS.update({function: either(function) for function in BINARY})
PYTHON_FUNCTIONS.extend(OPERATORS)
PYTHON_FUNCTIONS.extend((function, loss(function)) for function in LOSSES)
TORCH_FUNCTIONS.update({torch.softmax: _softmax, torch.log_softmax: _log_softmax})
PYTHON_FUNCTIONS.append((functional.softmax, _with_stacklevel(_softmax)))
PYTHON_FUNCTIONS.append((functional.log_softmax, _with_stacklevel(_log_softmax)))
TORCH_FUNCTIONS.update({torch.allclose: _allclose, torch.equal: _equal})
