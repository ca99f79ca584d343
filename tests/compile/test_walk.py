"""`torch.compile` of walks through trees: the twin of each native function in one graph, with the same result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._dynamo.testing import CompileCounter

from containers import BATCH, holder, nested, same, stacked
from tensordict import TensorDict, is_leaf_nontensor
from tensordict._kernel import native
from tensordict._ops.trees import refill
from tensordict._polyfills import walk


def weighed(values: Any) -> torch.Tensor:
    """A number to which each entry adds, times its place."""
    return sum(value.sum() * place for place, value in enumerate(values) if isinstance(value, torch.Tensor))


def pairs(td: Any, **options: Any) -> torch.Tensor:
    return sum(value.sum() * len(key) * (place + 1) for place, (key, value) in enumerate(td.items(True, True, **options)))


def collected(td: Any) -> Any:
    leaves: list[Any] = []
    tree = native.collect(td, leaves)
    return refill(tree, iter([leaf + 1 for leaf in leaves]))


def renamed(td: Any) -> Any:
    return td.rename_keys({"a": ("n", "b"), ("n", "x"): "a"})


# What reaches each twin, called with a tree of dense nodes.
PROGRAMS: dict[str, list[Callable[[Any], Any]]] = {
    "collect": [collected],
    "copy_nodes": [lambda td: td.copy() + 1, lambda td: native.copy_nodes(td) * 2, renamed],
    "count_below": [lambda td: td["a"] * len(td.keys(True)) + len(td.keys(True, True))],
    "excluded": [lambda td: td.exclude("a", ("n", "m", "y")) + 1, lambda td: td.exclude("missing", ("n", "missing")) + 1],
    "flattened": [lambda td: td.flatten_keys("/") + 1, lambda td: td.flatten_keys(".", is_leaf=is_leaf_nontensor) + 1],
    "items_below": [pairs, lambda td: pairs(td, sort=True), lambda td: pairs(td, is_leaf=is_leaf_nontensor)],
    "keys_below": [
        lambda td: {str(key): td[key] * 2 for key in td.keys(True, True)},
        lambda td: {str(key): td[key] * 2 for key in td.keys(True, True, sort=True)},
        lambda td: {str(key): td[key] * 2 for key in td.keys(leaves_only=True)},
    ],
    "selected": [lambda td: td.select("a", ("n", "m", "y")) + 1, lambda td: td.select("missing", "a", strict=False) + 1],
    "unflattened": [lambda td: td.flatten_keys("/").unflatten_keys("/") + 1],
    "values_below": [lambda td: weighed(td.values(True, True)), lambda td: weighed(td.values(True, True, sort=True))],
}
CASES = [program for programs in PROGRAMS.values() for program in programs]


def dense() -> TensorDict:
    return nested().exclude(("n", "e"))


def agree(one: Any, other: Any) -> None:
    if isinstance(one, dict):
        assert list(one) == list(other)
        for key, value in one.items():
            assert torch.equal(value, other[key])
    elif isinstance(one, torch.Tensor):
        torch.testing.assert_close(one, other)
    else:
        assert type(one) is type(other)
        assert list(one.keys(True)) == list(other.keys(True))
        same(one, other)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch._dynamo.reset()


def test_each_twin_has_a_program() -> None:
    assert {native.__name__ for native, _ in walk.TWINS} == set(PROGRAMS)


def one_graph(program: Callable[[Any], Any], make: Callable[[], Any]) -> None:
    counter = CompileCounter()
    compiled = torch.compile(program, fullgraph=True, backend=counter)
    agree(program(make()), compiled(make()))
    agree(program(make() * 2), compiled(make() * 2))
    assert counter.frame_count <= 1


@pytest.mark.parametrize(
    "program", CASES, ids=[f"{name}-{place}" for name, row in PROGRAMS.items() for place in range(len(row))]
)
def test_one_graph(program: Callable[[Any], Any]) -> None:
    one_graph(program, dense)


@pytest.mark.parametrize(
    "program",
    [
        lambda td: td.copy() + 1,
        lambda td: td.select(("n", "x")) + 1,
        lambda td: td.exclude("a") + 1,
        lambda td: td.flatten_keys("/") + 1,
        lambda td: weighed(td.values(True, True)),
        pairs,
        collected,
    ],
)
def test_tensorclasses(program: Callable[[Any], Any]) -> None:
    one_graph(program, holder)


@pytest.mark.parametrize(
    "program",
    [
        lambda td: td.select("a") + 1,
        lambda td: td.exclude("a") + 1,
        lambda td: td.flatten_keys("/") + 1,
        lambda td: td.flatten_keys("/").unflatten_keys("/") + 1,
        lambda td: weighed(td.values(True, True)),
    ],
)
def test_stacks(program: Callable[[Any], Any]) -> None:
    agree(program(stacked()), torch.compile(program, fullgraph=True, backend="eager")(stacked()))


@pytest.mark.parametrize(
    ("program", "tree", "error"),
    [
        (lambda td: td.select("missing"), dense, KeyError),
        (
            lambda td: td.flatten_keys("."),
            lambda: TensorDict({"a.b": torch.ones(BATCH), "a": {"b": torch.ones(BATCH)}}, BATCH),
            KeyError,
        ),
    ],
)
def test_what_is_refused(program: Callable[[Any], Any], tree: Callable[[], Any], error: type[Exception]) -> None:
    def attempt(td: Any) -> Any:
        try:
            return program(td)
        except error:
            return td + 1

    agree(tree() + 1, torch.compile(attempt, fullgraph=True, backend="eager")(tree()))
