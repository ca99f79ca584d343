"""The one place where a lower part names a class of a higher one: bound when first asked for."""

from __future__ import annotations

from typing import Any

from torch import Size

_NO_BATCH = Size(())


def dense_class() -> Any:
    """The class of dict-backed tensordicts."""
    import tensordict._td as home  # `from` would ask the module for names that it looks up in a table

    return home.TensorDict


def non_tensor(value: Any, batch_size: Size = _NO_BATCH, device: Any = None) -> Any:
    """The holder of a Python object."""
    from tensordict._nontensor.data import NonTensorData

    return NonTensorData._of(value, batch_size, device)


def object_stack(values: list[Any], device: Any = None, nested: bool = False) -> Any:
    """The stack of the objects of a list; with `nested`, every list in it is a dimension too, also one of numbers."""
    from tensordict._nontensor import stack

    return stack.NonTensorStack.from_list(values) if nested else stack.of_list(values, device)


def lazy_view(node: Any, change: Any, op: str, kwargs: dict[str, Any]) -> Any:
    """The lazy view of a tensordict that a change of its batch gives."""
    from tensordict._views import batch

    return batch.lazy_view(node, change, op, kwargs)


def tensor_attrs(tensor: Any, fields: Any) -> Any:
    """The description of a tensor."""
    from tensordict._nontensor.attrs import TensorAttrs

    return TensorAttrs.from_tensor(tensor, fields=fields)


def plain_tensordict(fields: dict[str, Any], batch_size: Size = _NO_BATCH, device: Any = None, names: Any = None) -> Any:
    """A dict-backed tensordict of fields that fit, unchecked."""
    return dense_class()._new(fields, batch_size, device, names)


def stack_lazily(items: Any, stack_dim: int, name: str | None = None) -> Any:
    """The lazy stack of tensordicts that fit, unchecked."""
    from tensordict._lazy.stack import LazyStackedTensorDict

    return LazyStackedTensorDict._of(list(items), stack_dim, name)


def lazy_stack(items: Any, dim: int = 0, out: Any = None, **kwargs: Any) -> Any:
    """The checked lazy stack of tensordicts."""
    from tensordict._lazy.functions import lazy_stack as make

    return make(items, dim, out=out, **kwargs)


def maybe_dense_stack(items: Any, dim: int = 0, out: Any = None, **kwargs: Any) -> Any:
    """The dense stack of tensordicts, or the lazy one."""
    from tensordict._lazy.functions import maybe_dense_stack as make

    return make(items, dim, out=out, **kwargs)


def sub_tensordict(parent: Any, index: Any) -> Any:
    """The view of `parent` at `index`."""
    from tensordict._views.rows import _SubTensorDict

    return _SubTensorDict(parent, index)


def swapped(swap: Any, module: Any) -> Any:
    """The tensordict of what a swap took out of a module."""
    from tensordict._module.swapped import _Swapped

    return _Swapped._of(swap, module)
