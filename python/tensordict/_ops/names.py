"""Names of the batch dimensions: reading, setting, renaming and completing them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from typing_extensions import Self

from tensordict._ops.trees import copy_nodes
from tensordict._ops.waist import Waist
from tensordict._types import Names


class NameOps(Waist):
    """`names`, `rename`, `rename_`, `refine_names`."""

    __slots__ = ()

    @property
    def names(self) -> list[str | None]:
        """The names of the batch dimensions, None for a dimension without one."""
        names = self._names
        return [None] * len(self.batch_size) if names is None else list(names)

    @names.setter
    def names(self, value: Sequence[str | None] | None) -> None:
        self._name_dims(value)

    def _name_dims(self, value: Sequence[str | None] | None) -> None:
        """Sets the names: not by an assignment, by which compiled code of torch 2.11 loses a new object."""
        if value is None:
            self._adopt_names(None)
            return
        names: list[str | None] = [value] if isinstance(value, str) else list(value)
        if len(names) != len(self.batch_size):
            raise ValueError(
                f"the length of the dimension names must equate the tensordict batch_dims attribute. Got {names} for "
                f"batch_dims {len(self.batch_size)}."
            )
        given = [name for name in names if name is not None]
        if len(set(given)) != len(given):
            raise ValueError(f"some dimension names are non-unique: {names}.")
        for name in given:
            if not isinstance(name, str):
                raise ValueError(f"dimension names are strings or None, got {name!r} of type {type(name).__name__}")
        _check_taken(self, names)
        self._adopt_names(names if given else None)

    def _adopt_names(self, names: Names) -> None:
        """Sets the names of the first dimensions, here and in all nodes below; other dimensions keep theirs."""
        dims = len(self.batch_size)
        if names is None:
            self._set_names(None)
        else:
            own = self._names or [None] * dims
            merged = [*names, *own[len(names) :]]
            self._set_names(merged if any(name is not None for name in merged) else None)
        for key, part in self._pieces().items():
            if isinstance(part, NameOps) and type(key) is str:  # the members of a stack have got theirs
                part._adopt_names(names)

    def _has_names(self) -> bool:
        """Whether a dimension has a name. For programs that ask under this name."""
        return self._names is not None

    def rename(self, *names: Any, **rename_map: Any) -> Self:
        """A shallow copy with other names of the batch dimensions; the leaves are shared.

        Args:
            *names: a name, or None, for each batch dimension; a single None for no names at all.
            **rename_map: new names by old ones, instead.

        Raises:
            ValueError: both or neither are given, a name is unknown or given twice, or there are too few or too many.
        """
        new = _renamed(self, names, rename_map)
        out = copy_nodes(self)
        out._name_dims(new)
        return out

    def rename_(self, *names: Any, **rename_map: Any) -> Self:
        """Changes the names of the batch dimensions (see `rename`), also of a locked tensordict. Returns the tensordict."""
        self.names = _renamed(self, names, rename_map)
        return self

    def refine_names(self, *names: Any) -> Self:
        """Names the batch dimensions that have no name yet. Returns the tensordict itself.

        Args:
            *names: a name, or None, for each batch dimension; an ellipsis stands for dimensions that are left as they are.

        Raises:
            RuntimeError: a dimension has another name already.
            ValueError: a name is given twice, or there are too few or too many.
        """
        own, given = self.names, list(names)
        if Ellipsis in given:
            at = given.index(Ellipsis)
            tail = len(given) - at - 1
            if at + tail > len(own):
                raise IndexError(f"refine_names: more names than the {len(own)} batch dimensions: {given}")
            given[at : at + 1] = own[at : len(own) - tail]
        if len(given) == len(own):
            for name, known in zip(given, own):
                if known is not None and name != known:
                    raise RuntimeError(f"refine_names: cannot coerce {type(self).__name__} names {own} with {list(names)}.")
        self.names = given
        return self


def _renamed(node: NameOps, names: tuple[Any, ...], changes: dict[str, Any]) -> list[Any] | None:
    if names and changes:
        raise ValueError("Passed both a name map and a name list. Only one is accepted.")
    if not names and not changes:
        raise ValueError("Neither a name map nor a name list was passed. Only one is accepted.")
    if names:
        return None if names == (None,) else list(names)
    own = node.names
    unknown = [name for name in changes if name not in own]
    if unknown:
        raise ValueError(f"Some names to be renamed were not part of the tensordict names: {unknown} vs {own}.")
    return [changes.get(name, name) if name is not None else None for name in own]


def _check_taken(node: Any, names: Sequence[str | None]) -> None:
    """Raises where names for the first dimensions are those of further dimensions of a node below."""
    for key, entry in node._outline():
        if isinstance(entry, NameOps):
            own = entry.names[len(names) :]
            taken = [name for name in names if name is not None and name in own]
            if taken:
                raise ValueError(f"some dimension names are non-unique: {[*names, *own]} of the nested tensordict {key!r}.")
            _check_taken(entry, [*names, *own])
