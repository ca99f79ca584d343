"""Saves to one folder count in the order in which they were called, also those in the background."""

import os
import threading

import pytest
import torch

from tensordict import TensorDict
from tensordict._io import tree


@pytest.fixture
def held(monkeypatch):
    """The first save stops before it writes anything, until the event is set."""
    go, reached, save = threading.Event(), threading.Event(), tree.save_tree

    def stopping(*args):
        if not reached.is_set():
            reached.set()
            assert go.wait(60)
        return save(*args)

    monkeypatch.setattr(tree, "save_tree", stopping)
    yield go, reached
    go.set()


def numbered(number):
    return TensorDict({"n": torch.tensor(number)})


def test_a_later_save_waits(held, tmp_path):
    go, reached = held
    first = numbered(1).memmap(tmp_path / "d", num_threads=2, return_early=True)
    assert reached.wait(60)
    second = numbered(2).memmap(tmp_path / "d", num_threads=2, return_early=True)
    thread = threading.Thread(target=lambda: numbered(3).memmap(os.path.join(tmp_path, "other", "..", "d")))
    thread.start()
    numbered(7).memmap(tmp_path / "elsewhere")  # which waits for nobody
    go.set()
    thread.join()
    assert (first.result()["n"], second.result()["n"]) == (1, 2)
    assert TensorDict.load_memmap(tmp_path / "d")["n"] == 3


def test_an_error_holds_up_nobody(held, tmp_path):
    go, reached = held
    (tmp_path / "file").write_text("")
    first = numbered(1).memmap(tmp_path / "file" / "d", num_threads=2, return_early=True)
    assert reached.wait(60)
    second = numbered(2).memmap(tmp_path / "file" / "d", num_threads=2, return_early=True)
    go.set()
    for future in (first, second):
        with pytest.raises(OSError, match="file"):
            future.result()
    (tmp_path / "file").unlink()
    numbered(3).memmap(tmp_path / "file" / "d")
    assert TensorDict.load_memmap(tmp_path / "file" / "d")["n"] == 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_does_not_wait(held, tmp_path):
    go, reached = held
    first = numbered(1).memmap(tmp_path / "d", num_threads=2, return_early=True)
    assert reached.wait(60)
    child = os.fork()
    if not child:
        numbered(2).memmap(tmp_path / "d")
        os._exit(int(TensorDict.load_memmap(tmp_path / "d")["n"]))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
    go.set()
    assert first.result()["n"] == 1
