"""Storages that are given other memory by another thread, while their leaves are copied: `share_memory_` does that.

Whoever holds a storage does not hold its memory. Freed memory is filled with other numbers at once here, so that a copy of it
would show.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tensordict import TensorDict

COUNT, WIDTH = 60, 25_000


def _made() -> TensorDict:
    return TensorDict({f"k{place}": torch.full((2, WIDTH), 3.0) for place in range(COUNT)}, [2])


def _moving(leaves: list[torch.Tensor]) -> threading.Thread:
    def move() -> None:
        for leaf in leaves:
            leaf.share_memory_()
        for _ in leaves:
            torch.full((2, WIDTH), -7.0)

    thread = threading.Thread(target=move)
    thread.start()
    return thread


def _check(found: Any) -> None:
    wrong = [key for key, value in found.items() if not bool((value == 3).all())]
    assert wrong == []


OPERATIONS: dict[str, Callable[[TensorDict], Any]] = {
    "stack": lambda td: torch.stack([td, td]),
    "cat": lambda td: torch.cat([td, td]),
    "rows": lambda td: td[torch.tensor([1, 0])],
    "mask": lambda td: td[torch.tensor([True, True])],
    "consolidate": lambda td: td.consolidate(),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_copies_are_of_the_values(name: str) -> None:
    for _ in range(6):
        td = _made()
        thread = _moving(list(td.values()))
        found = OPERATIONS[name](td)
        thread.join()
        _check(found)


SAVES: dict[str, tuple[Callable[..., Any], Callable[[Path], Any]]] = {
    "folder": (TensorDict.memmap, TensorDict.load_memmap),
    "consolidated": (TensorDict.consolidate, TensorDict.from_consolidated),
}


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("kind", SAVES)
def test_saves_are_of_the_values(kind: str, early: bool, tmp_path: Path) -> None:
    save, load = SAVES[kind]
    for number in range(4):
        td, place = _made(), tmp_path / str(number)
        if early:
            future = save(td, place, num_threads=2, return_early=True)
            _moving(list(td.values())).join()
            future.result()
        else:
            thread = _moving(list(td.values()))
            save(td, place)
            thread.join()
        _check(load(place))
