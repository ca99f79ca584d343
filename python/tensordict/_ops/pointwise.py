"""Pointwise mathematics: one row a method. The full table is a matter of more rows."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from typing_extensions import Self

from tensordict._ops.rows import binary, binary_, foreach_of, operand, relock, run_pairs, unary, unary_
from tensordict._ops.waist import Waist, leaves_of, refill


class PointwiseOps(Waist):
    """Arithmetic on all leaves."""

    __slots__ = ()

    abs = unary(torch.abs)
    neg = unary(torch.neg)
    __abs__ = abs
    __neg__ = neg
    abs_ = unary_("abs_")
    neg_ = unary_("neg_")
    zero_ = unary_("zero_")

    add = binary(torch.add)
    sub = binary(torch.sub)
    mul = binary(torch.mul)
    div = binary(torch.div)
    __add__ = __radd__ = add
    __sub__ = sub
    __rsub__ = binary(torch.sub, "__rsub__", reverse=True)
    __mul__ = __rmul__ = mul
    __truediv__ = div
    __rtruediv__ = binary(torch.div, "__rtruediv__", reverse=True)
    add_ = binary_("add_")
    sub_ = binary_("sub_")
    mul_ = binary_("mul_")
    div_ = binary_("div_")
    __iadd__ = add_
    __isub__ = sub_
    __imul__ = mul_
    __itruediv__ = div_

    def lerp(self, end: Any, weight: Any) -> Self:
        """Linear interpolation `leaf + weight * (end - leaf)` of each leaf towards that of `end`.

        Args:
            end: a tensordict of the same keys, or a tensor that broadcasts to the batch size.
            weight: a number, a tensor without dimensions, or a tensordict of the same keys.
        """
        leaves, ends = leaves_of(self), _columns(self, end)
        weights = operand(self, weight)
        if isinstance(weights, list):
            out = [torch.lerp(*row) for row in zip(leaves, ends, weights)]
        else:
            out = run_pairs(leaves, ends, torch.lerp, foreach_of("lerp") if _is_number(weights) else None, weights)
        return relock(refill(self, iter(out)), self)

    def lerp_(self, end: Any, weight: Any) -> Self:
        """`lerp` in place: the step of a moving average. Also of a locked tensordict. Returns the tensordict itself."""
        leaves, ends = leaves_of(self), _columns(self, end)
        weights = operand(self, weight)
        if isinstance(weights, list):
            for leaf, other, amount in zip(leaves, ends, weights):
                leaf.lerp_(other, amount)
        else:
            run_pairs(leaves, ends, Tensor.lerp_, foreach_of("lerp_") if _is_number(weights) else None, weights)
        self._wrote(leaves)
        return self


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float))


def _columns(node: Any, other: Any) -> list[Any]:
    """The second operand of each leaf, as a list."""
    others = operand(node, other)
    return others if isinstance(others, list) else [others] * len(leaves_of(node))
