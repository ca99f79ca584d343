"""Choosing elements: gather, masks, where."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Size, Tensor
from typing_extensions import Self

from tensordict._kernel.change import Change
from tensordict._kernel.shapes import expand_as_right, wrap
from tensordict._leaves.ragged import call
from tensordict._leaves.unbatched import is_unbatched
from tensordict._ops.indexing import IndexOps
from tensordict._ops.leafwise import relock
from tensordict._ops.take import check_nodes_unlocked
from tensordict._ops.trees import by_member, collect, dealt_to, is_own, map_leaves, refill, transform, wrote
from tensordict._types import TensorCollection


class ChooseOps(IndexOps):
    """Elements by index along a dimension, by a mask, or from one of two tensordicts."""

    __slots__ = ()

    def _refuse_stack(self, name: str) -> None:
        """Raises where an operation in place would give a lazy stack other members."""
        if self._stacked:
            raise NotImplementedError(
                f"{name}(inplace=True) is not supported on a {type(self).__name__}, whose batch is made of members that others "
                "may hold: make it dense first, by contiguous()"
            )

    def gather(self, dim: int, index: Tensor, out: Any = None, *, inplace: bool = False) -> Self:
        """`torch.gather` of each leaf along a batch dimension.

        Args:
            dim: a batch dimension.
            index: integers, with as many dimensions as the batch; all features of the chosen elements are taken.
            out: a tensordict to write the result into.
            inplace: take the result's leaves and batch size into this tensordict and return it.

        Raises:
            RuntimeError: `dim` is no batch dimension, `index` has another number of dimensions, or is out of bounds.
            ValueError: `out` and `inplace` are given.
            NotImplementedError: in place of a lazy stack.
        """
        if inplace:
            self._refuse_stack("gather")
            if out is not None:
                raise ValueError("out and inplace=True are mutually exclusive in gather()")
        dims = len(self.batch_size)
        at = wrap(dim, dims, lambda: RuntimeError(f"Cannot gather tensordict with shape {self.batch_size} along dim {dim}."))
        if index.ndim != dims:
            raise NotImplementedError(
                f"gather needs an index of {dims} dimensions, index.ndim == batch_dims; got the shape {index.shape}"
            )

        def leaf(value: Any) -> Any:
            wide = expand_as_right(index, value.new_empty(()).expand(index.shape + value.shape[dims:]))
            return value.gather(at, wide)

        result = transform(self, Change(leaf, dims, Size(index.shape), range(dims)))
        if inplace:
            return self._become(result, "gather")
        return result if out is None else out.update_(result)

    def masked_select(self, mask: Tensor, *, inplace: bool = False) -> Self:
        """The rows at a boolean mask over the leading batch dimensions, one after the other: `td[mask]`.

        Args:
            mask: the mask.
            inplace: take the rows and their batch size into this tensordict and return it.

        Raises:
            IndexError: the mask has another shape than the batch dimensions that it covers.
        """
        result = self._get_rows(mask)
        return self._become(result, "masked_select") if inplace else result

    def _become(self, result: Any, name: str = "") -> Self:
        """Takes over the entries, batch sizes and names of `result`, which has the same nodes; these stay what they are.

        Nodes that cannot, such as a lazy stack for which the result has a dense node, are replaced.

        Args:
            result: what the operation gave.
            name: the operation, for the error.

        Raises:
            RuntimeError: a node is locked, or this one cannot be what the result is; nothing has changed then.
        """
        check_nodes_unlocked(self)
        if not self._take_over(result):
            raise NotImplementedError(
                f"{name}(inplace=True) cannot preserve the identity of a {type(self).__name__}: the result is a "
                f"{type(result).__name__} of batch size {result.batch_size}"
            )
        return self

    def masked_fill_(self, mask: Tensor, value: Any) -> Self:
        """Writes a number into all elements at a boolean mask over the leading batch dimensions. Also if locked.

        Raises:
            RuntimeError: the mask does not fit the batch size.
        """
        leaves: list[Any] = []
        tree = collect(self, leaves)
        pairs = [(leaf, piece) for leaf, piece in zip(leaves, dealt_to(tree, mask)) if not is_unbatched(leaf)]
        wide = [expand_as_right(piece, leaf) for leaf, piece in pairs]
        for (leaf, _), chosen in zip(pairs, wide):
            _on(leaf, Tensor.masked_fill_, leaf, chosen, value)
        wrote(tree, leaves)
        return self

    def masked_fill(self, mask: Tensor, value: Any) -> Self:
        """A copy with a number in all elements at a boolean mask over the leading batch dimensions.

        Raises:
            RuntimeError: the mask does not fit the batch size.
        """
        leaves: list[Any] = []
        tree = collect(self, leaves)
        masks = [mask] * len(leaves) if is_own(tree) else dealt_to(tree, mask)
        return refill(tree, iter([_filled(leaf, piece, value) for leaf, piece in zip(leaves, masks)]))

    def where(
        self, condition: Tensor, other: Any, *, out: Any = None, pad: Any = None, update_batch_size: bool = False
    ) -> Self:
        """The elements of this tensordict where a condition over the batch holds, and those of `other` elsewhere.

        Args:
            condition: booleans that broadcast to the leading dimensions.
            other: a tensordict, a number, or a tensor that broadcasts to every leaf.
            out: a tensordict to write the result into.
            pad: what stands for the leaves of a key that only one side has.
            update_batch_size: give `out` the batch size of the result; its entries are replaced if it had another one.

        Raises:
            KeyError: a key is on one side only and there is no `pad`.
            RuntimeError: the condition does not fit.
        """
        result = _where(self, condition, other, pad)
        if out is None:
            return result
        if not update_batch_size or out.batch_size == result.batch_size:
            return out.update(result, inplace=True)
        out._check_unlocked()
        out._set_batch_size(result.batch_size)
        return out.update(result)


def _filled(leaf: Any, mask: Tensor, value: Any) -> Any:
    if is_unbatched(leaf):
        return leaf
    return _on(leaf, Tensor.masked_fill, leaf, expand_as_right(mask, leaf), value)


def _on(leaf: Any, function: Callable[..., Any], *args: Any) -> Any:
    """`function(*args)`, also where the leaf among them is nested."""
    return call(function, *args) if leaf.is_nested else function(*args)


def _where(node: Any, condition: Tensor, other: Any, pad: Any) -> Any:
    if isinstance(other, TensorCollection):
        return _where_of(node, condition, other, pad)
    leaves: list[Any] = []
    tree = collect(node, leaves)
    if is_own(tree):
        conditions = [condition] * len(leaves)
    else:
        conditions = dealt_to(tree, condition.expand(node.batch_size[: condition.ndim]))
    rows = zip(conditions, leaves)
    return relock(refill(tree, iter([_choose(row, leaf, other, None) for row, leaf in rows])), node)


@by_member(others=2)
def _where_of(node: Any, condition: Tensor, other: Any, pad: Any) -> Any:
    """The elements of `node` where a condition holds, and those of a tree elsewhere."""
    if node._is_non_tensor:
        return node._combined(other, torch.where, condition)
    mine, theirs = node._entries(), other._entries()
    fields = {}
    for key in [*mine, *(key for key in theirs if key not in mine)]:
        one, two = mine.get(key), theirs.get(key)
        if (one is None or two is None) and pad is None:
            raise KeyError(f"Key {key} not found and no pad value provided.")
        fields[key] = _choose(condition, one, two, pad)
    return node._rebuild(fields, node.batch_size, node.device, node._names)


def _choose(condition: Tensor, one: Any, two: Any, pad: Any) -> Any:
    if isinstance(one, TensorCollection) or isinstance(two, TensorCollection):
        if one is None:
            return _where(map_leaves(two, lambda leaf: torch.full_like(leaf, pad)), condition, two, pad)
        return _where(one, condition, pad if two is None else two, pad)
    known = two if one is None else one
    if is_unbatched(known):
        return known
    wide = expand_as_right(condition, known)
    return _on(known, torch.where, wide, pad if one is None else one, pad if two is None else two)
