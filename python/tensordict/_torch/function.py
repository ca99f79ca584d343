"""`torch.*` functions of tensordicts: one line for each function that is a method, one function for each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tensordict._kernel.registry import TORCH_FUNCTIONS
from tensordict._ops.join import cat_tensordicts, stack_tensordicts
from tensordict._ops.waist import map_leaves
from tensordict.base import TensorDictBase


def _stack(input: Any, dim: int = 0, *, out: Any = None) -> Any:
    return stack_tensordicts(input, dim, out)


def _cat(input: Any, dim: int = 0, *, out: Any = None) -> Any:
    return cat_tensordicts(input, dim, out)


def like(function: Callable[..., Any]) -> Callable[..., Any]:
    """A `torch.*_like` function of a tensordict: of each leaf, with the lock of the tensordict."""

    def call(input: Any, *args: Any, **kwargs: Any) -> Any:
        out = map_leaves(input, lambda leaf: function(leaf, *args, **kwargs))
        if kwargs.get("device") is not None:
            out._label_device(torch.device(kwargs["device"]))
        return out.lock_() if input.is_locked else out

    return call


METHODS: tuple[tuple[Callable[..., Any], Callable[..., Any]], ...] = (
    (torch.abs, TensorDictBase.abs),
    (torch.add, TensorDictBase.add),
    (torch.chunk, TensorDictBase.chunk),
    (torch.clone, TensorDictBase.clone),
    (torch.div, TensorDictBase.div),
    (torch.flatten, TensorDictBase.flatten),
    (torch.gather, TensorDictBase.gather),
    (torch.lerp, TensorDictBase.lerp),
    (torch.mean, TensorDictBase.mean),
    (torch.mul, TensorDictBase.mul),
    (torch.neg, TensorDictBase.neg),
    (torch.permute, TensorDictBase.permute),
    (torch.reshape, TensorDictBase.reshape),
    (torch.split, TensorDictBase.split),
    (torch.squeeze, TensorDictBase.squeeze),
    (torch.sub, TensorDictBase.sub),
    (torch.sum, TensorDictBase.sum),
    (torch.transpose, TensorDictBase.transpose),
    (torch.unbind, TensorDictBase.unbind),
    (torch.unflatten, TensorDictBase.unflatten),
    (torch.unsqueeze, TensorDictBase.unsqueeze),
)
LIKE = (
    torch.empty_like,
    torch.full_like,
    torch.ones_like,
    torch.rand_like,
    torch.randn_like,
    torch.zeros_like,
)

TORCH_FUNCTIONS.update(METHODS)
TORCH_FUNCTIONS.update({function: like(function) for function in LIKE})


def _where(condition: Any, input: Any, other: Any, *, out: Any = None) -> Any:
    if not isinstance(input, TensorDictBase):
        return NotImplemented
    return input.where(condition, other, out=out)


TORCH_FUNCTIONS[torch.where] = _where
TORCH_FUNCTIONS.update({torch.stack: _stack, torch.cat: _cat, torch.concat: _cat, torch.concatenate: _cat})
