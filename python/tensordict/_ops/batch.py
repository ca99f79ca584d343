"""The batch size, and what all leaves have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Size, Tensor
from typing_extensions import Self

from tensordict._kernel.registry import is_branch
from tensordict._leaves.unbatched import is_unbatched
from tensordict._ops.coerce import as_size
from tensordict._ops.trees import leaves_of
from tensordict._ops.waist import Waist


class BatchOps(Waist):
    """The batch size, and questions about all leaves."""

    __slots__ = ()

    @property
    def batch_size(self) -> Size:
        """The leading dimensions that all entries share. Setting it checks every entry first."""
        return self._batch_size

    @batch_size.setter
    def batch_size(self, value: Any) -> None:
        size = as_size(value)
        self._check_batch_size(size)
        if size == self.batch_size:
            return
        names = self._names
        self._set_batch_size(size)
        if names is not None:
            self._set_names((names + [None] * len(size))[: len(size)])
        for entry in self._entries().values():
            if isinstance(entry, BatchOps) and entry.batch_size[: len(size)] != size:
                entry.batch_size = size

    def _check_batch_size(self, size: Size | None = None) -> None:
        """Raises where an entry does not have the leading dimensions `size`, those of the batch if not given."""
        if size is None:
            size = self.batch_size
        for key, entry in self._outline():
            if isinstance(entry, BatchOps):
                if entry.batch_size[: len(size)] != size:
                    entry._check_batch_size(size)
            elif entry.shape[: len(size)] != size and not is_unbatched(entry):
                raise RuntimeError(
                    f"the {type(entry).__name__} {key} has shape {entry.shape} which is incompatible with the "
                    f"batch-size {size}."
                )

    def _check_device(self) -> None:
        """Raises where an entry is on another device than the label of this tensordict says."""
        device = self.device
        for key, entry in self._entries().items():
            if device is not None and entry.device != device:
                raise RuntimeError(f"the {type(entry).__name__} {key} is on {entry.device}, the tensordict on {device}.")
            if isinstance(entry, BatchOps):
                entry._check_device()

    @property
    def shape(self) -> Size:
        """The batch size, under the name that tensors have for it."""
        return self.batch_size

    @property
    def batch_dims(self) -> int:
        """Number of batch dimensions."""
        return len(self.batch_size)

    @property
    def ndim(self) -> int:
        """Number of batch dimensions."""
        return len(self.batch_size)

    def dim(self) -> int:
        """Number of batch dimensions."""
        return len(self.batch_size)

    def ndimension(self) -> int:
        """Number of batch dimensions."""
        return len(self.batch_size)

    def size(self, dim: int | None = None) -> Any:
        """The batch size, or one dimension of it."""
        return self.batch_size if dim is None else self.batch_size[dim]

    def numel(self) -> int:
        """Number of elements of the batch; at least 1."""
        size = self.batch_size
        if -1 in size:  # of a lazy stack, whose members differ
            return sum([part.numel() for part in self._parts()])
        return max(1, size.numel())

    def auto_batch_size_(self, batch_dims: int | None = None, keep_compliant_size: bool = False) -> Self:
        """Sets the batch size to the longest that all leaves share, of at most `batch_dims` dimensions; kept without leaves.

        Args:
            batch_dims: the most dimensions that are taken.
            keep_compliant_size: leave nodes alone that have as many dimensions or more.
        """
        if keep_compliant_size and batch_dims is not None and len(self.batch_size) >= batch_dims:
            return self
        fields = [entry for entry in self._entries().values() if not is_unbatched(entry)]
        # a node without leaves fits every size, and takes that of its parent; a stack of objects has one of its own
        bare = [entry for entry in fields if isinstance(entry, BatchOps) and _is_bare(entry)]
        shapes = []
        for entry in fields:
            if isinstance(entry, BatchOps):
                if any(entry is one for one in bare):
                    continue
                entry.auto_batch_size_(batch_dims, keep_compliant_size)
            if not is_unbatched(entry):
                shapes.append(entry.shape)
        if not shapes:
            return self
        common = common_start(shapes)
        self._set_batch_size(Size(common if batch_dims is None else common[:batch_dims]))
        if self._names is not None:
            self._set_names((self._names + [None] * len(common))[: len(self.batch_size)])
        for entry in bare:
            entry.batch_size = self.batch_size
        return self

    # Leaf queries.

    @property
    def dtype(self) -> torch.dtype | None:
        """The dtype that all leaves have, or None where they differ."""
        dtypes = {leaf.dtype for leaf in leaves_of(self)}
        return dtypes.pop() if len(dtypes) == 1 else None

    @property
    def requires_grad(self) -> bool:
        """Whether any leaf requires gradients."""
        return any(leaf.requires_grad for leaf in leaves_of(self))

    def is_floating_point(self) -> bool:
        """Whether all leaves have a floating-point dtype."""
        return all(leaf.is_floating_point() for leaf in leaves_of(self))

    def is_contiguous(self) -> bool:
        """Whether all leaves are contiguous."""
        return all(leaf.is_contiguous() for leaf in leaves_of(self))

    def bytes(self, *, count_duplicates: bool = True) -> int:
        """Number of bytes of all leaves and their gradients; of nested ones with their offsets and lengths.

        Args:
            count_duplicates: count a tensor that is stored under several keys once for each.
        """
        pieces = [piece for leaf in leaves_of(self) for piece in _held(leaf)]
        kept = pieces if count_duplicates else {id(piece): piece for piece in pieces}.values()
        return sum(piece.numel() * piece.element_size() for piece in kept)

    def param_count(self, *, count_duplicates: bool = True) -> int:
        """Number of elements of all leaves; `count_duplicates` as for `bytes`."""
        leaves = leaves_of(self)
        return sum(leaf.numel() for leaf in (leaves if count_duplicates else {id(leaf): leaf for leaf in leaves}.values()))

    def __bool__(self) -> bool:
        raise RuntimeError(
            "Converting a tensordict to boolean value is not permitted. Use len(td.keys()) to test for keys, td.is_empty() "
            "to test for leaves, or (a == b).all() / .any() to reduce a comparison."
        )


def common_start(shapes: Sequence[Sequence[int]]) -> list[int]:
    """The longest leading dimensions that all shapes share."""
    common = list(shapes[0])
    for shape in shapes[1:]:
        length = 0
        while length < min(len(common), len(shape)) and common[length] == shape[length]:
            length += 1
        common = common[:length]
    return common


def _is_bare(node: Any) -> bool:
    return not leaves_of(node) and (is_branch(node) or not node._parts())


def _held(leaf: Any) -> list[Tensor]:
    """The tensors that a leaf is made of, and its gradient."""
    grad = [] if leaf.grad is None else _held(leaf.grad)
    if leaf.layout is not torch.jagged:
        return [leaf, *grad]
    parts = (leaf._values, leaf._offsets, leaf._lengths)  # not by the methods, which give views
    return [*[part for part in parts if part is not None], *grad]
