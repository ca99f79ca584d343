"""Arithmetic on shapes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Size, Tensor


def shape_of(value: Tensor) -> Size:
    """The shape of a tensor; of a nested one the leading dimensions that all its parts share, as far as torch tells."""
    if not value.is_nested or value.layout is not torch.strided:
        return value.shape
    sizes = []
    for dim in range(value.ndim):
        try:
            sizes.append(value.size(dim))
        except RuntimeError:
            break
    return Size(sizes)


def broadcasts_to(shape: Sequence[int], target: Sequence[int]) -> bool:
    """Whether a tensor of `shape` can be expanded to `target`."""
    if len(shape) > len(target):
        return False
    return all(size in (1, wanted) for size, wanted in zip(reversed(shape), reversed(target)))


def broadcast(shapes: Iterable[Sequence[int]]) -> Size | None:
    """The shape that all `shapes` can be expanded to, or None if there is none."""
    out: list[int] = []
    for shape in shapes:
        out = [1] * (len(shape) - len(out)) + out
        for place in range(1, len(shape) + 1):
            size, known = shape[-place], out[-place]
            if size not in (1, known) and known != 1:
                return None
            out[-place] = size if known == 1 else known
    return Size(out)
