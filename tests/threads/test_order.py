"""Saves to one folder count in the order in which they were called, also those in the background."""

import os
import subprocess
import sys
import threading
from functools import partial

import pytest
import torch

from tensordict import MemoryMappedTensor, NonTensorData, TensorDict, append_memmap
from tensordict._io import background, tree
from tensordict._kernel.pending import PENDING, Pending


@pytest.fixture
def held(monkeypatch):
    """The first save in the background stops before it writes anything, until the event is set."""
    go, reached, save = threading.Event(), threading.Event(), tree.save_tree

    def stopping(*args):
        if threading.current_thread().name == "tensordict-save" and not reached.is_set():
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


EARLY = {"num_threads": 2, "return_early": True}


@pytest.fixture
def later(held, monkeypatch):
    """Does something after a save in the background was called, which goes on when that waits for it, or is done."""
    go, reached = held
    met, wait, own = threading.Event(), Pending.wait, []

    def waiting(save):
        if threading.current_thread() in own:  # others that were called may wait earlier
            met.set()
        wait(save)

    monkeypatch.setattr(Pending, "wait", waiting)

    def do(save, change):
        futures, errors = [save()], []
        assert reached.wait(60)

        def work():
            try:
                change()
            except BaseException as error:
                errors.append(error)
            met.set()

        thread = threading.Thread(target=work, daemon=True)
        own.append(thread)
        thread.start()
        assert met.wait(60)
        go.set()
        thread.join(60)
        assert not thread.is_alive()
        assert errors == []
        return futures[0].result()

    return do


def whole(number, rows=1):
    """A tree of one number with an object."""
    leaf = torch.full((rows, 2), float(number))
    data = {"x": leaf, "in": {"y": leaf.clone(), "deep": {"z": leaf.clone()}}}
    return TensorDict({**data, "o": NonTensorData(number, batch_size=[rows])}, [rows])


def leaves_of(number, rows=1):
    return whole(number, rows).exclude("o")


def test_a_level_that_is_saved_later_stays(later, tmp_path):
    whole(1).memmap(tmp_path / "d")
    later(lambda: whole(2).memmap(tmp_path / "d", **EARLY), lambda: leaves_of(9)["in"].memmap(tmp_path / "d" / "in"))
    found = TensorDict.load_memmap(tmp_path / "d")
    assert [float(found[key][0, 0]) for key in ("x", ("in", "y"), ("in", "deep", "z"))] == [2, 9, 9]


def test_the_whole_that_is_saved_after_a_level_stays(later, tmp_path):
    whole(1).memmap(tmp_path / "d")
    level = leaves_of(9)["in"]
    later(lambda: level.memmap(tmp_path / "d" / "in", **EARLY), lambda: whole(2).memmap(tmp_path / "d"))
    found = TensorDict.load_memmap(tmp_path / "d")
    assert [float(found[key][0, 0]) for key in ("x", ("in", "y"), ("in", "deep", "z"))] == [2, 2, 2]


@pytest.mark.parametrize("first", ["d", "link", "up/link"])
def test_one_folder_by_two_names(later, tmp_path, first):
    whole(1).memmap(tmp_path / "d")
    (tmp_path / "link").symlink_to("d")
    (tmp_path / "up").symlink_to(tmp_path)
    (last,) = {"link", "d"} - {first.split("/")[-1]}
    later(lambda: whole(2).memmap(tmp_path / first, **EARLY), lambda: whole(3).memmap(tmp_path / last))
    assert float(TensorDict.load_memmap(tmp_path / "d")["in", "y"][0, 0]) == 3


def test_rows_that_are_appended_later_come_behind(later, tmp_path):
    leaves_of(1).memmap(tmp_path / "d")
    later(lambda: leaves_of(2, 2).memmap(tmp_path / "d", **EARLY), lambda: append_memmap(tmp_path / "d", leaves_of(3)))
    assert TensorDict.load_memmap(tmp_path / "d")["in", "y"][:, 0].tolist() == [2, 2, 3]


@pytest.mark.parametrize("key", ["added", ("in", "added"), ("new", "level", "added")])
@pytest.mark.parametrize("way", ["make_memmap", "make_memmap_from_tensor", "make_memmap_from_storage"])
def test_leaves_that_are_added_later_stay(later, tmp_path, key, way):
    handle = leaves_of(1).memmap(tmp_path / "d")
    changes = {
        "make_memmap": lambda: handle.make_memmap(key, (1, 3)),
        "make_memmap_from_tensor": lambda: handle.make_memmap_from_tensor(key, torch.zeros(1, 3)),
        "make_memmap_from_storage": lambda: handle.make_memmap_from_storage(key, torch.zeros(1, 3).untyped_storage(), (1, 3)),
    }
    later(lambda: leaves_of(2).memmap(tmp_path / "d", **EARLY), changes[way])
    found = TensorDict.load_memmap(tmp_path / "d")
    assert torch.equal(found[key], torch.zeros(1, 3))
    assert float(found["x"][0, 0]) == 2


def test_objects_that_are_written_later_stay(later, tmp_path):
    handle = whole(1).memmap(tmp_path / "d")
    # the mapped leaves themselves are saved, so the folder still is that of the handle afterwards
    later(lambda: handle.memmap(tmp_path / "d", **EARLY), lambda: handle.update_(TensorDict({"o": NonTensorData(7, [1])}, [1])))
    assert handle["o"] == 7
    assert TensorDict.load_memmap(tmp_path / "d")["o"] == 7


def test_zeros_that_are_made_later_stay(later, tmp_path):
    later(lambda: leaves_of(2).memmap(tmp_path / "d", **EARLY), lambda: leaves_of(3).memmap_like(tmp_path / "d"))
    found = TensorDict.load_memmap(tmp_path / "d")
    assert [float(found[key][0, 0]) for key in ("x", ("in", "y"), ("in", "deep", "z"))] == [0, 0, 0]


@pytest.mark.parametrize("copy", [True, False])
def test_files_that_are_made_later_in_a_folder_stay(later, tmp_path, copy):
    value, file = torch.zeros(1, 2), tmp_path / "d" / "x.memmap"
    change = partial(MemoryMappedTensor.from_tensor, value, filename=file, existsok=True, copy_data=copy)
    leaves_of(1).memmap(tmp_path / "d")
    later(lambda: leaves_of(2).memmap(tmp_path / "d", **EARLY), change)
    assert torch.equal(TensorDict.load_memmap(tmp_path / "d")["x"], value)


def test_consolidated_files_count_in_order(monkeypatch, tmp_path):
    from tensordict._io import consolidate

    go, write = threading.Event(), consolidate.consolidate_to_file
    monkeypatch.setattr(consolidate, "consolidate_to_file", lambda *args: (go.wait(60), write(*args))[1])
    wait = Pending.wait
    monkeypatch.setattr(Pending, "wait", lambda save: (go.set(), wait(save))[1])
    first = leaves_of(1).consolidate(tmp_path / "f", **EARLY)
    leaves_of(2).consolidate(tmp_path / "f")
    first.result()
    assert float(TensorDict.from_consolidated(tmp_path / "f")["x"][0, 0]) == 2


def test_neighbours_do_not_wait(held, tmp_path):
    go, reached = held
    first = leaves_of(1).memmap(tmp_path / "d" / "in", **EARLY)
    assert reached.wait(60)
    leaves_of(2).memmap(tmp_path / "d" / "in2")
    leaves_of(3).consolidate(tmp_path / "d" / "i")
    leaves_of(4).memmap()
    assert not first.futures[0].done()
    go.set()
    first.result()


def test_who_comes_behind_one_that_is_cancelled_waits_for_those_before(later, tmp_path):
    def change():
        assert numbered(2).memmap(tmp_path / "d", **EARLY).futures[0].cancel()
        numbered(3).memmap(tmp_path / "d")

    later(lambda: numbered(1).memmap(tmp_path / "d", **EARLY), change)
    assert TensorDict.load_memmap(tmp_path / "d")["n"] == 3
    numbered(4).memmap(tmp_path / "d")
    assert not PENDING


@pytest.mark.parametrize("failing", ["start_new_thread", "Thread"])
def test_one_that_cannot_begin_holds_up_nobody(monkeypatch, tmp_path, failing):
    def refuse(*args, **kwargs):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(background, failing, refuse)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            numbered(1).memmap(tmp_path / "d", **EARLY)
    assert not PENDING
    assert not (tmp_path / "d").exists()
    numbered(2).memmap(tmp_path / "d", **EARLY)
    numbered(3).memmap(tmp_path / "d")
    assert TensorDict.load_memmap(tmp_path / "d")["n"] == 3


AT_EXIT = """
import atexit, sys, torch
from tensordict import TensorDict
td = TensorDict({"a": torch.ones(3)}, [3])
def last():
    try:
        td.memmap(sys.argv[1], num_threads=2, return_early=True).result()
    except RuntimeError:
        td.memmap(sys.argv[1])
atexit.register(last)
"""


def test_saves_as_the_interpreter_ends(tmp_path):
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path)}
    command = [sys.executable, "-W", "error", "-c", AT_EXIT, str(tmp_path / "d")]
    assert subprocess.run(command, env=environment, timeout=120).returncode == 0
    assert TensorDict.load_memmap(tmp_path / "d")["a"].tolist() == [1, 1, 1]


def test_one_that_is_not_waited_for_is_done_at_the_end(tmp_path):
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path)}
    program = AT_EXIT.split("def last")[0] + "for _ in range(20): td.memmap(sys.argv[1], num_threads=2, return_early=True)"
    assert subprocess.run([sys.executable, "-c", program, str(tmp_path / "d")], env=environment, timeout=120).returncode == 0
    assert TensorDict.load_memmap(tmp_path / "d")["a"].tolist() == [1, 1, 1]


@pytest.mark.parametrize("early", [False, True])
def test_a_save_within_another_one_waits_for_none_that_waits_for_that(monkeypatch, tmp_path, early):
    go, inner, save = threading.Event(), [], tree.save_tree

    def nesting(*args):
        if not inner:
            inner.append(None)
            assert go.wait(60)
            inner[0] = numbered(7).memmap(tmp_path / "other", **(EARLY if early else {}))
            if early:
                inner[0] = inner[0].result()
        return save(*args)

    monkeypatch.setattr(tree, "save_tree", nesting)
    first = numbered(1).memmap(tmp_path / "d", **EARLY)
    # this one waits for the first, and is around what is saved within that
    second = numbered(2).memmap(tmp_path, **EARLY)
    go.set()
    assert first.futures[0].result(60)["n"] == 1
    assert second.futures[0].result(60)["n"] == 2
    assert inner[0]["n"] == 7
    assert not PENDING
