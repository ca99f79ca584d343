"""Keys and structure: views of the entries, selections, renames, flat and nested forms."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, KeysView, Mapping
from typing import Any

from torch import Size, Tensor
from typing_extensions import Self

from tensordict._kernel.errors import _KeyThroughLeafError, missing_key
from tensordict._kernel.keys import key_of, path_of
from tensordict._kernel.native import (
    count_below,
    excluded,
    flattened,
    items_below,
    keys_below,
    selected,
    unflattened,
    values_below,
)
from tensordict._kernel.registry import default_is_leaf, is_branch
from tensordict._ops.access import AccessOps, descend, is_there, node_above
from tensordict._ops.trees import by_member, copy_nodes
from tensordict._types import NO_DEFAULT, Key, Path, TensorCollection

IsLeaf = Callable[[type], bool]


def sort_key(key: Key) -> str:
    """What keys are sorted by: their parts joined by dots."""
    return key if isinstance(key, str) else ".".join(key)


class TreeKeys(KeysView):  # type: ignore[type-arg]
    """The keys of a tensordict, nested ones included if asked: a set-like view that follows the tensordict."""

    def __init__(self, tensordict: Any, include_nested: bool, leaves_only: bool, is_leaf: IsLeaf | None, sort: bool) -> None:
        self.tensordict = tensordict
        self.include_nested = include_nested
        self.leaves_only = leaves_only
        self.is_leaf = is_leaf
        self.sort = sort

    def __iter__(self) -> Iterator[Key]:
        keys = keys_below(self.tensordict, self.include_nested, self.leaves_only, self.is_leaf)
        if self.sort:
            keys.sort(key=sort_key)
        return iter(keys)

    def __len__(self) -> int:
        return count_below(self.tensordict, self.include_nested, self.leaves_only, self.is_leaf)

    def __contains__(self, key: object) -> bool:
        path = path_of(key)
        if len(path) > 1 and not self.include_nested:
            return False
        if not is_there(self.tensordict, path):
            return False
        return not (self.leaves_only and self._node(descend(self.tensordict, path)))

    def _node(self, value: Any) -> bool:
        return isinstance(value, TensorCollection) and not (self.is_leaf or default_is_leaf)(type(value))

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({list(self)},\n    include_nested={self.include_nested},\n"
            f"    leaves_only={self.leaves_only})"
        )


def _check_own(node: Any, what: str) -> None:
    """Raises where entries would be removed from a view: they are those of what it is a view of."""
    if node._is_view:
        raise RuntimeError(
            f"Cannot call {what} in place on a {type(node).__name__}: entries would be removed from the tensordict that it "
            "is a view of. Call it there, or leave out inplace=True"
        )


class KeyOps(AccessOps):
    """Views of the entries and changes of the structure."""

    __slots__ = ()

    def keys(
        self,
        include_nested: bool = False,
        leaves_only: bool = False,
        is_leaf: IsLeaf | None = None,
        *,
        sort: bool = False,
    ) -> KeysView[Any]:
        """A view of the keys.

        Args:
            include_nested: also the keys below, as tuples.
            leaves_only: without the keys of nodes.
            is_leaf: which classes count as leaves; all that are no tensordicts, if not given.
            sort: in alphabetical order instead of the order in which they were set.
        """
        if not (include_nested or leaves_only or sort):
            return self._fields().keys()
        return TreeKeys(self, include_nested, leaves_only, is_leaf, sort)

    def values(
        self,
        include_nested: bool = False,
        leaves_only: bool = False,
        is_leaf: IsLeaf | None = None,
        *,
        sort: bool = False,
    ) -> Iterable[Any]:
        """The entries, in the order of `keys` with the same arguments."""
        if not (include_nested or leaves_only or sort):
            return self._fields().values()
        if not sort:
            return iter(values_below(self, include_nested, leaves_only, is_leaf))
        return iter([value for _, value in self.items(include_nested, leaves_only, is_leaf, sort=True)])

    def items(
        self,
        include_nested: bool = False,
        leaves_only: bool = False,
        is_leaf: IsLeaf | None = None,
        *,
        sort: bool = False,
    ) -> Iterable[tuple[Any, Any]]:
        """The pairs of key and entry, in the order of `keys` with the same arguments."""
        if not (include_nested or leaves_only or sort):
            return self._fields().items()
        pairs = items_below(self, include_nested, leaves_only, is_leaf)
        if sort:
            pairs.sort(key=lambda pair: sort_key(pair[0]))
        return iter(pairs)

    def _values_list(self, include_nested: bool = False, leaves_only: bool = False, **options: Any) -> list[Any]:
        """`values` as a list, under the name that libraries call."""
        return list(self.values(include_nested, leaves_only, **options))

    def _items_list(
        self, include_nested: bool = False, leaves_only: bool = False, **options: Any
    ) -> tuple[list[Any], list[Any]]:
        """`keys` and `values` as lists, under the name that libraries call."""
        pairs = list(self.items(include_nested, leaves_only, **options))
        return [key for key, _ in pairs], [value for _, value in pairs]

    @property
    def sorted_keys(self) -> list[str]:
        """The keys of the first level in alphabetical order."""
        return sorted(self._fields())

    def __contains__(self, key: object) -> bool:
        if type(key) is str:
            return key in self._fields()
        try:
            path = path_of(key)
        except KeyError as error:
            raise RuntimeError(f"key must be a NestedKey (a string or a tuple of strings), got {key!r}") from error
        return is_there(self, path)

    def __delitem__(self, key: Key) -> None:
        self.del_(key)

    def is_empty(self) -> bool:
        """Whether there is no leaf, at any depth."""
        return all(isinstance(value, TensorCollection) and value.is_empty() for _, value in self._outline())

    @property
    def depth(self) -> int:
        """Number of levels with leaves below the first one: 0 without nested leaves."""
        below = [value.depth for _, value in self._outline() if _has_leaves(value)]
        return 1 + max(below) if below else 0

    def entry_class(self, key: Key) -> type:
        """The class of the entry `key`."""
        holder, last = node_above(self, path_of(key))
        value = holder._peek(last)
        return type(value) if isinstance(value, (TensorCollection, Tensor)) else Tensor

    def get_item_shape(self, key: Key) -> Size:
        """The shape of the leaf, or the batch size of the node, at `key`."""
        holder, last = node_above(self, path_of(key))
        return Size(holder._peek(last).shape)

    def create_nested(self, key: Key) -> Self:
        """Puts an empty node at `key`, with the batch size, device and names of its parent; replaces what is there."""
        path = path_of(key)
        node: Any = self
        for name in path[:-1]:
            below = node._fields().get(name)
            if not isinstance(below, TensorCollection):
                below = self._nested_in(node, name)
            node = below
        self._nested_in(node, path[-1])
        return self

    @staticmethod
    def _nested_in(node: Any, name: str) -> Any:
        node._check_unlocked()
        node._set_str(name, node._rebuild({}, node.batch_size, node.device, node._names))
        return node._get_str(name)

    def filter_empty_(self) -> Self:
        """Removes the nodes below that hold no leaf."""
        for key, value in self._entries().items():
            if isinstance(value, KeyOps):
                if value.is_empty():
                    self.del_(key)
                else:
                    value.filter_empty_()
        return self

    def rename_key_(self, old_key: Key, new_key: Key, safe: bool = False) -> Self:
        """Moves the entry `old_key` to `new_key`.

        Args:
            old_key: the key of an entry.
            new_key: its new key; an entry that is there is replaced.
            safe: raise instead of replacing.

        Raises:
            KeyError: `old_key` is missing, or `new_key` is there and `safe` is set.
        """
        self._check_unlocked()
        old, new = path_of(old_key), path_of(new_key)
        if safe and old != new and is_there(self, new):
            is_there(self, old) or descend(self, old)
            raise KeyError(f"key {key_of(new)} already present in TensorDict.")
        _rename(self, old, new)
        return self

    def rename_keys(self, mapping: Mapping[Key, Key], *, strict: bool = True) -> Self:
        """A shallow copy with several entries at other keys, all moved at once (so that two may be exchanged).

        Args:
            mapping: new key for each old key.
            strict: raise where an old key is missing, instead of leaving it out.

        Raises:
            KeyError: an old key is missing and `strict` is set.
            ValueError: two entries would have the same key, or one would be below another.
        """
        return _renamed(self, {path_of(old): path_of(new) for old, new in mapping.items()}, strict)

    def select(self, *keys: Key, inplace: bool = False, strict: bool = True, as_tensordict: bool = False) -> Self:
        """The tensordict of the entries `keys` alone; the leaves are shared.

        Args:
            *keys: keys to keep; a nested key keeps the nodes on its way.
            inplace: remove the others from this tensordict instead.
            strict: raise where a key is missing, instead of leaving it out.
            as_tensordict: give a plain tensordict where this is a tensorclass.

        Raises:
            KeyError: a key is missing and `strict` is set.
        """
        if keys and isinstance(keys[0], (list, set)) and all(isinstance(key, (list, set)) for key in keys):
            raise RuntimeError(f"the keys to select are given one by one, as strings or tuples; got {keys!r}")
        if inplace:
            _check_own(self, "select")
        out = selected(self, keys, strict)
        return self._take_fields(out) if inplace else out

    def _take_fields(self, other: Any) -> Self:
        """Makes the entries of `other` those of this tensordict; nodes that both have stay, with other entries."""
        self._check_unlocked()
        for part, wanted, _ in self._parts_at(None, other):
            part._take_own_fields(wanted) if part is self else part._take_fields(wanted)
        return self

    def _take_own_fields(self, other: Any) -> None:
        own, fields = self._entries(), other._entries()
        kept = {
            key: value
            for key, value in own.items()
            if key in fields and fields[key] is not value and isinstance(value, KeyOps) and isinstance(fields[key], KeyOps)
        }
        for value in kept.values():
            value._check_unlocked()
        # Entries go last: what interrupts this leaves too many, and loses none.
        for key, value in fields.items():
            if key in kept:
                kept[key]._take_fields(value)
            else:
                self._set_str(key, value)
        for key in own:
            if key not in fields:
                self._del_str(key)

    def exclude(self, *keys: Key, inplace: bool = False) -> Self:
        """The tensordict without the entries `keys`; the leaves are shared. Keys that are not there are passed over.

        Args:
            *keys: keys to leave out.
            inplace: remove them from this tensordict instead.
        """
        if inplace:
            _check_own(self, "exclude")
        out = excluded(self, keys)
        return self._take_fields(out) if inplace else out

    def flatten_keys(self, separator: str = ".", inplace: bool = False, is_leaf: IsLeaf | None = None) -> Self:
        """The tensordict of all leaves at one level, under their keys joined by `separator`; the leaves are shared.

        Raises:
            KeyError: two keys would become the same.
        """
        if inplace:
            _check_own(self, "exclude")
        out = flattened(self, separator, is_leaf or None)
        if inplace:
            return self._take_fields(out)
        self._remember(out, "flatten_keys", separator)
        return out

    def unflatten_keys(self, separator: str = ".", inplace: bool = False) -> Self:
        """The tensordict in which a key that holds `separator` is a path of nested keys; the leaves are shared.

        Raises:
            KeyError: a path would replace an entry.
        """
        if inplace:
            _check_own(self, "exclude")
        out = unflattened(self, separator)
        if inplace:
            return self._take_fields(out)
        self._remember(out, "unflatten_keys", separator)
        return out

    def separates(self, *keys: Key, default: Any = NO_DEFAULT, strict: bool = True, filter_empty: bool = True) -> Self:
        """Moves the entries `keys` out of this tensordict into a new one.

        Args:
            *keys: keys to move.
            default: stored for a missing key, also None.
            strict: raise where a key is missing and no default is given.
            filter_empty: remove all nodes without leaves, other than from locked ones.

        Raises:
            KeyError: a key is missing.
        """
        self._check_unlocked()
        out = self._rebuild({}, self.batch_size, self.device, self._names)
        paths = [path_of(key) for key in keys]
        _check_disjoint(paths, "separated", KeyError)
        found = []
        for path in paths:
            value = descend(self, path) if default is NO_DEFAULT and strict else self.get(path, None)
            if value is not None:
                node_above(self, path)[0]._check_unlocked()
                found.append(path)
                out.set(path, value)
            elif default is not NO_DEFAULT:
                out.set(path, default)
        for path in found:
            self.del_(path)
        if filter_empty:
            _sweep(self)
        return out

    def split_keys(
        self,
        *key_sets: Iterable[Key] | Callable[[Path, Any], bool],
        inplace: bool = False,
        default: Any = NO_DEFAULT,
        strict: bool = True,
        reproduce_struct: bool = False,
    ) -> tuple[Self, ...]:
        """One tensordict for each set of keys, and one of all other entries; the leaves are shared.

        Args:
            *key_sets: lists of keys, or functions `fn(key, leaf)` that are true for the leaves of their set; the key is a
                tuple of strings.
            inplace: the last of the results is this tensordict, with the others' entries removed.
            default: stored for a missing key.
            strict: raise where a key is missing.
            reproduce_struct: give each result the nodes of this tensordict, also empty ones.

        Raises:
            KeyError: a key is missing, or stands in two sets.
        """
        rest: Any = self if inplace else copy_nodes(self)
        empty = self.empty(recurse=True) if reproduce_struct else None
        out = []
        for keys in key_sets:
            if callable(keys):
                keys = [key for key, value in rest.items(True, True) if keys(path_of(key), value)]
            part = rest.separates(*keys, default=default, strict=strict, filter_empty=not reproduce_struct)
            out.append(empty.clone(recurse=False).update(part) if empty is not None else part)
        return (*out, rest)


# What is done to a stack is done to its members.


@by_member()
def _rename(node: Any, old: Path, new: Path) -> None:
    value = descend(node, old)
    if old == new:
        return
    node.del_(key_of(old))  # first: the new key may lie below the old one
    try:
        node.set(key_of(new), value)
    except BaseException:
        node.set(key_of(old), value)
        raise


@by_member()
def _renamed(node: Any, moves: dict[Path, Path], strict: bool) -> Any:
    out = node.copy()
    taken = []
    for old, new in moves.items():
        value = out.get(old, None)
        if value is not None:
            taken.append((old, new, value))
        elif strict:
            raise missing_key(key_of(old), type(node).__name__, node.keys(True))
    _check_disjoint([old for old, _, _ in taken], "renamed")
    _check_disjoint([new for _, new, _ in taken], "renamed to")
    for old, _, _ in taken:
        out.del_(old)
    for _, new, value in taken:
        _check_free(out, new)
        out.set(new, value)
    return out


def _has_leaves(value: Any) -> bool:
    """Whether `value` is a node with leaves, at any depth."""
    return is_branch(value) and not value.is_empty()


def _sweep(node: Any) -> None:
    """Removes the nodes below that hold no leaf, other than from locked nodes."""
    for key, value in node._entries().items():
        if isinstance(value, KeyOps):
            if value.is_empty():
                node._del_str(key)
            elif not value.is_locked:
                _sweep(value)


def must_have(node: Any, path: Path) -> None:
    """Raises `KeyError` where there is no entry at `path`."""
    try:
        descend(node, path)
    except _KeyThroughLeafError as error:
        raise KeyError(*error.args) from error


def _check_disjoint(paths: list[Path], done: str, error: type[Exception] = ValueError) -> None:
    """Raises where a path stands twice or lies below another."""
    seen = set(paths)
    if len(seen) != len(paths):
        raise error(f"a key is {done} twice in {[key_of(path) for path in paths]}")
    for path in paths:
        for length in range(1, len(path)):
            if path[:length] in seen:
                raise error(f"the keys {key_of(path[:length])!r} and {key_of(path)!r} are both {done}, one below the other")


def _check_free(node: Any, path: Path) -> None:
    """Raises where an entry stands at `path`, or a leaf on the way to it."""
    for length in range(1, len(path) + 1):
        value = node.get(path[:length], None)
        if value is not None and (length == len(path) or not isinstance(value, TensorCollection)):
            raise ValueError(
                f"the key {key_of(path)!r} is in the way of the entry {key_of(path[:length])!r}, which is not renamed"
            )
