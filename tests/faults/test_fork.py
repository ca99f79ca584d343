"""A forked process works on: it inherits a pool without threads, and makes its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
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


@pytest.mark.parametrize("threads", ["1", "4"])
def test_the_pool_survives_a_fork(threads: str) -> None:
    environment = {"TD_NUM_THREADS": threads, "PYTHONPATH": ":".join(sys.path), "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-W", "ignore", "-c", PROGRAM], env=environment, check=True, timeout=60)
