"""Moves and casts."""

from __future__ import annotations

import pytest
import torch

import tensordict
from containers import CONTAINERS, check, leaves, named, nested
from tensordict import TensorDict

CASTS = {
    "double": torch.float64,
    "float": torch.float32,
    "half": torch.float16,
    "bfloat16": torch.bfloat16,
    "int": torch.int32,
    "bool": torch.bool,
}


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("name", CASTS)
def test_casts(name, container):
    td = CONTAINERS[container]()
    out = getattr(td, name)()
    for other in (out, td.to(CASTS[name]), td.to(dtype=CASTS[name]), td.type(CASTS[name])):
        for path, leaf in leaves(td).items():
            assert leaves(other)[path].dtype is CASTS[name]
            assert torch.equal(leaves(other)[path], leaf.to(CASTS[name]))
    assert (out.batch_size, out.names, out.device) == (td.batch_size, td.names, td.device)
    assert out.is_locked == td.is_locked
    check(out)


def test_leaves_that_have_the_dtype_are_shared():
    td = nested()
    assert td.float()["n", "x"] is td["n", "x"]


class TestFilter:
    td = TensorDict({"a": torch.ones(3), "i": torch.ones(3, dtype=torch.int64), "n": {"x": torch.ones(3)}}, [3])

    @pytest.mark.parametrize("cast", [lambda td, f: td.double(cast_filter=f), lambda td, f: td.to(torch.double, cast_filter=f)])
    def test_keys_are_tuples(self, cast):
        seen = []
        cast(self.td, lambda key, leaf: seen.append(key))
        assert seen == [("a",), ("i",), ("n", "x")]

    def test_predicates(self):
        out = self.td.double(cast_filter=tensordict.is_floating)
        assert (out["a"].dtype, out["i"].dtype, out["n", "x"].dtype) == (torch.double, torch.int64, torch.double)
        assert self.td.bool(cast_filter=tensordict.is_integer)["i"].dtype is torch.bool

    @pytest.mark.parametrize(
        ("dtype", "floating", "inexact", "integer", "boolean"),
        [
            (torch.float16, True, True, False, False),
            (torch.bfloat16, True, True, False, False),
            (torch.complex64, False, True, False, False),
            (torch.uint8, False, False, True, False),
            (torch.int64, False, False, True, False),
            (torch.bool, False, False, False, True),
        ],
    )
    def test_dtypes(self, dtype, floating, inexact, integer, boolean):
        leaf = torch.ones(2, dtype=dtype)
        for arguments in ((leaf,), ("key", leaf), (("n", "key"), leaf)):
            assert tensordict.is_floating(*arguments) == floating
            assert tensordict.is_inexact(*arguments) == inexact
            assert tensordict.is_integer(*arguments) == integer
            assert tensordict.is_bool(*arguments) == boolean


class TestTo:
    def test_nothing_to_do(self):
        td = nested().to("cpu")
        assert td.to("cpu") is td
        assert td.cpu() is td
        assert td.to() is td
        assert td.to(None) is td
        assert td.to(batch_size=[4, 3]) is td

    def test_device(self):
        td = named()
        for out in (td.to("meta"), td.to(device="meta"), td.to(torch.device("meta")), td.to("meta", non_blocking=True)):
            assert out["n", "m", "y"].is_meta
            assert out.names == ["rows", "columns"]
            check(out)
        assert td.device is None

    def test_device_and_dtype(self):
        for out in (nested().to("cpu", torch.double), nested().to(torch.ones((), dtype=torch.double))):
            assert out.device == torch.device("cpu")
            assert out.dtype is torch.double

    def test_like_a_tensordict(self):
        out = nested().to(TensorDict({"a": torch.ones(2, dtype=torch.double)}, [2], device="cpu"))
        assert out.dtype is torch.double
        assert out.device == torch.device("cpu")
        assert out.batch_size == (4, 3)

    def test_batch_size_leaves_the_tensordict_alone(self):
        td = nested()
        assert td.to(batch_size=[4]).batch_size == (4,)
        assert td.batch_size == (4, 3)

    def test_inplace(self):
        td = nested()
        node = td["n"]
        assert td.to(torch.double, inplace=True) is td
        assert node["x"].dtype is torch.double
        td.to("cpu", inplace=True)
        assert node.device == torch.device("cpu")
        with pytest.raises(RuntimeError, match="locked"):
            td.lock_().to(torch.float32, inplace=True)
        assert td.dtype is torch.double

    @pytest.mark.parametrize(("args", "kwargs"), [((0.5,), {}), ((), {"foo": 1}), (([],), {})])
    def test_refused(self, args, kwargs):
        with pytest.raises(TypeError):
            nested().to(*args, **kwargs)
