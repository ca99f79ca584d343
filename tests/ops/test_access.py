"""Get, set, delete: what is returned, what is written where, what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from containers import check, nested, snapshot, unchanged
from tensordict import TensorDict, set_get_defaults_to_none

ZEROS = torch.zeros(4, 3)


class TestGet:
    def test_returns_the_entry_itself(self):
        value = torch.ones(3)
        td = TensorDict({"n": {"x": value}}, [3])
        for read in (td["n", "x"], td["n"]["x"], td.get(("n", "x")), td.get("n").get("x"), td[("n", ("x",))], td["n",]["x"]):
            assert read is value

    def test_missing(self):
        td = nested()
        for key in ("q", ("n", "q"), ("q", "r")):
            assert td.get(key) is None
            assert td.get(key, None) is None
            assert td.get(key, 3) == 3
            assert td.get(key, default=3) == 3
            with pytest.raises(KeyError, match="q"):
                td[key]

    def test_default_can_be_switched(self):
        td = nested()
        with set_get_defaults_to_none(False), pytest.raises(KeyError, match="q"):
            td.get("q")
        with set_get_defaults_to_none(False):
            assert td.get("q", None) is None
        assert td.get("q") is None

    def test_through_a_leaf(self):
        td = nested()
        for read in (td.get, td.__getitem__):
            with pytest.raises(ValueError, match="'a' is a Tensor"):
                read(("a", "x"))
        assert td.get(("a", "x"), 4) == 4

    @pytest.mark.parametrize("key", [3, (), ("a", 3), None, torch.ones(2)])
    def test_bad_keys(self, key):
        with pytest.raises(KeyError, match="NestedKeys"):
            nested().get(key)

    def test_get_at(self):
        td = nested()
        assert torch.equal(td.get_at("a", 1), td["a"][1])
        assert torch.equal(td.get_at(("n", "x"), index=torch.tensor([0, 2])), td["n", "x"][[0, 2]])
        assert td.get_at("n", 0).batch_size == (3,)
        assert td.get_at("q", 0, 5) == 5
        assert td.get_at("q", 0, default=7) == 7

    def test_contains(self):
        td = nested()
        assert "a" in td
        assert ("n", "m", "y") in td
        assert ("n", "q") not in td
        assert ("a", "q") not in td
        for bad in (3, (), torch.ones(3)):
            with pytest.raises(RuntimeError, match="key"):
                bad in td  # noqa: B015


class TestSet:
    def test_stores_the_value_itself(self):
        td = nested()
        assert td.set("a", ZEROS) is td
        assert td["a"] is ZEROS
        td["n", "x"] = ZEROS
        assert td["n", "x"] is ZEROS

    def test_makes_the_nodes_on_the_way(self):
        td = TensorDict({}, [4, 3], names=["rows", "columns"])
        td["p", "q", "r"] = ZEROS
        assert td["p", "q"].batch_size == (4, 3)
        assert td["p", "q"].names == ["rows", "columns"]
        check(td)

    @pytest.mark.parametrize("value", [{"x": ZEROS, "y": {"z": ZEROS}}, {}, TensorDict({"x": ZEROS}, [4])])
    def test_nodes(self, value):
        td = nested().set("a", value)
        assert td["a"].batch_size == (4, 3)
        check(td)

    @pytest.mark.parametrize("value", [[[1] * 3] * 4, np.ones((4, 3)), np.ones((4, 3)).tolist()])
    def test_converts(self, value):
        assert torch.equal(nested().set("b", value)["b"], torch.as_tensor(value))

    @pytest.mark.parametrize(
        ("key", "value", "error"),
        [
            ("a", torch.zeros(4), RuntimeError),
            ("a", 1, RuntimeError),
            ("a", {"x": torch.zeros(3)}, RuntimeError),
            (("p", "q"), torch.zeros(3), RuntimeError),
            (("n", "m", "w"), ZEROS, RuntimeError),
            (("a", "q"), ZEROS, KeyError),
            (("n", "x", "q", "r"), ZEROS, KeyError),
            (3, ZEROS, KeyError),
        ],
    )
    def test_refused(self, key, value, error):
        td = nested()
        before = snapshot(td)
        with pytest.raises(error):
            td.set(key, value)
        unchanged(td, before)

    def test_device(self):
        td = TensorDict({}, [4, 3], device="meta")
        td["a"] = ZEROS
        td["n", "x"] = ZEROS
        assert td["a"].is_meta
        assert td["n", "x"].is_meta
        check(td)

    def test_setdefault(self):
        td = nested()
        value = td["a"]
        assert td.setdefault("a", ZEROS) is value
        assert td.setdefault(("p", "q"), ZEROS) is ZEROS
        assert td["p", "q"] is ZEROS


class TestInPlace:
    @pytest.mark.parametrize("write", [lambda td, k, v: td.set_(k, v), lambda td, k, v: td.set(k, v, inplace=True)])
    @pytest.mark.parametrize("lock", [False, True])
    def test_writes_into_storage(self, write, lock):
        td = nested()
        if lock:
            td.lock_()
        for key in ("a", ("n", "x")):
            leaf = td[key]
            assert write(td, key, torch.zeros_like(leaf)) is td
            assert td[key] is leaf
            assert not leaf.any()

    def test_dtype_of_the_entry_stays(self):
        td = TensorDict({"a": torch.zeros(3, dtype=torch.int64)}, [3])
        td.set_("a", torch.tensor([1.5, 2.5, 3.5]))
        assert td["a"].tolist() == [1, 2, 3]

    def test_broadcasts_behind_the_batch(self):
        td = nested()
        td.set_("a", torch.zeros(4, 3, 1))
        assert not td["a"].any()

    def test_nodes(self):
        td = nested()
        node, leaf = td["n"], td["n", "x"]
        td.set_("n", {"x": ZEROS})
        assert td["n"] is node
        assert not leaf.any()
        with pytest.raises(KeyError):
            td.set_("n", TensorDict({"q": ZEROS}, [4, 3]))
        td.set("n", TensorDict({"q": ZEROS}, [4, 3]), inplace=True)
        assert td["n"] is node
        assert td["n", "q"] is ZEROS
        assert td["n", "x"] is leaf

    @pytest.mark.parametrize(
        ("key", "value", "error"),
        [
            ("q", ZEROS, KeyError),
            (("n", "q"), ZEROS, KeyError),
            (("a", "q"), ZEROS, KeyError),
            ("a", torch.zeros(4), RuntimeError),
            ("a", 0, RuntimeError),
            ("a", torch.zeros(4, 3, 7), RuntimeError),
            ("n", ZEROS, RuntimeError),
            ("a", TensorDict({}, [4, 3]), RuntimeError),
        ],
    )
    def test_refused(self, key, value, error):
        td = nested()
        before = snapshot(td)
        with pytest.raises(error):
            td.set_(key, value)
        unchanged(td, before)

    @pytest.mark.parametrize(
        "index", [0, slice(1, 3), [2, 0], torch.tensor([2, 0]), torch.tensor([True, False, True, False]), (slice(None), 1)]
    )
    def test_set_at(self, index):
        td = nested()
        wanted = td["a"].clone()
        wanted[index] = 9
        leaf = td["a"]
        assert td.set_at_("a", torch.full_like(leaf[index], 9), index) is td
        assert td["a"] is leaf
        assert torch.equal(leaf, wanted)

    def test_set_at_of_a_node(self):
        td = nested()
        td.set_at_("n", {"x": torch.zeros(3)}, 1)
        assert not td["n", "x"][1].any()
        assert td["n", "x"][0].all()

    def test_set_at_refused(self):
        td = nested()
        for key, value, index, error in [
            ("q", ZEROS, 0, KeyError),
            ("a", torch.zeros(7), 0, RuntimeError),
            ("a", 0, 9, IndexError),
        ]:
            before = snapshot(td)
            with pytest.raises(error):
                td.set_at_(key, value, index)
            unchanged(td, before)

    def test_fill(self):
        td = nested().lock_()
        leaf = td["n", "m", "y"]
        assert td.fill_("n", 2) is td
        assert (leaf == 2).all()
        assert td["n", "m", "y"] is leaf
        with pytest.raises(KeyError):
            td.fill_("q", 2)


class TestRemove:
    def test_pop(self):
        td = nested()
        leaf = td["n", "x"]
        assert td.pop(("n", "x")) is leaf
        assert ("n", "x") not in td
        assert td.pop("q", 3) == 3
        assert td.pop(("q", "r"), None) is None
        assert td.pop(("a", "r"), default=4) == 4
        with pytest.raises(KeyError, match="q"):
            td.pop("q")
        with pytest.raises(ValueError, match="Tensor"):
            td.pop(("a", "q"))

    def test_popitem(self):
        td = TensorDict({"a": 1, "b": 2}, [])
        assert td.popitem() == ("b", 2)
        assert td.popitem() == ("a", 1)
        with pytest.raises(KeyError):
            td.popitem()

    def test_del(self):
        td = nested()
        assert td.del_("a") is td
        del td["n", "x"]
        assert list(td.keys(True, True)) == [("n", "m", "y"), ("n", "m", "z")]
        with pytest.raises(KeyError):
            td.del_(("n", "q"))
        with pytest.raises(ValueError, match="Tensor"):
            td.del_(("n", "m", "y", "q"))
        with pytest.raises(KeyError):
            del td[0]

    def test_clear(self):
        td = nested()
        assert td.clear() is td
        assert list(td.keys()) == []
        assert td.batch_size == (4, 3)

    def test_entry_queries(self):
        td = nested()
        assert td.entry_class("a") is torch.Tensor
        assert td.entry_class(("n", "m")) is TensorDict
        assert td.get_item_shape(("n", "m", "y")) == (4, 3, 2, 5)
        assert td.get_item_shape("n") == (4, 3)


@pytest.mark.parametrize(
    "change",
    [
        lambda td: td.set("a", ZEROS),
        lambda td: td.set(("n", "x"), ZEROS),
        lambda td: td.set(("n", "q"), ZEROS),
        lambda td: td.set(("p", "q"), ZEROS),
        lambda td: td.__setitem__("a", ZEROS),
        lambda td: td.__setitem__(("n", "x"), ZEROS),
        lambda td: td["n"].set("x", ZEROS),
        lambda td: td.pop("a"),
        lambda td: td.popitem(),
        lambda td: td.del_(("n", "x")),
        lambda td: td.clear(),
        lambda td: td["n", "m"].clear(),
        lambda td: td.setdefault("q", ZEROS),
        lambda td: td.set("q", ZEROS, inplace=True),
        lambda td: td.set("n", {"q": ZEROS}, inplace=True),
    ],
)
def test_lock_forbids(change):
    td = nested().lock_()
    before = snapshot(td)
    with pytest.raises(RuntimeError, match="locked"):
        change(td)
    unchanged(td, before)


def test_lock_allows_to_ask():
    td = nested().lock_()
    assert td.pop("q", 3) == 3
    assert td.setdefault("a", ZEROS) is td["a"]
