"""Reading and writing entries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor
from typing_extensions import Self

from tensordict._kernel.errors import LOCKED, _InplaceWriteError, _KeyThroughLeafError, missing_key, through_leaf
from tensordict._kernel.index import parse
from tensordict._kernel.keys import key_of, path_of
from tensordict._kernel.registry import is_branch
from tensordict._kernel.settings import GET_DEFAULTS_TO_NONE
from tensordict._kernel.shapes import broadcasts_to
from tensordict._ops.coerce import Dealt, as_tensor, coerce
from tensordict._ops.trees import divided, leaves_of
from tensordict._ops.waist import Waist
from tensordict._ops.writes import ObjectEntry, Write
from tensordict._types import NO_DEFAULT, IndexType, Key, Path, TensorCollection


def descend(node: Any, path: Path) -> Any:
    """The entry at `path`.

    Raises:
        KeyError: a key is missing.
        ValueError: the path goes on below a leaf.
    """
    value = node
    for place, key in enumerate(path):
        if not isinstance(value, TensorCollection):
            raise through_leaf(path[place - 1], value, key_of(path[place:]))
        value = value._get_str(key)
    return value


def is_there(node: Any, path: Path) -> bool:
    """Whether there is an entry at `path`. Each key is asked for by `in`, of which compiled code keeps a guard."""
    for key in path[:-1]:
        fields = node._fields()
        node = fields.get(key) if key in fields else None
        if not isinstance(node, TensorCollection):
            return False
    return path[-1] in node._fields()


def node_above(node: Any, path: Path) -> tuple[Any, str]:
    """The node right above the end of `path`, and the last key; raises as `descend` does."""
    if len(path) == 1:
        return node, path[0]
    holder = descend(node, path[:-1])
    if not isinstance(holder, TensorCollection):
        raise through_leaf(path[-2], holder, path[-1])
    return holder, path[-1]


class AccessOps(Waist):
    """Get, set, delete, and their bulk forms."""

    __slots__ = ()

    def _check_unlocked(self) -> None:
        if self.is_locked:
            raise RuntimeError(LOCKED)

    def get(self, key: Key, *args: Any, **kwargs: Any) -> Any:
        """The entry at `key`, or a default.

        Args:
            key: a string, or a tuple of strings for a nested entry.
            default: returned where the key is missing; `None` if not given (see `set_get_defaults_to_none`).

        Returns:
            The stored leaf or node itself: no copy is made.

        Raises:
            KeyError: `key` is no key, or it is missing and defaults are switched off.
        """
        path = (key,) if type(key) is str else path_of(key)
        if args and len(path) == 1 and self._dict_backed and args[0] is not NO_DEFAULT and path[0] not in self._fields():
            return args[0]  # an error that is only caught costs more than all else here
        try:
            if kwargs and len(path) > 1:
                return node_above(self, path)[0].get(path[-1], *args, **kwargs)  # perhaps in one of the forms of a stack
            return self._get_str(path[0]) if len(path) == 1 else descend(self, path)
        except (KeyError, _KeyThroughLeafError) as error:
            default = args[0] if args else kwargs.get("default", NO_DEFAULT)
            if default is not NO_DEFAULT:
                return default
            if GET_DEFAULTS_TO_NONE.value and isinstance(error, KeyError):
                return None
            raise

    def get_at(self, key: Key, *args: Any, **kwargs: Any) -> Any:
        """The rows at an index of the entry `key`: `get_at(key, index, default)`.

        Raises:
            KeyError: the key is missing and defaults are switched off.
        """
        index = kwargs.pop("index") if "index" in kwargs else kwargs.pop("idx") if "idx" in kwargs else args[0]
        rest = args[1:] if args else ()
        if -1 in self.batch_size:  # its entries are no tensors as a whole, those of its rows may be
            return self[index].get(key, *rest, **kwargs)  # type: ignore[index]
        value = self.get(key, *rest, **kwargs)
        default = rest[0] if rest else kwargs.get("default")
        return default if value is default else value[index]

    def set(self, key: Key, item: Any, inplace: bool = False, *, non_blocking: bool = False, **kwargs: Any) -> Self:
        """Stores `item` at `key`, making the nodes of a nested key that are not there.

        Args:
            key: a string, or a tuple of strings for a nested entry.
            item: a tensor of shape `(*batch_size, *F)`, a tensordict, a mapping, a number, an array or a list. A tensor is
                stored itself, not copied, unless it has to move to the device of the tensordict.
            inplace: write into the storage of the entry, if there is one.
            non_blocking: for a move between devices.

        Raises:
            RuntimeError: the tensordict is locked, or the leading dimensions of `item` are not the batch size.
            KeyError: `key` is no key, or goes on below a leaf.
        """
        if type(key) is str and not (inplace and key in self._fields()):
            if self.is_locked:
                self._check_unlocked()
            self._set_str(key, coerce(self, key, item, non_blocking))
            return self
        node = None if inplace else self._holder(key)
        if node is not None:
            node.set(key[-1], item, non_blocking=non_blocking)
            return self
        node, last, value, into = self._plan_set(path_of(key), item, inplace, non_blocking)
        if into:
            node._write_str(last, value, non_blocking)
        else:
            node._set_str(last, value)
        return self

    def _holder(self, key: Any) -> Any:
        """The node that a nested key's last name belongs to, if it is there and the key is a flat tuple of names."""
        node: Any = self if type(key) is tuple and key and type(key[-1]) is str else None
        if node is not None:
            for name in key[:-1]:
                node = node._fields().get(name) if type(name) is str else None
                if not isinstance(node, TensorCollection):
                    return None
        return node

    def _plan_set(self, path: Path, item: Any, inplace: bool, non_blocking: bool, ignore_lock: bool = False) -> Write:
        """The write that stores `item` at `path`, checked, with nothing changed yet."""
        node: Any = self
        for place, key in enumerate(path[:-1]):
            below = node._fields().get(key)
            if below is None:
                return self._plan_branch(node, path[place:], item, non_blocking, ignore_lock)
            if not isinstance(below, TensorCollection):
                raise KeyError(f"the entry {key_of(path[: place + 1])!r} is a {type(below).__name__}: it cannot hold {path!r}")
            node = below
        last = path[-1]
        if inplace and last in node._fields():
            rows = divided(node, item) if -1 in node.batch_size else None
            if rows is not None:  # each member knows what fits its entry
                return node, last, Dealt([part._plan_set((last,), row, True, non_blocking)[2] for part, row, _ in rows]), True
            target = node._get_str(last)
            return node, last, _fitting(node, last, target, item), True
        if not ignore_lock:
            node._check_unlocked()
        return node, last, coerce(node, last, item, non_blocking), False

    def _plan_branch(self, node: Any, path: Path, item: Any, non_blocking: bool, ignore_lock: bool) -> Write:
        """The write of a new branch: its nodes are made and filled before the first is attached."""
        if not ignore_lock:
            node._check_unlocked()
        leaf_node = branch = node._below()
        for key in path[1:-1]:
            below = leaf_node._below()
            leaf_node._set_str(key, below)
            leaf_node = below
        leaf_node._set_str(path[-1], coerce(leaf_node, path[-1], item, non_blocking))
        return node, path[0], branch, False

    def _put_objects(self, key: str, made: Any) -> None:
        """Puts what became of an entry of objects in its place."""
        if self.is_locked:
            made.lock_()
        self._set_str(key, made)

    def set_(self, key: Key, item: Any, *, non_blocking: bool = False) -> Self:
        """Writes `item` into the storage of the entry `key`, also of a locked tensordict.

        Raises:
            KeyError: there is no such entry.
            RuntimeError: `item` does not fit the shape of the entry.
        """
        path = path_of(key)
        try:
            node, last = node_above(self, path)
        except _KeyThroughLeafError as error:
            raise KeyError(*error.args) from error
        for part, piece, _ in node._parts_at(None, item):
            if part is node:
                self._set_in(node, last, piece, non_blocking)
            else:
                part.set_(last, piece, non_blocking=non_blocking)
        return self

    @staticmethod
    def _set_in(node: Any, key: str, item: Any, non_blocking: bool) -> None:
        target = node._get_str(key)
        value = _fitting(node, key, target, item)
        if is_branch(target):
            target.update_(value, non_blocking=non_blocking)
        else:
            node._write_str(key, value, non_blocking)

    def set_at_(self, key: Key, value: Any, index: IndexType, *, non_blocking: bool = False) -> Self:
        """Writes `value` into the rows at `index` of the entry `key`.

        Raises:
            KeyError: there is no such entry.
            RuntimeError: `value` does not fit the rows.
        """
        holder, last = node_above(self, path_of(key))
        if -1 in holder.batch_size:  # the entries of its members are no one tensor
            if last not in holder._fields():
                raise missing_key(last, type(holder).__name__, holder._fields())
            holder._assign(parse(index, holder.batch_size), {last: value})
            return self
        target = holder._get_str(last)
        objects = ObjectEntry.of(target, holder, last)
        if objects is not None:
            objects.put(parse(index, target.batch_size), value)
            return self
        if isinstance(target, Tensor) and not isinstance(value, (Tensor, int, float, complex)):
            value = as_tensor(str(key), value, target.device)
        target[index] = value
        if holder._fields().get(last) is not target:  # what was read is a copy
            holder._write_str(last, target, non_blocking)
        return self

    def setdefault(self, key: Key, default: Any, inplace: bool = False) -> Any:
        """The entry at `key`, which is set to `default` first if it is missing."""
        value = self.get(key, None)
        if value is None:
            self.set(key, default, inplace=inplace)
            value = self.get(key)
        return value

    def fill_(self, key: Key, value: Any) -> Self:
        """Writes the number `value` into every element of the entry `key`, or of every leaf below it."""
        holder, last = node_above(self, path_of(key))
        for part, piece, _ in holder._parts_at(None, value):
            if part is not holder:
                part.fill_(last, piece)
                continue
            target = holder._get_str(last)
            for leaf in leaves_of(target) if isinstance(target, TensorCollection) else [target]:
                leaf.fill_(value)
        return self

    def pop(self, key: Key, default: Any = NO_DEFAULT) -> Any:
        """Removes the entry `key` and returns it, or `default` where it is missing.

        Raises:
            KeyError: the key is missing and no default was given.
            RuntimeError: the tensordict is locked.
        """
        try:
            value = descend(self, path_of(key))
        except (KeyError, _KeyThroughLeafError):
            if default is NO_DEFAULT:
                raise
            return default
        self.del_(key)
        return value

    def popitem(self) -> tuple[str, Any]:
        """Removes the entry that was set last, and returns its key and value.

        Raises:
            KeyError: there is no entry.
        """
        self._check_unlocked()
        fields = self._fields()
        if not fields:
            raise KeyError(f"popitem of a {type(self).__name__} without entries")
        key = next(reversed(fields))
        value = self._get_str(key)
        self._del_str(key)
        return key, value

    def del_(self, key: Key) -> Self:
        """Removes the entry `key`.

        Raises:
            KeyError: the key is missing.
            RuntimeError: the tensordict is locked.
        """
        node, last = node_above(self, path_of(key))
        node._check_unlocked()
        node._del_str(last)
        return self

    def clear(self) -> Self:
        """Removes all entries."""
        self._check_unlocked()
        for key in list(self._fields()):
            self._del_str(key)
        return self

    def replace(self, *args: Any, **kwargs: Any) -> Self:
        """A shallow copy with the entries of a mapping, a tensordict or keywords set in it.

        Leaves that are not replaced are shared with this tensordict.
        """
        if len(args) > 1:
            raise RuntimeError(f"replace takes one mapping, and keywords; got {len(args)} arguments")
        source = args[0] if args else {}
        if not isinstance(source, (TensorCollection, Mapping)):
            raise RuntimeError(f"replace takes a tensordict or a mapping, got a {type(source).__name__}")
        return self.copy().update(source, **kwargs)


def _unfit(key: str, target: Any, item: Any) -> _InplaceWriteError:
    return _InplaceWriteError(
        f"Failed to update {key!r}: Cannot update an existing entry of type {type(target).__name__} with a value of type "
        f"{type(item).__name__}"
    )


def _fitting(node: Any, key: str, target: Any, item: Any) -> Any:
    """`item` in a form that can be written into `target`."""
    if isinstance(target, TensorCollection):
        wanted = isinstance(item, (TensorCollection, Mapping))
        if (isinstance(item, Tensor) or is_branch(item)) if not is_branch(target) else not wanted:
            raise _unfit(key, target, item)
        return item
    if not isinstance(item, Tensor):
        if isinstance(item, (TensorCollection, Mapping)):
            raise _unfit(key, target, item)
        try:
            item = as_tensor(key, item, target.device)
        except TypeError as error:
            raise _InplaceWriteError(f"Failed to update {key!r} in {type(node).__name__}: {error}") from error
    dims = len(node.batch_size)
    if item.shape != target.shape and not (item.shape[:dims] == node.batch_size and broadcasts_to(item.shape, target.shape)):
        raise _InplaceWriteError(
            f"Failed to update {key!r} in {type(node).__name__} with keys {sorted(node._fields())}: the value of shape "
            f"{item.shape} does not fit the entry of shape {target.shape}"
        )
    return item
