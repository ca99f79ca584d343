"""Axes moved, elements reordered, repeated, cut and padded: against torch leaf by leaf, in every mode, and against numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from containers import BATCH, CONTAINERS, check, leaves, named, nested, nodes, snapshot, unchanged
from tensordict import TensorDict, pad

MASK = torch.tensor([[True, False, True], [False, False, False], [True, True, True], [False, True, False]])
PLACES = torch.tensor([[0, 1, 3], [2, 2, 0]])


class Row(NamedTuple):
    """A call; the same for a leaf `x` with two batch dimensions; where the dimensions come from; whether the lock stays."""

    call: Callable[[Any], Any]
    leaf: Callable[[Any], Any]
    origins: tuple[int | None, ...] = (0, 1)
    keeps_lock: bool = True
    copies: bool = True


def _wide(mask: Any, x: Any) -> Any:
    return mask.reshape(mask.shape + (1,) * (x.ndim - mask.ndim))


def _pad(x: Any, *around: int) -> Any:
    return torch.nn.functional.pad(x, (0, 0) * (x.ndim - 2) + around[2:] + around[:2], value=0.5)


ROWS = {
    "swapaxes": Row(lambda td: td.swapaxes(0, -1), lambda x: x.transpose(0, 1), (1, 0), copies=False),
    "swapdims": Row(lambda td: td.swapdims(1, 0), lambda x: x.transpose(0, 1), (1, 0), copies=False),
    "movedim": Row(lambda td: td.movedim(0, -1), lambda x: x.transpose(0, 1), (1, 0), copies=False),
    "moveaxis": Row(lambda td: td.moveaxis((0, 1), (1, 0)), lambda x: x.transpose(0, 1), (1, 0), copies=False),
    "atleast_3d": Row(lambda td: td.atleast_3d(), lambda x: x[None], (None, 0, 1), copies=False),
    "broadcast_to": Row(lambda td: td.broadcast_to((2, -1, 3)), lambda x: x.expand(2, *x.shape), (None, 0, 1), copies=False),
    "expand_as": Row(
        lambda td: td.expand_as(torch.zeros(2, 4, 3)), lambda x: x.expand(2, *x.shape), (None, 0, 1), copies=False
    ),
    "expand_as td": Row(
        lambda td: td.expand_as(td.expand(2, 4, 3)), lambda x: x.expand(2, *x.shape), (None, 0, 1), copies=False
    ),
    "repeat": Row(lambda td: td.repeat(2, 3), lambda x: x.repeat(2, 3, *[1] * (x.ndim - 2))),
    "repeat none": Row(lambda td: td.repeat([1, 0]), lambda x: x[:, :0]),
    "repeat_interleave": Row(lambda td: td.repeat_interleave(2, 1), lambda x: x.repeat_interleave(2, 1)),
    "repeat_interleave flat": Row(
        lambda td: td.repeat_interleave(2), lambda x: x.flatten(0, 1).repeat_interleave(2, 0), (None,)
    ),
    "repeat_interleave each": Row(lambda td: td.repeat_interleave(torch.tensor([1, 0, 2]), -1), lambda x: x[:, [0, 2, 2]]),
    "repeat_interleave size": Row(
        lambda td: td.repeat_interleave(torch.tensor([2]), dim=0, output_size=8), lambda x: x.repeat_interleave(2, 0)
    ),
    "tile": Row(lambda td: td.tile(2), lambda x: x.repeat(1, 2, *[1] * (x.ndim - 2))),
    "tile more": Row(lambda td: td.tile((2, 1, 3)), lambda x: x.repeat(2, 1, 3, *[1] * (x.ndim - 2)), (None, 0, 1)),
    "flip": Row(lambda td: td.flip((0, -1)), lambda x: x.flip(0, 1)),
    "fliplr": Row(lambda td: td.fliplr(), lambda x: x.flip(1)),
    "flipud": Row(lambda td: td.flipud(), lambda x: x.flip(0)),
    "roll": Row(lambda td: td.roll((1, -2), (0, 1)), lambda x: x.roll((1, -2), (0, 1))),
    "roll flat": Row(lambda td: td.roll(5), lambda x: x.flatten(0, 1).roll(5, 0).unflatten(0, (4, 3))),
    "rot90": Row(lambda td: td.rot90(), lambda x: x.rot90(), (1, 0)),
    "rot90 back": Row(lambda td: td.rot90(-1, (1, 0)), lambda x: x.rot90(-1, (1, 0)), (1, 0)),
    "rot90 twice": Row(lambda td: td.rot90(2), lambda x: x.rot90(2)),
    "narrow": Row(lambda td: td.narrow(0, 1, 2), lambda x: x[1:3], copies=False),
    "narrow end": Row(lambda td: td.narrow(-1, -2, 1), lambda x: x[:, 1:2], copies=False),
    "tensor_split": Row(lambda td: td.tensor_split(3)[0], lambda x: x[:2], copies=False),
    "tensor_split places": Row(lambda td: td.tensor_split((1, -1), 1)[1], lambda x: x[:, 1:2], copies=False),
    "tensor_split behind": Row(lambda td: td.tensor_split([3, 9])[2], lambda x: x[:0], copies=False),
    "pad": Row(lambda td: td.pad([1, 2, 0, 3], value=0.5), lambda x: _pad(x, 1, 2, 0, 3), keeps_lock=False),
    "pad cut": Row(lambda td: pad(td, (0, -1), 0.5), lambda x: x[:-1], keeps_lock=False),
    "contiguous": Row(lambda td: td.transpose(0, 1).contiguous(), lambda x: x.transpose(0, 1), (1, 0), False),
    "gather": Row(
        lambda td: td.gather(0, PLACES), lambda x: torch.stack([x[PLACES[i], range(3)] for i in range(2)]), keeps_lock=False
    ),
    "masked_select": Row(lambda td: td.masked_select(MASK), lambda x: x[MASK], (None,), keeps_lock=False),
    "masked_fill": Row(lambda td: td.masked_fill(MASK, 7), lambda x: x.masked_fill(_wide(MASK, x), 7), keeps_lock=False),
    "where number": Row(lambda td: td.where(MASK, 0), lambda x: x * _wide(MASK, x)),
    "where": Row(
        lambda td: td.where(MASK[:, :1], td * 2), lambda x: torch.where(_wide(MASK[:, :1], x), x, x * 2), keeps_lock=False
    ),
    "rename": Row(lambda td: td.rename(None), lambda x: x, (None, None), keeps_lock=False, copies=False),
}


def agree(out: Any, td: Any, leaf: Any) -> None:
    assert leaves(out).keys() == leaves(td).keys()
    for path, value in leaves(td).items():
        torch.testing.assert_close(leaves(out)[path], leaf(value), rtol=0, atol=0, msg=str(path))


@pytest.mark.parametrize("container", [name for name in CONTAINERS if name != "stacked_unlike"])
@pytest.mark.parametrize("name", ROWS)
def test_leaf_by_leaf(name, container):
    row, td = ROWS[name], CONTAINERS[container]()
    before = snapshot(td) if container not in ("view", "gathered") else None
    out = row.call(td)
    agree(out, td, row.leaf)
    check(out)
    prefix = row.leaf(torch.zeros(BATCH)).shape
    for path, node in nodes(td).items():
        below = nodes(out)[path]
        assert below.batch_size == (*prefix, *node.batch_size[2:])
        assert below.names == [None if at is None else node.names[at] for at in row.origins] + node.names[2:]
    assert out.device == td.device
    assert out.is_locked == (td.is_locked and row.keeps_lock)
    if before is not None:
        unchanged(td, before)


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if not row.copies])
def test_storage_is_shared(name):
    td = nested()
    out = ROWS[name].call(td)
    assert all(leaf.untyped_storage().data_ptr() == td[path].untyped_storage().data_ptr() for path, leaf in leaves(out).items())


@pytest.mark.parametrize("name", ROWS)
def test_autograd(name):
    row = ROWS[name]
    td = nested().apply(lambda leaf: leaf.detach().requires_grad_())
    sum(leaf.pow(2).sum() for leaf in leaves(row.call(td)).values()).backward()
    for leaf in leaves(td).values():
        copy = leaf.detach().clone().requires_grad_()
        row.leaf(copy).pow(2).sum().backward()
        torch.testing.assert_close(leaf.grad, copy.grad)


VMAPPED = {
    "swapaxes": (lambda t: t.swapaxes(0, 0), lambda x: x),
    "movedim": (lambda t: t.movedim(0, -1), lambda x: x),
    "atleast_2d": (lambda t: t.atleast_2d(), lambda x: x[None]),
    "broadcast_to": (lambda t: t.broadcast_to((2, 3)), lambda x: x.expand(2, *x.shape)),
    "repeat": (lambda t: t.repeat(2), lambda x: x.repeat(2, *[1] * (x.ndim - 1))),
    "repeat_interleave": (lambda t: t.repeat_interleave(2), lambda x: x.repeat_interleave(2, 0)),
    "tile": (lambda t: t.tile((2, 1)), lambda x: x.repeat(2, *[1] * x.ndim)),
    "flip": (lambda t: t.flip(0), lambda x: x.flip(0)),
    "roll": (lambda t: t.roll(1, 0), lambda x: x.roll(1, 0)),
    "narrow": (lambda t: t.narrow(0, 1, 2), lambda x: x[1:]),
    "tensor_split": (lambda t: t.tensor_split(2)[0], lambda x: x[:2]),
    "pad": (lambda t: t.pad((1, 0)), lambda x: torch.cat([torch.zeros_like(x[:1]), x])),
    "where": (lambda t: t.where(MASK[0], 0), lambda x: x * _wide(MASK[0], x)),
    "pack": (lambda t: t.pack()[1].unpack(t.pack()[0]), lambda x: x),
}


@pytest.mark.parametrize("name", VMAPPED)
def test_vmap(name):
    call, leaf = VMAPPED[name]
    td = nested()
    out = torch.vmap(call)(td)
    agree(out, td, torch.vmap(leaf))
    assert out.batch_size == torch.vmap(leaf)(torch.zeros(BATCH)).shape
    check(out)


def test_compiled():
    """All rows in few graphs: compiling is slow."""
    td, names = nested(), [name for name in ROWS if name not in ("repeat_interleave each", "masked_select")]
    for start in range(0, len(names), 12):
        group = names[start : start + 12]
        torch._dynamo.reset()
        compiled = torch.compile(lambda t, g=tuple(group): [ROWS[name].call(t) for name in g], fullgraph=True, backend="eager")
        for name, out in zip(group, compiled(td), strict=True):
            agree(out, td, ROWS[name].leaf)
            assert out.batch_size == ROWS[name].call(td).batch_size


IN_PLACE = {
    "flatten": (lambda td, **k: td.flatten(**k), lambda x: x.flatten(0, 1)),
    "unflatten": (lambda td, **k: td.unflatten(0, (2, -1), **k), lambda x: x.unflatten(0, (2, 2))),
    "repeat": (lambda td, **k: td.repeat(2, 1, **k), lambda x: torch.cat([x, x])),
    "repeat_interleave": (lambda td, **k: td.repeat_interleave(2, **k), lambda x: x.flatten(0, 1).repeat_interleave(2, 0)),
    "roll": (lambda td, **k: td.roll(1, 0, **k), lambda x: x.roll(1, 0)),
    "pad": (lambda td, **k: td.pad((1, 0), **k), lambda x: torch.cat([torch.zeros_like(x[:1]), x])),
    "gather": (lambda td, **k: td.gather(0, PLACES * 0, **k), lambda x: x[[0, 0]]),
    "masked_select": (lambda td, **k: td.masked_select(MASK, **k), lambda x: x[MASK]),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place(name):
    call, leaf = IN_PLACE[name]
    td, plain = named(), named()
    kept = nodes(td)
    assert call(td, inplace=True) is td
    agree(td, plain, leaf)
    check(td)
    wanted = call(plain)
    for path, node in nodes(td).items():
        assert node is kept[path]
        assert node.batch_size == nodes(wanted)[path].batch_size
        assert node.names == nodes(wanted)[path].names
    locked = named().lock_()
    before = snapshot(locked)
    with pytest.raises(RuntimeError, match="locked"):
        call(locked, inplace=True)
    unchanged(locked, before)


def test_in_place_on_rows_of_a_parent():
    for container in ("view", "gathered"):
        td, other = CONTAINERS[container](), CONTAINERS[container]()
        assert td.roll(1, 0, inplace=True) is td
        agree(td, other, lambda x: x.roll(1, 0))
        before = {path: leaf.clone() for path, leaf in leaves(td.get_parent_tensordict()).items()}
        with pytest.raises(RuntimeError):
            td.repeat(2, 1, inplace=True)
        with pytest.raises(RuntimeError):
            td.contiguous(inplace=True)
        assert all(torch.equal(leaf, before[path]) for path, leaf in leaves(td.get_parent_tensordict()).items())


def test_contiguous():
    td = nested()
    assert td.contiguous() is not td
    assert all(leaf is td[path] for path, leaf in leaves(td.contiguous()).items())
    assert td.lock_().contiguous(inplace=True) is td
    turned = nested().transpose(0, 1)
    inner = turned["n"]
    assert not turned.is_contiguous()
    assert turned.contiguous(inplace=True) is turned
    assert turned.is_contiguous()
    assert turned["n"] is inner
    with pytest.raises(RuntimeError, match="locked"):
        nested().transpose(0, 1).lock_().contiguous(inplace=True)
    odd = TensorDict({"a": torch.ones(8).as_strided((1, 3), (7, 1)), "b": torch.ones(1, 3)}, [1])
    assert odd.contiguous()["a"] is odd["a"]
    assert odd.contiguous(canonical=True)["a"].stride() == (3, 1)
    assert odd.contiguous(canonical=True)["b"] is odd["b"]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda td: td.swapaxes(0, 2), ValueError),
        (lambda td: td.movedim(0, 2), IndexError),
        (lambda td: td.movedim((0, 0), (0, 1)), RuntimeError),
        (lambda td: td.movedim((0,), (0, 1)), ValueError),
        (lambda td: td.broadcast_to((5, 3)), RuntimeError),
        (lambda td: td.expand_as(torch.zeros(3)), RuntimeError),
        (lambda td: td.expand_as(TensorDict({}, [2, 4, 3])), KeyError),
        (lambda td: td.expand_as(TensorDict({}, [2, 2, 3])), RuntimeError),
        (lambda td: td.repeat(2), ValueError),
        (lambda td: td.repeat(-1, 2), RuntimeError),
        (lambda td: td.tile((-1, 2)), RuntimeError),
        (lambda td: td.repeat_interleave(2, 2), IndexError),
        (lambda td: td.repeat_interleave(-2, 0), RuntimeError),
        (lambda td: td.repeat_interleave(torch.tensor([1, 2]), 0), RuntimeError),
        (lambda td: td.flip(2), IndexError),
        (lambda td: td.flip((0, -2)), RuntimeError),
        (lambda td: td[0].fliplr(), RuntimeError),
        (lambda td: td[0, 0].flipud(), RuntimeError),
        (lambda td: td.roll(1, 2), IndexError),
        (lambda td: td.roll((1, 2)), RuntimeError),
        (lambda td: td.roll(1, (0, 1)), RuntimeError),
        (lambda td: td[0].rot90(), RuntimeError),
        (lambda td: td.rot90(1, (0, 0)), RuntimeError),
        (lambda td: td.rot90(1, (0, 2)), IndexError),
        (lambda td: td.narrow(0, 3, 2), RuntimeError),
        (lambda td: td.narrow(0, 1, -1), RuntimeError),
        (lambda td: td.narrow(0, 5, 0), IndexError),
        (lambda td: td.narrow(2, 0, 1), IndexError),
        (lambda td: td.tensor_split(0), ValueError),
        (lambda td: td.tensor_split(2, 2), IndexError),
        (lambda td: td.pad((0, 1, 0)), RuntimeError),
        (lambda td: td.pad((0, 1, 0, 0, 0, 1)), RuntimeError),
        (lambda td: td.gather(0, PLACES.float()), RuntimeError),
        (lambda td: torch.tensor_split(td), TypeError),
    ],
)
def test_refused(call, error):
    td = nested()
    before = snapshot(td)
    with pytest.raises(error):
        call(td)
    unchanged(td, before)


def test_without_batch():
    td = TensorDict({"a": torch.arange(3)})
    assert td.atleast_3d().batch_size == (1, 1, 1)
    assert td.repeat().batch_size == ()
    assert td.tile(2)["a"].tolist() == [[0, 1, 2]] * 2
    assert td.repeat_interleave(2)["a"].tolist() == [[0, 1, 2]] * 2
    assert td.roll(1)["a"].tolist() == [0, 1, 2]
    assert td.movedim((), ()) is td
    assert td.pad(())["a"].tolist() == [0, 1, 2]


NOTHING = (
    lambda td: td.swapaxes(1, 1),
    lambda td: td.movedim(0, 0),
    lambda td: td.atleast_2d(),
    lambda td: td.rot90(4),
    lambda td: td.view(4, 3),
    lambda td: td.squeeze(0),
    lambda td: td.squeeze(),
    lambda td: td.flatten(0, 0),
    lambda td: td.permute(0, 1),
)


@pytest.mark.parametrize("call", NOTHING)
def test_nothing_to_do(call):
    """The tensordict itself, which a `with` block can use as if something had been done."""
    td = nested()
    with call(td) as out:
        assert out is td
        out["new"] = out["n", "x"] + 1
    assert torch.equal(td["new"], td["n", "x"] + 1)


@pytest.mark.parametrize("name", ["swapaxes", "movedim", "atleast_3d", "flip", "roll", "roll flat", "rot90", "rot90 back"])
def test_undone_at_the_end_of_a_block(name):
    td = named()
    with ROWS[name].call(td) as out:
        out["new"] = out["n", "x"] + 1
    assert torch.equal(td["new"], td["n", "x"] + 1)
    assert td.batch_size == BATCH
    check(td)


TORCH = {
    "atleast_1d": lambda f, x: f(x),
    "atleast_2d": lambda f, x: f(x),
    "broadcast_to": lambda f, x: f(x, (2, 4, 3)),
    "flip": lambda f, x: f(x, (0,)),
    "fliplr": lambda f, x: f(x),
    "flipud": lambda f, x: f(x),
    "moveaxis": lambda f, x: f(x, source=0, destination=1),
    "movedim": lambda f, x: f(x, 0, 1),
    "narrow": lambda f, x: f(x, dim=0, start=1, length=2),
    "repeat_interleave": lambda f, x: f(x, 2, dim=0),
    "roll": lambda f, x: f(x, shifts=1, dims=0),
    "rot90": lambda f, x: f(x, 1, (0, 1)),
    "swapaxes": lambda f, x: f(x, axis0=0, axis1=1),
    "swapdims": lambda f, x: f(x, dim0=0, dim1=1),
    "tile": lambda f, x: f(x, (2, 1)),
    "unflatten": lambda f, x: f(x, dim=0, sizes=(2, 2)),
    "masked_select": lambda f, x: f(x, MASK),
    "masked_fill": lambda f, x: f(x, MASK, 0),
    "tensor_split": lambda f, x: f(x, indices=(1,), dim=0)[1],
    "gather": lambda f, x: f(x, 0, PLACES),
    "where": lambda f, x: f(MASK, 0, x),
}


@pytest.mark.parametrize("name", TORCH)
def test_torch_functions(name):
    function, x = getattr(torch, name), torch.arange(12.0).reshape(4, 3)
    out = TORCH[name](function, TensorDict({"x": x, "n": {"x": x + 1}}, BATCH))
    torch.testing.assert_close(out["x"], TORCH[name](function, x))
    torch.testing.assert_close(out["n", "x"], TORCH[name](function, x + 1))
    assert out.batch_size == out["x"].shape


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_against_numpy(data):
    sizes = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=3))
    dims = len(sizes)
    array = np.arange(np.prod([*sizes, 2])).reshape(*sizes, 2)
    td = TensorDict({"a": torch.from_numpy(array), "n": TensorDict({"x": torch.from_numpy(array[..., 0])}, sizes)}, sizes)
    one, two = data.draw(st.integers(-dims, dims - 1)), data.draw(st.integers(-dims, dims - 1))
    count, other = data.draw(st.integers(-3, 3)), data.draw(st.integers(0, 3))
    at = one % dims
    pairs = [(data.draw(st.integers(0, 2)), data.draw(st.integers(0, 2))) for _ in range(dims)]
    cuts = data.draw(st.one_of(st.integers(1, 5), st.lists(st.integers(-5, 6), max_size=3)))
    reps = data.draw(st.lists(st.integers(0, 2), min_size=1, max_size=4))
    wanted: list[tuple[Any, Any]] = [
        (td.flip(one), lambda a: np.flip(a, at)),
        (td.roll(count, one), lambda a: np.roll(a, count, at)),
        (td.swapaxes(one, two), lambda a: np.swapaxes(a, at, two % dims)),
        (td.movedim(one, two), lambda a: np.moveaxis(a, at, two % dims)),
        (td.repeat_interleave(other, one), lambda a: np.repeat(a, other, at)),
        (td.pad([n for pair in pairs for n in pair]), lambda a: np.pad(a, pairs + [(0, 0)] * (a.ndim - dims))),
        (td.tile(reps), lambda a: np.tile(a, [*reps, *[1] * (a.ndim - dims)])),
        *[
            (part, lambda a, place=place: np.array_split(a, cuts, at)[place])
            for place, part in enumerate(td.tensor_split(cuts, one))
        ],
    ]
    if dims > 1 and at != two % dims:
        wanted.append((td.rot90(count, (one, two)), lambda a: np.rot90(a, count, (at, two % dims))))
    for out, of in wanted:
        assert out["a"].numpy().tolist() == of(array).tolist()
        assert out["n", "x"].numpy().tolist() == of(array[..., 0]).tolist()
        assert out.batch_size == out["n"].batch_size == of(array[..., 0]).shape
