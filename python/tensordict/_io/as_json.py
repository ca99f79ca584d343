"""What JSON can hold of Python objects."""

from __future__ import annotations

import math
from typing import Any


def same_in_json(value: Any) -> bool:
    """Whether JSON gives back an equal object of the same classes."""
    if type(value) is float:
        return math.isfinite(value)
    if value is None or type(value) in (str, bool, int):
        return True
    if type(value) is list:
        return all(map(same_in_json, value))
    return type(value) is dict and all([type(key) is str and same_in_json(item) for key, item in value.items()])
