"""Gradients: detached trees, trees of `.data` and `.grad`, the flag."""

from __future__ import annotations

import torch
from torch import Tensor
from typing_extensions import Self

from tensordict._ops.rows import relock
from tensordict._ops.waist import Waist, leaves_of, map_leaves


class AutogradOps(Waist):
    """What tensordicts have of autograd."""

    __slots__ = ()

    def detach(self) -> Self:
        """The tensordict of detached leaves; they share storage with those of this one."""
        return relock(map_leaves(self, Tensor.detach), self)

    def detach_(self) -> Self:
        """Detaches every leaf in place."""
        for leaf in leaves_of(self):
            leaf.detach_()
        return self

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Sets the flag of every leaf."""
        for leaf in leaves_of(self):
            leaf.requires_grad_(requires_grad)
        return self

    @property
    def data(self) -> Self:
        """The tensordict of the `.data` of all leaves; they share storage with those of this one."""
        return relock(map_leaves(self, lambda leaf: leaf.data), self)

    def zero_grad(self, set_to_none: bool = True) -> Self:
        """Removes, or zeroes, the gradient of every leaf."""
        for leaf in leaves_of(self):
            if leaf.grad is not None:
                if set_to_none:
                    leaf.grad = None
                else:
                    with torch.no_grad():
                        leaf.grad.zero_()
        return self
