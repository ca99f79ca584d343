"""Shared memory."""

from __future__ import annotations

from typing import Any

from typing_extensions import Self

from tensordict._ops.trees import leaves_of
from tensordict._ops.waist import Waist
from tensordict._types import TensorCollection


def _mark(node: Any) -> None:
    """Notes in `node`, and in all nodes below, that it was shared: one without leaves shows it in no other way."""
    node._rare["shared"] = True
    for part in node._parts():
        if isinstance(part, TensorCollection):
            _mark(part)


class ShareOps(Waist):
    """Leaves in memory that other processes see."""

    __slots__ = ()

    def share_memory_(self) -> Self:
        """Moves every leaf into shared memory and locks the tensordict, so that other processes see what is written.

        Leaves on CUDA devices are shared already. Returns the tensordict itself.

        Raises:
            RuntimeError: the leaves are mapped files, which other processes open by name.
        """
        if self.is_memmap():
            raise RuntimeError("memmap and shared memory are mutually exclusive features.")
        for leaf in leaves_of(self):
            leaf.share_memory_()
        _mark(self)
        target: Any = self
        return target.lock_()

    @property
    def _is_shared(self) -> bool:
        """Whether this node was shared; libraries read it."""
        return bool(self._extra and self._extra.get("shared"))

    def is_shared(self) -> bool:
        """Whether every leaf is in memory that other processes see: shared, or on a CUDA device."""
        if self.device is not None and self.device.type == "cuda":
            return True
        leaves = leaves_of(self)
        if not leaves:
            return bool(self._extra and self._extra.get("shared")) and self.is_locked
        return not self.is_memmap() and all(leaf.is_shared() for leaf in leaves)
