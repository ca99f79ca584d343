"""Twins of the key functions."""

from __future__ import annotations

from typing import Any

from tensordict._kernel import native


def _collect(key: Any, names: list[str]) -> bool:
    if isinstance(key, str):
        names.append(key)
        return True
    if not isinstance(key, tuple) or not key:
        return False
    return all([_collect(part, names) for part in key])


def _no_key(key: Any) -> RuntimeError:
    return RuntimeError(f"key should be a Sequence<NestedKey>: a string or a tuple of keys, got {type(key)}")


def unravel_key_to_tuple(key: Any) -> tuple[str, ...]:
    """The names of a key, from the root on. Not a key: no names."""
    names: list[str] = []
    return tuple(names) if _collect(key, names) else ()


def unravel_key(key: Any) -> str | tuple[str, ...]:
    """The shortest form of a key; the empty tuple for a tuple that is none."""
    if isinstance(key, str):
        return key
    if not isinstance(key, tuple):
        raise _no_key(key)
    names = unravel_key_to_tuple(key)
    return names[0] if len(names) == 1 else names


def unravel_key_list(keys: Any) -> list[Any]:
    """The shortest forms of several keys."""
    if not isinstance(keys, (list, tuple)):
        raise TypeError(
            f"unravel_key_list(): incompatible function arguments. Expected a list or a tuple of keys, got {type(keys)}."
        )
    found: list[Any] = []
    for key in keys:
        names = unravel_key_to_tuple(key)
        if not names:
            raise _no_key(key)
        found.append(names[0] if len(names) == 1 else names)
    return found


def unravel_keys(key: Any) -> str | tuple[str, ...]:
    """The same as `unravel_key`."""
    return unravel_key(key)


TWINS: list[tuple[Any, Any]] = [
    (native.unravel_key, unravel_key),
    (native.unravel_key_list, unravel_key_list),
    (native.unravel_key_to_tuple, unravel_key_to_tuple),
    (native.unravel_keys, unravel_keys),
]
