"""More operations on batch dimensions: axes moved, elements reordered, repeated, cut out, padded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Size, Tensor
from typing_extensions import Self

from tensordict._kernel.change import Change
from tensordict._kernel.numbering import known
from tensordict._kernel.registry import is_branch
from tensordict._kernel.shapes import wrap
from tensordict._leaves.ragged import call, has_ragged
from tensordict._ops.leafwise import relock
from tensordict._ops.shape import ShapeOps, _scatter, sizes_of
from tensordict._ops.trees import copy_nodes, transform
from tensordict._types import TensorCollection

T = TypeVar("T")


def _dims_of(node: Any, dims: int | Sequence[int]) -> tuple[int, ...]:
    """Batch dimensions counted from the front."""
    count = len(node.batch_size)
    return tuple([wrap(dim, count) for dim in ((dims,) if isinstance(dims, int) else dims)])


def _distinct(dims: tuple[int, ...], what: str, where: str = "dims") -> tuple[int, ...]:
    if len(set(dims)) < len(dims):
        raise RuntimeError(f"{what}: repeated dim in {where}, got {dims}")
    return dims


def atleast(count: int) -> Callable[[T], T]:
    """A method that adds leading dimensions of size 1 up to `count` batch dimensions."""

    def method(self: Any) -> Any:
        dims = len(self.batch_size)
        missing = count - dims
        if missing <= 0:
            return self._same()
        front = (None,) * missing
        leaf = (lambda value: value.unsqueeze(0)) if missing == 1 else lambda value: value[front]
        change = Change(leaf, dims, Size((1,) * missing + self.batch_size), [None] * missing + list(range(dims)))
        return self._changed(change, "reshape")

    method.__name__ = f"atleast_{count}d"
    method.__qualname__ = f"TensorDictBase.atleast_{count}d"
    method.__doc__ = f"""Leading batch dimensions of size 1 up to {count}, or the tensordict itself; leaves share storage."""
    return method


def reversal(dim: int, name: str) -> Callable[[T], T]:
    """A method that reverses the order along the batch dimension `dim`."""

    def method(self: Any) -> Any:
        if len(self.batch_size) <= dim:
            raise RuntimeError(f"{name} requires at least {dim + 1} batch dimensions, got the batch size {self.batch_size}")
        return self.flip(dim)

    method.__name__ = name
    method.__qualname__ = f"TensorDictBase.{name}"
    method.__doc__ = f"""The elements in reversed order along batch dimension {dim}; the leaves are copied.

    Raises:
        RuntimeError: there is no such dimension.
    """
    return method


def _repeat(repeats: Sequence[int], dims: int, sizes: Size, origins: Sequence[int | None]) -> Change:
    """The change that repeats the leading `dims` dimensions, which are `sizes` then."""
    if any(count < 0 for count in repeats):
        raise RuntimeError(f"dimensions cannot be repeated a negative number of times, got {repeats}")

    def leaf(value: Any) -> Any:
        return value.repeat(*repeats, *[1] * (value.ndim - dims))

    return Change(leaf, dims, sizes, origins)


def _strides(shape: Size) -> tuple[int, ...]:
    """The strides that torch gives to a new tensor of `shape`."""
    out, step = [], 1
    for size in reversed(shape):
        out.append(step)
        step *= max(size, 1)
    return tuple(reversed(out))


def _made_contiguous(node: Any, function: Callable[[Tensor], Tensor]) -> Any:
    """A tree like `node` with `function` of each leaf, and with its stacks of objects, which are shared as the leaves are."""
    pieces = node._pieces()
    for key, part in pieces.items():
        if isinstance(part, TensorCollection):
            pieces[key] = _made_contiguous(part, function) if is_branch(part) else part.contiguous()
            continue
        try:
            pieces[key] = function(part)
        except Exception:
            if not has_ragged((part,)):
                raise
            pieces[key] = call(function, part)
    return node._from_pieces(pieces)


def _canonical(leaf: Tensor) -> Tensor:
    if leaf.is_contiguous() and leaf.stride() == _strides(leaf.shape):
        return leaf
    return leaf.clone(memory_format=torch.contiguous_format)


def _expand_like(node: Any, other: Any, change: Change) -> Any:
    """The leaves expanded to the shapes of those of `other` under the same keys."""
    fields = {}
    for key, value in node._entries().items():
        target = other._get_str(key)
        deep = isinstance(value, TensorCollection)
        fields[key] = _expand_like(value, target, change) if deep else value.expand(target.shape)
    return node._rebuild(fields, change.shape(node.batch_size), node.device, change.names(node._names))


class RearrangeOps(ShapeOps):
    """Moving axes, reordering and repeating elements, padding."""

    __slots__ = ()

    # Axes.

    def swapaxes(self, axis0: int, axis1: int) -> Self:
        """Two batch dimensions exchanged, as `transpose`."""
        return self.transpose(axis0, axis1)

    def swapdims(self, axis0: int, axis1: int) -> Self:
        """Two batch dimensions exchanged, as `transpose`."""
        return self.transpose(axis0, axis1)

    def movedim(self, source: int | Sequence[int], destination: int | Sequence[int]) -> Self:
        """Batch dimensions moved to other places, the rest in their order; leaves share storage.

        Raises:
            IndexError: a dimension is no batch dimension.
            RuntimeError: a dimension is given twice.
            ValueError: there are not as many sources as destinations.
        """
        old = _distinct(_dims_of(self, source), "movedim", "source")
        new = _distinct(_dims_of(self, destination), "movedim", "destination")
        if len(old) != len(new):
            raise ValueError(f"movedim: source and destination must have the same number of elements, got {old} and {new}")
        rest = iter([dim for dim in range(len(self.batch_size)) if dim not in old])
        placed = dict(zip(new, old))
        return self.permute([placed[at] if at in placed else next(rest) for at in range(len(self.batch_size))])

    moveaxis = movedim

    atleast_1d = atleast(1)
    atleast_2d = atleast(2)
    atleast_3d = atleast(3)

    def broadcast_to(self, shape: Sequence[int]) -> Self:
        """The batch dimensions broadcast to `shape`, as `expand`."""
        return self.expand(shape)

    def expand_as(self, other: Any) -> Self:
        """The batch dimensions broadcast to those of another tensordict, or to the shape of a tensor; leaves share storage.

        Args:
            other: a tensor; or a tensordict that has all keys of this one, to whose leaves the leaves are expanded.

        Raises:
            RuntimeError: a size that is not 1 would change.
            KeyError: a key is missing in `other`.
        """
        if not isinstance(other, TensorCollection):
            return self.expand(tuple(other.shape))
        target: Size = other.batch_size
        dims = len(self.batch_size)
        self.empty().expand(target)  # raises where the batch does not fit
        change = Change(lambda leaf: leaf, dims, target, [None] * (len(target) - dims) + list(range(dims)))
        return relock(_expand_like(self, other, change), self)

    # Copies.

    def repeat(self, *repeats: Any, inplace: bool = False) -> Self:
        """The batch repeated along its dimensions, as `torch.Tensor.repeat` does; the leaves are copied.

        Args:
            *repeats: how often, for each batch dimension; one by one or as one sequence.
            inplace: take the result's leaves and batch size into this tensordict and return it.

        Raises:
            ValueError: there are not as many numbers as batch dimensions.
            RuntimeError: a number is negative.
            NotImplementedError: in place of a lazy stack.
        """
        if inplace:
            self._refuse_stack("repeat")
        counts, batch_size = sizes_of(repeats), self.batch_size
        dims = len(batch_size)
        if len(counts) != dims:
            raise ValueError(
                "The number of repeat elements must match the number of dimensions of the tensordict. Got "
                f"{len(counts)} but ndim={dims}."
            )
        sizes = Size([size * count for size, count in zip(batch_size, counts)])
        return self._changed(_repeat(counts, dims, sizes, range(dims)), inplace=inplace)

    def tile(self, dims: int | Sequence[int]) -> Self:
        """The batch repeated along its last dimensions, as `torch.tile` does; the leaves are copied.

        Args:
            dims: how often, for each dimension; with more numbers than batch dimensions, new ones are added in front.
        """
        counts, batch_size = [dims] if isinstance(dims, int) else list(dims), self.batch_size
        count = len(batch_size)
        counts = [1] * (count - len(counts)) + counts
        extra = len(counts) - count
        sizes = Size([size * times for size, times in zip((1,) * extra + batch_size, counts)])
        return self._changed(_repeat(counts, count, sizes, [None] * extra + list(range(count))))

    def repeat_interleave(
        self, repeats: Any, dim: int | None = None, *, output_size: int | None = None, inplace: bool = False
    ) -> Self:
        """Each element along a batch dimension repeated in place, as `torch.repeat_interleave` does; the leaves are copied.

        Args:
            repeats: how often: a number, or a tensor of one number for each element.
            dim: the batch dimension; not given, the batch is flattened first.
            output_size: the size of the dimension afterwards, if it is known; it saves a wait for the device.
            inplace: take the result's leaves and batch size into this tensordict and return it.

        Raises:
            IndexError: `dim` is no batch dimension.
            RuntimeError: a number is negative, or there are not as many as elements.
            NotImplementedError: in place of a lazy stack.
        """
        if inplace:
            self._refuse_stack("repeat_interleave")
        dims, batch_size = len(self.batch_size), self.batch_size
        if not dims or (dim is None and dims > 1):
            out = self.reshape(-1).repeat_interleave(repeats, dim or 0, output_size=output_size)
            return self._become(out, "repeat_interleave") if inplace else out
        at = wrap(dim or 0, dims)
        if isinstance(repeats, Tensor):
            leaf, size = _interleave(repeats, at, known(batch_size, at), output_size)
        elif repeats < 0:
            raise RuntimeError(f"repeats must not be negative, got {repeats}")
        else:
            leaf, size = (lambda value: value.repeat_interleave(repeats, at)), batch_size[at] * repeats
        sizes = Size((*batch_size[:at], size, *batch_size[at + 1 :]))
        return self._changed(Change(leaf, dims, sizes, range(dims)), inplace=inplace)

    # Order of elements.

    def flip(self, dims: int | Sequence[int]) -> Self:
        """The elements in reversed order along batch dimensions; the leaves are copied.

        Raises:
            IndexError: a dimension is no batch dimension.
            RuntimeError: a dimension is given twice.
        """
        which = _distinct(_dims_of(self, dims), "flip")
        count = len(self.batch_size)
        dim = which[0] if len(which) == 1 else which  # torch reads one integer faster than a tuple of one
        return self._changed(Change(lambda leaf: leaf.flip(dim), count, self.batch_size, range(count)), "flip", which)

    fliplr = reversal(1, "fliplr")
    flipud = reversal(0, "flipud")

    def roll(self, shifts: int | Sequence[int], dims: int | Sequence[int] | None = None, *, inplace: bool = False) -> Self:
        """The elements shifted along batch dimensions, those at the end to the front, as `torch.roll` does.

        Args:
            shifts: by how much, for each of `dims`.
            dims: batch dimensions; not given, the batch is shifted as if it had one dimension.
            inplace: take the leaves of the result into this tensordict and return it.

        Raises:
            IndexError: a dimension is no batch dimension.
            RuntimeError: there are not as many shifts as dimensions.
        """
        count, batch_size = len(self.batch_size), self.batch_size
        moves = (shifts,) if isinstance(shifts, int) else tuple(shifts)
        which = None if dims is None else _dims_of(self, dims)
        if len(moves) != (1 if which is None else len(which)):
            raise RuntimeError(f"roll: as many shifts as dimensions are needed, got {shifts} and {dims}")

        def flat(value: Any) -> Any:
            return value.flatten(0, count - 1).roll(moves, (0,)).unflatten(0, batch_size) if count else value.clone()

        leaf = flat if which is None else lambda value: value.roll(moves, which)
        back = tuple([-shift for shift in moves])
        return self._changed(Change(leaf, count, batch_size, range(count)), "roll", back, which, inplace=inplace)

    def rot90(self, k: int = 1, dims: Sequence[int] = (0, 1)) -> Self:
        """The batch rotated by `k` quarter turns from the first of two batch dimensions towards the second.

        Raises:
            IndexError: a dimension is no batch dimension.
            RuntimeError: there are not two different dimensions.
        """
        count = len(self.batch_size)
        if count < 2 or len(dims) != 2:
            raise RuntimeError(
                f"rot90 requires at least 2 batch dimensions, and two to turn; got {dims} and the batch size {self.batch_size}"
            )
        first, second = _distinct(_dims_of(self, dims), "rot90")
        if k % 4 == 0:
            return self._same()
        order = list(range(count))
        if k % 2:
            order[first], order[second] = order[second], order[first]
        sizes = Size([self.batch_size[place] for place in order])
        change = Change(lambda leaf: leaf.rot90(k, (first, second)), count, sizes, order)
        return self._changed(change, "rot90", -k, (first, second))

    # Parts.

    def narrow(self, dim: int, start: Any, length: int) -> Self:
        """`length` elements from `start` on along a batch dimension; leaves share storage.

        Raises:
            IndexError: `dim` is no batch dimension, or `start` is out of range.
            RuntimeError: there are fewer elements.
        """
        dims, batch_size = len(self.batch_size), self.batch_size
        at, begin = wrap(dim, dims), int(start)
        size = known(batch_size, at)
        if not -size <= begin <= size:
            raise IndexError(f"narrow: the start {begin} is out of range for a dimension of size {size}")
        begin = begin + size if begin < 0 else begin
        if length < 0 or begin + length > size:
            raise RuntimeError(f"narrow: no {length} elements from {begin} on in a dimension of size {size}")
        sizes = Size((*batch_size[:at], length, *batch_size[at + 1 :]))
        return self._changed(Change(lambda leaf: leaf.narrow(at, begin, length), dims, sizes, range(dims)))

    def tensor_split(self, indices_or_sections: Any, dim: int = 0) -> tuple[Self, ...]:
        """Pieces along a batch dimension, as a tuple, as `torch.tensor_split` cuts them; leaves share storage.

        Args:
            indices_or_sections: the number of pieces, whose sizes differ by one at most, or the places to cut at.
            dim: the batch dimension.

        Raises:
            IndexError: `dim` is no batch dimension.
            ValueError: the number of pieces is not positive.
        """
        dims, batch_size = len(self.batch_size), self.batch_size
        at = wrap(dim, dims)
        size = known(batch_size, at)
        cuts = indices_or_sections.tolist() if isinstance(indices_or_sections, Tensor) else indices_or_sections
        if isinstance(cuts, int):
            if cuts <= 0:
                raise ValueError(f"tensor_split: the number of sections must be positive, got {cuts}")
            lengths = [size // cuts + (piece < size % cuts) for piece in range(cuts)]
        else:
            cuts = tuple(cuts)
            lengths = [len(range(size)[one:two]) for one, two in zip((0, *cuts), (*cuts, size))]
        prefixes = [Size((*batch_size[:at], length, *batch_size[at + 1 :])) for length in lengths]
        changes = [Change(lambda leaf: leaf.tensor_split(cuts, at), dims, prefix, range(dims)) for prefix in prefixes]
        return tuple([relock(piece, self) for piece in _scatter(self, changes[0], changes)])

    def pad(self, pad_size: Sequence[int], value: float = 0.0, inplace: bool = False, safe: bool = True) -> Self:
        """The batch with elements of one value added around it; the leaves are copied.

        Args:
            pad_size: how many before and after, for the first batch dimension, then for the second, and so on; negative
                numbers cut off.
            value: what the new elements hold.
            inplace: take the result's leaves and batch size into this tensordict and return it.
            safe: check `pad_size`; what does not fit fails in torch otherwise.

        Raises:
            RuntimeError: `pad_size` has an odd number of elements, more than two for each batch dimension, or cuts off more
                than there is.
        """
        dims, around = len(self.batch_size), list(pad_size)
        if safe and len(around) % 2:
            raise RuntimeError(f"pad_size must have an even number of elements, got {around}")
        if safe and len(around) > 2 * dims:
            raise RuntimeError(f"the length of pad_size must be <= 2 * {dims}, the number of batch dimensions, got {around}")
        count = len(around) // 2
        pairs = [(around[2 * place], around[2 * place + 1]) for place in range(count)]
        sizes = [size + sum(pairs[place]) if place < count else size for place, size in enumerate(self.batch_size)]
        if safe and any([size < 0 for size in sizes[:count]]):
            raise RuntimeError(f"pad_size {around} would give a negative output size for the batch size {self.batch_size}")
        # torch begins with the last dimension
        tail = [number for pair in reversed(pairs) for number in pair]

        def leaf(tensor: Any) -> Any:
            return torch.nn.functional.pad(tensor, [0, 0] * (tensor.ndim - count) + tail, "constant", value)

        change = Change(leaf, dims, Size(sizes), range(dims), fills=True)
        out = transform(self, change)
        return self._become(out, "pad") if inplace else out

    def contiguous(self, *, canonical: bool = False, inplace: bool = False) -> Self:
        """An unlocked tensordict of contiguous leaves; a leaf that is contiguous is shared, others are copied.

        Args:
            canonical: dimensions of size 1 have the strides of a new tensor too.
            inplace: take the copies into this tensordict and return it.

        Raises:
            RuntimeError: the tensordict is locked, and a leaf would be replaced in place.
            NotImplementedError: in place of a lazy stack.
        """
        copied = False

        def leaf(value: Tensor) -> Tensor:
            nonlocal copied
            out = _canonical(value) if canonical else value.contiguous()
            copied = copied or out is not value
            return out

        out = _made_contiguous(self, leaf)
        if not inplace:
            return copy_nodes(out) if copied and self._has_non_tensor else out
        return self._become(out, "contiguous") if copied else self


def _interleave(repeats: Tensor, at: int, size: int, output_size: int | None) -> tuple[Callable[[Any], Any], int]:
    """The function of a leaf, and the new size, for a tensor of repeats: the rows are found once for all leaves."""
    if repeats.ndim > 1 or (repeats.numel() != 1 and repeats.numel() != size):
        raise RuntimeError(f"repeats must have one element or {size}, one for each along the dimension; got {repeats.shape}")
    rows = torch.repeat_interleave(repeats.reshape(-1).expand(size), output_size=output_size)
    return (lambda value: value.index_select(at, rows)), rows.shape[0]
