"""Locking, and tensordicts as context managers."""

from __future__ import annotations

import weakref
from typing import Any

from torch import Tensor
from typing_extensions import Self

from tensordict._ops.keys import KeyOps
from tensordict._types import TensorCollection


def nodes_in(node: Any) -> list[Any]:
    """The nodes right below `node`."""
    return [part for part in node._parts() if type(part) is not Tensor and isinstance(part, TensorCollection)]


def _locked_above(node: Any) -> list[Any]:
    """The locked containers that hold `node`."""
    rare = node._extra
    if rare is None:
        return []
    found = [reference() for reference in rare.get("parents", ())]
    return [parent for parent in found if parent is not None and parent.is_locked]


def lock_parents(node: Any, nodes: list[Any]) -> list[Any]:
    """Weak references to all locked containers, other than `node`, that hold one of some nodes, at any distance."""
    found: dict[int, Any] = {}
    while nodes:
        for holder in _locked_above(nodes.pop()):
            if id(holder) not in found and holder is not node:
                found[id(holder)] = weakref.ref(holder)
                nodes.append(holder)
    return list(found.values())


class LockOps(KeyOps):
    """Forbids and allows changes of the structure; undoes an operation at the end of a `with` block."""

    __slots__ = ()

    @property
    def is_locked(self) -> bool:
        """Whether entries can neither be added, replaced nor removed. Setting it locks or unlocks."""
        return self._is_locked

    @is_locked.setter
    def is_locked(self, value: bool) -> None:
        if value:
            self.lock_()
        else:
            self.unlock_()

    def lock_(self) -> Self:
        """Forbids to add, replace and remove entries, here and in all nodes below; values can still be written in place.

        A node below cannot be unlocked on its own while this tensordict is locked. Usable as a context manager, which
        unlocks at the end of the block if it was unlocked before.
        """
        before = self.is_locked
        if not before:
            _lock(self)
        self._rare["last_op"] = ("lock_", (not before,), None)
        return self

    def unlock_(self) -> Self:
        """Allows changes of the structure again, here and in all nodes below.

        Usable as a context manager, which locks at the end of the block if it was locked before.

        Raises:
            RuntimeError: this tensordict, or a node below it, is held by another locked tensordict.
        """
        before = self.is_locked
        _check_unlock(self, None, self)
        for node in _tree(self):
            _unlock(node)
        self._rare["last_op"] = ("unlock_", (before,), None)
        return self

    @property
    def _lock_parents_weakrefs(self) -> list[Any]:
        """Weak references to all locked tensordicts that hold this one, at any distance; a stack by its members too."""
        return lock_parents(self, [self])

    def clear_refs_for_compile_(self) -> Self:
        """Forgets which locked tensordicts hold this one, for a compiler that cannot follow weak references.

        The lock stays; this tensordict can then be unlocked by itself.
        """
        if self._extra is not None:
            self._extra.pop("parents", None)
        return self

    def _remember(self, result: Any, name: str, *args: Any) -> None:
        """Notes in `result` that it came from this tensordict, for `with`; a weak reference, so nothing is kept alive."""
        result._rare["last_op"] = (name, args, weakref.ref(self))

    def __enter__(self) -> Self:
        rare = self._extra
        if rare is None or "last_op" not in rare:
            raise RuntimeError(
                f"this {type(self).__name__} is not the result of an operation that a `with` block can undo, such as lock_, "
                "unlock_, view, permute, flatten_keys or to_module"
            )
        rare.setdefault("entered", []).append(rare["last_op"])
        return self

    def __exit__(self, exc_type: Any, exc_val: Any, exc_tb: Any) -> None:
        rare = self._rare
        name, args, reference = rare["entered"].pop()
        if exc_type is not None and name not in ("lock_", "unlock_", "to_module"):
            return
        source = None if reference is None else reference()
        if reference is None or source is not None:
            UNDO[name](self, source, *args)


def _lock(node: Any) -> None:
    node._set_lock(True)
    for child in nodes_in(node):
        lock_child(node, child)


def lock_child(node: Any, child: Any) -> None:
    """Locks a node that a locked one holds, and notes by which one."""
    if not child.is_locked:
        _lock(child)
    child._rare.setdefault("parents", []).append(weakref.ref(node))


def _tree(node: Any) -> list[Any]:
    """`node` and all nodes below it."""
    out = [node]
    for child in nodes_in(node):
        out.extend(_tree(child))
    return out


def _check_unlock(node: Any, parent: Any, root: Any) -> None:
    """Raises where a locked node that is not `root`, or one below it, holds `node` or one below it."""
    others = [holder for holder in _locked_above(node) if holder is not parent]
    if others:
        inside = _tree(root)
        others = [holder for holder in others if not any(holder is other for other in inside)]
    if others:
        raise RuntimeError(
            "Cannot unlock a tensordict that is part of a locked graph. Unlock the root tensordict first. If the "
            "tensordict is part of multiple graphs, group the graphs under a common tensordict and unlock this root. "
            f"The tensordict has the keys {sorted(node._fields())}, the one that holds it {sorted(others[0]._fields())}."
        )
    for child in nodes_in(node):
        _check_unlock(child, node, root)


def _unlock(node: Any) -> None:
    node._set_lock(False)
    rare = node._extra
    if rare is not None:
        rare.pop("parents", None)
        # Entries may change from here on, so it is no longer what its folder or its buffer holds.
        rare.pop("memmap", None)
        rare.pop("buffer", None)


def _inverse(name: str, *swap: int) -> Any:
    """The undoing of an operation whose inverse has the same arguments, in the order `swap`."""

    def undo(result: Any, source: Any, *args: Any) -> None:
        source.update(getattr(result, name)(*(args[place] for place in swap) if swap else args))

    return undo


def _regroup(result: Any, source: Any, *args: Any) -> None:
    source.update(result.reshape(source.batch_size))


def _squeeze(result: Any, source: Any, dim: int | None) -> None:
    if dim is None:
        raise RuntimeError("the end of a `with td.squeeze()` block cannot know the dimensions: give squeeze a dimension")
    source.update(result.unsqueeze(dim) if result.batch_dims < source.batch_dims else result)


def _permute(result: Any, source: Any, dims: tuple[int, ...]) -> None:
    back = sorted(range(len(dims)), key=lambda place: dims[place])
    source.update(result.permute(back))


def _swap_back(result: Any, source: Any, undo: Any) -> None:
    undo(result)


def _nothing(result: Any, source: Any) -> None:
    pass


def _update(result: Any, source: Any, *args: Any) -> None:
    source.update(result)


def _reunlock(result: Any, source: Any, changed: bool) -> None:
    if changed:
        result.unlock_()


def _relock(result: Any, source: Any, changed: bool) -> None:
    if changed:
        result.lock_()


# What the end of a `with` block does for each operation: bring what was done to the result back to the source.
UNDO: dict[str, Any] = {
    "lock_": _reunlock,
    "unlock_": _relock,
    "same": _nothing,
    "flatten_keys": _inverse("unflatten_keys"),
    "unflatten_keys": _inverse("flatten_keys"),
    "transpose": _inverse("transpose"),
    "unsqueeze": _inverse("squeeze"),
    "squeeze": _squeeze,
    "permute": _permute,
    "view": _regroup,
    "reshape": _regroup,
    "flatten": _regroup,
    "flip": _inverse("flip"),
    "roll": _inverse("roll"),
    "rot90": _inverse("rot90"),
    "unflatten": _regroup,
    "update": _update,
    "to_module": _swap_back,
}
