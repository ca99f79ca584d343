"""Nested leaves in folders: the files that one is made of, and back.

In the strided layout the components lie one after the other in the file of the leaf, and `<key>.shape.memmap` has a row of
sizes for each. In the jagged layout the file holds the values as they are, and `<key>.offsets.memmap`, and where there are
any `<key>.lengths.memmap`, say where the components lie in them. Jagged leaves of one ragged dimension share one number, by
which they have one again when they are read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from tensordict._kernel.ragged import is_jagged, like, ragged_dim

# Offsets and lengths that were saved or read so far, by their number or what stands for it.
Structures = dict[Any, Any]


def files_of(key: str, leaf: Any, structures: Structures) -> Iterator[tuple[str, Tensor, str]]:
    """The key, tensor and JSON of each file of a nested leaf, its values first.

    Raises:
        RuntimeError: the leaf has several dimensions that the metadata has no word for.
    """
    leaf = leaf.detach()
    if not is_jagged(leaf):
        sizes = leaf._nested_tensor_size()
        entry: dict[str, Any] = _entry(sizes, leaf.dtype)
        yield key, leaf.contiguous().values(), json.dumps(entry)
        yield f"{key}.shape", sizes, ""
        return
    values, offsets, lengths = leaf.values(), leaf.offsets(), leaf.lengths()
    number = structures.setdefault((id(offsets), id(lengths)), (len(structures), offsets, lengths))[0]
    entry = _entry(values, leaf.dtype)
    entry.update(layout="torch.jagged", ragged_idx=ragged_dim(leaf), ragged=number, offsets=_part(offsets))
    if lengths is not None:
        entry["lengths"] = _part(lengths)
    yield key, values, json.dumps(entry)
    yield f"{key}.offsets", offsets, ""
    if lengths is not None:
        yield f"{key}.lengths", lengths, ""


def _entry(sized: Tensor, dtype: torch.dtype) -> dict[str, Any]:
    return {"device": "cpu", "shape": list(sized.shape), "dtype": str(dtype), "is_nested": True}


def _part(tensor: Tensor) -> dict[str, Any]:
    return {"shape": list(tensor.shape), "dtype": str(tensor.dtype)}


def built(text: str, tensors: list[Tensor], structures: Structures, where: str) -> Tensor:
    """The nested leaf of an entry's JSON and the tensors of its files.

    Args:
        text: the entry.
        tensors: the values, then the sizes, or the offsets and the lengths.
        structures: those read so far.
        where: the file of the values, for the error.

    Raises:
        RuntimeError: two leaves claim one ragged dimension, and their offsets or lengths differ.
    """
    entry = json.loads(text)
    values, *parts = [tensor.as_subclass(Tensor) for tensor in tensors]
    if "layout" not in entry:
        return _strided(values, parts[0])
    number = entry.get("ragged")
    offsets, lengths = parts[0], parts[1] if len(parts) > 1 else None
    if isinstance(number, int):
        known = structures.setdefault(number, (offsets, lengths))
        if not _same(known[0], offsets) or not _same(known[1], lengths):
            raise RuntimeError(f"{where} is said to share the ragged dimension {number}, but has other offsets or lengths")
        offsets, lengths = known
    return torch.nested.nested_tensor_from_jagged(values, offsets, lengths, entry["ragged_idx"])


def _same(one: Tensor | None, other: Tensor | None) -> bool:
    if one is None or other is None:
        return one is other
    return one is other or (one.dtype == other.dtype and torch.equal(one, other))


def _strided(values: Tensor, sizes: Tensor) -> Tensor:
    """A strided nested tensor of components that lie one after the other, without a copy."""
    elements = sizes.prod(-1)
    steps = torch.ones_like(sizes)
    if sizes.shape[1] > 1:
        steps[:, :-1] = sizes[:, 1:].flip(1).cumprod(1).flip(1)
    return torch._nested_view_from_buffer(values, sizes, steps, elements.cumsum(0) - elements)


def zeros_of_sizes(sizes: Tensor, dtype: torch.dtype) -> Tensor:
    """A strided nested tensor of zeros, with the sizes of a component in each row of `sizes`."""
    sizes = sizes.to(torch.int64).cpu()
    return _strided(torch.zeros(int(sizes.prod(-1).sum()), dtype=dtype), sizes)


def remapped(leaf: Any, function: Callable[[Tensor], Tensor]) -> Tensor:
    """A nested leaf with `function` of its values, which are as many and lie as before."""
    if is_jagged(leaf):
        return like(leaf, function(leaf.values()).as_subclass(Tensor))
    return _strided(function(leaf.contiguous().values()).as_subclass(Tensor), leaf._nested_tensor_size())
