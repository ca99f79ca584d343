"""What a change of batch dimensions makes of a lazy stack, by one mechanism for all changes.

The change is made to a tensor that numbers the elements of the batch. Where all elements of the result that have the same
place along one dimension come from one member, the result is a lazy stack along that dimension, and each of its members is
made from one member. Otherwise the members are stacked into tensors first, or, where they cannot be, the result is a stack
of stacks.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Size, Tensor

from tensordict._kernel.change import Change
from tensordict._kernel.index import Index, parse
from tensordict._kernel.numbering import Sources, no_one_size, numbers, stand_in
from tensordict._lazy.parted import picked
from tensordict._ops.trees import transform


class Places:
    """Where the elements of a result come from.

    Attributes:
        member: the member of each element of the result.
        inner: the number of each element within its member; 0 for those put in from outside.
        fresh: whether some elements are put in from outside, as a padding does.
        view: whether the change only looks at storage in another way.
    """

    __slots__ = ("fresh", "inner", "member", "view")

    def __init__(self, node: Any, change: Change, size: Size | None = None) -> None:
        found = Sources(change, node.batch_size[: change.consumed] if size is None else size)
        self.view, self.fresh = found.view, found.fresh
        self.member, self.inner = found.along(node.stack_dim)

    def varying(self) -> list[int]:
        """The dimensions of the result along which the member differs."""
        member = self.member
        out = []
        for dim, size in enumerate(member.shape):
            if size > 1 and not torch.equal(member.narrow(dim, 1, size - 1), member.narrow(dim, 0, size - 1)):
                out.append(dim)
        return out

    def members(self, dim: int, count: int) -> list[int]:
        """The member of each place along `dim`; where none is known, that at the same place."""
        size = self.member.shape[dim]
        if not self.member.numel():
            return [place % count for place in range(size)]
        rows = self.member.movedim(dim, 0).reshape(size, -1).amax(1).tolist()
        return [min(place, count - 1) if row < 0 else row for place, row in enumerate(rows)]


def changed(node: Any, change: Change, places: Places | None = None) -> Any:
    """An unlocked container: `node`, a lazy stack, with `change` made to it; `places`, if they are known already."""
    dim, members = node.stack_dim, node.tensordicts
    if dim >= change.consumed:
        parts = [transform(member, change) for member in members]
        return node._like(parts, dim - change.consumed + len(change.prefix))
    if not members:
        return node._like((), 0) if not change.prefix else node._rebuild({}, change.shape(node.batch_size))
    if -1 in node.batch_size[: change.consumed]:
        return picked(node, change) if isinstance(change, Index) else _member_by_member(node, change)
    if change.mixes is not None:
        return _computed(node, change)
    places = places or Places(node, change)
    at = change.origins.index(dim) if dim in change.origins else None
    if not places.fresh:
        varying = places.varying()
        if len(varying) > 1 or (at is not None and varying not in ([], [at])):
            return _mixed(node, change, varying)
        at = varying[0] if varying else at
    if at is None or not change.prefix[at]:
        return _mixed(node, change, []) if places.fresh else _from_one(node, change, places)
    return node._like(_rows(node, change, places, at), at, change.origins[at] == dim)


def _computed(node: Any, change: Change) -> Any:
    """A change that computes: member by member if it does not compute along the stack, else of the stacked leaves."""
    dim = node.stack_dim
    if dim in change.mixes or dim not in change.origins:  # type: ignore[operator]
        return transform(node._dense(True), change)
    at = change.origins.index(dim)
    sub = _inner_change(change, dim, _alone(change, dim, at), at)
    return node._like([transform(member, sub) for member in node.tensordicts], at)


def _selected(result: Any, at: Any) -> Any:
    """The only element of a result along `at`; of a pair, such as values and places, those of both."""
    return result.select(at, 0) if isinstance(result, Tensor) else type(result)([part.select(at, 0) for part in result])


def _member_by_member(node: Any, change: Change) -> Any:
    """A change of a stack with members of unlike batch sizes, each of which is changed by itself.

    Which of them stand where in the result is learned on a stack of as many members of one size. Where each is treated as if it
    were the only one, it is changed so; else as if all members were this one.

    Raises:
        RuntimeError: elements of several members come into one row, or the change needs the size that is not one.
    """
    dim, members, size = node.stack_dim, node.tensordicts, node.batch_size[: change.consumed]
    at = change.origins.index(dim) if dim in change.origins else None
    alone, wide = _alone(change, dim, at), _wide(change, dim, len(members))
    if change.mixes is not None:
        if at is None or dim in change.mixes:
            raise no_one_size(size)
        return node._like(_each_changed(change, dim, at, [(member, alone) for member in members]), at)
    try:
        places = Places(node, change, stand_in(size))
    except (RuntimeError, IndexError, ValueError) as error:
        raise no_one_size(size) from error
    varying = [at] if places.fresh and at is not None else places.varying()
    rest = stand_in((*size[:dim], *size[dim + 1 :]))
    if len(varying) > 1 or (at is not None and varying not in ([], [at])):
        raise no_one_size(size)
    at = varying[0] if varying else at
    if at is None:
        member = members[int(places.member.reshape(-1)[0]) if places.member.numel() else 0]
        return member if places.view and _is_all(places.inner, rest) else _each_changed(change, dim, None, [(member, wide)])[0]
    chosen = [members[which] for which in places.members(at, len(members))]
    named, inner = change.origins[at] == dim, places.inner.movedim(at, 0)
    alike = not places.fresh and torch.equal(inner, inner[:1].expand_as(inner)) and len(inner) > 0
    if alike and places.view and _is_all(inner[0], rest):
        return node._like(chosen, at, named)
    alone = _alone(change, dim, at)
    if alike and _gives(alone, rest, inner[0]):
        rows = [(member, alone) for member in chosen]
    else:
        rows = [(member, _select(wide, at, row)) for row, member in enumerate(chosen)]
    return node._like(_each_changed(change, dim, at, rows), at, named)


def _alone(change: Change, dim: int, at: int | None) -> Any:
    """The change of a leaf of a member, as if this were the only one."""
    leaf = change.leaf
    return lambda value: _selected(leaf(value.unsqueeze(dim)), at)


def _gives(leaf: Any, size: Size, wanted: Tensor) -> bool:
    """Whether the change of a leaf puts the numbers of its elements where they are wanted."""
    try:
        return torch.equal(leaf(numbers(size)), wanted)
    except (RuntimeError, IndexError):  # it needs the other members
        return False


def _is_all(inner: Tensor, size: Size) -> bool:
    """Whether elements are all those of a batch in their order."""
    return inner.shape == size and torch.equal(inner, numbers(size))


def _each_changed(change: Change, dim: int, at: int | None, rows: list[tuple[Any, Any]]) -> list[Any]:
    """What is made of each member by the change of a leaf beside it; the batch size follows from its own."""
    inner, out, known = _inner_change(change, dim, None, at), [], {}
    for member, leaf in rows:
        size = member.batch_size[: inner.consumed]
        if size not in known:
            found = leaf(torch.zeros(()).expand(stand_in(size)))
            known[size] = (found if isinstance(found, Tensor) else found[0]).shape
        out.append(
            transform(member, Change(leaf, inner.consumed, known[size], inner.origins, inner.mixes, inner.shares, inner.fills))
        )
    return out


def _divides(node: Any, change: Change, varying: list[int]) -> bool:
    """Whether a change only divides the stack dimension into several: then the members stay as they are."""
    if not varying:
        return False
    places = Places(node, change)
    inner = places.inner.movedim(varying, list(range(len(varying)))).flatten(0, len(varying) - 1)
    whole = torch.arange(inner[0].numel()).reshape(inner.shape[1:])
    return (
        places.view
        and inner.shape[1:] == node.tensordicts[0].batch_size[: change.consumed - 1]
        and bool((inner == whole).all())
    )


def _mixed(node: Any, change: Change, varying: list[int]) -> Any:
    """The result where elements of one row come from several members: dense, or else a stack of stacks."""
    dense = None if change.shares or _divides(node, change, varying) else node._dense()
    if dense is not None or not varying:
        return transform(node._dense(True) if dense is None else dense, change)
    at = varying[0]
    rows = [changed(node, change.piece(place, at)) for place in range(change.prefix[at])]
    return rows[0]._joined(rows, at, "lazy")


def _inner_change(change: Change, dim: int, leaf: Any, at: int | None) -> Change:
    """What is made of one member: `leaf`, without the dimension `dim` before and, if there is one, `at` afterwards."""
    prefix = list(change.prefix)
    origins = [None if origin is None or origin == dim else origin - (origin > dim) for origin in change.origins]
    if at is not None:
        del prefix[at], origins[at]
    mixes = None if change.mixes is None else [mixed - (mixed > dim) for mixed in change.mixes]
    return Change(leaf, change.consumed - 1, Size(prefix), origins, mixes, change.shares, change.fills)


def _wide(change: Change, dim: int, count: int) -> Any:
    """The change of a leaf of a member, as if all members were this one."""
    leaf = change.leaf

    def call(value: Tensor) -> Tensor:
        value = value.unsqueeze(dim)
        return leaf(value.expand(*value.shape[:dim], count, *value.shape[dim + 1 :]))

    return call


def _from_one(node: Any, change: Change, places: Places) -> Any:
    """The result where all elements come from one member."""
    dim, members = node.stack_dim, node.tensordicts
    member = members[places.members(0, len(members))[0] if places.member.ndim and places.member.numel() else 0]
    if places.member.numel():
        member = members[int(places.member.reshape(-1)[0])]
        if _is_whole(places.inner, member, change.consumed - 1):
            return member if places.view or change.picks else member._cloned()
    return transform(member, _inner_change(change, dim, _wide(change, dim, len(members)), None))


def _is_whole(inner: Tensor, member: Any, consumed: int) -> bool:
    """Whether elements are all those of a member in their order."""
    return _is_all(inner, member.batch_size[:consumed])


def _rows(node: Any, change: Change, places: Places, at: int) -> list[Any]:
    """The members of the result, which is a stack along `at`."""
    dim, members = node.stack_dim, node.tensordicts
    chosen = places.members(at, len(members))
    inner = places.inner.movedim(at, 0)
    alike = len(inner) < 2 or torch.equal(inner[1:], inner[:1].expand_as(inner[1:]))
    shares = places.view or change.picks
    if alike and not places.fresh and _is_whole(inner[0], members[0], change.consumed - 1):
        return [members[which] if shares else members[which]._cloned() for which in chosen]
    if not inner.ndim - 1 and not places.fresh:
        size, numbers = members[0].batch_size, inner.tolist()
        indices = {number: parse(_unravelled(number, size[: change.consumed - 1]), size) for number in set(numbers)}
        return [members[which]._index(indices[number]) for number, which in zip(numbers, chosen)]
    if places.view or places.fresh or not places.member.numel():
        wide = _wide(change, dim, len(members))
        return [
            transform(members[which], _inner_change(change, dim, _select(wide, at, place), at))
            for place, which in enumerate(chosen)
        ]
    return [
        transform(members[which], _inner_change(change, dim, _gather(inner[place], change.consumed - 1), at))
        for place, which in enumerate(chosen)
    ]


def _unravelled(number: int, size: Size) -> tuple[int, ...]:
    """The place along each dimension of the element with this number."""
    at: list[int] = []
    for count in reversed(size):
        number, place = divmod(number, count)
        at.insert(0, place)
    return tuple(at)


def _select(wide: Any, at: int, place: int) -> Any:
    return lambda value: wide(value).select(at, place)


def _gather(inner: Tensor, consumed: int) -> Any:
    """The elements of a leaf at their numbers over its first `consumed` dimensions."""

    def call(value: Tensor) -> Tensor:
        rows = value.flatten(0, consumed - 1) if consumed else value.unsqueeze(0)
        picked = rows.index_select(0, inner.reshape(-1).to(value.device))
        return picked.reshape(*inner.shape, *value.shape[consumed:])

    return call
