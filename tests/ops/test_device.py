"""Moves, pinned memory, addresses. There is no accelerator here: stand-ins note what torch is asked for."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from containers import CONTAINERS, STACKS, check, leaves, named, nested
from tensordict import TensorDict

GPU = torch.device("cuda", 0)


class Remote(Tensor):
    """A leaf that says that it is on an accelerator, and notes its moves."""

    log: list = []  # noqa: RUF012

    @property
    def device(self):
        return GPU

    def to(self, device, non_blocking=False):
        self.log.append(("copy", str(device), non_blocking))
        return self.as_subclass(Tensor)


@pytest.fixture
def log(monkeypatch):
    Remote.log.clear()
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda device=None: Remote.log.append(("wait", str(device))))
    return Remote.log


def remote() -> TensorDict:
    return TensorDict({"a": torch.ones(3).as_subclass(Remote), "n": {"b": torch.ones(3).as_subclass(Remote)}}, [3])


class TestMovesFromAnAccelerator:
    def test_one_wait_after_all_copies(self, log):
        remote().to("cpu")
        assert log == [("copy", "cpu", True), ("copy", "cpu", True), ("wait", "cuda:0")]

    def test_asked_for(self, log):
        remote().to("cpu", non_blocking=True)
        assert log == [("copy", "cpu", True)] * 2

    def test_refused(self, log):
        remote().cpu(non_blocking=False)
        assert log == [("copy", "cpu", False)] * 2

    def test_nothing_to_wait_for(self, log):
        nested().to("cpu").to("meta")
        nested().to("cpu", non_blocking=True)
        assert log == []


class TestPinned:
    @pytest.fixture(autouse=True)
    def _pin(self, monkeypatch):
        monkeypatch.setattr(Tensor, "pin_memory", lambda leaf: leaf.clone())

    @pytest.mark.parametrize("threads", [None, 0, 1, 3])
    def test_copies(self, threads):
        td = named().lock_()
        out = td.pin_memory(threads)
        assert all(leaf is not leaves(td)[path] for path, leaf in leaves(out).items())
        assert all(torch.equal(leaf, leaves(td)[path]) for path, leaf in leaves(out).items())
        assert out.is_locked
        assert out.names == ["rows", "columns"]
        check(out)

    def test_inplace(self):
        td = nested()
        node, leaf = td["n"], td["n", "x"]
        assert td.pin_memory(inplace=True) is td
        assert td["n"] is node
        assert node["x"] is not leaf
        with pytest.raises(RuntimeError, match="locked"):
            td.lock_().pin_memory(inplace=True)

    def test_deprecated(self):
        td = nested()
        with pytest.warns(DeprecationWarning, match="pin_memory"):
            assert td.pin_memory_() is td

    def test_of_a_view(self):
        with pytest.raises(RuntimeError, match="Cannot pin"):
            CONTAINERS["view"]().pin_memory()
        with pytest.raises(TypeError, match="inplace"):
            CONTAINERS["view"]().to(torch.double, inplace=True)


class TestArguments:
    def test_other(self):
        other = TensorDict({"a": torch.ones(2, dtype=torch.double)}, [2])
        assert nested().to(other=other).dtype is torch.double
        assert nested().to(other).device is None
        assert nested().to(other, non_blocking=True).dtype is torch.double
        assert nested().to(other=torch.ones(1, device="meta")).is_meta

    def test_places(self):
        assert nested().to("meta", torch.double, True).dtype is torch.double
        assert nested().to(torch.double, True).dtype is torch.double
        assert nested().to(None, torch.double).dtype is torch.double

    def test_memory_format(self):
        td = TensorDict({"image": torch.ones(2, 3, 4, 5), "flat": torch.ones(2, 3)}, [2])
        out = td.to(memory_format=torch.channels_last)
        assert out["image"].is_contiguous(memory_format=torch.channels_last)
        assert out["flat"] is td["flat"]

    @pytest.mark.parametrize(
        ("program", "error"),
        [
            (lambda td: td.to("cpu", copy=True), RuntimeError),
            (lambda td: td.to("cpu", torch.double, False, True), RuntimeError),
            (lambda td: td.to("meta", True), TypeError),
            (lambda td: td.to(torch.double, "meta"), TypeError),
            (lambda td: td.to("cpu", device="meta"), TypeError),
            (lambda td: td.to(dtype="float"), TypeError),
            (lambda td: td.to(other=td, device="meta"), ValueError),
            (lambda td: td.to("nowhere"), RuntimeError),
            (lambda td: td.cuda("meta"), RuntimeError),
        ],
    )
    def test_refused(self, program, error):
        with pytest.raises(error):
            program(nested())


@pytest.mark.parametrize("container", [name for name in CONTAINERS if name not in STACKS])
def test_addresses(container):
    td = CONTAINERS[container]()
    out = td.data_ptr()
    assert (out.batch_size, out.device, out.is_locked) == ((), torch.device("cpu"), False)
    assert leaves(out).keys() == leaves(td).keys()
    if container != "gathered":
        assert all(leaf.item() == leaves(td)[path].data_ptr() for path, leaf in leaves(out).items())
        storage = leaves(td.data_ptr(storage=True))
        assert all(leaf.item() == leaves(td)[path].untyped_storage().data_ptr() for path, leaf in storage.items())


def test_streams():
    class Streamed(Tensor):
        def record_stream(self, stream):
            seen.append(stream)

    seen = []
    td = TensorDict({"a": torch.ones(3).as_subclass(Streamed), "n": {"b": torch.ones(3).as_subclass(Streamed)}}, [3])
    assert td.record_stream("one") is td
    assert td.record_stream("one") is td
    assert seen == ["one"] * 4
    with pytest.raises(RuntimeError, match="already associated"):
        td.record_stream("two")


def test_quantized_casts_are_deprecated():
    for name in ("qint8", "qint32", "quint8", "quint4x2"):
        with pytest.warns(DeprecationWarning, match=name):
            assert getattr(nested(), name)(cast_filter=lambda key, leaf: False).dtype is torch.float32
