"""Nested leaves on disk: the tensors that one is made of, spelled in two ways, and back.

A jagged leaf is values, offsets and perhaps lengths; a strided one is values, of components that lie one after the other, and a
row of sizes for each component.

In folders these are files. `<key>.memmap` has the values; `<key>.shape.memmap` has the sizes, and `<key>.offsets.memmap` and
`<key>.lengths.memmap` say where the components of a jagged leaf lie. Jagged leaves of one ragged dimension share one number, by
which they have one again when they are read. In one buffer for all leaves these are pieces, named by marks before the key;
leaves that share offsets share the piece. Strided leaves are not in buffers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from tensordict._kernel.native import all_tensors
from tensordict._leaves.ragged import is_jagged, like, ragged_dim, relaid
from tensordict.memmap import check_whole

_from_jagged = torch.nested.nested_tensor_from_jagged


def _parts(leaf: Any) -> tuple[Tensor, Tensor, Tensor | None]:
    """Values, offsets and lengths of a jagged leaf."""
    leaf = leaf.detach()
    return leaf.values(), leaf.offsets(), leaf.lengths()


# As files of a folder.

# Offsets and lengths that were saved or read so far, by their number or what stands for it.
Structures = dict[Any, Any]


def files_of(key: str, leaf: Any, structures: Structures) -> Iterator[tuple[str, Tensor, str]]:
    """The key, tensor and JSON of each file of a nested leaf, its values first.

    Raises:
        RuntimeError: the leaf has several dimensions that the metadata has no word for.
    """
    if not is_jagged(leaf):
        leaf = leaf.detach()
        sizes = leaf._nested_tensor_size()
        entry: dict[str, Any] = _entry(sizes, leaf.dtype)
        yield key, leaf.contiguous().values(), json.dumps(entry)
        yield f"{key}.shape", sizes, ""
        return
    values, offsets, lengths = _parts(leaf)
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


def from_files(text: str, tensors: list[Tensor], structures: Structures, where: str) -> Tensor:
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
    return _from_jagged(values, offsets, lengths, entry["ragged_idx"])


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


# As pieces of one buffer.

_VALUES, _LENGTHS, _OFFSETS = MARKS = ("<NJT_VALUES>", "<NJT_LENGTHS>", "<NJT_OFFSETS>")


def _marked(leaf: Any) -> list[tuple[str, Tensor]]:
    """The tensors of a jagged leaf, each with what its key begins with."""
    values, offsets, lengths = _parts(leaf)
    between = [] if lengths is None else [(_LENGTHS, lengths)]
    return [(_VALUES, values), *between, (_OFFSETS, offsets)]


class Pieces:
    """The tensors of some leaves. Offsets that leaves share are one of them, so that the leaves share them afterwards.

    Attributes:
        tensors: the pieces; the leaves themselves where none is jagged.
    """

    __slots__ = ("_jagged", "_places", "tensors")

    def __init__(self, leaves: list[Any]) -> None:
        self.tensors: list[Tensor] = leaves
        self._places: list[list[int]] | None = None
        # A second look at a leaf could see another one: what is asked of a jagged leaf later is asked of an alias.
        self._jagged: list[Any] = []
        if not all_tensors(leaves) and any([type(leaf) is not Tensor and is_jagged(leaf) for leaf in leaves]):
            self.tensors, self._places = [], []
            known: dict[int, int] = {}
            for leaf in leaves:
                alias = leaf.detach() if is_jagged(leaf) else None
                self._jagged.append(alias)
                parts = [leaf] if alias is None else [part for _, part in _marked(alias)]
                self._places.append([self._add(part, known) for part in parts])

    def _add(self, tensor: Tensor, known: dict[int, int]) -> int:
        """The place of a piece, which is a new one where it is not known yet."""
        place = known.setdefault(id(tensor), len(self.tensors))
        if place == len(self.tensors):
            self.tensors.append(tensor)  # which keeps its number
        return place

    def part(self) -> None:
        """From here on the pieces are other tensors of the same memory, known here alone: each stays as it is now."""
        for tensor in self.tensors:
            if type(tensor) is not Tensor:
                check_whole(tensor)  # what is mapped is not told from other memory later
        self.tensors = [tensor.detach() for tensor in self.tensors]

    def about(self, starts: list[int], stops: list[int]) -> list[list[tuple[str, tuple[Any, ...]]]]:
        """For each leaf what metadata says of its pieces, each with what its key begins with."""
        known = [_about(*piece) for piece in zip(self.tensors, starts, stops)]
        if self._places is None:
            return [[("", about)] for about in known]
        out = []
        for leaf, places in zip(self._jagged, self._places):
            said = [known[place] for place in places]
            if leaf is None:
                out.append([("", said[0])])
            else:
                between = [] if len(said) < 3 else [(_LENGTHS, said[1])]
                out.append([(_VALUES, said[0]), *between, (_OFFSETS, (*said[-1], ragged_dim(leaf)))])
        return out

    def leaves(self, pieces: list[Tensor]) -> list[Tensor]:
        """Leaves like those given, of other pieces."""
        if self._places is None:
            return pieces
        out = []
        for leaf, places in zip(self._jagged, self._places):
            parts = [pieces[place] for place in places]
            whole = parts[0] if leaf is None else relaid(leaf, parts[0], parts[-1], parts[1] if len(parts) > 2 else None)
            out.append(whole)
        return out


def _about(piece: Tensor, start: int, stop: int) -> tuple[Any, ...]:
    """What metadata says of a piece that lies at `start`, before what lies at `stop`."""
    return str(piece.dtype), list(piece.shape), start, stop, stop - start - piece.numel() * piece.itemsize


def from_buffer(level: dict[str, Any], viewer: Any) -> dict[str, Tensor]:
    """The leaves that metadata describes, as views that `viewer` makes."""
    leaves: dict[str, Tensor] = {}
    for key, about in level.items():
        if not key.startswith(MARKS):
            leaves[key] = viewer(*_place(about))
        elif key.startswith(_VALUES):
            name = key.removeprefix(_VALUES)
            offsets, lengths = level[_OFFSETS + name], level.get(_LENGTHS + name)
            parts = (
                viewer(*_place(about)),
                viewer.kept(*_place(offsets)),
                None if lengths is None else viewer.kept(*_place(lengths)),
                offsets[5] if len(offsets) > 5 else 1,
            )
            _check_ragged(name, *parts)
            leaves[name] = _from_jagged(*parts)
    return leaves


def _check_ragged(name: str, values: Tensor, offsets: Tensor, lengths: Tensor | None, dim: int) -> None:
    """Raises where components would lie outside of the values: torch does not ask before it reads them."""
    if values.device.type != "cpu":
        return
    size = values.shape[dim - 1]
    starts, counts = offsets[:-1], offsets.diff() if lengths is None else lengths
    known = bool(((offsets >= 0) & (offsets <= size)).all()) and bool(((counts >= 0) & (counts <= size)).all())
    if offsets.dtype not in (torch.int32, torch.int64) or not known or not bool((starts + counts <= size).all()):
        raise ValueError(f"the offsets of {name!r} lead out of its {size} values")


def _place(about: Any) -> tuple[torch.dtype, Any, int]:
    """Dtype, shape and first byte of a piece."""
    name, shape, start = about[:3]
    dtype = getattr(torch, name.removeprefix("torch."), None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"{name!r} is no dtype")
    return dtype, shape, start
