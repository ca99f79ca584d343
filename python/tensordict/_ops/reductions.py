"""Reductions over batch dimensions, over the feature dimensions, or over everything.

A row is a torch function that takes `(leaf, dim, keepdim=...)`; `reduce_tree` decides which dimensions of each leaf those are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch import Size, Tensor
from typing_extensions import Self

from tensordict._kernel.change import Change
from tensordict._kernel.registry import is_branch
from tensordict._kernel.shapes import wrap
from tensordict._leaves.unbatched import is_unbatched, moved
from tensordict._ops.leafwise import foreach_of, relock, run
from tensordict._ops.trees import leaves_of, map_batched, map_leaves, solid, transform
from tensordict._ops.waist import Waist
from tensordict._types import NO_DEFAULT, TensorCollection

# `function(leaf, dim, keepdim=..., **options)`, and without `dim` of the whole leaf.
Reduction = Callable[..., Any]


def batch_dim(node: Any, dim: Any) -> int:
    """`dim` counted from the front.

    Raises:
        IndexError: it is no batch dimension.
        TypeError: it is no integer.
    """
    if isinstance(dim, bool) or not hasattr(dim, "__index__"):
        raise TypeError(f"dim must be an integer, a tuple of integers or 'feature', got {dim!r} of type {type(dim).__name__}")
    return int(wrap(dim, len(node.batch_size)))


def batch_dims_of(node: Any, dim: Any) -> tuple[int, ...]:
    """One dimension, or a tuple or list of them, each counted from the front.

    Raises:
        IndexError: one is no batch dimension.
        RuntimeError: one is given twice.
    """
    dims = tuple([batch_dim(node, one) for one in (dim if isinstance(dim, (tuple, list)) else (dim,))])
    if len(set(dims)) != len(dims):
        raise RuntimeError(f"a dim appears multiple times in {dim}")
    return dims


def reduced(node: Any, dims: tuple[int, ...], keepdim: bool, leaf: Callable[[Any], Any], lead: tuple[int, ...] = ()) -> Change:
    """The change that a reduction of the batch dimensions `dims` makes; `lead` are new dimensions in front."""
    batch_size = node.batch_size
    kept = [place for place in range(len(batch_size)) if keepdim or place not in dims]
    sizes = [1 if place in dims else batch_size[place] for place in kept]
    return Change(leaf, len(batch_size), Size((*lead, *sizes)), [*[None] * len(lead), *kept], dims)


def resized(node: Any, dim: int, size: int, leaf: Callable[[Any], Any], mixes: bool = True) -> Any:
    """A tree like `node` with `leaf` of each leaf, which gives the batch dimension `dim` another size.

    Args:
        node: the tensordict.
        dim: the dimension.
        size: its new size.
        leaf: what is applied to each leaf.
        mixes: whether elements of the result stand for several of the leaf.
    """
    node, batch_size = solid(node), node.batch_size
    prefix = Size((*batch_size[:dim], size, *batch_size[dim + 1 :]))
    return transform(node, Change(leaf, len(batch_size), prefix, range(len(batch_size)), (dim,) if mixes else None))


def unzip(tree: Any, kind: Callable[[tuple[Any, Any]], Any]) -> Any:
    """From a tree of pairs the pair of trees, as the named tuple `kind` of torch."""
    return kind(tuple([map_leaves(tree, partial(_half, place)) for place in (0, 1)]))


def _half(place: int, pair: Any) -> Any:
    return pair if is_unbatched(pair) else pair[place]


def over_one(function: Reduction) -> Reduction:
    """A reduction of several dimensions by one that takes a single one: they are merged first."""

    def call(value: Tensor, dim: Any = None, keepdim: bool = False, **options: Any) -> Any:
        if dim is None:
            return function(value, **options)
        if isinstance(dim, int):
            return function(value, dim, keepdim=keepdim, **options)
        kept = [place for place in range(value.ndim) if place not in dim]
        out = function(value.permute(*kept, *dim).flatten(len(kept)), len(kept), **options)
        lead = out.ndim - len(kept)
        for place in sorted(dim) if keepdim else ():
            out = out.unsqueeze(place + lead)
        return out

    call.__name__ = function.__name__
    return call


def is_whole(dim: Any) -> bool:
    """Whether `dim` stands for all dimensions of a leaf, as an empty tuple does in torch."""
    return dim is NO_DEFAULT or dim is None or (isinstance(dim, (tuple, list)) and not dim)


def reduce_tree(
    node: Any,
    function: Reduction,
    dim: Any,
    keepdim: Any,
    reduce: bool | None,
    rename: Callable[[Any], Any] | None = None,
    lead: tuple[int, ...] = (),
    **options: Any,
) -> Any:
    """`function` over the dimensions that `dim` means: of each leaf, or of all leaves together with `reduce`."""
    keep = keepdim is not NO_DEFAULT and bool(keepdim)
    whole = is_whole(dim)
    if reduce:
        return _over_leaves(node if whole else solid(node), function, dim, keep, options)
    if whole or isinstance(dim, str):
        node = solid(node)
    if whole:
        out = _whole(node, function, keep, lead, options)
    elif isinstance(dim, str):
        out = _features(node, function, dim, keep, lead, options)
    else:
        out = _batch(node, function, batch_dims_of(node, dim), keep, lead, options)
    return out if rename is None else _renamed(out, rename)


def _batch(
    node: Any, function: Reduction, dims: tuple[int, ...], keep: bool, lead: tuple[int, ...], options: dict[str, Any]
) -> Any:
    which = dims[0] if len(dims) == 1 else dims  # one integer costs torch less than a tuple of one

    def leaf(value: Any) -> Any:
        if keep or options:
            return function(value, which, keepdim=keep, **options)
        return function(value, which) if dims else function(value.unsqueeze(-1), -1)

    return transform(node, reduced(node, dims, keep, leaf, lead))


def _each(node: Any, plan: Callable[[Any], Change]) -> Any:
    """A tree like `node` with the change that `plan` makes for each node made to its own leaves."""
    change = plan(node)
    if not is_branch(node):
        return node._transform(change)
    pieces = node._pieces()
    for key, part in pieces.items():
        if isinstance(part, TensorCollection):
            pieces[key] = _each(part, plan)
        else:
            pieces[key] = moved(part, change) if is_unbatched(part) else change.leaf(part)
    return node._from_pieces(pieces, change)


def _whole(node: Any, function: Reduction, keep: bool, lead: tuple[int, ...], options: dict[str, Any]) -> Any:
    def leaf(value: Any) -> Any:
        if keep and value.ndim:
            return function(value, tuple(range(value.ndim)), keepdim=True, **options)
        return function(value, **options)

    def plan(node: Any) -> Change:
        dims = len(node.batch_size)
        sizes = (*lead, *[1] * dims) if keep else ()
        origins = [None] * len(lead) + list(range(dims)) if keep else ()
        return Change(leaf, dims, Size(sizes), origins, range(dims))

    return _each(node, plan)


def check_feature(dim: str, keep: bool) -> None:
    """Raises a `TypeError` where `dim` is another text than "feature", or is asked to be kept."""
    if dim != "feature":
        raise TypeError(f"dim must be an integer, a tuple of integers or 'feature', got {dim!r}")
    if keep:
        raise TypeError("dim='feature' is incompatible with keepdim=True.")


def _features(node: Any, function: Reduction, dim: str, keep: bool, lead: tuple[int, ...], options: dict[str, Any]) -> Any:
    check_feature(dim, keep)

    def plan(node: Any) -> Change:
        batch_size = node.batch_size
        dims = len(batch_size)

        def leaf(value: Any) -> Any:
            if value.ndim == dims:
                return function(value.unsqueeze(-1), -1, **options)
            return function(value, tuple(range(dims, value.ndim)) if value.ndim > dims + 1 else dims, **options)

        return Change(leaf, dims, Size((*lead, *batch_size)), [None] * len(lead) + list(range(dims)), ())

    return _each(node, plan)


def joined(node: Any, function: Reduction, dim: int) -> Tensor:
    """The leaves of `node`, one after the other along `dim`.

    Raises:
        ValueError: there are none.
        RuntimeError: their shapes differ in other dimensions.
    """
    leaves = [leaf for leaf in leaves_of(node) if not is_unbatched(leaf)]
    if not leaves:
        name = getattr(function, "__name__", "a reduction")
        raise ValueError(f"{name}(reduce=True) takes the leaves together, and this tensordict has none")
    return torch.cat(leaves, dim)


def _over_leaves(node: Any, function: Reduction, dim: Any, keep: bool, options: dict[str, Any]) -> Any:
    if is_whole(dim):
        try:
            flat = map_batched(node, torch.flatten)
        except RuntimeError:  # the leaves of unlike members are no tensors as a whole, and need not be
            flat = map_leaves(node, torch.flatten)
        return function(joined(flat, function, 0), **options)
    if isinstance(dim, str):
        check_feature(dim, False)
        dims = len(node.batch_size)
        flat = map_batched(node, lambda leaf: leaf.flatten(dims) if leaf.ndim > dims else leaf.unsqueeze(-1))
        return function(joined(flat, function, -1), -1, **options)
    which = batch_dims_of(node, dim)
    return function(joined(node, function, which[0]), which[0] if len(which) == 1 else which, keepdim=keep, **options)


def _renamed(node: Any, rename: Callable[[Any], Any]) -> Any:
    """`node` with every key at every level replaced by what `rename` makes of it; None leaves the entry out.

    Raises:
        KeyError: two keys of a node become one.
    """
    out = node._rebuild({}, node.batch_size, node.device, node._names)
    for key, value in node._entries().items():
        new = rename(key)
        if new is None:
            continue
        if new in out.keys(True):
            raise KeyError(f"key_transform makes {new!r} of the key {key!r} and of another key")
        out.set(new, _renamed(value, rename) if isinstance(value, TensorCollection) else value)
    return out


def reduce_flag(node: Any, function: Callable[..., Tensor], whole: Callable[[Iterable[bool]], bool], dim: int | None) -> Any:
    """`all` and `any`."""
    if dim is None:
        return whole(bool(function(leaf)) for leaf in leaves_of(node))
    dims = len(node.batch_size)
    refusal = "dim must be greater than or equal to -tensordict.batch_dims and smaller than tensordict.batch_dims"
    dim = wrap(dim, dims, lambda: RuntimeError(f"{refusal}, got {dim} with the batch size {node.batch_size}"))
    return transform(node, reduced(node, (dim,), False, lambda leaf: function(leaf, dim)))


# The rows: one maker for each signature.

_DIM = """dim: a batch dimension or a tuple of them; `"feature"` for the dimensions behind the batch of each node; not
            given, all dimensions of each leaf.
        keepdim: keep reduced dimensions with size 1; not with `"feature"`."""
_REDUCE = """reduce: also reduce over the leaves, joined along `dim`: the result is one tensor."""
_RENAME = """key_transform: `fn(key)`, the key of the result for each key of each level."""
_RAISES = """IndexError: `dim` is no batch dimension.
        RuntimeError: a dimension is given twice, or with `reduce` the shapes of the leaves differ.
        TypeError: `dim` is none of the above.
        ValueError: `reduce` of a tensordict without leaves."""
_DTYPE = "dtype: the dtype of the results."


def _named(method: Any, name: str, *args: str) -> Any:
    lines = "\n        ".join((_DIM, *args, _REDUCE))
    method.__name__ = name
    method.__qualname__ = f"TensorDictBase.{name}"
    method.__doc__ = f"`torch.{name}` of each leaf.\n\n    Args:\n        {lines}\n\n    Raises:\n        {_RAISES}\n    "
    return method


def total(function: Reduction) -> Callable[..., Any]:
    """A method that reduces each leaf with `function(leaf, dim, keepdim=..., dtype=...)` and may rename keys."""

    def method(
        self: Any,
        dim: Any = NO_DEFAULT,
        keepdim: Any = NO_DEFAULT,
        *,
        dtype: torch.dtype | None = None,
        reduce: bool | None = None,
        key_transform: Callable[[Any], Any] | None = None,
    ) -> Any:
        if dtype is None:
            return reduce_tree(self, function, dim, keepdim, reduce, key_transform)
        return reduce_tree(self, function, dim, keepdim, reduce, key_transform, dtype=dtype)

    return _named(method, function.__name__, _DTYPE, _RENAME)


def plain_total(function: Reduction) -> Callable[..., Any]:
    """A method that reduces each leaf with `function(leaf, dim, keepdim=..., dtype=...)`."""

    def method(
        self: Any,
        dim: Any = NO_DEFAULT,
        keepdim: Any = NO_DEFAULT,
        *,
        dtype: torch.dtype | None = None,
        reduce: bool | None = None,
    ) -> Any:
        if dtype is None:
            return reduce_tree(self, function, dim, keepdim, reduce)
        return reduce_tree(self, function, dim, keepdim, reduce, dtype=dtype)

    return _named(method, function.__name__, _DTYPE)


def deviation(function: Reduction) -> Callable[..., Any]:
    """A method that measures the spread of each leaf with `function(leaf, dim, keepdim=..., correction=...)`."""

    def method(
        self: Any,
        dim: Any = NO_DEFAULT,
        keepdim: Any = NO_DEFAULT,
        *,
        correction: int = 1,
        reduce: bool | None = None,
        key_transform: Callable[[Any], Any] | None = None,
    ) -> Any:
        return reduce_tree(self, function, dim, keepdim, reduce, key_transform, correction=correction)

    return _named(method, function.__name__, "correction: what is subtracted from the number of elements.", _RENAME)


def extreme(function: Reduction) -> Callable[..., Any]:
    """A method that gives the extreme of each leaf with `function(leaf, dim, keepdim=...)`, without its place."""

    def method(self: Any, dim: Any = NO_DEFAULT, keepdim: bool = False, *, reduce: bool | None = None) -> Any:
        return reduce_tree(self, function, dim, keepdim, reduce)

    return _named(method, function.__name__)


def _values_of(function: Reduction) -> Reduction:
    """The values of a function that gives values and indices along a dimension, also over several dimensions."""

    def values(value: Tensor, *dim: int, **options: Any) -> Any:
        return function(value, *dim, **options)[0] if dim else function(value, **options)

    values.__name__ = function.__name__
    return over_one(values)


def ranked(function: Reduction, kind: Callable[..., Any]) -> Callable[..., Any]:
    """A method that gives the extreme of each leaf, with its place along a dimension, as the named tuple `kind`."""
    values = _values_of(function)

    def pair(value: Tensor, dim: Any, keepdim: bool = False) -> Any:
        flat = isinstance(dim, tuple)  # of a feature with several dimensions
        return function(value.flatten(dim[0]) if flat else value, dim[0] if flat else dim, keepdim=keepdim)

    pair.__name__ = function.__name__

    def method(
        self: Any, dim: Any = NO_DEFAULT, keepdim: bool = False, *, reduce: bool | None = None, return_indices: bool = True
    ) -> Any:
        if not return_indices or is_whole(dim):
            return reduce_tree(self, values, dim, keepdim, reduce)
        if isinstance(dim, (tuple, list)) and len(dim) > 1:
            raise TypeError(
                f"{function.__name__} gives indices along one dim, got dim={dim}: give return_indices=False, or one dim"
            )
        out = reduce_tree(self, pair, dim, keepdim, reduce)
        return out if reduce else unzip(out, kind)

    return _named(
        method,
        function.__name__,
        "return_indices: with `dim`, return the named tuple `(values, indices)` of two tensordicts, not the values alone.",
    )


def running(function: Reduction, kind: Callable[..., Any]) -> Callable[..., Any]:
    """A method that gives the running extreme of each leaf along a batch dimension, as the named tuple `kind`."""
    name = function.__name__

    def method(self: Any, dim: int, *, reduce: bool | None = None, return_indices: bool = True) -> Any:
        if isinstance(dim, str):
            raise RuntimeError(f"{name} runs along one batch dimension, got dim={dim!r}")
        at = batch_dim(self, dim[0] if isinstance(dim, tuple) and len(dim) == 1 else dim)
        if reduce:
            out = function(joined(self, function, at), at)
            return out if return_indices else out[0]
        if return_indices:
            return unzip(map_batched(self, lambda leaf: function(leaf, at)), kind)
        return map_batched(self, lambda leaf: function(leaf, at)[0])

    method.__name__ = name
    method.__qualname__ = f"TensorDictBase.{name}"
    method.__doc__ = f"""`torch.{name}` of each leaf.

    Args:
        dim: a batch dimension.
        reduce: run over the leaves too, joined along `dim`: the results are tensors.
        return_indices: return the named tuple `(values, indices)`, not the values alone.

    Raises:
        IndexError: `dim` is no batch dimension.
        TypeError: `dim` is no integer.
    """
    return method


def _quantile(value: Tensor, dim: int | None = None, *, q: Any, interpolation: str, keepdim: bool = False) -> Tensor:
    return torch.quantile(value, q, dim, keepdim, interpolation=interpolation)


_quantile.__name__ = "quantile"
_quantiles = over_one(_quantile)


class ReductionOps(Waist):
    """Reductions of all leaves."""

    __slots__ = ()

    sum = total(torch.sum)
    mean = total(torch.mean)
    nansum = plain_total(torch.nansum)
    nanmean = plain_total(torch.nanmean)
    prod = plain_total(over_one(torch.prod))
    std = deviation(torch.std)
    var = deviation(torch.var)
    amax = extreme(torch.amax)
    amin = extreme(torch.amin)
    max = ranked(torch.max, torch.return_types.max)
    min = ranked(torch.min, torch.return_types.min)
    cummax = running(torch.cummax, torch.return_types.cummax)
    cummin = running(torch.cummin, torch.return_types.cummin)

    def quantile(
        self,
        q: float | Tensor,
        dim: Any = NO_DEFAULT,
        keepdim: Any = NO_DEFAULT,
        *,
        interpolation: str = "linear",
        reduce: bool | None = None,
        key_transform: Callable[[Any], Any] | None = None,
    ) -> Any:
        """`torch.quantile` of each leaf.

        Args:
            q: a number from 0 to 1, or a tensor of them, which becomes the first batch dimension of the result.
            dim: a batch dimension or a tuple of them; `"feature"` for the dimensions behind the batch of each node; not
                given, all dimensions of each leaf.
            keepdim: keep reduced dimensions with size 1; not with `"feature"`.
            interpolation: what lies between two elements, as in torch.
            reduce: also reduce over the leaves, joined along `dim`: the result is one tensor.
            key_transform: `fn(key)`, the key of the result for each key of each level.

        Raises:
            IndexError: `dim` is no batch dimension.
            RuntimeError: a number is not from 0 to 1, or a leaf has integers.
        """
        lead = tuple(q.shape) if isinstance(q, Tensor) else ()
        options = {"q": q, "interpolation": interpolation}
        return reduce_tree(self, _quantiles, dim, keepdim, reduce, key_transform, lead, **options)

    def all(self, dim: int | None = None) -> Any:
        """Whether all elements are true: a `bool` without `dim`, else a tensordict with that batch dimension reduced.

        Raises:
            RuntimeError: `dim` is no batch dimension.
        """
        return reduce_flag(self, torch.all, all, dim)

    def any(self, dim: int | None = None) -> Any:
        """Whether any element is true: a `bool` without `dim`, else a tensordict with that batch dimension reduced.

        Raises:
            RuntimeError: `dim` is no batch dimension.
        """
        return reduce_flag(self, torch.any, any, dim)

    def norm(
        self, *, out: Any = None, dtype: torch.dtype | None = None, key_transform: Callable[[str], Any] | None = None
    ) -> Self:
        """The 2-norm of each leaf, over all its dimensions: a tensordict without batch dimensions, locked as this one is.

        Args:
            out: a tensordict without batch dimensions to store the norms in.
            dtype: of the norms.
            key_transform: gives the key of the result for that of a leaf or node, which it gets without those above.

        Raises:
            RuntimeError: `out` has batch dimensions, or is locked.
        """
        if out is None:
            return relock(_norms(self, dtype, key_transform), self)
        if out.batch_size:
            raise RuntimeError(
                f"norm() gives a tensordict without batch dimensions, but out has the batch size {out.batch_size}"
            )
        return out.update(_norms(self, dtype, key_transform))

    def logsumexp(self, dim: Any = None, keepdim: bool = False, *, out: Any = None) -> Self:
        """`torch.logsumexp` of each leaf.

        Args:
            dim: a batch dimension or a tuple of them, all if not given.
            keepdim: keep reduced dimensions with size 1.
            out: a tensordict to write the result into.

        Raises:
            ValueError: `dim` is no batch dimension.
        """
        dims = len(self.batch_size)
        try:
            which = tuple(range(dims)) if dim is None else batch_dims_of(self, dim)
        except IndexError:
            raise ValueError(
                f"The dimension {dim} is incompatible with a tensordict with batch_size {self.batch_size}."
            ) from None
        result: Any = _batch(self, torch.logsumexp, which, keepdim and bool(which), (), {})
        return result if out is None else out.update(result, inplace=True)


_NORM = foreach_of("norm")


def _norms(node: Any, dtype: torch.dtype | None, rename: Callable[[str], Any] | None) -> Any:
    fields = node._entries()
    leaves = [value for value in fields.values() if not isinstance(value, TensorCollection)]
    norms = iter(run(leaves, torch.linalg.vector_norm, _NORM, 2, dtype=dtype))
    found = {
        key: _norms(value, dtype, rename) if isinstance(value, TensorCollection) else next(norms)
        for key, value in fields.items()
    }
    if rename is None:
        return node._rebuild(found, Size(()), node.device)
    result = node._rebuild({}, Size(()), node.device)
    for key, value in found.items():
        result.set(rename(key), value)
    return result
