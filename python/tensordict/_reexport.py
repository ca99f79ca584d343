"""The one place where a lower part names a class of a higher one: bound when first asked for."""

from __future__ import annotations

from typing import Any


def sub_tensordict(parent: Any, index: Any) -> Any:
    """The view of `parent` at `index`."""
    from tensordict._sub import _SubTensorDict

    return _SubTensorDict(parent, index)
