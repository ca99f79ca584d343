"""Writes that fail change nothing, in memory and on disk, and those that are planned member by member do what they say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tensordict import (
    LazyStackedTensorDict,
    NonTensorData,
    NonTensorStack,
    TensorClass,
    TensorDict,
    lazy_stack,
)


class Row(TensorClass):
    x: torch.Tensor
    y: torch.Tensor | None = None


def values(node: Any) -> Any:
    """All that a tree holds, member by member, as numbers, lists and objects."""
    if isinstance(node, torch.Tensor):
        return node.tolist()
    if isinstance(node, NonTensorStack):
        return node.tolist()
    if isinstance(node, NonTensorData):
        return node.data
    if isinstance(node, LazyStackedTensorDict):
        return [values(member) for member in node.unbind(node.stack_dim)]
    return None if node is None else {key: values(node.get(key)) for key in sorted(node.keys())}


def numbers(value: float, **more: Any) -> TensorDict:
    """Two rows of numbers, with entries before and behind them that would be written first or last."""
    return TensorDict({"a": torch.full((2,), value), **more, "z": torch.full((2,), value)}, [2])


def unlike_shapes(value: float) -> Any:
    return lazy_stack([TensorDict({"q": torch.full((size,), value)}) for size in (2, 3)])


def unlike_keys(value: float) -> Any:
    first = TensorDict({"q": torch.full((2,), value)})
    return lazy_stack([first, TensorDict({"q": torch.full((2,), value), "r": torch.full((2,), value)})])


def rows(value: float, *shape: int) -> Any:
    return Row(x=torch.full((2,), value), y=torch.full((2, *shape), value), batch_size=[2])


def no_pickle() -> Any:
    return lambda: 0


def _set_rows(index: Any) -> Callable[[Any, Any], None]:
    return lambda td, source: td.__setitem__(index, source)


Do = Callable[[Any, Any], Any]
UPDATE: Do = lambda td, source: td.update_(source)  # noqa: E731
IN_PLACE: Do = lambda td, source: td.update(source, inplace=True)  # noqa: E731
ADD: Do = lambda td, source: td.add_(source)  # noqa: E731

# what is written to, what is written, how
MISFITS: dict[str, tuple[Callable[[], Any], Callable[[], Any], Do]] = {
    "a row of another length": (
        lambda: numbers(0, k=unlike_shapes(0)),
        lambda: numbers(5, k=unlike_shapes(5))[1:],
        _set_rows([0]),
    ),
    "one row": (lambda: numbers(0, k=unlike_shapes(0)), lambda: numbers(5, k=unlike_shapes(5))[1], _set_rows(0)),
    "rows in another order": (
        lambda: numbers(0, k=unlike_shapes(0)),
        lambda: numbers(5, k=unlike_shapes(5))[[1, 0]],
        _set_rows(slice(None)),
    ),
    "rows of other classes": (lambda: numbers(0, k=rows(0)), lambda: numbers(5, k=rows(5, 3)), _set_rows([0, 1])),
    "update_ of rows": (lambda: numbers(0, k=unlike_shapes(0)), lambda: numbers(5, k=unlike_shapes(5))[[1, 0]], UPDATE),
    "update_ with a key that is not there": (
        lambda: numbers(0, k=unlike_keys(0)),
        lambda: numbers(5, k=unlike_keys(5))[[1, 0]],
        UPDATE,
    ),
    "update_ of a class": (lambda: numbers(0, k=rows(0)), lambda: numbers(5, k=rows(5, 3)), UPDATE),
    "a stack at all rows": (lambda: unlike_shapes(0), lambda: unlike_shapes(5)[[1, 0]], _set_rows(slice(None))),
    "a stack in place": (lambda: unlike_shapes(0), lambda: unlike_shapes(5)[[1, 0]], IN_PLACE),
    "a sum": (lambda: unlike_shapes(0), lambda: unlike_shapes(5)[[1, 0]], ADD),
    "a sum of plain leaves": (
        lambda: TensorDict({"a": torch.zeros(2), "b": torch.zeros(3)}),
        lambda: TensorDict({"a": torch.ones(2), "b": torch.ones(4)}),
        ADD,
    ),
    "a tensor in the place of objects": (
        lambda: numbers(0, s=NonTensorStack("a", "b")),
        lambda: numbers(5, s=torch.ones(2)),
        UPDATE,
    ),
    "objects in the place of a tensor": (
        lambda: numbers(0, s=torch.ones(2)),
        lambda: numbers(5, s=NonTensorStack("a", "b")),
        _set_rows([0, 1]),
    ),
    "too few objects": (
        lambda: numbers(0, s=NonTensorStack("a", "b")),
        lambda: {"a": torch.ones(2), "s": ["only one"], "z": torch.ones(2)},
        _set_rows([0, 1]),
    ),
}


@pytest.mark.parametrize("kind", ["memory", "locked", "mapped"])
@pytest.mark.parametrize("name", MISFITS)
def test_a_misfit_changes_nothing(name: str, kind: str, tmp_path: Path) -> None:
    make, source, do = MISFITS[name]
    td = make()
    if kind == "mapped":
        td.memmap_(tmp_path)
    elif kind == "locked":
        td.lock_()
    before = values(td)
    with pytest.raises((RuntimeError, KeyError)):
        do(td, source())
    assert values(td) == before
    if kind == "mapped":
        assert values(TensorDict.load_memmap(tmp_path)) == before


OBJECTS: dict[str, tuple[Callable[[], Any], Callable[[], Any], Do]] = {
    "one for all": (lambda: NonTensorData("a", batch_size=[2]), lambda: NonTensorData(no_pickle(), batch_size=[2]), UPDATE),
    "one row of a holder": (
        lambda: NonTensorData("a", batch_size=[2]),
        lambda: NonTensorStack(no_pickle(), "b"),
        _set_rows([0, 1]),
    ),
    "one row of a stack": (lambda: NonTensorStack("a", "b"), lambda: NonTensorStack("c", no_pickle()), _set_rows([0, 1])),
    "a stack": (lambda: NonTensorStack("a", "b"), lambda: NonTensorStack("c", no_pickle()), UPDATE),
    "in place": (lambda: NonTensorStack("a", "b"), lambda: NonTensorStack("c", no_pickle()), IN_PLACE),
}


@pytest.mark.parametrize("name", OBJECTS)
def test_objects_that_cannot_be_written_to_their_file_are_put_back(name: str, tmp_path: Path) -> None:
    make, value, do = OBJECTS[name]
    # the first could be written, the second cannot
    td = numbers(0, r=NonTensorStack("x", "y"), s=make()).memmap_(tmp_path)
    before = values(td)
    with pytest.raises(AttributeError, match="pickle"):
        do(td, numbers(5, r=NonTensorStack("v", "w"), s=value()))
    assert values(td) == before
    assert values(TensorDict.load_memmap(tmp_path)) == before
    do(td, numbers(5, r=NonTensorStack("v", "w"), s=NonTensorStack("c", "d")))
    assert (
        values(TensorDict.load_memmap(tmp_path))
        == values(td)
        == values(numbers(5, r=NonTensorStack("v", "w"), s=NonTensorStack("c", "d")))
    )


@pytest.mark.parametrize("make", [unlike_keys, unlike_shapes])
@pytest.mark.parametrize("write", ["update_", "copy_", "update", "in place", "rows", "row", "at"])
@pytest.mark.parametrize("nested", [False, True])
def test_stacks_of_unlike_members_are_written_member_by_member(make: Any, write: str, nested: bool) -> None:
    td = TensorDict({"k": make(0)}, [2]) if nested else make(0)
    source = TensorDict({"k": make(5)}, [2]) if nested else make(5)
    if write == "in place":
        td.update(source, inplace=True)
    elif write == "rows":
        td[:] = source
    elif write == "row":
        td[1], td[0] = source[1], source[0]
    elif write == "at":
        td.update_at_(source[1:], slice(1, 2)).update_at_(source[0], 0)
    else:
        getattr(td, write)(source)
    assert values(td) == values(source)


# A handle of a save in whose place another one came.


def saved(path: Path, count: int, first: int) -> Any:
    made = TensorDict(
        {"a": torch.arange(count) + first, "t": NonTensorStack(*[f"t{first + row}" for row in range(count)])}, [count]
    )
    return made.memmap(path)


OLD_HANDLES: list[Callable[[Any], Any]] = [
    lambda td: td.__setitem__(0, TensorDict({"a": torch.tensor(7), "t": "seven"})),
    lambda td: td.get("t").__setitem__(0, "seven"),
    lambda td: td["t"].__setitem__(0, "seven"),
    lambda td: td.update_({"t": NonTensorStack("x", "y", "z")}),
]


@pytest.mark.parametrize("count", [3, 4])
@pytest.mark.parametrize("write", OLD_HANDLES, ids=["row", "object", "list", "update_"])
def test_an_old_handle_does_not_write_objects_into_a_later_save(
    count: int, write: Callable[[Any], Any], tmp_path: Path
) -> None:
    old = saved(tmp_path, 3, 0)
    new = saved(tmp_path, count, 100)
    before = values(old)
    with pytest.raises(RuntimeError, match="later save"):
        write(old)
    assert values(old) == before
    assert values(TensorDict.load_memmap(tmp_path)) == values(new)
    new[0] = TensorDict({"a": torch.tensor(7), "t": "seven"})
    assert values(TensorDict.load_memmap(tmp_path))["t"] == ["seven", *[f"t{100 + row}" for row in range(1, count)]]


def test_a_handle_whose_files_are_some_of_those_there_writes_its_objects(tmp_path: Path) -> None:
    td = saved(tmp_path, 3, 0)
    td.memmap_(tmp_path)  # keeps the files of the leaves that are mapped from there
    td.make_memmap("b", (3,))
    other = TensorDict.load_memmap(tmp_path)
    other.memmap_(tmp_path)
    for number, handle in enumerate((td, other)):
        handle[0] = TensorDict({"t": f"by {number}"})
        assert values(TensorDict.load_memmap(tmp_path))["t"] == [f"by {number}", "t1", "t2"]


# One node at several places of a tree.


@pytest.mark.parametrize(
    ("make", "where"),
    [
        (lambda node: TensorDict({"a": node, "n": {"b": node}}, [2]), r"\('n', 'b'\)"),
        (lambda node: lazy_stack([node, node]), "'1'"),
        (lambda node: TensorDict({"a": node, "b": rows(0).update(rows(1)), "c": node}, [2]), "'c'"),
    ],
    ids=["nested", "stack", "beside others"],
)
def test_one_node_at_two_places_is_not_mapped_in_place(make: Callable[[Any], Any], where: str, tmp_path: Path) -> None:
    td = make(TensorDict({"x": torch.zeros(2)}, [2]))
    with pytest.raises(RuntimeError, match=f"at {where} is the one at .* too"):
        td.memmap_(tmp_path)
    assert not td.is_memmap()
    assert list(tmp_path.iterdir()) == []
    mapped = td.memmap(tmp_path)
    assert values(mapped) == values(td) == values(TensorDict.load_memmap(tmp_path))


@pytest.mark.parametrize("locked", [False, True])
def test_one_holder_at_two_places_becomes_one_for_each_file(locked: bool, tmp_path: Path) -> None:
    holder, stack = NonTensorData("s"), NonTensorStack("x", "y")
    td = TensorDict({"a": holder, "b": holder, "c": torch.zeros(2), "d": stack, "e": stack}, [2])
    if locked:
        td.lock_()
    td.memmap_(tmp_path)
    td.update_({"b": "new"})
    td[0] = TensorDict({"e": "first"})
    assert values(td) == {"a": "s", "b": "new", "c": [0.0, 0.0], "d": ["x", "y"], "e": ["first", "y"]}
    assert values(TensorDict.load_memmap(tmp_path)) == values(td)
    assert td.is_locked
    assert td.get("b").is_locked


def test_a_holder_that_comes_into_a_stack_leaves_its_own_folder(tmp_path: Path) -> None:
    holder = NonTensorData("s")
    TensorDict({"a": holder, "c": torch.zeros(2)}).memmap_(tmp_path / "one")
    td = TensorDict({"a": NonTensorStack(holder, NonTensorData("t")), "c": torch.zeros(2)}, [2]).memmap_(tmp_path / "two")
    td[0] = TensorDict({"a": "new"})
    assert values(TensorDict.load_memmap(tmp_path / "one"))["a"] == "s"
    assert values(TensorDict.load_memmap(tmp_path / "two"))["a"] == ["new", "t"]


def test_rows_of_a_stack_of_objects_are_updated(tmp_path: Path) -> None:
    stack = torch.stack([NonTensorStack("a", "b"), NonTensorStack("c", "d")])
    stack.memmap_(tmp_path)
    stack.update_at_(NonTensorData("x"), (0, 1))
    stack.update_at_(NonTensorStack("y", "z"), 1)
    assert stack.tolist() == TensorDict.load_memmap(tmp_path).tolist() == [["a", "x"], ["y", "z"]]


def test_a_stack_of_one_object_is_written_into_a_holder() -> None:
    holder = NonTensorData("a")
    holder[True] = NonTensorStack("b")
    holder[None] = NonTensorStack("c")
    assert holder.data == "c"
