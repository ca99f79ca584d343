"""The key functions and the functions that balance work, native against Python."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensordict._kernel import native
from tensordict._polyfills import key as twins
from tensordict._polyfills import schedule as balance

names = st.text(max_size=3)
keys = st.recursive(names, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=6)
anything = st.recursive(
    st.one_of(names, st.none(), st.integers(), st.binary(max_size=2)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.lists(inner, max_size=3).map(tuple)),
    max_leaves=6,
)
costs = st.lists(st.integers(0, 50), max_size=12)


def outcome(function: Any, *args: Any) -> Any:
    """What a call gives: its result with its type, or its error."""
    try:
        result = function(*args)
    except Exception as error:
        return type(error), str(error)
    return type(result), result


@given(st.one_of(keys, anything))
def test_keys_are_unravelled_alike(key: Any) -> None:
    for native_function, twin in twins.TWINS:
        assert outcome(native_function, key) == outcome(twin, key)


@given(keys)
def test_the_names_come_from_left_to_right(key: Any) -> None:
    def flat(part: Any) -> list[str]:
        return [part] if isinstance(part, str) else [name for inner in part for name in flat(inner)]

    def hollow(part: Any) -> bool:
        return isinstance(part, tuple) and (not part or any(map(hollow, part)))

    expected = () if hollow(key) else tuple(flat(key))
    assert native.unravel_key_to_tuple(key) == expected


def test_a_key_nested_beyond_reason_is_none() -> None:
    key: Any = "a"
    for _ in range(100_000):
        key = (key,)
    assert native.unravel_key_to_tuple(key) == ()
    while isinstance(key, tuple):  # one at a time: freeing it whole would be as deep
        key = key[0]


@given(costs, st.integers(1, 5))
def test_partitions_are_alike(costs: list[int], parts: int) -> None:
    assert native.partition_greedy(costs, parts) == balance.partition_greedy(costs, parts)
    for found in (native.partition_kk(costs, parts), balance.partition_kk(costs, parts)):
        assert sorted(index for part in found for index in part) == list(range(len(costs)))
        assert len(found) == parts
    sums = [
        sorted(sum(costs[i] for i in part) for part in f(costs, parts)) for f in (native.partition_kk, balance.partition_kk)
    ]
    assert max(sums[0]) <= max(sum(costs[i] for i in part) for part in native.partition_greedy(costs, parts)) * 4 / 3 + 1e-9
    assert sum(sums[0]) == sum(sums[1]) == sum(costs)


@given(costs, st.integers(0, 100))
def test_runs_are_alike(lengths: list[int], budget: int) -> None:
    assert native.runs_under(lengths, budget) == balance.runs_under(lengths, budget)


@settings(max_examples=1)
@given(st.just([1, 2]))
def test_no_parts(costs: list[int]) -> None:
    for function in (native.partition_greedy, native.partition_kk, balance.partition_greedy, balance.partition_kk):
        with pytest.raises(ValueError, match="at least 1"):
            function(costs, 0)
