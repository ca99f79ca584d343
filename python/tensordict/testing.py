"""Comparisons of tensordicts for tests (a public module of the reference)."""

from __future__ import annotations

from typing import Any

import torch

from tensordict._ops.keys import sort_key
from tensordict._ops.trees import divided
from tensordict._types import TensorCollection

__all__ = ["assert_allclose_td", "assert_close"]


def assert_close(
    actual: Any,
    expected: Any,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = True,
    intersection: bool = False,
    msg: str = "",
    prefix: tuple[str, ...] = (),
) -> bool:
    """Checks that two tensordicts have the same keys and close leaves; batch sizes and names are not compared.

    Args:
        actual: a tensordict.
        expected: a tensordict.
        rtol: as for `torch.testing.assert_close`, which compares the leaves.
        atol: as for `torch.testing.assert_close`.
        equal_nan: count NaN as equal to NaN.
        intersection: compare only the keys that both have.
        msg: added to the text of the error.
        prefix: a key path to name before the keys in errors.

    Returns:
        True.

    Raises:
        AssertionError: leaves differ in value, shape, dtype or device; it names the key.
        KeyError: the keys differ.
        TypeError: one of the two is no tensordict, or a leaf is at the place of a node.
        ValueError: only one of `rtol` and `atol` is given.
    """
    if not isinstance(actual, TensorCollection) or not isinstance(expected, TensorCollection):
        at = f" at key {prefix}" if prefix else ""
        raise TypeError(f"assert_close compares tensordicts, got a {type(actual).__name__} and a {type(expected).__name__}{at}")
    if (rtol is None) != (atol is None):
        raise ValueError("rtol and atol must be given together")
    if actual.batch_size == expected.batch_size:
        rows = divided(actual, expected) or divided(expected, actual)
        for place, (one, two, _) in enumerate(rows or ()):
            assert_close(one, two, rtol, atol, equal_nan, intersection, msg, (*prefix, str(place)))
        if rows is not None:
            return True
    mine, others = actual._fields(), expected._fields()
    if not intersection and mine.keys() != others.keys():
        left, right = sorted(mine.keys() - others.keys()), sorted(others.keys() - mine.keys())
        raise KeyError(f"keys in tensordicts mismatch: only the first has the keys {left}, only the second {right}")
    for key in sorted(mine.keys() & others.keys(), key=sort_key):
        path = (*prefix, key)
        one, two = mine[key], others[key]
        if isinstance(one, TensorCollection) or isinstance(two, TensorCollection):
            assert_close(one, two, rtol, atol, equal_nan, intersection, msg, path)
        else:
            _assert_leaf(path, one, two, rtol, atol, equal_nan, msg)
    return True


def _assert_leaf(
    path: tuple[str, ...], one: Any, two: Any, rtol: float | None, atol: float | None, equal_nan: bool, msg: str
) -> None:
    def text(found: str) -> str:
        return f"key {path} does not match{', ' + msg if msg else ''}\n{found}"

    if one.is_nested and two.is_nested:  # torch takes ragged dimensions of other tensors for other sizes
        components = one.unbind(), two.unbind()
        torch.testing.assert_close(len(components[0]), len(components[1]), msg=text)
        for place, pair in enumerate(zip(*components)):
            _assert_leaf((*path, str(place)), *pair, rtol, atol, equal_nan, msg)
        return
    torch.testing.assert_close(one, two, rtol=rtol, atol=atol, equal_nan=equal_nan, msg=text)


assert_allclose_td = assert_close
