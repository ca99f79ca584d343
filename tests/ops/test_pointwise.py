"""Pointwise methods that are no rows of one shape, `default=`, and the torch functions: against torch leaf by leaf."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from containers import BATCH, CONTAINERS, check, leaves, locked, named, nested
from pointwise_rows import BINARY, PREDICATE, SMOOTH
from tensordict import TensorDict


def agree(out: Any, wanted: dict[tuple[str, ...], Tensor]) -> None:
    assert leaves(out).keys() == wanted.keys()
    for path, leaf in leaves(out).items():
        torch.testing.assert_close(leaf, wanted[path], equal_nan=True, msg=str(path))


def each(function: Callable[..., Any], *tds: Any) -> dict[tuple[str, ...], Tensor]:
    """`function` of the leaves of several tensordicts."""
    return {path: function(*[leaves(td)[path] for td in tds]) for path in leaves(tds[0])}


def wide(tensor: Tensor, leaf: Tensor) -> Tensor:
    return tensor.reshape(tensor.shape + (1,) * (leaf.ndim - tensor.ndim))


def fresh(container: str) -> Any:
    """Strided leaves overlap, so that they cannot be written to."""
    td = CONTAINERS[container]()
    return td.clone() if container == "strided" else td


def shifted(td: Any) -> Any:
    return td.apply(lambda leaf: leaf * 0.5 + 2)


# Functions of three operands: the call, the same in place, and what it gives for a leaf.
TERNARY: dict[str, tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]] = {
    "addcdiv": (lambda t, a, b: t.addcdiv(a, b, 2), lambda t, a, b: t.addcdiv_(a, b, value=2), lambda x, a, b: x + 2 * a / b),
    "addcmul": (
        lambda t, a, b: t.addcmul(a, b, value=-1),
        lambda t, a, b: t.addcmul_(a, b, value=-1),
        lambda x, a, b: x - a * b,
    ),
    "lerp": (lambda t, a, b: t.lerp(a, b), lambda t, a, b: t.lerp_(a, b), torch.lerp),
}


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("name", TERNARY)
class TestTernary:
    def test_tensordicts(self, name, container):
        call, in_place, leaf = TERNARY[name]
        td, one = CONTAINERS[container](), shifted(CONTAINERS[container]())
        two = one * 0.25
        out = call(td, one, two)
        agree(out, each(leaf, td, one, two))
        check(out)
        assert (out.names, out.is_locked) == (td.names, td.is_locked)
        td = fresh(container)
        wanted, lock = each(leaf, td, one, two), td.is_locked
        assert in_place(td, one, two) is td
        agree(td, wanted)
        assert td.is_locked == lock

    def test_tensors_over_the_batch(self, name, container):
        call, in_place, leaf = TERNARY[name]
        column, row = torch.linspace(1, 2, 4).reshape(4, 1), torch.linspace(0.1, 0.9, 12).reshape(4, 3)
        td = fresh(container)
        wanted = {path: leaf(x, wide(column, x[0:4]), wide(row, x)) for path, x in leaves(td).items()}
        agree(call(td, column.unsqueeze(0).squeeze(0), row), wanted)
        agree(in_place(td, column, row), wanted)


@pytest.mark.parametrize("name", TERNARY)
class TestTernaryInAllModes:
    def test_more_and_fewer_keys(self, name):
        call, in_place, leaf = TERNARY[name]
        td, one = nested(), shifted(nested())
        more = one.clone()
        more["more"] = torch.ones(BATCH)
        wanted = each(leaf, td, one, one)
        agree(call(td, more, one), wanted)
        agree(call(td, one, more), wanted)
        for bad in ((one.exclude("a"), one), (one, one.exclude(("n", "m", "y")))):
            with pytest.raises(KeyError):
                call(td, *bad)
            with pytest.raises(KeyError):
                in_place(td, *bad)

    def test_a_larger_batch(self, name):
        call, in_place, leaf = TERNARY[name]
        td, big = nested().select("a"), torch.rand(2, 4, 3)
        out = call(td, big, torch.rand(3) * 0 + 0.5)
        assert out.batch_size == (2, 4, 3)
        agree(out, {("a",): leaf(td["a"], big[..., None], torch.full((2, 4, 3, 1), 0.5))})
        before = td.clone()
        with pytest.raises(RuntimeError, match="batch size stays"):
            in_place(td, big, big)
        with pytest.raises(RuntimeError, match="do not broadcast"):
            call(td, torch.ones(5), big)
        assert (td == before).all()

    def test_vmap_autograd_compiled(self, name):
        call, in_place, leaf = TERNARY[name]
        td, one = nested(), shifted(nested())
        wanted = each(leaf, td, one, one)
        agree(torch.vmap(call)(td, one, one), wanted)
        torch._dynamo.reset()
        compiled = torch.compile(lambda t, a: (call(t, a, a), in_place(t.clone(), a, a)), fullgraph=True, backend="eager")
        for out in compiled(td, one):
            agree(out, wanted)
        td = nested().apply(lambda x: x.requires_grad_())
        sum(x.pow(2).sum() for x in leaves(call(td, one, one)).values()).backward()
        for path, x in leaves(td).items():
            copy = x.detach().clone().requires_grad_()
            leaf(copy, leaves(one)[path], leaves(one)[path]).pow(2).sum().backward()
            torch.testing.assert_close(x.grad, copy.grad)


def test_lerp_with_a_number():
    td, end = nested(), shifted(nested())
    for weight in (0.25, torch.tensor(0.25)):
        agree(td.lerp(end, weight), each(lambda x, y: torch.lerp(x, y, 0.25), td, end))
    wanted = each(lambda x, y: torch.lerp(x, y, 0.25), td, end)
    agree(td.lerp_(end, 0.25), wanted)


class TestScaled:
    @pytest.mark.parametrize("alpha", [2, 0.5, -1])
    @pytest.mark.parametrize("other", ["tensordict", torch.linspace(1, 2, 3), torch.tensor(3.0), 1.5, 2])
    @pytest.mark.parametrize("container", CONTAINERS)
    def test_alpha(self, container, other, alpha):
        td = fresh(container)
        beside = shifted(td) if isinstance(other, str) else other

        def scaled(sign: int, swap: bool = False) -> dict[tuple[str, ...], Tensor]:
            out = {}
            for path, x in leaves(td).items():
                y = leaves(beside)[path] if isinstance(other, str) else other
                if isinstance(y, Tensor) and y.shape == (3,):
                    y = wide(y.expand(BATCH), x)
                out[path] = y + sign * alpha * x if swap else x + sign * alpha * y
            return out

        agree(td.add(beside, alpha=alpha), scaled(1))
        agree(td.sub(beside, alpha=alpha), scaled(-1))
        agree(td.rsub(beside, alpha=alpha), scaled(-1, swap=True))
        wanted = scaled(1)
        agree(td.add_(beside, alpha=alpha), wanted)
        wanted = scaled(-1)
        agree(td.sub_(beside, alpha), wanted)

    def test_compiled(self):
        td, other = nested(), shifted(nested())
        torch._dynamo.reset()
        compiled = torch.compile(
            lambda t, o: (t.add(o, alpha=2), t.sub(3, alpha=2), t.rsub(o, alpha=2), t.clone().sub_(o, 2)),
            fullgraph=True,
            backend="eager",
        )
        for out, wanted in zip(compiled(td, other), (td + other * 2, td - 6, other - td * 2, td - other * 2), strict=True):
            agree(out, leaves(wanted))


LEFT = {"a": torch.tensor([1.0, 2.0]), "n": {"x": torch.tensor([[3.0], [4.0]]), "only": torch.tensor([5.0, 6.0])}, "m": {}}
RIGHT = {"n": {"x": torch.tensor([[7.0], [8.0]]), "new": torch.tensor([1.0, 3.0])}, "b": torch.tensor([2.0, 4.0])}
DEFAULTED = {name: f for name, f in BINARY.items() if name[0] != "_" and name != "mod"}


class TestDefault:
    @pytest.mark.parametrize("default", [2, 2.5, torch.tensor(2.5)])
    @pytest.mark.parametrize("lock", [False, True])
    @pytest.mark.parametrize("name", DEFAULTED)
    def test_stands_for_what_is_missing(self, name, lock, default):
        f, left, right = DEFAULTED[name], TensorDict(LEFT, [2], names=["row"]), TensorDict(RIGHT, [2])
        if lock:
            left.lock_()
        out = getattr(left, name)(right, default=default)
        fill = torch.as_tensor(default)
        wanted = {
            ("a",): f(left["a"], fill),
            ("n", "x"): f(left["n", "x"], right["n", "x"]),
            ("n", "only"): f(left["n", "only"], fill),
            ("n", "new"): f(fill, right["n", "new"]),
            ("b",): f(fill, right["b"]),
        }
        agree(out, wanted)
        check(out)
        assert list(out.keys()) == ["a", "n", "m", "b"]
        assert (out.is_locked, out.names) == (lock, ["row"])

    @pytest.mark.parametrize("name", DEFAULTED)
    def test_intersection(self, name):
        left, right = TensorDict(LEFT, [2]), TensorDict(RIGHT, [2])
        out = getattr(left, name)(right, default="intersection")
        agree(out, {("n", "x"): DEFAULTED[name](left["n", "x"], right["n", "x"])})
        assert list(getattr(left, name)(right.select("b"), default="intersection").keys()) == []

    def test_with_alpha(self):
        out = TensorDict(LEFT, [2]).add(TensorDict(RIGHT, [2]), alpha=10, default=1)
        assert out["a"].tolist() == [11, 12]
        assert out["b"].tolist() == [21, 41]
        assert out["n", "x"].tolist() == [[73], [84]]

    def test_other_shapes(self):
        out = TensorDict(LEFT, [2]).mul(TensorDict(RIGHT, [2]), default=torch.tensor([10.0, 100.0]))
        assert out["a"].tolist() == [10, 200]
        assert out["n", "new"].tolist() == [10, 300]
        out = TensorDict({"a": torch.ones(3)}, [3]).add(TensorDict({"b": torch.ones(2, 1)}, [2, 1]), default=1)
        assert out.batch_size == out["a"].shape == out["b"].shape == (2, 3)
        assert TensorDict(LEFT, [2]).add(1, default=5)["a"].tolist() == [2, 3]
        assert TensorDict(a=1).clamp_min(TensorDict(b=2), 3).to_dict() == {"a": 3, "b": 3}

    def test_logical_and_bitwise(self):
        left, right = TensorDict({"a": torch.tensor([True, False])}, [2]), TensorDict({"b": torch.tensor([True, False])}, [2])
        for call in (left.logical_and, left.bitwise_and):
            assert call(right, default=True)["a"].tolist() == [True, False]
            assert call(right, default=False)["b"].tolist() == [False, False]

    def test_refused(self):
        left, right = TensorDict(LEFT, [2]), TensorDict(RIGHT, [2])
        with pytest.raises(KeyError):
            left.add(right)
        with pytest.raises(TypeError, match="union"):
            left.add(right, default="union")
        with pytest.raises(KeyError, match="'n'"):
            left.add(TensorDict({"n": torch.ones(2)}, [2]), default=1)

    def test_compiled(self):
        left, right = TensorDict(LEFT, [2]), TensorDict(RIGHT, [2])
        torch._dynamo.reset()
        compiled = torch.compile(
            lambda x, y: (x.sub(y, default=1.0), x.sub(y, default="intersection")), fullgraph=True, backend="eager"
        )
        out = compiled(left, right)
        agree(out[0], leaves(left.sub(right, default=1.0)))
        agree(out[1], leaves(left.sub(right, default="intersection")))


LOGIC: dict[str, Any] = {
    "&": (operator.and_, torch.bitwise_and),
    "|": (operator.or_, torch.bitwise_or),
    "^": (operator.xor, torch.bitwise_xor),
}


class TestBitwise:
    """Operators of booleans and integers."""

    @staticmethod
    def of(dtype: torch.dtype) -> TensorDict:
        td = named()
        td = td.apply(lambda leaf: (leaf * 3).to(torch.int64) if dtype is not torch.bool else leaf > 0)
        return td.to(dtype)

    @pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.uint8])
    @pytest.mark.parametrize("name", LOGIC)
    def test_operators(self, name, dtype):
        symbol, function = LOGIC[name]
        td = self.of(dtype)
        other = td.apply(lambda leaf: leaf.flip(0))
        agree(symbol(td, other), each(function, td, other))
        mask = torch.tensor([[True, False, True]] * 4).to(dtype)
        number = dtype is torch.bool or 5
        beside = {path: function(x, wide(mask, x)) for path, x in leaves(td).items()}
        for left, right in ((td, mask), (mask, td), (td, mask[0]), (mask[0], td)):
            agree(symbol(left, right), beside)
        for left, right in ((td, number), (number, td)):
            agree(symbol(left, right), each(lambda x: function(x, number), td))
        td.lock_()
        out = symbol(td, other)
        assert (out.is_locked, out.names) == ((True, td.names) if name == "&" else (False, [None, None]))

    def test_not(self):
        for dtype in (torch.bool, torch.int64):
            td = self.of(dtype).lock_()
            agree(~td, each(torch.bitwise_not, td))
            assert ((~td).is_locked, (~td).names) == (True, td.names)
        with pytest.raises((TypeError, RuntimeError)):
            ~nested()

    def test_methods(self):
        td, other = self.of(torch.int64), self.of(torch.int64).apply(lambda leaf: leaf.flip(0))
        agree(td.bitwise_and(other), each(torch.bitwise_and, td, other))
        agree(td.bitwise_and(3), each(lambda x: x & 3, td))
        agree(td.logical_and(other), each(torch.logical_and, td, other))
        column = torch.tensor([[1], [0], [1], [0]])
        agree(
            td.logical_and(column),
            {path: torch.logical_and(x, wide(column.expand(BATCH), x)) for path, x in leaves(td).items()},
        )

    def test_others(self):
        for symbol in (operator.or_, operator.xor, operator.and_):
            with pytest.raises(TypeError):
                symbol(self.of(torch.bool), "text")

    def test_compiled_and_vmap(self):
        td = self.of(torch.bool)
        other, mask = ~td, torch.tensor([True, False, True])
        torch._dynamo.reset()

        def calls(td, other, mask):
            # Dynamo of torch 2.11 does not know `~` of an object.
            inverse = td ^ True if torch.__version__ < (2, 12) else ~td
            return (
                td & other,
                td | other,
                td ^ other,
                inverse,
                td | mask,
                mask & td,
                mask ^ td,
                True ^ td,
                td.logical_and(other),
            )

        for out, wanted in zip(
            torch.compile(calls, fullgraph=True, backend="eager")(td, other, mask), calls(td, other, mask), strict=True
        ):
            agree(out, leaves(wanted))
        agree(torch.vmap(lambda x, y: (x | y) ^ (x & ~y))(td, other), leaves((td | other) ^ (td & ~other)))


LOW, HIGH = torch.linspace(-1, 0, 3), torch.linspace(0.5, 1, 4).reshape(4, 1)


class TestClamp:
    @pytest.mark.parametrize(
        ("low", "high"), [(-1, 1), (-0.5, None), (None, 0.5), (LOW, HIGH), (LOW, None), (None, HIGH), (-1, HIGH), (LOW, 1)]
    )
    @pytest.mark.parametrize("container", CONTAINERS)
    def test_bounds(self, container, low, high):
        td = CONTAINERS[container]()
        wanted = {}
        for path, x in leaves(td).items():
            bounds = [
                torch.as_tensor(infinite if bound is None else bound).expand(BATCH)
                for bound, infinite in ((low, -torch.inf), (high, torch.inf))
            ]
            wanted[path] = torch.minimum(torch.maximum(x, wide(bounds[0], x)), wide(bounds[1], x))
        out = td.clamp(low, high)
        agree(out, wanted)
        check(out)
        assert (out.names, out.is_locked) == (td.names, False)

    def test_tensordicts(self):
        td = nested()
        low, high = td * 0 - 1, td * 0 + 1
        agree(td.clamp(low, high), each(lambda x: x.clamp(-1, 1), td))
        agree(td.clamp(low), each(lambda x: x.clamp(min=-1), td))
        agree(td.clamp(max=high), each(lambda x: x.clamp(max=1), td))

    def test_into_out(self):
        td = nested()
        wanted = each(lambda x: x.clamp(0, 1), td)
        out = locked()
        held = leaves(out)
        assert td.clamp(0, 1, out=out) is out
        assert all(leaf is held[path] for path, leaf in leaves(out).items())
        agree(out, wanted)
        assert td.clamp(0, 1, out=td) is td
        agree(td, wanted)

    @pytest.mark.parametrize(
        ("out", "error"),
        [
            (lambda: nested().exclude("a"), KeyError),
            (lambda: nested().set("more", torch.ones(BATCH)), KeyError),
            (lambda: nested().double(), RuntimeError),
            (lambda: nested()[:, :1], RuntimeError),
        ],
    )
    def test_out_that_does_not_fit(self, out, error):
        target = out()
        before = target.clone()
        with pytest.raises(error):
            nested().clamp(0, 1, out=target)
        assert (target == before).all()

    def test_refused(self):
        td = nested()
        with pytest.raises(TypeError, match="neither"):
            td.clamp()
        with pytest.raises(ValueError, match="two tensordicts or none"):
            td.clamp(0, td)
        with pytest.raises(KeyError):
            td.clamp(td.select("a"), td)

    def test_all_modes(self):
        td = nested()
        wanted = each(lambda x: x.clamp(-1, 1), td)

        def calls(td):
            return td.clamp(-1, 1), td.clamp(-1).clamp(max=1), td.clamp(torch.tensor(-1.0), 1)

        for out in torch.compile(calls, fullgraph=True, backend="eager")(td):
            agree(out, wanted)
        for out in torch.vmap(calls)(td):
            agree(out, wanted)


class TestSoftmax:
    @pytest.mark.parametrize("dim", [0, 1, -1, -2])
    @pytest.mark.parametrize("container", CONTAINERS)
    def test_against_torch(self, container, dim):
        td = CONTAINERS[container]()
        out = td.softmax(dim)
        agree(out, each(lambda x: x.softmax(dim % 2), td))
        check(out)
        assert (out.names, out.is_locked) == (td.names, False)

    def test_dtype(self):
        td = nested()
        agree(td.softmax(0, torch.float64), each(lambda x: x.double().softmax(0), td))

    def test_refused(self):
        for dim in (2, -3):
            with pytest.raises(IndexError):
                nested().softmax(dim)
        for dim in ("rows", None, 0.5):
            with pytest.raises(ValueError, match="integer"):
                nested().softmax(dim)

    def test_functions_and_modes(self):
        td = nested()
        wanted = each(lambda x: x.softmax(1), td)

        def calls(td):
            return (
                torch.softmax(td, 1),
                functional.softmax(td, -1),
                functional.log_softmax(td, 1).exp(),
                torch.log_softmax(td, 1).exp(),
            )

        for out in (*calls(td), *torch.compile(calls, fullgraph=True, backend="eager")(td)):
            agree(out, wanted)
        agree(torch.vmap(lambda x: x.softmax(0))(td), wanted)


class TestNorm:
    @pytest.mark.parametrize("container", CONTAINERS)
    def test_against_torch(self, container):
        td = CONTAINERS[container]()
        out = td.norm()
        agree(out, each(lambda x: x.pow(2).sum().sqrt(), td))
        check(out)
        assert out.batch_size == ()
        assert (out.is_locked, out.device) == (td.is_locked, td.device)
        agree(td.norm(dtype=torch.float64), each(lambda x: x.double().pow(2).sum().sqrt(), td))

    def test_keys(self):
        td = nested()
        out = td.norm(key_transform=lambda key: f"{key}_norm")
        assert torch.equal(out["n_norm", "m_norm", "y_norm"], td["n", "m", "y"].norm())
        out = td.norm(key_transform=lambda key: ("norm", key))
        assert torch.equal(out["norm", "n", "norm", "x"], td["n", "x"].norm())

    def test_out(self):
        td, out = nested(), TensorDict({"other": 1, "a": 2})
        assert td.norm(out=out) is out
        agree(out, {**leaves(td.norm()), ("other",): torch.tensor(1)})
        with pytest.raises(RuntimeError, match="batch"):
            td.norm(out=td)
        with pytest.raises(RuntimeError, match="locked"):
            td.norm(out=out.lock_())

    def test_all_modes(self):
        td = nested().apply(lambda leaf: leaf.requires_grad_())
        sum(leaves(td.norm()).values()).backward()
        for leaf in leaves(td).values():
            torch.testing.assert_close(leaf.grad, leaf.detach() / leaf.detach().norm())
        td = nested()
        agree(torch.compile(lambda x: x.norm(), fullgraph=True, backend="eager")(td), leaves(td.norm()))


# torch functions, each called with a tensordict and one like it; what it gives for a leaf is the function itself.
OF_ONE = [
    *SMOOTH,
    *PREDICATE,
    *("absolute", "arccos", "arcsin", "arctan", "exp2", "fix", "isinf", "nan_to_num", "negative", "relu", "rsqrt", "square"),
]
OF_TWO = [
    *("add", "clamp_max", "clamp_min", "div", "divide", "eq", "ge", "gt", "isclose", "le", "logical_and", "logical_or"),
    *("logical_xor", "lt", "maximum", "minimum", "mul", "multiply", "ne", "pow", "remainder", "rsub", "sub", "subtract"),
    "true_divide",
]
LOCKLESS = {"eq", "ge", "gt", "le", "lt", "ne"}


class TestTorchFunctions:
    @pytest.mark.parametrize("name", OF_ONE)
    def test_of_one(self, name):
        function, td = getattr(torch, name), named().lock_()
        out = function(td)
        agree(out, each(function, td))
        assert (out.is_locked, out.names) == (True, td.names)
        in_place = getattr(torch, f"{name}_", None)
        if name in SMOOTH and in_place is not None:
            assert in_place(td) is td
            agree(td, leaves(out))

    @pytest.mark.parametrize("name", OF_TWO)
    def test_of_two(self, name):
        function, td, other = getattr(torch, name), named().lock_(), shifted(nested())
        out = function(td, other)
        agree(out, each(function, td, other))
        assert (out.is_locked, out.names) == ((False, [None, None]) if name in LOCKLESS else (True, td.names))
        column = torch.linspace(1, 2, 12).reshape(BATCH)
        agree(function(td, column), {path: function(x, wide(column, x)) for path, x in leaves(td).items()})
        agree(function(column, td), {path: function(wide(column, x), x) for path, x in leaves(td).items()})

    @pytest.mark.parametrize("name", ["add", "div", "mul", "pow", "remainder", "sub"])
    def test_numbers(self, name):
        function, td = getattr(torch, name), nested()
        agree(function(2, td), each(lambda x: function(2, x), td))
        agree(function(td, 2), each(lambda x: function(x, 2), td))

    @pytest.mark.parametrize("name", ["bitwise_and", "bitwise_or", "bitwise_xor"])
    def test_bits(self, name):
        function, td = getattr(torch, name), nested().int()
        other = td + 1
        agree(function(td, other), each(function, td, other))
        agree(function(td, 3), each(lambda x: function(x, 3), td))
        agree(function(3, td), each(lambda x: function(x, 3), td))
        agree(torch.bitwise_not(td), each(torch.bitwise_not, td))
        agree(torch.logical_not(td), each(torch.logical_not, td))

    def test_arguments(self):
        td, other = nested(), shifted(nested())
        ones = torch.ones(BATCH)
        pairs = [
            (torch.add(td, other, alpha=2), each(lambda x, y: x + 2 * y, td, other)),
            (torch.add(ones, td, alpha=2), each(lambda x: 1 + 2 * x, td)),
            (torch.sub(ones, td, alpha=2), each(lambda x: 1 - 2 * x, td)),
            (torch.rsub(td, other, alpha=2), each(lambda x, y: y - 2 * x, td, other)),
            (torch.div(td, other, rounding_mode="floor"), each(lambda x, y: (x / y).floor(), td, other)),
            (torch.round(td, decimals=1), each(lambda x: torch.round(x, decimals=1), td)),
            (torch.clamp(td, 0, 1), each(lambda x: x.clamp(0, 1), td)),
            (torch.clip(td, min=0), each(lambda x: x.clamp(min=0), td)),
            (torch.addcmul(td, other, other, value=2), each(lambda x, y: x + 2 * y * y, td, other)),
            (torch.addcdiv(td, other, other, value=2), each(lambda x: x + 2, td)),
            (torch.lerp(td, other, 0.5), each(lambda x, y: (x + y) / 2, td, other)),
            (torch.clamp_max_(td.clone(), 1), each(lambda x: x.clamp(max=1), td)),
            (torch.clamp_min_(td.clone(), 1), each(lambda x: x.clamp(min=1), td)),
            (torch.nan_to_num(torch.log(td), nan=-1.0), each(lambda x: torch.nan_to_num(x.log(), nan=-1.0), td)),
            (torch.isclose(td, td + 0.05, atol=0.1), each(lambda x: torch.ones_like(x, dtype=torch.bool), td)),
            (torch.zero_(td.clone()), each(torch.zeros_like, td)),
        ]
        for out, wanted in pairs:
            agree(out, wanted)

    def test_same(self):
        td = nested()
        close = td + 1e-9
        assert torch.equal(td, td.clone())
        assert torch.allclose(td, close)
        assert torch.allclose(td, td + 0.05, 0, 0.1)
        for other in (td + 1, td.exclude("a"), td[:2]):
            assert not torch.equal(td, other)
        assert not torch.allclose(td, td + 1)
        assert torch.allclose(td * float("nan"), td * float("nan"), equal_nan=True)
        assert torch.allclose(td * 0, torch.zeros(BATCH))
        with pytest.raises(KeyError):
            torch.allclose(td, td.exclude("a"))
        with pytest.raises(TypeError):
            torch.equal(td, torch.ones(BATCH))

    def test_compiled(self):
        td, other, column = nested(), shifted(nested()), torch.linspace(1, 2, 12).reshape(BATCH)

        def calls(td, other, column):
            one = [getattr(torch, name)(td) for name in OF_ONE[::3]]
            two = [getattr(torch, name)(td, other) for name in OF_TWO]
            exchanged = [getattr(torch, name)(column, td) for name in OF_TWO[::3]]
            signs = [
                column + td,
                column - td,
                column * td,
                column / td,
                column**td,
                td**column,
                td % column,
                td - column,
                2**td,
            ]
            return [*one, *two, *exchanged, *signs, torch.round(td, decimals=1), torch.add(td, other, alpha=2)]

        torch._dynamo.reset()
        compiled = torch.compile(calls, fullgraph=True, backend="eager")
        for out, wanted in zip(compiled(td, other, column), calls(td, other, column), strict=True):
            agree(out, leaves(wanted))


LOSSES = {"l1_loss": {}, "mse_loss": {}, "smooth_l1_loss": {"beta": 0.5}}


class TestLosses:
    @pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
    @pytest.mark.parametrize("name", LOSSES)
    def test_against_torch(self, name, reduction):
        function, options = getattr(functional, name), {"reduction": reduction, **LOSSES[name]}
        td, target = named().lock_(), shifted(nested())
        target["more"] = torch.ones(BATCH)
        out = function(td, target, **options)
        agree(out, each(lambda x, y: function(x, y, **options), td, target))
        check(out)
        assert out.batch_size == (BATCH if reduction == "none" else ())
        assert out["n", "m"].batch_size == ((*BATCH, 2) if reduction == "none" else ())
        assert out.names == (td.names if reduction == "none" else [])
        assert not out.is_locked
        column = torch.linspace(1, 2, 12).reshape(BATCH)
        wanted = {path: function(x, wide(column, x).expand_as(x), **options) for path, x in leaves(td).items()}
        agree(function(td, column, **options), wanted)

    def test_compiled(self):
        td, target = nested(), shifted(nested())

        def calls(td, target):
            return [
                getattr(functional, name)(td, target, reduction=reduction, **options)
                for name, options in LOSSES.items()
                for reduction in ("none", "mean", "sum")
            ]

        for out, wanted in zip(
            torch.compile(calls, fullgraph=True, backend="eager")(td, target), calls(td, target), strict=True
        ):
            agree(out, leaves(wanted))
            assert out.batch_size == wanted.batch_size

    def test_modules_and_old_arguments(self):
        td, target = nested(), shifted(nested())
        agree(torch.nn.MSELoss()(td, target), each(functional.mse_loss, td, target))
        summed = each(lambda x, y: functional.mse_loss(x, y, reduction="sum"), td, target)
        agree(functional.mse_loss(td, target, size_average=False), summed)
        agree(functional.mse_loss(td, target, reduce=False), each(lambda x, y: (x - y) ** 2, td, target))
        agree(functional.mse_loss(td, target, reduce=True), each(functional.mse_loss, td, target))

    def test_weight(self):
        td, target, weight = nested(), shifted(nested()), torch.linspace(0, 1, 12).reshape(BATCH)
        out = functional.mse_loss(td, target, reduction="sum", weight=weight)
        agree(out, {path: (wide(weight, x) * (x - leaves(target)[path]) ** 2).sum() for path, x in leaves(td).items()})

    def test_refused(self):
        td = nested()
        with pytest.raises(ValueError, match="reduction"):
            functional.mse_loss(td, td, reduction="most")
        with pytest.raises(KeyError):
            functional.mse_loss(td, td.exclude("a"))
        for pair in ((td, 1.0), (torch.ones(BATCH), td)):
            with pytest.raises(TypeError, match="loss takes"):
                functional.mse_loss(*pair)


def test_shapes_that_only_seem_to_fit():
    """A result whose leaves would not have the batch size of the result is an error, not a broken tensordict."""
    td = TensorDict({"a": torch.ones(3)}, [3])
    with pytest.raises(RuntimeError, match="does not broadcast"):
        td + TensorDict({"a": torch.ones(2, 3)}, [])
    with pytest.raises(RuntimeError, match="do not broadcast"):
        td + TensorDict({"a": torch.ones(2)}, [2])
    assert (td + TensorDict({"a": torch.ones(())}, [])).batch_size == (3,)
    assert (td == TensorDict({"a": torch.ones(2, 3)}, [2, 3])).batch_size == (2, 3)


def test_scalar_tensors_keep_their_dtype():
    """A tensor without dimensions promotes as it does beside a tensor, in every operation."""
    td, scalar = TensorDict({"a": torch.arange(3)}, [3]), torch.tensor(1.5, dtype=torch.float64)
    for symbol in (operator.add, operator.sub, operator.mul, operator.truediv, operator.pow, operator.mod):
        assert symbol(td, scalar)["a"].dtype is torch.float64
        torch.testing.assert_close(symbol(td, scalar)["a"], symbol(torch.arange(3), scalar))


def test_gradient_of_a_scalar_tensor():
    td, scalar = nested(), torch.tensor(0.5, requires_grad=True)
    leaves((td * scalar - scalar) / scalar)[("a",)].sum().backward()
    copy = torch.tensor(0.5, requires_grad=True)
    ((td["a"] * copy - copy) / copy).sum().backward()
    torch.testing.assert_close(scalar.grad, copy.grad)
