"""What shares tensors shares the objects beside them, and what copies tensors copies them; expected is what tensors do."""

from __future__ import annotations

import pytest
import torch

from tensordict import NonTensorData, NonTensorStack, TensorDict, lazy_stack


def grid() -> TensorDict:
    """Numbers and strings for each of two times two elements, also one level below."""
    numbers, strings = torch.arange(4).view(2, 2), [["a", "b"], ["c", "d"]]
    return TensorDict({"a": numbers, "s": strings, "n": {"b": numbers.clone(), "t": strings}}, [2, 2])


def members(dim: int) -> list[TensorDict]:
    return [row.clone() for row in grid().unbind(dim)]


CONTAINERS = {
    "plain": lambda: grid(),
    "stack": lambda: lazy_stack(members(0), 0),
    "stack along 1": lambda: lazy_stack(members(1), 1),
    "stack of stacks": lambda: lazy_stack([lazy_stack(list(row.unbind(0))) for row in members(0)]),
    "below": lambda: TensorDict({"x": lazy_stack(members(1), 1)}, [2, 2])["x"],
    "class below": lambda: TensorDict({"x": grid()}, [2, 2])["x"],
    "sub": lambda: torch.cat([grid(), grid(), grid()])._get_sub_tensordict(slice(2, 4)),
}

VIEWS = {
    "view": lambda t: t.view(4),
    "view as one": lambda t: t.view(1, 2, 2),
    "view between": lambda t: t.view(2, 1, 2),
    "reshape": lambda t: t.reshape(4),
    "unsqueeze": lambda t: t.unsqueeze(0),
    "unsqueeze between": lambda t: t.unsqueeze(1),
    "unsqueeze last": lambda t: t.unsqueeze(-1),
    "unsqueeze twice": lambda t: t.unsqueeze(0).unsqueeze(-1),
    "squeeze": lambda t: t.unsqueeze(0).squeeze(0),
    "squeeze last": lambda t: t.unsqueeze(-1).squeeze(-1),
    "unflatten": lambda t: t.unflatten(0, (2, 1)),
    "flatten": lambda t: t.flatten(0, 1),
    "transpose": lambda t: t.transpose(0, 1),
    "permute": lambda t: t.unsqueeze(1).permute(1, 2, 0),
    "there and back": lambda t: t.view(4).view(1, 4).view(2, 2),
    "new axis": lambda t: t[None],
    "new axis between": lambda t: t[:, None],
    "expand": lambda t: t.expand(1, 2, 2),
    "rows of a view": lambda t: t.view(4)[1:],
    "row of a view": lambda t: t.unsqueeze(0)[0, 1],
    "column of a view": lambda t: t.unsqueeze(-1)[:, 1],
    "split": lambda t: t.unsqueeze(0).split(1, 1)[1],
}

COPIES = {
    "list": lambda t: t[[0, 1]],
    "mask": lambda t: t[torch.ones(2, 2, dtype=torch.bool)],
    "clone": lambda t: t.view(4).clone(),
    "gather": lambda t: t.unsqueeze(0)[:, torch.tensor([1, 0])],
    "flip": lambda t: t.flip(0),
    "copying reshape": lambda t: t.transpose(0, 1).reshape(4),
    "copying contiguous": lambda t: t.transpose(0, 1).contiguous(),
}


def new(size: torch.Size) -> TensorDict:
    numbers = torch.full(size, 9)
    return TensorDict({"a": numbers, "s": "NEW", "n": {"b": numbers, "t": "NEW"}}, size)


def by_index(view) -> None:
    view[(-1,) * view.ndim] = new(torch.Size([]))


def by_rows(view) -> None:
    view[0] = new(view.batch_size[1:])


def by_ellipsis(view) -> None:
    view[...] = new(view.batch_size)


def by_update(view) -> None:
    view.update_(new(view.batch_size))


def by_update_at(view) -> None:
    view.update_at_(new(torch.Size([])), (-1,) * view.ndim)


def by_set_at(view) -> None:
    for key, value in (("a", 9), ("s", "NEW"), (("n", "b"), 9), (("n", "t"), "NEW")):
        view.set_at_(key, value, (0,) * view.ndim)


WRITES = [by_index, by_rows, by_ellipsis, by_update, by_update_at, by_set_at]


def flat(rows) -> list[str]:
    return [item for row in rows for item in flat(row)] if isinstance(rows, list) else [rows]


def objects(td, key) -> list[str]:
    return flat(td.get(key).tolist())


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("container", CONTAINERS)
def test_a_write_through_a_view(container, view, write):
    td = CONTAINERS[container]()
    write(VIEWS[view](td))
    found = td["a"].flatten().tolist()
    assert 9 in found
    expected = ["NEW" if number == 9 else letter for number, letter in zip(found, "abcd")]
    assert objects(td, "s") == objects(td, ("n", "t")) == expected
    assert td["n", "b"].flatten().tolist() == found


@pytest.mark.parametrize("write", [by_index, by_ellipsis, by_update])
@pytest.mark.parametrize("copy", COPIES)
@pytest.mark.parametrize("container", ["plain", "sub"])
def test_a_write_to_a_copy(container, copy, write):
    td = CONTAINERS[container]()
    write(COPIES[copy](td))
    assert td["a"].flatten().tolist() == [0, 1, 2, 3]
    assert objects(td, "s") == objects(td, ("n", "t")) == list("abcd")


@pytest.mark.parametrize("write", WRITES)
def test_contiguous_leaves(write):
    td = grid()
    out = td.contiguous()
    write(out)
    found = td["a"].flatten().tolist()
    expected = ["NEW" if number == 9 else letter for number, letter in zip(found, "abcd")]
    assert 9 in found
    assert objects(td, "s") == objects(td, ("n", "t")) == expected


def test_contiguous_of_a_locked_tensordict():
    td = grid().lock_()
    out = td.contiguous()
    out["s"] = "x"
    assert td.is_locked
    assert not out.is_locked
    assert objects(td, "s") == list("abcd")


def test_one_element():
    td = TensorDict({"a": torch.tensor(1), "s": "x"}, [])
    td.unsqueeze(0)[0] = TensorDict({"a": torch.tensor(9), "s": "NEW"}, [])
    assert (td["a"].item(), td["s"]) == (9, "NEW")
    td = TensorDict({"a": torch.arange(1), "s": ["x"]}, [1])
    td.squeeze(0).update_(TensorDict({"a": torch.tensor(9), "s": "NEW"}, []))
    assert (td["a"].tolist(), list(td["s"])) == ([9], ["NEW"])


@pytest.mark.parametrize(("size", "wide"), [([1], (3,)), ([1], (3, 1)), ([2], (3, 2)), ([1, 2], (3, 2))])
def test_rows_of_an_expanded_batch_are_apart(size, wide):
    count = torch.Size(size).numel()
    strings = [f"{place}" for place in range(count)]
    td = TensorDict({"s": [strings] if len(size) > 1 else strings}, size)
    out = td.expand(*wide)
    out[(0,) * out.ndim] = TensorDict({"s": "NEW"}, [])
    assert objects(out, "s") == ["NEW", *(strings * 3)[1:]]
    assert objects(td, "s") == strings


def test_one_object_for_all_has_no_place_for_that_of_an_element():
    td = TensorDict({"a": torch.arange(4), "s": "x"}, [4])
    out = td.view(2, 2)
    out[0, 0] = TensorDict({"a": torch.tensor(9), "s": "NEW"}, [])
    assert out.get("s").tolist() == [["NEW", "x"], ["x", "x"]]
    assert td["s"] == "x"
    stack = NonTensorStack(NonTensorData("x", batch_size=[2]), NonTensorData("y", batch_size=[2]))
    td = TensorDict({"s": stack}, [2, 2])
    td.view(4)[3] = TensorDict({"s": "NEW"}, [])
    assert td.get("s").tolist() == [["x", "x"], ["y", "y"]]


@pytest.mark.parametrize("write", [by_index, by_rows, by_ellipsis, by_update, by_update_at])
@pytest.mark.parametrize("view", sorted(VIEWS.keys() - {"row of a view", "column of a view"}))
def test_a_view_of_a_mapped_tensordict_refuses_before_anything_changes(tmp_path, view, write):
    td = grid().memmap(tmp_path)
    out = VIEWS[view](td)
    with pytest.raises(RuntimeError, match="memmaped parent NonTensorStack"):
        write(out)
    for found in (td, TensorDict.load_memmap(tmp_path)):
        assert found["a"].tolist() == found["n", "b"].tolist() == [[0, 1], [2, 3]]
        assert objects(found, "s") == objects(found, ("n", "t")) == list("abcd")
    for key in ("s", ("n", "t")):
        with pytest.raises(RuntimeError, match="memmaped parent NonTensorStack"):
            out.get(key).update_(NonTensorData("NEW"))
    td[0, 1] = new(torch.Size([]))
    assert objects(TensorDict.load_memmap(tmp_path), "s") == ["a", "NEW", "c", "d"]


def test_contiguous_of_a_mapped_tensordict_writes_the_file(tmp_path):
    td = grid().memmap(tmp_path)
    td.contiguous()[0, 1] = new(torch.Size([]))
    found = TensorDict.load_memmap(tmp_path)
    assert found["a"].tolist() == [[0, 9], [2, 3]]
    assert objects(found, "s") == objects(td, "s") == ["a", "NEW", "c", "d"]
