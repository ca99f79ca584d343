"""Entries that hold Python objects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from torch import Size
from typing_extensions import Self

from tensordict._kernel.errors import _KeyThroughLeafError
from tensordict._kernel.keys import key_of, path_of
from tensordict._kernel.registry import exposed, is_leaf_nontensor, is_non_tensor
from tensordict._ops.access import descend, node_above
from tensordict._ops.keys import KeyOps
from tensordict._ops.lock import nodes_in
from tensordict._ops.trees import by_member
from tensordict._reexport import non_tensor, tensor_attrs
from tensordict._types import NO_DEFAULT, Key, TensorCollection


class ObjectOps(KeyOps):
    """Reading, writing and finding entries that hold Python objects."""

    __slots__ = ()

    @property
    def _has_non_tensor(self) -> bool:
        """Whether an entry at any depth holds objects. For programs that ask under this name."""
        return any([is_leaf_nontensor(type(value)) or value._has_non_tensor for value in nodes_in(self)])

    def set_non_tensor(self, key: Key, value: Any) -> Self:
        """Stores an object under `key` as it is, also one that could become a tensor or a node; of a holder, its object.

        Raises:
            RuntimeError: the tensordict is locked.
        """
        path = path_of(key)
        if len(path) > 1 and key_of(path[:-1]) not in self:
            self.create_nested(key_of(path[:-1]))
        node = descend(self, path[:-1])
        node._check_unlocked()
        if is_non_tensor(value):
            if value._stacked:
                return self.set(key, value)
            value = value.data
        node._set_str(path[-1], non_tensor(value, node.batch_size, node.device))
        return self

    def get_non_tensor(self, key: Key, default: Any = NO_DEFAULT) -> Any:
        """The object under `key`, or the list of objects; what is no object is given as it is.

        Raises:
            KeyError: there is no such entry, and no default.
        """
        try:
            holder, last = node_above(self, path_of(key))
            return exposed(holder._get_str(last), holder, last)
        except (KeyError, _KeyThroughLeafError):
            if default is NO_DEFAULT:
                raise
            return default

    def is_non_tensor(self, key: Key) -> bool:
        """Whether the entry `key` holds objects.

        Raises:
            KeyError: there is no such entry.
        """
        return is_non_tensor(descend(self, path_of(key)))

    def non_tensor_items(self, include_nested: bool = False) -> Iterator[tuple[Key, Any]]:
        """The entries that hold objects, with their keys.

        Args:
            include_nested: those of the nodes below too.
        """
        pairs = self.items(include_nested, include_nested, is_leaf_nontensor)
        return iter([(key, value) for key, value in pairs if is_non_tensor(value)])

    def filter_non_tensor_data(self) -> Self:
        """A tensordict without the entries that hold objects; the leaves are shared."""
        return _without_objects(self)

    def attrs(self, *, fields: Sequence[str] = ("device", "dtype", "shape"), num_threads: int | None = None) -> Any:
        """A tensordict of the same keys, without batch dimensions, with a description of each leaf.

        Args:
            fields: what is described: of `"device"`, `"dtype"` and `"shape"`.
            num_threads: accepted.

        >>> import torch
        >>> from tensordict import TensorDict
        >>> TensorDict({"a": torch.zeros(3, 2)}, [3]).attrs().get("a").tgt_shape
        torch.Size([3, 2])
        """
        return self.apply(lambda leaf: tensor_attrs(leaf, fields), batch_size=Size(()))


@by_member(whole=False)
def _without_objects(node: Any) -> Any:
    fields = {
        key: _without_objects(value) if isinstance(value, TensorCollection) else value
        for key, value in node._entries().items()
        if not is_non_tensor(value)
    }
    return node._rebuild(fields, node.batch_size, node.device, node._names)
