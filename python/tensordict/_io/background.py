"""Saves that go on while the program does, one after the other where they are of one folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from threading import Lock, current_thread
from typing import Any

from tensordict._kernel.fork import in_children
from tensordict._types import FilePath

_WORKERS = "tensordict-save"


class _Line:
    """The last of the saves of each folder or file that are not done yet. They count in the order in which they were called."""

    __slots__ = ("_guard", "_last")

    def __init__(self) -> None:
        self._last: dict[str, Future[Any]] = {}
        self._guard = Lock()

    def join(self, place: str, own: Future[Any]) -> Future[Any] | None:
        """Puts a save at the end of the line; gives the one before it."""
        with self._guard:
            before = self._last.get(place)
            self._last[place] = own
        own.add_done_callback(lambda done: self._leave(place, done))
        return before

    def last(self, place: str) -> Future[Any] | None:
        """The save that was called last, if it is not done."""
        return self._last.get(place)

    def _leave(self, place: str, done: Future[Any]) -> None:
        with self._guard:
            if self._last.get(place) is done:
                del self._last[place]


_LINE = _Line()
# What goes on in the parent is no business of a child, where it never ends.
in_children(_LINE.__init__)  # type: ignore[misc]


def run(work: Callable[[], Any], place: FilePath | None, early: bool) -> Any:
    """The result of `work`, which saves to a folder or file; with `early` a future of it, while a thread of its own does it.

    Saves to one place that were called before are done first.
    """
    name = None if place is None else os.path.abspath(place)
    if not early:
        before = None if name is None else _LINE.last(name)
        # A save that is called within another one, by an object that is pickled, cannot wait for that.
        if before is not None and not current_thread().name.startswith(_WORKERS):
            wait([before])
        return work()
    future: Future[Any] = Future()
    before = None if name is None else _LINE.join(name, future)
    pool = ThreadPoolExecutor(1, thread_name_prefix=_WORKERS)
    pool.submit(_carry_out, work, future, before)
    pool.shutdown(wait=False)
    return future


def _carry_out(work: Callable[[], Any], future: Future[Any], before: Future[Any] | None) -> None:
    if before is not None:
        wait([before])
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(work())
    except BaseException as error:
        future.set_exception(error)
