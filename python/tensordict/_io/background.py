"""Saves that go on while the program does, one after the other where one is at, in or around the place of another."""

from __future__ import annotations

from _thread import start_new_thread
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from threading import Thread, main_thread
from typing import Any

from tensordict._kernel.pending import PENDING, Pending, wait_for
from tensordict._types import FilePath


def run(work: Callable[[], Any], place: FilePath | None, early: bool) -> Any:
    """The result of `work`, which saves to a folder or file; with `early` a future of it, while a thread of its own does it.

    Saves that were called before, to that place or to what is in or around it, are done first.

    Raises:
        RuntimeError: no thread can be started; nothing is saved then.
    """
    if not early:
        if PENDING and place is not None:
            wait_for(place)
        return work()
    future: Future[Any] = Future()
    save = Pending(place)
    try:
        start_new_thread(_start, (work, future, save))
        save.wait_until_begun()
    except BaseException:
        save.is_stopped = True
        raise
    return future


def _start(*task: Any) -> None:
    """Starts the thread that the interpreter waits for at its end: here, where no signal can break that off half way."""
    try:
        if not main_thread().is_alive():
            raise RuntimeError("nobody waits for a save in the background once the interpreter ends: leave out return_early")
        Thread(target=_carry_out, args=task, name="tensordict-save", daemon=False).start()
    except BaseException as error:
        task[-1].fail(error)


def _carry_out(work: Callable[[], Any], future: Future[Any], save: Pending) -> None:
    try:
        save.begin()
        if save.is_stopped or not future.set_running_or_notify_cancel():
            return
        tell = partial(future.set_result, work())
    except BaseException as error:
        tell = partial(future.set_exception, error)
    finally:
        save.end()
    tell()
