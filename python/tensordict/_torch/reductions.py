"""`torch.*` functions that reduce, sort, accumulate or pick elements along batch dimensions of tensordicts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Size, Tensor

from tensordict._kernel.change import Change
from tensordict._kernel.registry import PYTHON_FUNCTIONS, TORCH_FUNCTIONS
from tensordict._kernel.shapes import broadcast, expand_right
from tensordict._ops.autograd import grad, only
from tensordict._ops.reductions import batch_dim, over_one, reduce_tree, resized, unzip
from tensordict._ops.trees import collect, leaves_like, map_batched, refill, solid
from tensordict._types import TensorCollection
from tensordict.base import TensorDictBase, TensorDictOps


def extremum(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """`torch.max` and `torch.min`: of all, along a dimension, or of two operands."""

    def call(input: Any, dim: Any = None, keepdim: bool = False, *, other: Any = None) -> Any:
        second = dim if isinstance(dim, (Tensor, TensorCollection)) else other
        if second is None:
            return method(input, dim, keepdim)
        if isinstance(input, TensorDictOps):
            return getattr(input, name)(second)
        return getattr(second, name)(input)

    return call


def flag(function: Callable[..., Any], method: Callable[..., Any]) -> Callable[..., Any]:
    """`torch.all` and `torch.any`: a bool of everything, else a tensordict."""

    def call(input: Any, dim: Any = None, keepdim: bool = False) -> Any:
        return method(input) if dim is None else reduce_tree(input, function, dim, keepdim, None)

    return call


def deviation(method: Callable[..., Any]) -> Callable[..., Any]:
    """`torch.std` and `torch.var`, with the `unbiased` that torch also takes."""

    def call(
        input: Any,
        dim: Any = None,
        unbiased: bool | None = None,
        keepdim: bool = False,
        *,
        correction: Any = 1,
        **options: Any,
    ) -> Any:
        if isinstance(dim, bool):
            dim, unbiased = None, dim
        return method(input, dim, keepdim, correction=correction if unbiased is None else int(unbiased), **options)

    return call


def running(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of as many elements along a batch dimension, such as `torch.cumsum`."""

    def call(input: Any, dim: int, **options: Any) -> Any:
        at = batch_dim(input, dim)
        return map_batched(input, lambda leaf: function(leaf, at, **options))

    return call


def picked(function: Callable[..., Any], kind: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """A function that picks one element along a batch dimension, or of the whole leaf.

    With `kind`, along a dimension it gives the named tuple of values and indices.
    """

    def call(input: Any, dim: int | None = None, keepdim: bool = False) -> Any:
        if dim is None:
            return reduce_tree(input, over_one(function), None, keepdim, None)
        out = reduce_tree(input, function, batch_dim(input, dim), keepdim, None)
        return out if kind is None else unzip(out, kind)

    return call


def _sort(input: Any, dim: int = -1, descending: bool = False, stable: bool = False) -> Any:
    at = batch_dim(input, dim)
    pairs = map_batched(input, lambda leaf: torch.sort(leaf, dim=at, descending=descending, stable=stable))
    return unzip(pairs, torch.return_types.sort)


def _argsort(input: Any, dim: int = -1, descending: bool = False, stable: bool = False) -> Any:
    at = batch_dim(input, dim)
    return map_batched(input, lambda leaf: torch.argsort(leaf, dim=at, descending=descending, stable=stable))


def _topk(input: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    at = batch_dim(input, dim)
    pairs = resized(input, at, k, lambda leaf: torch.topk(leaf, k, at, largest, sorted))
    return unzip(pairs, torch.return_types.topk)


def _diff(input: Any, n: int = 1, dim: int = -1, prepend: Any = None, append: Any = None) -> Any:
    at = batch_dim(input, dim)
    parts = [part for part in (prepend, input, append) if part is not None]
    if not all(isinstance(part, TensorCollection) for part in parts):
        raise TypeError("torch.diff of a tensordict takes tensordicts of the same keys as prepend and append")
    whole: Any = torch.cat(parts, at) if len(parts) > 1 else input
    return resized(whole, at, max(0, whole.batch_size[at] - n), lambda leaf: torch.diff(leaf, n, at))


def _index_select(input: Any, dim: int, index: Tensor) -> Any:
    at = batch_dim(input, dim)
    return resized(input, at, index.numel(), lambda leaf: leaf.index_select(at, index), mixes=False)


def _take_along_dim(input: Any, indices: Any, dim: int | None = None) -> Any:
    if dim is None:
        return _take_along_dim(input.reshape(-1), indices.reshape(-1), 0)
    at, dims = batch_dim(input, dim), input.ndim
    shape = indices.shape
    others = [(*sizes[:at], 1, *sizes[at + 1 :]) for sizes in (input.batch_size, shape)]
    prefix = broadcast(others) if len(shape) == dims else None
    if prefix is None:
        raise RuntimeError(f"indices of shape {tuple(shape)} do not fit the batch size {tuple(input.batch_size)}")
    input = solid(input)
    leaves: list[Any] = []
    tree = collect(input, leaves)
    if isinstance(indices, TensorCollection):
        columns = leaves_like(tree, indices)
    else:
        columns = [expand_right(indices, (*shape, *leaf.shape[dims:])) for leaf in leaves]
    taken = [torch.take_along_dim(leaf, column, at) for leaf, column in zip(leaves, columns)]
    sizes = Size((*prefix[:at], shape[at], *prefix[at + 1 :]))
    return refill(tree, iter(taken), Change(lambda leaf: leaf, dims, sizes, range(dims), (at,)))


def _backward(tensors: Any, grad_tensors: Any = None, *args: Any, **kwargs: Any) -> None:
    only(tensors, "output").backward(only(grad_tensors, "grad_tensor"), *args, **kwargs)


TORCH_FUNCTIONS.update(
    {
        torch.all: flag(torch.all, TensorDictBase.all),
        torch.amax: TensorDictBase.amax,
        torch.amin: TensorDictBase.amin,
        torch.any: flag(torch.any, TensorDictBase.any),
        torch.argmax: picked(torch.argmax),
        torch.argmin: picked(torch.argmin),
        torch.argsort: _argsort,
        torch.cummax: TensorDictBase.cummax,
        torch.cummin: TensorDictBase.cummin,
        torch.cumprod: running(torch.cumprod),
        torch.cumsum: running(torch.cumsum),
        torch.detach: TensorDictBase.detach,
        torch.diff: _diff,
        torch.index_select: _index_select,
        torch.logcumsumexp: running(torch.logcumsumexp),
        torch.logsumexp: TensorDictBase.logsumexp,
        torch.max: extremum("maximum", TensorDictBase.max),
        torch.median: picked(torch.median, torch.return_types.median),
        torch.min: extremum("minimum", TensorDictBase.min),
        torch.nanmean: TensorDictBase.nanmean,
        torch.nanmedian: picked(torch.nanmedian, torch.return_types.nanmedian),
        torch.nansum: TensorDictBase.nansum,
        torch.prod: TensorDictBase.prod,
        torch.quantile: TensorDictBase.quantile,
        torch.sort: _sort,
        torch.std: deviation(TensorDictBase.std),
        torch.take_along_dim: _take_along_dim,
        torch.topk: _topk,
        torch.var: deviation(TensorDictBase.var),
    }
)
PYTHON_FUNCTIONS += [(torch.autograd.backward, _backward), (torch.autograd.grad, grad)]
