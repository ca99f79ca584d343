"""The garbage collector of Python, held back where thousands of objects are made that all stay."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from tensordict._kernel.fork import in_children


class _Pauses:
    """How many threads hold the collector back, which is one for the whole process, and whether it was on before the first."""

    __slots__ = ("count", "guard", "was_on")

    def __init__(self) -> None:
        self.count = 0
        self.was_on = False
        self.guard = Lock()

    def begin(self) -> None:
        with self.guard:
            if not self.count:
                self.was_on = gc.isenabled()
                gc.disable()
            self.count += 1

    def end(self) -> None:
        with self.guard:
            self.count -= 1
            if not self.count and self.was_on:
                gc.enable()

    def forget(self) -> None:
        """In a forked child, where none of the other threads goes on."""
        if self.count and self.was_on:
            gc.enable()
        self.__init__()  # type: ignore[misc]


_PAUSES = _Pauses()
in_children(_PAUSES.forget)


@contextmanager
def collector_paused() -> Iterator[None]:
    """No collection inside: each would walk over all that was made so far and find nothing to free.

    Meant for what takes milliseconds, and makes many objects. Where the collector is off already, it stays off.
    """
    pauses, process = _PAUSES, os.getpid()
    pauses.begin()
    try:
        yield
    finally:
        if os.getpid() == process:  # a child forgot all pauses
            pauses.end()
