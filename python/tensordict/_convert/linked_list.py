"""A list that writes what is put in its places to the rows of a tensordict."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def _nothing() -> None:
    """The link of a list that has none."""


def _moving(method: F) -> F:
    """A method of lists after which places are no longer rows: it ends the link first."""

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        self._td = _nothing
        return method(self, *args, **kwargs)

    call.__name__ = method.__name__
    call.__qualname__ = f"LinkedList.{method.__name__}"
    call.__doc__ = f"`list.{method.__name__}`; ends the link to the tensordict."
    return call  # type: ignore[return-value]


class LinkedList(list[Any]):
    """A list of the rows of a tensordict: `rows[i] = value` also writes to the tensordict.

    The link ends where the list gets other places than the tensordict has rows (`append`, `pop`, `sort`, ...), in copies
    and in pickles. The list does not keep the tensordict alive.

    Args:
        *args: what a list takes.
        td: the tensordict whose rows the elements are; if not given, this is a list like any other.

    >>> import torch
    >>> from tensordict import TensorDict
    >>> td = TensorDict({"a": torch.arange(3)}, [3])
    >>> rows = td.tolist(as_linked_list=True)
    >>> rows[0] = {"a": 7}
    >>> td["a"]
    tensor([7, 1, 2])
    """

    __slots__ = ("_td",)

    def __init__(self, *args: Any, td: Any = None) -> None:
        super().__init__(*args)
        self._td: Callable[[], Any] = _nothing if td is None else weakref.ref(td)

    def __setitem__(self, index: Any, value: Any) -> None:
        td = self._td()
        if td is None:
            super().__setitem__(index, value)
            return
        if isinstance(index, slice):
            value = list(value)
            places = range(*index.indices(len(self)))
            if len(places) != len(value):
                raise ValueError(f"a linked list takes {len(places)} values for {len(places)} rows, got {len(value)}")
            for place, item in zip(places, value):
                td[place] = item
        else:
            td[index] = value
        super().__setitem__(index, value)

    __delitem__ = _moving(list.__delitem__)
    __iadd__ = _moving(list.__iadd__)
    __imul__ = _moving(list.__imul__)
    append = _moving(list.append)
    clear = _moving(list.clear)
    extend = _moving(list.extend)
    insert = _moving(list.insert)
    pop = _moving(list.pop)
    remove = _moving(list.remove)
    reverse = _moving(list.reverse)
    sort = _moving(list.sort)

    def tolist(self) -> list[Any]:
        """A plain list of the elements."""
        return list(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return LinkedList, (list(self),)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({super().__repr__()})"


LinkedList.__module__ = "tensordict.utils"
