"""Leaves whose shape has nothing to do with the batch: what moves elements of a batch leaves them as they are."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch import Size, Tensor
from torch._C import _is_alias_of  # type: ignore[attr-defined]
from typing_extensions import Self

from tensordict._kernel.change import Change
from tensordict._kernel.registry import is_non_tensor
from tensordict._types import TensorCollection


class UnbatchedTensor(Tensor):
    """A tensor that belongs to a batch as a whole, such as the weights of a loss: its shape is free of the batch size.

    In a tensordict it is computed on like every other leaf, and converted, copied and moved between devices; but what
    selects, regroups, joins or reduces elements of the batch leaves its values alone and changes only `batch_size`. Where
    several are joined, the first one stays. It shares storage with `data`.

    Args:
        data: the tensor, or what `torch.as_tensor` makes one of.
        batch_size: the batch size that it is said to have; that of a tensordict, once it is stored in one.

    >>> import torch
    >>> from tensordict import TensorDict, UnbatchedTensor
    >>> td = TensorDict({"a": torch.zeros(4, 2), "weights": UnbatchedTensor(torch.ones(3))}, [4])
    >>> td[0]["weights"].shape, td[0]["weights"].batch_size
    (torch.Size([3]), torch.Size([]))
    """

    batch_size: Size = Size(())
    # how the reference marks what moves of the batch leave alone
    _pass_through: ClassVar[bool] = True

    def __new__(cls, data: Any, *, batch_size: Sequence[int] = ()) -> Self:
        made = torch.as_tensor(data).as_subclass(cls)
        made.batch_size = Size(batch_size)
        return made

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if any([issubclass(kind, TensorCollection) for kind in types]):
            return NotImplemented
        out = super().__torch_function__(func, types, args, kwargs or {})  # type: ignore[no-untyped-call]
        if isinstance(out, UnbatchedTensor) and not out.batch_size:
            operand = next((arg for arg in args if isinstance(arg, UnbatchedTensor)), None)
            if operand is not None:
                out.batch_size = operand.batch_size
        return out

    def __repr__(self, **options: Any) -> str:  # type: ignore[override]
        return f"{type(self).__name__}({self._plain()!r})"

    def _plain(self) -> Tensor:
        with torch._C.DisableTorchFunctionSubclass():
            return self.as_subclass(Tensor)

    # What Python looks for on the type: a conversion gives what it gives for the plain tensor, or the same error.

    def __str__(self) -> str:
        return repr(self._plain())

    def __format__(self, spec: str) -> str:
        return format(self._plain(), spec)

    def __round__(self, *digits: int) -> Any:
        return round(self._plain(), *digits)  # type: ignore[call-overload]

    def __ceil__(self) -> Any:
        return math.ceil(self._plain())

    def __floor__(self) -> Any:
        return math.floor(self._plain())

    def __trunc__(self) -> Any:
        return math.trunc(self._plain())  # type: ignore[arg-type]

    def copy(self) -> UnbatchedTensor:
        """A tensor of the same batch size that shares storage with this one."""
        with torch._C.DisableTorchFunctionSubclass():
            made = self.view_as(self).as_subclass(type(self))
        made.batch_size = self.batch_size
        return made

    def _with_batch(self, batch_size: Size) -> UnbatchedTensor:
        """The same values for another batch: the tensor itself if it is of that one already."""
        if self.batch_size == batch_size:
            return self
        made = self.copy()
        made.batch_size = batch_size
        return made


UnbatchedTensor.__module__ = "tensordict._unbatched"


def is_unbatched(leaf: Any) -> bool:
    """Whether a leaf has nothing to do with the batch."""
    return isinstance(leaf, UnbatchedTensor)


def passes_through(value: Any) -> bool:
    """Whether moves of the batch leave `value` as it is: a leaf without a batch, or a holder of objects."""
    return is_unbatched(value) or is_non_tensor(value)


def moved(leaf: UnbatchedTensor, change: Change) -> UnbatchedTensor:
    """What becomes of a leaf by a change of the batch."""
    return leaf._with_batch(change.shape(leaf.batch_size))


def first_of(column: Sequence[Any]) -> UnbatchedTensor:
    """The leaf that stays of several that are stacked: the first; with a warning where the others are other tensors."""
    first: UnbatchedTensor = column[0]
    if not all([leaf is first or _is_alias_of(leaf, first) for leaf in column[1:]]):
        warnings.warn(
            "Stacking UnbatchedTensors with different data storage: the first one stays, the others are dropped. An entry "
            "that differs from element to element belongs into a regular tensor.",
            UserWarning,
            stacklevel=2,
        )
    return first


def check_batched(leaf: Any, done: str, key: Any = None) -> None:
    """Raises a `NotImplementedError` for a leaf without a batch, which has no place in what is `done`."""
    if isinstance(leaf, UnbatchedTensor):
        where = "an entry" if key is None else f"the entry {key!r}"
        raise NotImplementedError(
            f"{where} is an UnbatchedTensor, which cannot be {done} yet: leave it out first, with exclude()"
        )
