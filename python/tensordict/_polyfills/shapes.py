"""Twins of the functions on the shapes of many leaves."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from tensordict._kernel import native


def regrouped(leaves: list[Tensor], consumed: int, sizes: Sequence[int]) -> list[tuple[int, ...]]:
    """For each leaf `sizes`, then its own sizes behind the first `consumed`. The native function declines with None."""
    return [(*sizes, *leaf.shape[consumed:]) for leaf in leaves]


def all_fit(values: list[Any], sizes: Sequence[int]) -> bool:
    """Whether all values are tensors whose leading sizes are `sizes`."""
    return all([type(value) is Tensor and value.shape[: len(sizes)] == tuple(sizes) for value in values])


def all_tensors(values: list[Any]) -> bool:
    """Whether the type of all values is exactly `torch.Tensor`."""
    return all([type(value) is Tensor for value in values])


def same_shapes(leaves: list[Tensor], values: list[Any]) -> bool:
    """Whether each value is a tensor of the shape of the leaf at its place."""
    return all([type(value) is Tensor and value.shape == leaf.shape for leaf, value in zip(leaves, values)])


def plain_pairs(leaves: list[Tensor], values: list[Any]) -> bool:
    """Whether each value is a tensor of the shape of the leaf at its place, and neither requires a gradient."""
    return same_shapes(leaves, values) and not any([tensor.requires_grad for tensor in (*leaves, *values)])


def overwritten(targets: list[Tensor], sources: list[Tensor], parts: list[bool]) -> list[int]:
    """Which sources may change before they are copied: all, since compiled code has no addresses."""
    return list(range(len(sources)))


TWINS: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
    (native.all_fit, all_fit),
    (native.all_tensors, all_tensors),
    (native.overwritten, overwritten),
    (native.plain_pairs, plain_pairs),
    (native.regrouped, regrouped),
    (native.same_shapes, same_shapes),
]
