"""Files that are not what they should be, and a system that refuses: errors, never signals, and nothing left behind."""

import errno
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import torch

from tensordict import MemoryMappedTensor, TensorDict
from tensordict._kernel import settings
from tensordict._kernel.native import map_create, map_descriptor, map_open


@pytest.mark.parametrize("bytes_there", [0, 1, 11])
@pytest.mark.parametrize("mode", [None, "r", "r+"])
def test_a_short_file(tmp_path, bytes_there, mode):
    path = tmp_path / "leaf"
    path.write_bytes(b"\1" * bytes_there)
    with pytest.raises(RuntimeError, match=rf"leaf has {bytes_there} bytes, fewer than the 12"):
        MemoryMappedTensor.from_filename(path, torch.float32, [3], mode=mode)
    assert path.read_bytes() == b"\1" * bytes_there


def test_a_file_of_another_size(tmp_path):
    path = tmp_path / "leaf"
    path.write_bytes(bytes(16))
    with pytest.raises(RuntimeError, match="leaf has 16 bytes, more than the 12"):
        map_open(path, 12, "r")
    with pytest.raises(RuntimeError, match="leaf has 16 bytes, fewer than the 17"):
        map_open(path, 12, "r", 5)
    assert bytes(map_open(path, 12, "r", 4)) == bytes(12)


def test_what_is_no_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="none"):
        MemoryMappedTensor.from_filename(tmp_path / "none", torch.float32, [3])
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(OSError, match=tmp_path.name):
        MemoryMappedTensor.from_filename(tmp_path, torch.float32, [3])
    os.mkfifo(tmp_path / "pipe")
    for mode in ("r", "r+"):
        with pytest.raises(RuntimeError, match="pipe is not a regular file"):
            MemoryMappedTensor.from_filename(tmp_path / "pipe", torch.float32, [3], mode=mode)
    with pytest.raises(FileNotFoundError, match="missing"):
        MemoryMappedTensor.zeros(3, filename=tmp_path / "missing" / "leaf")
    with pytest.raises(RuntimeError, match="pipe is not a regular file"):
        MemoryMappedTensor.zeros(3, filename=tmp_path / "pipe", existsok=True)


@pytest.mark.parametrize("shape", [[1 << 61], [1 << 62, 1 << 62], [1 << 44]])
@pytest.mark.parametrize("with_file", [True, False])
def test_a_shape_beyond_all_memory(tmp_path, shape, with_file):
    with pytest.raises((OverflowError, OSError)):
        MemoryMappedTensor.zeros(shape, filename=tmp_path / "leaf" if with_file else None)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "leaf").write_bytes(bytes(16))
    with pytest.raises((OverflowError, RuntimeError)):
        MemoryMappedTensor.from_filename(tmp_path / "leaf", torch.float32, shape)


def test_negative_sizes(tmp_path):
    (tmp_path / "leaf").write_bytes(bytes(16))
    for shape in ([-1], [-2, -2]):
        with pytest.raises(RuntimeError, match="negative"):
            MemoryMappedTensor.from_filename(tmp_path / "leaf", torch.float32, shape)


# The limit on the size of files stands for a full disk: the space is refused when it is reserved.
LIMITED = """
import resource, sys, torch
from pathlib import Path
from tensordict import MemoryMappedTensor
folder = Path(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
for existsok, name in ((False, "new"), (True, "old")):
    try:
        MemoryMappedTensor.zeros(1 << 21, filename=folder / name, existsok=existsok)
    except OSError as error:
        print(error.errno, error.filename == str(folder / name))
MemoryMappedTensor.ones(1 << 10, filename=folder / "small")
"""


def test_a_full_disk(tmp_path):
    (tmp_path / "old").write_bytes(b"old")
    command = [sys.executable, "-c", LIMITED, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=dict(os.environ))
    assert done.stdout.split("\n")[:2] == [f"{errno.EFBIG} True"] * 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["old", "small"]
    assert (tmp_path / "old").read_bytes() == b"old"


SHARED = Path("/dev/shm")


def beyond(folder):
    """A few megabytes more than there are where a folder is."""
    facts = os.statvfs(folder)
    return facts.f_blocks * facts.f_frsize + (64 << 20)


@pytest.fixture
def in_memory():
    """A folder of which is known that nothing is taken from it where there is not enough."""
    if not SHARED.is_dir() or not os.access(SHARED, os.W_OK):
        pytest.skip("there is no file system in memory")
    with tempfile.TemporaryDirectory(dir=SHARED) as folder:
        yield Path(folder)


# Each makes a mapped tensor of `size` bytes in a folder.
EMPTY = {
    "empty": lambda folder, size, **how: MemoryMappedTensor.empty(size, dtype=torch.uint8, filename=folder / "a", **how),
    "zeros": lambda folder, size, **how: MemoryMappedTensor.zeros([size], dtype=torch.uint8, filename=folder / "a", **how),
    "zeros_like": lambda folder, size, **how: MemoryMappedTensor.zeros_like(wide(size), filename=folder / "a", **how),
    "memmap_like": lambda folder, size, **how: TensorDict({"a": wide(size)}).memmap_like(folder / "d", **how)["a"],
    "from_schema": lambda folder, size, **how: TensorDict.from_schema(
        {"a": ((size,), torch.uint8)}, storage="memmap", prefix=folder / "d", **how
    )["a"],
    "make_memmap": lambda folder, size, **how: (
        TensorDict().memmap_(folder / "m").make_memmap("a", (size,), dtype=torch.uint8, **how)
    ),
}


def wide(size):
    return torch.zeros(1, dtype=torch.uint8).expand(size)


@pytest.mark.parametrize("way", EMPTY)
def test_more_than_the_disk_has(in_memory, way, monkeypatch):
    size = beyond(in_memory)
    with pytest.raises(OSError, match=r"sparse=True.*TD_SPARSE_FILES=1") as caught:
        EMPTY[way](in_memory, size)
    assert caught.value.errno == errno.ENOSPC
    assert not list(in_memory.rglob("*.memmap"))
    sparse = EMPTY[way](in_memory, size, sparse=True)
    assert sparse[-1] == 0
    sparse[-1] = 7
    assert os.stat(sparse.filename).st_blocks * 512 < 1 << 20
    assert MemoryMappedTensor.from_filename(sparse.filename, torch.uint8, [size])[-1] == 7


@pytest.mark.parametrize("way", EMPTY)
def test_a_program_that_does_not_ask(tmp_path, way, monkeypatch):
    monkeypatch.setattr(settings.SPARSE_FILES, "value", True)
    assert os.stat(EMPTY[way](tmp_path, 1 << 20).filename).st_blocks == 0
    for made in tmp_path.iterdir():
        shutil.rmtree(made) if made.is_dir() else made.unlink()
    assert os.stat(EMPTY[way](tmp_path, 1 << 20, sparse=False).filename).st_blocks * 512 >= 1 << 20


def test_what_is_written_whole_is_reserved(in_memory, monkeypatch):
    monkeypatch.setattr(settings.SPARSE_FILES, "value", True)
    size = beyond(in_memory)
    for make in (
        lambda path: MemoryMappedTensor.ones(size, dtype=torch.uint8, filename=path),
        lambda path: MemoryMappedTensor.full((size,), 3, dtype=torch.uint8, filename=path),
        lambda path: MemoryMappedTensor.full_like(wide(size), 3, filename=path),
        lambda path: MemoryMappedTensor.from_tensor(wide(size), filename=path),
    ):
        with pytest.raises(OSError, match="No space"):
            make(in_memory / "a")
        assert list(in_memory.iterdir()) == []


def test_the_environment_says_that_files_are_sparse():
    program = "from tensordict._kernel.settings import SPARSE_FILES; print(SPARSE_FILES.value)"
    for text, wanted in (("1", "True"), ("", "False")):
        environment = {**os.environ, "TD_SPARSE_FILES": text}
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
        assert done.stdout.strip() == wanted


def resident():
    """Bytes of memory that this process has of files and shared memory."""
    return int(Path("/proc/self/statm").read_text().split()[2]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize(
    "make",
    [
        lambda size: MemoryMappedTensor.empty(size, dtype=torch.uint8),
        lambda size: MemoryMappedTensor.zeros_like(wide(size)),
        lambda size: MemoryMappedTensor.from_tensor(wide(size), copy_data=False),
        lambda size: TensorDict({"a": wide(size)}).memmap_like()["a"],
        lambda size: TensorDict.from_schema({"a": ((size,), torch.uint8)}, storage="memmap")["a"],
        lambda size: TensorDict().memmap_().make_memmap("a", (size,), dtype=torch.uint8),
    ],
)
def test_memory_without_a_file_is_taken_as_it_is_written(make):
    before = resident()
    size = 1 << 29
    made = make(size)
    made[-1] = 1
    assert resident() - before < size // 8
    assert made[:100].sum() == 0


def test_memory_without_a_file_beyond_all_there_is():
    size = 1 << 43
    with pytest.raises(OSError, match="sparse=True"):
        MemoryMappedTensor.empty(size, dtype=torch.uint8)
    made = MemoryMappedTensor.empty(size, dtype=torch.uint8, sparse=True)
    made[-1] = 1
    assert made[-2:].tolist() == [0, 1]


CUT = """
import copy, os, pickle, sys, torch
from pathlib import Path
from tensordict import MemoryMappedTensor, TensorDict
folder = Path(sys.argv[1])
TensorDict({"a": torch.ones(4, 300_000), "small": torch.ones(4, 8000)}, [4]).save(folder / "d")
t = TensorDict.load(folder / "d")
for name in ("a", "small"):
    os.truncate(folder / "d" / f"{name}.memmap", 10_000)
    leaf = t[name]
    one = TensorDict({name: leaf}, [4])
    calls = (
        lambda: one.save(folder / "new", copy_existing=True),
        lambda: TensorDict({"x": leaf[1:]}).save(folder / "new"),
        lambda: TensorDict({"x": leaf[:, ::2]}).save(folder / "new"),
        lambda: one.consolidate(),
        lambda: TensorDict({"x": leaf[2:]}).consolidate(),
        lambda: TensorDict({"x": leaf[:, ::2]}).consolidate(),
        lambda: one.consolidate(folder / "new"),
        lambda: TensorDict().memmap_(folder / "other").make_memmap_from_tensor("x", leaf),
        lambda: MemoryMappedTensor.from_tensor(leaf, filename=folder / "new", copy_existing=True),
        lambda: TensorDict({"x": leaf[:]}).memmap_like and MemoryMappedTensor.from_tensor(leaf),
        lambda: copy.deepcopy(leaf),
    )
    for number, call in enumerate(calls):
        try:
            call()
        except RuntimeError as error:
            assert f"{name}.memmap" in str(error), error
            assert "it has 10000 bytes" in str(error) and f"{leaf.nbytes} wanted" in str(error), error
        else:
            raise AssertionError((name, number))
    assert not (folder / "new").exists()
"""


def test_a_file_that_is_cut_after_it_was_mapped(tmp_path):
    done = subprocess.run([sys.executable, "-c", CUT, str(tmp_path)], capture_output=True, text=True, env=dict(os.environ))
    assert done.returncode == 0, (done.returncode, done.stderr)


def test_no_descriptor_is_left(monkeypatch):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 2, hard))
    kept = []
    try:
        with pytest.raises(OSError, match="Too many open files"):
            kept.extend(MemoryMappedTensor.zeros(1) for _ in range(10))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert all(tensor.item() == 0 for tensor in kept)


def test_a_descriptor_that_is_none():
    with pytest.raises(ValueError, match="not a file descriptor"):
        map_descriptor(-1, 4)
    with pytest.raises(OSError, match="Bad file descriptor"):
        map_descriptor(1 << 20, 4)


def test_a_read_only_map_gives_no_writable_buffer(tmp_path):
    map_create(tmp_path / "leaf", 4, False)
    view = memoryview(map_open(tmp_path / "leaf", 4, "r"))
    assert view.readonly
    assert len(view) == 4
    with pytest.raises(ValueError, match="mode"):
        map_open(tmp_path / "leaf", 4, "w")


def test_memory_outlives_its_names(tmp_path):
    memory = map_create(tmp_path / "leaf", 4, False)
    view = memoryview(memory)
    plain = MemoryMappedTensor._from_map(memory, torch.uint8, [4], str(tmp_path / "leaf")).view(2, 2)
    os.remove(tmp_path / "leaf")
    del memory
    plain.fill_(7)
    assert bytes(view) == b"\7" * 4
