"""`torch.compile` of what dense tensordicts do: one graph without breaks, with the results of eager mode."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._dynamo.testing import CompileCounter

from containers import BATCH, check, named, nested, same
from tensordict import TensorDict

MASK = torch.tensor([True, False, True, True])
ROWS = torch.tensor([2, 0, 3])


# Dynamo cannot enter a mapping that comes from outside as a context manager: the next two enter one of their own.


def _with_lock(td):
    td = td.copy()
    with td.lock_():
        out = td + 1
    return out


def _with_unlock(td):
    td = td.copy().lock_()
    with td.unlock_():
        td["new"] = td["n", "x"] * 2
    return td


def _with_view(td):
    with td.view(12) as flat:
        flat["new"] = flat["n", "x"] + 1
    return td


def _with_permute(td):
    with td.permute(1, 0) as turned:
        turned["new"] = turned["n", "x"] + 1
    return td


def _nested_set(td):
    td["n", "new"] = td["a"] * 2
    td["p", "q"] = td["n", "x"]
    return td


def _row_write(td):
    td[0] = 0
    td[ROWS] = td[ROWS] * 2
    return td


def _loop(td):
    out = td
    for row in td.unbind(0):
        out = out + row["n", "x"]
    return out


# What is called with a nested tensordict, and gives a tensordict, a tensor or a tuple of them.
PROGRAMS = {
    "construct": lambda td: TensorDict({"a": td["a"], "n": {"x": td["n", "x"] + 1}}, BATCH),
    "construct keywords": lambda td: TensorDict(a=td["a"], batch_size=[4]),
    "construct names": lambda td: TensorDict({"a": td["a"]}, [4, 3], names=["u", "v"]),
    "construct device": lambda td: TensorDict({"a": td["a"]}, [4, 3], device="cpu"),
    "from_dict": lambda td: TensorDict.from_dict({"a": td["a"], "n": {"x": td["n", "x"]}}, batch_size=BATCH),
    "get": lambda td: td["a"] + td.get("a") + td.get(("n", "m", "y")).sum() + td.get("missing", 1),
    "get nested": lambda td: td["n", "m", "y"] * 2,
    "set": lambda td: td.set("new", td["a"] * 2),
    "set nested": _nested_set,
    "set_": lambda td: td.set_("a", td["a"] * 2),
    "set_at_": lambda td: td.set_at_("a", 3, 1),
    "pop": lambda td: (td.pop("a"), td),
    "index int": lambda td: td[1],
    "index slice": lambda td: td[1:3],
    "index step": lambda td: td[::2, 0],
    "index none": lambda td: td[None],
    "index ellipsis": lambda td: td[..., 1],
    "index rows": lambda td: td[ROWS],
    "index list": lambda td: td[[2, 0]],
    "index second": lambda td: td[:, torch.tensor([0, 2])],
    "index two": lambda td: td[ROWS, torch.tensor([0, 2, 1])],
    "write rows": _row_write,
    "arithmetic": lambda td: (td + 1) * td / 2 - td["n", "x"],
    "reverse": lambda td: 1 - td,
    "in place": lambda td: td.add_(1).mul_(td),
    "iadd": lambda td: td.__iadd__(2),
    "abs": lambda td: abs(-td),
    "compare": lambda td: (td > 0, td == td),
    "all": lambda td: (td > 0).all(0),
    "lerp": lambda td: td.lerp(td * 2, 0.5),
    "lerp_": lambda td: td.lerp_(td * 2, 0.5),
    "sum": lambda td: (td.sum(0), td.mean((0, 1)), td.sum(reduce=True)),
    "view": lambda td: td.view(-1),
    "reshape": lambda td: td.reshape(3, 4),
    "unsqueeze": lambda td: td.unsqueeze(1).squeeze(1).unsqueeze(-1),
    "permute": lambda td: td.permute(1, 0),
    "transpose": lambda td: td.transpose(0, 1),
    "expand": lambda td: td.expand(2, 4, 3),
    "flatten": lambda td: td.flatten(0, 1),
    "unflatten": lambda td: td.unflatten(0, (2, 2)),
    "unbind": lambda td: td.unbind(1),
    "split": lambda td: td.split(2),
    "chunk": lambda td: td.chunk(3, 1),
    "loop": _loop,
    "stack": lambda td: torch.stack([td, td * 2], 1),
    "stack class": lambda td: TensorDict.stack([td, td]),
    "cat": lambda td: torch.cat([td, td * 2], -1),
    "apply": lambda td: td.apply(lambda leaf: leaf + 1),
    "apply others": lambda td: td.apply(lambda x, y: x * y, td),
    "apply batch size": lambda td: td.apply(lambda leaf: leaf.sum(), batch_size=[]),
    "apply_": lambda td: td.apply_(lambda leaf: leaf * 2),
    "named_apply": lambda td: td.named_apply(lambda key, leaf: leaf * (2 if key == "x" else 3)),
    "clone": lambda td: td.clone(),
    "copy": lambda td: td.copy(),
    "empty": lambda td: td.empty(recurse=True),
    "lock": lambda td: td.lock_() + 1,
    "unlock": lambda td: td.lock_().unlock_().set("new", td["a"]),
    "with lock": _with_lock,
    "with unlock": _with_unlock,
    "with view": _with_view,
    "with permute": _with_permute,
    "update": lambda td: td.update({"a": td["a"] * 2, "n": {"new": td["n", "x"]}, ("p", "q"): td["a"]}),
    "update tensordict": lambda td: td.update(td * 2),
    "update inplace": lambda td: td.update(td * 2, inplace=True),
    "update_": lambda td: td.update_(td * 2),
    "update_at_": lambda td: td.update_at_(td[1] * 2, 0),
    "select": lambda td: td.select("a", ("n", "x")),
    "exclude": lambda td: td.exclude("a", ("n", "m", "y")),
    "rename": lambda td: td.rename_key_("a", ("n", "a")),
    "flatten_keys": lambda td: td.exclude(("n", "e")).flatten_keys(".").unflatten_keys("."),
    "split_keys": lambda td: td.split_keys(["a"], [("n", "x")]),
    "keys": lambda td: td["a"] * len(list(td.keys(True, True))) + sum(leaf.sum() for leaf in td.values(True, True)),
    "items": lambda td: {key: leaf * 2 for key, leaf in td.items()},
    "to dtype": lambda td: td.to(torch.float64),
    "double": lambda td: td.double(),
    "to device": lambda td: td.to("cpu"),
    "detach": lambda td: td.detach(),
    "new_zeros": lambda td: td.new_zeros(2),
    "zeros_like": lambda td: torch.zeros_like(td) + torch.ones_like(td),
    "vmap": lambda td: torch.vmap(lambda row: row * 2 + row["n", "x"])(td),
    "vmap dims": lambda td: torch.vmap(lambda row: row * 2, in_dims=1, out_dims=1)(td),
    "to_dict": lambda td: td.to_dict(),
    "batch size": lambda td: td["a"] * td.batch_size[0] + td.numel() + td.ndim,
    "tuple out": lambda td: (td, [td + 1, {"x": td["a"]}]),
}


def agree(one: Any, other: Any) -> None:
    if isinstance(one, TensorDict):
        assert type(other) is TensorDict
        same(one, other)
        assert (one.names, one.device, one.is_locked) == (other.names, other.device, other.is_locked)
        check(other)
    elif isinstance(one, torch.Tensor):
        torch.testing.assert_close(one, other)
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            agree(one[key], other[key])
    else:
        assert type(one) is type(other)
        assert len(one) == len(other)
        for left, right in zip(one, other):
            agree(left, right)


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_graph(name):
    program = PROGRAMS[name]
    counter = CompileCounter()
    compiled = torch.compile(program, fullgraph=True, backend=counter)
    agree(program(nested()), compiled(nested()))
    assert counter.frame_count <= 1
    agree(program(nested() * 3), compiled(nested() * 3))
    assert counter.frame_count <= 1


@pytest.mark.parametrize("program", [lambda td: td[MASK], lambda td: td[[True, False, True, True]]])
def test_masks(program):
    """The size of the result depends on data, which dynamo traces when it may."""
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = torch.compile(program, fullgraph=True, backend="eager")
        agree(program(nested()), compiled(nested()))


def test_names_and_locks_go_through():
    compiled = torch.compile(lambda td: td + 1, fullgraph=True, backend="eager")
    out = compiled(named())
    assert out["n", "m"].names == ["rows", "columns", None]
    assert compiled(nested().lock_()).is_locked


def test_input_is_changed_in_place():
    def program(td):
        td["new"] = td["a"] * 2
        td["n", "x"].add_(1)

    td = nested()
    torch.compile(program, fullgraph=True, backend="eager")(td)
    assert torch.equal(td["new"], nested()["a"] * 2)
    assert torch.equal(td["n", "x"], nested()["n", "x"] + 1)


def test_gradients():
    weight = torch.ones(3, requires_grad=True)
    compiled = torch.compile(lambda td: (td * weight).sum(reduce=True), fullgraph=True, backend="aot_eager")
    compiled(nested()).backward()
    other = torch.ones(3, requires_grad=True)
    (nested() * other).sum(reduce=True).backward()
    torch.testing.assert_close(weight.grad, other.grad)


def test_other_sizes_compile_again_at_most_once():
    counter = CompileCounter()
    compiled = torch.compile(lambda td: (td + 1)[0], fullgraph=True, backend=counter)
    for size in (3, 4, 5, 6):
        td = TensorDict({"a": torch.ones(size, 2)}, [size])
        assert compiled(td)["a"].tolist() == [2, 2]
    assert counter.frame_count <= 2


def test_a_refused_write_is_an_error_in_compiled_code():
    compiled = torch.compile(lambda td: td.lock_().set("new", td["a"]), backend="eager")
    with pytest.raises(RuntimeError, match="locked"):
        compiled(nested())
