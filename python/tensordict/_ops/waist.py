"""The waist: what a container must write. Every other method is written once, on these."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Size, Tensor
from typing_extensions import Self

from tensordict._kernel.change import Change
from tensordict._kernel.index import Index
from tensordict._kernel.native import all_tensors
from tensordict._leaves.ragged import call, changed, has_ragged
from tensordict._leaves.unbatched import is_unbatched, moved
from tensordict._reexport import stack_lazily
from tensordict._types import Names, TensorCollection


class Waist(TensorCollection):
    """The methods that each container writes itself.

    `_fields` and `_rebuild` see a container as its entries; `_pieces` and `_from_pieces` see it as the pieces that a
    leaf-wise operation runs on, which are the same for a container of named fields and the members for a stack.

    Another thread, or the function of a leaf, may change the entries while an operation runs. So `_fields` is for looking up
    a key; whoever walks the entries takes them first, by `_entries` or `_pieces`.
    """

    __slots__ = ()

    # Whether `_fields` is the dict of the entries themselves, and `_pieces` a copy of it: then the short ways hold.
    _dict_backed = False
    # Whether `_pieces` are members along a batch dimension, `stack_dim`, which the members do not have.
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
    def _entries(self) -> dict[str, Any]:
        """The entries of the first level, by name, as they are at this moment: a dict of the caller's own."""

    @abstractmethod
    def _pieces(self) -> dict[Any, Any]:
        """The pieces that leaf-wise operations run on, leaves and nodes, as they are at this moment.

        The dict is the caller's own. They stand under their names, or under their places in a stack. An operation puts what
        it makes of each in its place and gives the dict to `_from_pieces`: so each result has the key of what it was made
        of, whatever becomes of this container meanwhile.
        """

    def _pieces_of(self, other: Any, pieces: dict[Any, Any]) -> list[Any]:
        """The pieces of another container in the order of those of this one; raises `KeyError` where the keys differ."""
        fields = other._fields()
        if len(pieces) == len(fields):
            try:
                return [fields[key] for key in pieces]
            except KeyError:
                pass
        left, right = sorted(pieces.keys() - fields.keys()), sorted(fields.keys() - pieces.keys())
        raise KeyError(f"keys in tensordicts mismatch: only the first has the keys {left}, only the second {right}")

    def _from_pieces(self, pieces: dict[Any, Any], change: Change | None = None) -> Any:
        """An unlocked container like this one with other pieces, whose dict it keeps, and with changed batch dimensions."""
        if change is None:
            return self._rebuild(pieces, self.batch_size, self.device, self._names)
        return self._rebuild(pieces, change.shape(self.batch_size), self.device, change.names(self._names))

    def _parts(self) -> Collection[Any]:
        """The pieces, where no others will stand in their places."""
        return self._pieces().values()

    @abstractmethod
    def _index(self, index: Index) -> Self:
        """The rows at a parsed index."""

    @abstractmethod
    def _assign(self, index: Index, value: Any) -> None:
        """Writes checked values into the rows at a parsed index."""

    def _plan_assign(self, index: Index, value: Any, plan: Any) -> None:
        """Plans `_assign`; what this raises, and what it does not check, is known before anything is written."""
        plan.put_call(partial(self._assign, index, plan.own(value)))

    def _parts_at(self, index: Index | None, value: Any) -> Iterable[tuple[Any, Any, Index | None]]:
        """For stacks: the members that an index meets, what of a value belongs to each, and its rows; None for all rows."""
        raise NotImplementedError

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
        return self._entries().items()

    def _transform(self, change: Change) -> Self:
        """An unlocked container with `change` made to each leaf and node; for those that are not dict-backed."""
        leaf, pieces = change.leaf, self._pieces()
        for key, part in pieces.items():
            pieces[key] = transform(part, change) if isinstance(part, TensorCollection) else leaf(part)
        return self._from_pieces(pieces, change)

    def _wrote(self, tree: Tree, leaves: list[Any]) -> None:
        """Called after all leaves that `collect` gave were changed in place; for containers whose leaves are copies."""

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


# A tree as it was found: a node, and its pieces with trees in the places of the nodes among them. What is made of its leaves
# is put together by `refill`, under the keys that the leaves had when they were collected.
Tree = tuple[Any, dict[Any, Any]]


def collect(node: Any, leaves: list[Any]) -> Tree:
    """The tree below `node`, whose leaves are appended to `leaves`, depth first."""
    pieces = node._pieces()
    for key, part in pieces.items():
        if type(part) is Tensor or not isinstance(part, TensorCollection):
            leaves.append(part)
        else:
            pieces[key] = collect(part, leaves)
    return node, pieces


def leaves_of(node: Any) -> list[Any]:
    """All leaves below `node`, depth first; for those who put nothing in their places."""
    out: list[Any] = []
    collect(node, out)
    return out


def is_own(tree: Tree) -> bool:
    """Whether all leaves of a tree have its batch dimensions: those of the members of a stack lack one, some have none."""
    node, pieces = tree
    if node._stacked:
        return False
    for part in pieces.values():
        if type(part) is not Tensor and (not is_own(part) if type(part) is tuple else is_unbatched(part)):
            return False
    return True


def collect_own(node: Any, leaves: list[Any]) -> Tree | None:
    """`collect`, or None where a leaf lacks batch dimensions (see `is_own`)."""
    if node._stacked:
        return None
    pieces = node._pieces()
    for key, part in pieces.items():
        if type(part) is Tensor:
            leaves.append(part)
        elif isinstance(part, TensorCollection):
            below = collect_own(part, leaves)
            if below is None:
                return None
            pieces[key] = below
        elif is_unbatched(part):
            return None
        else:
            leaves.append(part)
    return node, pieces


def has_own(node: Any) -> bool:
    """Whether all leaves below `node` have its batch dimensions (see `is_own`)."""
    return collect_own(node, []) is not None


def solid(node: Any) -> Any:
    """`node` itself, or if there is a stack in the tree, the tree with stacked leaves in its place."""
    if node._stacked:
        return node._dense(True)
    if has_own(node):
        return node
    return map_nodes(node, solid)


def spread(tree: Tree, value: Any) -> list[Any]:
    """For each leaf of a tree what belongs to it of a tensor over the leading batch dimensions."""
    out: list[Any] = []
    _spread(tree, value, out)
    return out


def _spread(tree: Tree, value: Any, out: list[Any]) -> None:
    node, pieces = tree
    divided = node._stacked and node.stack_dim < value.ndim
    rows = value.unbind(node.stack_dim) if divided else [value] * len(pieces)
    if len(rows) != len(pieces):
        raise RuntimeError(f"a tensor of shape {tuple(value.shape)} does not fit a stack of {len(pieces)} tensordicts")
    for part, row in zip(pieces.values(), rows):
        if type(part) is tuple:
            _spread(part, row, out)
        else:
            out.append(row)


def leaves_like(tree: Tree, other: Any) -> list[Any]:
    """The leaves of `other` in the order of those of a tree; raises `KeyError` where the keys differ."""
    out: list[Any] = []
    _collect_like(tree, other, out)
    return out


def _collect_like(tree: Tree, other: Any, out: list[Any]) -> None:
    node, pieces = tree
    for mine, part in zip(pieces.values(), node._pieces_of(other, pieces)):
        if type(mine) is Tensor and type(part) is Tensor:
            out.append(part)
            continue
        is_node = type(mine) is tuple
        if is_node and mine[0]._is_non_tensor:
            continue
        if is_node is not isinstance(part, TensorCollection):
            kind = type(mine[0] if is_node else mine)
            raise KeyError(f"a {kind.__name__} stands at the place of a {type(part).__name__}")
        if is_node:
            _collect_like(mine, part, out)
        else:
            out.append(part)


# From so many pieces on it is worth asking whether all of them are leaves.
_MANY = 32


def refill(tree: Tree, leaves: Iterator[Any], change: Change | None = None) -> Any:
    """A container like the one that a tree was collected of, with other leaves and, if given, changed batch dimensions."""
    node, pieces = tree
    if node._is_non_tensor and node._stacked and change is not None:
        return node if change.sizes_only else node._transform(change)
    if len(pieces) > _MANY and all_tensors(list(pieces.values())):
        return node._from_pieces(dict(zip(pieces, leaves)), change)
    fields = {key: refill(part, leaves, change) if type(part) is tuple else next(leaves) for key, part in pieces.items()}
    return node._from_pieces(fields, change)


def transform(node: Any, change: Change) -> Any:
    """A tree like `node` with `change` made to each leaf and node."""
    if not node._dict_backed:
        return node._transform(change)
    leaf, pieces = change.leaf, node._pieces()
    left = iter(pieces.items())
    try:
        for key, part in left:
            if type(part) is Tensor:
                pieces[key] = leaf(part)
            else:
                pieces[key] = transform(part, change) if isinstance(part, TensorCollection) else change_other(part, change)
    except Exception:
        if type(part) is not Tensor or not part.is_nested:
            raise
        pieces[key] = change_other(part, change)
        for key, part in left:
            pieces[key] = transform(part, change) if isinstance(part, TensorCollection) else change_other(part, change)
    return node._from_pieces(pieces, change)


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
    pieces = node._pieces()
    left = iter(pieces.items())
    try:
        for key, part in left:
            pieces[key] = map_leaves(part, function) if isinstance(part, TensorCollection) else function(part)
    except Exception:
        # What was done before stays: the function may draw numbers. It goes on at the leaf where it failed.
        if not has_ragged((part,)):
            raise
        pieces[key] = call(function, part)
        for key, part in left:
            if isinstance(part, TensorCollection):
                pieces[key] = map_leaves(part, function)
            else:
                pieces[key] = call(function, part) if has_ragged((part,)) else function(part)
    return node._from_pieces(pieces)


def map_pairs(node: Any, other: Any, function: Callable[[Any, Any], Any]) -> Any:
    """A tree like `node` with `function` of each leaf and the leaf of `other` at its place."""
    if node._is_non_tensor:
        return node._compared(other, function)
    pieces = node._pieces()
    left = iter(zip(pieces.items(), node._pieces_of(other, pieces)))
    try:
        for (key, mine), part in left:
            if isinstance(mine, TensorCollection):
                pieces[key] = map_pairs(mine, part, function)
            else:
                pieces[key] = function(mine, part if type(part) is Tensor else _operand(part))
    except Exception:
        if not has_ragged((mine, part)) or isinstance(mine, TensorCollection):
            raise
        pieces[key] = call(function, mine, _operand(part))
        for (key, mine), part in left:
            if isinstance(mine, TensorCollection):
                pieces[key] = map_pairs(mine, part, function)
            else:
                row = (mine, _operand(part))
                pieces[key] = call(function, *row) if has_ragged(row) else function(*row)
    return node._from_pieces(pieces)


def _operand(part: Any) -> Any:
    """What stands beside a leaf: a leaf, or objects as a tensor."""
    if isinstance(part, TensorCollection) and part._is_non_tensor:
        return torch.as_tensor(part.tolist())  # type: ignore[attr-defined]
    return part


def map_nodes(node: Any, function: Callable[[Any], Any]) -> Any:
    """A container like `node` with `function` of each node right below it."""
    pieces = node._pieces()
    for key, part in pieces.items():
        if isinstance(part, TensorCollection):
            pieces[key] = function(part)
    return node._from_pieces(pieces)


def copy_members(stack: Any) -> Any:
    """The stack of the members that a stack has at this moment, which nobody changes: they are numbered once."""
    return stack._from_pieces(stack._pieces())


def copy_nodes(node: Any) -> Any:
    """A copy of the nodes, unlocked; the leaves are shared."""
    pieces = node._pieces()
    for key, part in pieces.items():
        if type(part) is not Tensor and isinstance(part, TensorCollection):
            pieces[key] = copy_nodes(part)
    return node._from_pieces(pieces)
