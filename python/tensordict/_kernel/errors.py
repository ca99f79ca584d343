"""Exceptions of the package's own, and the texts that several modules raise."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

LOCKED = (
    "Cannot modify locked TensorDict. For in-place modification, consider using the `set_()` method and make sure the key is "
    "present."
)
BAD_KEY = (
    "Only NestedKeys are supported: a key must be a string or a non-empty, possibly nested tuple of strings. Got key {key!r}."
)


class BadKeyError(KeyError, TypeError, RuntimeError):
    """A key that is no string or tuple of strings. Which of its bases callers expect depends on the method."""

    __str__ = Exception.__str__  # a KeyError shows the repr of its text


class _KeyThroughLeafError(ValueError):
    """A nested key that goes on below a leaf."""


class _InplaceWriteError(ValueError, RuntimeError):
    """A value that does not fit the entry it should be written into."""


class DimsError(ValueError, IndexError, RuntimeError):
    """Dimensions that are no permutation. Which of its bases callers expect depends on the mode, as it does in torch."""


class UnreadableError(ValueError, RuntimeError):
    """A file that does not hold what it should: damaged, of another program, a newer version, or a class that is not known."""


class MissingFileError(FileNotFoundError, UnreadableError):
    """A file that is not there, where the metadata of a folder says that it is."""


class NoFileError(AttributeError, RuntimeError):
    """The name of a file that there is not: an attribute that is missing, for `getattr` with a default and `hasattr`."""


_KeyThroughLeafError.__module__ = _InplaceWriteError.__module__ = "tensordict.base"


def missing_key(key: Any, name: str, keys: Iterable[Any]) -> KeyError:
    """The error for a key that is not there."""
    shown = f'"{key}"' if isinstance(key, str) else repr(key)
    return KeyError(f"key {shown} not found in {name} with keys {sorted(keys, key=str)}")


def through_leaf(key: str, value: Any, rest: Any) -> _KeyThroughLeafError:
    """The error for a key path that meets a leaf before its end."""
    return _KeyThroughLeafError(f"{key!r} is a {type(value).__name__}, not a tensordict, so it has no entry {rest!r}.")


def batch_mismatch(key: Any, batch_size: Any, shape: Any, scalar: bool = False) -> RuntimeError:
    """The error for a value whose leading dimensions are not the batch size."""
    text = (
        f"batch dimension mismatch, got self.batch_size={batch_size} and value.shape={shape} for key {key!r}. The leading "
        "dimensions of a value must match the batch size."
    )
    if scalar:
        text += " Python scalars are stored as 0-dim tensors: expand the value to the batch size to store it here."
    return RuntimeError(text)
