"""Twins of the functions that put leaves into one buffer. All but the layout leave the work to torch, as those may.

What they leave undone is traced: the copies into views of the buffer.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from tensordict._kernel import native


def consolidate(leaves: list[Tensor], allocate: Callable[[int], Tensor]) -> tuple[Tensor, list[Tensor]] | None:
    """None: a copy into each view, which torch makes, is what can be traced."""
    return None


def places_in(leaves: list[Tensor], buffer: Tensor) -> tuple[list[int], list[int]] | None:
    """None: tensors of a trace have no address, so nothing is known of them."""
    return None


def packed_places(leaves: list[tuple[int, int]]) -> tuple[list[int], int]:
    """Where leaves of so many bytes, with items of so many, lie in one buffer, and its size."""
    starts, end = [], 0
    for size, item in leaves:
        alignment = max(8, item)
        start = -(-end // alignment) * alignment if size else end
        starts.append(start)
        end = -(-(start + size) // 8) * 8
    return starts, end


TWINS: list[tuple[Any, Any]] = [
    (native.consolidate, consolidate),
    (native.packed_places, packed_places),
    (native.places_in, places_in),
]
