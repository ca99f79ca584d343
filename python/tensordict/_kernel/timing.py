"""Named timers."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from tensordict._kernel.log import logger

F = TypeVar("F", bound=Callable[..., Any])


class timeit:
    """Times a block or a function; all times of one name are added up.

    Args:
        name: the name of the timer.

    >>> from tensordict.utils import timeit
    >>> with timeit("work"):
    ...     total = sum(range(10))
    >>> @timeit("more")
    ... def work():
    ...     return 1
    >>> work()
    1
    """

    # Of each name: the mean and the sum of the times, in seconds, and how many there are.
    _REG: ClassVar[dict[str, list[Any]]] = {}

    def __init__(self, name: str) -> None:
        self.name = name
        self._starts: list[float] = []

    def __call__(self, function: F) -> F:
        @functools.wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            with type(self)(self.name):
                return function(*args, **kwargs)

        return timed  # type: ignore[return-value]

    def __enter__(self) -> None:
        self._starts.append(time.perf_counter())

    def __exit__(self, *exc: object) -> None:
        entry = self._REG.setdefault(self.name, [0.0, 0.0, 0])
        entry[1] += time.perf_counter() - self._starts.pop()
        entry[2] += 1
        entry[0] = entry[1] / entry[2]

    @staticmethod
    def print(prefix: str | None = None) -> None:
        """Logs the mean and the total time of each name, in alphabetical order."""
        begin = f"{prefix} -- " if prefix else ""
        for name, (mean, total, _) in sorted(timeit._REG.items()):
            logger.info(f"{begin}{name} took {mean * 1000:4.4} msec (total = {total} sec)")

    @staticmethod
    def erase() -> None:
        """Sets all times to zero."""
        for entry in timeit._REG.values():
            entry[:] = [0.0, 0.0, 0]


timeit.__module__ = "tensordict.utils"
