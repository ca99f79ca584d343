"""What a forked child must let go of at once."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress

from tensordict._kernel.native import inherited_locks


def in_children(function: Callable[[], object]) -> None:
    """Has `function` called in each forked child, where none of the other threads goes on."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=function)


def _let_go() -> None:
    """Closes the locks of folders that the parent held: they would else last as long as the child."""
    for descriptor in inherited_locks():
        # the system copies the descriptors before the memory: one that was made or closed in between is not there
        with suppress(OSError):
            os.close(descriptor)


def close_inherited_locks() -> None:
    """Sees to it that forked children let go of the locks. To be called once."""
    in_children(_let_go)
