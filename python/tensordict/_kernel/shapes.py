"""Arithmetic on shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

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


def expand_as_right(tensor: Tensor, dest: Tensor) -> Tensor:
    """`tensor` with dimensions added on the right and expanded to the shape of `dest`; storage is shared.

    Where `dest` is nested, the new dimensions have a size of 1.

    Raises:
        RuntimeError: the shape of `tensor` is not that of the leading dimensions of `dest`, up to sizes of 1.

    >>> import torch
    >>> expand_as_right(torch.tensor([True, False]), torch.zeros(2, 3)).shape
    torch.Size([2, 3])
    """
    if dest.ndim < tensor.ndim:
        raise RuntimeError(
            "expand_as_right requires the destination tensor to have at least as many dimensions as the input tensor, got "
            f"tensor.ndimension()={tensor.ndim} and dest.ndimension()={dest.ndim}"
        )
    if dest.is_nested:
        return tensor.reshape(tensor.shape + (1,) * (dest.ndim - tensor.ndim))
    if not broadcasts_to(tensor.shape, dest.shape[: tensor.ndim]):
        raise RuntimeError(f"tensor shape is incompatible with dest shape, got: tensor.shape={tensor.shape}, dest={dest.shape}")
    return expand_right(tensor, dest.shape)


def wrap(dim: int, dims: int, refusal: Callable[[], Exception] | None = None) -> int:
    """A batch dimension counted from the front: the one place where that is checked.

    Args:
        dim: the dimension; counted from behind if negative.
        dims: how many there are.
        refusal: makes the error where there is no such dimension, an `IndexError` if not given.
    """
    if -dims <= dim < dims:
        return dim % dims
    raise IndexError(f"Incompatible dim {dim} for tensordict with {dims} batch dimensions.") if refusal is None else refusal()


def expand_right(tensor: Tensor, shape: Sequence[int]) -> Tensor:
    """`tensor` with dimensions added on the right and expanded to `shape`; storage is shared.

    Raises:
        RuntimeError: the tensor does not expand to `shape`.
    """
    if isinstance(tensor, Tensor):
        wide = tensor.reshape(tensor.shape + (1,) * (len(shape) - tensor.ndim))
    else:  # a tensordict, whose names stay with their dimensions
        wide = tensor
        for _ in range(len(shape) - tensor.ndim):
            wide = wide.unsqueeze(-1)
    return wide.expand(tuple(shape))


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
