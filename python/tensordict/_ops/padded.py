"""Nested leaves as dense ones."""

from __future__ import annotations

from typing import Any

from torch import Size, Tensor
from typing_extensions import Self

from tensordict._leaves.ragged import counts, is_jagged, mask_of, ragged_dim, to_padded
from tensordict._ops.trees import collect, refill
from tensordict._ops.waist import Waist
from tensordict._types import Key


class PaddedOps(Waist):
    """Filling up components of nested leaves."""

    __slots__ = ()

    def to_padded_tensor(self, padding: float = 0.0, mask_key: Key | None = None) -> Self:
        """The nested leaves as dense ones, each component filled up at its end to the longest; other leaves as they are.

        Args:
            padding: what is filled in.
            mask_key: where to put booleans of the batch size that say what was there before. Only where the ragged
                dimension is one of the batch.

        Raises:
            RuntimeError: there is a `mask_key`, and no batch dimension is ragged.
        """
        leaves: list[Any] = []
        tree = collect(self, leaves)
        at = next((place for place, size in enumerate(self.batch_size) if type(size) is not int), None)
        if mask_key is not None and at is None:
            raise RuntimeError("mask_key should only be provided if the heterogenous dimension is part of the batch-size.")
        out = refill(tree, iter([to_padded(leaf, padding) if leaf.is_nested else leaf for leaf in leaves]))
        if at is not None:
            owner = _owner(leaves, at)
            _set_size(out, at, int(counts(owner).max()) if owner.size(0) else 0)
            if mask_key is not None:
                mask = mask_of(owner)
                out.set(mask_key, _to_dims(mask, out.batch_size))
        return out


def _owner(leaves: list[Any], dim: int) -> Any:
    """A leaf whose ragged dimension is the batch dimension `dim`."""
    return next(leaf for leaf in leaves if leaf.is_nested and is_jagged(leaf) and ragged_dim(leaf) == dim)


def _set_size(node: Any, dim: int, size: int) -> None:
    if len(node.batch_size) > dim:
        node._set_batch_size(Size([size if place == dim else known for place, known in enumerate(node.batch_size)]))
    for part in node._parts():
        if isinstance(part, Waist):
            _set_size(part, dim, size)


def _to_dims(mask: Tensor, size: Size) -> Tensor:
    return mask.reshape(mask.shape + (1,) * (len(size) - mask.ndim)).expand(size)
