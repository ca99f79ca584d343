"""Elementwise comparison."""

from __future__ import annotations

import torch
from torch import Tensor

from tensordict._ops.makers import comparison
from tensordict._ops.waist import Waist


class CompareOps(Waist):
    """Comparison of all leaves."""

    __slots__ = ()

    __eq__ = comparison("__eq__", torch.eq, Tensor.eq, Tensor.__eq__, mirrored="__eq__")
    __ne__ = comparison("__ne__", torch.ne, Tensor.ne, mirrored="__ne__")
    __lt__ = comparison("__lt__", torch.lt, Tensor.lt, mirrored="__gt__")
    __le__ = comparison("__le__", torch.le, Tensor.le, mirrored="__ge__")
    __gt__ = comparison("__gt__", torch.gt, Tensor.gt, mirrored="__lt__")
    __ge__ = comparison("__ge__", torch.ge, Tensor.ge, mirrored="__le__")
    __hash__ = None  # type: ignore[assignment]
