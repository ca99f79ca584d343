"""The garbage collector of Python, held back where thousands of objects are made that all stay."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """No collection inside: each would walk over all that was made so far and find nothing to free.

    Meant for what takes milliseconds. Where the collector is off already, it stays off.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
