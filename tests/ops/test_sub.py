"""Views at an index: whatever is written into them is written into the rows of the parent."""

from __future__ import annotations

import gc
import importlib
import json

import numpy as np
import pytest
import torch

from containers import same
from tensordict import TensorDict, lazy_stack

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


class TestObjects:
    def make(self):
        td = TensorDict({"a": torch.zeros(3, 2), "one": "x", "many": ["p", "q", "r"], "n": {"many": ["u", "v", "w"]}}, [3])
        return td, td._get_sub_tensordict(slice(1, 3))

    def test_read(self):
        td, view = self.make()
        assert view["one"] == "x"
        assert view["many"] == ["q", "r"]
        assert view["n", "many"] == ["v", "w"]
        assert view.get("many").batch_size == (2,)
        assert td._get_sub_tensordict(2)["many"] == "r"
        assert td._get_sub_tensordict(torch.tensor([2, 0]))["many"] == ["r", "p"]

    def test_write(self):
        td, view = self.make()
        view["many"] = ["y", "z"]
        assert td["many"] == ["p", "y", "z"]
        view["new"] = "o"
        assert view["new"] == "o"
        view.set_non_tensor(("this", "one"), "t")
        assert view["this", "one"] == "t"


def test_a_tensor_does_not_replace_a_tensordict():
    td = TensorDict({"n": {"a": torch.zeros(3)}}, [3])
    view = td._get_sub_tensordict(slice(1, 3))
    with pytest.raises(ValueError, match="replace a tensordict"):
        view.update({"n": torch.ones(2)})
    assert td["n", "a"].tolist() == [0, 0, 0]


def test_arrays_are_written_at_an_index():
    td = TensorDict({"a": torch.zeros(3, 2)}, [3])
    td._get_sub_tensordict(slice(1, 3)).set_at_("a", np.array([5.0, 6.0]), 1)
    assert td["a"].tolist() == [[0, 0], [0, 0], [5, 6]]


def test_vmap():
    td = TensorDict({"a": torch.arange(6.0).reshape(3, 2), "n": {"b": torch.arange(3)}}, [3])
    out = torch.vmap(lambda row: row + 1)(td._get_sub_tensordict(slice(1, 3)))
    assert type(out) is TensorDict
    assert out["a"].tolist() == [[3, 4], [5, 6]]
    assert out["n", "b"].tolist() == [2, 3]


@pytest.mark.parametrize(
    "remove",
    [
        lambda td: td.select("a", inplace=True),
        lambda td: td.exclude("a", inplace=True),
        lambda td: td.flatten_keys(inplace=True),
        lambda td: td.unflatten_keys(inplace=True),
    ],
)
def test_entries_are_not_removed_from_the_parent(remove):
    td = TensorDict({"a": torch.zeros(3), "n": {"b": torch.zeros(3)}}, [3])
    with pytest.raises(RuntimeError, match="in place"):
        remove(td._get_sub_tensordict(slice(2)))
    assert set(td.keys(True)) == {"a", "n", ("n", "b")}


def test_batch_size_cannot_be_given():
    with pytest.raises(TypeError, match="batch-size"):
        TensorDict({"a": torch.zeros(3)}, [3])._get_sub_tensordict(slice(2)).to(batch_size=[])


@pytest.mark.parametrize(
    ("index", "stored"),
    [
        (slice(0, 3, 2), ["tuple", [["slice", {"start": 0, "stop": 3, "step": 2}]]]),
        ([0, 2], ["tuple", [["list", [0, 2]]]]),
        (range(1, 3), ["tuple", [["range", {"start": 1, "stop": 3, "step": 1}]]]),
        (torch.tensor([2, 0]), ["tuple", [["tensor", [2, 0], "cpu"]]]),
        (torch.tensor([True, False, True]), ["tuple", [["tensor", [True, False, True], "cpu"]]]),
        ((None, 1), ["tuple", [None, 1]]),
        (True, ["tuple", [True]]),
        (..., ["tuple", [["ellipsis"]]]),
    ],
)
def test_folders_of_views_are_read(index, stored, tmp_path):
    td = TensorDict({"a": torch.arange(6.0).reshape(3, 2), "n": {"b": torch.arange(3)}}, [3])
    td.memmap(tmp_path / "_source")
    kind = "<class 'tensordict._td._SubTensorDict'>"
    metadata = {"_type": kind, "_format_version": 1, "_class": "tensordict._td:_SubTensorDict", "index": stored}
    (tmp_path / "meta.json").write_text(json.dumps(metadata))
    view = TensorDict.load_memmap(tmp_path)
    assert type(view).__name__ == "_SubTensorDict"
    same(view, td._get_sub_tensordict(index))
    same(view, td[index])


@pytest.mark.parametrize("stored", [None, ["tuple", [["other", 1]]], ["tuple", 3], ["tuple", [["slice", {}]]], "x"])
def test_folders_of_views_without_an_index(stored, tmp_path):
    TensorDict({"a": torch.zeros(3)}, [3]).memmap(tmp_path / "_source")
    metadata = {"_type": "<class 'tensordict._td._SubTensorDict'>", "index": stored}
    (tmp_path / "meta.json").write_text(json.dumps(metadata))
    with pytest.raises(ValueError, match="index"):
        TensorDict.load_memmap(tmp_path)


@pytest.mark.parametrize("write", ["update", "in place", "update_", "rows"])
def test_rows_of_a_stack_of_unlike_members(write):
    stack = lazy_stack([TensorDict({"a": torch.zeros(size)}) for size in (2, 3, 4)])
    source = lazy_stack([TensorDict({"a": torch.full((size,), float(size))}) for size in (3, 4)])
    view = stack._get_sub_tensordict(slice(1, None))
    if write == "rows":
        view[:] = source
    elif write == "update_":
        view.update_(source)
    else:
        view.update(source, inplace=write == "in place")
    assert [part["a"].tolist() for part in stack.tensordicts] == [[0.0] * 2, [3.0] * 3, [4.0] * 4]


def test_the_class_is_found_where_programs_look_for_it() -> None:
    view = TensorDict({"a": torch.arange(3)}, [3])._get_sub_tensordict(slice(1))
    assert type(view).__module__ == "tensordict._td"
    assert importlib.import_module("tensordict._td")._SubTensorDict is type(view)
