"""What containers have in common whose entries are those of another one, seen in another way."""

from __future__ import annotations

from typing import Any

import torch
from torch import Size
from typing_extensions import Self

from tensordict._kernel.change import Change
from tensordict._kernel.index import Index
from tensordict._kernel.registry import is_branch
from tensordict._ops.trees import change_other, transform
from tensordict._td import TensorDict
from tensordict._types import Key, Names, TensorCollection
from tensordict.base import TensorDictBase


class View(TensorDictBase):
    """The entries of `_source`, each as the view shows it. What is made of a view is a plain `TensorDict`."""

    __slots__ = ()
    _is_view = True

    _source: Any

    @property
    def _device(self) -> torch.device | None:
        device: torch.device | None = self._source.device
        return device

    @property
    def _is_locked(self) -> bool:
        return bool(self._source.is_locked)

    def _del_str(self, key: str) -> None:
        self._source._del_str(key)

    def _rebuild(
        self, fields: dict[str, Any], batch_size: Size, device: torch.device | None = None, names: Names = None
    ) -> TensorDict:
        plain = {key: value._plain() if isinstance(value, View) else value for key, value in fields.items()}
        return TensorDict._new(plain, batch_size, device, names)

    def _shown(self, value: Any, change: Change) -> Any:
        """What the view shows of an entry of the source, whose batch a change is made to."""
        if is_branch(value):
            return self._again(value)
        return transform(value, change) if isinstance(value, TensorCollection) else change_other(value, change)

    def _again(self, source: Any) -> Self:
        """The same view of another container."""
        raise NotImplementedError

    def _plain(self) -> TensorDict:
        """A plain tensordict of what the view shows."""
        return self._rebuild(self._fields(), self.batch_size, self.device, self._names)

    def _index(self, index: Index) -> Self:
        return self._plain()._index(index)  # type: ignore[return-value]

    def rename_key_(self, old_key: Key, new_key: Key, safe: bool = False) -> Self:
        """Moves the whole entry of what this is a view of."""
        self._source.rename_key_(old_key, new_key, safe)
        return self
