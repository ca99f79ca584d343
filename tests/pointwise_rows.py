"""The rows of pointwise mathematics: what each method gives for a leaf, in plain torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Function = Callable[..., Any]

# Each has a twin in place.
SMOOTH: dict[str, Function] = {
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
UNARY: dict[str, Function] = {**SMOOTH, "__abs__": torch.abs, "__neg__": torch.neg}
PREDICATE: dict[str, Function] = {
    "isfinite": torch.isfinite,
    "isnan": torch.isnan,
    "isneginf": torch.isneginf,
    "isposinf": torch.isposinf,
    "isreal": torch.isreal,
}
UNARY_: dict[str, Function] = {**{f"{name}_": function for name, function in SMOOTH.items()}, "zero_": torch.zeros_like}


def _maximum(x: Tensor, y: Any) -> Tensor:
    return torch.maximum(x, torch.as_tensor(y))


def _minimum(x: Tensor, y: Any) -> Tensor:
    return torch.minimum(x, torch.as_tensor(y))


BINARY: dict[str, Function] = {
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
BINARY_: dict[str, Function] = {
    "add_": torch.add,
    "clamp_max_": torch.clamp_max,
    "clamp_min_": torch.clamp_min,
    "div_": torch.div,
    "maximum_": _maximum,
    "minimum_": _minimum,
    "mul_": torch.mul,
    "pow_": torch.pow,
    "sub_": torch.sub,
    "__iadd__": torch.add,
    "__imul__": torch.mul,
    "__ipow__": torch.pow,
    "__isub__": torch.sub,
    "__itruediv__": torch.div,
}
# Methods of tensors that do in place what the method of the tensordict does, where they have another name.
TWINS = {"maximum_": "clamp_min_", "minimum_": "clamp_max_"}
