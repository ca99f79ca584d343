"""The garbage collector held back: what it was before, it is after."""

import gc
import os
import threading

import pytest
import torch

from tensordict import TensorDict
from tensordict._kernel.collector import collector_paused


@pytest.fixture(autouse=True)
def _collector():
    yield
    gc.enable()


def test_paused_and_back():
    with collector_paused():
        assert not gc.isenabled()
        with collector_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_back_after_an_error():
    with pytest.raises(KeyError), collector_paused():
        raise KeyError("x")
    assert gc.isenabled()


def test_off_stays_off():
    gc.disable()
    with collector_paused():
        assert not gc.isenabled()
    assert not gc.isenabled()


def test_saving_and_loading_leave_it_on(tmp_path):
    TensorDict({"a": torch.zeros(3)}, [3]).memmap(tmp_path / "td")
    assert gc.isenabled()
    TensorDict.load_memmap(tmp_path / "td")
    with pytest.raises(FileNotFoundError):
        TensorDict.load_memmap(tmp_path / "none")
    assert gc.isenabled()


def test_on_again_after_the_last_of_two_threads():
    inside, leave = threading.Event(), threading.Event()

    def other():
        with collector_paused():
            inside.set()
            leave.wait(60)

    thread = threading.Thread(target=other)
    with collector_paused():
        thread.start()
        assert inside.wait(60)
    assert not gc.isenabled()
    leave.set()
    thread.join()
    assert gc.isenabled()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("was_on", [True, False])
def test_forked_children_have_it_back(was_on):
    if not was_on:
        gc.disable()
    with collector_paused():
        child = os.fork()
        if not child:
            os._exit(10 + gc.isenabled())
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 10 + was_on
        assert not gc.isenabled()
    assert gc.isenabled() is was_on


def test_on_while_a_save_goes_on(tmp_path, monkeypatch):
    from tensordict._io import tree

    seen, save = [], tree.save_tree
    monkeypatch.setattr(tree, "save_tree", lambda *args: (seen.append(gc.isenabled()), save(*args))[1])
    TensorDict({"a": torch.zeros(3)}, [3]).memmap(tmp_path / "td", num_threads=2, return_early=True).result()
    assert seen == [True]
