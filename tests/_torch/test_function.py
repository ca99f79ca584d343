"""`torch.*` functions of tensordicts."""

from __future__ import annotations

import pytest
import torch

from containers import check, leaves, named, nested, same
from tensordict import TensorDict

CALLS = {
    "abs": (torch.abs, ()),
    "add": (torch.add, (1,)),
    "chunk": (torch.chunk, (2,)),
    "clone": (torch.clone, ()),
    "div": (torch.div, (2,)),
    "flatten": (torch.flatten, (0, 1)),
    "lerp": (torch.lerp, (nested(), 0.5)),
    "mean": (torch.mean, (0,)),
    "mul": (torch.mul, (2,)),
    "neg": (torch.neg, ()),
    "permute": (torch.permute, ((1, 0),)),
    "reshape": (torch.reshape, ((12,),)),
    "split": (torch.split, (2,)),
    "squeeze": (torch.squeeze, (0,)),
    "sub": (torch.sub, (1,)),
    "sum": (torch.sum, (0,)),
    "transpose": (torch.transpose, (0, 1)),
    "unbind": (torch.unbind, (1,)),
    "unflatten": (torch.unflatten, (0, (2, 2))),
    "unsqueeze": (torch.unsqueeze, (0,)),
}


@pytest.mark.parametrize("name", CALLS)
def test_is_the_method(name):
    function, args = CALLS[name]
    td = nested()
    out, wanted = function(td, *args), getattr(td, name)(*args)
    for one, other in zip(out, wanted, strict=True) if isinstance(wanted, tuple) else [(out, wanted)]:
        same(one, other)


LIKE = {torch.zeros_like: 0, torch.ones_like: 1, torch.empty_like: None, torch.rand_like: None, torch.randn_like: None}


@pytest.mark.parametrize("function", LIKE)
def test_like(function):
    td = named().lock_()
    out = function(td)
    assert out.is_locked
    assert out.names == ["rows", "columns"]
    for path, leaf in leaves(td).items():
        assert leaves(out)[path].shape == leaf.shape
        if LIKE[function] is not None:
            assert (leaves(out)[path] == LIKE[function]).all()
    assert function(td, dtype=torch.double).dtype is torch.double
    meta = function(td, device="meta")
    assert meta.device == torch.device("meta")
    check(meta)


def test_full_like():
    assert (torch.full_like(nested(), 3) == 3).all()
    assert torch.zeros_like(nested(), requires_grad=True).requires_grad


@pytest.mark.parametrize("function", [torch.matmul, torch.linalg.norm, torch.nn.functional.relu])
def test_without_a_meaning(function):
    with pytest.raises(TypeError, match=r"no implementation|handlers returned NotImplemented"):
        function(nested(), nested()) if function is torch.matmul else function(nested())


def test_mixed_operands():
    td = TensorDict({"a": torch.ones(3)}, [3])
    assert (torch.add(td, torch.ones(3))["a"] == 2).all()
    assert (torch.ones(3) + td)["a"].sum() == 6
    assert (torch.ones(3) * td)["a"].sum() == 3


@pytest.mark.parametrize(
    "run",
    [
        lambda x, y: x + y,
        lambda x, y: x - y,
        lambda x, y: x * y,
        lambda x, y: x / y,
        lambda x, y: x == y,
        lambda x, y: x != y,
        lambda x, y: x < y,
        lambda x, y: x <= y,
        lambda x, y: x > y,
        lambda x, y: x >= y,
        torch.sub,
        torch.div,
        torch.lt,
        torch.eq,
    ],
)
@pytest.mark.parametrize("compiled", [False, True])
def test_operands_on_either_side(run, compiled):
    td, other = nested(), torch.linspace(-1, 1, 12).reshape(4, 3) + 0.1
    if compiled:
        torch._dynamo.reset()
    call = torch.compile(lambda x, y: run(x, y), fullgraph=True, backend="eager") if compiled else run
    beside = {path: other.reshape(4, 3, *[1] * (leaf.ndim - 2)) for path, leaf in leaves(td).items()}
    for path, leaf in leaves(call(td, other)).items():
        torch.testing.assert_close(leaf, run(leaves(td)[path], beside[path]))
    for path, leaf in leaves(call(other, td)).items():
        torch.testing.assert_close(leaf, run(beside[path], leaves(td)[path]))
