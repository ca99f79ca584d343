"""The native functions: the only module that imports `tensordict._core`."""

from __future__ import annotations

from tensordict._core import (
    Map,
    __version__,
    cat,
    gather,
    is_plain,
    map_anonymous,
    map_create,
    map_descriptor,
    map_open,
    mask_select,
    pad,
    pad_stack,
    register_plain_type,
    stack,
)

__all__ = [
    "Map",
    "__version__",
    "cat",
    "gather",
    "is_plain",
    "map_anonymous",
    "map_create",
    "map_descriptor",
    "map_open",
    "mask_select",
    "pad",
    "pad_stack",
    "register_plain_type",
    "stack",
]
