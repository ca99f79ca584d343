"""Pointwise `torch.*` functions of tensordicts: tables of the names of methods, and of functions that no method has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Size, Tensor
from torch.nn import functional

from tensordict._kernel.change import Change
from tensordict._kernel.registry import PYTHON_FUNCTIONS, TORCH_FUNCTIONS
from tensordict._ops.operands import align
from tensordict._ops.pointwise import along
from tensordict._ops.rows import combine, relock, run
from tensordict._ops.waist import Tree, collect, leaves_like, solid
from tensordict._types import TensorCollection
from tensordict.base import TensorDictOps

Function = Callable[..., Any]

# Functions whose first argument is the tensordict, and the methods that they are.
METHODS: dict[str, tuple[Function, ...]] = {
    "abs": (torch.abs, torch.absolute),
    "abs_": (torch.abs_,),
    "acos": (torch.acos, torch.arccos),
    "acos_": (torch.acos_,),
    "addcdiv": (torch.addcdiv,),
    "addcmul": (torch.addcmul,),
    "asin": (torch.asin, torch.arcsin),
    "asin_": (torch.asin_,),
    "atan": (torch.atan, torch.arctan),
    "atan_": (torch.atan_,),
    "ceil": (torch.ceil,),
    "ceil_": (torch.ceil_,),
    "clamp": (torch.clamp, torch.clip),
    "clamp_max_": (torch.clamp_max_,),
    "clamp_min_": (torch.clamp_min_,),
    "cos": (torch.cos,),
    "cos_": (torch.cos_,),
    "cosh": (torch.cosh,),
    "cosh_": (torch.cosh_,),
    "erf": (torch.erf,),
    "erf_": (torch.erf_,),
    "erfc": (torch.erfc,),
    "erfc_": (torch.erfc_,),
    "exp": (torch.exp,),
    "exp_": (torch.exp_,),
    "expm1": (torch.expm1,),
    "expm1_": (torch.expm1_,),
    "floor": (torch.floor,),
    "floor_": (torch.floor_,),
    "frac": (torch.frac,),
    "frac_": (torch.frac_,),
    "isfinite": (torch.isfinite,),
    "isnan": (torch.isnan,),
    "isneginf": (torch.isneginf,),
    "isposinf": (torch.isposinf,),
    "isreal": (torch.isreal,),
    "lerp": (torch.lerp,),
    "lgamma": (torch.lgamma,),
    "log": (torch.log,),
    "log10": (torch.log10,),
    "log10_": (torch.log10_,),
    "log1p": (torch.log1p,),
    "log1p_": (torch.log1p_,),
    "log2": (torch.log2,),
    "log2_": (torch.log2_,),
    "log_": (torch.log_,),
    "neg": (torch.neg, torch.negative),
    "neg_": (torch.neg_,),
    "reciprocal": (torch.reciprocal,),
    "reciprocal_": (torch.reciprocal_,),
    "round_": (torch.round_,),
    "sigmoid": (torch.sigmoid,),
    "sigmoid_": (torch.sigmoid_,),
    "sign": (torch.sign,),
    "sin": (torch.sin,),
    "sin_": (torch.sin_,),
    "sinh": (torch.sinh,),
    "sinh_": (torch.sinh_,),
    "sqrt": (torch.sqrt,),
    "sqrt_": (torch.sqrt_,),
    "tan": (torch.tan,),
    "tan_": (torch.tan_,),
    "tanh": (torch.tanh,),
    "tanh_": (torch.tanh_,),
    "trunc": (torch.trunc, torch.fix),
    "trunc_": (torch.trunc_,),
    "zero_": (torch.zero_,),
}
# Functions of each leaf, with the arguments that torch gives them: those that no method has, or has without arguments.
LEAFWISE: tuple[Function, ...] = (
    torch.bitwise_not,
    torch.exp2,
    torch.isinf,
    torch.logical_not,
    torch.nan_to_num,
    torch.relu,
    torch.round,
    torch.rsqrt,
    torch.square,
)
# Functions of two operands, of which either may be the tensordict: the method, the method with exchanged operands where that
# is not the function itself, the functions.
BINARY: tuple[tuple[str | None, str | None, tuple[Function, ...]], ...] = (
    ("add", None, (torch.add, Tensor.add)),
    ("sub", None, (torch.sub, torch.subtract, Tensor.sub)),
    ("rsub", None, (torch.rsub,)),
    ("mul", None, (torch.mul, torch.multiply, Tensor.mul)),
    ("div", None, (torch.div, torch.divide, torch.true_divide, Tensor.div)),
    ("pow", None, (torch.pow, Tensor.pow)),
    ("mod", None, (torch.remainder, Tensor.remainder)),
    ("maximum", None, (torch.maximum,)),
    ("minimum", None, (torch.minimum,)),
    ("clamp_max", None, (torch.clamp_max,)),
    ("clamp_min", None, (torch.clamp_min,)),
    ("bitwise_and", None, (torch.bitwise_and, Tensor.bitwise_and, Tensor.__and__)),
    ("logical_and", None, (torch.logical_and,)),
    (None, None, (torch.logical_or,)),
    (None, None, (torch.logical_xor,)),
    (None, None, (torch.isclose,)),
    ("__or__", "__or__", (torch.bitwise_or, Tensor.bitwise_or, Tensor.__or__)),
    ("__xor__", "__xor__", (torch.bitwise_xor, Tensor.bitwise_xor, Tensor.__xor__)),
    ("__eq__", "__eq__", (torch.eq, Tensor.eq, Tensor.__eq__)),
    ("__ne__", "__ne__", (torch.ne, Tensor.ne)),
    ("__lt__", "__gt__", (torch.lt, Tensor.lt)),
    ("__le__", "__ge__", (torch.le, Tensor.le)),
    ("__gt__", "__lt__", (torch.gt, Tensor.gt)),
    ("__ge__", "__le__", (torch.ge, Tensor.ge)),
)
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


def method(name: str) -> Function:
    """The function that calls the method `name` of its first argument."""

    def call(input: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(input, name)(*args, **kwargs)

    return call


def leafwise(function: Function) -> Function:
    """`function` of each leaf of a tensordict, which keeps its lock."""

    def call(input: Any, *args: Any, **kwargs: Any) -> Any:
        return relock(combine(input, lambda leaf: function(leaf, *args, **kwargs), None), input)

    return call


def binary(name: str | None, reverse: str | None, function: Function) -> Function:
    """`function` of two operands: by the method `name` or `reverse` of the one that is a tensordict, else of each leaf."""

    def call(input: Any, other: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(input, TensorDictOps):
            if name is not None and not args and "rounding_mode" not in kwargs:
                return getattr(input, name)(other, **kwargs)
            return relock(combine(input, lambda leaf, beside: function(leaf, beside, *args, **kwargs), None, other), input)
        if reverse is not None:
            return getattr(other, reverse)(input, **kwargs)
        return relock(combine(other, lambda leaf, beside: function(beside, leaf, *args, **kwargs), None, input), other)

    return call


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
    if input.batch_size != other.batch_size:  # type: ignore[attr-defined]
        return False
    leaves: list[Any] = []
    tree = collect(input, leaves)
    try:
        others = leaves_like(tree, other)
    except KeyError:
        return False
    return all(map(torch.equal, leaves, others))


for name, functions in METHODS.items():
    TORCH_FUNCTIONS.update(dict.fromkeys(functions, method(name)))
for function in LEAFWISE:
    TORCH_FUNCTIONS[function] = leafwise(function)
for own, reverse, functions in BINARY:
    TORCH_FUNCTIONS.update({function: binary(own, reverse, function) for function in functions})
PYTHON_FUNCTIONS.extend(OPERATORS)
PYTHON_FUNCTIONS.extend((function, loss(function)) for function in LOSSES)
TORCH_FUNCTIONS.update({torch.softmax: _softmax, torch.log_softmax: _log_softmax})
PYTHON_FUNCTIONS.append((functional.softmax, _with_stacklevel(_softmax)))
PYTHON_FUNCTIONS.append((functional.log_softmax, _with_stacklevel(_log_softmax)))
TORCH_FUNCTIONS.update({torch.allclose: _allclose, torch.equal: _equal})
