"""What is a node of a tree and what is a leaf."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensordict._types import TensorCollection


def is_node(value: object) -> bool:
    """Whether `value` is a container, that is, has entries of its own."""
    return isinstance(value, TensorCollection)


def is_tensor_collection(datatype: type | Any) -> bool:
    """Whether a class, or the class of an object, is a tensordict or a tensorclass.

    >>> import torch
    >>> from tensordict import TensorDict
    >>> is_tensor_collection(TensorDict()), is_tensor_collection(TensorDict), is_tensor_collection(torch.ones(()))
    (True, True, False)
    """
    return issubclass(datatype if isinstance(datatype, type) else type(datatype), TensorCollection)


def default_is_leaf(cls: type) -> bool:
    """The `is_leaf` of most methods: every class that is not a tensordict or tensorclass is the class of a leaf."""
    return not issubclass(cls, TensorCollection)


def is_leaf_nontensor(cls: type) -> bool:
    """The `is_leaf` that also counts holders of Python objects as leaves."""
    return not issubclass(cls, TensorCollection) or cls._is_non_tensor


# What `torch.*` functions do with tensordicts: filled by `_torch.function`, read by `__torch_function__`.
TORCH_FUNCTIONS: dict[Callable[..., Any], Callable[..., Any]] = {}
# The same for the few that torch writes in Python.
PYTHON_FUNCTIONS: list[tuple[Callable[..., Any], Callable[..., Any]]] = []


def is_non_tensor(data: Any) -> bool:
    """Whether an object is a holder of Python objects, or a stack of them.

    >>> from tensordict import NonTensorData, TensorDict, is_non_tensor
    >>> is_non_tensor(NonTensorData("a")), is_non_tensor("a"), is_non_tensor(TensorDict())
    (True, False, False)
    """
    return isinstance(data, TensorCollection) and not is_branch(data)


def is_branch(value: Any) -> bool:
    """Whether an entry has entries of its own: it is a container, and no holder of objects, which counts as one entry."""
    return isinstance(value, TensorCollection) and not value._is_non_tensor


def exposed(entry: Any, node: Any = None, key: str = "") -> Any:
    """What a reader of the entry `key` of `node` gets: the Python objects of an entry that holds some, else the entry itself.

    Several objects are given as a list; what is put into it is written to the entry, if its node is given.
    """
    return entry._exposed(node, key) if isinstance(entry, TensorCollection) else entry


# Called with each class of containers that a user makes, when it is made.
CLASS_HOOKS: list[Callable[[Any], None]] = []
CLASSES: list[Any] = []


def new_class(cls: Any) -> None:
    """Makes a new class of containers known to all that must know it."""
    CLASSES.append(cls)
    for hook in CLASS_HOOKS:
        hook(cls)
