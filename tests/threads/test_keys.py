"""Keys that change while an operation runs: it fails, or each key of the result has the value that belongs to it."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from changing import CHANGES, ERRORS, FILLED, IN_PLACE, OPERATIONS, STACKED, check, member, of_one_kind, stack_of, tree

# How often each operation is read while other threads change keys; more of them find rarer faults.
STEPS = int(os.environ.get("TD_THREAD_STEPS", "25"))
WRITERS, READERS = 6, 6


class Shifting(torch.Tensor):
    """A leaf that changes the keys of a tree whenever a function is called with it."""

    td: Any = None
    change: Any = None
    turn = 0

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if Shifting.td is not None and not getattr(func, "__name__", "").startswith("__get__"):
            td, Shifting.td = Shifting.td, None  # what the change itself calls changes nothing
            Shifting.turn += 1
            Shifting.change(td, Shifting.turn)
            Shifting.td = td
        return super().__torch_function__(func, types, args, kwargs or {})


@pytest.fixture
def shifting() -> Iterator[Callable[[str], Any]]:
    """A tree whose keys change in the middle of each operation, from the first call of a function of a leaf on."""

    def make(change: str) -> Any:
        td = tree(lambda leaf: leaf.as_subclass(Shifting))
        Shifting.change, Shifting.turn, Shifting.td = CHANGES[change], 0, td
        return td

    yield make
    Shifting.td = Shifting.change = None


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", OPERATIONS)
def test_keys_that_a_leaf_changes(shifting, name, change):
    operation, wanted = OPERATIONS[name]
    td = shifting(change)
    try:
        result = operation(td)
    except ERRORS:
        return
    finally:
        Shifting.td = None
    assert check(result, wanted)


@pytest.mark.parametrize("change", ["move", "rename"])
@pytest.mark.parametrize("name", IN_PLACE)
def test_keys_that_a_leaf_changes_in_place(shifting, name, change):
    operation, wanted = IN_PLACE[name]
    td = shifting(change)
    try:
        operation(td)
    except ERRORS:
        return
    finally:
        Shifting.td = None
    assert check(td, wanted) == 11


@pytest.mark.parametrize("change", CHANGES)
def test_keys_that_the_function_changes(change):
    for name in ("apply", "named_apply"):
        td, turn = tree(), iter(range(100))

        def function(*args: Any, td: Any = td, turn: Any = turn) -> Any:
            CHANGES[change](td, next(turn))
            return args[-1] * 2

        count = check(getattr(td, name)(function), lambda value: value * 2)
        assert count == 11 or change == "replace"  # the node is entered later than the root


def test_members_that_the_function_adds():
    td = stack_of(3)

    def function(leaf: torch.Tensor) -> torch.Tensor:
        td.insert(0, member(7))
        return leaf + 1

    out = td.apply(function)
    assert out.batch_size == (3, 2)
    assert out["x"].tolist() == [[1, 1], [2, 2], [3, 3]]
    of_one_kind(out.contiguous())


@pytest.fixture
def hurried() -> Iterator[None]:
    """Threads that take turns very often."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def together(write: Callable[[int, int], None], read: Callable[[int, int], None], steps: int) -> None:
    """Writes in some threads as long as others read `steps` times each; raises what one of these raised."""
    barrier, done = threading.Barrier(WRITERS + READERS), threading.Event()
    failed: list[BaseException] = []

    def writer(place: int) -> None:
        barrier.wait(60)
        turn = 0
        while not done.is_set() and turn < steps * 100_000:
            turn += 1
            write(place, turn)

    def reader(place: int) -> None:
        try:
            barrier.wait(60)
            for turn in range(steps):
                read(place, turn)
        except BaseException as error:
            failed.append(error)

    readers = [threading.Thread(target=reader, args=(place,)) for place in range(READERS)]
    writers = [threading.Thread(target=writer, args=(place,)) for place in range(WRITERS)]
    for thread in (*readers, *writers):
        thread.start()
    for thread in readers:
        thread.join(300)
    done.set()
    for thread in writers:
        thread.join(60)
    if failed:
        raise failed[0]


def test_reads_while_keys_change(hurried):
    td = tree()
    names = list(OPERATIONS)
    writes = [CHANGES["move"], CHANGES["move"], CHANGES["replace"], CHANGES["replace"], CHANGES["rename"], CHANGES["move"]]
    succeeded: set[str] = set()

    def write(place: int, turn: int) -> None:
        with contextlib.suppress(*ERRORS):  # another thread was there first
            writes[place](td, turn + place)

    def read(place: int, turn: int) -> None:
        for name in names[place::READERS]:
            operation, wanted = OPERATIONS[name]
            try:
                result = operation(td.copy() if name in FILLED else td)
            except ERRORS:
                continue
            try:
                check(result, wanted)
            except AssertionError as error:
                raise AssertionError(f"{name}: {error}") from None
            except ERRORS:
                continue  # a lazy stack of the tree itself, whose keys change while they are read
            succeeded.add(name)

    together(write, read, STEPS)
    assert len(succeeded) > len(names) // 2


def test_reads_while_members_change(hurried):
    td = stack_of(3)

    def write(place: int, turn: int) -> None:
        if not place and len(td.tensordicts) < 60:
            td.insert(turn % 3, member(turn % 50))
        elif not place:
            del td.tensordicts[3:]

    names = list(STACKED)

    def read(place: int, turn: int) -> None:
        for name in names[place::READERS]:
            try:
                result = STACKED[name](td)
            except ERRORS:
                continue
            of_one_kind(result)

    together(write, read, STEPS)
