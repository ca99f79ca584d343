"""The containers that tests run on, and what holds for every tensordict."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from pairs import Pairs, pairs_of
from tensordict import (
    LazyStackedTensorDict,
    NonTensorData,
    NonTensorStack,
    TensorClass,
    TensorCollection,
    TensorDict,
    TensorDictBase,
    TypedTensorDict,
    is_non_tensor,
)

BATCH = (4, 3)


def _leaf(*shape: int, start: float = 0.0) -> Tensor:
    """Different numbers, some of them negative, none of them zero."""
    return torch.linspace(-2, 3, torch.Size(shape).numel()).reshape(shape) + start + 0.013


def flat() -> TensorDict:
    return TensorDict({"a": _leaf(4, 3), "b": _leaf(4, 3, 2), "c": _leaf(4, 3, 1, 2, start=1)}, BATCH)


def nested() -> TensorDict:
    """Nodes with as many and with more batch dimensions, and an empty one."""
    return TensorDict(
        {
            "a": _leaf(4, 3, 2),
            "n": {"x": _leaf(4, 3), "m": TensorDict({"y": _leaf(4, 3, 2, 5), "z": _leaf(4, 3, 2)}, (4, 3, 2)), "e": {}},
        },
        BATCH,
    )


def locked() -> TensorDict:
    return nested().lock_()


def named() -> TensorDict:
    td = nested()
    td.names = ["rows", "columns"]
    return td


def placed() -> TensorDict:
    """With a device."""
    return TensorDict(nested(), BATCH, device="cpu")


def strided() -> TensorDict:
    """Leaves that are not contiguous."""
    return TensorDict({"a": _leaf(3, 4).T, "n": {"x": _leaf(4, 3, 8)[..., ::2], "y": _leaf(1, 1, 2).expand(4, 3, 2)}}, BATCH)


def view() -> TensorDictBase:
    """A view at a slice: the leaves are views too."""
    parent = TensorDict({"a": _leaf(6, 3, 2), "n": {"x": _leaf(6, 3)}}, (6, 3))
    return parent._get_sub_tensordict(slice(1, 5))


def gathered() -> TensorDictBase:
    """A view at a list of rows: the leaves are copies, writes go to the parent."""
    parent = TensorDict({"a": _leaf(6, 3, 2), "n": {"x": _leaf(6, 3)}}, (6, 3))
    return parent._get_sub_tensordict(torch.tensor([5, 0, 3, 1]))


def _members(count: int, *batch: int) -> list[TensorDict]:
    """Of the same keys and shapes."""
    return [
        TensorDict(
            {"a": _leaf(*batch, 2, start=place), "n": {"x": _leaf(*batch, start=2 * place), "y": _leaf(*batch, 1, 3)}}, batch
        )
        for place in range(count)
    ]


def stacked() -> TensorDictBase:
    return LazyStackedTensorDict(*_members(4, 3), stack_dim=0)


def stacked_last() -> TensorDictBase:
    return LazyStackedTensorDict(*_members(3, 4), stack_dim=1)


def stacked_unlike() -> TensorDictBase:
    """Members of unlike keys: those that only some have are in no result."""
    members = _members(3, 4)
    members[0]["only"] = _leaf(4)
    members[1]["n", "only"] = _leaf(4, 5)
    return LazyStackedTensorDict(*members, stack_dim=1)


def stacked_twice() -> TensorDictBase:
    rows = [LazyStackedTensorDict(*_members(3), stack_dim=0) for _ in range(4)]
    return LazyStackedTensorDict(*rows, stack_dim=0)


def holds_stack() -> TensorDictBase:
    """A stack below, along a batch dimension of the parent, and one along a dimension of its own."""
    return TensorDict(
        {"a": _leaf(4, 3), "s": stacked_last(), "t": LazyStackedTensorDict(*_members(2, 4, 3), stack_dim=2)}, BATCH
    )


class Inner(TensorClass):
    x: Tensor
    m: TensorDict | None = None


class Outer(TensorClass):
    a: Tensor
    n: Inner
    unset: Tensor | None = None


class Typed(TypedTensorDict):
    a: Tensor
    n: TensorDict


def tensorclass() -> Outer:
    """With a tensorclass and a tensordict in it."""
    m = TensorDict({"y": _leaf(4, 3, 2, 5), "z": _leaf(4, 3, 2)}, (4, 3, 2))
    inner = Inner(_leaf(4, 3), m, batch_size=BATCH)
    return Outer(_leaf(4, 3, 2), inner, batch_size=BATCH)


def holder() -> TensorDict:
    """A tensordict that holds tensorclasses."""
    return TensorDict({"a": _leaf(4, 3, 2), "n": Inner(_leaf(4, 3), batch_size=BATCH)}, BATCH)


def typed() -> Typed:
    """A typed tensordict."""
    return Typed(nested().select("a", "n"), batch_size=BATCH)


def objects() -> TensorDictBase:
    """Strings beside tensors: one for the batch, one for each element; alike, so that reductions have an answer."""
    rows = [NonTensorStack("u", "u", "u") for _ in range(4)]
    return TensorDict(
        {"a": _leaf(4, 3, 2), "s": "x", "n": {"x": _leaf(4, 3), "t": NonTensorStack(*rows), "o": NonTensorData({"k": 1})}},
        BATCH,
    )


def pairs() -> Pairs:
    """Entries in a list of pairs: a container written by the methods of the waist alone."""
    return pairs_of(nested())


# A later container adds a line here and is tested with every row.
CONTAINERS: dict[str, Callable[[], Any]] = {
    maker.__name__: maker
    for maker in (
        *(flat, nested, locked, named, placed, strided, view, gathered),
        *(stacked, stacked_last, stacked_unlike, stacked_twice, holds_stack, objects),
        *(tensorclass, holder, typed, pairs),
    )
}
# What is read from these is a copy.
STACKS = ("stacked", "stacked_last", "stacked_unlike", "stacked_twice", "holds_stack")
PLAIN = [name for name in CONTAINERS if name not in ("strided", "view", "gathered", *STACKS)]


def leaves(td: Any) -> dict[tuple[str, ...], Tensor]:
    """The leaves by path, read entry by entry."""
    out = {}
    for key, value in td.items():
        if is_non_tensor(value):
            continue
        if isinstance(value, TensorCollection):
            out.update({(key, *path): leaf for path, leaf in leaves(value).items()})
        else:
            out[(key,)] = value
    return out


def nodes(td: Any) -> dict[tuple[str, ...], Any]:
    """The nodes by path, the tensordict itself at the empty one."""
    out = {(): td}
    for key, value in td.items():
        if isinstance(value, TensorCollection) and not is_non_tensor(value):
            out.update({(key, *path): node for path, node in nodes(value).items()})
    return out


def check(td: Any) -> None:
    """What holds for every tensordict: batch sizes, names, devices and locks agree with those of all nodes below."""
    batch, names = td.batch_size, td.names
    assert type(batch) is torch.Size
    assert len(names) == len(batch)
    for value in td.values():
        assert value.shape[: len(batch)] == batch
        if isinstance(value, TensorCollection):
            assert value.names[: len(batch)] == names
            assert value.is_locked or not td.is_locked
            if td.device is not None:
                assert value.device == td.device
            check(value)
        elif td.device is not None:
            assert value.device == td.device


def same(left: Any, right: Any) -> None:
    """The same keys, batch sizes and leaves (dtype and values), at any depth."""
    assert set(nodes(left)) == set(nodes(right))
    for path, node in nodes(left).items():
        assert node.batch_size == nodes(right)[path].batch_size, path
    mine, others = leaves(left), leaves(right)
    assert set(mine) == set(others)
    for path, leaf in mine.items():
        torch.testing.assert_close(leaf, others[path], rtol=0, atol=0, equal_nan=True, msg=str(path))


def _identities(found: Callable[[Any], dict[tuple[str, ...], Any]], td: Any) -> dict[tuple[str, ...], int | None]:
    """What tells an entry from another one; None for entries that are made anew each time they are read."""
    first, second = found(td), found(td)
    return {path: id(entry) if second[path] is entry else None for path, entry in first.items()}


def snapshot(td: Any) -> Any:
    """What a failing write must leave alone: the entries themselves, their values, and the state of each node."""
    return (
        _identities(leaves, td),
        {path: leaf.clone() for path, leaf in leaves(td).items()},
        _identities(nodes, td),
        {path: (node.batch_size, node.names, list(node.keys()), node.is_locked) for path, node in nodes(td).items()},
    )


def unchanged(td: Any, before: Any) -> None:
    now = snapshot(td)
    for mine, earlier in zip(now[::2], before[::2]):
        assert mine == earlier
    assert now[3] == before[3]
    assert now[1].keys() == before[1].keys()
    for path, value in before[1].items():
        assert torch.equal(now[1][path], value), path
