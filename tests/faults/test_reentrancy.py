"""Python that runs in the middle of a copy: a finalizer that the collector calls, a value that is asked what it is.

Each program frees or exchanges the memory of the leaves at that moment, and runs in a process of its own: at worst it ends
by a signal. Right is what torch makes of the leaves as they were or as they are, or an error.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PRELUDE = """
import gc, sys, torch
from tensordict import TensorDict, pad_sequence, pad
from tensordict._kernel import native

ROWS, LEAVES = 3000, 400

def make(rows=ROWS):
    return [torch.full((rows, 8), float(number)) for number in range(LEAVES)]

def exchange(leaves):
    for leaf in leaves:
        leaf.data = torch.full((1,), -1.0)

class Cycle:
    def __init__(self, leaves):
        self.me, self.leaves = self, leaves
    def __del__(self):
        exchange(self.leaves)

def one_of(result, rights):
    assert any(torch.equal(result, right) for right in rights), result

def arm(leaves):
    # The next objects that are made start the collector, whose finalizer exchanges all memory.
    gc.collect()
    Cycle(leaves)
    gc.set_threshold(1, 1, 1)
"""

COLLECTOR = """
for turn in range(6):
    leaves = make()
    index = torch.arange(ROWS)
    arm(leaves)
    try:
        result = {call}
    except (RuntimeError, IndexError, TypeError):
        result = None
    gc.set_threshold(700, 10, 10)
    for number, leaf in enumerate(result or []):
        check(leaf, number)
"""

CHECKS = {
    "gather": ("native.gather(leaves, index, 0)", "leaf.shape == (ROWS, 8) and (leaf == number).all()"),
    "stack": (
        "native.stack_dicts([{'a': leaf} for leaf in leaves], ['a'], 0)",
        "all((row == at).all() for at, row in enumerate(leaf))",
    ),
    "cat": ("native.cat([leaves], 0)", "(leaf[::ROWS, 0] == torch.arange(LEAVES)).all()"),
    "pad_stack": ("native.pad_stack([leaves], 0, 0.0)", "all((row == at).all() for at, row in enumerate(leaf))"),
}

VALUE = """
class Evil(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        exchange(leaves)
        return torch.zeros((), dtype=torch.float32)

evil = torch.zeros(()).as_subclass(Evil)
class Number(float):
    def __float__(self):
        exchange(leaves)
        return 0.0
    __index__ = None
for value in (evil, Number(0.0)):
    for call in (
        lambda: native.pad_stack([leaves[:200], leaves[200:]], 0, value),
        lambda: native.pad_stack_dicts([{"a": leaf} for leaf in leaves], ["a"], 0, value),
    ):
        leaves = make(200)
        try:
            call()
        except (RuntimeError, TypeError, ValueError):
            pass
"""

THREADS = """
import threading
leaves = make()
stop = threading.Event()
def swap():
    while not stop.is_set():
        for number, leaf in enumerate(leaves):
            leaf.data = torch.full((ROWS, 8), float(number))
thread = threading.Thread(target=swap)
thread.start()
index = torch.arange(ROWS)
try:
    for turn in range(25):
        for number, leaf in enumerate(native.gather(leaves, index, 0) or []):
            assert (leaf == number).all()
        for leaf in native.stack_dicts([{'a': leaf} for leaf in leaves], ['a'], 0) or []:
            assert all((row == at).all() for at, row in enumerate(leaf))
finally:
    stop.set()
    thread.join()
"""


def run(program: str, *variables: str) -> None:
    """Runs a program, which must end well."""
    # What the address sanitizer needs, where these tests run with it.
    kept = ("LD_PRELOAD", "ASAN_OPTIONS", "PYTHONMALLOC")
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    environment |= {"PYTHONPATH": ":".join(sys.path), "OMP_NUM_THREADS": "1", "MALLOC_PERTURB_": "85"}
    environment.update(variable.split("=") for variable in variables)
    command = [sys.executable, "-W", "ignore", "-c", PRELUDE + program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, (done.returncode, done.stderr)


@pytest.mark.parametrize("direct", ["0", "1"])
@pytest.mark.parametrize("name", CHECKS)
def test_a_finalizer_exchanges_memory(name: str, direct: str) -> None:
    call, right = CHECKS[name]
    # Where the collector came before the copy the leaves are already what it made of them.
    check = f"def check(leaf, number):\n    assert set(leaf.flatten().tolist()) <= {{-1.0, 0.0}} or ({right})\n"
    run(check + COLLECTOR.replace("{call}", call), f"TD_DIRECT_READS={direct}")


def test_a_value_exchanges_memory() -> None:
    run(VALUE)


def test_a_thread_exchanges_memory() -> None:
    run(THREADS)
