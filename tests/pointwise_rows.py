"""What each row of pointwise mathematics gives for a leaf, in plain torch: the rows are those of the package.

A row that is not in these tables is a `KeyError` when the tests are collected.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tensordict._ops.makers import ROWS

Function = Callable[..., Any]


def _maximum(x: Tensor, y: Any) -> Tensor:
    return torch.maximum(x, torch.as_tensor(y))


def _minimum(x: Tensor, y: Any) -> Tensor:
    return torch.minimum(x, torch.as_tensor(y))


_SMOOTH: dict[str, Function] = {
    "abs": torch.abs,
    "acos": torch.acos,
    "asin": torch.asin,
    "atan": torch.atan,
    "ceil": torch.ceil,
    "cos": torch.cos,
    "cosh": torch.cosh,
    "erf": torch.erf,
    "erfc": torch.erfc,
    "exp": torch.exp,
    "expm1": torch.expm1,
    "floor": torch.floor,
    "frac": torch.frac,
    "lgamma": torch.lgamma,
    "log": torch.log,
    "log10": torch.log10,
    "log1p": torch.log1p,
    "log2": torch.log2,
    "neg": torch.neg,
    "reciprocal": torch.reciprocal,
    "round": torch.round,
    "sigmoid": torch.sigmoid,
    "sign": torch.sign,
    "sin": torch.sin,
    "sinh": torch.sinh,
    "sqrt": torch.sqrt,
    "tan": torch.tan,
    "tanh": torch.tanh,
    "trunc": torch.trunc,
}
_PREDICATE: dict[str, Function] = {
    "isfinite": torch.isfinite,
    "isnan": torch.isnan,
    "isneginf": torch.isneginf,
    "isposinf": torch.isposinf,
    "isreal": torch.isreal,
}
_BINARY: dict[str, Function] = {
    "add": torch.add,
    "clamp_max": torch.clamp_max,
    "clamp_min": torch.clamp_min,
    "div": torch.div,
    "maximum": _maximum,
    "minimum": _minimum,
    "mod": torch.remainder,
    "mul": torch.mul,
    "pow": torch.pow,
    "rsub": lambda x, y: y - x,
    "sub": torch.sub,
    "__add__": torch.add,
    "__mod__": torch.remainder,
    "__mul__": torch.mul,
    "__pow__": torch.pow,
    "__radd__": lambda x, y: y + x,
    "__rmul__": lambda x, y: y * x,
    "__rpow__": lambda x, y: torch.pow(y, x),
    "__rsub__": lambda x, y: y - x,
    "__rtruediv__": lambda x, y: y / x,
    "__sub__": torch.sub,
    "__truediv__": torch.div,
}
_COMPARISON: dict[str, Function] = {
    "__eq__": torch.eq,
    "__ne__": torch.ne,
    "__lt__": torch.lt,
    "__le__": torch.le,
    "__gt__": torch.gt,
    "__ge__": torch.ge,
}
# Rows of integers and truth values, which have tests of their own.
_BITS = ("bitwise_and", "logical_and", "__and__", "__rand__", "__or__", "__ror__", "__xor__", "__rxor__", "__invert__")


def _in_place(name: str, functions: dict[str, Function]) -> Function:
    """What the method `name` in place gives: that of `add_` is `add`, that of `__iadd__` is `__add__`."""
    return functions[name.replace("__i", "__") if name.startswith("__i") else name.removesuffix("_")]


def _rows(kind: str) -> list[str]:
    return [name for name, row in ROWS.items() if row.kind == kind and name not in _BITS]


PREDICATE = {name: _PREDICATE[name] for name in _rows("unary") if name in _PREDICATE}
SMOOTH = {name: _SMOOTH[name] for name in _rows("unary") if name not in _PREDICATE}
UNARY = {**SMOOTH, "__abs__": torch.abs, "__neg__": torch.neg}
UNARY_ = {name: torch.zeros_like if name == "zero_" else _in_place(name, _SMOOTH) for name in _rows("unary_")}
BINARY = {name: _BINARY[name] for name in _rows("binary")}
BINARY_ = {name: _in_place(name, _BINARY) for name in _rows("binary_")}
COMPARISON = {name: _COMPARISON[name] for name in _rows("comparison")}
# Methods of tensors that do in place what the method of the tensordict does, where they have another name.
TWINS = {"maximum_": "clamp_min_", "minimum_": "clamp_max_"}
