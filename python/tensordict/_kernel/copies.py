"""Copies by torch that count only if the memory that they read stayed where it was."""

from __future__ import annotations

import torch
from torch import Tensor

_ATTEMPTS = 100  # a thread that never stops exchanging memory is not waited for


def copy_whole(made: Tensor, source: Tensor) -> None:
    """Copies `source`; again where another thread gave it other memory meanwhile, as `share_memory_` does.

    Raises:
        RuntimeError: the memory was exchanged each time.
    """
    if source.layout is not torch.strided or source.is_nested:
        made.copy_(source)
        return
    for _ in range(_ATTEMPTS):
        start = source.data_ptr()
        made.copy_(source)
        if source.data_ptr() == start:
            return
    raise RuntimeError("the memory of a tensor was exchanged by another thread while it was read")
