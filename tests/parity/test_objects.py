"""Folders and pickles with objects, written by one package and read by the other; runs as `test_folders` does."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tensordict import TensorDict

REFERENCE = os.environ.get("TD_REFERENCE")
pytestmark = pytest.mark.skipif(not REFERENCE, reason="no reference is given")

SAMPLE = """
import sys, pickle, torch, warnings
warnings.simplefilter("ignore")
from tensordict import MetaData, NonTensorData, NonTensorStack, TensorDict
sample = TensorDict({
    "one": "x", "each": NonTensorStack("a", "b"), "grid": NonTensorStack(NonTensorStack(1, 2), NonTensorStack(None, 2.5)),
    "json": NonTensorData({"k": [1, True]}), "meta": MetaData("m"), "n": {"deep": "y"}, "object": NonTensorData({1, 2}),
    "mixed": NonTensorStack("a", {3}), "number": torch.arange(2.0),
}, [2])
def check(found):
    assert found.batch_size == sample.batch_size
    assert set(found.keys(True)) == set(sample.keys(True))
    for key in sample.keys(True):
        if sample.is_non_tensor(key):
            assert type(found.get(key)).__name__ == type(sample.get(key)).__name__, key
            assert found.get(key).tolist() == sample.get(key).tolist(), key
            assert found.get(key).batch_size == sample.get(key).batch_size, key
"""


def in_reference(code: str, *arguments: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(REFERENCE)}
    done = subprocess.run(
        [sys.executable, "-c", SAMPLE + code, *arguments], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def here() -> dict:
    scope: dict = {}
    exec(SAMPLE, scope)
    return scope


def test_their_folder_is_read_here(tmp_path: Path) -> None:
    in_reference("sample.memmap(sys.argv[1])", str(tmp_path / "t"))
    with pytest.raises(RuntimeError, match="allow_pickle=True"):
        TensorDict.load_memmap(tmp_path / "t")
    here()["check"](TensorDict.load_memmap(tmp_path / "t", allow_pickle=True))


def test_our_folder_is_read_there(tmp_path: Path) -> None:
    here()["sample"].memmap(tmp_path / "t")
    in_reference("check(TensorDict.load_memmap(sys.argv[1], allow_pickle=True))", str(tmp_path / "t"))


def test_our_pickle_is_read_there(tmp_path: Path) -> None:
    (tmp_path / "p").write_bytes(pickle.dumps(here()["sample"]))
    in_reference("check(pickle.load(open(sys.argv[1], 'rb')))", str(tmp_path / "p"))


@pytest.mark.skipif(not find_spec("tensordict._reductions"), reason="the home of what their pickles call is not there")
def test_their_pickle_is_read_here(tmp_path: Path) -> None:
    in_reference("open(sys.argv[1], 'wb').write(pickle.dumps(sample))", str(tmp_path / "p"))
    here()["check"](pickle.loads((tmp_path / "p").read_bytes()))
