"""What cannot be had: threads, memory, types. Each is an error or done without, and never ends the process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tensordict._kernel import native

# As root the number of threads is not limited: another user is taken where that is so.
NO_THREADS = """
import os, resource, sys, torch
from tensordict import TensorDict

torch.set_num_threads(1)
folder = sys.argv[1]
many = TensorDict({f"k{i}": torch.full((4, 300), float(i)) for i in range(300)}, [4])
large = TensorDict({"x": torch.arange(2_000_000.0).reshape(2, 1_000_000)}, [2])
os.chmod(folder, 0o777)
if os.getuid() == 0:
    os.setgid(54321)
    os.setuid(54321)
resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
import threading
try:
    threading.Thread(target=lambda: None).start()
except RuntimeError:
    pass
else:
    sys.exit(77)
stacked = torch.stack([large, large])
assert torch.equal(stacked["x"][1], large["x"])
many.memmap(folder + "/d")
large.memmap(folder + "/e")
assert (TensorDict.load_memmap(folder + "/d")["k299"] == 299).all()
assert torch.equal(TensorDict.load_memmap(folder + "/e")["x"], large["x"])
assert torch.equal(large.consolidate()["x"], large["x"])
large.consolidate(folder + "/f")
"""

# With few descriptors left all works; with none it is an error that names the limit, and nothing changes.
DESCRIPTORS = """
import os, resource, sys, torch
from tensordict import TensorDict, lazy_stack
torch.set_num_threads(1)
folder, free = sys.argv[1], int(sys.argv[2])
def many(value):
    data = TensorDict({f"k{i}": torch.full((2, 3), value + i) for i in range(1500)}, [2])
    data["stack"] = lazy_stack([TensorDict({"s": torch.full((3,), value)}, [3]) for _ in range(2)], 0)
    for i in range(80):
        data["deep", f"n{i}", "x"] = torch.full((2,), value)
    return data
def check(found, value):
    for key, leaf in many(value).items(True, True):
        assert torch.equal(found[key], leaf), key
def everything():
    return sorted(os.path.join(at, name) for at, _, names in os.walk(folder) for name in names)
old = many(0.0)
old.memmap(folder + "/d")
TensorDict.load_memmap(folder + "/d")
mapped = many(1.0).memmap(folder + "/e")
mapped.make_memmap("early", (2, 3), dtype=torch.float32)
mapped.memmap_refresh_()
old.consolidate(folder + "/f")
before = everything()
used = max(map(int, os.listdir("/proc/self/fd"))) + 1
taken = [os.open("/", os.O_RDONLY) for _ in range(used)]
used = max(taken) + 1
resource.setrlimit(resource.RLIMIT_NOFILE, (used + free, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
new = many(5.0)
works = {
    "new": lambda: new.memmap(folder + "/new"),
    "replaced": lambda: new.memmap(folder + "/d"),
    "load": lambda: check(TensorDict.load_memmap(folder + "/d"), 5.0 if free else 0.0),
    "file": lambda: new.consolidate(folder + "/g"),
    "make": lambda: mapped.make_memmap("late", (2, 3), dtype=torch.float32),
    "refresh": lambda: mapped.memmap_refresh_(),
}
for name, work in works.items():
    try:
        work()
    except OSError as error:
        assert not free, (name, error)
        assert error.errno == 24 and "RLIMIT_NOFILE" in str(error), (name, error)
    else:
        assert free, name
for descriptor in taken:
    os.close(descriptor)
if free:
    check(TensorDict.load_memmap(folder + "/new"), 5.0)
    check(TensorDict.from_consolidated(folder + "/g"), 5.0)
    assert "late" in TensorDict.load_memmap(folder + "/e").keys()
else:
    assert everything() == before
    check(TensorDict.load_memmap(folder + "/d"), 0.0)
"""

# Every native function with odd arguments, within an address space that one claim of the arguments would fill.
ODD = """
import gc, inspect, itertools, resource, sys, torch
from tensordict._kernel import native
from tensordict import _core

limit = 12 << 30
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
folder = sys.argv[1]
leaf = torch.arange(12.0).reshape(3, 4)
huge = torch.zeros(1, dtype=torch.int64).expand(2**42)
many = torch.ones(1, dtype=torch.bool).expand(2**10, 2**10)
ODD = [
    None, True, -1, 0, 1, 3, 2**31, 2**42, 2**63 - 1, 2**63, -2**63, 2**64, 10**30, float("nan"), float("inf"), 1e300, "",
    "a", "\\ud800", "a\\0b", b"", b"x", (), [], {}, [0], [-1, 2], [2**62, 2**62], [2**40, 1], [2**63 - 1] * 4, [None],
    [[]], [[leaf]], [leaf], [leaf, leaf.int()], [leaf, leaf[:1]], leaf, leaf.bool(), huge, many, torch.zeros(0), (leaf,),
    torch.tensor(1), {"a": leaf}, [{"a": leaf}], ["a"], [("a", "b")], ("a", ("b", ("c",))), object(), int, torch.Tensor,
    type("T", (torch.Tensor,), {}), folder, folder + "/new", torch.nn.Linear(2, 2), [torch.nn.Linear(2, 2)],
    torch.zeros(3).to_sparse(), torch.zeros(3, device="meta"), [torch.zeros(2, 0)], torch.ones(2, requires_grad=True),
]
import random
for name in sorted(dir(_core)):
    function = getattr(_core, name)
    if name.startswith("__") or not callable(function):
        continue
    try:
        count = len(inspect.signature(function).parameters)
    except ValueError:
        count = 0
    chosen = random.Random(name)
    if count < 2:
        calls = list(itertools.product(ODD, repeat=count))
    else:
        calls = [[chosen.choice(ODD) for _ in range(count)] for _ in range(1500)]
    for arguments in calls:
        # The last call stands in the message of a process that was ended by a signal.
        print(name, [str(type(a)) for a in arguments], file=sys.stderr)
        try:
            function(*arguments)
        except Exception as error:
            assert type(error).__module__ != "pyo3_runtime", error
"""


def run(program: str, *arguments: str, threads: str = "4") -> int:
    # What the address sanitizer needs, where these tests run with it.
    kept = ("LD_PRELOAD", "ASAN_OPTIONS", "PYTHONMALLOC")
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    environment |= {"PYTHONPATH": ":".join(sys.path), "TD_NUM_THREADS": threads, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", "-c", program, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode in (0, 77), (done.returncode, done.stderr[-3000:])
    return done.returncode


def test_no_threads(tmp_path: Path) -> None:
    for folder in (tmp_path, *tmp_path.parents):
        if folder.owner() == tmp_path.owner() and folder != Path("/tmp"):
            folder.chmod(folder.stat().st_mode | 0o055)
    if run(NO_THREADS, str(tmp_path)) == 77:
        pytest.skip("threads cannot be refused here")


@pytest.mark.parametrize("free", [0, 8])
@pytest.mark.parametrize("threads", ["1", "16"])
def test_few_descriptors(tmp_path: Path, free: int, threads: str) -> None:
    run(DESCRIPTORS, str(tmp_path), str(free), threads=threads)


def test_odd_arguments(tmp_path: Path) -> None:
    run(ODD, str(tmp_path))


def test_an_index_that_claims_too_many_rows() -> None:
    leaf = torch.arange(3.0)
    index = torch.zeros(1, dtype=torch.int64).expand(2**42)
    with pytest.raises((RuntimeError, MemoryError)):
        native.gather([leaf], index, 0)
    assert native.gather([torch.zeros(3, 0)], index, 0) is None


@pytest.mark.parametrize("parts", [2**40, 2**62, 2**64 - 1])
def test_too_many_parts(parts: int) -> None:
    for partition in (native.partition_greedy, native.partition_kk):
        with pytest.raises(MemoryError, match=str(parts)):
            partition([1, 2, 3], parts)


@pytest.mark.parametrize("kind", [int, object, type("Own", (torch.Tensor,), {})])
def test_only_plain_types_are_registered(kind: type) -> None:
    with pytest.raises(TypeError, match=kind.__name__):
        native.register_plain_type(kind)
    assert native.cat([[1, 2]], 0) is None


def test_a_plain_type_is_registered_twice() -> None:
    native.register_plain_type(torch.Tensor)
    native.register_plain_type(torch.nn.Parameter)
