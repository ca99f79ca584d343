"""A forked process works on: it inherits a pool without threads and locks that nobody will release, and makes its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tensordict._kernel import fork

ROWS = """
import os, sys, torch
from tensordict import TensorDict

torch.set_num_threads(1)
td = TensorDict({str(i): torch.arange(400_000.0).reshape(50_000, 8) for i in range(8)}, [50_000])
index = torch.arange(49_999, -1, -1)
def work():
    rows = td[index]
    return all(torch.equal(rows[key][0], td[key][-1]) for key in td.keys())
assert work()
child = os.fork()
if child == 0:
    done = work()
    grandchild = os.fork()
    if grandchild == 0:
        os._exit(0 if work() else 1)
    os._exit(0 if done and os.waitpid(grandchild, 0)[1] == 0 else 1)
assert os.waitpid(child, 0)[1] == 0
assert work()
"""

# Torch keeps the operators that it has called in cells that a child inherits half made too: they are called before threads are.
OPERATORS = """
import torch
from tensordict._kernel import native
native.read_directly()
one, two = torch.arange(6.0).reshape(2, 3), torch.full((2, 3), 1.0)
for value in (one, one.to(torch.int64), one.to(torch.bool), one.to(torch.uint8)):
    value.clone(), value.detach(), value.data, value.as_strided((2,), (1,), 1), value.narrow(0, 0, 1), value.view(-1)
    torch.stack([value, value]), torch.cat([value, value]), torch.empty(3).copy_(value[0]), value[torch.tensor([0, 1])]
    value.expand(2, 2, 3), value.unbind(0), value.contiguous(), value.unsqueeze(0), value.untyped_storage(), value.zero_()
one + two, one * 2, (one == 1).all(), torch.equal(one, two), torch._foreach_copy_([one], [two]), one.isnan().any()
one.view(torch.uint8).view(torch.float32), torch.empty(0).set_(one.untyped_storage(), 0, (2,), (1,)), one.random_()
torch.frombuffer(bytearray(8), dtype=torch.uint8), torch.nn.Parameter(torch.nn.Linear(2, 2).weight).requires_grad_(False)
torch.empty(3, dtype=torch.uint8).share_memory_()
"""

# Threads do everything that takes a lock or the pool, so that most forks happen while one of them has it.
BUSY = """
import os, shutil, sys, threading, torch
from tensordict import TensorDict

torch.set_num_threads(1)
folder = sys.argv[1]
many = TensorDict({f"k{i}": torch.full((4, 300), float(i)) for i in range(40)}, [4])
large = TensorDict({"x": torch.arange(600_000.0).reshape(2, 300_000)}, [2])
TensorDict({"saved": many}, []).memmap(f"{folder}/shared")

def work(name):
    loaded = TensorDict.load_memmap(f"{folder}/shared")
    assert all((loaded["saved", f"k{i}"] == i).all() for i in range(40))
    place = f"{folder}/{name}"
    shutil.rmtree(place, ignore_errors=True)
    many.memmap(place)
    assert (TensorDict.load_memmap(place)["k7"] == 7).all()
    twice = torch.stack([large, large])
    assert torch.equal(twice["x"][1], large["x"])
    assert (many.consolidate()["k9"] == 9).all()
    many.consolidate(f"{place}.bytes")
    large.memmap_like(f"{place}/like").make_memmap_from_tensor("y", large["x"])

stop = threading.Event()
failed = []

def loop(name):
    try:
        while not stop.is_set():
            work(name)
    except BaseException as error:
        failed.append(error)
        raise

threads = [threading.Thread(target=loop, args=(f"thread{i}",)) for i in range(4)]
for thread in threads:
    thread.start()
codes = []
for number in range(15):
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work(f"child{number}")
            code = 0
        finally:
            os._exit(code)
    codes.append(os.waitpid(child, 0)[1])
stop.set()
for thread in threads:
    thread.join()
assert codes == [0] * 15, codes
assert not failed, failed
"""

# A thread does something for the first time in its process, while another one forks.
FIRST = """
import faulthandler, os, sys, threading, torch
from tensordict import NonTensorData, TensorDict

sys.setswitchinterval(1e-6)
torch.set_num_threads(1)
folder, name = sys.argv[1:]
td = TensorDict({f"k{i}": torch.full((3,), float(i)) for i in range(20)}, [3])
net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))

def swap():
    with TensorDict.from_module(net).data.clone().to_module(net):
        pass

do = {
    "save": lambda place: td.clone().set("o", NonTensorData("x", [3])).memmap(f"{folder}/{place}"),
    "like": lambda place: td.memmap_like(f"{folder}/{place}").make_memmap("z", [3]),
    "file": lambda place: td.consolidate(f"{folder}/{place}"),
    "stack": lambda place: torch.stack([td, td]),
    "index": lambda place: td[torch.tensor([0, 1])],
    "update": lambda place: td.clone().update_(td),
    "swap": lambda place: swap(),
}[name]
started = threading.Event()

def run():
    started.set()
    do("thread")

thread = threading.Thread(target=run)
thread.start()
started.wait()
children = []
for number in range(12):
    child = os.fork()
    if child == 0:
        faulthandler.dump_traceback_later(60, exit=True)
        do(f"child{number}")
        os._exit(0)
    children.append(child)
codes = [os.waitpid(child, 0)[1] for child in children]
thread.join()
assert codes == [0] * 12, codes
"""

# `make_memmap_from_tensor` of more than a batch of files, before and after the fork.
LEAF = """
import os, sys, torch
from tensordict import TensorDict

td = TensorDict({}, []).memmap(sys.argv[1])
value = torch.arange(2_000_000.0)
td.make_memmap_from_tensor("before", value)
child = os.fork()
if child == 0:
    made = td.make_memmap_from_tensor("after", value)
    os._exit(0 if torch.equal(made, value) else 1)
assert os.waitpid(child, 0)[1] == 0
"""


def run(program: str, threads: str, *arguments: str) -> None:
    """Runs a program, which must end well; one that hangs is ended."""
    environment = {"TD_NUM_THREADS": threads, "PYTHONPATH": ":".join(sys.path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", "-c", program, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("threads", ["1", "4"])
def test_the_pool_survives_a_fork(threads: str) -> None:
    run(ROWS, threads)


@pytest.mark.parametrize("threads", ["1", "4"])
def test_nothing_is_inherited_locked(threads: str, tmp_path: Path) -> None:
    run(OPERATORS + BUSY, threads, str(tmp_path))


@pytest.mark.parametrize("name", ["save", "like", "file", "stack", "index", "update", "swap"])
def test_nothing_is_inherited_half_made(name: str, tmp_path: Path) -> None:
    run(OPERATORS + FIRST, "2", str(tmp_path), name)


@pytest.mark.parametrize("threads", ["1", "4"])
def test_a_leaf_is_saved_in_a_child(threads: str, tmp_path: Path) -> None:
    run(LEAF, threads, str(tmp_path))


def test_a_lock_that_is_closed_already_leaves_no_other_open(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = os.pipe()
    os.close(first)
    monkeypatch.setattr(fork, "inherited_locks", lambda: [first, second])
    fork._let_go()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(second)
