"""Twins of the functions that balance work."""

from __future__ import annotations

from typing import Any

from tensordict._kernel import native


def partition_greedy(costs: list[int], parts: int) -> list[list[int]]:
    """Deals costs, longest first, each to the part that has the least so far: the indices of each part, rising."""
    if parts < 1:
        raise ValueError(f"the number of parts must be at least 1, got {parts}")
    sums = [0] * parts
    dealt: list[list[int]] = [[] for _ in range(parts)]
    for index in sorted(range(len(costs)), key=lambda index: -costs[index]):
        part = min(range(parts), key=lambda part: sums[part])
        dealt[part].append(index)
        sums[part] += costs[index]
    return [sorted(part) for part in dealt]


def partition_kk(costs: list[int], parts: int) -> list[list[int]]:
    """Joins the two partial solutions that differ most within themselves until one is left."""
    if parts < 1:
        raise ValueError(f"the number of parts must be at least 1, got {parts}")
    partial: list[list[tuple[int, list[int]]]] = [
        [(cost, [index]), *[(0, []) for _ in range(parts - 1)]] for index, cost in enumerate(costs)
    ]
    if not partial:
        return [[] for _ in range(parts)]

    def order(solution: list[tuple[int, list[int]]]) -> tuple[int, int]:
        return (solution[-1][0] - solution[0][0], min(index for _, part in solution for index in part))

    while len(partial) > 1:
        partial.sort(key=order)
        one, two = partial.pop(0), partial.pop(0)
        joined = [(a[0] + b[0], a[1] + b[1]) for a, b in zip(one, reversed(two))]
        partial.append(sorted(joined, key=lambda part: -part[0]))
    return [sorted(part) for _, part in partial[0]]


def runs_under(lengths: list[int], budget: int) -> list[tuple[int, int]]:
    """Cuts lengths into the longest runs `(start, stop)` that keep within the budget; one above it is alone."""
    runs = []
    start, total = 0, 0
    for index, length in enumerate(lengths):
        if index > start and total + length > budget:
            runs.append((start, index))
            start, total = index, 0
        total += length
    if start < len(lengths):
        runs.append((start, len(lengths)))
    return runs


TWINS: list[tuple[Any, Any]] = [
    (native.partition_greedy, partition_greedy),
    (native.partition_kk, partition_kk),
    (native.runs_under, runs_under),
]
