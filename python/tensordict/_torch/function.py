"""`torch.*` functions of tensordicts: one line for each function that is a method, one function for each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tensordict._kernel.registry import TORCH_FUNCTIONS
from tensordict._kernel.settings import LAZY_LEGACY
from tensordict._ops.join import cat_tensordicts, stack_tensordicts
from tensordict._ops.trees import map_leaves
from tensordict._reexport import lazy_stack
from tensordict.base import TensorDictBase, TensorDictOps


def _stack(input: Any, dim: int = 0, *, out: Any = None) -> Any:
    if LAZY_LEGACY.value:
        return lazy_stack(input, dim, out)
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
    (torch.atleast_1d, TensorDictBase.atleast_1d),
    (torch.atleast_2d, TensorDictBase.atleast_2d),
    (torch.atleast_3d, TensorDictBase.atleast_3d),
    (torch.broadcast_to, TensorDictBase.broadcast_to),
    (torch.chunk, TensorDictBase.chunk),
    (torch.clone, TensorDictBase.clone),
    (torch.flatten, TensorDictBase.flatten),
    (torch.flip, TensorDictBase.flip),
    (torch.fliplr, TensorDictBase.fliplr),
    (torch.flipud, TensorDictBase.flipud),
    (torch.gather, TensorDictBase.gather),
    (torch.masked_fill, TensorDictBase.masked_fill),
    (torch.masked_select, TensorDictBase.masked_select),
    (torch.mean, TensorDictBase.mean),
    (torch.moveaxis, TensorDictBase.movedim),
    (torch.movedim, TensorDictBase.movedim),
    (torch.narrow, TensorDictBase.narrow),
    (torch.permute, TensorDictBase.permute),
    (torch.repeat_interleave, TensorDictBase.repeat_interleave),
    (torch.reshape, TensorDictBase.reshape),
    (torch.roll, TensorDictBase.roll),
    (torch.rot90, TensorDictBase.rot90),
    (torch.split, TensorDictBase.split),
    (torch.squeeze, TensorDictBase.squeeze),
    (torch.sum, TensorDictBase.sum),
    (torch.swapaxes, TensorDictBase.swapaxes),
    (torch.tile, TensorDictBase.tile),
    (torch.transpose, TensorDictBase.transpose),
    (torch.unbind, TensorDictBase.unbind),
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
    if isinstance(input, TensorDictOps):
        return input.where(condition, other, out=out)
    return other.where(condition.logical_not(), input, out=out)


def _swapdims(input: Any, dim0: int, dim1: int) -> Any:
    return input.transpose(dim0, dim1)


def _unflatten(input: Any, dim: int, sizes: Any) -> Any:
    return input.unflatten(dim, sizes)


def _tensor_split(
    input: Any, indices_or_sections: Any = None, dim: int = 0, *, indices: Any = None, sections: Any = None
) -> Any:
    given = [cuts for cuts in (indices_or_sections, indices, sections) if cuts is not None]
    if len(given) != 1:
        raise TypeError("tensor_split takes either the indices or the number of sections")
    return input.tensor_split(given[0], dim)


TORCH_FUNCTIONS[torch.where] = _where
TORCH_FUNCTIONS.update({torch.swapdims: _swapdims, torch.unflatten: _unflatten, torch.tensor_split: _tensor_split})
TORCH_FUNCTIONS.update({torch.stack: _stack, torch.cat: _cat, torch.concat: _cat, torch.concatenate: _cat})
