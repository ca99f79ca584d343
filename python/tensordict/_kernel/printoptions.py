"""What the printed form of a tensordict shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from torch.utils._contextlib import _DecoratorContextManager

Options: TypeAlias = Mapping[str, Any]

# One dictionary for the process, changed in place: whoever holds it sees the settings of the moment.
REPR_OPTIONS: dict[str, Any] = {
    "show_batch_size": True,
    "show_device": True,
    "show_is_shared": True,
    "show_shape": True,
    "show_field_device": True,
    "show_dtype": True,
    "show_field_is_shared": True,
    "show_grad": False,
    "show_is_contiguous": False,
    "show_is_view": False,
    "show_storage_size": False,
    "plain": False,
    "sort_keys": "alphabetical",
    "compact": True,
    "html": True,
}

# What `verbose=False` hides.
_DETAILS = ("show_device", "show_is_shared", "show_field_device", "show_dtype", "show_field_is_shared")

# The options that the compact form has no room for: whoever names one gets the long form.
_LONG_ONLY = frozenset(
    {
        "show_is_shared",
        "show_shape",
        "show_field_device",
        "show_field_is_shared",
        "show_grad",
        "show_is_contiguous",
        "show_is_view",
        "show_storage_size",
        "plain",
    }
)


def get_printoptions() -> dict[str, Any]:
    """A copy of the print options in force.

    >>> get_printoptions()["compact"]
    True
    """
    return dict(REPR_OPTIONS)


class set_printoptions(_DecoratorContextManager):
    """Chooses what `repr` shows: for a `with` block, for a decorated function or, by `set`, from now on.

    The compact form, the default, gives each leaf as its dtype and its shape beyond the batch. Naming an option that
    only the long form can show, whatever its value, asks for the long form, unless `compact` is given too.

    Args:
        verbose: False hides devices, dtypes and `is_shared`, unless an option says otherwise. True changes nothing.
        **kwargs: the options to change:

            - `show_batch_size`, `show_device`, `show_is_shared`: the attributes of a tensordict (all shown);
            - `show_shape`, `show_field_device`, `show_dtype`, `show_field_is_shared`: attributes of a leaf (all shown);
            - `show_grad`, `show_is_contiguous`, `show_is_view`, `show_storage_size`: attributes of a leaf (all hidden);
            - `plain`: computes and shows the mean and deviation of a leaf, or the bounds of an integer one (False);
            - `sort_keys`: `"alphabetical"`, `"insertion"`, or a function that gives what to sort a printed line
              `key: value` by;
            - `compact`: the compact form or the long one (True);
            - `html`: whether notebooks get a tree that folds or the text (True).

    Raises:
        TypeError: for an option that does not exist.

    >>> with set_printoptions(show_dtype=False):
    ...     get_printoptions()["show_dtype"]
    False
    >>> get_printoptions()["show_dtype"]
    True
    """

    def __init__(self, *, verbose: bool = True, **kwargs: Any) -> None:
        unknown = kwargs.keys() - REPR_OPTIONS.keys()
        if unknown:
            listed = ", ".join(map(repr, sorted(unknown)))
            raise TypeError(f"Unknown printoptions: {{{listed}}}. Valid options: {sorted(REPR_OPTIONS)}")
        hidden = () if verbose else _DETAILS
        implied = {"compact": False} if not _LONG_ONLY.isdisjoint(kwargs) else {}
        self._verbose = verbose
        self._given = kwargs
        self._options: dict[str, Any] = {**dict.fromkeys(hidden, False), **implied, **kwargs}
        self._saved: list[dict[str, Any]] = []

    def clone(self) -> set_printoptions:
        """The same choice, not entered yet: each call of a decorated function enters its own."""
        return type(self)(verbose=self._verbose, **self._given)

    def set(self) -> None:
        """Makes the choice until it is made anew, or until this object is left as a context manager."""
        self._saved.append(dict(REPR_OPTIONS))
        REPR_OPTIONS.update(self._options)

    def __enter__(self) -> None:
        self.set()

    def __exit__(self, *exc: object) -> None:
        REPR_OPTIONS.update(self._saved.pop())


get_printoptions.__module__ = set_printoptions.__module__ = "tensordict.utils"
