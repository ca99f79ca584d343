"""`apply` and `named_apply`: what the function gets, where its results go."""

from __future__ import annotations

import pytest
import torch

from containers import CONTAINERS, check, flat, leaves, named, nested, same, stacked
from tensordict import TensorDict


@pytest.mark.parametrize("container", CONTAINERS)
def test_results(container):
    td = CONTAINERS[container]()
    before = {path: leaf.clone() for path, leaf in leaves(td).items()}
    out = td.apply(lambda leaf: leaf * 2)
    assert not out.is_locked
    assert (out.batch_size, out.device, out.names) == (td.batch_size, td.device, td.names)
    for path, leaf in before.items():
        assert torch.equal(leaves(out)[path], leaf * 2)
        assert torch.equal(leaves(td)[path], leaf)
    check(out)


IN_PLACE = {
    "apply_": lambda td: td.apply_(lambda leaf: leaf * 2),
    "inplace": lambda td: td.apply(lambda leaf: leaf.mul_(2), inplace=True),
    "named": lambda td: td.named_apply(lambda key, leaf: leaf * 2, inplace=True),
}


@pytest.mark.parametrize("container", [name for name in CONTAINERS if name != "strided"])
@pytest.mark.parametrize("how", IN_PLACE)
def test_in_place(container, how):
    td = CONTAINERS[container]()
    before = {path: leaf.clone() for path, leaf in leaves(td).items()}
    assert IN_PLACE[how](td) is td
    for path, leaf in leaves(td).items():
        assert torch.equal(leaf, before[path] * 2), path


def test_in_place_keeps_storage():
    td = nested().lock_()
    old = leaves(td)
    td.apply_(lambda leaf: leaf.double() * 2)
    for path, leaf in leaves(td).items():
        assert leaf is old[path]


def test_others():
    td = nested()
    out = td.apply(lambda x, y, z: x + y * z, td, td)
    for path, leaf in leaves(td).items():
        assert torch.equal(leaves(out)[path], leaf + leaf * leaf)
    with pytest.raises(KeyError):
        td.apply(lambda x, y: x, td.select("a"))
    part = td.apply(lambda x, y: x if y is None else x + y, td.select("a"), default=None)
    assert torch.equal(part["a"], td["a"] * 2)
    assert torch.equal(part["n", "x"], td["n", "x"])


def test_keys():
    seen = []
    nested().named_apply(lambda key, leaf: seen.append(key))
    assert seen == ["a", "x", "y", "z"]
    seen.clear()
    nested().named_apply(lambda key, leaf: seen.append(key), nested_keys=True)
    assert seen == ["a", ("n", "x"), ("n", "m", "y"), ("n", "m", "z")]


class TestNone:
    def test_leaves_are_left_out(self):
        out = nested().apply(lambda leaf: leaf if leaf.ndim == 2 else None)
        assert set(out.keys(True)) == {"n", ("n", "x"), ("n", "e")}

    def test_nothing_left(self):
        td = nested().exclude(("n", "e"))
        assert td.apply(lambda leaf: None) is None
        assert nested().apply(lambda leaf: None, filter_empty=True) is None
        assert set(nested().apply(lambda leaf: None).keys(True)) == {"n", ("n", "e")}
        out = nested().apply(lambda leaf: None, filter_empty=False)
        assert set(out.keys(True)) == {"n", ("n", "m"), ("n", "e")}

    def test_empty_nodes(self):
        assert ("n", "e") in nested().apply(torch.neg)
        assert ("n", "e") not in nested().apply(torch.neg, filter_empty=True)
        assert TensorDict({}).apply(torch.neg).is_empty()


class TestOptions:
    def test_batch_size(self):
        out = nested().apply(lambda leaf: leaf.sum(), batch_size=[])
        assert out.batch_size == ()
        assert out["n", "m"].batch_size == ()
        out = nested().apply(lambda leaf: leaf[:2], batch_size=[2])
        assert out["n", "m"].batch_size == (2,)
        with pytest.raises(RuntimeError, match="batch dimension"):
            nested().apply(lambda leaf: leaf.sum())

    def test_names(self):
        assert named().apply(torch.neg)["n", "m"].names == ["rows", "columns", None]
        out = named().apply(torch.neg, names=["p", "q"])
        assert out["n", "m"].names == ["p", "q", None]
        assert named().apply(torch.neg, names=None).names == [None, None]
        assert named().apply(lambda leaf: leaf[0], batch_size=[3]).names == [None]
        with pytest.raises(ValueError, match="name"):
            named().apply(torch.neg, names=["p"])

    def test_device(self):
        td = nested().to("cpu")
        assert td.apply(torch.neg).device == torch.device("cpu")
        assert td.apply(torch.neg, device=None).device is None
        out = td.apply(lambda leaf: leaf.to("meta"), device="meta")
        assert out["n", "x"].is_meta
        check(out)

    def test_lock(self):
        td = nested().lock_()
        assert not td.apply(torch.neg).is_locked
        assert td.apply(torch.neg, propagate_lock=True)["n", "m"].is_locked

    def test_nodes(self):
        td = nested()
        seen = []
        out = td.apply(lambda entry: seen.append(type(entry)) or entry, call_on_nested=True)
        assert seen == [torch.Tensor, TensorDict]
        assert out["n"] is td["n"]
        assert td.apply(lambda entry: entry, is_leaf=lambda cls: True)["n"] is td["n"]

    def test_out(self):
        td, out = nested(), nested().zero_()
        old = leaves(out)
        assert td.apply(torch.neg, out=out) is out
        same(out, -td)
        for path, leaf in leaves(out).items():
            assert leaf is not old[path]
            assert not old[path].any()
        assert td.apply(torch.Tensor.double, out=out)["a"].dtype is torch.float64
        with pytest.raises(RuntimeError, match="locked"):
            td.apply(torch.neg, out=out.lock_())
        fresh = TensorDict({}, [4, 3])
        td.apply(torch.neg, out=fresh)
        assert torch.equal(fresh["a"], -td["a"])
        assert torch.equal(fresh["n", "m", "y"], -td["n", "m", "y"])

    @pytest.mark.parametrize("threads", [0, 2])
    def test_the_name_that_libraries_call(self, threads):
        td = nested()
        same(td._fast_apply(torch.neg, num_threads=threads), -td)
        names = td._fast_apply(lambda name, leaf: leaf + len(name), named=True, nested_keys=True, num_threads=threads)
        assert torch.equal(names["n", "x"], td["n", "x"] + 2)
        assert td._fast_apply(lambda leaf: None, filter_empty=True, num_threads=threads) is None
        old = td["n", "x"]
        assert td._fast_apply(torch.zeros_like, inplace=True, num_threads=threads) is td
        assert td["n", "x"] is old
        assert not old.any()
        with pytest.raises(ValueError, match="told"):
            td._fast_apply(lambda leaf: exec("raise ValueError('told')"), num_threads=threads)

    def test_as_tensor(self):
        td = nested().lock_()
        out = td.as_tensor()
        assert out is not td
        assert out.is_locked
        assert out["a"] is td["a"]
        assert out["n"] is not td["n"]

    def test_numbers_become_tensors(self):
        out = TensorDict({"a": torch.ones(3)}).apply(lambda leaf: 1.5)
        assert out["a"] == 1.5


@pytest.mark.parametrize("make", [flat, stacked])
def test_none_where_there_are_no_results(make):
    td = make()
    for options in ({}, {"inplace": True}, {"out": make()}, {"inplace": True, "filter_empty": True}):
        assert td.apply(lambda leaf: None, **options) is None
    assert td.apply(lambda leaf: None, inplace=True, filter_empty=False) is td
    assert td.apply_(lambda leaf: None) is td
