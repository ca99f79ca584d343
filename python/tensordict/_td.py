"""The dict-backed tensordict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Size, Tensor
from typing_extensions import Self

from tensordict._kernel.change import Change
from tensordict._kernel.errors import LOCKED, batch_mismatch, missing_key
from tensordict._kernel.index import ROWS, Index
from tensordict._kernel.native import gather
from tensordict._kernel.registry import exposed
from tensordict._kernel.settings import CHECK_INVARIANTS
from tensordict._leaves.unbatched import is_unbatched
from tensordict._old.names import resolver
from tensordict._ops.check import checked
from tensordict._ops.coerce import as_device, as_size, coerce
from tensordict._ops.indexing import plan_rows
from tensordict._ops.trees import change_other, collect_own, refill
from tensordict._ops.writes import Writes
from tensordict._types import Names, TensorCollection
from tensordict.base import TensorDictBase, TensorDictOps

if not TYPE_CHECKING:
    __getattr__ = resolver(__name__)


class TensorDict(TensorDictBase):
    """A dictionary of tensors that share leading dimensions, the batch size, and behave like one tensor.

    Args:
        source: a mapping or tensordict of entries; nested mappings become nested tensordicts. Tensors are stored as they
            are, not copied. Keys are strings, or tuples of strings for nested entries.
        batch_size: the leading dimensions that all entries share: a size, a list or tuple of integers, or one integer; empty
            if not given, also for a tensordict as `source`.
        device: if given, all tensors are moved to it, now and when they are set later.
        names: a name, or None, for each batch dimension.
        non_blocking: for the moves to `device`.
        lock: lock the tensordict once it is filled.
        **kwargs: entries by keyword, instead of a source.

    Raises:
        RuntimeError: the leading dimensions of an entry are not the batch size.
        ValueError: the source is no mapping, or both a source and keywords are given.

    >>> import torch
    >>> from tensordict import TensorDict
    >>> td = TensorDict({"obs": torch.zeros(3, 4), "next": {"obs": torch.ones(3, 4)}}, batch_size=[3])
    >>> td["next", "obs"].shape, td[0].batch_size
    (torch.Size([3, 4]), torch.Size([]))
    """

    __slots__ = ("__weakref__", "_batch_size", "_device", "_extra", "_is_locked", "_td_dim_names", "_tensordict")

    _dict_backed = True

    _tensordict: dict[str, Any]
    _batch_size: Size
    _device: torch.device | None
    _td_dim_names: Names
    _is_locked: bool
    _extra: dict[str, Any] | None

    def __init__(
        self,
        source: Any = None,
        batch_size: Any = None,
        device: Any = None,
        names: Any = None,
        non_blocking: bool | None = None,
        lock: bool = False,
        **kwargs: Any,
    ) -> None:
        if kwargs:
            if source is not None:
                raise ValueError("Either a dictionary or a sequence of kwargs must be provided, not both.")
            source = kwargs
        self._tensordict = {}
        self._batch_size = Size(()) if batch_size is None else as_size(batch_size)
        self._device = as_device(device)
        self._td_dim_names = None
        self._is_locked = False
        self._extra = None
        if names is not None:
            self.names = names
        elif isinstance(source, TensorCollection) and source._names is not None:
            kept = source._names[: len(self._batch_size)]
            self._td_dim_names = kept + [None] * (len(self._batch_size) - len(kept))
        if source is not None:
            self._fill(source, bool(non_blocking))
        if lock:
            self.lock_()

    def _fill(self, source: Any, non_blocking: bool) -> None:
        """Stores the entries of a mapping or tensordict in this new tensordict."""
        if isinstance(source, TensorCollection):
            source = source._entries()
        elif not isinstance(source, Mapping):
            raise ValueError(
                "A TensorDict source is expected to be a TensorDictBase sub-type or a Mapping, found "
                f"type(source)={type(source)}."
            )
        fields, batch_size, device = self._tensordict, self._batch_size, self._device
        dims = len(batch_size)
        fitting: Size | None = None  # the last shape that was found to fit; leaves often share theirs
        for key, value in source.items():
            if type(key) is not str:
                self.set(key, value, non_blocking=non_blocking)
            elif type(value) is Tensor and device is None and not value.is_nested:
                shape = value.shape
                if shape != fitting:
                    if shape[:dims] != batch_size:
                        raise batch_mismatch(key, batch_size, shape)
                    fitting = shape
                fields[key] = value
            elif type(value) is dict:
                child = TensorDict._new({}, batch_size, device, self._td_dim_names)
                child._fill(value, non_blocking)
                fields[key] = child
            else:
                fields[key] = coerce(self, key, value, non_blocking)

    @staticmethod
    def _new(
        fields: dict[str, Any],
        batch_size: Size,
        device: torch.device | None = None,
        names: Names = None,
        locked: bool = False,
        kind: type[TensorDict] | None = None,
    ) -> TensorDict:
        """A tensordict of `fields`, which must fit: nothing is checked or copied. Of the class `kind`, if given."""
        self = object.__new__(TensorDict if kind is None else kind)
        self._tensordict = fields
        self._batch_size = batch_size
        self._device = device
        self._td_dim_names = names
        self._is_locked = locked
        self._extra = None
        return self

    if CHECK_INVARIANTS.value:
        _new = checked(_new)

    # The waist.

    def _fields(self) -> dict[str, Any]:
        return self._tensordict

    def _get_str(self, key: str) -> Any:
        try:
            return self._tensordict[key]
        except KeyError:
            raise missing_key(key, type(self).__name__, self._tensordict) from None

    def _set_str(self, key: str, value: Any) -> None:
        self._tensordict[key] = value

    def _del_str(self, key: str) -> None:
        if key not in self._tensordict:  # compiled code keeps a guard of this question, and of a deletion it keeps none
            raise missing_key(key, type(self).__name__, self._tensordict)
        del self._tensordict[key]

    def _rebuild(
        self, fields: dict[str, Any], batch_size: Size, device: torch.device | None = None, names: Names = None
    ) -> TensorDict:
        return TensorDict._new(fields, batch_size, device, names, False, type(self))

    def _pieces(self) -> dict[Any, Any]:
        return self._tensordict.copy()

    def _from_pieces(self, pieces: dict[Any, Any], change: Change | None = None) -> Self:
        names = self._td_dim_names
        if change is None:
            return self._rebuild(pieces, self._batch_size, self._device, names)  # type: ignore[return-value]
        names = None if names is None else change.names(names)
        return self._rebuild(pieces, change.shape(self._batch_size), self._device, names)  # type: ignore[return-value]

    def _index(self, index: Index) -> Self:
        if index.kind != ROWS:
            return self._leafwise(index.key, index)
        leaves: list[Any] = []
        tree, key = collect_own(self, leaves), index.key
        if tree is not None:
            taken = gather(leaves, key[index.dim] if type(key) is tuple else key, index.dim)
            if taken is not None:
                return refill(tree, iter(taken), index)
        return self._leafwise(index.key, index)

    def _leafwise(self, key: Any, index: Index) -> Self:
        fields = self._tensordict.copy()
        for name, value in fields.items():
            if type(value) is Tensor and not value.is_nested:
                fields[name] = value[key]
            else:
                fields[name] = value._index(index) if isinstance(value, TensorDictOps) else change_other(value, index)
        names = self._td_dim_names
        names = None if names is None else index.names(names)
        return self._rebuild(fields, index.shape(self._batch_size), self._device, names)  # type: ignore[return-value]

    def _plan_assign(self, index: Index, value: Any, plan: Writes) -> None:
        plan_rows(self, index, value, plan)

    def _set_batch_size(self, batch_size: Size) -> None:
        self._batch_size = batch_size
        fields = self._tensordict
        for key, leaf in fields.copy().items():
            if type(leaf) is not Tensor and is_unbatched(leaf) and key in fields:
                fields[key] = leaf._with_batch(batch_size)

    def _set_device(self, device: torch.device | None) -> None:
        self._device = device

    def _set_names(self, names: Names) -> None:
        self._td_dim_names = names

    def _set_lock(self, locked: bool) -> None:
        self._is_locked = locked

    @property
    def _names(self) -> Names:
        return self._td_dim_names

    # What is worth a short way.

    def __getitem__(self, index: Any) -> Any:
        if type(index) is str:
            try:
                value = self._tensordict[index]
            except KeyError:
                raise missing_key(index, type(self).__name__, self._tensordict) from None
            return value if type(value) is Tensor else exposed(value, self, index)
        if type(index) is tuple and index and type(index[0]) is str:
            if len(index) == 2:
                below = self._tensordict.get(index[0])
                if type(below) is TensorDict and index[1] in below._tensordict:
                    value = below._tensordict[index[1]]
                    return value if type(value) is Tensor else exposed(value, below, index[1])
            return self._get_key(index)
        return self._get_rows(index)

    def __setitem__(self, index: Any, value: Any) -> None:
        if type(index) is str:
            if self._is_locked:
                raise RuntimeError(LOCKED)
            self._tensordict[index] = coerce(self, index, value)
        else:
            self._set_item(index, value)
