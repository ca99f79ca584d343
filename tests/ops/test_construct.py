"""Construction: what is stored, what is converted, what is refused."""

from __future__ import annotations

import collections
import copy
from typing import ClassVar

import numpy as np
import pytest
import torch

import tensordict
from containers import check, nested, same
from tensordict import TensorDict


class TestInit:
    @pytest.mark.parametrize("size", [[3], (3,), torch.Size([3]), 3, torch.tensor([3])])
    def test_batch_size_forms(self, size):
        td = TensorDict({"a": torch.ones(3, 4)}, size)
        assert td.batch_size == torch.Size([3])
        assert type(td.batch_size) is torch.Size

    @pytest.mark.parametrize("size", ["3", [3.5], {"a": 1}, object()])
    def test_bad_batch_size(self, size):
        with pytest.raises(ValueError, match="batch_size"):
            TensorDict({}, size)

    def test_empty(self):
        td = TensorDict()
        assert td.batch_size == ()
        assert td.device is None
        assert list(td.keys()) == []

    def test_tensors_are_stored_themselves(self):
        value = torch.ones(3)
        assert TensorDict({"a": value}, [3])["a"] is value

    def test_keywords(self):
        td = TensorDict(a=torch.ones(2), batch_size=[2], b=1 * torch.ones(2))
        assert sorted(td.keys()) == ["a", "b"]
        with pytest.raises(ValueError, match="not both"):
            TensorDict({"a": 1}, b=2)

    @pytest.mark.parametrize("source", [3, [("a", 1)], torch.ones(3), "a"])
    def test_bad_source(self, source):
        with pytest.raises(ValueError, match="source"):
            TensorDict(source, [])

    @pytest.mark.parametrize("mapping", [collections.OrderedDict, collections.ChainMap, dict])
    def test_mappings_become_nodes(self, mapping):
        td = TensorDict({"n": mapping({"x": torch.ones(3)})}, [3])
        assert type(td["n"]) is TensorDict
        assert td["n"].batch_size == (3,)

    def test_tuple_keys(self):
        td = TensorDict({("a", "b"): torch.ones(3), ("a", ("c", "d")): torch.zeros(3), "e": torch.ones(3)}, [3])
        assert sorted(td.keys()) == ["a", "e"]
        assert set(td["a"].keys()) == {"b", "c"}
        assert td["a", "c", "d"].sum() == 0

    @pytest.mark.parametrize("key", [1, (), ("a", 1), None, ("a", ())])
    def test_bad_keys(self, key):
        with pytest.raises(KeyError, match="key"):
            TensorDict({key: torch.ones(3)}, [3])

    @pytest.mark.parametrize(
        ("value", "dtype"),
        [(1, torch.int64), (2.0, torch.float32), (True, torch.bool), (np.float32(1), torch.float32), ([1, 2], torch.int64)],
    )
    def test_numbers_become_tensors(self, value, dtype):
        td = TensorDict({"a": value}, [])
        assert td["a"].dtype is dtype
        assert td["a"].tolist() == value

    def test_arrays_and_lists(self):
        td = TensorDict({"a": np.arange(6.0).reshape(3, 2), "b": [torch.ones(2)] * 3, "c": [[1], [2], [3]]}, [3])
        assert td["a"].dtype is torch.float64
        assert td["b"].shape == (3, 2)
        assert td["c"].tolist() == [[1], [2], [3]]

    @pytest.mark.parametrize("value", [1, torch.ones(()), torch.ones(4), torch.ones(4, 3), np.ones(2)])
    def test_leading_dimensions(self, value):
        with pytest.raises(RuntimeError, match="batch dimension mismatch"):
            TensorDict({"a": value}, [3])

    def test_mismatch_names_the_key(self):
        with pytest.raises(RuntimeError, match="obs"):
            TensorDict({"n": {"obs": torch.ones(4)}}, [3])

    def test_batch_size_of_a_source_is_not_taken(self):
        """As the reference: a source gives entries, the batch size is an argument."""
        td = TensorDict(nested())
        assert td.batch_size == ()
        assert td["n"].batch_size == (4, 3)

    def test_source_is_not_changed(self):
        source = nested()
        td = TensorDict(source, [4, 3])
        td["new"] = torch.ones(4, 3)
        assert "new" not in source
        assert td["n"] is source["n"]

    def test_lock(self):
        td = TensorDict({"n": {"x": 1}}, [], lock=True)
        assert td.is_locked
        assert td["n"].is_locked


class TestNodes:
    def test_fitting_node_is_stored_itself(self):
        node = TensorDict({"x": torch.ones(2, 3)}, [2, 3])
        assert TensorDict({"n": node}, [2])["n"] is node

    def test_other_batch_size_makes_a_copy(self):
        node = TensorDict({"x": torch.ones(2, 3)}, [])
        td = TensorDict({"n": node}, [2, 3])
        assert td["n"].batch_size == (2, 3)
        assert td["n", "x"] is node["x"]
        assert node.batch_size == ()

    def test_unfitting_node(self):
        with pytest.raises(RuntimeError, match="incompatible with the batch-size"):
            TensorDict({"n": TensorDict({"x": torch.ones(2, 3)}, [])}, [2, 4])

    def test_device_moves_copies(self):
        node = TensorDict({"x": torch.ones(3)}, [3])
        td = TensorDict({"n": node, "a": torch.ones(3)}, [3], device="meta")
        assert td["a"].is_meta
        assert td["n", "x"].is_meta
        assert td["n"].device == torch.device("meta")
        assert node.device is None
        assert not node["x"].is_meta

    def test_names_of_the_node_are_kept_apart(self):
        node = TensorDict({"x": torch.ones(2, 3)}, [2, 3])
        td = TensorDict({"n": node}, [2], names=["rows"])
        assert td["n"].names == ["rows", None]
        assert node.names == [None, None]

    def test_names_of_the_node_go_up(self):
        td = TensorDict({"n": TensorDict({"x": torch.ones(2, 3)}, [2, 3], names=["rows", "columns"])}, [2])
        assert td.names == ["rows"]

    def test_names_that_disagree(self):
        td = TensorDict({}, [2], names=["rows"])
        with pytest.raises(RuntimeError, match="named"):
            td["n"] = TensorDict({}, [2], names=["columns"])
        assert list(td.keys()) == []


class TestNames:
    def test_given(self):
        td = TensorDict({"n": {"x": torch.ones(3, 4)}}, [3, 4], names=["a", None])
        assert td.names == ["a", None]
        assert td["n"].names == ["a", None]

    @pytest.mark.parametrize("names", [["a"], ["a", "b", "c"], ["a", "a"], [1, 2]])
    def test_refused(self, names):
        with pytest.raises(ValueError, match="name"):
            TensorDict({}, [3, 4], names=names)


class TestFromDict:
    source: ClassVar = {"a": torch.ones(3, 4), "n": {"b": torch.ones(3, 4, 5)}}

    @pytest.mark.parametrize("make", [TensorDict.from_dict, tensordict.from_dict])
    def test_batch_size(self, make):
        assert make(self.source).batch_size == ()
        assert make(self.source, auto_batch_size=True).batch_size == (3, 4)
        assert make(self.source, auto_batch_size=True)["n"].batch_size == (3, 4, 5)
        assert make(self.source, batch_dims=1).batch_size == (3,)
        td = make(self.source, batch_size=[3], names=["rows"])
        assert (td.batch_size, td["n"].batch_size, td["n"].names) == ((3,), (3,), ["rows"])
        assert make(self.source, batch_size=[3], auto_batch_size=True).batch_size == (3,)

    def test_refused(self):
        with pytest.raises(RuntimeError, match="batch"):
            TensorDict.from_dict(self.source, batch_size=[4])
        with pytest.raises(ValueError, match="batch_dims"):
            TensorDict.from_dict(self.source, batch_size=[3], batch_dims=1)
        with pytest.raises(TypeError, match="mapping"):
            TensorDict.from_dict(3)

    def test_names_with_auto_batch_size(self):
        assert TensorDict.from_dict(self.source, auto_batch_size=True, names=["x", "y"]).names == ["x", "y"]

    def test_tensordicts_stay(self):
        td = nested()
        assert TensorDict.from_dict(td) is td
        assert TensorDict.from_dict({"n": td}, batch_size=[4])["n"] is td

    def test_round_trip(self):
        td = nested()
        same(TensorDict.from_dict(td.to_dict(), batch_size=(4, 3)).select("a", ("n", "x")), td.select("a", ("n", "x")))

    def test_instance_gives_the_types(self):
        out = nested().from_dict_instance({"a": torch.ones(5), "n": {"x": torch.ones(5)}}, batch_size=[5])
        assert out.batch_size == (5,)
        assert out["n"].batch_size == (5,)


def test_make_tensordict():
    td = tensordict.make_tensordict({"a": torch.ones(3, 4)}, a=torch.zeros(3), b=torch.ones(3), auto_batch_size=True)
    assert td.batch_size == (3,)
    assert td["a"].shape == (3, 4)
    assert tensordict.make_tensordict().is_empty()


@pytest.mark.parametrize("make", [TensorDict.fromkeys, tensordict.fromkeys])
def test_fromkeys(make):
    td = make(["a", ("b", "c")], 2.0)
    assert td["a"] == 2
    assert td["b", "c"] == 2
    assert make(["a"])["a"].tolist() == 0


class TestFromList:
    items = ({"a": torch.ones(3, 4)}, {"a": torch.zeros(3, 4)})

    def test_stacks(self):
        td = TensorDict.from_list(list(self.items), names=["t"])
        assert td.batch_size == (2,)
        assert td.names == ["t"]
        assert torch.equal(td["a"], torch.stack([item["a"] for item in self.items]))

    @pytest.mark.parametrize(
        ("options", "size"),
        [
            ({"auto_batch_size": True}, (2, 3, 4)),
            ({"batch_dims": 2}, (2, 3)),
            ({"auto_batch_size": True, "batch_dims": 1}, (2,)),
            ({"batch_size": (2, 3)}, (2, 3)),
            ({"batch_size": (2,), "auto_batch_size": True}, (2,)),
        ],
    )
    def test_batch_size(self, options, size):
        assert TensorDict.from_list(list(self.items), **options).batch_size == size

    def test_refused(self):
        with pytest.raises(ValueError, match="length"):
            TensorDict.from_list(list(self.items), batch_size=[3])
        with pytest.raises(RuntimeError, match="empty"):
            TensorDict.from_list([])
        with pytest.raises(RuntimeError, match="shapes"):
            TensorDict.from_list([{"a": torch.ones(3)}, {"a": torch.ones(4)}], lazy=False)


class TestCopies:
    @pytest.mark.parametrize("copied", [lambda td: td.clone(False), lambda td: td.copy(), copy.copy])
    def test_shallow(self, copied):
        td = nested().lock_()
        out = copied(td)
        assert not out.is_locked
        assert out["n"] is not td["n"]
        assert out["n", "x"] is td["n", "x"]
        same(out, td)

    @pytest.mark.parametrize("copied", [lambda td: td.clone(), copy.deepcopy, lambda td: td.to_tensordict()])
    def test_deep(self, copied):
        td = nested()
        td.names = ["rows", "columns"]
        td.lock_()
        out = copied(td)
        assert not out.is_locked
        assert out["n", "x"].data_ptr() != td["n", "x"].data_ptr()
        assert out["n", "m"].names == ["rows", "columns", None]
        same(out, td)

    def test_replace(self):
        td = nested()
        out = td.replace({"n": {"x": torch.zeros(4, 3)}}, a=torch.zeros(4, 3))
        assert out["n", "m", "y"] is td["n", "m", "y"]
        assert td["n", "x"].any()
        assert not out["n", "x"].any()
        assert out["a"].shape == (4, 3)
        for bad in (3, None):
            with pytest.raises(RuntimeError, match="replace"):
                td.replace(bad)


class TestNew:
    @pytest.mark.parametrize(("name", "value"), [("new_zeros", 0), ("new_ones", 1), ("new_empty", None)])
    @pytest.mark.parametrize("size", [(5,), ((5,),), (torch.Size([5, 6]),), (5, 6), ()])
    def test_sizes(self, name, value, size):
        td = nested()
        out = getattr(td, name)(*size)
        batch = torch.Size(size[0]) if size and not isinstance(size[0], int) else torch.Size(size)
        assert out.batch_size == batch
        assert out["n", "m"].batch_size == (*batch, 2)
        assert out["n", "m", "y"].shape == (*batch, 2, 5)
        if value is not None:
            assert (out["n", "m", "y"] == value).all()
        check(out)

    def test_options(self):
        td = nested()
        out = td.new_full((2, 7), 3, dtype=torch.int16, device="meta")
        assert out["a"].dtype is torch.int16
        assert out.device == torch.device("meta")
        assert td.new_zeros(5, requires_grad=True)["a"].requires_grad

    def test_new_tensor(self):
        td = nested()
        with pytest.warns(UserWarning, match="copy construct"):
            out = td.new_tensor(td, dtype=torch.double)
        assert torch.equal(out["n", "x"], td["n", "x"].double())
        assert out["n", "x"].dtype is torch.double
        row = td.new_tensor([0, 1, 2, 3, 4])
        assert row.batch_size == (5,)
        assert row["n", "m"].batch_size == (5,)
        assert row["a"].dtype is torch.float32
        with pytest.raises(KeyError):
            td.new_tensor(TensorDict({"a": torch.ones(7)}, [7]))


class TestEmpty:
    def test_levels(self):
        td = nested()
        td.names = ["rows", "columns"]
        assert list(td.empty().keys()) == []
        out = td.empty(recurse=True)
        assert out["n", "m"].batch_size == (4, 3, 2)
        assert out["n", "m"].names == ["rows", "columns", None]
        assert out.is_empty()

    def test_options(self):
        td = nested()
        assert td.empty(batch_size=[7]).batch_size == (7,)
        assert td.empty(device="meta").device == torch.device("meta")
        assert td.empty(names=["a", "b"]).names == ["a", "b"]
        assert not td.lock_().empty().is_locked


def test_to_dict():
    td = TensorDict({"a": torch.arange(3), "n": {"x": torch.arange(6).reshape(3, 2)}}, [3])
    out = td.to_dict()
    assert type(out["n"]) is dict
    assert out["n"]["x"] is td["n", "x"]
    assert td.to_dict(convert_tensors=True) == {"a": [0, 1, 2], "n": {"x": [[0, 1], [2, 3], [4, 5]]}}
    assert td.to_dict(convert_tensors=True, tolist_first=True) == {
        "a": [0, 1, 2],
        "n": [{"x": [0, 1]}, {"x": [2, 3]}, {"x": [4, 5]}],
    }


class _Own(TensorDict):
    """A user's class."""


@pytest.mark.parametrize(
    "work",
    [
        lambda td: td.clone(),
        lambda td: td[0],
        lambda td: td + 1,
        lambda td: td.reshape(3, 1),
        lambda td: td.apply(torch.neg),
        lambda td: td.to(torch.float64),
        lambda td: td.select("a"),
        lambda td: torch.stack([td, td]),
        lambda td: td.sum(0),
        lambda td: td.split(1)[0],
        lambda td: _Own.from_list([{"a": torch.zeros(3)}]),
    ],
)
def test_a_subclass_stays_one(work):
    out = work(_Own({"a": torch.zeros(3, 2), "n": {"b": torch.ones(3)}}, [3]))
    assert type(out) is _Own
