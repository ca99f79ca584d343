"""The garbage collector held back: what it was before, it is after."""

import gc
import os
import threading

import pytest
import torch

from tensordict import TensorDict
from tensordict._kernel.collector import PAUSED

THRESHOLD = gc.get_threshold()


@pytest.fixture(autouse=True)
def _collector():
    yield
    gc.enable()
    assert gc.get_threshold() == THRESHOLD


def starts():
    """Whether the collector starts by itself where many objects are made."""
    seen = []

    def note(phase, info):
        seen.append(phase)

    gc.callbacks.append(note)
    try:
        kept = [[] for _ in range(20 * THRESHOLD[0])]
    finally:
        gc.callbacks.remove(note)
    return bool(seen and kept)


def test_paused_and_back():
    assert starts()
    with PAUSED:
        assert not starts()
        with PAUSED:
            assert not starts()
        assert not starts()
    assert starts()


def test_back_after_an_error():
    with pytest.raises(KeyError), PAUSED:
        raise KeyError("x")
    assert starts()


def test_off_stays_off():
    gc.disable()
    with PAUSED:
        assert not starts()
    assert not gc.isenabled()
    assert not starts()


def test_what_the_program_turns_meanwhile_stays():
    with PAUSED:
        assert gc.isenabled()
        gc.disable()
        with PAUSED:
            pass
        assert not gc.isenabled()
    assert not gc.isenabled()
    with PAUSED:
        gc.enable()
        assert not starts()
    assert starts()


def test_a_threshold_that_is_set_meanwhile_stays():
    first = THRESHOLD[0]
    try:
        for other in (0, first + 5):
            with PAUSED:
                gc.set_threshold(other)
            assert gc.get_threshold() == (other, *THRESHOLD[1:])
            with PAUSED:
                pass
            assert gc.get_threshold() == (other, *THRESHOLD[1:])
    finally:
        gc.set_threshold(first)


def test_a_threshold_of_a_pause_that_is_put_back_after_it_does_not_stay():
    with PAUSED:
        held = gc.get_threshold()
    gc.set_threshold(*held)
    with PAUSED:
        pass
    assert starts()


def test_saving_and_loading_leave_it_on(tmp_path):
    TensorDict({"a": torch.zeros(3)}, [3]).memmap(tmp_path / "td")
    assert starts()
    TensorDict.load_memmap(tmp_path / "td")
    with pytest.raises(FileNotFoundError):
        TensorDict.load_memmap(tmp_path / "none")
    assert starts()


def test_on_again_after_the_last_of_two_threads():
    inside, leave = threading.Event(), threading.Event()

    def other():
        with PAUSED:
            inside.set()
            leave.wait(60)

    thread = threading.Thread(target=other)
    with PAUSED:
        thread.start()
        assert inside.wait(60)
    assert not starts()
    leave.set()
    thread.join()
    assert starts()


def end_child() -> None:
    """Ends a forked child with a code that says whether a collection starts, and whether one does in a pause of its own."""
    with PAUSED:
        held = starts()
    os._exit(10 + starts() + 2 * held)


def code_of(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("was_on", [True, False])
def test_forked_children_have_it_back(was_on):
    if not was_on:
        gc.disable()
    with PAUSED:
        child = os.fork()
        if not child:
            end_child()
        assert code_of(child) == 10 + was_on
        assert not starts()
    assert starts() is was_on


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_may_leave_what_its_parent_entered():
    child = 0
    with PAUSED:
        child = os.fork()
    if not child:
        end_child()
    assert code_of(child) == 11


@pytest.mark.parametrize("early", [False, True])
def test_on_while_a_save_goes_on(tmp_path, monkeypatch, early):
    from tensordict._io import tree

    seen, save = [], tree.save_tree
    monkeypatch.setattr(tree, "save_tree", lambda *args: (seen.append(starts()), save(*args))[1])
    found = TensorDict({"a": torch.zeros(3)}, [3]).memmap(tmp_path / "td", num_threads=2, return_early=early)
    if early:
        found.result()
    assert seen == [True]


def test_held_back_where_many_objects_are_made(tmp_path, monkeypatch):
    from tensordict._io import tree

    seen, load = [], tree.load_tree
    monkeypatch.setattr(tree, "load_tree", lambda *args: (seen.append(starts()), load(*args))[1])
    mapped = tree.Files._mapped
    monkeypatch.setattr(tree.Files, "_mapped", lambda *args: (seen.append(starts()), mapped(*args))[1])
    TensorDict({"a": torch.zeros(3)}, [3]).memmap(tmp_path / "td")
    TensorDict.load_memmap(tmp_path / "td")
    assert seen == [False, False]
