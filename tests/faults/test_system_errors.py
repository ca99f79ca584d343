"""Errors of the system at any moment of a save or load: an `OSError` that says which and where, and one state of the set."""

from __future__ import annotations

import errno
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tensordict import TensorDict

# Numbers of the calls by which folders are looked at and changed.
CALLS = {
    "x86_64": {
        "fstat": 5,
        "flock": 73,
        "openat": 257,
        "mkdirat": 258,
        "newfstatat": 262,
        "unlinkat": 263,
        "renameat2": 316,
        "statx": 332,
    },
    "aarch64": {
        "flock": 32,
        "mkdirat": 34,
        "unlinkat": 35,
        "openat": 56,
        "newfstatat": 79,
        "fstat": 80,
        "renameat2": 276,
        "statx": 291,
    },
}.get(platform.machine(), {})

# For each line, forks a child in which each call of that number is refused from then on, and which saves or loads a set.
CHILD = """
import ctypes, os, sys, torch
from tensordict import TensorDict
import tensordict._kernel.errors
def make():
    return TensorDict({"a": torch.full((3,), 2.0), "n": torch.full((3,), 2.0), "new": {"c": torch.full((3,), 2.0)}}, [3])
make().memmap(sys.argv[1])
TensorDict.load_memmap(sys.argv[1])
class Step(ctypes.Structure):
    _fields_ = [("code", ctypes.c_ushort), ("yes", ctypes.c_ubyte), ("no", ctypes.c_ubyte), ("value", ctypes.c_uint)]
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("steps", ctypes.POINTER(Step))]
def refuse(call, code):
    steps = (Step * 4)(Step(0x20, 0, 0, 0), Step(0x15, 0, 1, call), Step(6, 0, 0, 0x50000 | code), Step(6, 0, 0, 0x7FFF0000))
    libc = ctypes.CDLL(None)
    return libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.byref(Program(4, steps)), 0, 0)
def attempt(folder, how, call, code):
    data = make()
    if refuse(int(call), int(code)):
        return "unknown"
    try:
        found = data.memmap(folder) if how == "save" else TensorDict.load_memmap(folder)
        return "done", float(found["a"][0])
    except BaseException as error:
        where = getattr(error, "filename", None)
        return isinstance(error, OSError), getattr(error, "errno", None), where, "counts" in str(error)
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        print(attempt(*line.split()), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""


def old() -> TensorDict:
    """What is in the folder before: `n` is a level there, and a tensor in what is saved."""
    return TensorDict({"a": torch.ones(3), "n": {"b": torch.ones(3)}, "gone": {"d": torch.ones(3)}}, batch_size=[3])


def attempts(top: Path, cases: list[tuple[Path, str, str, int]]) -> list[Any]:
    """What children say of saves and loads in which a call is refused."""
    command = [sys.executable, "-W", "ignore", "-c", CHILD, str(top / "first")]
    lines = [f"{folder} {how} {CALLS[call]} {code}\n" for folder, how, call, code in cases]
    # who waits for ever for what the system does not say is ended
    done = subprocess.run(command, input="".join(lines), capture_output=True, text=True, check=False, timeout=240)
    said = done.stdout.splitlines()
    assert len(said) == len(cases), done.stderr[-2000:]
    if "unknown" in said[:1]:
        pytest.skip("the system lets no calls be refused")
    return [eval(line) for line in said]


def files(folder: Path) -> dict[str, bytes]:
    """All files of a folder."""
    found = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in found.items()}


def test_a_call_that_is_refused_while_a_set_is_saved(tmp_path: Path) -> None:
    last = TensorDict({"z": torch.zeros(3)}, [3])
    last.clone().memmap(tmp_path / "fresh")
    codes = [errno.EIO, errno.EACCES, errno.ENOMEM]
    cases = [(tmp_path / f"{call}-{code}", "save", call, code) for call in CALLS for code in codes]
    for folder, *_ in cases:
        old().memmap(folder)
    before = files(cases[0][0])
    for (folder, _, _, code), said in zip(cases, attempts(tmp_path, cases)):
        if said != ("done", 2.0):
            is_of_the_system, number, where, counts = said
            assert (is_of_the_system, number) == (True, code), (folder.name, said)
            assert where.startswith(str(tmp_path)) or where == "/", (folder.name, said)
            loaded = TensorDict.load_memmap(folder)
            assert set(loaded["a"].tolist()) == {2.0 if counts else 1.0}, folder.name
            assert loaded.keys() == ({"a", "n", "new"} if counts else {"a", "n", "gone"}), folder.name
            if not counts:
                kept = {name: content for name, content in files(folder).items() if not name.startswith(".tensordict-staging")}
                assert kept == before, folder.name
        # The next save finds out all that the one before did not.
        last.clone().memmap(folder)
        assert files(folder) == files(tmp_path / "fresh"), folder.name


def test_a_call_that_is_refused_while_a_set_is_loaded(tmp_path: Path) -> None:
    cases = [(tmp_path / call, "load", call, errno.EIO) for call in CALLS]
    for folder, *_ in cases:
        old().memmap(folder)
    before = files(cases[0][0])
    for (folder, *_), said in zip(cases, attempts(tmp_path, cases)):
        assert said == ("done", 1.0) or said[:2] == (True, errno.EIO), (folder.name, said)
        assert files(folder) == before


def test_what_is_in_the_way_of_a_save(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    old().memmap(folder)
    (folder / "z.memmap").mkdir()
    (folder / "m").write_text("theirs")
    with pytest.raises(IsADirectoryError, match=r"a folder is in the way.*move it away") as caught:
        TensorDict({"z": torch.zeros(3)}, [3]).memmap(folder)
    assert caught.value.filename == str(folder / "z.memmap")
    with pytest.raises(NotADirectoryError, match=r"a file is in the way.*move it away") as caught_too:
        TensorDict({"m": {"z": torch.zeros(3)}}, [3]).memmap(folder)
    assert caught_too.value.filename == str(folder / "m")
    with pytest.raises(FileNotFoundError) as missing:
        TensorDict.load_memmap(tmp_path / "nowhere")
    assert (missing.value.errno, missing.value.filename) == (errno.ENOENT, str(tmp_path / "nowhere"))
    shutil.rmtree(folder / "n")
    with pytest.raises(FileNotFoundError, match="is missing") as missing:
        TensorDict.load_memmap(folder)
    assert (missing.value.errno, missing.value.filename) == (errno.ENOENT, str(folder / "n" / "meta.json"))
