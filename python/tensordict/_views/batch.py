"""Views of a tensordict of another batch size, as `view`, `permute` and others give them under `set_lazy_legacy(True)`.

Reading an entry applies the operation to the entry of the source; writing one stores in the source what the inverse operation
makes of the value. So new entries of the view are new entries of the source.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from textwrap import indent
from typing import Any

import torch
from torch import Size
from typing_extensions import Self

from tensordict._kernel.change import Change
from tensordict._kernel.index import Index
from tensordict._ops.trees import change_other, has_own, transform
from tensordict._ops.writes import Writes
from tensordict._types import Names, TensorCollection
from tensordict._views.base import View


class _CustomOpTensorDict(View):
    """A view of `source`: `forward` leads from its entries to those of the view, `backward` the other way."""

    __slots__ = ("__weakref__", "_backward", "_extra", "_forward", "_kwargs", "_source")

    _op = ""

    def __init__(self, source: Any, forward: Change, backward: Change, kwargs: dict[str, Any]) -> None:
        self._source = source
        self._forward = forward
        self._backward = backward
        self._kwargs = kwargs
        self._extra: dict[str, Any] | None = None

    @property
    def _batch_size(self) -> Size:
        return self._forward.shape(self._source.batch_size)

    @property
    def _names(self) -> Names:
        return self._forward.names(self._source._names)

    def _over(self, value: Any) -> Any:
        """What the view shows of an entry of the source."""
        return self._shown(value, self._forward)

    def _under(self, value: Any) -> Any:
        """What the source stores of an entry of the view."""
        if isinstance(value, _CustomOpTensorDict) and value._forward is self._forward:
            return value._source
        return transform(value, self._backward) if isinstance(value, TensorCollection) else change_other(value, self._backward)

    def _fields(self) -> dict[str, Any]:
        return {key: self._over(value) for key, value in self._source._entries().items()}

    def _get_str(self, key: str) -> Any:
        return self._over(self._source._get_str(key))

    def _set_str(self, key: str, value: Any) -> None:
        self._source._set_str(key, self._under(value))

    def _write_str(self, key: str, value: Any, non_blocking: bool) -> None:
        self._source._write_str(key, self._under(value), non_blocking)

    def _plan_assign(self, index: Index, value: Any, plan: Writes) -> None:
        plan.put_call(partial(self._put, index, plan.own(value)))

    def _put(self, index: Index, value: Any) -> None:
        plain = self._plain()
        plain._assign(index, value)
        known = self._source._fields()
        for key, entry in plain._entries().items():
            if key not in known:
                self._set_str(key, entry)
        self._write_back(plain)

    @property
    def _gives_copies(self) -> bool:
        return not has_own(self._source)

    def update_(self, input_dict_or_td: Any = None, clone: bool = False, **kwargs: Any) -> Self:
        if kwargs or not self._gives_copies or not isinstance(input_dict_or_td, TensorCollection):
            return super().update_(input_dict_or_td, clone, **kwargs)
        self._write_back(input_dict_or_td)
        return self

    def _write_back(self, plain: Any) -> None:
        """What is read from stacks are copies, which are written to the members here."""
        if not has_own(self._source):
            self._source.update_(transform(plain, self._backward))

    def _set_batch_size(self, batch_size: Size) -> None:
        if batch_size != self._batch_size:
            raise RuntimeError(
                f"the batch size of a lazy view follows from its source: {self._batch_size} cannot become {batch_size}. "
                "Call to_tensordict() first"
            )

    def _set_device(self, device: torch.device | None) -> None:
        self._source._set_device(device)

    def _set_names(self, names: Names) -> None:
        if names != self._names:
            raise RuntimeError(
                f"Names of a lazy tensordict cannot be modified: those of a {type(self).__name__} follow from its source. Set "
                "them there, or call to_tensordict() first."
            )

    def _set_lock(self, locked: bool) -> None:
        self._source.lock_() if locked else self._source.unlock_()

    # Where the whole source is meant.

    def _again(self, source: Any) -> Self:
        return type(self)(source, self._forward, self._backward, self._kwargs)

    def clone(self, recurse: bool = True, **kwargs: Any) -> Any:
        """A plain copy; without `recurse`, the same view of a shallow copy of the source."""
        return super().clone(**kwargs) if recurse else self._again(self._source.clone(recurse=False))

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """Moves the values to a device or dtype (see `TensorDict.to`).

        Raises:
            TypeError: this is to be done in place.
        """
        if kwargs.get("inplace"):
            raise TypeError(f"Cannot use inplace=True with {type(self).__name__}.to(): move what it is a view of instead.")
        return super().to(*args, **kwargs)

    def share_memory_(self, *args: Any, **kwargs: Any) -> Self:
        self._source.share_memory_(*args, **kwargs)
        return self

    def is_shared(self) -> bool:
        return bool(self._source.is_shared())

    def __repr__(self) -> str:
        kwargs = ", ".join(f"{name}={value}" for name, value in self._kwargs.items())
        source = indent(f"source={self._source!r}", "\t")
        return f"{type(self).__name__}(\n{source}, \n\top={self._op}({kwargs}))"


class _ViewedTensorDict(_CustomOpTensorDict):
    __slots__ = ()
    _op = "view"


class _UnsqueezedTensorDict(_CustomOpTensorDict):
    __slots__ = ()
    _op = "unsqueeze"


class _SqueezedTensorDict(_CustomOpTensorDict):
    __slots__ = ()
    _op = "squeeze"


class _PermutedTensorDict(_CustomOpTensorDict):
    __slots__ = ()
    _op = "permute"


class _TransposedTensorDict(_CustomOpTensorDict):
    __slots__ = ()
    _op = "transpose"


_KINDS: dict[str, type[_CustomOpTensorDict]] = {
    kind._op: kind
    for kind in (_ViewedTensorDict, _UnsqueezedTensorDict, _SqueezedTensorDict, _PermutedTensorDict, _TransposedTensorDict)
}
VIEWS = tuple(_KINDS.values())
for _kind in (_CustomOpTensorDict, *VIEWS):
    _kind.__module__ = "tensordict._lazy"

# The operation that leads back, for those that are not their own.
_INVERSE = {"squeeze": "unsqueeze", "unsqueeze": "squeeze"}


def lazy_view(node: Any, change: Change, op: str, kwargs: dict[str, Any]) -> Any:
    """The view of `node` that `change` describes; where `node` is the view of which this is the inverse, its source.

    Args:
        node: the tensordict.
        change: of the batch: it regroups or reorders.
        op: the method, one of `view`, `unsqueeze`, `squeeze`, `permute` and `transpose`.
        kwargs: its arguments.
    """
    backward = _backward(change, node.batch_size, op)
    if isinstance(node, _CustomOpTensorDict) and _undoes(node, change, op, kwargs):
        return node._source
    return _KINDS[op](node, change, backward, kwargs)


def _backward(change: Change, batch_size: Size, op: str) -> Change:
    dims = len(change.prefix)
    if op in ("permute", "transpose"):
        order: Any = change.origins
        back = sorted(range(dims), key=lambda place: order[place])
        leaf: Callable[[Any], Any] = lambda value: value.permute(*back, *range(dims, value.ndim))  # noqa: E731
        return Change(leaf, dims, batch_size, back, shares=True)
    places = [change.origins.index(place) if place in change.origins else None for place in range(len(batch_size))]
    return Change(lambda value: value.reshape(*batch_size, *value.shape[dims:]), dims, batch_size, places)


def _undoes(view: Any, change: Change, op: str, kwargs: dict[str, Any]) -> bool:
    if op != _INVERSE.get(view._op, view._op) or change.shape(view.batch_size) != view._source.batch_size:
        return False
    if op in ("permute", "transpose"):
        return [view._forward.origins[place] for place in change.origins] == list(range(len(change.origins)))
    return op == "view" or kwargs.get("dim") == view._kwargs.get("dim")
