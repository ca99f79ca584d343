"""Saves that go on in the background, and who waits for them.

There are no locks that a signal handler, or the finalizer of an object, could find taken by the code that it interrupted: all
is done by operations of dicts and lists that happen as a whole, and who waits brings a lock of its own.
"""

from __future__ import annotations

import os
from _thread import LockType, allocate_lock, get_ident

from tensordict._kernel.fork import in_children
from tensordict._types import FilePath


def _taken() -> LockType:
    lock = allocate_lock()
    lock.acquire()
    return lock


class Pending:
    """A save in the background. It counts from `begin` to `end`, both of which are called by the thread that carries it out.

    Args:
        place: the folder or file; None for memory, which nobody else writes to.

    Attributes:
        is_stopped: whether it must not write any more.
    """

    __slots__ = ("_error", "_first", "_has_begun", "_is_over", "_place", "_thread", "_waiting", "is_stopped")

    def __init__(self, place: FilePath | None) -> None:
        self.is_stopped = False
        self._place = None if place is None else os.path.realpath(place)
        # A save that is called within another one waits for what that one waits for: neither for it, nor for who waits for it.
        self._first = _current()
        self._thread = 0
        self._is_over = False
        self._error: BaseException | None = None
        self._has_begun = _taken()
        self._waiting: list[LockType] = []

    def wait_until_begun(self) -> None:
        """Waits until it counts, or raises why it cannot begin."""
        self._has_begun.acquire()
        if self._error is not None:
            raise self._error

    def fail(self, error: BaseException) -> None:
        """Says that it cannot begin."""
        self._error = error.with_traceback(None)
        self._has_begun.release()

    def begin(self) -> None:
        """Has later saves wait for it, and waits for those before it."""
        self._thread = get_ident()
        PENDING[self] = None
        self._has_begun.release()
        if self._place is not None:
            _wait_for(self._place, (self, self._first))

    def end(self) -> None:
        """Lets go on who waits."""
        self._is_over = True
        PENDING.pop(self, None)
        while self._waiting:
            self._waiting.pop().release()

    def wait(self) -> None:
        """Waits until it is over."""
        own = _taken()
        self._waiting.append(own)
        if not self._is_over:
            own.acquire()

    def meets(self, place: str) -> bool:
        """Whether it writes to a place, into it, or to what is around it."""
        own = self._place
        return own is not None and (own == place or _is_in(own, place) or _is_in(place, own))


# In the order in which they were called. What goes on in the parent is no business of a child, where it never ends.
PENDING: dict[Pending, None] = {}
in_children(PENDING.clear)


def wait_for(place: FilePath) -> None:
    """Waits for the saves that were called before and write to a folder or file, into it, or to what is around it.

    To be called by all that changes files, before it takes any lock, if `PENDING` is not empty.
    """
    _wait_for(os.path.realpath(place), (_current(),))


def _wait_for(place: str, until: tuple[Pending | None, ...]) -> None:
    for other in PENDING.copy():
        if other in until:
            break
        if other.meets(place):
            other.wait()


def _current() -> Pending | None:
    """The save that this thread carries out, or the outermost one of those within each other."""
    own = get_ident()
    for other in PENDING.copy() if PENDING else ():
        if other._thread == own:
            return other._first or other
    return None


def _is_in(place: str, folder: str) -> bool:
    return place.startswith(os.path.join(folder, ""))
