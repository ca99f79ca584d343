"""The table of all rows, each against torch leaf by leaf: on every container, and in every mode that torch has.

A new operation is a new line of `ROWS`, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from containers import BATCH, CONTAINERS, check, leaves, nested, nodes
from pointwise_rows import BINARY, BINARY_, COMPARISON, PREDICATE, TWINS, UNARY, UNARY_
from tensordict import TensorDict

pytestmark = pytest.mark.filterwarnings("ignore:Casting complex values to real")

Function = Callable[..., Any]

REDUCTION: dict[str, Function] = {"sum": torch.sum, "mean": torch.mean}
FLAG: dict[str, Function] = {"all": torch.all, "any": torch.any}
CAST: dict[str, torch.dtype] = {"double": torch.float64, "half": torch.float16, "int": torch.int32, "bool": torch.bool}
SHAPE: dict[str, tuple[tuple[Any, ...], Function]] = {
    "reshape": ((12,), lambda x: x.flatten(0, 1)),
    "unsqueeze": ((1,), lambda x: x.unsqueeze(1)),
    "permute": ((1, 0), lambda x: x.transpose(0, 1)),
    "transpose": ((0, 1), lambda x: x.transpose(0, 1)),
    "expand": ((2, 4, 3), lambda x: x.expand(2, *x.shape)),
    "flatten": ((), lambda x: x.flatten(0, 1)),
    "unflatten": ((0, (2, 2)), lambda x: x.unflatten(0, (2, 2))),
}
JOIN: dict[str, Function] = {"stack": torch.stack, "cat": torch.cat}


@dataclass(frozen=True)
class Row:
    """One operation: how it is called, and what it gives for a leaf `x` (and the operand `y` that belongs to it)."""

    name: str
    kind: str
    call: Callable[[Any, Any], Any]
    leaf: Callable[[Tensor, Any], Any]
    operands: int = 0

    @property
    def in_place(self) -> bool:
        return self.kind in ("unary_", "binary_")


def _rows() -> list[Row]:
    def method(name: str) -> Callable[[Any, Any], Any]:
        return lambda td, other: getattr(td, name)(other)

    out = [
        Row(name, "unary", lambda td, _, name=name: getattr(td, name)(), lambda x, _, f=f: f(x)) for name, f in UNARY.items()
    ]
    out += [
        Row(name, "unary_", lambda td, _, name=name: getattr(td, name)(), lambda x, _, f=f: f(x)) for name, f in UNARY_.items()
    ]
    out += [
        Row(name, "predicate", lambda td, _, name=name: getattr(td, name)(), lambda x, _, f=f: f(x))
        for name, f in PREDICATE.items()
    ]
    for kind, table in (("binary", BINARY), ("binary_", BINARY_), ("comparison", COMPARISON)):
        out += [Row(name, kind, method(name), lambda x, y, f=f: f(x, y), 1) for name, f in table.items()]
    for name, f in REDUCTION.items():
        out.append(Row(f"{name}(0)", "reduction", lambda td, _, n=name: getattr(td, n)(0), lambda x, _, f=f: f(x, 0)))
        out.append(Row(f"{name}(-1)", "reduction", lambda td, _, n=name: getattr(td, n)(-1), lambda x, _, f=f: f(x, 1)))
        out.append(
            Row(
                f"{name}((0, 1), keepdim)",
                "reduction",
                lambda td, _, n=name: getattr(td, n)((0, 1), keepdim=True),
                lambda x, _, f=f: f(x, (0, 1), keepdim=True),
            )
        )
    out += [Row(f"{n}(1)", "flag", lambda td, _, n=n: getattr(td, n)(1), lambda x, _, f=f: f(x, 1)) for n, f in FLAG.items()]
    out += [Row(n, "cast", lambda td, _, n=n: getattr(td, n)(), lambda x, _, d=d: x.to(d)) for n, d in CAST.items()]
    out += [Row(n, "shape", lambda td, _, n=n, a=a: getattr(td, n)(*a), lambda x, _, f=f: f(x)) for n, (a, f) in SHAPE.items()]
    out += [Row(n, "join", lambda td, _, f=f: f([td, td], 1), lambda x, _, f=f: f([x, x], 1)) for n, f in JOIN.items()]
    return out


ROWS = {row.name: row for row in _rows()}
SMOOTH = [
    name
    for name, row in ROWS.items()
    if row.kind not in ("comparison", "predicate", "flag", "unary_", "binary_") and name not in ("int", "bool")
]
WITH_OPERAND = [name for name, row in ROWS.items() if row.operands]


def operand_of(td: Any) -> Any:
    return td.apply(lambda leaf: leaf * 0.5 + 1)


def columns(td: Any, other: Any) -> dict[tuple[str, ...], Any]:
    """The operand of each leaf: of the same key, or a tensor of the batch shape beside each leaf."""
    if isinstance(other, Tensor) and other.ndim:
        other = other.expand(td.batch_size)
        return {path: other.reshape(other.shape + (1,) * (leaf.ndim - other.ndim)) for path, leaf in leaves(td).items()}
    return leaves(other) if isinstance(other, type(td)) or hasattr(other, "batch_size") else dict.fromkeys(leaves(td), other)


def expected(row: Row, td: Any, other: Any) -> dict[tuple[str, ...], Tensor]:
    beside = columns(td, other) if row.operands else dict.fromkeys(leaves(td))
    return {path: row.leaf(leaf.clone(), beside[path]) for path, leaf in leaves(td).items()}


def agree(out: Any, wanted: dict[tuple[str, ...], Tensor]) -> None:
    assert leaves(out).keys() == wanted.keys()
    for path, leaf in leaves(out).items():
        torch.testing.assert_close(leaf, wanted[path], equal_nan=True)


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("name", ROWS)
def test_leaf_by_leaf(name, container):
    row, td = ROWS[name], CONTAINERS[container]()
    if row.in_place and container == "strided":
        td = td.clone()
    other = operand_of(td) if row.operands else None
    wanted, locked = expected(row, td, other), td.is_locked
    batch = row.leaf(torch.zeros(BATCH), torch.ones(BATCH)).shape
    out = row.call(td, other)
    # compared objects give leaves too
    agree(out.select(*wanted) if container == "objects" and len(wanted) < len(list(out.keys(True, True))) else out, wanted)
    check(out)
    assert out.batch_size == batch
    assert out.device == td.device
    for path, node in nodes(td).items():
        assert nodes(out)[path].batch_size[len(batch) :] == node.batch_size[len(td.batch_size) :] or row.in_place
    if row.in_place:
        assert out is td
        assert td.is_locked == locked
    elif row.kind in ("unary", "predicate", "binary", "cast", "shape"):
        assert out.is_locked == locked
    else:
        assert not out.is_locked
    if row.kind in ("unary", "predicate", "binary", "unary_", "binary_", "cast"):
        assert out.names == td.names


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.in_place])
@pytest.mark.parametrize("lock", [False, True])
def test_storage_stays(name, lock):
    td = nested()
    if lock:
        td.lock_()
    old = leaves(td)
    ROWS[name].call(td, operand_of(td))
    assert all(leaf is old[path] for path, leaf in leaves(td).items())


OPERANDS = {
    "number": 2.5,
    "integer": 2,
    "scalar": torch.tensor(1.5),
    "batch": torch.linspace(1, 2, 12).reshape(4, 3),
    "row": torch.linspace(1, 2, 3),
    "column": torch.linspace(1, 2, 4).reshape(4, 1),
    "one": torch.tensor([1.5]),
}


@pytest.mark.parametrize("operand", OPERANDS)
@pytest.mark.parametrize("container", ["flat", "nested", "locked", "gathered"])
@pytest.mark.parametrize("name", WITH_OPERAND)
def test_broadcasting(name, container, operand):
    row, td, other = ROWS[name], CONTAINERS[container](), OPERANDS[operand]
    wanted = expected(row, td, other)
    agree(row.call(td, other), wanted)


@pytest.mark.parametrize("name", [name for name in WITH_OPERAND if not ROWS[name].in_place])
def test_operands_with_more_dimensions(name):
    row = ROWS[name]
    td = TensorDict({"a": nested()["a"], "n": {"x": nested()["n", "x"]}}, BATCH, names=["rows", None])
    wide = torch.linspace(1, 2, 24).reshape(2, 4, 3)
    for other in (wide, TensorDict({"a": wide[..., None], "n": {"x": wide}}, (2, 4, 3))):
        out = row.call(td, other)
        agree(out, {("a",): row.leaf(td["a"], wide[..., None]), ("n", "x"): row.leaf(td["n", "x"], wide)})
        check(out)
        assert out.batch_size == out["n"].batch_size == (2, 4, 3)
        named = row.kind != "comparison" or isinstance(other, Tensor)
        assert out.names == ([None, "rows", None] if named else [None] * 3)
    td = td[:, :1].lock_()
    out = row.call(td, torch.ones(3))
    assert out.batch_size == BATCH
    assert out.is_locked == (row.kind != "comparison")


@pytest.mark.parametrize("name", WITH_OPERAND)
def test_operands_that_do_not_fit(name):
    row = ROWS[name]
    for other in (torch.ones(7), torch.ones(4, 3, 2), *[torch.ones(2, 4, 3)] * row.in_place):
        td = nested()
        before = {path: leaf.clone() for path, leaf in leaves(td).items()}
        with pytest.raises(RuntimeError, match="broadcast"):
            row.call(td, other)
        agree(td, before)
    for other in (nested().exclude("a"), *[nested().set("more", torch.ones(4, 3))] * (not row.in_place)):
        td = nested()
        before = {path: leaf.clone() for path, leaf in leaves(td).items()}
        with pytest.raises(KeyError):
            row.call(td, other)
        agree(td, before)
    for other in ("text", None, [1, 2, 3]):
        if row.kind != "comparison":
            with pytest.raises(TypeError, match="operand"):
                row.call(nested(), other)


@pytest.mark.parametrize("name", [name for name in WITH_OPERAND if ROWS[name].in_place])
def test_operands_with_more_keys(name):
    """In place, the keys of the tensordict are what counts."""
    td = nested()
    other = operand_of(td)
    wanted = expected(ROWS[name], td, other)
    other["more"] = other["n", "more"] = torch.ones(4, 3)
    agree(ROWS[name].call(td, other), wanted)


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.uint8, torch.complex64, torch.bool]
)
@pytest.mark.parametrize("name", ROWS)
def test_dtypes(name, dtype):
    row = ROWS[name]
    td = TensorDict({"a": nested()["a"].to(dtype), "n": {"x": nested()["n", "x"].to(dtype)}}, BATCH)
    other = td.clone() if row.operands else None
    try:
        wanted = {} if row.in_place else expected(row, td, other)
        if row.in_place:
            for path, leaf in leaves(td).items():
                wanted[path] = leaf.clone().copy_(getattr(leaf.clone(), TWINS.get(name, name))(*[leaf] * row.operands))
    except (RuntimeError, NotImplementedError, TypeError) as error:
        with pytest.raises(type(error)):
            row.call(td, other)
        return
    agree(row.call(td, other), wanted)


@pytest.mark.parametrize("name", SMOOTH)
def test_autograd(name):
    row = ROWS[name]
    td = nested().apply(lambda leaf: leaf.detach().requires_grad_())
    other = operand_of(td).detach() if row.operands else None
    out = row.call(td, other)
    torch.stack([leaf.double().pow(2).sum() for leaf in leaves(out).values()]).sum().backward()
    beside = columns(td, other) if row.operands else {}
    for path, leaf in leaves(td).items():
        copy = leaf.detach().clone().requires_grad_()
        row.leaf(copy, beside.get(path)).double().pow(2).sum().backward()
        torch.testing.assert_close(leaf.grad, copy.grad, equal_nan=True)


@pytest.mark.parametrize(
    "name", [name for name, row in ROWS.items() if row.kind in ("unary", "predicate", "binary", "comparison", "cast")]
)
def test_vmap(name):
    row, td = ROWS[name], nested()
    other = operand_of(td) if row.operands else td
    out = torch.vmap(row.call)(td, other)
    agree(out, expected(row, td, other))
    assert out.batch_size == BATCH
    assert out["n", "m"].batch_size == (*BATCH, 2)
    out = torch.vmap(row.call, in_dims=1, out_dims=1)(td, other)
    agree(out, expected(row, td, other))
    assert out.batch_size == BATCH


POINTWISE = ("unary", "unary_", "predicate", "binary", "binary_", "comparison")


@pytest.mark.parametrize("kind", POINTWISE)
def test_compiled_together(kind):
    """All rows of a kind in one function: compiling is what takes the time."""
    rows = [row for row in ROWS.values() if row.kind == kind]
    td = nested()
    other = operand_of(td)
    calls = [row.call for row in rows]
    torch._dynamo.reset()
    compiled = torch.compile(lambda td, other: [call(td.clone(), other) for call in calls], fullgraph=True, backend="eager")
    for row, out in zip(rows, compiled(td, other), strict=True):
        assert type(out) is TensorDict, row.name
        agree(out, expected(row, td, other))
        check(out)
        assert out.batch_size == BATCH


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.kind not in POINTWISE])
def test_compiled(name):
    row, td = ROWS[name], nested()
    other = operand_of(td) if row.operands else None
    wanted = expected(row, td, other)
    torch._dynamo.reset()
    compiled = torch.compile(lambda td, other: row.call(td, other), fullgraph=True, backend="eager")
    out = compiled(td, other)
    assert type(out) is TensorDict
    agree(out, wanted)
    check(out)
    assert out.batch_size == row.leaf(torch.zeros(BATCH), torch.ones(BATCH)).shape


class TestReductions:
    @pytest.mark.parametrize("name", REDUCTION)
    def test_all_dimensions(self, name):
        td, f = nested(), REDUCTION[name]
        out = getattr(td, name)()
        assert out.batch_size == ()
        agree(out, {path: f(leaf) for path, leaf in leaves(td).items()})

    def test_one_number(self):
        td = nested()
        assert torch.isclose(td.sum(reduce=True), sum(leaf.sum() for leaf in leaves(td).values()))
        assert td.sum(dim=0, reduce=False).batch_size == (3,)
        assert td.sum(dtype=torch.double).dtype is torch.double

    def test_flags(self):
        td = nested()
        assert (td == td).all() is True
        assert (td != td).any() is False
        assert (td == nested().zero_()).any() is False
        assert (td > 0).all() is False

    @pytest.mark.parametrize(("call", "error"), [(lambda td: td.sum(2), IndexError), (lambda td: td.mean(-3), IndexError)])
    def test_refused(self, call, error):
        with pytest.raises(error):
            call(nested())
        with pytest.raises(RuntimeError, match="dim"):
            (nested() > 0).all(2)


class TestComparison:
    def test_with_a_mapping(self):
        td = nested().exclude(("n", "e"))
        assert (td == td.to_dict()).all()

    def test_other_types(self):
        assert (nested() == "text") is False
        assert nested() != None  # noqa: E711
        with pytest.raises(TypeError):
            nested() < "text"  # noqa: B015

    def test_not_hashable(self):
        with pytest.raises(TypeError):
            hash(nested())
