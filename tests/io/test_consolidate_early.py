"""Consolidating in the background: what, and to where, is as it was when that was called."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tensordict import NonTensorData, TensorDict
from tensordict._kernel.pending import Pending


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """What is consolidated in the background waits until it is let go."""
    go, begin = threading.Event(), Pending.begin
    monkeypatch.setattr(Pending, "begin", lambda save: (begin(save), go.wait(60))[0])
    yield go
    go.set()


def change(td: TensorDict) -> None:
    """Changes all that can be changed of a tensordict but its values."""
    td["new"] = torch.zeros(4)
    td["n", "b"] = torch.zeros(4, 5)
    del td["a"]
    td.batch_size = []
    td["n"].names = None
    td["n"].batch_size = [4, 5]
    td["o"] = NonTensorData("other")


def nested() -> TensorDict:
    data = {"a": torch.arange(4.0), "n": TensorDict({"b": torch.ones(4, 2)}, [4], names=["rows"]), "o": NonTensorData("x", [4])}
    return TensorDict(data, [4])


@pytest.mark.parametrize("to_file", [False, True])
def test_in_the_background_as_it_was_when_it_was_called(waiting: threading.Event, tmp_path: Path, to_file: bool) -> None:
    td, right = nested(), nested()
    future = td.consolidate(tmp_path / "f" if to_file else None, num_threads=2, return_early=True)
    change(td)
    waiting.set()
    for found in [future.result()] + ([TensorDict.from_consolidated(tmp_path / "f")] if to_file else []):
        assert found.is_consolidated()
        assert set(found.keys(True, True)) == set(right.keys(True, True))
        assert bool((found == right).all())
        assert (found.batch_size, found["n"].batch_size, found["n"].names, found["o"]) == ((4,), (4,), ["rows"], "x")


def test_a_relative_file_is_where_it_was_when_it_was_called(
    waiting: threading.Event, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    future = nested().consolidate("f", num_threads=2, return_early=True)
    monkeypatch.chdir(tmp_path / "there")
    waiting.set()
    assert future.result()._consolidated["filename"] == tmp_path / "here" / "f"
    assert os.listdir(tmp_path / "there") == []
    assert torch.equal(TensorDict.from_consolidated(tmp_path / "here" / "f")["a"], torch.arange(4.0))


def test_in_place_in_the_background(waiting: threading.Event) -> None:
    td = nested()
    future = td.consolidate(inplace=True, num_threads=2, return_early=True)
    assert not td.is_locked
    waiting.set()
    assert future.result() is td
    assert td.is_consolidated()
