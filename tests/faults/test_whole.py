"""A set on disk is one whole: for readers beside writers, after kills, and after a child was forked."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from mixed_trees import tree, values
from tensordict import NonTensorData, TensorDict, append_memmap

SAVES = int(os.environ.get("TD_SAVES", "60"))
KILLS = int(os.environ.get("TD_KILLS", "6"))

# For each line, `value step saves`, it forks a child that saves trees of one value each, in turn. It says the number of the
# child, and once it ended, how.
WRITERS = """
import os, sys, threading, torch
from mixed_trees import tree
torch.set_num_threads(1)
def save(value, step, saves):
    for number in range(saves):
        tree(value + number * step).memmap(sys.argv[1])
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        save(*map(int, line.split()))
        os._exit(0)
    print(child, flush=True)
    threading.Thread(target=lambda child=child: print("end", os.waitpid(child, 0)[1], flush=True)).start()
"""


@pytest.fixture
def writers(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """What forks writers of the set in `tmp_path`."""
    command = [sys.executable, "-W", "ignore", "-c", WRITERS, str(tmp_path / "set")]
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


def start(process: subprocess.Popen[str], value: int, step: int, saves: int) -> int:
    """Forks a writer and gives its process number."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{value} {step} {saves}\n")
    process.stdin.flush()
    return int(process.stdout.readline())


def ended(process: subprocess.Popen[str]) -> str:
    """How a writer ended, once it has."""
    assert process.stdout is not None
    return process.stdout.readline()


def litter(folder: Path) -> list[str]:
    """Files and folders of a set that are no part of it."""
    found = TensorDict.load_memmap(folder, allow_pickle=True)
    members = len(found.get("stack").tensordicts)
    hidden = [path.name for path in folder.rglob("*") if path.name.startswith(".")]
    beyond = [path.name for path in (folder / "stack").iterdir() if path.name.isdecimal() and int(path.name) >= members]
    pickled = {bool(list((folder / name).glob("*.p*kl*"))) for name in ("object", "objects")}
    assert len(pickled) == 1
    return hidden + beyond


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.timeout(900)
def test_a_load_beside_writers_is_of_one_save(tmp_path: Path, writers: subprocess.Popen[str], count: int) -> None:
    folder = tmp_path / "set"
    tree(0).memmap(folder)
    for number in range(count):
        start(writers, number + 1, count, SAVES)
    results: list[str] = []
    waiting = threading.Thread(target=lambda: results.extend(ended(writers) for _ in range(count)))
    waiting.start()
    loads = 0
    while loads < SAVES // 2 or waiting.is_alive():
        found = TensorDict.load_memmap(folder, allow_pickle=True)
        part = TensorDict.load_memmap(folder / "nested")
        assert len(values(found)) == 1
        assert len({*part["a"].tolist(), *part["deep", "b"].flatten().tolist()}) == 1
        loads += 1
    assert results == ["end 0\n"] * count
    assert litter(folder) == []


@pytest.mark.timeout(900)
def test_a_killed_save_of_a_mixed_tree_leaves_one_state(tmp_path: Path, writers: subprocess.Popen[str]) -> None:
    folder = tmp_path / "set"
    tree(0).memmap(folder)
    chance = random.Random(5)
    value = 0
    for number in range(KILLS):
        child = start(writers, value + 1, 1, 10**6)
        time.sleep(chance.uniform(0.0, 0.08))
        while number == KILLS - 1 and values(TensorDict.load_memmap(folder, allow_pickle=True)) == {float(value)}:
            time.sleep(0.01)  # however slow the machine is, one save is seen
        os.kill(child, signal.SIGKILL)
        assert ended(writers) == "end 9\n"
        (found,) = values(TensorDict.load_memmap(folder, allow_pickle=True))
        assert found >= value
        assert litter(folder) == []
        value = int(found)
    assert value > 0


def test_threads_that_save_into_one_folder_take_turns(tmp_path: Path) -> None:
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for turn in range(8):
                tree(number * 100 + turn).memmap(tmp_path / "set")
                found = TensorDict.load_memmap(tmp_path / "set", allow_pickle=True)
                assert len(values(found)) == 1
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
    assert not any(thread.is_alive() for thread in threads)
    assert errors == []


def test_saves_in_the_background_of_one_folder(tmp_path: Path) -> None:
    futures = [tree(number).memmap(tmp_path / "set", num_threads=2, return_early=True) for number in range(4)]
    for number, future in enumerate(futures):
        assert values(future.result()) == {float(number)}
    assert len(values(TensorDict.load_memmap(tmp_path / "set", allow_pickle=True))) == 1


HELD = """
import os, sys, torch
from tensordict import TensorDict
from tensordict._kernel.native import inherited_locks
folder, how = sys.argv[1:]
big = TensorDict({f"k{i}": torch.ones(200_000) for i in range(60)}, [])
future = big.memmap(folder, num_threads=2, return_early=True)
child = None
while child is None:
    if any(os.path.samefile(f"/proc/self/fd/{number}", folder) for number in os.listdir("/proc/self/fd")
           if os.path.isdir(f"/proc/self/fd/{number}")):
        child = os.fork()
if child == 0:
    sys.stdin.readline()
    os._exit(0)
if how == "killed":
    os.kill(os.getpid(), 9)
future.result()
TensorDict({"a": torch.ones(3)}, [3]).memmap(folder)
print("saved", flush=True)
"""


@pytest.mark.parametrize("how", ["done", "killed"])
def test_a_child_keeps_no_lock(tmp_path: Path, how: str) -> None:
    folder = tmp_path / "set"
    TensorDict({"a": torch.zeros(3)}, [3]).memmap(folder)
    command = [sys.executable, "-W", "ignore", "-c", HELD, str(folder), how]
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdin is not None
        assert process.wait(60) == (0 if how == "done" else -signal.SIGKILL)
        # the child lives on
        TensorDict({"b": torch.ones(3)}, [3]).memmap(folder)
        assert set(TensorDict.load_memmap(folder).keys()) == {"b"}
        process.stdin.close()


def test_a_save_holds_what_it_writes(tmp_path: Path) -> None:
    for turn in range(10):
        leaves = {f"k{place}": torch.full((100_000,), float(turn)) for place in range(20)}
        future = TensorDict(leaves, []).memmap(tmp_path / "set", num_threads=2, return_early=True)
        for leaf in leaves.values():
            leaf.data = torch.full((100_000,), -1.0)
        noise = [torch.full((100_000,), -2.0) for _ in range(20)]
        future.result()
        del noise
        # what is written is what was there when the call was made, or when a leaf was read after it
        found = TensorDict.load_memmap(tmp_path / "set")
        assert {float(value) for leaf in found.values() for value in (leaf.min(), leaf.max())} <= {float(turn), -1.0}
        assert all(bool((leaf == leaf[0]).all()) for leaf in found.values())


def test_keys_that_change_during_a_save_in_the_background(tmp_path: Path) -> None:
    source = TensorDict({f"k{place}": torch.full((50_000,), float(place)) for place in range(10)}, [])
    future = source.memmap(tmp_path / "set", num_threads=2, return_early=True)
    for place in range(10):
        source[f"k{(place + 3) % 10}"] = source.pop(f"k{(place + 3) % 10}")
    del source["k0"]
    for found in (future.result(), TensorDict.load_memmap(tmp_path / "set")):
        assert {key: float(value[0]) for key, value in found.items()} == {f"k{place}": float(place) for place in range(10)}


def test_an_object_in_a_mapped_folder_changes_beside_readers(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    data = TensorDict({"a": torch.zeros(3), "o": NonTensorData({0}, batch_size=[3])}, [3]).memmap(folder)
    done = threading.Event()
    seen: list[object] = []

    def load() -> None:
        while not done.is_set():
            seen.append(TensorDict.load_memmap(folder, allow_pickle=True)["o"])

    thread = threading.Thread(target=load)
    thread.start()
    try:
        for turn in range(1, 60):
            data.get("o").update(NonTensorData({turn} if turn % 2 else turn, batch_size=[3]), inplace=True)
    finally:
        done.set()
        thread.join()
    allowed = [{turn} if turn % 2 else turn for turn in range(60)]
    assert all(value in [*allowed, {0}] for value in seen)
    assert TensorDict.load_memmap(folder, allow_pickle=True)["o"] == {59}


WAITING = """
import fcntl, os, signal, sys, threading, torch
from tensordict import TensorDict
folder, how = sys.argv[1:]
data = TensorDict({"a": torch.ones(3)}, [3])
lock = os.open(folder, os.O_RDONLY)
fcntl.flock(lock, fcntl.LOCK_EX)
calls = []
def handle(*_):
    calls.append(1)
    if how == "raises":
        raise KeyboardInterrupt
    fcntl.flock(lock, fcntl.LOCK_UN)
signal.signal(signal.SIGUSR1, handle)
def waits():
    with open("/proc/locks") as locks:
        return any("->" in line for line in locks if f" {os.getpid()} " in line)
def send():
    while not waits():
        pass
    os.kill(os.getpid(), signal.SIGUSR1)
threading.Thread(target=send, daemon=True).start()
try:
    data.memmap(folder)
    print("saved", flush=True)
except KeyboardInterrupt:
    print("stopped", flush=True)
"""


@pytest.mark.parametrize(("how", "said"), [("raises", "stopped\n"), ("goes on", "saved\n")])
def test_a_save_that_waits_can_be_stopped(tmp_path: Path, how: str, said: str) -> None:
    folder = tmp_path / "set"
    TensorDict({"a": torch.zeros(3)}, [3]).memmap(folder)
    command = [sys.executable, "-W", "ignore", "-c", WAITING, str(folder), how]
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=90)
    assert done.stdout == said
    assert TensorDict.load_memmap(folder)["a"].tolist() == [float(said == "saved\n")] * 3


# Appends rows that each hold one number, which is said before.
APPENDS = """
import sys, torch
from tensordict import TensorDict, append_memmap
for number in range(int(sys.argv[2]), int(sys.argv[3])):
    rows = torch.full((2,), number)
    append_memmap(sys.argv[1], TensorDict({"a": rows, "n": {"b": rows.double()}}, [2]))
    print(number, flush=True)
"""


def appending(folder: Path, first: int, last: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", APPENDS, str(folder), str(first), str(last)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def rows_of(folder: Path) -> list[int]:
    """The numbers that were appended, each once, after it was checked that all files tell the same."""
    found = TensorDict.load_memmap(folder)
    assert found.batch_size == found["n"].batch_size
    assert torch.equal(found["a"].double(), found["n", "b"])
    assert torch.equal(found["a"][::2], found["a"][1::2])
    return found["a"][::2].tolist()


@pytest.fixture
def grown(tmp_path: Path) -> Path:
    folder = tmp_path / "set"
    TensorDict({"a": torch.full((2,), -1), "n": TensorDict({"b": -torch.ones(2).double()}, [2])}, [2]).memmap(folder)
    return folder


APPENDED = int(os.environ.get("TD_APPENDS", "40"))


def test_processes_that_append_to_one_folder(grown: Path) -> None:
    processes = [appending(grown, part * APPENDED, (part + 1) * APPENDED) for part in range(2)]
    for process in processes:
        process.communicate(timeout=240)
        assert process.returncode == 0
    found = rows_of(grown)
    assert found[0] == -1
    assert sorted(found[1:]) == list(range(2 * APPENDED))
    for part in range(2):  # those of one process in their order
        own = [number for number in found if number // APPENDED == part]
        assert own == sorted(own)


def test_threads_that_append_beside_one_that_adds_entries(grown: Path) -> None:
    def append(part: int) -> None:
        for number in range(part * 20, part * 20 + 20):
            rows = torch.full((2,), number)
            append_memmap(grown / "n", TensorDict({"b": rows.double()}, [2]))

    TensorDict({"n": TensorDict({"b": -torch.ones(2).double()}, [2])}, []).memmap(grown)
    top = TensorDict.load_memmap(grown).memmap_(grown)
    threads = [threading.Thread(target=append, args=(part,)) for part in range(3)]
    for thread in threads:
        thread.start()
    for number in range(10):
        top.make_memmap(f"x{number}", (3,))
    for thread in threads:
        thread.join(timeout=240)
    found = TensorDict.load_memmap(grown)
    assert sorted(found["n", "b"][2::2].tolist()) == list(range(60))
    assert {f"x{number}" for number in range(10)} < set(found.keys())


def test_a_killed_append_leaves_the_rows_before_or_after(grown: Path) -> None:
    chosen = random.Random(7)
    done = -1
    for _ in range(KILLS):
        with appending(grown, done + 1, done + 10_000) as process:
            assert process.stdout is not None
            for _ in range(chosen.randint(1, 4)):
                said = int(process.stdout.readline())
            time.sleep(chosen.random() * 0.004)  # somewhere within the next append
            process.kill()
            rest = process.stdout.read().split()
        said = max([said, *map(int, rest)])
        found = rows_of(grown)
        assert found in (list(range(-1, said + 1)), list(range(-1, said + 2)))
        done = found[-1]


def test_an_append_to_a_folder_that_goes_is_an_error(grown: Path) -> None:
    shutil.rmtree(grown)
    with pytest.raises(ValueError, match="is not one"):
        append_memmap(grown, TensorDict({"a": torch.zeros(2)}, [2]))
    assert not grown.exists()
