"""Batch size, names and device: the state that all entries share."""

from __future__ import annotations

import pytest
import torch

from containers import CONTAINERS, check, named, nested, snapshot, unchanged
from tensordict import TensorDict, lazy_stack


@pytest.mark.parametrize("container", CONTAINERS)
def test_queries(container):
    td = CONTAINERS[container]()
    assert td.shape == td.batch_size == td.size() == (4, 3)
    assert td.ndim == td.batch_dims == td.dim() == td.ndimension() == 2
    assert (td.size(0), td.size(-1), td.numel()) == (4, 3, 12)
    with pytest.raises(IndexError):
        td.size(2)


def test_numel_is_at_least_one():
    assert TensorDict().numel() == 1
    assert TensorDict({}, [0]).numel() == 1


class TestBatchSize:
    @pytest.mark.parametrize("size", [[4], (4,), torch.Size([4]), []])
    def test_fewer_dimensions(self, size):
        td = named()
        td.batch_size = size
        assert td.batch_size == torch.Size(size)
        assert td.names == ["rows"][: len(size)]
        assert td["n"].batch_size == (4, 3)
        check(td)

    def test_more_dimensions(self):
        td = nested().select("a", ("n", "m"))
        td.batch_size = [4, 3, 2]
        assert td["n"].batch_size == td["n", "m"].batch_size == (4, 3, 2)
        check(td)

    @pytest.mark.parametrize("size", [[5], [4, 3, 2], [3, 4], [4, 3, 1]])
    def test_refused(self, size):
        td = nested()
        before = snapshot(td)
        with pytest.raises(RuntimeError, match="incompatible"):
            td.batch_size = size
        unchanged(td, before)

    def test_auto(self):
        td = TensorDict({"a": torch.ones(3, 4), "n": {"x": torch.ones(3, 4, 5)}})
        assert td.auto_batch_size_() is td
        assert td.batch_size == (3, 4)
        assert td["n"].batch_size == (3, 4, 5)
        assert td.auto_batch_size_(1).batch_size == (3,)
        assert td["n"].batch_size == (3,)
        assert TensorDict({}, [3]).auto_batch_size_().batch_size == (3,)


class TestNames:
    def test_set(self):
        td = nested()
        assert td.names == [None, None]
        td.names = ["rows", None]
        assert td["n", "m"].names == ["rows", None, None]
        td.names = None
        assert td["n", "m"].names == [None, None, None]
        check(td)

    @pytest.mark.parametrize("names", [["a"], ["a", "b", "c"], ["a", "a"], [1, 2]])
    def test_refused(self, names):
        td = named()
        with pytest.raises(ValueError, match="name"):
            td.names = names
        assert td.names == ["rows", "columns"]

    def test_list_is_a_copy(self):
        td = named()
        td.names.append("more")
        td.names[0] = "other"
        assert td.names == ["rows", "columns"]


class TestDevice:
    def test_label(self):
        td = nested()
        assert td.device is None
        moved = td.to("cpu")
        assert moved.device == torch.device("cpu")
        assert moved.is_cpu
        assert not moved.is_cuda
        assert not td.is_cpu
        check(moved)

    def test_cannot_be_set(self):
        with pytest.raises(RuntimeError, match="to"):
            nested().device = "cpu"

    def test_clear(self):
        td = nested().to("cpu").lock_()
        assert td.clear_device_() is td
        assert td.device is None
        assert td["n", "m"].device is None


def test_leaf_queries():
    td = nested()
    assert td.dtype is torch.float32
    td["n", "x"] = td["n", "x"].int()
    assert td.dtype is None
    assert not td.is_floating_point()
    assert td.is_contiguous()
    assert not td.requires_grad
    td["a"].requires_grad_()
    assert td.requires_grad


def test_sizes():
    td = TensorDict({"a": torch.ones(3, 4), "n": {"x": torch.ones(3, dtype=torch.int64)}}, [3])
    assert td.bytes() == 12 * 4 + 3 * 8
    assert td.param_count() == 15
    td["b"] = td["a"]
    assert td.bytes() == 2 * 48 + 24
    assert td.bytes(count_duplicates=False) == 72
    assert td.param_count(count_duplicates=False) == 15


def test_truth_is_refused():
    with pytest.raises(RuntimeError, match="boolean"):
        bool(nested())


def test_bytes_of_what_leaves_hold():
    values, offsets, lengths = torch.zeros(3), torch.tensor([0, 1, 3]), torch.tensor([1, 2])
    jagged = torch.nested.nested_tensor_from_jagged(values, offsets, lengths)
    td = TensorDict({"v": values, "j": jagged, "k": torch.nested.nested_tensor_from_jagged(values + 1, offsets, lengths)})
    assert td.bytes() == 12 + 2 * (12 + 24 + 16)
    assert td.bytes(count_duplicates=False) == 12 + 24 + 16 + 12
    leaf = torch.ones(3, requires_grad=True)
    leaf.sum().backward()
    assert TensorDict({"g": leaf}).bytes() == 24


def test_names_that_a_node_below_has():
    td = TensorDict({"n": TensorDict({}, [3, 4], names=["c", "d"])}, [3], names=["c"])
    for node, names in ((td, ["d"]), (lazy_stack([td, td], -1), ["c", "d"])):
        with pytest.raises(ValueError, match=r"non-unique.*'n'"):
            node.names = names
    assert td["n"].names == ["c", "d"]


def test_names_of_a_stack_of_unlike_names():
    one, two = (TensorDict({"a": torch.zeros(3)}, [3], names=[name]) for name in "ab")
    assert torch.stack([one, one]).names == [None, "a"]
    assert torch.stack([one, two]).names == [None, None]
    assert torch.cat([one, two]).names == ["a"]
