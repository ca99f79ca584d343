"""Key paths: a string for one level, a tuple of strings for a nested entry."""

from __future__ import annotations

from typing import Any

from tensordict._kernel.errors import BAD_KEY, BadKeyError
from tensordict._types import Key, Path


def _flatten(key: Any, out: list[str]) -> bool:
    for part in key:
        if isinstance(part, str):
            out.append(part)
        elif not isinstance(part, tuple) or not part or not _flatten(part, out):
            return False
    return True


def path_of(key: Any) -> Path:
    """The path of a key: `"a"` gives `("a",)`, `("a", ("b",))` gives `("a", "b")`.

    Raises:
        BadKeyError: `key` is not a string or a non-empty, possibly nested tuple of strings.
    """
    if isinstance(key, str):
        return (key,)
    out: list[str] = []
    if isinstance(key, tuple) and key and _flatten(key, out):
        return tuple(out)
    raise BadKeyError(BAD_KEY.format(key=key))


def key_of(path: Path) -> Key:
    """The shortest form of a path: a string for one level, else the tuple."""
    return path[0] if len(path) == 1 else path


def is_key(key: Any) -> bool:
    """Whether `key` names an entry (and is not an index)."""
    if isinstance(key, str):
        return True
    return isinstance(key, tuple) and len(key) > 0 and _flatten(key, [])
