"""A function is called once for each leaf: what fails is neither repeated nor hidden."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tensordict import LazyStackedTensorDict, TensorDict
from tensordict._kernel.change import Change
from tensordict._ops.trees import map_leaves, map_pairs, transform

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch calls nested tensors a prototype
    NESTED = torch.nested.nested_tensor([torch.full((2,), 2.5), torch.full((3,), 3.5)])


def mixed() -> TensorDict:
    """Plain leaves around one for which torch has few kernels, here and below."""
    td = TensorDict({"a": torch.full((2,), 1.5), "r": NESTED.clone(), "z": torch.full((2,), 4.5)}, [2])
    td["n"] = TensorDict({"a": torch.full((2,), 5.5), "r": NESTED.clone(), "z": torch.full((2,), 6.5)}, [2])
    return td


def values(leaf: torch.Tensor) -> torch.Tensor:
    return torch.cat([part.reshape(-1) for part in leaf.unbind()]) if leaf.is_nested else leaf


def fractions(calls: list[Any]) -> Callable[..., Any]:
    """`torch.frac`, which torch lacks for nested tensors, and a drawn number for each call that gave something."""

    def function(leaf: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
        out = torch.frac(leaf)
        calls.append((leaf, float(torch.rand(()))))
        return out

    return function


WALKS: dict[str, Callable[[Any, Any], Any]] = {
    "map_leaves": lambda td, function: map_leaves(td, function),
    "map_pairs": lambda td, function: map_pairs(td, td.copy(), function),
    "map_leaves of a stack": lambda td, function: map_leaves(LazyStackedTensorDict(td), function)[0],
}


@pytest.mark.parametrize("name", WALKS)
def test_walks_go_on_where_they_failed(name):
    td, calls = mixed(), []
    torch.manual_seed(0)
    out = WALKS[name](td, fractions(calls))
    after = float(torch.rand(()))
    leaves = list(td.values(True, True))
    assert [id(leaf) for leaf, _ in calls] == [id(leaf) for leaf in leaves]
    torch.manual_seed(0)
    assert [drawn for _, drawn in calls] == [float(torch.rand(())) for _ in leaves]
    assert float(torch.rand(())) == after
    for leaf, made in zip(leaves, out.values(True, True)):
        assert torch.equal(values(made), values(leaf).frac())


def test_changes_go_on_where_they_failed():
    td, calls = mixed(), []

    def leaf(value: torch.Tensor) -> torch.Tensor:
        calls.append(id(value))
        return value.flip(0)

    out = transform(td, Change(leaf, 1, torch.Size([2]), [0]))
    for node in (td, td["n"]):
        assert [calls.count(id(node[key])) for key in "az"] == [1, 1]
    assert torch.equal(values(out["n", "r"]), torch.tensor([3.5, 3.5, 3.5, 2.5, 2.5]))


class OddError(Exception):
    pass


@pytest.mark.parametrize("name", WALKS)
@pytest.mark.parametrize("error", [OddError("no"), RuntimeError("no"), NotImplementedError("no"), KeyError("no")], ids=repr)
def test_errors_of_functions_arrive(name, error):
    td, calls = mixed(), []

    def function(leaf: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
        calls.append(id(leaf))
        if leaf is td["z"]:
            raise error
        return leaf

    with pytest.raises(type(error)) as caught:
        WALKS[name](td, function)
    assert caught.value is error
    assert calls == [id(td[key]) for key in "arz"]


@pytest.mark.parametrize("error", [OddError("no"), RuntimeError("no"), NotImplementedError("no"), KeyError("no")], ids=repr)
@pytest.mark.parametrize(
    "method", ["apply", "named_apply", "apply_", "_fast_apply", "in threads", "with another", "of a stack"]
)
def test_errors_of_applied_functions_arrive(method, error):
    td, calls = TensorDict({"a": torch.zeros(2), "b": torch.ones(2), "c": torch.ones(2)}, [2]), []

    def function(*args: Any) -> Any:
        calls.append(args)
        if len(calls) == 2:
            raise error
        return args[-1]

    runs: dict[str, Callable[[], Any]] = {
        "in threads": lambda: td._fast_apply(function, num_threads=2),
        "with another": lambda: td.apply(function, td, default=None),
        "of a stack": lambda: LazyStackedTensorDict(td, td).apply(function),
    }
    with pytest.raises(type(error)) as caught:
        runs.get(method, lambda: getattr(td, method)(function))()
    assert caught.value is error
    assert len(calls) == 2 or (method == "in threads" and len(calls) == 3)


@pytest.mark.parametrize("threads", [0, 2])
def test_applied_functions_are_called_once_for_each_leaf(threads):
    td, calls = mixed(), []
    td._fast_apply(lambda leaf: calls.append(id(leaf)), num_threads=threads, filter_empty=True)
    assert sorted(calls) == sorted(id(leaf) for leaf in td.values(True, True))


# In place, what each does to 2 and what torch lacks it for.
IN_PLACE: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any], Callable[[], torch.Tensor]]] = {
    "exp_ of sparse": (lambda td: td.exp_(), torch.exp, lambda: torch.eye(2).to_sparse()),
    "add_ of unsigned": (lambda td: td.add_(1), lambda leaf: leaf + 1, lambda: torch.ones(2, dtype=torch.uint16)),
    "sub_ of booleans": (lambda td: td.sub_(1), lambda leaf: leaf - 1, lambda: torch.ones(2, dtype=torch.bool)),
    "neg_ of booleans": (lambda td: td.neg_(), torch.neg, lambda: torch.ones(2, dtype=torch.bool)),
    "frac_ of integers": (lambda td: td.frac_(), torch.frac, lambda: torch.ones(2, dtype=torch.int32)),
    "erf_ of complex": (lambda td: td.erf_(), torch.erf, lambda: torch.ones(2, dtype=torch.complex64)),
    "sqrt_ of integers": (lambda td: td.sqrt_(), torch.sqrt, lambda: torch.ones(2, dtype=torch.int32)),
    "add_ of a view": (lambda td: td.mul_(3), lambda leaf: leaf * 3, lambda: torch.ones(1).expand(2)),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_functions_in_place_run_once_where_a_later_leaf_fails(name):
    operation, alone, make = IN_PLACE[name]
    td = TensorDict({"a": torch.full((2,), 2.0), "odd": make(), "z": torch.full((2,), 2.0)})
    with pytest.raises(RuntimeError):
        operation(td)
    assert torch.equal(td["a"], alone(torch.full((2,), 2.0)))
    assert torch.equal(td["z"], torch.full((2,), 2.0))


@pytest.mark.parametrize("name", ["exp_", "frac_", "neg_", "lgamma_", "sqrt_", "erf_", "zero_", "trunc_"])
def test_functions_in_place_run_once_beside_nested_leaves(name):
    td = mixed()
    wanted = [getattr(values(leaf).clone(), name)() for leaf in td.values(True, True)]
    getattr(td, name)()
    for leaf, right in zip(td.values(True, True), wanted):
        assert torch.equal(values(leaf), right)


@pytest.mark.parametrize("name", ["add_", "mul_", "sub_", "div_"])
def test_operands_in_place_are_taken_once_beside_nested_leaves(name):
    for other in (2.0, mixed()):
        td = mixed()
        wanted = [
            getattr(values(leaf).clone(), name)(other if isinstance(other, float) else values(leaf).clone())
            for leaf in td.values(True, True)
        ]
        getattr(td, name)(other)
        for leaf, right in zip(td.values(True, True), wanted):
            assert torch.equal(values(leaf), right)


def test_random_leaves_are_drawn_once():
    td = TensorDict({"a": torch.zeros(3), "s": torch.eye(3).to_sparse(), "z": torch.zeros(3)})
    torch.manual_seed(0)
    with pytest.raises(RuntimeError):
        torch.rand_like(td)  # torch draws no sparse tensors
    found = torch.rand(())
    torch.manual_seed(0)
    torch.rand(3)
    assert torch.equal(torch.rand(()), found)
    dense = td.exclude("s")
    torch.manual_seed(0)
    out = torch.rand_like(dense)
    torch.manual_seed(0)
    assert torch.equal(out["a"], torch.rand(3))
    assert torch.equal(out["z"], torch.rand(3))
