"""Views at an index: whatever is written into them is written into the rows of the parent."""

from __future__ import annotations

import gc

import pytest
import torch

from tensordict import TensorDict

INDICES = {
    "int": 1,
    "slice": slice(1, 4, 2),
    "rows": torch.tensor([3, 0]),
    "list": [3, 0],
    "mask": torch.tensor([True, False, False, True]),
    "column": (slice(None), 1),
    "pairs": (torch.tensor([3, 0]), torch.tensor([1, 2])),
}


def parent() -> TensorDict:
    return TensorDict({"a": torch.arange(24.0).reshape(4, 3, 2) + 1, "n": {"x": torch.arange(12.0).reshape(4, 3) + 1}}, [4, 3])


@pytest.fixture(params=INDICES)
def index(request):
    return INDICES[request.param]


def at(td, index):
    key = torch.tensor(index) if isinstance(index, list) else index
    return td["a"][key], td["n", "x"][key]


def wanted(index, change):
    """The leaves of a parent whose rows at the index were changed."""
    td = parent()
    key = torch.tensor(index) if isinstance(index, list) else index
    for leaf in (td["a"], td["n", "x"]):
        leaf[key] = change(leaf[key])
    return td


def equal(td, other):
    assert torch.equal(td["a"], other["a"])
    assert torch.equal(td["n", "x"], other["n", "x"])


def test_reads(index):
    td = parent()
    sub = td._get_sub_tensordict(index)
    assert sub.get_parent_tensordict() is td
    assert sub.batch_size == td[index].batch_size
    assert torch.equal(sub["a"], at(td, index)[0])
    assert torch.equal(sub["n", "x"], at(td, index)[1])
    assert set(sub.keys(True)) == {"a", "n", ("n", "x")}
    assert ("n", "x") in sub


WRITES = {
    "zero_": lambda sub: sub.zero_(),
    "mul_": lambda sub: sub.mul_(0),
    "mul_ tensordict": lambda sub: sub.mul_(sub.clone().zero_()),
    "lerp_": lambda sub: sub.lerp_(sub.clone().zero_(), 1.0),
    "apply_": lambda sub: sub.apply_(torch.zeros_like),
    "apply_ in place": lambda sub: sub.apply_(lambda leaf: leaf.zero_()),
    "fill_": lambda sub: sub.fill_("a", 0).fill_("n", 0),
    "set_": lambda sub: sub.set_("a", sub["a"] * 0).set_(("n", "x"), sub["n", "x"] * 0),
    "set": lambda sub: sub.set("a", sub["a"] * 0).set(("n", "x"), sub["n", "x"] * 0),
    "set inplace": lambda sub: sub.set("a", sub["a"] * 0, inplace=True).set("n", sub["n"] * 0, inplace=True),
    "update": lambda sub: sub.update(sub.clone().zero_()),
    "update inplace": lambda sub: sub.update(sub.clone().zero_(), inplace=True),
    "update_": lambda sub: sub.update_(sub.clone().zero_()),
    "copy_": lambda sub: sub.copy_(sub.clone().zero_()),
    "update_at_": lambda sub: sub.update_at_(sub.clone().zero_(), slice(None)),
    "set_at_": lambda sub: sub.set_at_("a", 0, slice(None)).set_at_(("n", "x"), 0, slice(None)),
    "index": lambda sub: sub.__setitem__(slice(None), 0),
    "node": lambda sub: (sub.set_("a", sub["a"] * 0), sub["n"].zero_()),
}


@pytest.mark.parametrize("write", WRITES)
def test_writes(write, index):
    td = parent()
    leaf = td["n", "x"]
    sub = td._get_sub_tensordict(index)
    WRITES[write](sub)
    equal(td, wanted(index, torch.zeros_like))
    assert td["n", "x"] is leaf


def test_new_entries(index):
    td = parent()
    sub = td._get_sub_tensordict(index)
    sub["new"] = torch.ones(*sub.batch_size, 5)
    sub["n", "new"] = torch.ones(sub.batch_size)
    sub["p", "q"] = torch.ones(sub.batch_size)
    count = sub.batch_size.numel()
    assert td["new"].shape == (4, 3, 5)
    assert td["new"].sum() == count * 5
    assert td["n", "new"].sum() == td["p", "q"].sum() == count
    equal(td, parent())
    sub["node"] = TensorDict({"x": torch.ones(*sub.batch_size, 5, 2)}, [*sub.batch_size, 5])
    assert td["node"].batch_size == (4, 3, 5)
    assert sub["node"].batch_size == (*sub.batch_size, 5)
    sub["node"] = {"x": torch.zeros(*sub.batch_size, 5, 2)}
    assert td["node", "x"].sum() == 0


def test_structure_is_that_of_the_parent():
    td = parent()
    sub = td._get_sub_tensordict([0, 2])
    sub.rename_key_("a", "b")
    assert torch.equal(td["b"], parent()["a"])
    assert sub.pop("b").shape == (2, 3, 2)
    assert "b" not in td


def test_results_are_plain(index):
    sub = parent()._get_sub_tensordict(index)
    for out in (
        sub + 1,
        sub.clone(),
        sub.select("n"),
        sub.exclude("a"),
        sub[:1],
        sub.to_tensordict(),
        sub == sub,
        sub.unsqueeze(0),
    ):
        assert type(out) is TensorDict
        assert all(type(node) is TensorDict for node in out.values() if not isinstance(node, torch.Tensor))


def test_nodes_with_more_batch_dimensions():
    td = TensorDict({"m": TensorDict({"y": torch.ones(4, 3, 2, 5)}, [4, 3, 2])}, [4, 3])
    sub = td._get_sub_tensordict((..., torch.tensor([2, 0])))
    assert sub["m"].batch_size == (4, 2, 2)
    sub.zero_()
    assert td["m", "y"].sum() == 40
    sub["m", "y"] = torch.ones(4, 2, 2, 5)
    sub["m", "new"] = torch.ones(4, 2, 2)
    assert td["m", "new"].sum() == 16
    assert td["m", "y"].sum() == 120
    sub.update_({"m": {"y": torch.zeros(4, 2, 2, 5)}})
    sub.set_at_("m", 3, 0)
    assert td["m", "y"].sum() == 40 + 3 * 20


def test_shallow_clone():
    td = parent()
    sub = td._get_sub_tensordict(0)
    other = sub.clone(recurse=False)
    assert type(other) is type(sub)
    other["new"] = torch.ones(3)
    assert "new" not in td


def test_lock_is_that_of_the_parent():
    td = parent()
    sub = td._get_sub_tensordict(0)
    with sub.unlock_() as inner:
        assert inner is sub
    with pytest.raises(RuntimeError, match="parent tensordict instead"):
        sub.lock_()
    with pytest.raises(RuntimeError, match="parent tensordict instead"):
        sub.is_locked = True
    td.lock_()
    assert sub.is_locked
    with pytest.raises(RuntimeError, match="locked"):
        sub["new"] = torch.ones(3)
    sub.zero_()
    assert not td["a"][0].any()


def test_shared_state_cannot_be_set():
    sub = parent()._get_sub_tensordict(0)
    with pytest.raises(RuntimeError):
        sub.batch_size = []
    with pytest.raises(RuntimeError):
        sub.names = ["x"]


def test_refused():
    with pytest.raises(IndexError):
        parent()._get_sub_tensordict(9)
    td = parent()
    sub = td._get_sub_tensordict([0, 2])
    with pytest.raises(RuntimeError):
        sub.update_({"a": torch.zeros(2, 3, 2), "n": {"x": torch.zeros(7)}})
    equal(td, parent())


def test_view_keeps_its_parent():
    sub = parent()._get_sub_tensordict(0)
    gc.collect()
    assert sub["a"].shape == (3, 2)
