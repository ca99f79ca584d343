"""The waist: what a container must write. Every other method is written once, on these."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Size, Tensor
from typing_extensions import Self

from tensordict._kernel.change import Change
from tensordict._kernel.index import Index
from tensordict._kernel.ragged import call, changed, has_ragged
from tensordict._kernel.unbatched import is_unbatched, moved
from tensordict._reexport import stack_lazily
from tensordict._types import Names, TensorCollection


class Waist(TensorCollection):
    """The methods that each container writes itself.

    `_fields` and `_rebuild` see a container as its entries; `_parts` and `_from_parts` see it as the pieces that a
    leaf-wise operation runs on, which are the same for a container of named fields and the members for a stack.
    """

    __slots__ = ()

    # Whether `_fields` is the dict of the entries themselves, and `_parts` are its values: then the short ways hold.
    _dict_backed = False
    # Whether `_parts` are members along a batch dimension, `stack_dim`, which the members do not have.
    _stacked = False

    # Whether the entries are those of another container, seen at an index or with another batch size.
    _is_view = False

    # The container that this one only gives a class to, which is saved in a folder below its own; None for all others.
    _wrapped: Any = None

    # Whether this describes a tensor, for `to`.
    _describes = False

    # What a container with declared fields makes of a value: `_schema.admit(node, key, value)`; None for all others.
    _schema: ClassVar[Any] = None

    @abstractmethod
    def _fields(self) -> dict[str, Any]:
        """The entries of the first level, by name. Not to be written to."""

    @abstractmethod
    def _get_str(self, key: str) -> Any:
        """The entry `key` of the first level; raises `KeyError`."""

    @abstractmethod
    def _set_str(self, key: str, value: Any) -> None:
        """Stores a checked value under `key`, without a look at the lock."""

    @abstractmethod
    def _del_str(self, key: str) -> None:
        """Removes `key` from the first level; raises `KeyError`."""

    @abstractmethod
    def _rebuild(
        self, fields: dict[str, Any], batch_size: Size, device: torch.device | None = None, names: Names = None
    ) -> Any:
        """An unlocked container of other fields, taken as they are."""

    def _below(self) -> Any:
        """An empty, unlocked node to be held by this one."""
        return self._rebuild({}, self.batch_size, self.device, self._names)

    @abstractmethod
    def _parts(self) -> Iterable[Any]:
        """The pieces that leaf-wise operations run on: leaves and nodes, in a fixed order."""

    @abstractmethod
    def _parts_of(self, other: Any) -> list[Any]:
        """The pieces of another container in the order of this one's; raises `KeyError` where the keys differ."""

    @abstractmethod
    def _from_parts(self, parts: Iterable[Any], change: Change | None = None) -> Self:
        """An unlocked container like this one with other pieces and, if given, changed batch dimensions."""

    @abstractmethod
    def _index(self, index: Index) -> Self:
        """The rows at a parsed index."""

    @abstractmethod
    def _assign(self, index: Index, value: Any) -> None:
        """Writes checked values into the rows at a parsed index."""

    @abstractmethod
    def _set_batch_size(self, batch_size: Size) -> None:
        """Stores a checked batch size."""

    @abstractmethod
    def _set_device(self, device: torch.device | None) -> None:
        """Stores the device label, of this node alone."""

    @abstractmethod
    def _set_names(self, names: Names) -> None:
        """Stores the names of the batch dimensions, of this node alone."""

    @abstractmethod
    def _set_lock(self, locked: bool) -> None:
        """Stores the lock, of this node alone."""

    @classmethod
    def _stack_lazily(cls, items: Sequence[Any], stack_dim: int, name: str | None = None) -> Any:
        """The lazy stack of containers that fit, the first of them of this class."""
        return stack_lazily(items, stack_dim, name)

    def _outline(self) -> Iterable[tuple[str, Any]]:
        """The entries by name, or where reading one is a copy, something of the same class, shape and dtype in its place."""
        return self._fields().items()

    def _transform(self, change: Change) -> Self:
        """An unlocked container with `change` made to each leaf and node; for those that are not dict-backed."""
        leaf = change.leaf
        parts = [transform(part, change) if isinstance(part, TensorCollection) else leaf(part) for part in self._parts()]
        return self._from_parts(parts, change)

    def _wrote(self, leaves: list[Any]) -> None:
        """Called after `leaves`, all that `leaves_of` gave, were changed in place; for containers whose leaves are copies."""

    # What the methods above give to all others.

    batch_size: Size
    device: torch.device | None
    is_locked: bool

    @property
    @abstractmethod
    def _names(self) -> Names:
        """The stored names of the batch dimensions, None where no dimension has one."""

    # State that few containers have: lock parents, last operation, memory-map folder. None until first used.
    _extra: dict[str, Any] | None

    @property
    def _rare(self) -> dict[str, Any]:
        """`_extra`, made if it is not there."""
        if self._extra is None:
            self._extra = {}  # type: ignore[misc]
        return self._extra


def leaves_of(node: Waist) -> list[Any]:
    """All leaves below `node`, depth first."""
    out: list[Any] = []
    _collect(node, out)
    return out


def _collect(node: Waist, out: list[Any]) -> None:
    for part in node._parts():
        if type(part) is Tensor or not isinstance(part, TensorCollection):
            out.append(part)
        else:
            _collect(part, out)  # type: ignore[arg-type]


def own_leaves(node: Waist) -> list[Any] | None:
    """All leaves below `node`, depth first, or None if one of them lacks batch dimensions.

    Those of the members of a stack do, and leaves without a batch.
    """
    out: list[Any] = []
    return out if _collect_own(node, out) else None


def _collect_own(node: Waist, out: list[Any]) -> bool:
    if node._stacked:
        return False
    for part in node._parts():
        if type(part) is Tensor:
            out.append(part)
        elif isinstance(part, TensorCollection):
            if not _collect_own(part, out):  # type: ignore[arg-type]
                return False
        elif is_unbatched(part):
            return False
        else:
            out.append(part)
    return True


def solid(node: Any) -> Any:
    """`node` itself, or if there is a stack in the tree, the tree with stacked leaves in its place."""
    if node._stacked:
        return node._dense(True)
    if own_leaves(node) is not None:
        return node
    return node._from_parts([solid(part) if isinstance(part, TensorCollection) else part for part in node._parts()])


def spread(node: Any, value: Any) -> list[Any]:
    """For each leaf of `leaves_of(node)` what belongs to it of a tensor over the leading batch dimensions."""
    out: list[Any] = []
    _spread(node, value, out)
    return out


def _spread(node: Any, value: Any, out: list[Any]) -> None:
    divided = node._stacked and node.stack_dim < value.ndim
    parts = node._parts()
    pieces = value.unbind(node.stack_dim) if divided else None
    for place, part in enumerate(parts):
        piece = value if pieces is None else pieces[place]
        if isinstance(part, TensorCollection):
            _spread(part, piece, out)
        else:
            out.append(piece)


def leaves_like(node: Waist, other: Waist) -> list[Any]:
    """The leaves of `other` in the order of those of `node`; raises `KeyError` where the keys differ."""
    out: list[Any] = []
    _collect_like(node, other, out)
    return out


def _collect_like(node: Waist, other: Waist, out: list[Any]) -> None:
    for mine, part in zip(node._parts(), node._parts_of(other)):
        if type(mine) is Tensor and type(part) is Tensor:
            out.append(part)
            continue
        if isinstance(mine, TensorCollection) and mine._is_non_tensor:
            continue
        if isinstance(mine, TensorCollection) is not isinstance(part, TensorCollection):
            raise KeyError(f"a {type(mine).__name__} stands at the place of a {type(part).__name__}")
        if isinstance(mine, TensorCollection):
            _collect_like(mine, part, out)  # type: ignore[arg-type]
        else:
            out.append(part)


def refill(node: Any, leaves: Iterator[Any], change: Change | None = None) -> Any:
    """A tree like `node` with other leaves, depth first, and, if given, changed batch dimensions."""
    if node._is_non_tensor and node._stacked and change is not None:
        return node if change.leaf is None else node._transform(change)
    if node._dict_backed and change is None:
        fields = {
            key: next(leaves) if type(part) is Tensor or not isinstance(part, TensorCollection) else refill(part, leaves)
            for key, part in node._fields().items()
        }
        return node._rebuild(fields, node.batch_size, node.device, node._names)
    parts = [refill(part, leaves, change) if isinstance(part, TensorCollection) else next(leaves) for part in node._parts()]
    return node._from_parts(parts, change)


def transform(node: Any, change: Change) -> Any:
    """A tree like `node` with `change` made to each leaf and node."""
    leaf = change.leaf
    if not node._dict_backed:
        return node._transform(change)
    entries = node._fields()
    try:
        fields = {
            key: leaf(part)
            if type(part) is Tensor
            else transform(part, change)
            if isinstance(part, TensorCollection)
            else change_other(part, change)
            for key, part in entries.items()
        }
    except Exception:
        if not has_ragged(entries.values()):
            raise
        fields = {
            key: transform(part, change) if isinstance(part, TensorCollection) else change_other(part, change)
            for key, part in entries.items()
        }
    names = node._names
    return node._rebuild(fields, change.shape(node.batch_size), node.device, None if names is None else change.names(names))


def change_other(part: Any, change: Change) -> Any:
    """`change` made to a leaf that is no plain tensor."""
    if is_unbatched(part):
        return moved(part, change)
    return changed(part, change) if part.is_nested else change.leaf(part)


def map_batched(node: Any, function: Callable[[Any], Any]) -> Any:
    """A tree like `node` with `function`, which looks at batch dimensions, of each leaf that has them."""
    return map_leaves(solid(node), lambda leaf: leaf if is_unbatched(leaf) else function(leaf))


def map_leaves(node: Any, function: Callable[[Any], Any]) -> Any:
    """A tree like `node` with `function` of each leaf."""
    try:
        parts = [map_leaves(part, function) if isinstance(part, TensorCollection) else function(part) for part in node._parts()]
    except Exception:
        parts = _parts_of_ragged(node, partial(map_leaves, function=function), function)
    return node._from_parts(parts)


def _parts_of_ragged(node: Any, below: Callable[..., Any], function: Callable[..., Any], *others: Iterable[Any]) -> list[Any]:
    """`function` of each row of leaves and `below` of each row of nodes, after it failed; for the sake of nested leaves.

    To be called where that error is handled, which is raised again if there is no nested leaf.
    """
    rows = list(zip(node._parts(), *others))
    if not any([has_ragged(row) for row in rows]):
        raise
    return [
        below(*row) if isinstance(row[0], TensorCollection) else call(function, *row) if has_ragged(row) else function(*row)
        for row in rows
    ]


def map_pairs(node: Any, other: Any, function: Callable[[Any, Any], Any]) -> Any:
    """A tree like `node` with `function` of each leaf and the leaf of `other` at its place."""
    if node._is_non_tensor:
        return node._compared(other, function)
    beside = [
        part if type(part) is Tensor or isinstance(mine, TensorCollection) else _operand(part)
        for mine, part in zip(node._parts(), node._parts_of(other))
    ]
    try:
        parts = [
            map_pairs(mine, part, function) if isinstance(mine, TensorCollection) else function(mine, part)
            for mine, part in zip(node._parts(), beside)
        ]
    except Exception:
        parts = _parts_of_ragged(node, partial(map_pairs, function=function), function, beside)
    return node._from_parts(parts)


def _operand(part: Any) -> Any:
    """What stands beside a leaf: a leaf, or objects as a tensor."""
    if isinstance(part, TensorCollection) and part._is_non_tensor:
        return torch.as_tensor(part.tolist())  # type: ignore[attr-defined]
    return part


def copy_nodes(node: Any) -> Any:
    """A copy of the nodes, unlocked; the leaves are shared."""
    return node._from_parts([copy_nodes(part) if isinstance(part, TensorCollection) else part for part in node._parts()])
