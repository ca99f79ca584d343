"""Descriptions of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor
from typing_extensions import Self

from tensordict._tensorclass.cls import TensorClass


class TensorAttrs(TensorClass, nocast=True):
    """The device, dtype and shape of a tensor; None for what is not known.

    >>> import torch
    >>> from tensordict import TensorAttrs
    >>> TensorAttrs.from_tensor(torch.zeros(2, 3), fields=["shape"]).tgt_shape
    torch.Size([2, 3])
    """

    _describes = True

    tgt_device: Any = None
    tgt_dtype: Any = None
    tgt_shape: Any = None

    @classmethod
    def from_tensor(cls, tensor: Tensor, *, fields: Sequence[str] = ("device", "dtype", "shape")) -> Self:
        """The description of a tensor.

        Args:
            tensor: the tensor.
            fields: what is described: of `"device"`, `"dtype"` and `"shape"`.
        """
        return cls(**{f"tgt_{name}": getattr(tensor, name) for name in ("device", "dtype", "shape") if name in fields})


TensorAttrs.__module__ = "tensordict.tensorclass"
