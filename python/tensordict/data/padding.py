"""Tensordicts of unlike lengths in one: filled up to the longest, and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Size, Tensor

from tensordict._kernel.keys import key_of, path_of
from tensordict._kernel.native import pad_stack_dicts
from tensordict._kernel.registry import is_branch
from tensordict._reexport import lazy_stack, plain_tensordict
from tensordict._types import Key, Path, TensorCollection

_MASKS = "masks"


def pad_sequence(
    list_of_tensordicts: Sequence[Any],
    pad_dim: int = 0,
    padding_value: float | Mapping[Key, float] = 0.0,
    out: Any = None,
    return_mask: bool | Key = False,
    padding_side: str = "right",
) -> Any:
    """The stack of tensordicts whose leaves are filled up to the longest along one dimension.

    Args:
        list_of_tensordicts: tensordicts of batch size `(*B)`. The result has the keys that all of them have.
        pad_dim: the dimension of the leaves to fill up, counted without the one that stacking adds. If it is a batch
            dimension, that one is filled up too.
        padding_value: what is filled in, or a mapping of keys to it; leaves that are not in the mapping get zeros.
        out: a tensordict to write the result into.
        return_mask: put booleans that say what was there before under this key, or under `"masks"` if True: for each leaf
            one of the batch size of the result, and the length where that is no batch dimension.
        padding_side: `"right"` fills up at the end, `"left"` at the start.

    Returns:
        A tensordict of batch size `(N, *B)` with leaves `(N, ..., max(L), ...)` in storage of their own.

    Raises:
        RuntimeError: there is no tensordict, a leaf has no dimension, or shapes differ in another dimension.
        ValueError: `padding_side` is another one.
        KeyError: a key of `padding_value` names no leaf.
        IndexError: a leaf has no dimension `pad_dim`.

    >>> import torch
    >>> from tensordict import TensorDict, pad_sequence
    >>> short, long = TensorDict({"x": torch.ones(1)}, [1]), TensorDict({"x": torch.ones(2)}, [2])
    >>> padded = pad_sequence([short, long], return_mask=True)
    >>> padded["x"].tolist(), padded["masks", "x"].tolist()
    ([[1.0, 0.0], [1.0, 1.0]], [[True, False], [True, True]])
    """
    items = list(list_of_tensordicts)
    if not items:
        raise RuntimeError("list_of_tensordicts cannot be empty")
    if padding_side not in ("left", "right"):
        raise ValueError(f"padding_side must be 'left' or 'right', got {padding_side!r}.")
    job = _Padding(pad_dim, padding_value, padding_side == "left", return_mask is not False)
    result, masks = job.node(items, ())
    job.check_values()
    if masks is not None and masks._fields():
        key = path_of(_MASKS if return_mask is True else cast("Key", return_mask))
        if key in result.keys(True):
            raise RuntimeError(f"pad_sequence cannot put the masks under {key_of(key)!r}: the tensordicts have that entry")
        result.set(key, masks)
    return result if out is None else _written(out, result)


def _written(out: Any, result: Any) -> Any:
    if out.batch_size != result.batch_size:
        raise RuntimeError(f"pad_sequence has the batch size {result.batch_size}, and `out` has {out.batch_size}")
    return out.update(result, inplace=True)


class _Padding:
    """One call of `pad_sequence`."""

    __slots__ = ("dim", "found", "left", "masked", "root", "values")

    def __init__(self, dim: int, values: Any, left: bool, masked: bool) -> None:
        self.dim = dim
        self.left = left
        self.masked = masked
        self.values: Any = {path_of(key): value for key, value in values.items()} if isinstance(values, Mapping) else values
        self.found: list[Path] = []
        self.root: Size | None = None

    def node(self, items: list[Any], path: Path) -> tuple[Any, Any]:
        """The padded stack of nodes that are at one place, and its masks if they are wanted."""
        rows = [item._entries() for item in items]
        first = rows[0]
        shared = set(first).intersection(*rows[1:])
        keys = [key for key in first if key in shared]
        leaves = [key for key in keys if not isinstance(first[key], TensorCollection)]
        dims = [self._dim_of(first[key], (*path, key)) for key in leaves]
        batch_size = self._batch_size(items, dims[0] if dims else None)
        if self.root is None:
            self.root = batch_size
        fields = dict.fromkeys(keys)
        fields.update(self._leaves(rows, leaves, dims, path))
        masks: dict[str, Any] = {}
        if self.masked:
            masks = {key: self._mask(rows, key, dim) for key, dim in zip(leaves, dims)}
        for key in keys:
            if is_branch(first[key]):
                fields[key], below = self.node([row[key] for row in rows], (*path, key))
                if below is not None and below._fields():
                    masks[key] = below
            elif isinstance(first[key], TensorCollection):
                fields[key] = self._objects([row[key] for row in rows])
        device = items[0].device
        device = device if all([item.device == device for item in items]) else None
        result = items[0]._rebuild(fields, batch_size, device)
        return result, plain_tensordict(masks, self.root, device) if self.masked else None

    def _objects(self, nodes: list[Any]) -> Any:
        """The stack of the objects of all samples, with None where a sample is filled up."""
        dims = len(nodes[0].batch_size)
        if -dims <= self.dim < dims:
            at = self.dim % dims
            missing = [max(node.batch_size[at] for node in nodes) - node.batch_size[at] for node in nodes]
            around = [[0, 0] * at + ([more, 0] if self.left else [0, more]) for more in missing]
            nodes = [node.pad(pair) if any(pair) else node for node, pair in zip(nodes, around)]
        joined = nodes[0]._joined(nodes, 0, "stack")
        return joined.maybe_to_stack()

    def _dim_of(self, leaf: Any, path: Path) -> int:
        """The dimension to fill up of the leaves at one place."""
        ndim = leaf.ndim
        if not ndim:
            raise RuntimeError(f"Cannot pad scalars: the entry {key_of(path)!r} has no dimension")
        if not -ndim <= self.dim < ndim:
            raise IndexError(f"pad_dim={self.dim} is out of range for the entry {key_of(path)!r} of shape {tuple(leaf.shape)}.")
        return self.dim % ndim

    def _batch_size(self, items: list[Any], dim: int | None) -> Size:
        own = list(items[0].batch_size)
        dim = self.dim if dim is None else dim
        if 0 <= dim < len(own):
            own[dim] = max([item.batch_size[dim] for item in items])
        return Size((len(items), *own))

    def _value(self, path: Path) -> Any:
        if not isinstance(self.values, dict):
            return self.values
        return self.values.get(path, 0.0)

    def _leaves(self, rows: list[Any], keys: list[str], dims: list[int], path: Path) -> Iterator[tuple[str, Tensor]]:
        """The padded stacks of the leaves of one level; those that are alike by one call."""
        self.found.extend([(*path, key) for key in keys])
        groups: dict[tuple[int, Any], list[str]] = {}
        for key, dim in zip(keys, dims):
            groups.setdefault((dim, self._value((*path, key))), []).append(key)
        for (dim, value), group in groups.items():
            stacked = pad_stack_dicts(rows, group, dim, value, self.left)
            if stacked is None:
                stacked = [padded_stack([row[key] for row in rows], dim, value, self.left, (*path, key)) for key in group]
            yield from zip(group, stacked)

    def check_values(self) -> None:
        """Raises where a padding value is for no leaf."""
        if isinstance(self.values, dict):
            unknown = [key_of(path) for path in self.values if path not in self.found]
            if unknown:
                raise KeyError(
                    f"padding_value has keys {unknown} that name no entry of the tensordicts, whose entries are "
                    f"{[key_of(path) for path in self.found]}."
                )

    def _mask(self, rows: list[Any], key: str, dim: int) -> Tensor:
        """Where the padded leaf under `key` has what was there: of the batch size, and the length if that is not in it."""
        root = cast("Size", self.root)
        leaf = rows[0][key]
        lengths = torch.tensor([row[key].shape[dim] for row in rows], device=leaf.device)
        longest = int(lengths.max())
        places = torch.arange(longest, device=leaf.device)
        mask = places >= longest - lengths.unsqueeze(1) if self.left else places < lengths.unsqueeze(1)
        shape = list(root) if dim + 1 < len(root) else [*root, longest]
        if len(shape) == 2:
            return mask
        at = min(dim + 1, len(shape) - 1)
        wide = [1] * len(shape)
        wide[0], wide[at] = mask.shape
        return mask.view(wide).expand(shape).contiguous()


def padded_stack(column: list[Tensor], dim: int, value: Any, left: bool, path: Path) -> Tensor:
    """The leaves at one place stacked by torch, each filled up."""
    try:
        longest = max([leaf.shape[dim] for leaf in column])
        around = [0] * (2 * (column[0].ndim - dim - 1))

        def filled(leaf: Tensor) -> Tensor:
            missing = longest - leaf.shape[dim]
            return torch.nn.functional.pad(leaf, [*around, *((missing, 0) if left else (0, missing))], value=value)

        return torch.stack([filled(leaf) for leaf in column])
    except (RuntimeError, IndexError) as error:
        raise RuntimeError(f"pad_sequence failed for key {key_of(path)}: {error}") from error


def unpad_sequence(padded: Any, mask: Any = None, *, pad_dim: int = 0) -> Any:
    """The rows of a padded tensordict without what was filled in, as a lazy stack: what `pad_sequence` was given.

    Args:
        padded: the tensordict, of batch size `(N, *B)`.
        mask: a boolean tensor `(N, L)` for all leaves, or a tensordict of masks as `pad_sequence` makes them. Not given, the
            entry `"masks"` of `padded`, which then is no entry of the result.
        pad_dim: the dimension that was filled up, counted without the first.

    Returns:
        A lazy stack of `N` tensordicts, whose leaves share storage with those of `padded`.

    Raises:
        ValueError: there is no mask, it has another shape, or a row of it has gaps.
        KeyError: a leaf has no mask.
    """
    if not padded.batch_size:
        raise ValueError("unpad_sequence needs the samples along the first batch dimension of padded, which has none.")
    if mask is None:
        mask = padded.get(_MASKS, None)
        if not isinstance(mask, TensorCollection):
            raise ValueError("unpad_sequence needs a mask: pass mask=..., or pad with pad_sequence(..., return_mask=True).")
        padded = padded.exclude(_MASKS)
    bounds = _Bounds(padded, mask, pad_dim)
    rows = [bounds.row(padded, number, ()) for number in range(padded.batch_size[0])]
    return lazy_stack(rows, 0)


class _Bounds:
    """Where in each row of a padded tensordict the sample is."""

    __slots__ = ("batch", "count", "dim", "known", "mask")

    def __init__(self, padded: Any, mask: Any, pad_dim: int) -> None:
        self.dim = pad_dim
        self.mask = mask
        self.known: dict[Any, list[tuple[int, int]]] = {}
        self.count = padded.batch_size[0]
        dims = len(padded.batch_size)
        paths = [(key,) if isinstance(key, str) else key for key in padded.keys(True, True)]
        for path in paths:
            self.of(path, padded.get(path))
        self.batch = None
        if paths and self._at(padded.get(paths[0])) < dims:
            masked = [path for path in paths if path in self.known]
            self.batch = self._agreed([self.known[path] for path in masked])

    def _agreed(self, found: list[list[tuple[int, int]]]) -> list[tuple[int, int]]:
        if any(bounds != found[0] for bounds in found):
            raise ValueError("the masks of the entries differ, and the dimension to cut is one of the batch.")
        return found[0]

    def _at(self, leaf: Any) -> int:
        """The padded dimension of a leaf of `padded`."""
        ndim = leaf.ndim - 1
        if not -ndim <= self.dim < ndim:
            raise IndexError(f"pad_dim={self.dim} is out of range for an entry of shape {tuple(leaf.shape[1:])}.")
        return self.dim % ndim + 1

    def of(self, path: Path, leaf: Any) -> None:
        """Finds the bounds of the leaf at `path`."""
        size = leaf.shape[self._at(leaf)]
        if isinstance(self.mask, Tensor):
            if self.mask.ndim != 2 or self.mask.shape[0] != self.count:
                raise ValueError(f"A tensor mask must have shape [len(padded), max_len], got {tuple(self.mask.shape)}.")
            if self.mask.shape[1] != size:
                raise ValueError(
                    f"A tensor mask must have shape [len(padded), max_len] = {[self.count, size]}, got "
                    f"{tuple(self.mask.shape)}."
                )
            self.known[path] = self.known[()] if () in self.known else self.known.setdefault((), _runs(self.mask, path))
            return
        mask = self.mask.get(path, None)
        if mask is None:
            return  # fine where the batch says how long it is
        at = self._at(leaf) if mask.ndim > self._at(leaf) else mask.ndim - 1
        flat = mask.movedim(at, 1)
        self.known[path] = _runs(flat.reshape(*flat.shape[:2], -1)[..., 0], path)

    def row(self, node: Any, number: int, path: Path) -> Any:
        """The sample in one row."""
        fields = {}
        for key, value in node._entries().items():
            here = (*path, key)
            if isinstance(value, TensorCollection):
                fields[key] = self.row(value, number, here)
                continue
            bounds = self.known.get(here, self.batch)
            if bounds is None:
                raise KeyError(f"The mask has no entry for key {key_of(here)!r} of padded.")
            start, length = bounds[number]
            fields[key] = value[number].narrow(self._at(value) - 1, start, length)
        sizes = list(node.batch_size[1:])
        at = self.dim if self.dim >= 0 else -1
        if self.batch is not None and at < len(sizes):
            sizes[at if at >= 0 else self.dim] = self.batch[number][1]
        return node._rebuild(fields, Size(sizes), node.device)


def _runs(mask: Tensor, path: Path) -> list[tuple[int, int]]:
    """Start and length of what each row marks; raises `ValueError` where that has gaps."""
    marked = mask.bool()
    lengths = marked.sum(1)
    starts = marked.int().argmax(1) if marked.shape[1] else lengths
    ends = marked.shape[1] - (marked.flip(1).int().argmax(1) if marked.shape[1] else lengths)
    if bool(((ends - starts != lengths) & (lengths > 0)).any()):
        raise ValueError(
            f"The mask of key {key_of(path)!r} marks positions that are not contiguous in some row: unpad_sequence keeps one "
            "contiguous run per row."
        )
    return list(zip(starts.tolist(), lengths.tolist()))
