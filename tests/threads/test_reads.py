"""Many threads on one locked tree: reads, rows, copies and in-place writes into leaves of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from containers import leaves, nested, same
from tensordict import TensorDict

THREADS = 8
ROUNDS = 40


def tree() -> TensorDict:
    td = TensorDict({f"k{place}": torch.arange(64.0).reshape(16, 4) + place for place in range(8)}, [16])
    td["n", "x"] = torch.arange(16)
    td["n", "m", "y"] = torch.arange(32.0).reshape(16, 2)
    return td.lock_()


def together(work: Callable[[int], Any]) -> list[Any]:
    """Runs `work` in all threads at once, and gives the results; an exception of any is raised."""
    barrier = threading.Barrier(THREADS)

    def run(number: int) -> Any:
        barrier.wait()
        return [work(number) for _ in range(ROUNDS)]

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(run, range(THREADS)))


READS: dict[str, Callable[[TensorDict, int], Any]] = {
    "entries": lambda td, number: td["n", "m", "y"] + td["k1"].sum(),
    "row": lambda td, number: td[number],
    "slice": lambda td, number: td[number : number + 3],
    "rows": lambda td, number: td[torch.tensor([number, 0, 15])],
    "mask": lambda td, number: td[torch.arange(16) > number],
    "keys": lambda td, number: td.exclude("k1").flatten_keys("."),
    "arithmetic": lambda td, number: td * number + td,
    "shape": lambda td, number: td.reshape(4, 4),
    "split": lambda td, number: td.split(5)[number % 3],
    "stack": lambda td, number: torch.stack([td, td]),
    "cat": lambda td, number: torch.cat([td, td[number:]]),
    "clone": lambda td, number: td.clone(),
    "select": lambda td, number: td.select("k0", ("n", "x")),
    "view": lambda td, number: td._get_sub_tensordict(number).clone(),
}


@pytest.mark.parametrize("name", READS)
def test_same_as_alone(name):
    td = tree()
    wanted = [READS[name](td, number) for number in range(THREADS)]
    for number, results in enumerate(together(lambda number: READS[name](td, number))):
        for result in results:
            if isinstance(result, torch.Tensor):
                assert torch.equal(result, wanted[number])
            else:
                same(result, wanted[number])
    same(td, tree())


def test_writes_into_rows_of_their_own():
    td = tree().zero_()

    def work(number: int) -> None:
        td[number] = number + 1
        td._get_sub_tensordict([number + 8]).fill_("k0", number + 1)

    together(work)
    for number in range(THREADS):
        assert all((leaf[number] == number + 1).all() for leaf in leaves(td).values())
        assert (td["k0"][number + 8] == number + 1).all()


def test_locks_of_trees_of_their_own():
    def work(number: int) -> bool:
        root = nested().lock_()
        root.unlock_()
        return not root["n", "m"].is_locked

    assert all(all(results) for results in together(work))


def test_each_thread_builds_its_own():
    def work(number: int) -> TensorDict:
        td = TensorDict({}, [4])
        for place in range(10):
            td["n", f"k{place}"] = torch.full((4,), number)
        return td.update({"a": torch.zeros(4)}).lock_()

    for number, results in enumerate(together(work)):
        assert all((result["n", "k9"] == number).all() for result in results)
