"""Bulk writes: nodes are merged, and a write that fails changes nothing."""

from __future__ import annotations

import pytest
import torch

from containers import check, leaves, nested, same, snapshot, unchanged
from tensordict import TensorDict

ZEROS = torch.zeros(4, 3)
BAD = torch.zeros(7)


class TestUpdate:
    def test_merges_nodes(self):
        td = nested()
        node, kept = td["n"], td["n", "m", "y"]
        assert td.update({"n": {"x": ZEROS, "m": {"new": torch.zeros(4, 3, 2)}}, "b": {"c": ZEROS}}) is td
        assert td["n"] is node
        assert td["n", "x"] is ZEROS
        assert td["n", "m", "y"] is kept
        assert td["n", "m", "new"].shape == (4, 3, 2)
        assert td["b", "c"] is ZEROS
        check(td)

    def test_replaces_across_kinds(self):
        td = nested().update({"n": ZEROS, "a": {"x": ZEROS}})
        assert td["n"] is ZEROS
        assert td["a", "x"] is ZEROS

    def test_tuple_keys(self):
        td = nested().update({("n", "x"): ZEROS, ("p", "q"): ZEROS, ("p", "r"): ZEROS, ("p", "s", "t"): ZEROS})
        assert td["n", "x"] is ZEROS
        assert set(td["p"].keys()) == {"q", "r", "s"}

    def test_later_entries_lie_below_earlier_ones(self):
        td = TensorDict({"a": ZEROS}, [4, 3])
        td.update({"a": {"x": ZEROS}, ("a", "y"): ZEROS, "p": {"q": ZEROS}, ("p", "r", "s"): ZEROS})
        assert set(td["a"].keys()) == {"x", "y"}
        assert set(td["p"].keys()) == {"q", "r"}

    def test_keywords(self):
        td = nested().update({"a": ZEROS}, b=ZEROS)
        assert td["a"] is td["b"] is ZEROS
        assert nested().update(a=ZEROS)["a"] is ZEROS

    def test_of_itself_and_of_nothing(self):
        td = nested()
        before = snapshot(td)
        td.update(td)
        td.update({})
        td.update()
        unchanged(td, before)

    def test_clone(self):
        source = nested()
        assert TensorDict({}, [4, 3]).update(source)["n", "x"] is source["n", "x"]
        td = TensorDict({}, [4, 3]).update(source, clone=True)
        assert td["a"] is not source["a"]
        assert td["n", "x"] is not source["n", "x"]
        same(td.select("a"), source.select("a"))

    def test_inplace(self):
        td = nested()
        old = leaves(td)
        td.update({"a": torch.zeros(4, 3, 2), "n": {"x": ZEROS, "new": ZEROS}}, inplace=True)
        assert td["a"] is old["a",]
        assert td["n", "x"] is old["n", "x"]
        assert not td["n", "x"].any()
        assert td["n", "new"] is ZEROS

    @pytest.mark.parametrize(
        "keys", [["a"], ["n"], [("n", "x")], ["a", ("n", "x")], [("n", "m", "y"), ("n", "x")], [], ["q"], [("n", "q")]]
    )
    @pytest.mark.parametrize("plain", [False, True])
    def test_keys_to_update(self, keys, plain):
        td, source = nested(), nested().zero_()
        td.update(source.to_dict() if plain else source, keys_to_update=keys)
        wanted = {key if isinstance(key, tuple) else (key,) for key in keys}
        for path, leaf in leaves(td).items():
            assert leaf.any() == (not any(path[: len(key)] == key for key in wanted)), path

    def test_keys_to_update_may_be_one_key(self):
        td = TensorDict({"a": 0, "ab": 0, "b": 0})
        source = {"a": 1, "ab": 2, "b": 3}
        assert td.update(source, keys_to_update="ab").to_dict() == {"a": 0, "ab": 2, "b": 0}
        assert td.update_(source, keys_to_update="b").to_dict() == {"a": 0, "ab": 2, "b": 3}
        with pytest.raises(KeyError, match="c"):
            td.update_({"c": 1}, keys_to_update="c")

    def test_a_source_and_keywords_in_place(self):
        td = TensorDict({"a": torch.zeros(3), "b": torch.zeros(3)}, [3])
        leaf = td["b"]
        td.update_({"a": torch.ones(3)}, b=torch.full((3,), 2.0))
        assert (td["a"].tolist(), leaf.tolist()) == ([1, 1, 1], [2, 2, 2])
        with pytest.raises(KeyError, match="c"):
            td.update_({"a": torch.zeros(3)}, c=torch.ones(3))
        assert td["a"].tolist() == [1, 1, 1]

    def test_is_leaf(self):
        td = nested().update({"n": TensorDict({"q": ZEROS}, [4, 3])}, is_leaf=lambda cls: True)
        assert list(td["n"].keys()) == ["q"]

    @pytest.mark.parametrize("source", [3, [("a", ZEROS)], ZEROS])
    def test_bad_source(self, source):
        with pytest.raises(TypeError, match="mapping"):
            nested().update(source)


class TestBatchSize:
    source = TensorDict({"a": torch.zeros(5), "n": {"x": torch.ones(5)}}, [5])

    def test_adopted(self):
        td = TensorDict({"a": torch.zeros(3), "n": {"x": torch.ones(3)}}, [3])
        td.update(self.source, update_batch_size=True)
        same(td, self.source)
        check(td)

    def test_refused(self):
        td = TensorDict({"a": torch.zeros(3), "b": torch.zeros(3)}, [3])
        before = snapshot(td)
        with pytest.raises(RuntimeError, match="update_batch_size"):
            td.update(self.source)
        with pytest.raises(RuntimeError, match="b"):
            td.update(self.source, update_batch_size=True)
        with pytest.raises(RuntimeError, match="inplace"):
            td.update(self.source, update_batch_size=True, inplace=True)
        unchanged(td, before)


class TestWriteInto:
    @pytest.mark.parametrize("write", [lambda td, s: td.update_(s), lambda td, s: td.copy_(s)])
    @pytest.mark.parametrize("lock", [False, True])
    def test_storage_stays(self, write, lock):
        td = nested()
        if lock:
            td.lock_()
        old, source = leaves(td), nested().zero_()
        assert write(td, source) is td
        for path, leaf in leaves(td).items():
            assert leaf is old[path]
            assert not leaf.any()

    def test_broadcasts(self):
        td = nested().update_({"a": torch.zeros(3, 1), ("n", "x"): 0})
        assert not td["a"].any()
        assert not td["n", "x"].any()

    def test_keys_to_update(self):
        td = nested().update_(nested().zero_(), keys_to_update=[("n", "x")])
        assert not td["n", "x"].any()
        assert td["a"].all()

    @pytest.mark.parametrize("index", [0, slice(1, 3), [2, 0], torch.tensor([True, False, True, False]), (..., 1), (0, 1)])
    def test_at(self, index):
        td = nested()
        wanted = {path: leaf.clone() for path, leaf in leaves(td).items()}
        marks = (slice(None), 1) if isinstance(index, tuple) and index[0] is ... else index
        for leaf in wanted.values():
            leaf[marks] = 0
        old = leaves(td)
        assert td.update_at_(td[index].clone().zero_(), index) is td
        for path, leaf in leaves(td).items():
            assert leaf is old[path]
            assert torch.equal(leaf, wanted[path]), path


WRITES = {
    "update": lambda td, source: td.update(source),
    "update inplace": lambda td, source: td.update(source, inplace=True),
    "update_": lambda td, source: td.update_(source),
    "update_at_": lambda td, source: td.update_at_(source, 0),
    "setitem": lambda td, source: td.__setitem__(0, source),
}


class TestAllOrNothing:
    @pytest.mark.parametrize("write", WRITES)
    @pytest.mark.parametrize(
        "bad",
        [
            {"last": BAD},
            {"n": {"x": BAD}},
            {("n", "m", "y"): BAD},
            {("a", "below", "leaf"): ZEROS},
            {3: ZEROS},
            {"n": {"m": {"new": BAD, "y": object()}}},
        ],
    )
    def test_a_failing_write_changes_nothing(self, write, bad):
        td = nested()
        before = snapshot(td)
        good = {"a": torch.zeros(3, 2) if write in ("update_at_", "setitem") else torch.zeros(4, 3, 2)}
        if write.startswith("update") and not write.endswith("_"):
            good["new"] = ZEROS
        with pytest.raises((RuntimeError, KeyError, TypeError, ValueError)):
            WRITES[write](td, good | bad)
        unchanged(td, before)

    @pytest.mark.parametrize("write", ["update_", "update_at_"])
    def test_missing_keys(self, write):
        td = nested()
        before = snapshot(td)
        with pytest.raises(KeyError, match=r"'n', 'q'"):
            WRITES[write](td, {"a": 0.0, "n": {"q": ZEROS}})
        unchanged(td, before)

    @pytest.mark.parametrize("source", [{}, {"a": ZEROS}, {"new": ZEROS}, {"n": {"new": ZEROS}}])
    def test_locked(self, source):
        td = nested().lock_()
        before = snapshot(td)
        with pytest.raises(RuntimeError, match="locked"):
            td.update(source)
        unchanged(td, before)

    def test_locked_inplace(self):
        td = nested().lock_()
        before = snapshot(td)
        with pytest.raises(RuntimeError, match="locked"):
            td.update({"a": torch.zeros(4, 3, 2), "n": {"new": ZEROS}}, inplace=True)
        unchanged(td, before)
        td.update({"n": {"new": ZEROS}}, ignore_lock=True)
        assert td["n", "new"] is ZEROS
        assert td.is_locked

    def test_a_locked_node_below(self):
        td = nested()
        td["n", "m"].lock_()
        before = snapshot(td)
        with pytest.raises(RuntimeError, match="locked"):
            td.update({"a": ZEROS, "n": {"x": ZEROS, "m": {"y": torch.zeros(4, 3, 2)}}})
        unchanged(td, before)


@pytest.mark.parametrize("write", ["update_", "in place"])
def test_writes_carry_gradients(write: str) -> None:
    weights = torch.ones(3, requires_grad=True)
    td = TensorDict({"a": torch.zeros(3), "b": torch.zeros(3), "n": {"c": torch.zeros(3)}})
    source = {"a": weights * 2, "b": torch.ones(3), "n": {"c": weights * 3}}
    td.update_(source) if write == "update_" else td.update(source, inplace=True)
    (td["a"].sum() + td["b"].sum() + td["n", "c"].sum()).backward()
    assert weights.grad is not None
    assert weights.grad.tolist() == [5.0] * 3


def test_what_has_a_history_is_overwritten() -> None:
    weights = torch.ones(3, requires_grad=True)
    td = TensorDict({"a": weights * 2, "b": weights * 3})
    td.update_({"a": torch.full((3,), 5.0), "b": torch.full((3,), 6.0)})
    (td["a"] * td["b"]).sum().backward()
    assert td["a"].tolist() == [5.0] * 3
    assert weights.grad is not None
    assert weights.grad.tolist() == [0.0] * 3
