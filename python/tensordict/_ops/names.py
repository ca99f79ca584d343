"""Names of the batch dimensions: renaming and completing them."""

from __future__ import annotations

from typing import Any

from typing_extensions import Self

from tensordict._ops.batch import BatchOps
from tensordict._ops.waist import copy_nodes


class NameOps(BatchOps):
    """`rename`, `rename_`, `refine_names`."""

    __slots__ = ()

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


def _renamed(node: BatchOps, names: tuple[Any, ...], changes: dict[str, Any]) -> list[Any] | None:
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
