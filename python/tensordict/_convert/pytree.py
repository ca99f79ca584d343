"""From and to trees of Python containers; the nodes remember what they were."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from numbers import Number
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from typing_extensions import Self

from tensordict._convert.anything import Batch, batch_of, build, is_namedtuple, new
from tensordict._kernel.keys import is_key, path_of
from tensordict._ops.waist import Waist
from tensordict._reexport import dense_class
from tensordict._types import TensorCollection


class _Memory(NamedTuple):
    """What a node was: `rebuild` makes it of keys and values; `keys` are the ones that were given, by the path they have."""

    rebuild: Callable[[dict[Any, Any]], Any]
    keys: dict[Any, Any]


def _sequence(kind: Callable[[Any], Any], pairs: dict[Any, Any]) -> Any:
    return kind(pairs.values())


def _fields(kind: Callable[..., Any], pairs: dict[Any, Any]) -> Any:
    return kind(*pairs.values())


def _rebuild_of(tree: Any) -> Callable[[dict[Any, Any]], Any] | None:
    """What makes a container like `tree` of keys and values; None for what is no container."""
    kind: Any = type(tree)
    if isinstance(tree, defaultdict):
        return partial(kind, tree.default_factory)
    if isinstance(tree, Mapping):
        return kind
    if is_namedtuple(tree):
        return partial(_fields, kind)
    if isinstance(tree, (list, tuple)):
        return partial(_sequence, kind)
    return None


def _pairs(tree: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(tree, Mapping):
        return tree.items()
    if is_namedtuple(tree):
        return tree._asdict().items()
    return ((str(place), value) for place, value in enumerate(tree))


def _path(key: Any, taken: set[Any]) -> Any:
    """The path of an entry called `key`, which is one of its own where the key is no key of tensordicts."""
    if is_key(key):
        return path_of(key)
    name = f"<NON_NESTED>{key!r}"
    while (name,) in taken:
        name += "'"
    return (name,)


def _leaf(value: Any) -> Any:
    if isinstance(value, (Tensor, TensorCollection)):
        return value
    if isinstance(value, np.generic):
        return torch.as_tensor(value)
    if isinstance(value, (Number, np.ndarray)):
        return torch.as_tensor(value)
    raise NotImplementedError(f"from_pytree has no leaf for a {type(value).__name__}; it takes tensors, numbers and arrays")


def _tree(tree: Any, out: Any, batch: Batch) -> Any:
    """The tensordict of a container, in `out`, or the leaf of something else."""
    rebuild = None if isinstance(tree, TensorCollection) else _rebuild_of(tree)
    if rebuild is None:
        return _leaf(tree)
    pairs = list(_pairs(tree))
    given = {path_of(key) for key, _ in pairs if is_key(key)}
    keys: dict[Any, Any] = {}
    for key, _ in pairs:
        keys[_path(key, given | keys.keys())] = key

    def nested(value: Any) -> Any:
        return _tree(value, dense_class()(device=out.device), Batch(batch.batch_size, batch.auto, batch.dims_below))

    build(out, zip(keys, [value for _, value in pairs]), batch, nested=nested)
    out._rare["pytree"] = _Memory(rebuild, keys)
    return out


class PytreeConversions(Waist):
    """`from_pytree`, `to_pytree`."""

    __slots__ = ()

    @classmethod
    def from_pytree(
        cls, pytree: Any, *, batch_size: Any = None, auto_batch_size: bool = False, batch_dims: int | None = None
    ) -> Self:
        """A tensordict of a tree of dicts, lists, tuples and named tuples, which `to_pytree` gives back.

        Args:
            pytree: the tree; places in lists and tuples become the keys "0", "1", .... Its leaves are tensors, tensordicts,
                numbers and arrays. One of these alone is returned, as a tensor.
            batch_size: the batch size; empty if neither it nor `auto_batch_size` is given.
            auto_batch_size: take the longest leading dimensions that all leaves share.
            batch_dims: the most dimensions that `auto_batch_size` takes.

        Raises:
            NotImplementedError: a leaf is of another type.
        """
        if isinstance(pytree, TensorCollection):
            return pytree  # type: ignore[return-value]
        if auto_batch_size and batch_size is not None:
            auto_batch_size, batch_dims = False, None
        return _tree(pytree, new(cls, None), batch_of("from_pytree", batch_size, auto_batch_size, batch_dims))

    def to_pytree(self) -> Any:
        """The tree that `from_pytree` made this tensordict of, with the entries of now.

        Only the tensordict that `from_pytree` gave remembers, not what operations make of it: one that does not remember is
        returned as it is.

        >>> import torch
        >>> from tensordict import TensorDict
        >>> td = TensorDict.from_pytree({"a": (torch.tensor(1), [torch.tensor(2)]), 3: torch.tensor(4)})
        >>> td.set("b", torch.tensor(5)).to_pytree()
        {'a': (tensor(1), [tensor(2)]), 3: tensor(4), 'b': tensor(5)}
        """
        memory: _Memory | None = None if self._extra is None else self._extra.get("pytree")
        if memory is None:
            return self
        pairs: dict[Any, Any] = {}
        known = {path[0] for path in memory.keys if len(path) > 1}
        for path, key in memory.keys.items():
            if path in self:  # type: ignore[operator]
                value = self.get(path)
                pairs[key] = value.to_pytree() if isinstance(value, PytreeConversions) else value
        for name, value in self._entries().items():
            if (name,) not in memory.keys and name not in known:
                pairs[name] = value.to_pytree() if isinstance(value, PytreeConversions) else value
        return memory.rebuild(pairs)
