"""Twins of the row functions: what each computes, in plain torch, for `torch.compile` and the property tests.

The native functions return the same tensors, or `None` where they leave the work to torch; the twins do so only for
leaves without a batch, which are not joined.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tensordict._kernel import native
from tensordict._leaves.unbatched import is_unbatched


def gather(leaves: list[Tensor], index: Tensor, dim: int) -> list[Tensor]:
    """`leaf[..., index, ...]` for each leaf, the index at dimension `dim`: its dimensions stand in the place of that one."""
    where = (slice(None),) * dim + (index,)
    return [leaf[where] for leaf in leaves]


def stack_dicts(dicts: list[dict[str, Tensor]], keys: list[str], dim: int) -> list[Tensor] | None:
    """`torch.stack` of what the dicts hold at each of the keys."""
    if any([is_unbatched(dicts[0][key]) for key in keys]):
        return None
    return [torch.stack([entries[key] for entries in dicts], dim) for key in keys]


def cat(columns: list[list[Tensor]], dim: int) -> list[Tensor]:
    """`torch.cat` of each column; a column holds the same leaf of each input."""
    return [torch.cat(column, dim) for column in columns]


def cat_dicts(dicts: list[dict[str, Tensor]], keys: list[str], dim: int) -> list[Tensor] | None:
    """`torch.cat` of what the dicts hold at each of the keys."""
    if any([is_unbatched(dicts[0][key]) for key in keys]):
        return None
    return [torch.cat([entries[key] for entries in dicts], dim) for key in keys]


def _filled(leaf: Tensor, dim: int, size: int, value: float, left: bool) -> Tensor:
    missing = size - leaf.shape[dim]
    around = [missing, 0] if left else [0, missing]
    return torch.nn.functional.pad(leaf, [0] * (2 * (leaf.ndim - dim - 1)) + around, value=value)


def pad_stack(columns: list[list[Tensor]], dim: int, value: float, left: bool = False) -> list[Tensor]:
    """The leaves of each column stacked, each filled up along `dim` with `value` to the longest.

    Args:
        columns: the same leaf of each input, `(..., L, ...)` with `L`, the size of dimension `dim`, its own for each.
        dim: the dimension, counted without the one that stacking adds.
        value: what is filled in.
        left: whether it stands at the start and not at the end.

    Returns:
        For each column a new tensor `(N, ..., max(L), ...)`.
    """
    stacked = []
    for column in columns:
        longest = max(leaf.shape[dim] for leaf in column)
        stacked.append(torch.stack([_filled(leaf, dim, longest, value, left) for leaf in column]))
    return stacked


def pad_stack_dicts(
    dicts: list[dict[str, Tensor]], keys: list[str], dim: int, value: float, left: bool = False
) -> list[Tensor]:
    """`pad_stack` of what the dicts hold at each of the keys."""
    return pad_stack([[entries[key] for entries in dicts] for key in keys], dim, value, left)


def is_plain(leaves: list[Tensor]) -> bool:
    """Always false: compiled code goes leaf by leaf, and the compiler fuses what it can."""
    return False


TWINS: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
    (native.cat, cat),
    (native.cat_dicts, cat_dicts),
    (native.gather, gather),
    (native.is_plain, is_plain),
    (native.pad_stack, pad_stack),
    (native.pad_stack_dicts, pad_stack_dicts),
    (native.stack_dicts, stack_dicts),
]
