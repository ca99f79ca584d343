"""The types that every other module may name: the sentinel, the key type, the root of all containers."""

from __future__ import annotations

import enum
import os
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar

import torch
from torch import Tensor


class _NoDefault(enum.Enum):
    """The type of `NO_DEFAULT`, which stands for 'no value was given' where `None` is a value."""

    ZERO = 0


NO_DEFAULT = _NoDefault.ZERO
KEY_SEPARATOR = "."


def _is_nested_key(key: object) -> bool:
    """Whether `key` is a string or a non-empty, possibly nested tuple of strings."""
    if isinstance(key, str):
        return True
    return isinstance(key, tuple) and bool(key) and all(map(_is_nested_key, key))


class _NestedKeyMeta(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return _is_nested_key(instance)


class NestedKey(metaclass=_NestedKeyMeta):
    """The type of keys: `isinstance(key, NestedKey)` holds for a string and for a non-empty, possibly nested tuple of them."""


class Root:
    """The root of all containers of tensors: tensordicts and tensorclasses."""

    __slots__ = ()

    # Whether a node holds Python objects: it has no entries, and counts as one.
    _is_non_tensor: ClassVar[bool] = False


if TYPE_CHECKING:  # whoever asks whether something is a container then knows that it has the methods of all of them
    from tensordict.base import TensorDictOps

    TensorCollection = TensorDictOps
else:
    TensorCollection = Root
    Root.__name__ = Root.__qualname__ = "TensorCollection"

T = TypeVar("T", bound=TensorCollection)
CompatibleType: TypeAlias = Tensor | TensorCollection
Key: TypeAlias = str | tuple[Any, ...]
Path: TypeAlias = tuple[str, ...]
DeviceType: TypeAlias = torch.device | str | int
IndexType: TypeAlias = Any
FilePath: TypeAlias = str | os.PathLike[str]
Leaf: TypeAlias = Tensor
Names: TypeAlias = list[str | None] | None
