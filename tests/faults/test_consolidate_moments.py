"""Leaves that are given other data in the middle of consolidation, at each moment where code of a program may run.

A profiler changes a leaf when a function is called or returns, and the collector, started by the objects that are made,
changes it between two of them. What comes out is the leaf before or after, whole: never the bytes of one as the dtype of the
other.
"""

from __future__ import annotations

import contextlib
import gc
import pickle
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tensordict import TensorDict

LARGE = 1 << 20  # elements: in so many bytes leaves are copied without the interpreter lock
MOMENTS = {"many": 12}  # of a case; the cases have theirs at other places
OLD = {"few": torch.arange(1, 7, dtype=torch.int32), "many": torch.arange(1, LARGE + 1, dtype=torch.int32)}
NEW = {
    "dtype": lambda old: old.to(torch.float64) + 0.5,
    "same width": lambda old: old.to(torch.float32) + 0.5,
    "shape": lambda old: old[:4].clone() + 7,
    "strides": lambda old: torch.stack([old, -old], -1)[:, 1],
}


class Subclass(Tensor):
    """A tensor that sees what is done to it, so that it is not read directly."""


class Clock:
    """Calls `change` at one moment; counts them where it is not given."""

    def __init__(self, change: Callable[[], Any] | None, at: int) -> None:
        self.change, self.at, self.now, self.busy = change, at, 0, False

    def tick(self, *_: Any) -> None:
        if self.busy:
            return
        self.now += 1
        if self.change is not None and self.now == self.at:
            self.busy = True
            self.change()
            self.busy = False


@contextlib.contextmanager
def profiled(clock: Clock) -> Iterator[None]:
    before = sys.getprofile()
    sys.setprofile(clock.tick)
    try:
        yield
    finally:
        clock.busy = True
        sys.setprofile(before)


@contextlib.contextmanager
def collected(clock: Clock) -> Iterator[None]:
    """The collector runs with almost each object that is made."""
    before = gc.get_threshold()
    gc.freeze()  # what is there already is not looked at again and again
    gc.callbacks.append(clock.tick)
    gc.set_threshold(1)
    try:
        yield
    finally:
        clock.busy = True
        gc.set_threshold(*before)
        gc.callbacks.remove(clock.tick)
        gc.unfreeze()


def to_memory(td: TensorDict, path: Path) -> Any:
    return td.consolidate()


def to_file(td: TensorDict, path: Path) -> Any:
    return td.consolidate(path / "file")


def to_file_and_back(td: TensorDict, path: Path) -> Any:
    td.consolidate(path / "file")
    return TensorDict.from_consolidated(path / "file")


def in_place(td: TensorDict, path: Path) -> Any:
    return td.consolidate(inplace=True)


def by_pickle(td: TensorDict, path: Path) -> Any:
    return pickle.loads(pickle.dumps(td))


WAYS: dict[str, Callable[[TensorDict, Path], Any]] = {
    "memory": to_memory,
    "file": to_file,
    "file and back": to_file_and_back,
    "in place": in_place,
    "pickle": by_pickle,
}


def leaf_of(kind: str) -> Tensor:
    old = OLD["many" if kind == "many" else "few"].clone()
    return {"subclass": lambda: old.as_subclass(Subclass), "parameter": lambda: torch.nn.Parameter(old, False)}.get(
        kind, lambda: old
    )()


def source(kind: str) -> tuple[TensorDict, Tensor]:
    leaf = leaf_of(kind)
    return TensorDict({"first": torch.full((3,), 5, dtype=torch.int32), "leaf": leaf, "last": {"x": torch.ones(2)}}, []), leaf


def is_same(one: Tensor, two: Tensor) -> bool:
    return one.dtype == two.dtype and one.shape == two.shape and torch.equal(one, two)


def run(way: str, kind: str, new: str, at: int, hook: Any, path: Path) -> int:
    """How many moments there are; raises where a change at one of them gives anything but the leaf before or after."""
    td, leaf = source(kind)
    if way == "pickle":
        td = td.consolidate()
        leaf = td["leaf"]
    before = leaf.detach().as_subclass(Tensor).clone()
    after = NEW[new](before)

    def change() -> None:
        leaf.data = after.as_subclass(type(leaf)) if isinstance(leaf, Subclass) else after

    clock = Clock(change, at)
    out = None
    try:
        with hook(clock):
            out = WAYS[way](td, path)
    except (RuntimeError, ValueError, TypeError):
        return clock.now
    found = out["leaf"].detach().as_subclass(Tensor)
    assert is_same(found, before) or is_same(found, after), (way, kind, new, at, found)
    assert torch.equal(out["first"], torch.full((3,), 5, dtype=torch.int32))
    assert torch.equal(out["last", "x"], torch.ones(2))
    return clock.now


@pytest.mark.parametrize("new", NEW)
@pytest.mark.parametrize("kind", ["few", "many", "subclass", "parameter"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("hook", [profiled, collected])
def test_a_leaf_changes_at_each_moment(hook: Any, way: str, kind: str, new: str, tmp_path: Path) -> None:
    run(way, kind, new, 0, hook, tmp_path)  # what is made once
    moments = run(way, kind, new, 0, hook, tmp_path)
    assert moments > 5
    for at in range(1, moments + 1, 1 + moments // MOMENTS.get(kind, 50)):
        run(way, kind, new, at, hook, tmp_path)
