"""Locks for what the threads of a process do one after the other; a forked child has locks of its own, which nobody holds."""

from __future__ import annotations

from threading import RLock
from typing import Any

from tensordict._kernel.fork import in_children


class _Turns:
    """Locks by what they are for. Several things share one."""

    __slots__ = ("_locks",)

    def __init__(self) -> None:
        self._locks = [RLock() for _ in range(64)]

    def at(self, what: Any) -> Any:
        """The lock for a folder, or something else that can be hashed."""
        return self._locks[hash(what) % len(self._locks)]


TURNS = _Turns()
in_children(TURNS.__init__)  # type: ignore[misc]
