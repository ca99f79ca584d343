"""Keys and structure: views, selections, renames, flat and nested forms."""

from __future__ import annotations

from collections.abc import KeysView

import pytest
import torch

from containers import check, leaves, named, nested, same, snapshot, unchanged
from tensordict import TensorDict, is_tensor_collection

LEAVES = ["a", ("n", "x"), ("n", "m", "y"), ("n", "m", "z")]
ALL = ["a", ("n", "x"), ("n", "m", "y"), ("n", "m", "z"), ("n", "m"), ("n", "e"), "n"]


class TestViews:
    def test_orders(self):
        td = nested()
        assert list(td.keys()) == ["a", "n"]
        assert list(td.keys(True, True)) == LEAVES
        assert set(td.keys(True)) == set(ALL)
        assert list(td.keys(leaves_only=True)) == ["a"]
        assert list(TensorDict({"b": 1, "a": {"z": 1, "y": 2}}).keys(True, True, sort=True)) == [("a", "y"), ("a", "z"), "b"]
        assert TensorDict({"b": 1, "a": 2}).sorted_keys == ["a", "b"]

    @pytest.mark.parametrize(
        "options", [{}, {"include_nested": True}, {"include_nested": True, "leaves_only": True}, {"sort": True}]
    )
    def test_values_and_items_follow_keys(self, options):
        td = nested()
        keys = list(td.keys(**options))
        assert [key for key, _ in td.items(**options)] == keys
        for key, value, item in zip(keys, td.values(**options), td.items(**options), strict=True):
            assert value is item[1] is td[key]

    def test_length_and_membership(self):
        td = nested()
        assert (len(td.keys()), len(td.keys(True)), len(td.keys(True, True))) == (2, 7, 4)
        assert "a" in td.keys()
        assert ("n", "m", "y") in td.keys(True)
        assert ("n", ("m", "y")) in td.keys(True)
        assert ("n", "q") not in td.keys(True)
        assert ("a", "q") not in td.keys(True)
        assert ("n", "x") not in td.keys()
        assert ("n", "m") not in td.keys(True, True)

    def test_sets(self):
        td = nested()
        assert td.keys() == {"a", "n"}
        assert td.keys(True, True) == set(LEAVES)
        assert td.keys(True) - td.keys(True, True) == {"n", ("n", "m"), ("n", "e")}
        assert isinstance(td.keys(True), KeysView)

    def test_follow_the_tensordict(self):
        td = nested()
        keys = td.keys(True, True)
        td["b"] = torch.zeros(4, 3)
        assert "b" in keys
        assert len(keys) == 5

    def test_is_leaf(self):
        assert list(nested().keys(True, True, is_leaf=is_tensor_collection)) == ["a", "n"]


class TestSelect:
    @pytest.mark.parametrize(
        ("keys", "kept"),
        [
            (["a"], ["a"]),
            (["n"], LEAVES[1:]),
            ([("n", "x")], [("n", "x")]),
            ([("n", "x"), ("n", "m", "z")], [("n", "x"), ("n", "m", "z")]),
            ([("n", ("m", "y"))], [("n", "m", "y")]),
            (["n", ("n", "x")], LEAVES[1:]),
            ([("n", "x"), "n"], LEAVES[1:]),
            ([], []),
        ],
    )
    @pytest.mark.parametrize("inplace", [False, True])
    def test_keys(self, keys, kept, inplace):
        td = nested()
        node, old = td["n"], leaves(td)
        out = td.select(*keys, inplace=inplace)
        assert set(out.keys(True, True)) == set(kept)
        assert (out is td) == inplace
        for path, leaf in leaves(out).items():
            assert leaf is old[path]
        if inplace and "n" in out:
            assert out["n"] is node
        if not inplace:
            assert set(td.keys(True)) == set(ALL)
        check(out)

    def test_missing(self):
        td = nested()
        for key in ("q", ("n", "q"), ("q", "r"), ("a", "q")):
            with pytest.raises(KeyError):
                td.select("a", key)
            assert list(td.select("a", key, strict=False).keys()) == (["a", "n"] if key == ("n", "q") else ["a"])

    def test_refused(self):
        td = nested().lock_()
        assert not td.select("a").is_locked
        with pytest.raises(RuntimeError, match="locked"):
            td.select("a", inplace=True)
        with pytest.raises(RuntimeError):
            td.select(["a"])
        with pytest.raises(RuntimeError, match="key"):
            td.select(3)

    def test_a_locked_node_below(self):
        td = nested()
        td["n"].lock_()
        for change in (lambda: td.select(("n", "x"), inplace=True), lambda: td.exclude(("n", "x"), inplace=True)):
            before = snapshot(td)
            with pytest.raises(RuntimeError, match="locked"):
                change()
            unchanged(td, before)

    def test_names(self):
        out = named().select(("n", "m", "y"))
        assert out["n", "m"].names == ["rows", "columns", None]


class TestExclude:
    @pytest.mark.parametrize(
        ("keys", "kept"),
        [
            (["a"], LEAVES[1:]),
            (["n"], ["a"]),
            ([("n", "x")], ["a", *LEAVES[2:]]),
            ([("n", "x"), ("n", "m", "y")], ["a", ("n", "m", "z")]),
            ([("n", "x"), "n"], ["a"]),
            (["q", ("n", "q"), ("a", "q")], LEAVES),
            ([], LEAVES),
        ],
    )
    @pytest.mark.parametrize("inplace", [False, True])
    def test_keys(self, keys, kept, inplace):
        td = nested()
        node = td["n"]
        out = td.exclude(*keys, inplace=inplace)
        assert list(out.keys(True, True)) == kept
        assert (out is td) == inplace
        if inplace and "n" in out:
            assert out["n"] is node
        if not inplace:
            assert set(td.keys(True)) == set(ALL)

    def test_refused(self):
        with pytest.raises(RuntimeError, match="locked"):
            nested().lock_().exclude("a", inplace=True)
        with pytest.raises(RuntimeError, match="key"):
            nested().exclude(["a"])


class TestRename:
    @pytest.mark.parametrize(
        ("old", "new"),
        [
            ("a", "b"),
            ("a", ("n", "b")),
            ("a", ("p", "q")),
            (("n", "x"), "x"),
            ("a", "n"),
            (("n", "m"), "m"),
            ("n", ("n", "n")),
            ("n", ("n", "p", "q")),
            (("n", "m"), "n"),
            ("a", "a"),
        ],
    )
    def test_moves(self, old, new):
        td = nested()
        value = td[old]
        assert td.rename_key_(old, new) is td
        assert td[new] is value
        new_path = (new,) if isinstance(new, str) else new
        old_path = (old,) if isinstance(old, str) else old
        if new_path[: len(old_path)] != old_path:
            assert old not in td or new == "n"
        check(td)

    @pytest.mark.parametrize(
        ("old", "new", "error"),
        [
            ("q", "b", KeyError),
            ("n", ("a", "b"), KeyError),
            (3, "b", TypeError),
            ("a", 3, TypeError),
            (("a", "b"), "c", ValueError),
        ],
    )
    def test_refused(self, old, new, error):
        td = nested()
        with pytest.raises(error):
            td.rename_key_(old, new)
        assert set(td.keys(True)) == set(ALL)

    def test_safe(self):
        td = nested()
        with pytest.raises(KeyError, match="already present"):
            td.rename_key_("a", ("n", "x"), safe=True)
        td.rename_key_("a", "a", safe=True)
        assert set(td.keys(True)) == set(ALL)

    def test_a_value_that_does_not_fit_goes_back(self):
        td = nested()
        value = td["a"]
        with pytest.raises(RuntimeError, match="batch dimension"):
            td.rename_key_("a", ("n", "m", "new", "leaf")) if value.shape[:3] != (4, 3, 2) else td.rename_key_(
                ("n", "x"), ("n", "m", "new")
            )
        assert set(td.keys(True)) == set(ALL)
        assert td["a"] is value

    def test_several(self):
        td = nested()
        out = td.rename_keys({"a": ("n", "x"), ("n", "x"): "a", ("n", "m"): "m"})
        assert out["n", "x"] is td["a"]
        assert out["a"] is td["n", "x"]
        assert out["m", "y"] is td["n", "m", "y"]
        assert set(td.keys(True)) == set(ALL)
        assert td.rename_keys({"q": "r"}, strict=False).keys() == td.keys()

    @pytest.mark.parametrize(
        ("mapping", "error"),
        [
            ({"q": "r"}, KeyError),
            ({"a": "n"}, ValueError),
            ({"a": "z", ("n", "x"): "z"}, ValueError),
            ({"n": "p", ("n", "x"): "z"}, ValueError),
            ({"a": ("n", "x", "b")}, ValueError),
            ({"a": "z", ("n", "x"): ("z", "b")}, ValueError),
        ],
    )
    def test_several_refused(self, mapping, error):
        td = nested()
        before = snapshot(td)
        with pytest.raises(error):
            td.rename_keys(mapping)
        unchanged(td, before)

    def test_locked(self):
        td = nested().lock_()
        with pytest.raises(RuntimeError, match="locked"):
            td.rename_key_("a", "b")
        assert "b" in td.rename_keys({"a": "b"})


class TestFlatten:
    @pytest.mark.parametrize("separator", [".", "/", "__"])
    @pytest.mark.parametrize("inplace", [False, True])
    def test_round_trip(self, separator, inplace):
        td = nested().exclude(("n", "e"))
        old = leaves(td)
        flat = td.flatten_keys(separator, inplace=inplace)
        assert (flat is td) == inplace
        assert list(flat.keys()) == [separator.join(path) for path in old]
        back = flat.unflatten_keys(separator, inplace=inplace)
        assert (back is flat) == inplace
        for path, leaf in leaves(back).items():
            assert leaf is old[path]
        assert back["n"].batch_size == (4, 3)

    def test_is_leaf(self):
        assert list(nested().flatten_keys(is_leaf=lambda cls: True).keys()) == ["a", "n"]

    def test_collisions(self):
        td = TensorDict({"a.b": torch.ones(3), "a": {"b": torch.zeros(3)}}, [3])
        with pytest.raises(KeyError, match="collide"):
            td.flatten_keys()
        for fields in ({"a.b": 1, "a": 0}, {"a.b": 1, "a": {"b": 0}}, {"a.b": 1, "a.b.c": 0}, {"a.b.c": 1, "a.b": 0}):
            td = TensorDict(fields)
            before = snapshot(td)
            for inplace in (False, True):
                with pytest.raises(KeyError, match="override"):
                    td.unflatten_keys(inplace=inplace)
            unchanged(td, before)

    def test_unflatten_does_not_touch_nodes(self):
        td = TensorDict({"a.b": torch.ones(3), "a": {"c": torch.zeros(3)}}, [3])
        node = td["a"]
        out = td.unflatten_keys()
        assert set(out["a"].keys()) == {"b", "c"}
        assert set(node.keys()) == {"c"}

    def test_locked(self):
        td = nested().lock_()
        assert "n.x" in td.flatten_keys()
        with pytest.raises(RuntimeError, match="locked"):
            td.flatten_keys(inplace=True)
        with pytest.raises(RuntimeError, match="locked"):
            TensorDict({"a.b": 1}).lock_().unflatten_keys(inplace=True)


class TestSplit:
    def test_separates(self):
        td = nested()
        value = td["n", "m", "y"]
        out = td.separates("a", ("n", "m", "y"))
        assert list(out.keys(True, True)) == ["a", ("n", "m", "y")]
        assert out["n", "m", "y"] is value
        assert list(td.keys(True, True)) == [("n", "x"), ("n", "m", "z")]

    def test_empty_nodes(self):
        td = nested()
        td.separates(("n", "m"))
        td.separates(("n", "x"))
        assert list(td.keys(True)) == ["a"]
        td = nested()
        td.separates(("n", "m", "y"), ("n", "m", "z"), filter_empty=False)
        assert ("n", "m") in td

    @pytest.mark.parametrize("keys", [["q"], ["a", "q"], ["a", ("n", "q")], ["a", "a"], ["n", ("n", "x")], [("a", "q")]])
    def test_refused(self, keys):
        td = nested()
        before = snapshot(td)
        with pytest.raises((KeyError, ValueError)):
            td.separates(*keys)
        unchanged(td, before)

    def test_defaults(self):
        assert list(nested().separates("a", "q", strict=False).keys()) == ["a"]
        assert nested().separates("q", default=torch.zeros(4, 3))["q"].shape == (4, 3)

    def test_locked(self):
        with pytest.raises(RuntimeError, match="locked"):
            nested().lock_().separates("a")
        td = nested()
        td["n"].lock_()
        before = snapshot(td)
        with pytest.raises(RuntimeError, match="locked"):
            td.separates("a", ("n", "x"))
        unchanged(td, before)

    def test_split_keys(self):
        td = nested()
        first, second, rest = td.split_keys(["a"], [("n", "m", "y")])
        assert list(first.keys(True, True)) == ["a"]
        assert list(second.keys(True, True)) == [("n", "m", "y")]
        assert list(rest.keys(True, True)) == [("n", "x"), ("n", "m", "z")]
        assert rest["n", "x"] is td["n", "x"]
        assert set(td.keys(True)) == set(ALL)

    def test_split_keys_by_function(self):
        wide, rest = nested().split_keys(lambda key, leaf: leaf.ndim > 3 or "a" in key)
        assert list(wide.keys(True, True)) == ["a", ("n", "m", "y")]
        assert list(rest.keys(True, True)) == [("n", "x"), ("n", "m", "z")]

    def test_split_keys_inplace(self):
        td = nested()
        _, rest = td.split_keys(["a"], inplace=True)
        assert rest is td
        assert "a" not in td
        with pytest.raises(RuntimeError, match="locked"):
            nested().lock_().split_keys(["a"], inplace=True)

    def test_reproduce_struct(self):
        part, rest = nested().split_keys([("n", "m", "y"), ("n", "m", "z")], reproduce_struct=True)
        assert set(part.keys(True)) == {"n", ("n", "m"), ("n", "e"), ("n", "m", "y"), ("n", "m", "z")}
        assert ("n", "m") in rest

    def test_split_keys_refused(self):
        for sets in ([["a"], ["a"]], [["a"], ["q"]]):
            td = nested()
            before = snapshot(td)
            with pytest.raises(KeyError):
                td.split_keys(*sets)
            unchanged(td, before)
        assert len(nested().split_keys(["a"], ["q"], strict=False)) == 3


class TestNodes:
    def test_create_nested(self):
        td = named()
        assert td.create_nested(("p", "q")) is td
        assert td["p", "q"].names == ["rows", "columns"]
        td.create_nested("a")
        assert td["a"].is_empty()
        td.create_nested(("n", "m", "new"))
        assert td["n", "m", "new"].batch_size == (4, 3, 2)
        check(td)
        with pytest.raises(RuntimeError, match="locked"):
            td.lock_().create_nested("z")

    def test_filter_empty(self):
        td = nested().create_nested(("p", "q"))
        assert td.filter_empty_() is td
        assert set(td.keys(True)) == {"a", "n", ("n", "x"), ("n", "m"), ("n", "m", "y"), ("n", "m", "z")}
        with pytest.raises(RuntimeError, match="locked"):
            nested().lock_().filter_empty_()

    def test_queries(self):
        assert not nested().is_empty()
        assert TensorDict({"a": {"b": {}}}).is_empty()
        assert nested().depth == 2
        assert TensorDict({"a": 1, "b": {"c": {}}}).depth == 0
        same(nested(), nested())
