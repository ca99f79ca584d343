"""Pointwise mathematics: one row a method."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from typing_extensions import Self

from tensordict._ops.leafwise import combine, combine_, foreach_of, relock
from tensordict._ops.makers import binary, binary_, comparison, operator, row, scaled, scaled_, unary, unary_
from tensordict._ops.trees import collect, leaves_like
from tensordict._ops.waist import Waist
from tensordict._types import TensorCollection


def maximum(leaf: Tensor, other: Any) -> Tensor:
    """`torch.maximum` that takes a number too."""
    return torch.maximum(leaf, other) if isinstance(other, Tensor) else torch.clamp_min(leaf, other)


def minimum(leaf: Tensor, other: Any) -> Tensor:
    """`torch.minimum` that takes a number too."""
    return torch.minimum(leaf, other) if isinstance(other, Tensor) else torch.clamp_max(leaf, other)


def _clamp(leaf: Tensor, low: Any, high: Any) -> Tensor:
    if isinstance(low, Tensor) is isinstance(high, Tensor):
        return torch.clamp(leaf, low, high)
    return torch.clamp_max(torch.clamp_min(leaf, low), high)


class PointwiseOps(Waist):
    """Arithmetic on all leaves."""

    __slots__ = ()

    abs = unary(torch.abs, torch.absolute)
    acos = unary(torch.acos, torch.arccos)
    asin = unary(torch.asin, torch.arcsin)
    atan = unary(torch.atan, torch.arctan)
    ceil = unary(torch.ceil)
    cos = unary(torch.cos)
    cosh = unary(torch.cosh)
    erf = unary(torch.erf)
    erfc = unary(torch.erfc)
    exp = unary(torch.exp)
    expm1 = unary(torch.expm1)
    floor = unary(torch.floor)
    frac = unary(torch.frac)
    isfinite = unary(torch.isfinite)
    isnan = unary(torch.isnan)
    isneginf = unary(torch.isneginf)
    isposinf = unary(torch.isposinf)
    isreal = unary(torch.isreal)
    lgamma = unary(torch.lgamma)
    log = unary(torch.log)
    log10 = unary(torch.log10)
    log1p = unary(torch.log1p)
    log2 = unary(torch.log2)
    neg = unary(torch.neg, torch.negative)
    reciprocal = unary(torch.reciprocal)
    round = unary(torch.round)
    sigmoid = unary(torch.sigmoid)
    sign = unary(torch.sign)
    sin = unary(torch.sin)
    sinh = unary(torch.sinh)
    sqrt = unary(torch.sqrt)
    tan = unary(torch.tan)
    tanh = unary(torch.tanh)
    trunc = unary(torch.trunc, torch.fix)
    __abs__ = abs
    __invert__ = unary(torch.bitwise_not, name="__invert__")
    __neg__ = neg

    abs_ = unary_("abs_")
    acos_ = unary_("acos_")
    asin_ = unary_("asin_")
    atan_ = unary_("atan_")
    ceil_ = unary_("ceil_")
    cos_ = unary_("cos_")
    cosh_ = unary_("cosh_")
    erf_ = unary_("erf_")
    erfc_ = unary_("erfc_")
    exp_ = unary_("exp_")
    expm1_ = unary_("expm1_")
    floor_ = unary_("floor_")
    frac_ = unary_("frac_")
    lgamma_ = unary_("lgamma_")
    log_ = unary_("log_")
    log10_ = unary_("log10_")
    log1p_ = unary_("log1p_")
    log2_ = unary_("log2_")
    neg_ = unary_("neg_")
    reciprocal_ = unary_("reciprocal_")
    round_ = unary_("round_")
    sigmoid_ = unary_("sigmoid_")
    sign_ = unary_("sign_")
    sin_ = unary_("sin_")
    sinh_ = unary_("sinh_")
    sqrt_ = unary_("sqrt_")
    tan_ = unary_("tan_")
    tanh_ = unary_("tanh_")
    trunc_ = unary_("trunc_")
    zero_ = unary_("zero_")

    add = scaled(torch.add, Tensor.add)
    sub = scaled(torch.sub, torch.subtract, Tensor.sub)
    rsub = scaled(torch.rsub, factor_of="self")
    mul = binary(torch.mul, torch.multiply, Tensor.mul)
    div = binary(torch.div, torch.divide, torch.true_divide, Tensor.div)
    pow = binary(torch.pow, Tensor.pow)
    maximum = binary(torch.maximum, leaf=maximum)
    minimum = binary(torch.minimum, leaf=minimum)
    clamp_max = binary(torch.clamp_max)
    bitwise_and = binary(torch.bitwise_and, Tensor.bitwise_and, Tensor.__and__)
    logical_and = binary(torch.logical_and)
    mod = operator("mod", torch.remainder, torch.remainder, Tensor.remainder)

    __add__ = operator("__add__", torch.add)
    __radd__ = operator("__radd__", torch.add)
    __sub__ = operator("__sub__", torch.sub)
    __rsub__ = operator("__rsub__", torch.rsub)
    __mul__ = operator("__mul__", torch.mul)
    __rmul__ = operator("__rmul__", torch.mul)
    __truediv__ = operator("__truediv__", torch.div)
    __rtruediv__ = operator("__rtruediv__", torch.div, reverse=True)
    __mod__ = operator("__mod__", torch.remainder)
    __pow__ = operator("__pow__", torch.pow)
    __rpow__ = operator("__rpow__", torch.pow, reverse=True)
    __and__ = operator("__and__", torch.bitwise_and)
    __rand__ = operator("__rand__", torch.bitwise_and)
    __or__ = comparison("__or__", torch.bitwise_or, Tensor.bitwise_or, Tensor.__or__, mirrored="__or__")
    __ror__ = comparison("__ror__", torch.bitwise_or)
    __xor__ = comparison("__xor__", torch.bitwise_xor, Tensor.bitwise_xor, Tensor.__xor__, mirrored="__xor__")
    __rxor__ = comparison("__rxor__", torch.bitwise_xor)

    add_ = scaled_("add_")
    mul_ = binary_("mul_")
    div_ = binary_("div_")
    pow_ = binary_("pow_")
    maximum_ = binary_("maximum_", leaf=Tensor.clamp_min_)
    minimum_ = binary_("minimum_", leaf=Tensor.clamp_max_)
    clamp_max_ = binary_("clamp_max_")
    clamp_min_ = binary_("clamp_min_")
    __iadd__ = binary_("add_", "__iadd__")
    __isub__ = binary_("sub_", "__isub__")
    __imul__ = binary_("mul_", "__imul__")
    __itruediv__ = binary_("div_", "__itruediv__")
    __ipow__ = binary_("pow_", "__ipow__")

    @row("binary_")
    def sub_(self, other: Any, alpha: Any = None) -> Self:
        """`torch.Tensor.sub_` of each leaf, in place. Also of a locked tensordict. Returns the tensordict itself."""
        return _sub_(self, other, alpha=alpha)

    @row("binary", torch.clamp_min)
    def clamp_min(self, other: Any, default: Any = None) -> Self:
        """`torch.clamp_min` of each leaf and a tensordict, a number or a tensor: see `clamp_max`."""
        return _clamp_min(self, other, default=default)

    @row("other", torch.clamp, torch.clip)
    def clamp(self, min: Any = None, max: Any = None, *, out: Any = None) -> Self:
        """`torch.clamp` of each leaf: an unlocked tensordict.

        Args:
            min: the lower bound, if there is one: a number, a tensor that broadcasts against the batch size, or a tensordict.
            max: the upper bound, a tensordict if and only if the other one is.
            out: a tensordict of the same keys and dtypes, to write the result into.

        Raises:
            KeyError: a bound lacks a key, or `out` has other keys.
            TypeError: there is no bound.
            ValueError: one bound is a tensordict and the other one is not.
        """
        if max is None:
            if min is None:
                raise TypeError("clamp() takes min, max, or both; got neither")
            result = combine(self, torch.clamp_min, foreach_of("clamp_min"), min)
        elif min is None:
            result = combine(self, torch.clamp_max, foreach_of("clamp_max"), max)
        elif isinstance(min, TensorCollection) is not isinstance(max, TensorCollection):
            raise ValueError(
                f"clamp() takes two tensordicts or none, got a {type(min).__name__} as min and a {type(max).__name__} as max"
            )
        else:
            plain = not isinstance(min, Tensor) and not isinstance(max, Tensor)
            result = combine(self, torch.clamp if plain else _clamp, None, min, max, strict=False)
        return result if out is None else _write(result, out)

    @row("other", torch.addcdiv)
    def addcdiv(self, other1: Any, other2: Any, value: Any = 1) -> Self:
        """`leaf + value * other1 / other2` of each leaf, with tensordicts that have the keys, or tensors over the batch."""
        return relock(combine(self, torch.addcdiv, _ADDCDIV, other1, other2, strict=False, value=value), self)

    def addcdiv_(self, other1: Any, other2: Any, *, value: Any = 1) -> Self:
        """`addcdiv` in place. Also of a locked tensordict. Returns the tensordict itself."""
        return combine_(self, Tensor.addcdiv_, _ADDCDIV_, other1, other2, value=value)

    @row("other", torch.addcmul)
    def addcmul(self, other1: Any, other2: Any, *, value: Any = 1) -> Self:
        """`leaf + value * other1 * other2` of each leaf, with tensordicts that have the keys, or tensors over the batch."""
        return relock(combine(self, torch.addcmul, _ADDCMUL, other1, other2, strict=False, value=value), self)

    def addcmul_(self, other1: Any, other2: Any, *, value: Any = 1) -> Self:
        """`addcmul` in place. Also of a locked tensordict. Returns the tensordict itself."""
        return combine_(self, Tensor.addcmul_, _ADDCMUL_, other1, other2, value=value)

    @row("other", torch.lerp)
    def lerp(self, end: Any, weight: Any) -> Self:
        """Linear interpolation `leaf + weight * (end - leaf)` of each leaf towards that of `end`.

        Args:
            end: a tensordict that has the keys, or a tensor that broadcasts against the batch size.
            weight: a number, or what `end` may be.

        Raises:
            KeyError: a tensordict lacks a key.
            RuntimeError: the shapes do not broadcast.
        """
        return relock(combine(self, torch.lerp, _LERP, end, weight, strict=False), self)

    def lerp_(self, end: Any, weight: Any) -> Self:
        """`lerp` in place: the step of a moving average. Also of a locked tensordict. Returns the tensordict itself."""
        return combine_(self, Tensor.lerp_, _LERP_, end, weight)


_sub_: Any = scaled_("sub_")
_clamp_min: Any = binary(torch.clamp_min)
_ADDCDIV, _ADDCDIV_ = foreach_of("addcdiv"), foreach_of("addcdiv_")
_ADDCMUL, _ADDCMUL_ = foreach_of("addcmul"), foreach_of("addcmul_")
_LERP, _LERP_ = foreach_of("lerp"), foreach_of("lerp_")


def _write(result: Any, out: Any) -> Any:
    """Writes the leaves of `result` into those of `out`, once all are known to fit."""
    targets: list[Any] = []
    values = leaves_like(collect(out, targets), result)
    for target, value in zip(targets, values):
        if target.shape != value.shape or target.dtype != value.dtype:
            raise RuntimeError(
                f"out has a leaf of shape {tuple(target.shape)} and {target.dtype} for a result of shape {tuple(value.shape)} "
                f"and {value.dtype}"
            )
    return combine_(out, Tensor.copy_, foreach_of("copy_"), result)
