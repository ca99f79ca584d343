"""Stacking and concatenating tensordicts of the same keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Size

from tensordict._kernel import native
from tensordict._kernel.change import Change, Outline
from tensordict._kernel.registry import is_non_tensor
from tensordict._kernel.shapes import wrap
from tensordict._leaves import ragged
from tensordict._leaves.unbatched import first_of, is_unbatched, moved
from tensordict._ops.trees import Tree, collect, leaves_like, refill, solid
from tensordict._ops.waist import Waist
from tensordict._reexport import lazy_stack, maybe_dense_stack
from tensordict._types import TensorCollection


def _columns(items: Sequence[Any]) -> tuple[Tree, list[list[Any]]]:
    """The tree of the first item, and for each leaf of it the leaves of all items at its place."""
    leaves: list[Any] = []
    tree = collect(items[0], leaves)
    rows = [leaves] + [leaves_like(tree, item) for item in items[1:]]
    return tree, [list(column) for column in zip(*rows)]


def _by_node(items: list[Any], dim: int, gap: int | None, join: Callable[..., Any], change: Change) -> Any:
    """The join by one native call for each node, or None where a node is not dict-backed or a leaf is not plain."""
    if not all([item._dict_backed for item in items]):
        return None
    fields = [item._fields() for item in items]
    first = fields[0] = items[0]._entries()  # the others are asked for these keys
    if len(set(map(len, fields))) > 1:
        return None
    keys = [key for key, value in first.items() if not isinstance(value, TensorCollection)]
    leaves = join(fields, keys, dim) if keys else []
    if leaves is None:
        return None
    joined: dict[str, Any] = dict(zip(keys, leaves))
    if len(keys) < len(first):
        joined = {key: joined.get(key) for key in first}
        for key, value in joined.items():
            if value is None:
                below = [entries.get(key) for entries in fields]
                joined[key] = value = None if None in below else _node_of(below, dim, gap, join, change)
                if value is None:
                    return None
    node = items[0]
    return node._from_pieces(joined, change)


def _node_of(nodes: list[Any], dim: int, gap: int | None, join: Callable[..., Any], change: Change) -> Any:
    """The join of the nodes under one key, or None where not all are nodes, or they cannot be joined so."""
    objects = _join_objects(nodes, dim, gap is not None)
    if objects is not None:
        return objects
    if not all([isinstance(node, TensorCollection) for node in nodes]):
        return None
    if any([-1 in node.batch_size for node in nodes]):  # their members are unlike: they stay stacks
        return _apart(nodes, dim, gap is not None)
    return _by_node(nodes, dim, gap, join, change) if _alike(nodes, gap) else None


def _join_objects(items: Sequence[Any], dim: int, cat: bool) -> Any:
    """Entries that hold objects, as one; None where none of them does."""
    first = next(filter(is_non_tensor, items), None)
    return None if first is None else first._joined(items, dim, "cat" if cat else "stack")


def _apart(items: Sequence[Any], dim: int, cat: bool) -> Any:
    """The join of containers of which one is not joined by its leaves; None where all are."""
    for item in items:
        made = item._joined(items, dim, "cat" if cat else "stack")
        if made is not None:
            return made
    return None


def _with_objects(items: Sequence[Any], result: Any, dim: int, cat: bool) -> Any:
    """`result`, made of the leaves of `items`, with the objects of all of them."""
    for key in result._entries():
        value = items[0]._get_str(key)
        if isinstance(value, TensorCollection):
            below = [value, *(item._get_str(key) for item in items[1:])]
            objects = _join_objects(below, dim, cat)
            if objects is None:
                _with_objects(below, result._get_str(key), dim, cat)
            else:
                result._set_str(key, objects)
    return result


def _alike(nodes: list[Any], gap: int | None) -> bool:
    """Whether all are nodes of the same batch size, other than in the dimension `gap`."""
    if not all([isinstance(node, TensorCollection) for node in nodes]):
        return False
    sizes = [list(node.batch_size) for node in nodes]
    if gap is not None:
        for size in sizes:
            del size[gap]
    return all(size == sizes[0] for size in sizes)


def _check_nodes(items: Sequence[Any], gap: int | None) -> None:
    """Raises where the nodes below differ in their batch sizes, other than in the dimension `gap`."""
    for key, node in items[0]._entries().items():
        if not isinstance(node, TensorCollection):
            continue
        below = [node, *(item._get_str(key) for item in items[1:])]
        if not _alike(below, gap):
            raise RuntimeError(
                f"the batch sizes of the tensordicts under the key {key!r} differ: {[n.batch_size for n in below]}"
            )
        _check_nodes(below, gap)


def _device(items: Sequence[Any]) -> torch.device | None:
    """The device that all items have, if it is one."""
    devices = [item.device for item in items]
    return devices[0] if devices.count(devices[0]) == len(devices) else None


def _given_out(items: Sequence[Any], result: Any, out: Any, gap: int | None = None) -> Any:
    if _device(items) != result.device:
        result.clear_device_()
    if gap is None and result._names is not None and any([item._names != items[0]._names for item in items]):
        result._adopt_names(None)  # of which item they would be is no question of its place
    if out is None:
        return result
    if out.batch_size != result.batch_size:
        raise RuntimeError(f"the result has the batch size {result.batch_size}, and `out` has {out.batch_size}")
    return out.update_(result)


def stack_tensordicts(items: Sequence[Any], dim: int = 0, out: Any = None) -> Any:
    """A tensordict with a new batch dimension at `dim`, along which its leaves are those of `items`.

    Raises:
        RuntimeError: there is no item, the batch sizes, keys or shapes differ.
        IndexError: `dim` is out of range.
    """
    items = list(items)
    if not items:
        raise RuntimeError("stack expects a non-empty list of tensordicts")
    sizes = [item.batch_size for item in items]
    batch_size = sizes[0]
    if sizes.count(batch_size) < len(sizes):
        place = next(place for place, size in enumerate(sizes) if size != batch_size)
        raise RuntimeError(
            "stacking tensordicts requires them to have congruent batch sizes, got "
            f"td[{place}].batch_size={sizes[place]} and td[0].batch_size={batch_size}"
        )
    dims = len(batch_size)
    refusal = f"Dimension out of range (expected to be in range of [{-dims - 1}, {dims}], but got {dim})"
    at = wrap(dim, dims + 1, lambda: IndexError(refusal))
    stacked = Size((*batch_size[:at], len(items), *batch_size[at:]))
    change = Outline(dims, stacked, [*range(at), None, *range(at, dims)])
    result = _by_node(items, at, None, native.stack_dicts, change)
    if result is None:
        result = _apart(items, at, False)
    if result is None:
        items = [solid(item) for item in items]
        tree, columns = _stack_columns(items)
        result = refill(tree, iter(_joined(columns, at, torch.stack, ragged.stack, change)), change)
        result = _with_objects(items, result, at, False)
    return _given_out(items, result, out)


def _joined(
    columns: list[list[Any]], dim: int, join: Callable[..., Any], nested: Callable[..., Any], change: Change
) -> list[Any]:
    return [
        nested(column, dim)
        if ragged.has_ragged(column)
        else moved(first_of(column) if join is torch.stack else column[0], change)
        if is_unbatched(column[0])
        else join(column, dim)
        for column in columns
    ]


def _stack_columns(items: list[Any]) -> tuple[Tree, list[list[Any]]]:
    try:
        tree, columns = _columns(items)
    except KeyError as error:
        raise RuntimeError(
            f"The sets of keys in the tensordicts to stack are exclusive ({error.args[0]}). Consider using "
            "`LazyStackedTensorDict.maybe_dense_stack` instead."
        ) from error
    _check_nodes(items, None)
    _check_shapes(tree, columns)
    return tree, columns


def _keys(tree: Tree, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of each leaf of a tree."""
    for key, part in tree[1].items():
        if type(part) is tuple:
            yield from _keys(part, (*path, key))
        else:
            yield (*path, key)


def _check_shapes(tree: Tree, columns: list[list[Any]]) -> None:
    for place, column in enumerate(columns):
        if ragged.has_ragged(column):
            continue  # they are compared when they are stacked
        shape = column[0].shape
        for value in column:
            if value.shape != shape:
                path = list(_keys(tree))[place]
                raise RuntimeError(
                    f"The shapes of the tensors to stack is incompatible: {value.shape} vs {shape} for key "
                    f"{path[0] if len(path) == 1 else path}."
                )


def _fits_beside(size: Size, other: Size, at: int) -> bool:
    """Whether batch sizes are equal but in the dimension `at`; the -1 of a stack is found out member by member."""
    if len(size) != len(other):
        return False
    return all([one == two or place == at or -1 in (one, two) for place, (one, two) in enumerate(zip(size, other))])


def cat_tensordicts(items: Sequence[Any], dim: int = 0, out: Any = None) -> Any:
    """A tensordict whose leaves are those of `items` one after the other along the batch dimension `dim`.

    Raises:
        RuntimeError: there is no item, `dim` is no batch dimension, or the other dimensions differ.
        KeyError: the keys differ.
    """
    items = list(items)
    if not items:
        raise RuntimeError("cat expects a non-empty list of tensordicts")
    found = [item.batch_size for item in items]
    batch_size = found[0]
    dims = len(batch_size)
    refusal = "dim must be in the range 0 <= dim < len(batch_size)"
    at = wrap(dim, dims, lambda: RuntimeError(f"{refusal}, got dim={dim} and batch_size={list(batch_size)}"))
    for place, size in enumerate(found):
        if size == batch_size:
            continue
        if not _fits_beside(size, batch_size, at):
            raise RuntimeError(
                f"concatenating along dim {at} requires the other batch dimensions to be equal and "
                "the same number of stacked tensordicts, got "
                f"td[{place}].batch_size={size} and td[0].batch_size={batch_size}"
            )
    total = sum([size[at] for size in found])
    sizes = Size((*batch_size[:at], total, *batch_size[at + 1 :]))
    change = Outline(dims, sizes, range(dims))
    result = _by_node(items, at, at, native.cat_dicts, change)
    if result is None:
        result = _apart(items, at, True)
    if result is None:
        items = [solid(item) for item in items]
        tree, columns = _columns(items)
        _check_nodes(items, at)
        memo: dict[Any, Any] = {}
        made = _joined(columns, at, torch.cat, lambda column, dim: ragged.cat(column, dim, memo), change)
        result = refill(tree, iter(made), change)
        result = _with_objects(items, result, at, True)
    return _given_out(items, result, out, at)


class JoinOps(Waist):
    """The joins as class methods."""

    __slots__ = ()

    @classmethod
    def stack(cls, input: Sequence[Any], dim: int = 0, *, out: Any = None) -> Any:
        """A tensordict with a new batch dimension at `dim`: `torch.stack` of each leaf (see `tensordict.stack`)."""
        return stack_tensordicts(input, dim, out)

    @classmethod
    def cat(cls, input: Sequence[Any], dim: int = 0, *, out: Any = None) -> Any:
        """The leaves one after the other along a batch dimension: `torch.cat` of each leaf (see `tensordict.cat`)."""
        return cat_tensordicts(input, dim, out)

    @classmethod
    def lazy_stack(cls, input: Sequence[Any], dim: int = 0, *, out: Any = None, **kwargs: Any) -> Any:
        """The stack along a new batch dimension without a copy (see `tensordict.lazy_stack`)."""
        return lazy_stack(input, dim, out, **kwargs)

    @classmethod
    def maybe_dense_stack(cls, input: Sequence[Any], dim: int = 0, *, out: Any = None, **kwargs: Any) -> Any:
        """The dense stack, or the lazy one where keys or shapes differ (see `tensordict.maybe_dense_stack`)."""
        return maybe_dense_stack(input, dim, out, **kwargs)

    def to_lazystack(self, dim: int = 0) -> Any:
        """The lazy stack of the slices along a batch dimension; the leaves share storage.

        Raises:
            IndexError: `dim` is no batch dimension.
        """
        node: Any = self
        parts = node.unbind(dim)
        names = node._names
        at = dim % len(node.batch_size)
        name = None if names is None else names[at]
        return parts[0]._joined(parts, at, "lazy", name) if parts else lazy_stack(parts, at)

    def densify(self, layout: torch.layout = torch.strided) -> Any:
        """The tensordict with dense nodes in place of lazy stacks; entries of unlike shapes become nested tensors.

        Args:
            layout: of the nested tensors.
        """
        fields = {
            key: value.densify(layout) if isinstance(value, TensorCollection) else value
            for key, value in self._entries().items()
        }
        return self._rebuild(fields, self.batch_size, self.device, self._names)
