"""What torch has no kernel for on nested tensors, done on their packed values or component by component.

A nested tensor has components that differ in size. In the jagged layout one dimension differs, the ragged one: the components
are packed along it, and offsets say where each begins. Results keep the offsets of their operand wherever no component was
moved, so that the ragged dimension stays the same one for torch. In the strided layout any dimension may differ, and all is
done component by component.

The functions here are only called where a leaf is nested: in most cases after torch raised for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from tensordict._kernel.change import Change
from tensordict._kernel.numbering import Sources, moved, numbers

_from_jagged: Callable[..., Tensor] = torch.nested.nested_tensor_from_jagged


def is_jagged(leaf: Tensor) -> bool:
    """Whether a leaf is nested in the jagged layout."""
    return leaf.layout is torch.jagged


# The structure of a jagged tensor.


def ragged_dim(leaf: Any) -> int:
    """The ragged dimension of a jagged tensor, counted with that of the components."""
    return int(leaf._ragged_idx)


def counts(leaf: Any) -> Tensor:
    """The size of each component of a jagged tensor along the ragged dimension."""
    lengths = leaf.lengths()
    return leaf.offsets().diff() if lengths is None else lengths


def like(leaf: Any, values: Tensor) -> Tensor:
    """A jagged tensor of the structure of `leaf`, and of the same ragged dimension, with other values."""
    return relaid(leaf, values, leaf.offsets(), leaf.lengths())


def relaid(leaf: Any, values: Tensor, offsets: Tensor, lengths: Tensor | None) -> Tensor:
    """A jagged tensor like `leaf` of other tensors, which have the same offsets and lengths."""
    known = {"min_seqlen": leaf._maybe_min_seqlen, "max_seqlen": leaf._maybe_max_seqlen}
    return _from_jagged(values, offsets, lengths, ragged_dim(leaf), **known)


def _positions(starts: Tensor, sizes: Tensor) -> Tensor:
    """The numbers from each start on, so many of them, one after the other."""
    before = sizes.cumsum(0) - sizes
    return torch.repeat_interleave(starts - before, sizes) + torch.arange(int(sizes.sum()), device=starts.device)


def _is_packed(leaf: Any) -> bool:
    """Whether the components of a jagged tensor lie one after the other and fill its values."""
    offsets = leaf.offsets()
    whole = leaf.values().shape[ragged_dim(leaf) - 1]
    return leaf.lengths() is None and int(offsets[0]) == 0 and int(offsets[-1]) == whole


def packed(leaf: Any) -> Tensor:
    """The values of a jagged tensor without what lies between its components."""
    if _is_packed(leaf):
        return leaf.values()
    where = _positions(leaf.offsets()[:-1], counts(leaf))
    return leaf.values().index_select(ragged_dim(leaf) - 1, where)


def _offsets_of(sizes: Tensor) -> Tensor:
    return torch.cat([sizes.new_zeros(1), sizes.cumsum(0).to(sizes.dtype)])


def _nest(parts: Sequence[Tensor], leaf: Any, dim: int | None = None, offsets: Tensor | None = None) -> Tensor:
    """Components as a nested tensor of the layout of `leaf`, ragged along `dim` if that is the jagged one."""
    if not is_jagged(leaf):
        return torch.nested.as_nested_tensor(list(parts), layout=torch.strided) if parts else leaf.clone()
    dim = ragged_dim(leaf) if dim is None else dim
    if offsets is None:
        sizes = torch.tensor([part.shape[dim - 1] for part in parts], dtype=leaf.offsets().dtype, device=leaf.device)
        offsets = _offsets_of(sizes)
    return _from_jagged(torch.cat(list(parts), dim - 1), offsets, None, dim)


# Pointwise functions.


class _Ragged(TorchFunctionMode):
    """Within it, functions of nested tensors work that torch has no kernel for."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(function, "__name__", "")
        if name in _REDUCTIONS and _only_leaf(args, kwargs) is not None:
            leaf = args[0]
            return function(packed(leaf) if is_jagged(leaf) else leaf.values(), *args[1:], **kwargs)
        flat, spec = tree_flatten((args, kwargs))
        if has_ragged(flat) and is_pointwise(name):
            return _pointwise(function, name, _base_of(name, flat), flat, spec)
        return function(*args, **kwargs)


# Reductions to one element: those of the values.
_REDUCTIONS = frozenset(
    ("all", "amax", "amin", "any", "max", "mean", "min", "nanmean", "nansum", "norm", "numel", "prod", "std", "sum", "var")
)
# Pointwise functions that torch does not mark so, and those that compiled code needs: it cannot look at the marks.
_POINTWISE = frozenset(
    (
        *("add", "clamp", "copy_", "div", "eq", "fill", "fill_", "ge", "gt"),
        *("isfinite", "isreal", "le", "lerp", "logical_and", "logical_or", "lt", "masked_fill", "maximum"),
        *("minimum", "mul", "nan_to_num", "nan_to_num_", "ne", "pow", "sub", "where", "zero_"),
    )
)


def _only_leaf(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """The nested operand of a reduction of all dimensions."""
    given = isinstance(args[0], Tensor) and args[0].is_nested and len(args) == 1
    return args[0] if given and kwargs.get("dim") is None else None


@lru_cache(None)
def is_pointwise(name: str) -> bool:
    """Whether the torch function of that name treats each element by itself."""
    if _is_inplace(name) and is_pointwise(name[:-1]):
        return True
    if name in _POINTWISE:
        return True
    packet = None if name.startswith("_") else getattr(torch.ops.aten, name, None)
    if packet is None:
        return False
    return any(torch.Tag.pointwise in getattr(packet, overload).tags for overload in packet.overloads())


def _base_of(name: str, flat: Sequence[Any]) -> Any:
    """The nested operand that the result is like. In place it is the first operand."""
    base = next(value for value in flat if isinstance(value, Tensor) and value.is_nested)
    if _is_inplace(name) and base is not flat[0]:
        raise RuntimeError(f"{name} cannot write a nested tensor into one that is not")
    return base


def _is_inplace(name: str) -> bool:
    return name.endswith("_") and not name.endswith("__")


def _pointwise(function: Any, name: str, base: Any, flat: list[Any], spec: Any) -> Any:
    if not is_jagged(base):
        return _by_components(function, name, base, flat, spec)
    row = [_beside(base, value) if isinstance(value, Tensor) and value.ndim else value for value in flat]
    args, kwargs = tree_unflatten(row, spec)
    result = function(*args, **kwargs)
    if _is_inplace(name):
        return base
    return tree_map(lambda out: like(base, out) if isinstance(out, Tensor) else out, result)


def _beside(base: Any, other: Any) -> Tensor:
    """What stands beside the values of `base` in the place of an operand."""
    if other is base:
        return base.values()
    if other.is_nested:
        return _nested_beside(base, other)
    dims, dim = base.dim(), ragged_dim(base)
    if other.ndim <= dims - dim:
        return other  # it has no part of the dimensions that are packed
    wide = other.reshape((1,) * (dims - other.ndim) + other.shape) if other.ndim < dims else other
    rows = base.size(0)
    if other.ndim > dims or wide.shape[dim] != 1 or wide.shape[0] not in (1, rows):
        raise RuntimeError(
            f"a tensor of shape {tuple(other.shape)} does not broadcast against {rows} components that are ragged in "
            f"dimension {dim} of {dims}"
        )
    wide = wide.squeeze(dim)
    if wide.shape[0] == 1 and rows != 1:
        return wide.squeeze(0).unsqueeze(dim - 1)
    where = torch.arange(base.values().shape[dim - 1], device=other.device)
    row = torch.searchsorted(base.offsets(), where, right=True).sub_(1).clamp_(0, rows - 1)
    return wide.index_select(0, row).movedim(0, dim - 1)


def _nested_beside(base: Any, other: Any) -> Tensor:
    if not is_jagged(other) or ragged_dim(other) != ragged_dim(base):
        raise RuntimeError(
            f"nested tensors of unlike layout or ragged dimension do not fit: {_described(base)} and {_described(other)}"
        )
    if other.offsets() is base.offsets() and other.lengths() is base.lengths():
        return other.values()
    if not torch.equal(counts(base), counts(other)):
        raise RuntimeError(
            f"the components of two nested tensors differ in length: {counts(base).tolist()} and {counts(other).tolist()}"
        )
    values = packed(other)
    if _is_packed(base):
        return values
    dim = ragged_dim(base) - 1
    shape = (*values.shape[:dim], base.values().shape[dim], *values.shape[dim + 1 :])
    return values.new_zeros(shape).index_copy(dim, _positions(base.offsets()[:-1], counts(base)), values)


def _described(leaf: Any) -> str:
    return f"one ragged in dimension {ragged_dim(leaf)}" if is_jagged(leaf) else "one in the strided layout"


def _by_components(function: Any, name: str, base: Any, flat: list[Any], spec: Any) -> Any:
    columns = [_components_beside(base, value) for value in flat]
    out = []
    for row in zip(*columns):
        args, kwargs = tree_unflatten(list(row), spec)
        out.append(function(*args, **kwargs))
    if _is_inplace(name):
        return base
    if out and not isinstance(out[0], Tensor):
        return tuple(_nest(parts, base) for parts in zip(*out))
    return _nest(out, base)


def _components_beside(base: Any, value: Any) -> Sequence[Any]:
    """What stands beside each component of `base` in the place of an operand."""
    rows = base.size(0)
    if not isinstance(value, Tensor) or not value.ndim:
        return [value] * rows
    if value.is_nested:
        if is_jagged(value) or not torch.equal(value._nested_tensor_size(), base._nested_tensor_size()):
            raise RuntimeError("nested tensors of unlike layouts or component sizes do not fit")
        return value.unbind()
    if value.ndim < base.dim():
        return [value] * rows
    if value.ndim > base.dim() or value.shape[0] not in (1, rows):
        raise RuntimeError(f"a tensor of shape {tuple(value.shape)} does not broadcast against {rows} components")
    return value.expand(rows, *value.shape[1:]).unbind()


def call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """`function(*args, **kwargs)`, which calls torch functions with nested tensors."""
    with _Ragged():
        return function(*args, **kwargs)


def has_ragged(leaves: Iterable[Any]) -> bool:
    """Whether a leaf is nested."""
    return any([isinstance(leaf, Tensor) and leaf.is_nested for leaf in leaves])


def each(function: Callable[..., Any], leaves: Sequence[Any], *columns: Iterable[Any]) -> list[Any]:
    """`function(leaf, *row)` of each leaf and what stands beside it; by what is here where torch fails for a nested one."""
    out: list[Any] = []
    try:
        out.extend(map(function, leaves, *columns))
    except Exception:
        # What was done before stays in `out`: functions may write in place.
        rows = islice(zip(leaves, *columns), len(out), None)
        row = next(rows)
        if not has_ragged(row):
            raise
        out.append(call(function, *row))
        out.extend(call(function, *row) if has_ragged(row) else function(*row) for row in rows)
    return out


# Changes of the batch dimensions.


def changed(leaf: Any, change: Change) -> Any:
    """`change` made to a nested leaf: a nested tensor of other components, or a single component.

    Raises:
        RuntimeError: components of different rows would stand in one, or the change needs the ragged dimension.
    """
    where = moved(change, _sizes(leaf, change.consumed))
    return taken(leaf, where, change.consumed, not change.copies, _memo(change))


def scattered(leaf: Any, cut: Change, changes: Sequence[Change]) -> list[Any]:
    """The pieces that `cut` makes of a nested leaf."""
    pieces = cut.leaf(numbers(_sizes(leaf, cut.consumed)))
    return [taken(leaf, where, cut.consumed, True, _memo(change)) for where, change in zip(pieces, changes)]


def _memo(change: Change) -> dict[Any, Any]:
    """The new structures that one change gave so far, by the old ones: leaves of one ragged dimension keep one."""
    try:
        return change.ragged
    except AttributeError:
        change.ragged = {}
        return change.ragged


def _sizes(leaf: Any, dims: int) -> list[int]:
    """The leading `dims` dimensions of a nested leaf."""
    if is_jagged(leaf) and dims > ragged_dim(leaf):
        raise RuntimeError(f"the batch has {dims} dimensions, of which one is ragged in this leaf: it cannot be changed")
    return [int(leaf.size(dim)) for dim in range(dims)]


def taken(leaf: Any, where: Tensor, dims: int, shared: bool = True, memo: dict[Any, Any] | None = None) -> Any:
    """The elements of the leading `dims` dimensions of a nested leaf at their numbers `where`.

    Args:
        leaf: the nested tensor.
        where: the numbers; the result has its dimensions in the place of those `dims`.
        dims: how many leading dimensions are numbered.
        shared: whether the result may share storage.
        memo: offsets that were made for the same `where`, by the old ones.
    """
    if not dims:
        return leaf
    if dims == 1 and where.ndim == 1 and is_jagged(leaf):
        return _rows(leaf, where.to(leaf.device), shared, {} if memo is None else memo)
    width = 1
    for dim in range(1, dims):
        width *= int(leaf.size(dim))
    parts = leaf.unbind()
    if not where.ndim:
        component = parts[int(where) // width]
        out = component.flatten(0, dims - 2)[int(where) % width] if dims > 1 else component
        return out if shared else out.clone()
    rows = [_joined(parts, row, width, dims) for row in where]
    at = where.ndim + (ragged_dim(leaf) - dims) if is_jagged(leaf) else None
    same = is_jagged(leaf) and _is_packed(leaf) and where.shape[0] == len(parts) and _stays(where, width)
    return _nest(rows, leaf, at, leaf.offsets() if same else None)


def _stays(where: Tensor, width: int) -> bool:
    """Whether each row holds elements of the component of its own number."""
    own = torch.arange(where.shape[0]).view(-1, *[1] * (where.ndim - 1))
    return torch.equal(where // width, own.expand(where.shape))


def _joined(parts: Sequence[Tensor], row: Tensor, width: int, dims: int) -> Tensor:
    """The elements of one component at their numbers, as a component."""
    owners = torch.unique(row // width)
    if owners.numel() > 1 or not row.numel():
        raise RuntimeError(
            "a nested tensor has one dimension of components: the rows of a ragged leaf cannot be regrouped into several "
            "dimensions. A lazy stack can hold them"
        )
    part = parts[int(owners)]
    if dims == 1:
        return part.expand(*row.shape, *part.shape) if row.ndim else part
    flat = part.flatten(0, dims - 2)
    return flat.index_select(0, (row % width).flatten().to(part.device)).view(*row.shape, *flat.shape[1:])


def _rows(leaf: Any, where: Tensor, shared: bool, memo: dict[Any, Any]) -> Tensor:
    """Components of a jagged tensor, in an order."""
    offsets, lengths, dim = leaf.offsets(), leaf.lengths(), ragged_dim(leaf)
    known = memo.get((id(offsets), id(lengths)))
    if known is None:
        sizes = counts(leaf)[where]
        # Kept with what its key names, whose id could be another's otherwise.
        known = memo[id(offsets), id(lengths)] = (_offsets_of(sizes), sizes, offsets, lengths)
    fresh, sizes = known[:2]
    count = where.shape[0]
    first = int(where[0]) if count else 0
    if shared and lengths is None and torch.equal(where, torch.arange(first, first + count, device=where.device)):
        if count == leaf.size(0):
            return leaf
        start, end = int(offsets[first]), int(offsets[first + count])
        return _from_jagged(leaf.values().narrow(dim - 1, start, end - start), fresh, None, dim)
    positions = _positions(offsets[:-1][where], sizes)
    return _from_jagged(leaf.values().index_select(dim - 1, positions), fresh, None, dim)


# Joins.


def cat(column: Sequence[Any], dim: int, memo: dict[Any, Any]) -> Tensor:
    """`torch.cat` of leaves, of which some are nested.

    Args:
        column: the leaves.
        dim: the dimension.
        memo: offsets that the same cat of other leaves made, by the old ones.

    Raises:
        RuntimeError: the layouts differ, or the dimension is ragged or behind the ragged one.
    """
    first = column[0]
    if not has_ragged(column):
        return torch.cat(list(column), dim)
    _check_alike(column, "concatenated")
    if not is_jagged(first):
        if dim:
            parts = zip(*[leaf.unbind() for leaf in column])
            return _nest([torch.cat(row, dim - 1) for row in parts], first)
        return _nest([part for leaf in column for part in leaf.unbind()], first)
    if dim:
        return like(first, torch.cat([_beside(first, leaf) for leaf in column], dim - 1))
    key = tuple((id(leaf.offsets()), id(leaf.lengths())) for leaf in column)
    if key not in memo:
        sizes = torch.cat([counts(leaf) for leaf in column])
        memo[key] = (_offsets_of(sizes.to(first.offsets().dtype)), column)
    values = torch.cat([packed(leaf) for leaf in column], ragged_dim(first) - 1)
    return _from_jagged(values, memo[key][0], None, ragged_dim(first))


def stack(column: Sequence[Any], dim: int) -> Tensor:
    """`torch.stack` of leaves, of which some are nested, behind the dimension of their components.

    Raises:
        RuntimeError: the layouts or lengths differ, or the new dimension would stand before that of the components.
    """
    first = column[0]
    if not has_ragged(column):
        return torch.stack(list(column), dim)
    _check_alike(column, "stacked")
    if not dim:
        raise RuntimeError(
            "nested tensors cannot be stacked in front of their dimension of components. Use `lazy_stack`, or `cat` to have "
            "the components one after the other"
        )
    if not is_jagged(first):
        return _nest([torch.stack(row, dim - 1) for row in zip(*[leaf.unbind() for leaf in column])], first)
    values = torch.stack([_beside(first, leaf) for leaf in column], dim - 1)
    at = ragged_dim(first) + (dim <= ragged_dim(first))
    return _from_jagged(values, first.offsets(), first.lengths(), at)


def _check_alike(column: Sequence[Any], what: str) -> None:
    layouts = {leaf.layout if leaf.is_nested else "dense" for leaf in column}
    if len(layouts) > 1 or len({ragged_dim(leaf) if is_jagged(leaf) else 0 for leaf in column}) > 1:
        raise RuntimeError(f"leaves of unlike layouts or ragged dimensions cannot be {what}: {sorted(map(str, layouts))}")


# Writes.


def plan_write(key: Any, leaf: Any, value: Any, change: Change | None) -> list[tuple[Tensor, Any]]:
    """What is written into which component, all pairs checked: of a nested leaf, at the rows of `change`, or in all.

    Raises:
        RuntimeError: the number of components, or the shape of one, does not fit.
    """
    parts = leaf.unbind()
    if change is None:
        targets: Sequence[Tensor] = parts
        prefix = 1
    else:
        where = Sources(change, _sizes(leaf, change.consumed)).number
        if change.consumed != 1:
            raise RuntimeError(f"the ragged entry {key!r} can only be written along its first dimension")
        targets, prefix = [parts[int(row)] for row in where.flatten()], where.ndim
    pairs = list(zip(targets, _sources(key, value, len(targets), prefix)))
    for target, source in pairs:
        if isinstance(source, Tensor) and source.shape != target.shape and source.numel() != 1:
            raise RuntimeError(
                f"cannot copy a component of shape {tuple(source.shape)} under the key {key!r} into one of shape "
                f"{tuple(target.shape)}"
            )
    return pairs


def _sources(key: Any, value: Any, count: int, dims: int) -> Sequence[Any]:
    if not isinstance(value, Tensor) or not value.ndim or (not dims and not value.is_nested):
        return [value] * count
    size = value.size(0)
    if size != count:
        raise RuntimeError(f"cannot copy {size} components under the key {key!r} into {count}")
    return value.unbind()


def write(key: Any, leaf: Any, value: Any, change: Change | None) -> None:
    """Writes into the components of a nested leaf; nothing if one does not fit."""
    for target, source in plan_write(key, leaf, value, change):
        target.copy_(source) if isinstance(source, Tensor) else target.fill_(source)


# Padding.


def to_padded(leaf: Any, padding: float) -> Tensor:
    """A dense tensor of the components, each filled up at its end to the longest."""
    if not is_jagged(leaf):
        parts = leaf.unbind()
        widest = [max(size) for size in zip(*[part.shape for part in parts])]
        out = leaf.values().new_full((len(parts), *widest), padding)
        for row, part in zip(out.unbind(), parts):
            row[tuple(slice(0, size) for size in part.shape)] = part
        return out
    dim, rows, sizes = ragged_dim(leaf), leaf.size(0), counts(leaf)
    longest = int(sizes.max()) if rows else 0
    values = packed(leaf).movedim(dim - 1, 0)
    where = _positions(torch.arange(rows, device=sizes.device) * longest, sizes)
    flat = values.new_full((rows * longest, *values.shape[1:]), padding).index_copy(0, where, values)
    return flat.view(rows, longest, *values.shape[1:]).movedim(1, dim)


def mask_of(leaf: Any) -> Tensor:
    """Booleans of the dimensions of a jagged tensor up to its ragged one, padded: where there are values."""
    sizes = counts(leaf)
    longest = int(sizes.max()) if sizes.numel() else 0
    mask = torch.arange(longest, device=sizes.device) < sizes.unsqueeze(1)
    between = [int(leaf.size(dim)) for dim in range(1, ragged_dim(leaf))]
    return mask.view(mask.shape[0], *[1] * len(between), longest).expand(mask.shape[0], *between, longest).clone()
