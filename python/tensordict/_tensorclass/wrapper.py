"""The waist over another container: what is shared by all classes that give a container declared fields."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Size
from typing_extensions import Self

from tensordict._kernel.change import Change
from tensordict._kernel.index import Index
from tensordict._ops.waist import Join, Waist
from tensordict._ops.writes import Writes
from tensordict._reexport import stack_lazily
from tensordict._td import TensorDict
from tensordict._types import Names


class Wrapper(Waist):
    """A container that keeps its entries in another one, `_tensordict`, and wraps again what that one gives.

    The wrapped container may be of any kind: a dict, a lazy stack, a mapped folder.
    """

    __slots__ = ()

    _tensordict: Any

    @classmethod
    def _wrap(cls, inner: Any) -> Self:
        """A container of this class around `inner`, which is not copied and whose keys must be those of the class."""
        self = object.__new__(cls)
        object.__setattr__(self, "_tensordict", inner)
        return self

    @property
    def _dict_backed(self) -> bool:  # type: ignore[override]
        return self._tensordict._dict_backed

    @classmethod
    def _joined(cls, items: Sequence[Any], dim: int, how: Join, name: str | None = None) -> Any:
        if how != "lazy":
            found = (item._tensordict._joined(items, dim, how) for item in items if isinstance(item, Wrapper))
            return next((made for made in found if made is not None), None)
        if not all([type(item) is cls for item in items]):
            return stack_lazily(items, dim, name)
        inner = [item._tensordict for item in items]
        return cls._wrap(inner[0]._joined(inner, dim, how, name))

    # What a lazy stack has: a container around one is a stack itself, whose members are those of the stack.

    @property
    def _stacked(self) -> bool:  # type: ignore[override]
        return self._tensordict._stacked

    @property
    def _gives_copies(self) -> bool:
        return self._tensordict._gives_copies

    @property
    def _td_dim_name(self) -> str | None:
        return self._tensordict._td_dim_name

    @property
    def tensordicts(self) -> Any:
        """The members of the lazy stack."""
        return self._tensordict.tensordicts

    @property
    def stack_dim(self) -> int:
        """The dimension of the lazy stack."""
        return self._tensordict.stack_dim

    def _like(self, parts: Iterable[Any], stack_dim: int, named: bool = True) -> Self:
        inner = [part._tensordict if isinstance(part, Wrapper) else part for part in parts]
        return self._wrap(self._tensordict._like(inner, stack_dim, named))

    def _dense(self, must: bool = False) -> Self | None:
        inner = self._tensordict._dense(must)
        return None if inner is None else self._wrap(inner)

    def _peek(self, key: str) -> Any:
        return self._tensordict._peek(key)

    def split(self, split_size: int | Sequence[int], dim: int = 0) -> tuple[Self, ...]:
        """Pieces along a batch dimension. See `TensorDict.split`."""
        return tuple(map(self._wrap, self._tensordict.split(split_size, dim)))

    def densify(self, layout: torch.layout = torch.strided) -> Self:
        """One of this class around the dense form of what is wrapped. See `TensorDict.densify`."""
        return self._wrap(self._tensordict.densify(layout))

    def contiguous(self, *args: Any, **kwargs: Any) -> Self:
        """The leaves made contiguous, those of a lazy stack stacked. See `TensorDict.contiguous`."""
        return self._wrap(self._tensordict.contiguous(*args, **kwargs))

    def _fields(self) -> dict[str, Any]:
        return self._tensordict._fields()

    def _get_str(self, key: str) -> Any:
        return self._tensordict._get_str(key)

    def _set_str(self, key: str, value: Any) -> None:
        self._tensordict._set_str(key, value)

    def _del_str(self, key: str) -> None:
        self._tensordict._del_str(key)

    def _rebuild(
        self, fields: dict[str, Any], batch_size: Size, device: torch.device | None = None, names: Names = None
    ) -> Self:
        return self._wrap(self._tensordict._rebuild(fields, batch_size, device, names))

    @classmethod
    def _new_empty(cls, device: torch.device | None) -> Self:
        return cls._wrap(TensorDict._new({}, Size(()), device))

    def _pieces(self) -> dict[Any, Any]:
        return self._tensordict._pieces()

    def _from_pieces(self, pieces: dict[Any, Any], change: Change | None = None) -> Self:
        return self._wrap(self._tensordict._from_pieces(pieces, change))

    def _transform(self, change: Change) -> Self:
        return self._wrap(self._tensordict._transform(change))

    def _take_over(self, result: Any) -> bool:
        return bool(self._tensordict._take_over(result))

    def _index(self, index: Index) -> Self:
        return self._wrap(self._tensordict._index(index))

    def _plan_assign(self, index: Index, value: Any, plan: Writes) -> None:
        self._tensordict._plan_assign(index, value._tensordict if isinstance(value, Wrapper) else value, plan)

    def _parts_at(self, index: Index | None, value: Any) -> Iterable[tuple[Any, Any, Index | None]]:
        inner = self._tensordict
        parts = list(inner._parts_at(index, value._tensordict if isinstance(value, Wrapper) else value))
        return super()._parts_at(index, value) if len(parts) == 1 and parts[0][0] is inner else parts

    def _write_str(self, key: str, value: Any, non_blocking: bool) -> None:
        self._tensordict._write_str(key, value, non_blocking)

    def _set_batch_size(self, batch_size: Size) -> None:
        self._tensordict._set_batch_size(batch_size)

    def _set_device(self, device: torch.device | None) -> None:
        self._tensordict._set_device(device)

    def _set_names(self, names: Names) -> None:
        self._tensordict._set_names(names)

    def _set_lock(self, locked: bool) -> None:
        self._tensordict._set_lock(locked)

    @property
    def _names(self) -> Names:
        return self._tensordict._names

    @property
    def _batch_size(self) -> Size:
        return self._tensordict._batch_size

    @property
    def _device(self) -> torch.device | None:
        return self._tensordict._device

    @property
    def _is_locked(self) -> bool:
        return bool(self._tensordict.is_locked)

    @property
    def _lock_parents_weakrefs(self) -> list[Any]:
        return self._tensordict._lock_parents_weakrefs

    @property
    def _extra(self) -> dict[str, Any] | None:  # type: ignore[override]
        return self._tensordict._extra

    @property
    def _rare(self) -> dict[str, Any]:
        return self._tensordict._rare
