"""Bulk writes. Each checks every entry before it writes the first, so that a write that fails changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch import Size, Tensor
from typing_extensions import Self

from tensordict._kernel.errors import _InplaceWriteError, batch_mismatch
from tensordict._kernel.index import Index, parse
from tensordict._kernel.keys import key_of, path_of
from tensordict._kernel.native import plain_pairs
from tensordict._kernel.registry import is_branch, is_leaf_nontensor
from tensordict._kernel.shapes import broadcasts_to
from tensordict._leaves.ragged import plan_write
from tensordict._leaves.unbatched import is_unbatched
from tensordict._ops.access import AccessOps, _fitting, node_above
from tensordict._ops.coerce import as_tensor
from tensordict._ops.take import check_nodes_unlocked
from tensordict._ops.trees import copy_nodes, divided
from tensordict._ops.writes import ObjectEntry, Write, Writes
from tensordict._types import IndexType, Key, Path, TensorCollection


def _entries(source: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(source, TensorCollection):
        return source._entries().items()
    if isinstance(source, Mapping):
        return source.items()
    raise TypeError(f"expected a tensordict or a mapping to update from, got a {type(source).__name__}")


def _wanted(path: Path, keys: list[Path] | None) -> list[Path] | None:
    """What of `keys` is left below `path`: None for all of it, an empty list for nothing."""
    if keys is None:
        return None
    below = [key[len(path) :] for key in keys if key[: len(path)] == path]
    if () in below or any(path[: len(key)] == key for key in keys):
        return None
    return below


def _paths(keys: Iterable[Key] | None) -> list[Path] | None:
    """The paths of `keys_to_update`: a list of keys, or a string for one."""
    if isinstance(keys, str):
        return [(keys,)]
    return None if keys is None else [path_of(key) for key in keys]


def _check_congruent(batch_size: Size, source: Size) -> None:
    shared = min(len(batch_size), len(source))
    if batch_size[:shared] != source[:shared]:
        raise RuntimeError(
            f"update() got a source with batch size {source} for a tensordict with batch size {batch_size}; use "
            "update_batch_size=True to take the batch size of the source too"
        )


class UpdateOps(AccessOps):
    """The bulk forms of set, set_ and set_at_."""

    __slots__ = ()

    def update(
        self,
        input_dict_or_td: Any = None,
        clone: bool = False,
        inplace: bool = False,
        *,
        non_blocking: bool = False,
        keys_to_update: Iterable[Key] | None = None,
        is_leaf: Callable[[type], bool] | None = None,
        update_batch_size: bool = False,
        ignore_lock: bool = False,
        **kwargs: Any,
    ) -> Self:
        """Sets the entries of another tensordict or mapping in this one; all of them, or none if one does not fit.

        Args:
            input_dict_or_td: the source. An entry that is a node on both sides is updated, not replaced.
            clone: store copies of the leaves of the source.
            inplace: write into the storage of entries that exist.
            non_blocking: for moves between devices.
            keys_to_update: if given, the only keys to take from the source; a node that is new is taken as a whole.
            is_leaf: which classes of entries are replaced as a whole.
            update_batch_size: where the batch size of the source, or of a node in it, differs, take it; then the source must
                have all keys of the node, and `inplace` and `keys_to_update` cannot be given.
            ignore_lock: write also if this tensordict is locked.
            **kwargs: entries by keyword, instead of a source.

        Raises:
            RuntimeError: the tensordict is locked, or an entry does not fit the batch size.
        """
        if self.is_locked and not (inplace or ignore_lock):
            self._check_unlocked()
        source: Any = kwargs if input_dict_or_td is None else input_dict_or_td
        if source is self:
            return self
        keys = _paths(keys_to_update)
        if isinstance(source, TensorCollection) and not update_batch_size and source.batch_size != self.batch_size:
            _check_congruent(self.batch_size, source.batch_size)
        plan = _UpdatePlan(clone, inplace, non_blocking, is_leaf, ignore_lock)
        if update_batch_size:
            plan.adopted, plan.chosen = [], keys is not None
        if kwargs:
            plan.pending = []
        plan.add(self, source, keys)
        if kwargs and source is not kwargs:
            plan.add(self, kwargs, keys)
        plan.all.run(non_blocking)
        for node, fresh in plan.adopted or ():
            node._take_over(fresh)
        return self

    def update_(
        self,
        input_dict_or_td: Any = None,
        clone: bool = False,
        *,
        non_blocking: bool = False,
        keys_to_update: Iterable[Key] | None = None,
        **kwargs: Any,
    ) -> Self:
        """Writes the entries of a source into the storage of the entries of the same keys; all of them, or none.

        Raises:
            KeyError: the source has a key that this tensordict lacks.
            RuntimeError: a value does not fit the shape of its entry.
        """
        plan = Writes()
        keys = _paths(keys_to_update)
        for source in (input_dict_or_td, kwargs):
            if source is not None and source is not self:
                plan_copies(self, source, None, keys, plan)
        plan.run(non_blocking)
        return self

    def copy_(self, tensordict: Any, non_blocking: bool = False) -> Self:
        """The name that torch has for `update_`."""
        return self.update_(tensordict, non_blocking=non_blocking)

    def update_at_(
        self,
        input_dict_or_td: Any,
        idx: IndexType,
        clone: bool = False,
        *,
        non_blocking: bool = False,
        keys_to_update: Iterable[Key] | None = None,
    ) -> Self:
        """Writes the entries of a source into the rows at `idx` of the entries of the same keys; all of them, or none.

        Raises:
            KeyError: the source has a key that this tensordict lacks.
            RuntimeError: a value does not fit the rows.
        """
        self._update_rows(input_dict_or_td, parse(idx, self.batch_size), keys_to_update)
        return self

    def _update_rows(self, source: Any, index: Index, keys_to_update: Iterable[Key] | None) -> None:
        plan = Writes()
        plan_copies(self, source, index, _paths(keys_to_update), plan)
        plan.run()

    def copy_at_(self, tensordict: Any, idx: IndexType, non_blocking: bool = False, *, fast: bool = True) -> Self:
        """The name that torch-like code has for `update_at_`."""
        return self.update_at_(tensordict, idx, non_blocking=non_blocking)


class _UpdatePlan:
    """The checked writes of one `update`.

    `pending` holds the entries that will be there once the writes are executed, each with its node and its name, where a
    later entry of the source may lie below an earlier one. `adopted` holds nodes that take another batch size, each with all
    that it will hold; None where that is not asked for.
    """

    __slots__ = ("adopted", "all", "chosen", "clone", "ignore_lock", "inplace", "is_leaf", "non_blocking", "pending", "writes")

    def __init__(
        self,
        clone: bool,
        inplace: bool,
        non_blocking: bool,
        is_leaf: Callable[[type], bool] | None,
        ignore_lock: bool,
        plan: Writes | None = None,
    ) -> None:
        self.all = Writes() if plan is None else plan
        self.writes = self.all.sets
        self.pending: list[Write] | None = None
        self.adopted: list[tuple[Any, Any]] | None = None
        self.chosen = False  # whether only some keys are taken
        self.clone = clone
        self.inplace = inplace
        self.non_blocking = non_blocking
        self.is_leaf = is_leaf_nontensor if is_leaf is None else lambda cls: is_leaf(cls) or is_leaf_nontensor(cls)
        self.ignore_lock = ignore_lock

    def add(self, node: Any, source: Any, keys: list[Path] | None) -> None:
        """Plans the writes of the entries of `source` into `node`."""
        if self.adopted is not None and isinstance(source, TensorCollection) and source.batch_size != node.batch_size:
            self.adopted.append((node, self._adopted(node, source)))
            return
        if not node._dict_backed and isinstance(source, TensorCollection):
            parts = divided(node, source, None)
            if parts is not None:
                self.all.parted = True
                for part, piece, _ in parts:
                    self.add(part, piece, keys)
                return
        entries = _entries(source)
        if self.inplace and keys is None and _plan_whole(node, entries, self.all):
            return
        if self.pending is None and not all([type(key) is str for key, _ in entries]):
            self.pending = []
        if keys is None and self.pending is None and not self.inplace and not self.clone:
            self._add_plain(node, entries)
            return
        for key, value in entries:
            path = (key,) if type(key) is str else path_of(key)
            below = _wanted(path, keys)
            if below is None or below:
                self._entry(node, path, value, below)

    def _adopted(self, node: Any, source: Any) -> Any:
        """What a node holds that takes the batch size and the entries of `source`, which must have all its keys."""
        if self.inplace or self.chosen:
            option = "keys_to_update" if self.chosen else "inplace"
            raise RuntimeError(f"an update that changes the batch size, with update_batch_size=True, cannot have {option}")
        if not self.ignore_lock:
            check_nodes_unlocked(node)
        known = set(source.keys(True, True))
        missing = [key for key in node.keys(True, True) if key not in known]
        if missing:
            raise RuntimeError(
                f"an update that changes the batch size from {node.batch_size} to {source.batch_size} must replace all "
                f"entries; the source lacks {missing}"
            )
        if node._stacked:
            stack = source.to_lazystack(node.stack_dim)
            return stack.clone() if self.clone else copy_nodes(stack)
        names = node._names if len(source.batch_size) == len(node.batch_size) else None
        return copy_nodes(node._rebuild({}, source.batch_size, node.device, names).update(source, clone=self.clone))

    def _add_plain(self, node: Any, entries: Iterable[tuple[str, Any]]) -> None:
        """The short way for an update that stores the values of a source with string keys."""
        locked = node.is_locked and not self.ignore_lock
        batch_size, writes = node.batch_size, self.writes
        # with a device tensors may have to move, with a schema the key may be none of its fields
        dims = len(batch_size) if node.device is None and node._schema is None else -1
        fitting: Size | None = None  # the last shape that was found to fit
        for key, value in entries:
            if type(value) is not Tensor or locked or dims < 0:
                self._entry(node, (key,), value, None)
                continue
            shape = value.shape
            if shape != fitting:
                if shape[:dims] != batch_size:
                    raise batch_mismatch(key, batch_size, shape)
                fitting = shape
            writes.append((node, key, value, False))

    def _entry(self, node: Any, path: Path, value: Any, below: list[Path] | None) -> None:
        target = self._there(node, path[0])
        while len(path) > 1 and isinstance(target, TensorCollection):
            node, path = target, path[1:]
            target = self._there(node, path[0])
        if len(path) > 1 and target is not None:
            raise KeyError(f"the entry {path[0]!r} is a {type(target).__name__}: it cannot hold {key_of(path[1:])!r}")
        if self._recurses(target, value):
            if isinstance(value, TensorCollection) and value._stacked and not target._stacked and not self.inplace:
                target = self._as_stack(node, path[0], target, value)
            self.add(target, value, below)
            return
        if self.clone and hasattr(value, "clone"):
            value = value.clone()
        into = self.inplace and target is not None
        write = node._plan_set(path, value, into, self.non_blocking, self.ignore_lock)
        objects = ObjectEntry.of(target, node, path[0]) if into and len(path) == 1 else None
        if objects is not None:
            self.all.put_objects(objects, None, write[2])
            return
        self.writes.append(write)
        if self.pending is not None and not into:
            self.pending.append((node, path[0], write[2], False))

    def _as_stack(self, node: Any, key: str, target: Any, value: Any) -> Any:
        """Plans a stack in the place of a node that a stack is written into, whose members may be unlike."""
        if not self.ignore_lock:
            node._check_unlocked()
        parts = target.unbind(value.stack_dim)
        stack = parts[0]._joined(parts, value.stack_dim, "lazy") if parts else value
        self.writes.append((node, key, stack, False))
        return stack

    def _there(self, node: Any, name: str) -> Any:
        """The entry that will be at `name` of `node`, or None."""
        for holder, key, value, _ in reversed(self.pending or ()):
            if key == name and holder is node:
                return value
        return node._peek(name) if name in node._fields() else None

    def _recurses(self, target: Any, value: Any) -> bool:
        if self.is_leaf(type(target)):
            return False
        return isinstance(value, Mapping) if not isinstance(value, TensorCollection) else not self.is_leaf(type(value))


def plan_update(node: Any, source: Any, plan: Writes) -> None:
    """Plans `update` of a node with the entries of a source, in place where they are there already."""
    if isinstance(source, TensorCollection):
        _check_congruent(node.batch_size, source.batch_size)
    _UpdatePlan(False, True, False, None, False, plan).add(node, source, None)


def plan_copies(node: Any, source: Any, index: Index | None, keys: list[Path] | None, plan: Writes, above: Path = ()) -> None:
    """Plans what is written into which leaf, every pair checked; `above` is the path of `node`, for the errors."""
    parts = None if node._dict_backed else divided(node, source, index)
    if parts is not None:
        plan.parted = True
        for part, piece, own in parts:
            plan_copies(part, piece, own, keys, plan, above)
        return
    fields, copies, entries = node._fields(), plan.copies, _entries(source)
    if index is None and keys is None and _plan_whole(node, entries, plan):
        return
    for key, value in entries:
        path = (key,) if type(key) is str else path_of(key)
        below = _wanted(path, keys)
        if below is not None and not below:
            continue
        target = fields.get(path[0]) if len(path) == 1 else node.get(path, None)
        if target is None:
            raise KeyError(f"The key {key_of(above + path)!r} was not found in the dest tensordict.")
        is_node = isinstance(target, TensorCollection)
        if is_node and not is_branch(target):
            holder, last = node_above(node, path)
            plan.put_objects(ObjectEntry(holder, last), index, _fitting(holder, last, target, value))
            continue
        check_kinds(key_of(above + path), target, value)
        if is_node:
            plan_copies(target, value, index, below, plan, above + path)
        elif index is None or not is_unbatched(target):  # that has no rows
            copies.append((target, index, _checked(above + path, target, value, index)))


def _plan_whole(node: Any, entries: Iterable[tuple[Any, Any]], plan: Writes) -> bool:
    """Plans the copies of all entries at once where each is a plain tensor of the shape of the leaf that is there."""
    if not node._dict_backed:
        return False
    fields = node._fields()
    leaves, values = [fields.get(key) for key, _ in entries], [value for _, value in entries]
    fits = plain_pairs(leaves, values)
    if fits:
        plan.leaves += leaves
        plan.values += values
    return fits


def _checked(path: Path, target: Tensor, value: Any, index: Index | None) -> Tensor:
    """A value as a tensor that fits a leaf, or the rows of it at an index."""
    if not isinstance(value, Tensor):
        value = as_tensor(path[-1], value, target.device)
    check_copy(key_of(path), target, value, index)
    return value


def check_kinds(key: Key, target: Any, value: Any) -> None:
    """Raises where a node is written into a leaf, or a leaf into a node."""
    if isinstance(target, TensorCollection) is not isinstance(value, (TensorCollection, Mapping)):
        kind = "tensordict" if isinstance(target, TensorCollection) else "tensor"
        raise _InplaceWriteError(f"the entry {key!r} is a {kind}: a {type(value).__name__} does not fit it")


def check_copy(key: Key, target: Tensor, value: Tensor, index: Index | None) -> None:
    if target.is_nested:
        plan_write(key, target, value, index)
        return
    shape = target.shape if index is None else index.shape(target.shape)
    if value.shape != shape and not broadcasts_to(value.shape, shape):
        where = "the entry" if index is None else f"the rows at {index.key} of the entry"
        raise RuntimeError(f"cannot copy the value of shape {value.shape} under the key {key!r} into {where} of shape {shape}")
