"""The tensors that leaves are made of where they lie in one buffer: a jagged leaf has values, offsets and perhaps lengths."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import torch
from torch import Tensor

from tensordict._kernel.ragged import is_jagged, ragged_dim, relaid

T = TypeVar("T")

_VALUES, _LENGTHS, _OFFSETS = MARKS = ("<NJT_VALUES>", "<NJT_LENGTHS>", "<NJT_OFFSETS>")
_from_jagged = torch.nested.nested_tensor_from_jagged


def _parts(leaf: Any) -> list[tuple[str, Tensor]]:
    """The tensors of a jagged leaf, each with what its key begins with."""
    leaf = leaf.detach()
    lengths = leaf.lengths()
    between = [] if lengths is None else [(_LENGTHS, lengths)]
    return [(_VALUES, leaf.values()), *between, (_OFFSETS, leaf.offsets())]


class Pieces:
    """The tensors of some leaves. Offsets that leaves share are one of them, so that the leaves share them afterwards.

    Attributes:
        tensors: the pieces; the leaves themselves where none is jagged.
    """

    __slots__ = ("_leaves", "_places", "tensors")

    def __init__(self, leaves: list[Any]) -> None:
        self._leaves = leaves
        self._places: list[list[int]] | None = None
        self.tensors: list[Tensor] = leaves
        if any([type(leaf) is not Tensor and is_jagged(leaf) for leaf in leaves]):
            self.tensors, self._places = [], []
            known: dict[int, int] = {}
            for leaf in leaves:
                parts = [part for _, part in _parts(leaf)] if is_jagged(leaf) else [leaf]
                self._places.append([self._add(part, known) for part in parts])

    def _add(self, tensor: Tensor, known: dict[int, int]) -> int:
        """The place of a piece, which is a new one where it is not known yet."""
        place = known.setdefault(id(tensor), len(self.tensors))
        if place == len(self.tensors):
            self.tensors.append(tensor)  # which keeps its number
        return place

    def by_leaf(self, values: list[T]) -> list[list[T]]:
        """For each leaf what belongs to its pieces, of a value for each piece."""
        if self._places is None:
            return [[value] for value in values]
        return [[values[place] for place in places] for places in self._places]

    def leaves(self, pieces: list[Tensor]) -> list[Tensor]:
        """Leaves like those given, of other pieces."""
        if self._places is None:
            return pieces
        return [
            relaid(leaf, parts[0], parts[-1], parts[1] if len(parts) > 2 else None) if is_jagged(leaf) else parts[0]
            for leaf, parts in zip(self._leaves, self.by_leaf(pieces))
        ]


def about_leaf(key: str, leaf: Any, spans: list[tuple[int, int]]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """The keys and metadata of a leaf, whose pieces lie at `spans` of the buffer."""
    parts = [("", leaf)] if type(leaf) is Tensor or not is_jagged(leaf) else _parts(leaf)
    for (mark, piece), (start, stop) in zip(parts, spans):
        size = piece.numel() * piece.itemsize
        about = (str(piece.dtype), list(piece.shape), start, stop, stop - start - size)
        yield mark + key, (*about, ragged_dim(leaf)) if mark == _OFFSETS else about


def built(level: dict[str, Any], viewer: Any) -> dict[str, Tensor]:
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
