"""Saves that are killed or refused, and folders that are broken."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from tensordict import TensorDict

KILLS = int(os.environ.get("TD_KILLS", "8"))

# For each line, a value, it forks a child that writes data sets of one value each, in turn, from that value on. Which
# leaves there are depends on the value too. Then it waits for the child to be killed.
WRITER = """
import os, sys, torch
from tensordict import TensorDict
torch.set_num_threads(1)
folder = sys.argv[1]
def write(value):
    leaves = {f"k{i}": torch.full((64, 50), value) for i in range(20 + value % 3)}
    TensorDict({"value": torch.full((64,), value), "nested": leaves}, [64]).memmap(folder)
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        value = int(line)
        while True:
            value += 1
            write(value)
    print(child, flush=True)
    os.waitpid(child, 0)
    print("killed", flush=True)
"""


def check(folder: Path) -> int:
    """The value of the one data set that is there."""
    found = TensorDict.load_memmap(folder)
    value = int(found["value"][0])
    nested = found["nested"]
    assert len(list(nested.keys())) == 20 + value % 3
    for key in ("value", *(("nested", name) for name in nested.keys())):
        assert bool((found[key] == value).all())
    hidden = [path for path in folder.rglob("*") if path.name.startswith(".")]
    assert hidden == []
    assert len(list(folder.rglob("*.memmap"))) == 21 + value % 3
    return value


def stamp(folder: Path) -> int:
    """What tells one state of a folder from the next."""
    meta = folder / "meta.json"
    return meta.stat().st_ino if meta.exists() else 0


@pytest.mark.timeout(900)
def test_a_killed_save_leaves_one_state(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    chance = random.Random(3)
    value = 0
    command = [sys.executable, "-W", "ignore", "-c", WRITER, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        for number in range(KILLS + 1):
            before = value, stamp(folder)
            writer.stdin.write(f"{value}\n")
            writer.stdin.flush()
            child = int(writer.stdout.readline())
            if number < KILLS:
                time.sleep(chance.uniform(0.0, 0.08))
            while number == KILLS and stamp(folder) == before[1]:  # however slow the machine is, one save is seen
                time.sleep(0.01)
            os.kill(child, signal.SIGKILL)
            assert writer.stdout.readline() == "killed\n"
            if folder.exists():
                value = check(folder)
            else:
                with pytest.raises(FileNotFoundError):
                    TensorDict.load_memmap(folder)
            assert [path.name for path in tmp_path.iterdir() if path != folder] == []
        writer.stdin.close()
    assert value > before[0]


def sample(value: float, rows: int = 3) -> TensorDict:
    return TensorDict({"a": torch.full((rows,), value), "n": {"b": torch.full((rows,), value)}}, [rows])


LIMITED = """
import resource, sys, torch
from tensordict import TensorDict
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
folder, like = sys.argv[1], sys.argv[2] == "like"
big = TensorDict({"a": torch.ones(3), "n": {"b": torch.ones(3, 100_000)}}, [3])
try:
    big.memmap_like(folder) if like else big.memmap(folder)
except OSError as error:
    assert "('n', 'b')" in str(error).replace('"', "'") and "b.memmap" in str(error), error
    sys.exit(7)
"""


@pytest.mark.parametrize("how", ["memmap", "like"])
@pytest.mark.parametrize("exists", [True, False])
def test_no_room_is_an_error_and_changes_nothing(tmp_path: Path, how: str, exists: bool) -> None:
    folder = tmp_path / "t"
    if exists:
        sample(1.0).memmap(folder)
    before = sorted(tmp_path.rglob("*"))
    done = subprocess.run([sys.executable, "-c", LIMITED, str(folder), how], check=False)
    assert done.returncode == 7
    assert sorted(tmp_path.rglob("*")) == before
    if exists:
        assert torch.equal(TensorDict.load(folder)["a"], torch.ones(3))


def broken(tmp_path: Path, change: str) -> str:
    folder = tmp_path / "t"
    sample(1.0).memmap(folder)
    file = folder / "n" / "b.memmap"
    if change == "short":
        os.truncate(file, 8)
    elif change == "long":
        file.write_bytes(bytes(13))
    elif change == "missing":
        file.unlink()
    elif change == "pipe":
        file.unlink()
        os.mkfifo(file)
    elif change == "device":
        file.unlink()
        file.symlink_to("/dev/zero")
    else:
        file.unlink()
        file.mkdir()
    with pytest.raises((OSError, RuntimeError)) as caught:
        TensorDict.load_memmap(folder)
    return str(caught.value)


@pytest.mark.parametrize("change", ["short", "long", "missing", "pipe", "device", "folder"])
def test_broken_files_are_named(tmp_path: Path, change: str) -> None:
    text = broken(tmp_path, change)
    assert str(tmp_path / "t" / "n" / "b.memmap") in text
    assert '("n", "b")' in text


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        ("shape", [2**62, 2**62]),
        ("shape", [-1]),
        ("shape", [2**70]),
        ("shape", "x"),
        ("shape", [3.5]),
        ("dtype", "torch.nothing"),
        ("dtype", 3),
        ("shape", [4]),
        ("dtype", "torch.float64"),
    ],
)
def test_metadata_that_lies_is_refused(tmp_path: Path, entry: str, value: object) -> None:
    sample(1.0).memmap(tmp_path)
    path = tmp_path / "meta.json"
    meta = json.loads(path.read_text())
    meta["a"][entry] = value
    path.write_text(json.dumps(meta))
    with pytest.raises((ValueError, RuntimeError), match=r"a|meta"):
        TensorDict.load_memmap(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"shape": [3]}', "\x00", "[" * 100_000, '{"_type": 3}'])
def test_metadata_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    sample(1.0).memmap(tmp_path)
    (tmp_path / "meta.json").write_text(text)
    with pytest.raises(ValueError, match=r"meta\.json"):
        TensorDict.load_memmap(tmp_path)


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    sample(1.0).memmap(tmp_path)
    path = tmp_path / "meta.json"
    path.write_text(path.read_text().replace('"_format_version":1', '"_format_version":2'))
    with pytest.raises(RuntimeError, match="format version 2"):
        TensorDict.load_memmap(tmp_path)


def test_a_folder_in_itself_is_refused(tmp_path: Path) -> None:
    sample(1.0).memmap(tmp_path / "t")
    (tmp_path / "t" / "n" / "b.memmap").unlink()
    (tmp_path / "t" / "n" / "meta.json").unlink()
    (tmp_path / "t" / "n").rmdir()
    (tmp_path / "t" / "n").symlink_to(tmp_path / "t")
    with pytest.raises(OSError, match="t/n"):
        TensorDict.load_memmap(tmp_path / "t")


def test_a_level_behind_a_link_is_not_written(tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "t", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    (folder / "n").symlink_to(elsewhere)
    with pytest.raises(RuntimeError, match=f"a TensorDict through symlink {folder / 'n'}"):
        sample(1.0).memmap(folder)
    assert not list(elsewhere.iterdir())
    assert [path.name for path in folder.iterdir()] == ["n"]


def test_a_read_only_folder_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    sample(1.0).memmap(folder)
    os.chmod(folder, 0o555)
    try:
        if os.access(folder, os.W_OK):
            pytest.skip("this user may write everywhere")
        with pytest.raises(PermissionError, match=str(folder)):
            sample(2.0).memmap(folder)
        assert torch.equal(TensorDict.load(folder)["a"], torch.ones(3))
    finally:
        os.chmod(folder, 0o755)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="/proc/1/nothing"):
        sample(1.0).memmap("/proc/1/nothing/t")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(OSError, match="file"):
        sample(1.0).memmap(tmp_path / "file")
    with pytest.raises(OSError, match="file"):
        sample(1.0).memmap(tmp_path / "file" / "below")
    assert (tmp_path / "file").read_text() == "mine"
