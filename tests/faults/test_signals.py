"""A handler of a signal may save and load itself, or raise, at any place of a save or a load.

Handlers run where a function is entered, and where one written in C returns. A profiler is called at the same places.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HEAD = """
import faulthandler, gc, os, sys, torch
from tensordict import TensorDict
faulthandler.dump_traceback_later(100, exit=True)
folder = sys.argv[1]
EARLY = {"num_threads": 2, "return_early": True}

class Stop(BaseException): pass

def numbered(number):
    return TensorDict({"n": torch.full((3,), number), "in": {"m": torch.full((3,), number)}}, [3])

def on_disk(name="d"):
    found = TensorDict.load_memmap(f"{folder}/{name}")
    numbers = {int(value) for leaf in found.values(True, True) for value in leaf}
    assert len(numbers) == 1, numbers
    return numbers.pop()

def handled(number, handler, work):
    # calls `handler` at one place of `work`; whether there are so many
    left = number
    def profile(frame, event, argument):
        nonlocal left
        if event in ("call", "c_return"):
            left -= 1
            if not left:
                sys.setprofile(None)
                handler()
    sys.setprofile(profile)
    try:
        work()
    except Stop:
        pass
    finally:
        sys.setprofile(None)
    return left <= 0

def stop():
    raise Stop

torch.set_num_threads(1)
before = gc.get_threshold()
numbered(0).memmap(f"{folder}/d")
numbered(0).memmap(f"{folder}/other")
number, done = 0, False
"""

STOPPED = """
while handled(number := number + 1, stop, lambda: TensorDict.load_memmap(f"{folder}/d")):
    assert gc.isenabled() and gc.get_threshold() == before, number
places = number
number = 0
while handled(number := number + 1, stop, lambda: numbered(1).memmap(f"{folder}/d")):
    assert gc.isenabled() and gc.get_threshold() == before, number
places += number
assert places > 100, places
"""

STOPPED_EARLY = """
def work():
    for turn in (1, 2):
        numbered(turn).memmap(f"{folder}/d", **EARLY)
source = numbered(4)
while handled(number := number + 1, stop, work):
    numbered(3).memmap(f"{folder}/d")
    assert on_disk() == 3, number
    source.consolidate(f"{folder}/c")
assert number > 100, number
"""

REENTERED = """
def handler():
    numbered(5).memmap(f"{folder}/d")
    on_disk()
    numbered(6).memmap(f"{folder}/other", **EARLY).result()
    on_disk("other")

def sync():
    numbered(1).memmap(f"{folder}/d")
    on_disk()

def early():
    for turn in (1, 2):
        numbered(turn).memmap(f"{folder}/d", **EARLY)

for work in (sync, early):
    number = 0
    while handled(number := number + 1, handler, work):
        numbered(3).memmap(f"{folder}/d")
        assert on_disk() == 3, number
        assert gc.get_threshold() == before
    assert number > 100, number
"""


@pytest.mark.parametrize("script", [STOPPED, STOPPED_EARLY, REENTERED], ids=["stopped", "stopped_early", "reentered"])
def test_handlers_of_signals(tmp_path: Path, script: str) -> None:
    command = [sys.executable, "-W", "error", "-c", f"{HEAD}{script}\nprint('done')", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=110)
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr
