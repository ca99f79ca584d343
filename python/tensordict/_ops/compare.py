"""Elementwise comparison, and the reductions of its results."""

from __future__ import annotations

from typing import Any

import torch

from tensordict._ops.reductions import reduce_flag
from tensordict._ops.rows import comparison
from tensordict._ops.waist import Waist


class CompareOps(Waist):
    """Comparison of all leaves."""

    __slots__ = ()

    __eq__ = comparison(torch.eq, "__eq__")
    __ne__ = comparison(torch.ne, "__ne__")
    __lt__ = comparison(torch.lt, "__lt__")
    __le__ = comparison(torch.le, "__le__")
    __gt__ = comparison(torch.gt, "__gt__")
    __ge__ = comparison(torch.ge, "__ge__")
    __hash__ = None  # type: ignore[assignment]

    def all(self, dim: int | None = None) -> Any:
        """Whether all elements are true: a `bool` without `dim`, else a tensordict with that batch dimension reduced.

        Raises:
            RuntimeError: `dim` is no batch dimension.
        """
        return reduce_flag(self, torch.all, all, dim)

    def any(self, dim: int | None = None) -> Any:
        """Whether any element is true: a `bool` without `dim`, else a tensordict with that batch dimension reduced.

        Raises:
            RuntimeError: `dim` is no batch dimension.
        """
        return reduce_flag(self, torch.any, any, dim)
