"""Gradients of whole tensordicts."""

from __future__ import annotations

import pytest
import torch

from containers import CONTAINERS, PLAIN, check, leaves, named, nested, nodes, same
from tensordict import TensorDict


def tracked(container="nested"):
    return CONTAINERS[container]().apply(lambda leaf: leaf.detach().clone().requires_grad_(), propagate_lock=True)


class TestData:
    @pytest.mark.parametrize("container", PLAIN)
    def test_read(self, container):
        td = tracked(container)
        same(td.data, td.detach())
        assert not td.data.requires_grad
        assert td.data.is_locked == td.is_locked
        assert all(leaf.data_ptr() == leaves(td)[path].data_ptr() for path, leaf in leaves(td.data).items())

    @pytest.mark.parametrize("container", CONTAINERS)
    def test_write(self, container):
        td = CONTAINERS[container]()
        if container == "strided":
            td = td.clone()
        old, new = leaves(td), td.apply(lambda leaf: leaf * 2 + 1)
        td.data = new
        same(td, new)
        if container in PLAIN:
            assert all(leaf is old[path] for path, leaf in leaves(td).items())

    def test_write_some(self):
        td = tracked()
        td.data = TensorDict({"n": {"x": torch.ones(4, 3)}}, [4, 3])
        assert td["n", "x"].requires_grad
        assert torch.equal(td["n", "x"].detach(), torch.ones(4, 3))
        assert torch.equal(td["a"], nested()["a"])

    def test_refused(self):
        td = nested()
        for value, error in (
            (td[:2], RuntimeError),
            (nested().set("more", torch.ones(4, 3)), KeyError),
            (1, TypeError),
            ({}, TypeError),
            (nested().to("meta"), RuntimeError),
        ):
            with pytest.raises(error):
                td.data = value
            same(td, nested())


class TestGrad:
    def test_none(self):
        assert nested().grad is None
        assert tracked().grad is None
        assert (tracked() * 2).grad is None

    @pytest.mark.parametrize("container", PLAIN)
    def test_read(self, container):
        td = tracked(container)
        (td * 3).sum(reduce=True).backward()
        assert all(torch.equal(leaf, torch.full_like(leaf, 3)) for leaf in leaves(td.grad).values())
        assert all(leaf is leaves(td)[path].grad for path, leaf in leaves(td.grad).items())
        assert (td.grad.names, td.grad.device, td.grad.is_locked) == (td.names, td.device, td.is_locked)
        check(td.grad)

    def test_only_those_that_have_one(self):
        td = tracked()
        td["n", "x"].sum().backward()
        assert set(leaves(td.grad)) == {("n", "x")}
        assert set(nodes(td.grad)) == {(), ("n",)}

    def test_write(self):
        td = tracked()
        td.grad = nested()
        same(td.grad, nested().exclude(("n", "e")))
        td.grad = None
        assert td.grad is None

    def test_refused(self):
        td = tracked()
        td.grad = nested()
        for value, error in ((nested().exclude("a"), KeyError), (nested().double(), RuntimeError), (1, TypeError)):
            with pytest.raises(error):
                td.grad = value
            same(td.grad, nested().exclude(("n", "e")))

    def test_zero(self):
        td = tracked()
        td.sum(reduce=True).backward()
        assert td.zero_grad(set_to_none=False) is td
        assert all(not leaf.any() for leaf in leaves(td.grad).values())
        assert td.zero_grad().grad is None


class TestFlag:
    def test_set(self):
        td = nested()
        assert not td.requires_grad
        assert td.requires_grad_() is td
        assert all(leaf.requires_grad for leaf in leaves(td).values())
        assert not td.requires_grad_(False).requires_grad

    def test_refused_as_a_whole(self):
        td = TensorDict({"a": torch.ones(3), "i": torch.ones(3, dtype=torch.int64)}, [3])
        with pytest.raises(RuntimeError, match="floating point"):
            td.requires_grad_()
        assert not td["a"].requires_grad
        td.requires_grad_(False)

    def test_detach(self):
        td = tracked() * 2
        assert td.detach_() is td
        assert not td.requires_grad
        td = named().lock_()
        assert td.detach().is_locked
        assert td.detach().names == ["rows", "columns"]


class TestBackward:
    def test_of_single_elements(self):
        td = tracked()
        assert (td * 3).sum().backward() is None
        assert all(torch.equal(leaf, torch.full_like(leaf, 3)) for leaf in leaves(td.grad).values())

    def test_with_gradients(self):
        td = tracked()
        (td * 2).backward(nested())
        for path, leaf in leaves(td.grad).items():
            torch.testing.assert_close(leaf, leaves(nested())[path] * 2)

    @pytest.mark.filterwarnings("ignore:Using backward")
    def test_options(self):
        td = tracked()
        out = (td * td).sum()
        out.backward(retain_graph=True, inputs=[td["a"]])
        assert set(leaves(td.grad)) == {("a",)}
        td.zero_grad()
        out.backward(create_graph=True, inputs=td["n"])
        assert td["a"].grad is None
        assert td["n", "x"].grad.requires_grad
        td.zero_grad()

    def test_torch_function(self):
        td = tracked()
        torch.autograd.backward(td.sum())
        assert td.grad is not None

    @pytest.mark.parametrize(
        ("program", "error"),
        [
            (lambda td: (td * 2).backward(), RuntimeError),
            (lambda td: td.detach().backward(), RuntimeError),
            (lambda td: TensorDict().backward(), RuntimeError),
            (lambda td: (td * 2).backward(torch.ones(4, 3)), TypeError),
            (lambda td: (td * 2).backward(nested().exclude("a")), KeyError),
        ],
    )
    def test_refused(self, program, error):
        td = tracked()
        with pytest.raises(error):
            program(td)
        assert td.grad is None


class TestTorchGrad:
    def test_of_a_tensordict(self):
        td = tracked()
        out = torch.autograd.grad((td * td).sum(), td)
        for path, leaf in leaves(out).items():
            torch.testing.assert_close(leaf, leaves(nested())[path] * 2)
        assert out["n", "m"].batch_size == (4, 3, 2)

    def test_of_a_tensor(self):
        td = tracked().lock_()
        out = torch.autograd.grad((td * 3).sum(reduce=True), td)
        assert out.is_locked
        assert torch.equal(out["a"], torch.full_like(out["a"], 3))
        (one,) = torch.autograd.grad((td * 3).sum(), td["a"])
        assert torch.equal(one, out["a"])

    def test_weights(self):
        td = tracked()
        out = torch.autograd.grad(td * 2, td, nested())
        torch.testing.assert_close(out["n", "x"], nested()["n", "x"] * 2)
        out = torch.autograd.grad(td["a"] * 2, td, nested()["a"], allow_unused=True)
        assert set(leaves(out)) == {("a",)}

    def test_unused(self):
        td = tracked()
        out = torch.autograd.grad(td.select("a").sum(), td, allow_unused=True)
        assert set(leaves(out)) == {("a",)}
        assert set(nodes(out)) == set(nodes(td))
        out = torch.autograd.grad(td["a"].sum(), td, allow_unused=True, materialize_grads=True)
        assert not out["n", "x"].any()

    @pytest.mark.parametrize(
        ("program", "error"),
        [
            (lambda td: torch.autograd.grad(td * 2, td), RuntimeError),
            (lambda td: torch.autograd.grad(td["a"].sum(), td), RuntimeError),
            (lambda td: torch.autograd.grad(td * 2, td, torch.ones(4, 3)), ValueError),
            (lambda td: torch.autograd.grad(td.sum(), [td, td]), ValueError),
            (lambda td: torch.autograd.grad([td.sum(), td.sum()], td), ValueError),
        ],
    )
    def test_refused(self, program, error):
        with pytest.raises(error):
            program(tracked())
