"""Reductions over batch dimensions, over the feature dimensions, or over everything."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Size, Tensor

from tensordict._kernel.change import Change
from tensordict._ops.waist import Waist, leaves_of, map_leaves, transform
from tensordict._types import NO_DEFAULT


def batch_dim(node: Any, dim: int) -> int:
    """`dim` counted from the front.

    Raises:
        IndexError: it is no batch dimension.
    """
    dims = len(node.batch_size)
    if not -dims <= dim < dims:
        raise IndexError(f"Incompatible dim {dim} for tensordict with batch dims {dims}.")
    return dim % dims


def reduced(node: Any, dims: tuple[int, ...], keepdim: bool, leaf: Callable[[Any], Any]) -> Change:
    """The change that a reduction of the batch dimensions `dims` makes."""
    batch_size = node.batch_size
    kept = [place for place in range(len(batch_size)) if keepdim or place not in dims]
    sizes = [1 if place in dims else batch_size[place] for place in kept]
    return Change(leaf, len(batch_size), Size(sizes), kept)


def reduce_flag(node: Any, function: Callable[..., Tensor], whole: Callable[[Iterable[bool]], bool], dim: int | None) -> Any:
    """`all` and `any`."""
    if dim is None:
        return whole(bool(function(leaf)) for leaf in leaves_of(node))
    dims = len(node.batch_size)
    if not -dims <= dim < dims:
        raise RuntimeError(
            f"dim must be greater than or equal to -tensordict.batch_dims and smaller than tensordict.batch_dims, got {dim} "
            f"with the batch size {node.batch_size}"
        )
    dim %= dims
    return transform(node, reduced(node, (dim,), False, lambda leaf: function(leaf, dim)))


def reduction(function: Callable[..., Any]) -> Callable[..., Any]:
    """A method that reduces each leaf with `function(leaf, dim, keepdim, dtype=dtype)`."""
    name = function.__name__

    def method(
        self: Any, dim: Any = NO_DEFAULT, keepdim: Any = NO_DEFAULT, *, dtype: Any = None, reduce: bool | None = None
    ) -> Any:
        keep = keepdim is not NO_DEFAULT and bool(keepdim)
        if reduce:
            return _over_leaves(self, function, dim, keep, dtype)
        if dim is NO_DEFAULT or dim is None or dim == "feature":
            return _features(self, function, dim == "feature", keep, dtype)
        dims = tuple(batch_dim(self, one) for one in (dim if isinstance(dim, (tuple, list)) else (dim,)))
        dims = dims or tuple(range(len(self.batch_size)))
        options = {} if dtype is None else {"dtype": dtype}
        which = dims[0] if len(dims) == 1 else dims  # one integer costs torch less than a tuple of one

        def leaf(value: Tensor) -> Tensor:
            return function(value, which, keep, **options) if keep or options else function(value, which)

        return transform(self, reduced(self, dims, keep, leaf))

    method.__name__ = name
    method.__qualname__ = f"TensorDictBase.{name}"
    method.__doc__ = f"""`torch.{name}` of each leaf.

    Args:
        dim: a batch dimension or a tuple of them; `"feature"` for the dimensions behind the batch; not given, all dimensions
            of each leaf.
        keepdim: keep reduced dimensions with size 1.
        dtype: of the results.
        reduce: also reduce over the leaves: the result is one tensor.

    Raises:
        IndexError: `dim` is no batch dimension.
    """
    return method


def _features(node: Any, function: Callable[..., Any], feature: bool, keep: bool, dtype: Any) -> Any:
    batch_dims = len(node.batch_size) if feature else 0

    def leaf(value: Tensor) -> Tensor:
        dims = tuple(range(batch_dims, value.ndim))
        if not dims:
            return value if dtype is None else value.to(dtype)
        return function(value, dims, keep, dtype=dtype)

    if feature:
        # nodes below with more batch dimensions lose those: their leaves are reduced to the batch of the root
        batch_size = node.batch_size
        return _rebatched(map_leaves(node, leaf), batch_size)
    return _rebatched(map_leaves(node, leaf), Size([1] * len(node.batch_size)) if keep else Size(()))


def _rebatched(node: Any, batch_size: Size) -> Any:
    names = node._names if len(node.batch_size) == len(batch_size) else None
    fields = {
        key: _rebatched(value, batch_size) if isinstance(value, Waist) else value for key, value in node._fields().items()
    }
    return node._rebuild(fields, batch_size, node.device, names)


def _over_leaves(node: Any, function: Callable[..., Any], dim: Any, keep: bool, dtype: Any) -> Tensor:
    leaves = leaves_of(node)
    if dim is NO_DEFAULT or dim is None:
        return function(torch.stack([function(leaf, dtype=dtype) for leaf in leaves]), dtype=dtype)
    if dim == "feature":
        batch_dims = len(node.batch_size)
        flat = [leaf.flatten(batch_dims) if leaf.ndim > batch_dims else leaf.unsqueeze(-1) for leaf in leaves]
        return function(torch.cat(flat, -1), -1, keep, dtype=dtype)
    dims = tuple(batch_dim(node, one) for one in (dim if isinstance(dim, (tuple, list)) else (dim,)))
    parts = [function(leaf, dims, keep, dtype=dtype) for leaf in leaves]
    return function(torch.stack(parts), 0, dtype=dtype)


class ReductionOps(Waist):
    """Reductions of all leaves."""

    __slots__ = ()

    sum = reduction(torch.sum)
    mean = reduction(torch.mean)
