"""State dicts and pickles."""

from __future__ import annotations

import collections
import copy
import pickle
from typing import Any

import pytest
import torch

from containers import CONTAINERS, leaves, named, nested, same, snapshot, unchanged
from tensordict import NonTensorData, NonTensorStack, TensorDict, tensorclass


class TestStateDict:
    def test_flat(self):
        td = nested()
        state = td.state_dict()
        assert type(state) is collections.OrderedDict
        assert list(state) == ["a", "n.x", "n.m.y", "n.m.z"]
        assert state["n.x"].data_ptr() == td["n", "x"].data_ptr()
        assert state._metadata[""]["batch_size"] == (4, 3)
        assert list(td.state_dict(prefix="p.")) == ["p.a", "p.n.x", "p.n.m.y", "p.n.m.z"]
        assert td.state_dict(keep_vars=True)["a"] is td["a"]

    def test_nested(self):
        state = nested().state_dict(flatten=False)
        assert set(state) == {"a", "n"}
        assert set(state["n"]["m"]) == {"y", "z"}

    def test_detached(self):
        td = nested()
        td["a"].requires_grad_()
        assert not td.state_dict()["a"].requires_grad

    @pytest.mark.parametrize("flatten", [True, False])
    def test_round_trip(self, flatten):
        td, target = nested(), nested().zero_()
        old = leaves(target)
        assert target.load_state_dict(td.state_dict(flatten=flatten)) is target
        same(target, td)
        for path, leaf in leaves(target).items():
            assert leaf is old[path]

    def test_locked(self):
        target = nested().zero_().lock_()
        target.load_state_dict(nested().state_dict())
        same(target, nested())

    def test_assign(self):
        td, target = nested(), nested().zero_()
        state = td.state_dict()
        target.load_state_dict(state, assign=True)
        assert target["a"] is state["a"]

    def test_batch_size_comes_along(self):
        target = TensorDict({"a": torch.zeros(3)})
        target.load_state_dict(TensorDict({"a": torch.ones(3)}, [3]).state_dict())
        assert target.batch_size == (3,)

    def test_keys_with_dots(self):
        td = TensorDict({"a.b": torch.ones(2), "n": {"c.d": torch.ones(2)}}, [2])
        target = td.clone().zero_()
        same(target.load_state_dict(td.state_dict()), td)

    @pytest.mark.parametrize("change", [lambda td: td.select("a"), lambda td: td.set("more", torch.ones(4, 3))])
    def test_other_keys(self, change):
        td = nested()
        before = snapshot(td)
        with pytest.raises(RuntimeError, match="key sets"):
            td.load_state_dict(change(nested()).state_dict())
        unchanged(td, before)
        td.load_state_dict(change(nested()).zero_().state_dict(), strict=False)
        assert not td["a"].any()

    def test_in_a_file(self, tmp_path):
        torch.save(nested().state_dict(), tmp_path / "state.pt")
        target = nested().zero_()
        target.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=False))
        same(target, nested())


@tensorclass
class Record:
    x: Any
    z: Any = None
    below: Any = None


def record(text, number):
    """A tensorclass with an object, a tensor and another tensorclass."""
    inner = Record(torch.full((2,), number + 1.0), text + "!", batch_size=[2])
    return Record(torch.full((2,), number), text, inner, batch_size=[2])


class TestObjects:
    def test_are_in_the_metadata(self):
        state = record("a", 1.0).state_dict()
        assert list(state) == ["x", "below.x"]
        assert state._metadata[""]["_type"] == "Record"
        assert state._metadata[""]["_non_tensor"] == {"z": "a"}
        assert state._metadata["below"]["_non_tensor"] == {"z": "a!", "below": None}
        state = record("a", 1.0).state_dict(flatten=False)
        assert set(state) == {"x", "below"}
        assert set(state["below"]) == {"x"}

    @pytest.mark.parametrize("assign", [True, False])
    @pytest.mark.parametrize("flatten", [True, False])
    def test_are_loaded(self, flatten, assign):
        target = record("b", 5.0)
        target.load_state_dict(record("a", 1.0).state_dict(flatten=flatten), assign=assign)
        assert (target.z, target.below.z) == ("a", "a!")
        assert target.x.tolist() == [1, 1]
        assert target.below.x.tolist() == [2, 2]

    @pytest.mark.parametrize("flatten", [True, False])
    def test_of_tensordicts(self, flatten):
        def made(one, two):
            return TensorDict(
                {"x": torch.full((2,), two), "o": one, "n": {"o": NonTensorData(two)}, "s": NonTensorStack("u", "v")}
            )

        target = made("b", 5.0)
        target.load_state_dict(made("a", 1.0).state_dict(flatten=flatten))
        assert (target["o"], target["n", "o"], target["s"]) == ("a", 1.0, ["u", "v"])
        assert target["x"].tolist() == [1, 1]
        fresh = TensorDict()
        fresh.load_state_dict(made("a", 1.0).state_dict(flatten=flatten), strict=False)
        assert (fresh["o"], fresh["n", "o"]) == ("a", 1.0)

    def test_state_without_metadata(self):
        target = record("b", 5.0)
        target.load_state_dict(collections.OrderedDict(record("a", 1.0).state_dict()))
        assert (target.z, target.x.tolist()) == ("b", [1, 1])

    @pytest.mark.parametrize("flatten", [True, False])
    def test_what_is_no_field(self, flatten):
        target = record("b", 5.0)
        state = record("a", 1.0).state_dict(flatten=flatten)
        state["more"] = torch.zeros(2)
        with pytest.raises(KeyError, match="'more' wasn't expected"):
            target.load_state_dict(state)
        assert (target.z, target.x.tolist()) == ("b", [5, 5])
        assert target.load_state_dict(state, strict=False).z == "a"
        state = record("a", 1.0).state_dict(flatten=flatten)
        state._metadata[""]["_non_tensor"]["more"] = None
        with pytest.raises(KeyError, match="'more' wasn't expected"):
            target.load_state_dict(state)

    def test_of_older_releases(self):
        def old(x, z, **more):
            entries = {"x": torch.full((2,), x), "__batch_size": torch.Size([2]), "__device": None, **more}
            return {"_tensordict": entries, "_non_tensordict": {"z": z}}

        target = record("b", 5.0)
        target.load_state_dict(old(1.0, "a", below=old(2.0, "c")))
        assert (target.z, target.x.tolist(), target.below.z, target.below.x.tolist()) == ("a", [1, 1], "c", [2, 2])


class TestPickle:
    @pytest.mark.parametrize("container", ["flat", "nested", "locked", "named", "placed", "strided"])
    @pytest.mark.parametrize("how", [lambda td: pickle.loads(pickle.dumps(td)), copy.deepcopy])
    def test_round_trip(self, container, how):
        td = CONTAINERS[container]()
        out = how(td)
        same(out, td)
        assert type(out) is TensorDict
        assert (out.device, out.names) == (td.device, td.names)
        out.unlock_()
        out["new"] = torch.ones(4, 3)

    def test_shared_leaves_stay_shared(self):
        td = TensorDict({"a": torch.ones(3)}, [3])
        td["b"] = td["a"]
        out = pickle.loads(pickle.dumps(td))
        out["a"].zero_()
        assert not out["b"].any()

    def test_names_of_nodes(self):
        assert pickle.loads(pickle.dumps(named()))["n", "m"].names == ["rows", "columns", None]

    def test_torch_save(self, tmp_path):
        torch.save(nested(), tmp_path / "td.pt")
        same(torch.load(tmp_path / "td.pt", weights_only=False), nested())
