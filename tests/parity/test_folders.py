"""Folders written by one package and read by the other. Runs where the reference is given, as `TD_REFERENCE=DIR`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tensordict import TensorDict

REFERENCE = os.environ.get("TD_REFERENCE")
pytestmark = pytest.mark.skipif(not REFERENCE, reason="no reference is given")

SAMPLE = """
import sys, torch, warnings
warnings.simplefilter("ignore")
from tensordict import TensorDict
def sample():
    leaves = {str(d)[6:]: torch.arange(6).view(2, 3).to(d) for d in (
        torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
        torch.float32, torch.float64, torch.complex64, torch.complex128, torch.uint16)}
    keys = {"x/y.z é": torch.ones(2), "%2F": torch.ones(2) * 2, "..": torch.ones(2) * 3, "": torch.ones(2) * 4,
            "0": torch.ones(2) * 5, "empty": torch.zeros(2, 0)}
    return TensorDict({"leaves": leaves, "a/b": keys, "nothing": {}, "x": torch.arange(4.0).view(2, 2)}, [2], names=["t"])
def check(found):
    want = sample()
    assert found.batch_size == want.batch_size and found.names == want.names
    assert set(found.keys(True, True)) == set(want.keys(True, True)), set(found.keys(True, True))
    for key in want.keys(True, True):
        assert found[key].dtype == want[key].dtype and found[key].shape == want[key].shape, key
        assert found[key].reshape(-1).view(torch.uint8).tolist() == want[key].reshape(-1).view(torch.uint8).tolist(), key
"""


def in_reference(code: str, *arguments: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(REFERENCE)}
    command = [sys.executable, "-c", SAMPLE + code, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("robust", [True, False])
def test_theirs_is_read_here(tmp_path: Path, robust: bool) -> None:
    code = (
        "s = sample() if sys.argv[2] == 'True' else sample().exclude('a/b')\n"
        "s.memmap(sys.argv[1], robust_key=sys.argv[2] == 'True')"
    )
    in_reference(code, str(tmp_path / "t"), str(robust))
    scope: dict[str, object] = {}
    exec(SAMPLE, scope)
    found = TensorDict.load_memmap(tmp_path / "t", robust_key=robust)
    if robust:
        scope["check"](found)  # type: ignore[operator]
    else:
        assert torch.equal(found["x"], torch.arange(4.0).view(2, 2))


def test_ours_is_read_there(tmp_path: Path) -> None:
    scope: dict[str, object] = {}
    exec(SAMPLE, scope)
    scope["sample"]().memmap(tmp_path / "t")  # type: ignore[operator]
    in_reference("check(TensorDict.load_memmap(sys.argv[1]))", str(tmp_path / "t"))


def test_either_replaces_what_the_other_wrote(tmp_path: Path) -> None:
    scope: dict[str, object] = {}
    exec(SAMPLE, scope)
    folder = tmp_path / "t"
    in_reference("TensorDict({'old': torch.zeros(3), 'x': torch.zeros(3)}, [3]).memmap(sys.argv[1])", str(folder))
    scope["sample"]().memmap(folder)  # type: ignore[operator]
    assert not (folder / "old.memmap").exists()
    in_reference("check(TensorDict.load_memmap(sys.argv[1]))\nsample().memmap(sys.argv[1])", str(folder))
    scope["check"](TensorDict.load_memmap(folder))  # type: ignore[operator]
