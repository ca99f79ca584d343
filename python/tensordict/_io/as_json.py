"""What JSON can hold of Python objects."""

from __future__ import annotations

import math
from typing import Any

# Python reads no longer number from a text, by default.
_DIGITS = 4300
_LARGEST = 10**_DIGITS


def same_in_python(value: Any) -> bool:
    """Whether Python's own JSON, which has more numbers and strings than others, gives back an equal object."""
    kind = type(value)
    if kind is str:
        return is_kept(value)
    if kind is int:
        return -_LARGEST < value < _LARGEST
    if kind is list:
        return all(map(same_in_python, value))
    if kind is dict:
        return all([type(key) is str and is_kept(key) and same_in_python(item) for key, item in value.items()])
    return value is None or kind in (bool, float)


def is_kept(text: str) -> bool:
    """Whether JSON gives back a string: two halves of a surrogate pair that follow one another become one character."""
    return text.isascii() or text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass") == text


def same_in_json(value: Any) -> bool:
    """Whether JSON gives back an equal object of the same classes."""
    if type(value) is float:
        return math.isfinite(value)
    if type(value) in (str, int):
        return is_kept(value) if type(value) is str else -_LARGEST < value < _LARGEST
    if type(value) is list:
        return all(map(same_in_json, value))
    if type(value) is dict:
        return all([type(key) is str and is_kept(key) and same_in_json(item) for key, item in value.items()])
    return value is None or type(value) is bool
