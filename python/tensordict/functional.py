"""Functions on tensordicts: constructors, joins, collation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from tensordict._convert.functions import from_dict, fromkeys
from tensordict._kernel.keys import key_of, path_of
from tensordict._kernel.settings import LAZY_LEGACY
from tensordict._kernel.shapes import wrap
from tensordict._lazy.functions import dense_stack_tds, lazy_stack, maybe_dense_stack
from tensordict._ops.join import cat_tensordicts, stack_tensordicts
from tensordict._td import TensorDict
from tensordict._types import Key, Path
from tensordict.data.collate import collate
from tensordict.data.padding import pad_sequence, unpad_sequence

__all__ = [
    "cat",
    "collate",
    "dense_stack_tds",
    "from_dict",
    "fromkeys",
    "group_by",
    "lazy_stack",
    "make_tensordict",
    "maybe_dense_stack",
    "merge_tensordicts",
    "pad",
    "pad_sequence",
    "stack",
    "unpad_sequence",
]


def make_tensordict(
    input_dict: Mapping[Any, Any] | None = None,
    batch_size: Any = None,
    device: Any = None,
    auto_batch_size: bool | None = None,
    **kwargs: Any,
) -> TensorDict:
    """A tensordict of a nested dict, of keywords, or of both, where the dict wins (see `TensorDict.from_dict`)."""
    source = kwargs if input_dict is None else {**kwargs, **dict(input_dict)}
    return TensorDict.from_dict(source, batch_size=batch_size, device=device, auto_batch_size=auto_batch_size)


def merge_tensordicts(
    *tensordicts: Any, callback_exist: Callable[..., Any] | Mapping[Key, Callable[..., Any]] | None = None
) -> Any:
    """The entries of several tensordicts in one; of a key in several, the first one's, or what a function says.

    Args:
        *tensordicts: at least two.
        callback_exist: called with the leaves of a key that all of them have, gives the one to keep; or such functions by key.

    Raises:
        RuntimeError: fewer than two tensordicts, or an entry does not fit the batch size of the first.
    """
    if len(tensordicts) < 2:
        raise RuntimeError(f"at least 2 tensordicts must be provided, got {len(tensordicts)}")
    tables: list[dict[Path, Any]] = [{path_of(key): leaf for key, leaf in td.items(True, True)} for td in tensordicts]
    out = tensordicts[0].copy()
    for table in tables[1:]:
        for path, leaf in table.items():
            if key_of(path) not in out:
                out.set(path, leaf)
    if callback_exist is None:
        return out
    by_key = {path_of(key): call for key, call in callback_exist.items()} if isinstance(callback_exist, Mapping) else None
    for path in tables[0]:
        call = callback_exist if by_key is None else by_key.get(path)
        if call is not None and all(path in table for table in tables):
            out.set(path, call(*[table[path] for table in tables]))  # type: ignore[operator]
    return out


def group_by(tensordict: Any, key: Key) -> tuple[Tensor, tuple[Any, ...]]:
    """The rows along the first batch dimension grouped by the values that they have under `key`.

    Returns:
        The values, sorted, and for each the tensordict of its rows, in their order.

    Raises:
        KeyError: there is no entry `key`.
        TypeError: it is no tensor.
        ValueError: the tensordict has no batch dimension.
    """
    values = tensordict.get(key, None)
    if values is None:
        raise KeyError(f"group_by: the tensordict has no entry {key!r}.")
    if not isinstance(values, Tensor):
        raise TypeError(f"group_by needs a tensor, but {key!r} holds a {type(values).__name__}.")
    if not tensordict.batch_dims:
        raise ValueError("group_by groups the rows along the first batch dimension of the tensordict, which has none.")
    if not len(values):
        return values, ()
    found, places, counts = torch.unique(values, dim=0, return_inverse=True, return_counts=True)
    order = torch.argsort(places, stable=True)
    return found, tensordict[order].split(counts.tolist())


def _rows(tensordict: Any, key: Key, dim: int, missing: str, what: str = "an input TensorDict") -> Tensor:
    values = tensordict.get(key, None)
    if not isinstance(values, Tensor):
        raise KeyError(missing)
    size = tensordict.batch_size
    at = wrap(
        dim, len(size), lambda: ValueError(f"The specified dimension '{dim}' is invalid for {what} with batch size '{size}'.")
    )
    return values.movedim(at, 0).flatten(1) if values.ndim > 1 else values


def isin(input: Any, reference: Any, key: Key, dim: int = 0) -> Tensor:
    """Which rows of `input` along a batch dimension have under `key` what some row of `reference` has.

    Returns:
        Booleans of shape `(input.batch_size[dim],)`.

    Raises:
        KeyError: there is no tensor under `key`.
        ValueError: `dim` is no batch dimension.
    """
    if input.batch_dims != reference.batch_dims:
        raise ValueError("The number of dimensions in the batch size of the input and reference must be the same.")
    mine = _rows(input, key, dim, f"Key '{key}' not found in input or not a tensor.")
    theirs = _rows(reference, key, dim, f"Key '{key}' not found in reference or not a tensor.")
    _, places = torch.unique(torch.cat([mine, theirs]), dim=0, return_inverse=True)
    return torch.isin(places[: len(mine)], places[len(mine) :])


def remove_duplicates(input: Any, key: Key, dim: int = 0, *, return_indices: bool = False) -> Any:
    """The first row along a batch dimension for each value under `key`, in the order of the values.

    Args:
        input: the tensordict.
        key: the key of a tensor.
        dim: the batch dimension.
        return_indices: also give for each row of `input` the row of the result that has its value.

    Raises:
        KeyError: there is no tensor under `key`.
        ValueError: `dim` is no batch dimension.
    """
    if key not in input:
        raise KeyError(f"The key '{key}' does not exist in the TensorDict.")
    rows = _rows(input, key, dim, f"The key '{key}' does not point to a tensor in the TensorDict.", "a TensorDict")
    _, places = torch.unique(rows, dim=0, sorted=True, return_inverse=True)
    order = torch.arange(len(places), device=places.device)
    count = int(places.max()) + 1 if len(places) else 0
    first = order.new_full((count,), len(places)).scatter_reduce(0, places, order, "amin")
    index = (slice(None),) * (dim % input.batch_dims) + (first,)
    return (input[index], places) if return_indices else input[index]


def pad(tensordict: Any, pad_size: Sequence[int], value: float = 0.0, inplace: bool = False, safe: bool = True) -> Any:
    """A tensordict with elements of one value added around its batch (see `TensorDict.pad`)."""
    return tensordict.pad(pad_size, value, inplace, safe)


def stack(input: Sequence[Any], dim: int = 0, *, out: Any = None) -> Any:
    """The stack of tensordicts of the same keys and shapes along a new batch dimension; the leaves are copied.

    Args:
        input: tensordicts of batch size `(*B)`.
        dim: where the new dimension stands; counted from behind if negative.
        out: a tensordict to write the result into.

    Raises:
        RuntimeError: batch sizes, keys or shapes differ, or there is no tensordict.

    >>> import torch
    >>> import tensordict
    >>> td = tensordict.TensorDict({"a": torch.zeros(3, 4)}, [3])
    >>> tensordict.stack([td, td], 1).batch_size
    torch.Size([3, 2])
    """
    if LAZY_LEGACY.value:
        return lazy_stack(input, dim, out=out)
    return stack_tensordicts(input, dim, out)


def cat(input: Sequence[Any], dim: int = 0, *, out: Any = None) -> Any:
    """Tensordicts of the same keys one after the other along a batch dimension; the leaves are copied.

    Raises:
        RuntimeError: `dim` is no batch dimension, other dimensions differ, or there is no tensordict.
        KeyError: the keys differ.
    """
    return cat_tensordicts(input, dim, out)
