"""Writes into a container of parts of itself give what was there before the first of them was written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tensordict import LazyStackedTensorDict, NonTensorData, NonTensorStack, TensorClass, TensorDict, lazy_stack

COUNT = 4
VALUES = torch.arange(12.0).reshape(COUNT, 3)


class Row(TensorClass):
    x: torch.Tensor


def member(number: int) -> TensorDict:
    return TensorDict({"a": VALUES[number].clone(), "o": NonTensorData(f"o{number}"), "below": {"a": VALUES[number] + 100}})


def stack() -> LazyStackedTensorDict:
    return lazy_stack([member(number) for number in range(COUNT)])


def columns() -> LazyStackedTensorDict:
    """Members that lie in gaps of one another, in one storage."""
    own, below = VALUES.T.contiguous(), VALUES.T + 100
    members = [{"a": own[:, n], "o": NonTensorData(f"o{n}"), "below": {"a": below[:, n]}} for n in range(COUNT)]
    return lazy_stack([TensorDict(fields) for fields in members])


def holders() -> LazyStackedTensorDict:
    return lazy_stack([TensorDict({"a": Row(x=VALUES[n].clone()), "o": NonTensorData(f"o{n}")}) for n in range(COUNT)])


def leaf(node: Any) -> torch.Tensor:
    value = node["a"]
    return value if isinstance(value, torch.Tensor) else value.x


def check(node: Any, numbers: list[int]) -> None:
    """Whether the members of a stack are those that were at `numbers`."""
    torch.testing.assert_close(leaf(node), VALUES[numbers])
    assert [one["o"] for one in node.tensordicts] == [f"o{number}" for number in numbers]
    if ("below", "a") in node.keys(True):
        torch.testing.assert_close(node["below", "a"], VALUES[numbers] + 100)


def at(index: Any, source: Any) -> Callable[[Any], Any]:
    return lambda node: node.__setitem__(index, node[source])


def permuted(node: Any, order: list[int]) -> Any:
    return lazy_stack([node.tensordicts[number] for number in order])


ORDER = [2, 0, 1, 3]
# how it is written, and which members are there afterwards
WRITES: dict[str, tuple[Callable[[Any], Any], list[int]]] = {
    "two rows": (at([0, 1], [1, 0]), [1, 0, 2, 3]),
    "a tensor of rows": (at(torch.tensor([0, 1]), torch.tensor([1, 0])), [1, 0, 2, 3]),
    "shift up": (at(slice(1, None), slice(None, -1)), [0, 0, 1, 2]),
    "shift down": (at(slice(None, -1), slice(1, None)), [1, 2, 3, 3]),
    "all": (at(slice(None), ORDER), ORDER),
    "mask": (at(torch.tensor([True, True, False, False]), [1, 0]), [1, 0, 2, 3]),
    "stack": (lambda node: node.__setitem__(slice(None), permuted(node, ORDER)), ORDER),
    "flip": (lambda node: node.__setitem__(slice(None), node.flip(0)), [3, 2, 1, 0]),
    "view of rows": (lambda node: node[1:].__setitem__(slice(None), node[:-1]), [0, 0, 1, 2]),
    "update_": (lambda node: node.update_(node[ORDER]), ORDER),
    "update_ of a view": (lambda node: node[1:].update_(node[:-1]), [0, 0, 1, 2]),
    "copy_": (lambda node: node.copy_(permuted(node, ORDER)), ORDER),
    "update_at_": (lambda node: node.update_at_(node[[1, 0]], [0, 1]), [1, 0, 2, 3]),
    "update": (lambda node: node.update(node[ORDER]), ORDER),
    "update in place": (lambda node: node.update(node[ORDER], inplace=True), ORDER),
    "sub-tensordict": (lambda node: node._get_sub_tensordict(slice(1, None)).update_(node[:-1]), [0, 0, 1, 2]),
}


@pytest.mark.parametrize("make", [stack, columns, holders])
@pytest.mark.parametrize("name", WRITES)
def test_members_are_written_into_others(name: str, make: Callable[[], Any]) -> None:
    write, wanted = WRITES[name]
    node = make()
    write(node)
    check(node, wanted)


@pytest.mark.parametrize("name", WRITES)
def test_members_are_written_into_others_below_a_tensordict(name: str) -> None:
    write, wanted = WRITES[name]
    if name in ("stack", "copy_", "view of rows"):
        pytest.skip("asks for members")
    outer = TensorDict({"w": torch.arange(COUNT), "l": stack()}, [COUNT])
    write(outer)
    check(outer["l"], wanted)
    assert outer["w"].tolist() == wanted


def test_members_that_are_mapped(tmp_path: Path) -> None:
    node = stack().memmap_(tmp_path)
    node[1:] = node[:-1]
    check(node, [0, 0, 1, 2])
    check(TensorDict.load_memmap(tmp_path), [0, 0, 1, 2])


def test_members_with_gradient() -> None:
    weights = torch.ones(2, requires_grad=True)
    node = lazy_stack([TensorDict({"a": weights * number}) for number in (1.0, 2.0)])
    node[[0, 1]] = node[[1, 0]]
    torch.testing.assert_close(node["a"].detach(), torch.tensor([[2.0, 2.0], [1.0, 1.0]]))
    (node["a"] * torch.tensor([[10.0], [1.0]])).sum().backward()
    assert weights.grad is not None
    assert weights.grad.tolist() == [21.0, 21.0]


def test_members_under_vmap() -> None:
    def swap(one: torch.Tensor, two: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        node = lazy_stack([TensorDict({"a": one.clone()}), TensorDict({"a": two.clone()})])
        node[[0, 1]] = node[[1, 0]]
        return node.tensordicts[0]["a"], node.tensordicts[1]["a"]

    one, two = torch.vmap(swap)(VALUES, VALUES + 50)
    torch.testing.assert_close(one, VALUES + 50)
    torch.testing.assert_close(two, VALUES)


def test_a_shift_within_members() -> None:
    node = lazy_stack([TensorDict({"v": torch.arange(3.0), "o": NonTensorStack("a", "b", "c")}, [3]) for _ in range(2)])
    node[:, :2] = node[:, 1:]
    assert node["v"].tolist() == [[1.0, 2.0, 2.0]] * 2
    assert [one.get("o").tolist() for one in node.tensordicts] == [["b", "c", "c"]] * 2


def test_parts_of_jagged_leaves() -> None:
    parts = [
        torch.nested.nested_tensor([torch.full((n,), float(k)), torch.ones(2)], layout=torch.jagged)
        for k, n in ((1, 3), (2, 3))
    ]
    node = lazy_stack([TensorDict({"a": part}, [2]) for part in parts])
    node[[0, 1]] = node[[1, 0]]
    assert [one["a"].values().tolist() for one in node.tensordicts] == [[2.0] * 3 + [1.0] * 2, [1.0] * 3 + [1.0] * 2]


@given(st.lists(st.integers(0, COUNT - 1), min_size=1, max_size=COUNT, unique=True), st.data())
def test_any_rows_from_any_rows(targets: list[int], data: st.DataObject) -> None:
    sources = data.draw(st.lists(st.integers(0, COUNT - 1), min_size=len(targets), max_size=len(targets)))
    wanted = list(range(COUNT))
    for target, source in zip(targets, sources):
        wanted[target] = source
    node = stack()
    node[targets] = node[sources]
    check(node, wanted)


ONES, TWOS = torch.ones(2), torch.full((2,), 2.0)


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ({("m", "b"): ONES, ("m", "c"): TWOS}, {"b": 1.0, "c": 2.0}),
        ({"m": {"b": ONES}, ("m", "c"): TWOS}, {"b": 1.0, "c": 2.0}),
        ({("m", "b"): ONES, "m": {"b": TWOS, "c": ONES}}, {"b": 2.0, "c": 1.0}),
        ({"m": TensorDict({"b": ONES}, [2]), ("m", "c"): TWOS}, {"b": 1.0, "c": 2.0}),
        ({("m", "n", "b"): ONES, ("m", "n", "c"): TWOS, ("m", "d"): ONES}, {("n", "b"): 1.0, ("n", "c"): 2.0, "d": 1.0}),
    ],
)
def test_new_entries_of_one_new_node(value: Any, wanted: dict[Any, float]) -> None:
    td = TensorDict(batch_size=[3])
    td[:2] = value
    found = {key: leaf.tolist() for key, leaf in td["m"].items(True, True)}
    assert found == {key: [number, number, 0.0] for key, number in wanted.items()}


@pytest.mark.parametrize(
    "value",
    [
        {"m": ONES, ("m", "c"): TWOS},
        {("m", "c"): TWOS, "m": ONES},
        {("m", "o"): "s", ("m", "o", "z"): TWOS},
        {("m", "o"): NonTensorStack("p", "q"), ("m", "o", "z"): TWOS},
        {("m", "n", "o"): ONES, ("m", "n", "o", "z"): TWOS},
    ],
)
def test_a_new_node_that_is_a_leaf_too(value: Any) -> None:
    td = TensorDict({"a": torch.zeros(3)}, [3])
    with pytest.raises((RuntimeError, ValueError), match=r"'[mo]'"):
        td[:2] = {"a": ONES, **value}
    assert sorted(td.keys()) == ["a"]
    assert td["a"].tolist() == [0.0] * 3


@pytest.mark.parametrize(
    ("target", "source"),
    [
        ((slice(None), [0, 1]), (slice(None), [1, 1])),
        ((slice(None), [1]), (slice(None), [1])),
        (torch.tensor([1, 0]), torch.tensor([1, 1])),
        (torch.tensor([True, False]), [0]),
        ([1], [1]),
    ],
)
def test_rows_that_come_from_where_they_go(target: Any, source: Any) -> None:
    values = torch.arange(12.0).reshape(2, 3, 2)
    node = lazy_stack([TensorDict({"a": part.clone()}, [3]) for part in values])
    node[target] = node[source]
    wanted = values.clone()
    wanted[target] = values[source]
    torch.testing.assert_close(node["a"], wanted)
