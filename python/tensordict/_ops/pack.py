"""The leaves of one tensordict joined: as a tensor, as a new entry, as a matrix of all features and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch
from torch import Size, Tensor
from typing_extensions import Self

from tensordict._kernel.keys import key_of, path_of
from tensordict._kernel.shapes import wrap
from tensordict._ops.access import descend
from tensordict._ops.keys import KeyOps
from tensordict._reexport import plain_tensordict
from tensordict._types import Key, Path, TensorCollection


@dataclass(frozen=True)
class PackLayout:
    """Where each leaf stands in the tensor that `TensorDict.pack` gives.

    Attributes:
        keys: the keys of the leaves, in the order of the tensor.
        shapes: for each leaf the dimensions behind the batch.
        dim: the dimension of the tensor that holds the leaves, counted from behind.
        nested: for each node below the root its key, its batch dimensions beyond those of the root, and its class if that
            is not `TensorDict`.
        device: the device label of the tensordict.
        cls: the class of the root, if that is not `TensorDict`.
        offsets: for each leaf where it begins along `dim`.
        numel: the size of `dim`.
    """

    keys: tuple[Any, ...]
    shapes: tuple[Size, ...]
    dim: int = -1
    nested: tuple[tuple[Any, Size, type | None], ...] = ()
    device: torch.device | None = None
    cls: type | None = None
    offsets: tuple[int, ...] = field(init=False)
    numel: int = field(init=False)

    def __post_init__(self) -> None:
        offsets, total = [], 0
        for shape in self.shapes:
            offsets.append(total)
            total += prod(shape)
        object.__setattr__(self, "offsets", tuple(offsets))
        object.__setattr__(self, "numel", total)

    def unpack(self, flat: Tensor) -> Any:
        """A tensordict of the leaves in `flat`; they share its storage where torch can.

        Args:
            flat: a tensor whose dimension `dim` has the size `numel`; its other dimensions become the batch size.

        Raises:
            IndexError: the tensor has too few dimensions.
            ValueError: the dimension has another size.

        >>> import torch
        >>> from tensordict import TensorDict
        >>> flat, layout = TensorDict({"a": torch.zeros(3, 2), "b": torch.ones(3)}, [3]).pack()
        >>> flat.shape, layout.unpack(flat)["a"].shape
        (torch.Size([3, 3]), torch.Size([3, 2]))
        """
        if flat.ndim < -self.dim:
            raise IndexError(f"dim {self.dim} is out of range for a tensor with {flat.ndim} dimensions.")
        size = flat.shape[self.dim]
        if size != self.numel:
            raise ValueError(f"Expected {self.numel} entries along dim {self.dim} of the packed tensor, got {size}.")
        flat = flat.movedim(self.dim, -1)
        batch_size = flat.shape[:-1]
        fields: dict[str, Any] = {}
        for key, extra, _ in self.nested:
            _place(fields, path_of(key), plain_tensordict({}, Size(batch_size + extra), self.device))
        for key, shape, offset in zip(self.keys, self.shapes, self.offsets):
            _place(fields, path_of(key), flat.narrow(-1, offset, prod(shape)).reshape((*batch_size, *shape)))
        for key, _, cls in reversed(self.nested):
            _wrap(fields, path_of(key), cls)
        return _as_class(plain_tensordict(fields, batch_size, self.device), self.cls)


def _node_at(fields: dict[str, Any], path: Path) -> dict[str, Any]:
    for name in path:
        fields = fields[name]._fields()
    return fields


def _place(fields: dict[str, Any], path: Path, value: Any) -> None:
    _node_at(fields, path[:-1])[path[-1]] = value


def _wrap(fields: dict[str, Any], path: Path, cls: type | None) -> None:
    if cls is not None:
        holder = _node_at(fields, path[:-1])
        holder[path[-1]] = _as_class(holder[path[-1]], cls)


def _as_class(node: Any, cls: type | None) -> Any:
    return node if cls is None else cls._from_tensordict(node)  # type: ignore[attr-defined]


def _class_of(node: Any) -> type | None:
    """The class to restore, of those that wrap a tensordict."""
    return type(node) if hasattr(type(node), "_from_tensordict") else None


def _walk(node: Any, prefix: Path, nodes: list[tuple[Path, Any]], keys: list[Key], leaves: list[Tensor]) -> None:
    fields = node._entries()
    for name in sorted(fields):
        value = fields[name]
        if isinstance(value, TensorCollection):
            nodes.append(((*prefix, name), value))
            _walk(value, (*prefix, name), nodes, keys, leaves)
        else:
            keys.append((*prefix, name) if prefix else name)
            leaves.append(value)


def _flattened(leaves: list[Tensor], dims: int) -> tuple[tuple[Size, ...], list[Tensor]]:
    """The dimensions of each leaf behind the first `dims`, and each leaf with these as one."""
    shapes, flat = [], []
    for leaf in leaves:
        shape = leaf.shape[dims:]
        shapes.append(shape)
        flat.append(leaf if len(shape) == 1 else leaf.flatten(dims) if shape else leaf.unsqueeze(-1))
    return tuple(shapes), flat


def _check_layout(given: PackLayout, made: PackLayout) -> None:
    if given.keys != made.keys:
        raise KeyError(f"the leaves are {list(made.keys)}, and those of the layout {list(given.keys)}")
    if given.shapes != made.shapes:
        raise ValueError(f"the leaves have the feature shapes {made.shapes}, and those of the layout {given.shapes}")


class PackOps(KeyOps):
    """Joins of the leaves of one tensordict."""

    __slots__ = ()

    def _ordered(self, order: bool | Sequence[Key] | None) -> list[Tensor]:
        """The leaves in the order of the entries, of the sorted keys, or of given keys."""
        leaves = {path_of(key): leaf for key, leaf in self.items(True, True)}
        if not order:
            return list(leaves.values())
        paths = sorted(leaves) if order is True else [path_of(key) for key in order]
        if set(paths) != leaves.keys():
            raise RuntimeError(
                f"The provided set of keys differs from the tensordict list of keys: {[key_of(path) for path in paths]} and "
                f"{[key_of(path) for path in leaves]}"
            )
        return [leaves[path] for path in paths]

    def stack_from_tensordict(
        self, dim: int = 0, *, sorted: bool | Sequence[Key] | None = None, out: Tensor | None = None
    ) -> Tensor:
        """`torch.stack` of all leaves: one tensor.

        Args:
            dim: the new dimension.
            sorted: take the leaves in the order of their sorted keys, or in the order of these keys, which must be all.
            out: a tensor to write the result into.

        Raises:
            RuntimeError: the shapes differ, there is no leaf, or the keys are not those of the leaves.
        """
        return torch.stack(self._ordered(sorted), dim, out=out)

    def cat_from_tensordict(
        self, dim: int = 0, *, sorted: bool | Sequence[Key] | None = None, out: Tensor | None = None
    ) -> Tensor:
        """`torch.cat` of all leaves along `dim`: one tensor; the arguments are those of `stack_from_tensordict`."""
        return torch.cat(self._ordered(sorted), dim, out=out)

    def stack_tensors(self, *keys: Key, out_key: Key, dim: int = 0, keep_entries: bool = False) -> Self:
        """The stack of some entries as a new entry, in their place.

        Args:
            *keys: the entries.
            out_key: the new entry.
            dim: the new dimension.
            keep_entries: keep the entries too.

        Raises:
            KeyError: an entry is missing.
            RuntimeError: the tensordict is locked, or the result does not fit the batch size; nothing has changed then.
        """
        return self._join(torch.stack, keys, out_key, dim, keep_entries)

    def cat_tensors(self, *keys: Key, out_key: Key, dim: int = 0, keep_entries: bool = False) -> Self:
        """Some entries one after the other along `dim` as a new entry, in their place (see `stack_tensors`)."""
        return self._join(torch.cat, keys, out_key, dim, keep_entries)

    def _join(self, join: Any, keys: tuple[Key, ...], out_key: Key, dim: int, keep: bool) -> Self:
        self._check_unlocked()
        paths, target = [path_of(key) for key in keys], path_of(out_key)
        gone = [] if keep else [path for path in dict.fromkeys(paths) if path != target]
        for path in gone:
            if target[: len(path)] == path:
                raise RuntimeError(
                    f"the entry {out_key!r} is to be below the entry {key_of(path)!r}, which is joined and removed"
                )
        self.set(out_key, join([descend(self, path) for path in paths], dim))
        for path in gone:
            self.del_(key_of(path))
        return self

    def pack(self, dim: int = -1, *, layout: PackLayout | None = None) -> tuple[Tensor, PackLayout]:
        """All leaves in one tensor, each flattened behind the batch, and what is needed to get them back.

        Args:
            dim: where the dimension of the leaves stands among those of the batch.
            layout: a layout that the tensordict must have.

        Returns:
            A tensor of the batch size with one more dimension, and its layout, whose `unpack` is the way back.

        Raises:
            IndexError: `dim` is out of range.
            TypeError: the leaves have different dtypes.
            KeyError: the leaves are not those of `layout`.
            ValueError: the shapes of the leaves or `dim` are not those of `layout`.
        """
        dims, batch_size = len(self.batch_size), self.batch_size
        refusal = f"dim {dim} is out of range for packing a tensordict with {dims} batch dimensions."
        at = wrap(dim, dims + 1, lambda: IndexError(refusal)) - dims - 1
        nodes: list[tuple[Path, Any]] = []
        keys: list[Key] = []
        leaves: list[Tensor] = []
        _walk(self, (), nodes, keys, leaves)
        nested = tuple([(key_of(path), node.batch_size[dims:], _class_of(node)) for path, node in nodes])
        shapes, flat = _flattened(leaves, dims)
        made = PackLayout(tuple(keys), shapes, at, nested, self.device, _class_of(self))
        if layout is not None:
            _check_layout(layout, made)
            if layout.dim != at:
                raise ValueError(f"Cannot pack along dim {dim} with a layout packed along dim {layout.dim}.")
        if not leaves:
            return torch.zeros((*batch_size, 0), device=self.device).movedim(-1, at), made
        for key, leaf in zip(keys, leaves):
            if leaf.dtype is not leaves[0].dtype:
                raise TypeError(
                    f"Cannot pack leaves of different dtypes: {leaves[0].dtype} and {leaf.dtype} at {key!r}. Cast the "
                    "tensordict first."
                )
        return torch.cat(flat if at == -1 else [leaf.movedim(-1, at) for leaf in flat], at), made
