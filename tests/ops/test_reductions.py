"""The table of reductions and of torch functions along batch dimensions, each against torch leaf by leaf."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from containers import BATCH, CONTAINERS, check, leaves, named, nested, nodes
from tensordict import TensorDict

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*degrees of freedom is <= 0"),  # of features of one element, as torch does
    pytest.mark.filterwarnings("ignore:There is a performance drop"),  # of quantile under vmap
]

Function = Callable[..., Any]


def _merged(function: Function) -> Function:
    """A function of one dimension over several: they are moved behind the others and merged."""

    def call(x: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
        dims = tuple(one % x.ndim for one in ((dim,) if isinstance(dim, int) else dim))
        if not dims:
            return function(x.unsqueeze(-1), -1)
        sizes = [1 if at in dims else size for at, size in enumerate(x.shape)]
        kept = [at for at in range(x.ndim) if at not in dims]
        out = function(x.permute(*kept, *dims).reshape([x.shape[at] for at in kept] + [-1]), -1)
        return out.reshape(sizes) if keepdim else out

    return call


# By the name of the method: what `torch` computes of a leaf over a dimension, or several, and over all.
TOTALS: dict[str, tuple[Function, Function]] = {
    "sum": (torch.sum, torch.sum),
    "nansum": (torch.nansum, torch.nansum),
    "prod": (_merged(torch.prod), torch.prod),
    "mean": (torch.mean, torch.mean),
    "nanmean": (torch.nanmean, torch.nanmean),
    "std": (lambda x, dim, keepdim=False: torch.std(x, dim, keepdim=keepdim), torch.std),
    "var": (lambda x, dim, keepdim=False: torch.var(x, dim, keepdim=keepdim), torch.var),
    "amax": (torch.amax, torch.amax),
    "amin": (torch.amin, torch.amin),
    "quantile": (_merged(lambda x, dim: torch.quantile(x, 0.3, dim)), lambda x: torch.quantile(x, 0.3)),
    "logsumexp": (torch.logsumexp, lambda x: torch.logsumexp(x, (0, 1))),
}
WITH_DTYPE = ["sum", "nansum", "prod", "mean", "nanmean"]
RANKED: dict[str, Function] = {"max": torch.max, "min": torch.min}
RUNNING: dict[str, Function] = {"cummax": torch.cummax, "cummin": torch.cummin}
DIMS: list[Any] = [0, 1, -1, (0,), (0, 1), (1, -2)]


def call(td: Any, name: str, *args: Any, **kwargs: Any) -> Any:
    return td.quantile(0.3, *args, **kwargs) if name == "quantile" else getattr(td, name)(*args, **kwargs)


def front(dim: Any) -> Any:
    """Dimensions of the batch counted from the front."""
    return dim % 2 if isinstance(dim, int) else tuple(one % 2 for one in dim)


def agree(out: Any, td: Any, function: Function) -> None:
    """Each leaf of `out` is what `function` gives of the leaf of `td`; every node has the batch that its leaves allow."""
    assert set(nodes(out)) == set(nodes(td))
    got = leaves(out)
    assert got.keys() == leaves(td).keys()
    for path, leaf in leaves(td).items():
        torch.testing.assert_close(got[path], function(leaf), equal_nan=True, msg=str(path))
    check(out)
    assert not out.is_locked
    assert out.device == td.device


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("name", TOTALS)
class TestTotals:
    @pytest.mark.parametrize("keepdim", [False, True])
    @pytest.mark.parametrize("dim", DIMS, ids=str)
    def test_dims(self, name, container, dim, keepdim):
        td, one = CONTAINERS[container](), TOTALS[name][0]
        out = call(td, name, dim, keepdim=keepdim)
        agree(out, td, lambda x: one(x, front(dim), keepdim=keepdim))
        batch = torch.sum(torch.zeros(BATCH), dim, keepdim=keepdim).shape
        for path, node in nodes(td).items():
            assert nodes(out)[path].batch_size == batch + node.batch_size[2:]

    def test_all(self, name, container):
        td, whole = CONTAINERS[container](), TOTALS[name][1]
        out = call(td, name)
        agree(out, td, whole)
        assert out.batch_size == ()

    def test_features(self, name, container):
        if name == "logsumexp":
            return
        td, one = CONTAINERS[container](), TOTALS[name][0]
        out = call(td, name, "feature")
        wanted = {}
        for path, node in nodes(td).items():
            dims = node.batch_dims
            assert nodes(out)[path].batch_size == node.batch_size
            for key, leaf in node.items():
                if isinstance(leaf, Tensor):
                    wide = leaf.unsqueeze(-1) if leaf.ndim == dims else leaf
                    wanted[(*path, key)] = one(wide, tuple(range(dims, wide.ndim)))
        for path, leaf in leaves(out).items():
            torch.testing.assert_close(leaf, wanted[path], equal_nan=True)
        check(out)
        assert out.names == td.names

    def test_everything_together(self, name, container):
        if name == "logsumexp":
            return
        td, whole = CONTAINERS[container](), TOTALS[name][1]
        flat = torch.cat([leaf.flatten() for leaf in leaves(td).values()])
        torch.testing.assert_close(call(td, name, reduce=True), whole(flat))
        flat = torch.cat([leaf.flatten(2) if leaf.ndim > 2 else leaf[..., None] for leaf in leaves(td).values()], -1)
        torch.testing.assert_close(call(td, name, "feature", reduce=True), TOTALS[name][0](flat, -1))


ALIKE = TensorDict({"a": torch.linspace(-1, 2, 12).reshape(4, 3), "n": {"x": torch.linspace(3, -1, 12).reshape(4, 3)}}, BATCH)


@pytest.mark.parametrize("name", [name for name in TOTALS if name != "logsumexp"])
@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("dim", DIMS, ids=str)
def test_together_along_dims(name, dim, keepdim):
    first = front(dim) if isinstance(dim, int) else front(dim)[0]
    joined = torch.cat([ALIKE["a"], ALIKE["n", "x"]], first)
    out = call(ALIKE, name, dim, keepdim=keepdim, reduce=True)
    torch.testing.assert_close(out, TOTALS[name][0](joined, front(dim), keepdim=keepdim))


@pytest.mark.parametrize("name", WITH_DTYPE)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.int64, torch.complex64])
@pytest.mark.parametrize("source", [torch.float32, torch.int32, torch.bool, torch.float16])
def test_dtypes(name, dtype, source):
    td = (nested() * 4).apply(lambda leaf: leaf.to(source))
    one, whole = {"prod": (torch.prod, torch.prod)}.get(name, TOTALS[name])
    for args, function in (((0,), lambda x, **kw: one(x, 0, **kw)), ((), whole)):
        for options in ({}, {"dtype": dtype}):
            try:
                wanted = {path: function(leaf, **options) for path, leaf in leaves(td).items()}
            except (RuntimeError, NotImplementedError) as error:
                with pytest.raises(type(error)):
                    getattr(td, name)(*args, **options)
                continue
            out = getattr(td, name)(*args, **options)
            for path, leaf in leaves(out).items():
                torch.testing.assert_close(leaf, wanted[path], equal_nan=True)


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("name", RANKED)
class TestRanked:
    @pytest.mark.parametrize("keepdim", [False, True])
    @pytest.mark.parametrize("dim", [0, 1, -1, (0,)], ids=str)
    def test_dims(self, name, container, dim, keepdim):
        td, function, at = CONTAINERS[container](), RANKED[name], dim[0] if isinstance(dim, tuple) else dim % 2
        out = getattr(td, name)(dim, keepdim)
        assert type(out) is getattr(torch.return_types, name)
        agree(out.values, td, lambda x: function(x, at, keepdim).values)
        agree(out.indices, td, lambda x: function(x, at, keepdim).indices)
        agree(getattr(td, name)(dim, keepdim, return_indices=False), td, lambda x: function(x, at, keepdim).values)

    def test_all(self, name, container):
        td = CONTAINERS[container]()
        agree(getattr(td, name)(), td, RANKED[name])
        agree(getattr(td, name)((0, 1), return_indices=False), td, lambda x: TOTALS[f"a{name}"][0](x, (0, 1)))

    def test_features(self, name, container):
        td = CONTAINERS[container]()
        values, places = getattr(td, name)("feature")
        same = getattr(td, f"a{name}")("feature")
        assert all(torch.equal(leaf, leaves(same)[path]) for path, leaf in leaves(values).items())
        leaf = td.get("a").unsqueeze(-1).flatten(2)
        assert torch.equal(leaf.gather(-1, places.get("a").unsqueeze(-1)).squeeze(-1), values.get("a"))

    def test_together(self, name, container):
        td, function = CONTAINERS[container](), RANKED[name]
        flat = torch.cat([leaf.flatten() for leaf in leaves(td).values()])
        assert torch.equal(getattr(td, name)(reduce=True), function(flat))


@pytest.mark.parametrize("name", [*RANKED, *RUNNING])
def test_together_with_indices(name):
    function = getattr(torch, name)
    wanted = function(torch.cat([ALIKE["a"], ALIKE["n", "x"]], 1), 1)
    out = getattr(ALIKE, name)(1, reduce=True)
    assert all(torch.equal(one, two) for one, two in zip(out, wanted))
    assert torch.equal(getattr(ALIKE, name)(1, reduce=True, return_indices=False), wanted.values)


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("name", RUNNING)
@pytest.mark.parametrize("dim", [0, -1])
def test_running(name, container, dim):
    td, function = CONTAINERS[container](), RUNNING[name]
    out = getattr(td, name)(dim)
    assert type(out) is getattr(torch.return_types, name)
    agree(out.values, td, lambda x: function(x, dim % 2).values)
    agree(out.indices, td, lambda x: function(x, dim % 2).indices)
    assert out.values.names == td.names
    agree(getattr(td, name)(dim, return_indices=False), td, lambda x: function(x, dim % 2).values)


class TestQuantile:
    q = torch.tensor([0.1, 0.5, 0.9])

    @pytest.mark.parametrize("keepdim", [False, True])
    def test_several(self, keepdim):
        td = named()
        out = td.quantile(self.q, 0, keepdim)
        agree(out, td, lambda x: torch.quantile(x, self.q, 0, keepdim))
        assert out.names == ([None, "rows", "columns"] if keepdim else [None, "columns"])
        assert out["n", "m"].batch_size == ((3, 1, 3, 2) if keepdim else (3, 3, 2))
        assert td.quantile(self.q, "feature").batch_size == (3, 4, 3)
        assert td.quantile(self.q)["a"].shape == (3,)
        assert td.quantile(self.q, keepdim=True)["n"].batch_size == (3, 1, 1)

    @pytest.mark.parametrize("way", ["lower", "nearest", "midpoint"])
    def test_interpolation(self, way):
        td = nested()
        agree(td.quantile(0.4, 0, interpolation=way), td, lambda x: torch.quantile(x, 0.4, 0, interpolation=way))


class TestNames:
    def test_dims(self):
        assert named().sum(0).names == ["columns"]
        assert named().sum(0, keepdim=True)["n", "m"].names == ["rows", "columns", None]
        assert named().sum().names == []
        assert named().mean(keepdim=True).names == ["rows", "columns"]
        assert named().max(1).indices.names == ["rows"]

    def test_key_transform(self):
        out = named().lock_().sum(0, key_transform=lambda key: f"{key}_sum")
        assert set(leaves(out)) == {("a_sum",), ("n_sum", "x_sum"), ("n_sum", "m_sum", "y_sum"), ("n_sum", "m_sum", "z_sum")}
        assert out["n_sum"].names == ["columns"]
        out = nested().std(0, key_transform=lambda key: (key, "std"))
        assert torch.equal(out["n", "std", "x", "std"], nested()["n", "x"].std(0))
        assert "a" not in nested().mean(0, key_transform=lambda key: None if key == "a" else key)
        with pytest.raises(KeyError, match="another key"):
            nested().sum(0, key_transform=lambda key: "same")


class TestLogsumexp:
    def test_out(self):
        out = nested().logsumexp(0).zero_()
        old = out["a"]
        assert nested().logsumexp(0, out=out) is out
        assert out["a"] is old
        torch.testing.assert_close(old, nested()["a"].logsumexp(0))

    def test_without_batch(self):
        assert torch.equal(TensorDict(a=torch.ones(3)).logsumexp()["a"], torch.ones(3))


@pytest.mark.parametrize(
    ("program", "error"),
    [
        *[(lambda td, n=n: call(td, n, 2), IndexError) for n in TOTALS if n != "logsumexp"],
        *[(lambda td, n=n: getattr(td, n)(-3), IndexError) for n in (*RANKED, *RUNNING)],
        (lambda td: td.logsumexp(2), ValueError),
        (lambda td: td.sum((0, 2)), IndexError),
        (lambda td: td.sum((0, -2)), RuntimeError),
        (lambda td: td.sum("features"), TypeError),
        (lambda td: td.sum(True), TypeError),
        (lambda td: td.sum(1.0), TypeError),
        (lambda td: td.sum("feature", keepdim=True), TypeError),
        (lambda td: td.sum(0, reduce=True), RuntimeError),
        (lambda td: td.select().sum(reduce=True), ValueError),
        (lambda td: td.select().max(0, reduce=True), ValueError),
        (lambda td: td.max((0, 1)), TypeError),
        (lambda td: td.cummax((0, 1)), TypeError),
        (lambda td: td.cummin("feature"), RuntimeError),
        (lambda td: td.quantile(2.0, 0), RuntimeError),
    ],
)
def test_refused(program, error):
    with pytest.raises(error):
        program(nested())


# torch functions: a call, and what it gives of a leaf; a pair gives both members of a named tuple.
INDEX = torch.tensor([2, 0, 2])
FUNCTIONS: dict[str, tuple[Function, Function]] = {
    **{
        name: (lambda td, n=name: getattr(torch, n)(td, 0), lambda x, n=name: getattr(torch, n)(x, 0))
        for name in (
            "sum",
            "nansum",
            "prod",
            "mean",
            "nanmean",
            "std",
            "var",
            "amax",
            "amin",
            "logsumexp",
            "all",
            "any",
            "argmax",
            "argmin",
            "cumsum",
            "cumprod",
            "logcumsumexp",
            "max",
            "min",
            "cummax",
            "cummin",
            "median",
            "nanmedian",
        )
    },
    **{
        f"{name} keepdim": (
            lambda td, n=name: getattr(torch, n)(td, 1, keepdim=True),
            lambda x, n=name: getattr(torch, n)(x, 1, keepdim=True),
        )
        for name in ("sum", "mean", "std", "all", "any", "argmax", "argmin", "max", "median")
    },
    **{
        f"{name} whole": (lambda td, n=name: getattr(torch, n)(td), lambda x, n=name: getattr(torch, n)(x))
        for name in (
            "sum",
            "std",
            "max",
            "min",
            "argmax",
            "median",
            "nanmedian",
        )
    },
    "sum dims": (lambda td: torch.sum(td, dim=(0, 1), dtype=torch.double), lambda x: x.sum((0, 1), dtype=torch.double)),
    "all dims": (lambda td: torch.all(td, (0, 1), True), lambda x: x.all(0, True).all(1, True)),
    "std biased": (lambda td: torch.std(td, 0, False), lambda x: x.std(0, correction=0)),
    "var biased": (lambda td: torch.var(td, unbiased=False), lambda x: x.var(correction=0)),
    "quantile": (lambda td: torch.quantile(td, 0.2, 1), lambda x: x.quantile(0.2, 1)),
    "detach": (torch.detach, torch.detach),
    "sort": (torch.sort, lambda x: torch.sort(x, 1)),
    "sort descending": (lambda td: torch.sort(td, 0, True), lambda x: torch.sort(x, 0, True)),
    "argsort": (lambda td: torch.argsort(td, dim=-2, stable=True), lambda x: torch.argsort(x, dim=0, stable=True)),
    "topk": (lambda td: torch.topk(td, 2, 0, largest=False), lambda x: torch.topk(x, 2, 0, largest=False)),
    "cumsum dtype": (lambda td: torch.cumsum(td, 0, dtype=torch.double), lambda x: x.cumsum(0, dtype=torch.double)),
    "diff": (torch.diff, lambda x: torch.diff(x, dim=1)),
    "diff twice": (lambda td: torch.diff(td, 2, 0), lambda x: torch.diff(x, 2, 0)),
    "diff joined": (
        lambda td: torch.diff(td, dim=0, prepend=td[:1], append=td),
        lambda x: torch.diff(x, dim=0, prepend=x[:1], append=x),
    ),
    "index_select": (lambda td: torch.index_select(td, 1, INDEX), lambda x: x.index_select(1, INDEX)),
    "take_along_dim": (
        lambda td: torch.take_along_dim(td, torch.argsort(td, 0, True), 0),
        lambda x: torch.take_along_dim(x, torch.argsort(x, 0, True), 0),
    ),
    "take_along_dim fewer": (
        lambda td: torch.take_along_dim(td, torch.topk(td, 2, 0).indices, 0),
        lambda x: torch.take_along_dim(x, torch.topk(x, 2, 0).indices, 0),
    ),
    "take_along_dim tensor": (lambda td: torch.take_along_dim(td, INDEX[:, None], 0), lambda x: x.index_select(0, INDEX)),
    "take_along_dim flat": (lambda td: torch.take_along_dim(td, INDEX), lambda x: x.flatten(0, 1)[INDEX]),
}


def members(out: Any) -> list[Any]:
    return [out] if isinstance(out, (TensorDict, Tensor)) or not isinstance(out, tuple) else list(out)


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_torch_functions(name, container):
    td, (function, leaf) = CONTAINERS[container](), FUNCTIONS[name]
    out = function(td)
    kind = type(leaf(td.get("a")))
    assert kind is Tensor or type(out) is kind
    for place, one in enumerate(members(out)):
        got = leaves(one)
        for path, value in leaves(td).items():
            torch.testing.assert_close(got[path], members(leaf(value))[place], equal_nan=True)
        check(one)
        assert one.device == td.device
        batch = members(leaf(torch.zeros(BATCH)))[place].shape
        assert one.batch_size == batch


@pytest.mark.parametrize("name", ["argmax", "argmin", "cumsum", "cumprod", "median", "std", "all", "max"])
def test_torch_functions_of_no_batch_dim(name):
    for dim in (2, -3):
        with pytest.raises(IndexError):
            getattr(torch, name)(nested(), dim)
    with pytest.raises(IndexError):
        torch.sort(nested(), 2)
    with pytest.raises(IndexError):
        torch.topk(nested(), 1, 2)


def test_torch_functions_refused():
    with pytest.raises(TypeError, match="prepend"):
        torch.diff(nested(), prepend=torch.zeros(4, 1))
    with pytest.raises(RuntimeError, match="batch size"):
        torch.take_along_dim(nested(), INDEX, 0)
    with pytest.raises(RuntimeError, match="range"):
        torch.topk(nested(), 9, 0)


MODES: dict[str, tuple[Function, Function]] = {
    "sum": (lambda td: td.sum(0), lambda x: x.sum(0)),
    "mean keepdim": (lambda td: td.mean(0, keepdim=True), lambda x: x.mean(0, keepdim=True)),
    "prod": (lambda td: td.prod(0), lambda x: x.prod(0)),
    "std": (lambda td: td.std(0), lambda x: x.std(0)),
    "amax": (lambda td: td.amax(0), lambda x: x.amax(0)),
    "max": (lambda td: td.max(0).values, lambda x: x.max(0).values),
    "cummax": (lambda td: td.cummax(0).values, lambda x: x.cummax(0).values),
    "logsumexp": (lambda td: td.logsumexp(0), lambda x: x.logsumexp(0)),
    "quantile": (lambda td: td.quantile(0.3, 0), lambda x: x.quantile(0.3, 0)),
    "cumsum": (lambda td: torch.cumsum(td, 0), lambda x: x.cumsum(0)),
    "sort": (lambda td: torch.sort(td, 0).values, lambda x: x.sort(0).values),
    "topk": (lambda td: torch.topk(td, 2, 0).values, lambda x: x.topk(2, 0).values),
    "median": (lambda td: torch.median(td, 0).values, lambda x: x.median(0).values),
    "diff": (lambda td: torch.diff(td, dim=0), lambda x: x.diff(dim=0)),
    "index_select": (lambda td: torch.index_select(td, 0, INDEX), lambda x: x.index_select(0, INDEX)),
    "take_along_dim": (
        lambda td: torch.take_along_dim(td, torch.argsort(td, 0), 0),
        lambda x: torch.take_along_dim(x, torch.argsort(x, 0), 0),
    ),
}


@pytest.mark.parametrize("name", MODES)
def test_autograd(name):
    function, leaf = MODES[name]
    td = nested().apply(lambda x: x.detach().requires_grad_())
    torch.stack([out.pow(2).sum() for out in leaves(function(td)).values()]).sum().backward()
    for value in leaves(td).values():
        copy = value.detach().clone().requires_grad_()
        leaf(copy).pow(2).sum().backward()
        torch.testing.assert_close(value.grad, copy.grad)


@pytest.mark.parametrize("name", [name for name in MODES if name != "take_along_dim"])
def test_vmap(name):
    function, leaf = MODES[name]
    td = nested()
    agree(torch.vmap(function)(td), td, torch.vmap(leaf))
    agree(torch.vmap(function, in_dims=1)(td), td, torch.vmap(leaf, in_dims=1))


# `torch.quantile` itself is not one graph on torch 2.11.
TRACED = [name for name in TOTALS if name != "quantile" or torch.__version__ >= (2, 12)]
COMPILED: dict[str, Function] = {
    "totals": lambda td: [call(td, name, 0) for name in TRACED],
    "dims": lambda td: [td.prod((0, 1)), call(td, TRACED[-2], (0, 1), True), td.std((0, 1)), td.sum(keepdim=True)],
    "feature": lambda td: [td.sum("feature"), td.std("feature"), td.prod("feature"), td.amax("feature")],
    "together": lambda td: [td.mean(reduce=True), td.std("feature", reduce=True), td.max(reduce=True)],
    "pairs": lambda td: [*td.max(0), *td.min(1), *td.cummax(0), *td.cummin(1), *td.max("feature")],
    "functions": lambda td: [torch.sum(td, 0), torch.std(td, 0, False), torch.argmax(td, 0), torch.cumsum(td, 1)],
    "sorted": lambda td: [*torch.sort(td, 0), torch.argsort(td), *torch.topk(td, 2, 0), *torch.median(td, 0)],
    "picked": lambda td: [torch.diff(td, dim=0), torch.index_select(td, 0, INDEX), torch.take_along_dim(td, INDEX)],
    "casts": lambda td: [td.float64(), td.int8(), td.complex64(), td.type(torch.float16), td.to("cpu", torch.double)],
    "detach": lambda td: [torch.detach(td), td.data, td.detach()],
}


@pytest.mark.parametrize("name", COMPILED)
def test_compiled(name):
    torch._dynamo.reset()
    td = nested().exclude(("n", "e"))
    wanted = COMPILED[name](td)
    out = torch.compile(COMPILED[name], fullgraph=True, backend="eager")(td)
    assert len(out) == len(wanted)
    for one, two in zip(out, wanted):
        if isinstance(two, Tensor):
            torch.testing.assert_close(one, two)
            continue
        assert {path: node.batch_size for path, node in nodes(one).items()} == {
            path: node.batch_size for path, node in nodes(two).items()
        }
        for path, leaf in leaves(two).items():
            torch.testing.assert_close(leaves(one)[path], leaf, equal_nan=True)
