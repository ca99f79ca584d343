"""Files that are not what they should be, and a system that refuses: errors, never signals, and nothing left behind."""

import errno
import os
import resource
import subprocess
import sys

import pytest
import torch

from tensordict import MemoryMappedTensor
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
