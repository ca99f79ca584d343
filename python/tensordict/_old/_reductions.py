"""The functions that pickles name to build tensordicts again."""

from __future__ import annotations

from typing import Any

from tensordict._io.consolidate import _rebuild_tensordict_files_consolidated

__all__ = ["_make_td", "_rebuild_tensordict_files_consolidated"]


def _make_td(cls: Any, state: dict[str, Any]) -> Any:
    """A tensordict of the class with the state: what pickles of the package that this one replaces call."""
    made = cls.__new__(cls)
    made.__setstate__(state)
    return made
