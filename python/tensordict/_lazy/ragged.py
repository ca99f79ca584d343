"""Entries of unlike shapes as one value: nested, padded, or described only."""

from __future__ import annotations

from typing import Any

import torch
from torch import Size, Tensor


class Unlike:
    """What stands for entries of unlike shapes where only their shape is asked for; -1 for a size that differs."""

    def __init__(self, values: list[Any], shape: Size) -> None:
        first = values[0]
        self.shape = shape
        self.dtype = first.dtype
        self.device = first.device
        self.requires_grad = any(value.requires_grad for value in values)
        self._values = values

    def is_shared(self) -> bool:
        """Whether all entries are in shared memory."""
        return all(value.is_shared() for value in self._values)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)


Unlike.__name__ = "Tensor"


def unlike(values: list[Any], dim: int) -> Unlike:
    """The description of entries of unlike shapes, stacked along `dim`."""
    shapes = [value.shape for value in values]
    dims = min(map(len, shapes))
    common = [sizes[0] if len(set(sizes)) == 1 else -1 for sizes in zip(*(shape[:dims] for shape in shapes))]
    return Unlike(values, Size((*common[:dim], len(values), *common[dim:])))


def nested_of(values: list[Tensor], dim: int, *, layout: torch.layout | None = None, **_: Any) -> Tensor:
    """A nested tensor of entries that are stacked along the first dimension.

    Raises:
        RuntimeError: they are stacked along another one.
    """
    if dim:
        raise RuntimeError(f"nested tensors are stacked along their first dimension, and the stack dimension is {dim}")
    layout = torch.jagged if layout is None else layout
    if layout is torch.jagged:
        return _jagged(values)
    return (
        torch.nested.nested_tensor(values)
        if not any(v.requires_grad for v in values)
        else torch.nested.as_nested_tensor(values)
    )


def _jagged(values: list[Tensor]) -> Tensor:
    """A jagged tensor whose ragged dimension is the one in which the shapes differ, the first behind the stack if none does."""
    first = values[0].shape
    different = [dim for dim in range(len(first)) if len({value.shape[dim] for value in values}) > 1]
    at = different[0] if different else 0
    if len(different) > 1:
        raise RuntimeError(f"a jagged tensor has one ragged dimension; the shapes are {[value.shape for value in values]}")
    lengths = torch.tensor([0, *(value.shape[at] for value in values)], device=values[0].device)
    return torch.nested.nested_tensor_from_jagged(torch.cat(values, at), lengths.cumsum(0), jagged_dim=at + 1)


def padded_of(values: list[Tensor], dim: int, *, padding_value: float = 0.0, padding_side: str = "right", **_: Any) -> Tensor:
    """The entries padded to one shape and stacked along `dim`."""
    sizes = [max(column) for column in zip(*(value.shape for value in values))]
    padded = []
    for value in values:
        pads: list[int] = []
        for size, wanted in zip(reversed(value.shape), reversed(sizes)):
            pads += [0, wanted - size] if padding_side == "right" else [wanted - size, 0]
        padded.append(torch.nn.functional.pad(value, pads, value=padding_value) if any(pads) else value)
    return torch.stack(padded, dim)
