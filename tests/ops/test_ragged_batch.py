"""Lazy stacks of members of unlike batch sizes: what an index, a write or a change means for each member by its own size.

Expected values come from lists, which may be ragged as the stacks are, or are those of the other package.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tensordict
from tensordict import LazyStackedTensorDict, NonTensorData, NonTensorStack, TensorClass, TensorDict, lazy_stack

LENGTHS = st.lists(st.integers(1, 4), min_size=2, max_size=4)


def episode(length: int, start: int = 0) -> TensorDict:
    return TensorDict({"r": torch.arange(length) + start, "n": {"b": torch.ones(length, 2)}}, [length])


def table(rows: int, columns: int, start: int = 0) -> TensorDict:
    return TensorDict({"r": torch.arange(rows * columns).view(rows, columns) + start}, [rows, columns])


def episodes(*lengths: int, dim: int = 0) -> LazyStackedTensorDict:
    return lazy_stack([episode(length, 10 * place) for place, length in enumerate(lengths)], dim)


def values(td: Any, key: Any = "r") -> Any:
    """The entry of each member, in lists nested as stacks are."""
    if isinstance(td, (list, tuple)):
        return [values(part, key) for part in td]
    if hasattr(td, "tensordicts"):
        return [values(member, key) for member in td.tensordicts]
    return td.get(key).tolist()


def lists(lengths: list[int]) -> list[list[int]]:
    return [list(range(10 * place, 10 * place + length)) for place, length in enumerate(lengths)]


class Step(TensorClass):
    r: torch.Tensor
    tag: str = "old"


# Reads.


@pytest.mark.parametrize(
    ("index", "wanted", "size"),
    [
        ((0, 2), 2, []),
        ((-1, -1), 10, []),
        ((slice(None), 0), [0, 10], [2]),
        ((slice(None), -1), [2, 10], [2]),
        ((..., 0), [0, 10], [2]),
        ((slice(None), [0]), [[0], [10]], [2, 1]),
        ((slice(None), None), [[[0, 1, 2]], [[10]]], [2, 1, -1]),
        (None, [[[0, 1, 2]], [[10]]], [1, 2, -1]),
        (True, [[[0, 1, 2]], [[10]]], [1, 2, -1]),
        (([0, 1], [2, 0]), [2, 10], [2]),
        (([0, 1, 0], -1), [2, 10, 2], [3]),
        (([[0, 1], [1, 0]], [[2, 0], [0, 1]]), [[2, 10], [10, 1]], [2, 2]),
        ([1, 0], [[10], [0, 1, 2]], [2, -1]),
        (torch.tensor([[0, 1], [1, 0]]), [[[0, 1, 2], [10]], [[10], [0, 1, 2]]], [2, 2, -1]),
        (torch.tensor([True, False]), [[0, 1, 2]], [1, 3]),
        (torch.tensor(0), [0, 1, 2], [3]),
        ((slice(None), slice(1, None)), [[1, 2], []], [2, -1]),
        ((slice(None), slice(None, None, 2)), [[0, 2], [10]], [2, -1]),
        ((slice(1, None), slice(-1, None)), [[10]], [1, 1]),
    ],
)
def test_index(index: Any, wanted: Any, size: list[int]) -> None:
    found = episodes(3, 1)[index]
    assert found.batch_size == torch.Size(size)
    assert values(found) == wanted


@pytest.mark.parametrize(
    ("index", "wanted", "size"),
    [
        ((0,), [0, 10], [2]),
        ((slice(None), 0), [0, 1, 2], [3]),
        ((-1, -1), 10, []),
        (([0, 0], [1, 0]), [10, 0], [2]),
        ([0], [[0], [10]], [1, 2]),
        ((slice(None), [1, 0]), [[10], [0, 1, 2]], [-1, 2]),
        ((None, slice(None), 1), [[10]], [1, 1]),
    ],
)
def test_index_of_a_stack_along_the_last_dimension(index: Any, wanted: Any, size: list[int]) -> None:
    found = episodes(3, 1, dim=1)[index]
    assert found.batch_size == torch.Size(size)
    assert values(found) == wanted


@pytest.mark.parametrize(
    ("index", "wanted", "size"),
    [
        ((slice(None), 0), [[0, 1, 2], [100, 101, 102]], [2, 3]),
        ((slice(None), slice(None), 2), [[2, 5], [102]], [2, -1]),
        ((slice(None), [0], [1]), [[1], [101]], [2, 1]),
        (([0, 1], slice(None), 0), [[0, 3], [100]], [2, -1]),
        (([0, 1], slice(None), [2, 0]), [[2, 5], [100]], [2, -1]),
        (([1, 0], [0, -1]), [[100, 101, 102], [3, 4, 5]], [2, 3]),
        (([1], None, slice(None), [0]), [[[100]]], [1, 1, 1]),
    ],
)
def test_index_of_members_of_two_dimensions(index: Any, wanted: Any, size: list[int]) -> None:
    found = lazy_stack([table(2, 3), table(1, 3, 100)])[index]
    assert found.batch_size == torch.Size(size)
    assert values(found) == wanted


def test_index_with_tensors_around_the_stack_dimension() -> None:
    stack = lazy_stack([table(2, 3), table(2, 1, 100)], 1)
    assert values(stack[[0, 1], :, [0, 0]]) == [[0, 3], [100, 101]]
    dense = torch.arange(24).view(2, 3, 2, 2)
    inner = lazy_stack([TensorDict({"r": dense}, [2, 3, 2, 2]), TensorDict({"r": dense[:, :, :, :1]}, [2, 3, 2, 1])], 2)
    with pytest.raises(RuntimeError, match="both sides of the stack dimension"):
        inner[:, [0, 1], :, [0, 1]]


@pytest.mark.parametrize("index", [(0, 3), (slice(None), 1), ([0, 1], [0, 1]), (slice(None), [1]), (2,), [2], ([0, 2], [0, 0])])
def test_an_index_out_of_bounds_of_one_member(index: Any) -> None:
    stack = episodes(3, 1)
    with pytest.raises(IndexError):
        stack[index]
    with pytest.raises(IndexError):
        stack[index] = 0
    assert values(stack) == lists([3, 1])


def test_a_mask_over_a_dimension_without_one_size() -> None:
    with pytest.raises(IndexError, match="mask"):
        episodes(3, 1)[:, torch.tensor([True, False])]


@pytest.mark.parametrize("index", [[], slice(0, 0), torch.tensor([False, False])])
def test_no_members(index: Any) -> None:
    found = episodes(3, 1)[index]
    assert found.batch_size == torch.Size([0, 3])
    assert found["r"].shape == (0, 3)


def test_stacks_of_stacks() -> None:
    stack = lazy_stack([episodes(3, 1), episodes(2, 2)])
    assert stack.batch_size == torch.Size([2, 2, -1])
    assert values(stack[:, 0]) == [[0, 1, 2], [0, 1]]
    assert values(stack[..., -1]) == [[2, 10], [1, 11]]
    assert values(stack[1, 0, 1]) == 1
    assert values(stack[[1, 0], [0, 1]]) == [[0, 1], [10]]
    assert values(stack.unbind(0)) == values(list(stack)) == [[[0, 1, 2], [10]], [[0, 1], [10, 11]]]
    assert values(stack.unbind(1)) == [[[0, 1, 2], [0, 1]], [[10], [10, 11]]]
    assert values(stack.unsqueeze(1)) == [[[[0, 1, 2]], [[10]]], [[[0, 1]], [[10, 11]]]]
    assert stack.flatten(0, 1).batch_size == torch.Size([4, -1])
    assert stack.reshape(-1)["r"].tolist() == [0, 1, 2, 10, 0, 1, 10, 11]


def test_tensorclasses() -> None:
    stack = lazy_stack([Step(r=torch.arange(n), batch_size=[n]) for n in (3, 1)])
    assert [type(part) for part in stack] == [Step, Step]
    assert values(stack[:, 0]) == [0, 0]
    assert values([*stack.unbind(0)]) == [[0, 1, 2], [0]]
    deep = lazy_stack([stack, stack[:, :1]])
    assert [part.batch_size for part in deep] == [torch.Size([2, -1]), torch.Size([2, 1])]
    assert [part.batch_size for part in deep.split(1)] == [torch.Size([1, 2, -1]), torch.Size([1, 2, 1])]


@settings(max_examples=60, deadline=None)
@given(LENGTHS, st.data())
def test_reads_and_writes_are_those_of_lists(lengths: list[int], data: st.DataObject) -> None:
    stack, rows = episodes(*lengths), lists(lengths)
    shortest = min(lengths)
    member = st.integers(-len(lengths), len(lengths) - 1)
    column = st.integers(-shortest, shortest - 1)
    ends = st.one_of(st.none(), st.integers(-3, 3))
    cut = st.builds(slice, ends, ends)
    which: Any = data.draw(st.one_of(member, cut, st.lists(member, min_size=1, max_size=4)))
    where: Any = data.draw(st.one_of(column, cut))
    chosen = [list(range(len(rows)))[which]] if isinstance(which, int) else which
    numbers = list(range(len(rows)))[chosen] if isinstance(chosen, slice) else chosen
    wanted: Any = [rows[number][where] for number in numbers]
    if numbers:
        assert values(stack[which, where]) == (wanted[0] if isinstance(which, int) else wanted)
    stack[which, where] = -1
    for number in numbers:
        size = len(rows[number])
        for place in range(size)[where] if isinstance(where, slice) else [where]:
            rows[number][place] = -1
    assert values(stack) == rows


# Writes.


def test_whole_writes() -> None:
    stack = episodes(3, 1)
    stack[:] = stack * 2
    assert values(stack) == [[0, 2, 4], [20]]
    stack[...] = stack.clone() + 1
    assert values(stack) == [[1, 3, 5], [21]]
    stack[:] = {"r": 7}
    assert values(stack) == [[7, 7, 7], [7]]
    stack[:] = 0
    assert values(stack) == [[0, 0, 0], [0]]
    assert values(stack, ("n", "b")) == [[[0, 0]] * 3, [[0, 0]]]


@pytest.mark.parametrize("index", [[0], torch.tensor([True, False]), slice(0, 1), 0, (0,), (0, slice(None))])
def test_writes_into_one_member(index: Any) -> None:
    stack = episodes(3, 1)
    stack[index] = stack[index] * 0 - 1
    assert values(stack) == [[-1, -1, -1], [10]]
    stack[index] = 5
    assert values(stack) == [[5, 5, 5], [10]]


def test_writes_into_elements() -> None:
    stack = episodes(3, 1)
    stack[[1, 0], [0, 2]] = TensorDict({"r": torch.tensor([7, 8])}, [2])
    assert values(stack) == [[0, 1, 8], [7]]
    stack[:, -1] = TensorDict({"r": torch.tensor([1, 2])}, [2])
    assert values(stack) == [[0, 1, 1], [2]]
    stack[:, :1] = torch.tensor([[5], [6]])
    assert values(stack) == [[5, 1, 1], [6]]
    stack[[0, 0], [1, 2]] = {"r": torch.tensor([3, 4])}
    assert values(stack) == [[5, 3, 4], [6]]


def test_of_several_rows_for_one_member_the_last_stays() -> None:
    stack = episodes(2, 1)
    rows = [TensorDict({"r": torch.full([2], number)}, [2]) for number in (5, 6)]
    stack[[0, 0]] = lazy_stack(rows)
    assert values(stack) == [[6, 6], [10]]


def test_rows_at_an_index_of_the_methods() -> None:
    stack = episodes(3, 1)
    stack.set_at_("r", 5, (0, 1))
    assert values(stack) == [[0, 5, 2], [10]]
    stack.set_at_("r", 6, (slice(None), -1))
    assert values(stack) == [[0, 5, 6], [6]]
    stack.update_at_({"r": 1}, 1)
    assert values(stack) == [[0, 5, 6], [1]]
    assert stack.get_at("r", (0, 1)) == 5
    with pytest.raises(KeyError):
        stack.set_at_("gone", 1, 0)


@pytest.mark.parametrize(
    "value",
    [
        lambda stack: lazy_stack([episode(2), episode(2)]),
        lambda stack: stack[:1],
        lambda stack: stack[[1, 0]],
        lambda stack: torch.zeros(3),
        lambda stack: TensorDict({"r": torch.zeros(2, 2)}, [2, 2]),
    ],
)
def test_a_write_that_does_not_fit_changes_nothing(value: Callable[[Any], Any]) -> None:
    stack = episodes(3, 1)
    with pytest.raises(RuntimeError):
        stack[:] = value(stack) - 5
    assert values(stack) == lists([3, 1])


def test_numbers_out_of_bounds_of_a_later_member_change_nothing() -> None:
    stack = episodes(3, 1, dim=1)
    with pytest.raises(IndexError):
        stack[[1, 0]] = 0
    assert values(stack) == lists([3, 1])


def test_a_tensordict_that_holds_one() -> None:
    td = TensorDict({"x": episodes(3, 1, 2), "y": torch.arange(3)}, [3])
    td[:1] = td[:1] * 0 - 1
    td[torch.tensor([False, False, True])] = 5
    assert values(td["x"]) == [[-1, -1, -1], [10], [5, 5]]
    assert td["y"].tolist() == [-1, 1, 5]
    td[:] = td.clone()
    assert values(td[[2, 0]]["x"]) == [[5, 5], [-1, -1, -1]]
    assert values(torch.cat([td, td[:1]])["x"]) == [[-1, -1, -1], [10], [5, 5], [-1, -1, -1]]
    assert values(torch.stack([td[:2], td[:2]])["x"]) == [[[-1, -1, -1], [-1, -1, -1]], [[10], [10]]]
    assert values(td.flip(0)["x"]) == [[5, 5], [10], [-1, -1, -1]]
    assert td.reshape(3, 1)["x"].batch_size == torch.Size([3, 1, -1])


# Objects.

OBJECTS: list[Any] = ["run1", None, Path("a"), (1, "a"), b"x"]


@pytest.mark.parametrize("value", OBJECTS)
@pytest.mark.parametrize(
    "store",
    [
        lambda stack, value: stack.__setitem__("tag", value),
        lambda stack, value: stack.set("tag", value),
        lambda stack, value: stack.set("tag", NonTensorData(value)),
        lambda stack, value: stack.set("tag", NonTensorData(value, batch_size=[2])),
        lambda stack, value: stack.set_non_tensor("tag", value),
        lambda stack, value: stack.update({"tag": value}),
        lambda stack, value: stack.update(stack.replace({"tag": value})),
        lambda stack, value: stack.setdefault("tag", value),
        lambda stack, value: stack.set("tag", "other").set("tag", value, inplace=True),
        lambda stack, value: stack.set("tag", "other").update_({"tag": value}),
    ],
)
def test_objects(store: Callable[[Any, Any], Any], value: Any) -> None:
    for stack in (episodes(3, 1), episodes(3, 1, dim=1), lazy_stack([table(2, 3), table(4, 5)])):
        store(stack, value)
        assert [part["tag"] for part in stack.tensordicts] == [value, value]
        assert [part.get("tag").batch_size for part in stack.tensordicts] == [part.batch_size for part in stack.tensordicts]
        assert stack.tensordicts[0][0, ...]["tag"] == value


def test_objects_in_nested_nodes() -> None:
    stack = episodes(3, 1)
    stack["n", "tag"] = "a"
    stack["new", "deep", "tag"] = "b"
    stack["dict"] = {"tag": "c"}
    for part in stack.tensordicts:
        assert (part["n", "tag"], part["new", "deep", "tag"], part["dict", "tag"]) == ("a", "b", "c")
        assert part["new", "deep"].batch_size == part["dict"].batch_size == part.batch_size
    deep = lazy_stack([episodes(3, 1), episodes(2, 2)])
    deep["tag"] = "d"
    assert deep.get("tag").tolist() == [[["d"] * 3, ["d"]], [["d"] * 2, ["d"] * 2]]


def test_lists_are_dealt_among_the_rows_of_an_index() -> None:
    for lengths in ((3, 1), (2, 2)):
        stack = episodes(*lengths)
        stack["tag"] = "a"
        stack[:, 0] = {"tag": ["p", "q"], "r": [5, 6]}
        assert [part.get("tag").tolist() for part in stack] == [["p", *"a" * (lengths[0] - 1)], ["q", *"a" * (lengths[1] - 1)]]
        assert [part["r"][0].item() for part in stack] == [5, 6]
        stack[:] = {"tag": ["u", "v"]}
        assert stack.get("tag").tolist() == [["u"] * lengths[0], ["v"] * lengths[1]]
    stack = episodes(2, 2)
    for index in (slice(None), [0, 1]):
        stack[index] = {"r": [[1, 2], [3, 4]]}
        assert values(stack) == [[1, 2], [3, 4]]


def test_objects_on_disk(tmp_path: Path) -> None:
    stack = episodes(3, 1)
    stack["tag"] = "run1"
    stack.memmap(tmp_path)
    assert [part["tag"] for part in TensorDict.load_memmap(tmp_path)] == ["run1", "run1"]


def test_objects_of_tensorclasses() -> None:
    stack = lazy_stack([Step(r=torch.zeros(n), batch_size=[n]) for n in (3, 2)])
    assert stack.tag == [["old"] * 3, ["old"] * 2]
    stack.tag = "new"
    assert [part.tag for part in stack] == ["new", "new"]
    stack.tag = ["u", "v"]
    assert [part.tag for part in stack] == ["u", "v"]


def test_an_object_for_each_member_or_element() -> None:
    stack = episodes(3, 1)
    stack["tag"] = ["u", "v"]
    assert [part["tag"] for part in stack] == ["u", "v"]
    stack["tag"] = [["a", "b", "c"], ["d"]]
    assert stack["tag"] == [["a", "b", "c"], ["d"]]
    stack["tag"][0][1] = "z"
    assert stack.get("tag").tolist() == [["a", "z", "c"], ["d"]]
    stack[:, 0] = {"tag": "first"}
    assert stack.get("tag").tolist() == [["first", "z", "c"], ["first"]]
    stack[1] = {"tag": "all"}
    assert stack.get("tag").tolist() == [["first", "z", "c"], ["all"]]


def test_objects_are_shown_element_by_element() -> None:
    for lengths in ((3, 2), (3, 3)):
        stack = lazy_stack([TensorDict({"s": text}, [n]) for text, n in zip("xy", lengths)])
        assert stack["s"] == stack.get("s").tolist() == [["x"] * lengths[0], ["y"] * lengths[1]]


def test_stacks_of_objects() -> None:
    stack = lazy_stack([NonTensorStack("a", "b"), NonTensorStack("c")])
    assert stack.tolist() == [["a", "b"], ["c"]]
    assert stack[0, 1].data == "b"
    assert stack[:, 0].tolist() == ["a", "c"]
    assert stack[[1, 0]].tolist() == [["c"], ["a", "b"]]
    deep = lazy_stack([stack, lazy_stack([NonTensorStack("d"), NonTensorStack("e")])])
    assert deep.tolist() == [[["a", "b"], ["c"]], [["d"], ["e"]]]
    rows = lazy_stack([Step(r=torch.zeros(()), tag=text, batch_size=[]) for text in "ab"])
    assert len(lazy_stack([rows, rows[:1]]).tolist()) == 2


def test_writes_into_stacks_of_objects() -> None:
    stack = lazy_stack([NonTensorStack("a", "b"), NonTensorStack("c")])
    stack[0, 1] = "x"
    assert stack.tolist() == [["a", "x"], ["c"]]
    stack[:, 0] = ["y", "z"]
    assert stack.tolist() == [["y", "x"], ["z"]]
    stack[0] = ["p", "q"]
    assert stack.tolist() == [["p", "q"], ["z"]]
    stack.update(lazy_stack([NonTensorStack("1", "2"), NonTensorStack("3")]))
    assert stack.tolist() == [["1", "2"], ["3"]]
    stack.update([["4", "5"], ["6"]])
    assert stack.tolist() == [["4", "5"], ["6"]]
    with pytest.raises(RuntimeError):
        stack[:] = lazy_stack([NonTensorStack("1", "2"), NonTensorStack("3", "4", "5")])
    assert stack.tolist() == [["4", "5"], ["6"]]
    stack.update("all")
    assert stack.data == "all"


def test_writes_into_held_stacks_of_objects(tmp_path: Path) -> None:
    td = TensorDict({"s": lazy_stack([NonTensorStack("a", "b"), NonTensorStack("c")])}, [2])
    td["s"][0][1] = "x"
    assert td["s"] == [["a", "x"], ["c"]]
    td[1] = TensorDict({"s": NonTensorStack("y")}, [])
    assert td["s"] == [["a", "x"], ["y"]]
    td[:] = td[[0, 1]].clone()
    td.update_({"s": [["p", "q"], ["r"]]})
    assert td["s"] == [["p", "q"], ["r"]]
    td.memmap_(tmp_path)
    td["s"][0][0] = "z"
    assert TensorDict.load_memmap(tmp_path)["s"] == [["z", "q"], ["r"]]
    with pytest.raises(RuntimeError, match="has no one size"):
        td == td  # noqa: B015


# Entries.


@pytest.mark.parametrize(
    "value",
    [
        [torch.zeros(3), torch.ones(1)],
        [[0.0, 0.0, 0.0], [1.0]],
        torch.nested.nested_tensor([torch.zeros(3), torch.ones(1)], layout=torch.jagged),
    ],
)
def test_an_entry_for_each_member(value: Any) -> None:
    stack = episodes(3, 1)
    stack["q"] = value
    stack.update({"p": value})
    assert values(stack, "q") == values(stack, "p") == [[0, 0, 0], [1]]


def test_entries_of_features() -> None:
    stack = episodes(3, 1)
    stack["q"] = [torch.zeros(3, 2), torch.ones(1, 2)]
    assert [part["q"].shape for part in stack] == [torch.Size([3, 2]), torch.Size([1, 2])]
    stack.set_("r", [torch.tensor([4, 5, 6]), torch.tensor([7])])
    assert values(stack) == [[4, 5, 6], [7]]
    stack.update({"r": [torch.tensor([1, 2, 3]), torch.tensor([4])]})
    assert values(stack) == [[1, 2, 3], [4]]
    stack.set("r", [torch.tensor([1, 1, 1]), torch.tensor([5])], inplace=True)
    stack.update({"r": [torch.tensor([1, 2, 3]), torch.tensor([4])]}, inplace=True)
    with pytest.raises(RuntimeError):
        stack.set("r", [torch.tensor([7, 7, 7]), torch.tensor([5, 6])], inplace=True)
    assert values(stack) == [[1, 2, 3], [4]]
    stack.create_nested("new")
    assert [part["new"].batch_size for part in stack] == [torch.Size([3]), torch.Size([1])]
    stack["copy"] = stack.select("r")
    assert values(stack["copy"]) == [[1, 2, 3], [4]]


@pytest.mark.parametrize(
    "value", [[torch.zeros(2), torch.ones(1)], [torch.zeros(3)], torch.zeros(2), 1, lazy_stack([episode(2), episode(5)])]
)
def test_an_entry_that_does_not_fit(value: Any) -> None:
    stack = episodes(3, 1)
    with pytest.raises(RuntimeError):
        stack["q"] = value
    assert all("q" not in part for part in stack)


def test_keys_and_prints_read_no_values() -> None:
    stack = lazy_stack([lazy_stack([TensorDict({"a": torch.arange(k)}, []) for k in (1, 2)]) for _ in range(2)])
    assert list(stack.keys(True, True)) == ["a"]
    assert "a: " in repr(stack)
    assert "a: " in str(TensorDict({"x": stack}, [2]))
    assert stack.sum(reduce=True) == 2
    assert list(lazy_stack([stack, stack]).keys(True, True)) == ["a"]


def test_members_come_in() -> None:
    stack = episodes(3, 1)
    stack.append(episode(2))
    stack.insert(0, episode(5))
    assert [part.batch_size[0] for part in stack] == [5, 3, 1, 2]
    stack.extend(episodes(1, 4))
    stack.extend([episode(6)])
    assert [part.batch_size[0] for part in stack] == [5, 3, 1, 2, 1, 4, 6]
    with pytest.raises(ValueError, match="Batch sizes"):
        stack.append(table(2, 2))
    columns = lazy_stack([table(2, 3), table(4, 3)])
    with pytest.raises(ValueError, match="Batch sizes"):
        columns.append(table(2, 4))
    columns.append(table(5, 3))
    assert columns.batch_size == torch.Size([3, -1, 3])


# Changes.


@pytest.mark.parametrize(
    ("change", "size", "wanted"),
    [
        (lambda stack: stack.unsqueeze(0), [1, 2, -1], [[[0, 1, 2]], [[10]]]),
        (lambda stack: stack.unsqueeze(1), [2, 1, -1], [[[0, 1, 2]], [[10]]]),
        (lambda stack: stack.unsqueeze(-1), [2, -1, 1], [[[0], [1], [2]], [[10]]]),
        (lambda stack: stack.unsqueeze(1).squeeze(1), [2, -1], [[0, 1, 2], [10]]),
        (lambda stack: stack.squeeze(), [2, -1], [[0, 1, 2], [10]]),
        (lambda stack: stack[:1].squeeze(0), [3], [0, 1, 2]),
        (lambda stack: stack.transpose(0, 1), [-1, 2], [[0, 1, 2], [10]]),
        (lambda stack: stack.permute(1, 0), [-1, 2], [[0, 1, 2], [10]]),
        (lambda stack: stack.expand(2, 2, -1), [2, 2, -1], [[[0, 1, 2]] * 2, [[10]] * 2]),
        (lambda stack: stack.repeat_interleave(2, 0), [4, -1], [[0, 1, 2], [0, 1, 2], [10], [10]]),
        (lambda stack: stack.repeat_interleave(torch.tensor([1, 2]), 0), [3, -1], [[0, 1, 2], [10], [10]]),
        (lambda stack: stack.repeat_interleave(2, 1), [2, -1], [[0, 0, 1, 1, 2, 2], [10, 10]]),
        (lambda stack: stack.repeat(2, 1), [4, -1], [[0, 1, 2], [10], [0, 1, 2], [10]]),
        (lambda stack: stack.repeat(1, 2), [2, -1], [[0, 1, 2, 0, 1, 2], [10, 10]]),
        (lambda stack: stack.flip(0), [2, -1], [[10], [0, 1, 2]]),
        (lambda stack: stack.flip(1), [2, -1], [[2, 1, 0], [10]]),
        (lambda stack: stack.roll(2, 1), [2, -1], [[1, 2, 0], [10]]),
        (lambda stack: stack.rot90(), [-1, 2], [[2, 1, 0], [10]]),
        (lambda stack: stack.roll(1, 0), [2, -1], [[10], [0, 1, 2]]),
        (lambda stack: stack.narrow(0, 1, 1), [1, 1], [[10]]),
        (lambda stack: tensordict.pad(stack, [0, 0, 1, 1]), [2, -1], [[0, 0, 1, 2, 0], [0, 10, 0]]),
        (lambda stack: stack.sum(1), [2], [3, 10]),
        (lambda stack: stack.clone().reshape(stack.batch_size), [2, -1], [[0, 1, 2], [10]]),
        (lambda stack: torch.cat([stack, stack[:1]]), [3, -1], [[0, 1, 2], [10], [0, 1, 2]]),
        (lambda stack: torch.cat([stack, stack], 1), [2, -1], [[0, 1, 2, 0, 1, 2], [10, 10]]),
        (lambda stack: torch.stack([stack, stack]), [2, 2, -1], [[[0, 1, 2]] * 2, [[10]] * 2]),
    ],
)
def test_changes(change: Callable[[Any], Any], size: list[int], wanted: Any) -> None:
    found = change(episodes(3, 1))
    assert found.batch_size == torch.Size(size)
    assert values(found) == wanted
    deep = values(found, ("n", "b"))
    while isinstance(wanted, list):
        deep, wanted = deep[0], wanted[0]
    assert len(deep) == 2


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        (lambda stack: stack.reshape(-1), [0, 1, 2, 10]),
        (lambda stack: stack.flatten(), [0, 1, 2, 10]),
        (lambda stack: stack.flatten(0, 1), [0, 1, 2, 10]),
        (lambda stack: stack.reshape(2, 2), [[0, 1], [2, 10]]),
        (lambda stack: stack.repeat_interleave(2), [0, 0, 1, 1, 2, 2, 10, 10]),
    ],
)
def test_one_dimension_of_all_elements(change: Callable[[Any], Any], wanted: list[Any]) -> None:
    assert change(episodes(3, 1))["r"].tolist() == wanted


def test_dimensions_are_merged() -> None:
    stack = lazy_stack([table(2, 3), table(2, 1, 100)], 1)
    assert stack.batch_size == torch.Size([2, 2, -1])
    assert values(stack.flatten(0, 1)) == [[0, 1, 2], [100], [3, 4, 5], [101]]
    assert stack.flatten(1, 2)["r"].tolist() == [[0, 1, 2, 100], [3, 4, 5, 101]]
    assert stack.reshape(-1)["r"].tolist() == [0, 1, 2, 100, 3, 4, 5, 101]
    rows = lazy_stack([table(2, 3), table(1, 3, 100)])
    assert rows.flatten(0, 1)["r"].tolist() == [[0, 1, 2], [3, 4, 5], [100, 101, 102]]
    assert values(rows.flatten(1, 2)) == [[0, 1, 2, 3, 4, 5], [100, 101, 102]]
    assert values(lazy_stack([table(1, 2), table(2, 1, 10)]).flatten(0, 1)) == [[0, 1], [10], [11]]


def test_pieces() -> None:
    stack = episodes(3, 1, 2)
    assert values(stack.split(2)) == values(stack.chunk(2)) == [[[0, 1, 2], [10]], [[20, 21]]]
    assert values(stack.split([1, 2])) == [[[0, 1, 2]], [[10], [20, 21]]]
    assert values(stack.tensor_split([1])) == [[[0, 1, 2]], [[10], [20, 21]]]
    columns = lazy_stack([table(2, 3), table(1, 3, 100)])
    assert values(columns.chunk(2, -1)) == [[[[0, 1], [3, 4]], [[100, 101]]], [[[2], [5]], [[102]]]]
    assert values(columns.unbind(2)) == [[[0, 3], [100]], [[1, 4], [101]], [[2, 5], [102]]]


def test_numbers_of_elements() -> None:
    assert episodes(3, 1).numel() == 4
    assert lazy_stack([table(2, 3), table(4, 5)]).numel() == 26
    stack = episodes(3, 1)
    assert stack.select("r").sum(reduce=True) == 13
    assert stack.select("r").max(reduce=True) == 10
    assert TensorDict({"x": stack.select("r"), "y": torch.tensor([1, 1])}, [2]).sum(reduce=True) == 15


@pytest.mark.parametrize(
    "change",
    [
        lambda stack: stack.unbind(1),
        lambda stack: stack.unbind(-1),
        lambda stack: stack.split(1, 1),
        lambda stack: stack.split([1, 2], 1),
        lambda stack: stack.chunk(2, 1),
        lambda stack: stack.tensor_split(2, 1),
        lambda stack: stack.narrow(1, 0, 1),
        lambda stack: stack.unflatten(1, (1, -1)),
        lambda stack: stack.view(-1),
        lambda stack: stack.view(4),
        lambda stack: stack.repeat_interleave(torch.tensor([1, 2, 3]), 1),
        lambda stack: stack.sum(0),
        lambda stack: stack.roll(1),
    ],
)
def test_what_needs_the_size_says_which_dimension_has_none(change: Callable[[Any], Any]) -> None:
    with pytest.raises(RuntimeError, match=r"the dimension 1 of the batch size \[2, -1\] has no one size"):
        change(episodes(3, 1))


def test_elements_without_an_order() -> None:
    with pytest.raises(RuntimeError, match="the dimension 0 "):
        episodes(3, 1, dim=1).reshape(-1)
