"""What a swap took out of a module."""

from __future__ import annotations

from typing import Any

from torch import Size, nn

from tensordict._kernel.native import Swap, swap_out, swap_values
from tensordict._td import TensorDict

_NO_BATCH = Size(())


class _Swapped(TensorDict):
    """The tensordict of the values that a module had, filled when it is first looked at: mostly it only ends a block.

    Once filled it is a plain `TensorDict`.
    """

    __slots__ = ()

    @staticmethod
    def _of(swap: Swap, module: nn.Module) -> _Swapped:
        self = object.__new__(_Swapped)
        self._batch_size = _NO_BATCH
        self._device = None
        self._td_dim_names = None
        self._is_locked = False
        self._extra = {"last_op": ("to_module", (PutBack(swap, module),), None)}
        if type(swap) is not Swap:
            # Compiled code makes another kind, which has its values at hand, and may be read when that code is left.
            self._tensordict = swap.old
        return self

    def __getattr__(self, name: str) -> Any:
        # Reached for the slot of the fields while it is empty; every other name is an ordinary miss.
        if name != "_tensordict":
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        self._tensordict = swap_values(_put_back(self).swap)
        self.__class__ = TensorDict  # type: ignore[assignment]
        return self._tensordict

    def __repr__(self) -> str:
        self._fields()
        return TensorDict.__repr__(self)  # the class has changed

    def _rebuild(self, fields: dict[str, Any], batch_size: Size, device: Any = None, names: Any = None) -> TensorDict:
        return TensorDict._new(fields, batch_size, device, names)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, exc_type: Any, exc_val: Any, exc_tb: Any) -> None:
        put_back = _put_back(self)
        swap_out(put_back.swap)
        if type(self) is not _Swapped:
            put_back.follow(self)


class PutBack:
    """The end of a swap."""

    __slots__ = ("module", "swap")

    def __init__(self, swap: Swap, module: nn.Module) -> None:
        self.swap = swap
        self.module = module

    def __call__(self, result: Any) -> None:
        swap_out(self.swap)
        self.follow(result)

    def follow(self, result: Any) -> None:
        """Gives the module what was put into the tensordict of its old values meanwhile."""
        if _differ(result._tensordict, swap_values(self.swap)):
            result.to_module(self.module, preserve_module_state=False, return_swap=False)


def _put_back(result: Any) -> PutBack:
    return result._extra["last_op"][1][0]


def _differ(fields: dict[str, Any], others: dict[str, Any]) -> bool:
    for key, other in others.items():
        value = fields.get(key)
        if isinstance(other, TensorDict):
            if not isinstance(value, TensorDict) or _differ(value._tensordict, other._tensordict):
                return True
        elif value is not other:
            return True
    return False
