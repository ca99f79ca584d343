"""Predicates on the dtype of a leaf, made for `cast_filter`: each takes a leaf, or a key and a leaf."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def _predicate(name: str, says: str, test: Callable[[torch.dtype], bool]) -> Callable[..., bool]:
    def predicate(*args: Any) -> bool:
        return test(args[-1].dtype)

    predicate.__name__ = predicate.__qualname__ = name
    predicate.__doc__ = f"Whether a leaf has {says} dtype: `{name}(leaf)` or, as a `cast_filter`, `{name}(key, leaf)`."
    return predicate


def _is_integer(dtype: torch.dtype) -> bool:
    return not (dtype.is_floating_point or dtype.is_complex or dtype is torch.bool)


is_floating = _predicate("is_floating", "a floating-point", lambda dtype: dtype.is_floating_point)
is_inexact = _predicate("is_inexact", "a floating-point or complex", lambda dtype: dtype.is_floating_point or dtype.is_complex)
is_integer = _predicate("is_integer", "an integer", _is_integer)
is_bool = _predicate("is_bool", "the boolean", lambda dtype: dtype is torch.bool)
