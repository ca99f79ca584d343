"""The folders of both packages opened, and others written, by the Rust program of the core crate, without Python."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from tensordict import TensorDict

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(shutil.which("cargo") is None or not (ROOT / "Cargo.toml").exists(), reason="there is no cargo")
def test_folder_program(tmp_path: Path) -> None:
    td = TensorDict(
        {
            "a": torch.arange(12.0).reshape(3, 4),
            "n": {"b": torch.arange(3), "m": TensorDict({"c": torch.full((3, 2), 0.5, dtype=torch.float64)}, [3, 2])},
            "flag": torch.tensor([True, False, True]),
            "none": torch.zeros(3, 0),
        },
        [3],
    )
    td.memmap(tmp_path / "from")
    command = ["cargo", "run", "--quiet", "--locked", "-p", "tensordict-core", "--example", "folder", "--"]
    done = subprocess.run([*command, tmp_path / "from", tmp_path / "to"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == [
        "() batch_size=[3]",
        '"a" torch.float32 [3, 4] sum=66',
        '"n" batch_size=[3]',
        '("n", "b") torch.int64 [3] sum=3',
        '("n", "m") batch_size=[3, 2]',
        '("n", "m", "c") torch.float64 [3, 2] sum=3',
        '"flag" torch.bool [3] sum=-',
        '"none" torch.float32 [3, 0] sum=0',
    ]
    twice = TensorDict.load_memmap(tmp_path / "to")
    assert twice.batch_size == td.batch_size
    assert twice["n", "m"].batch_size == (3, 2)
    assert list(twice.keys(True, True)) == list(td.keys(True, True))
    for key in ("a", ("n", "b"), ("n", "m", "c")):
        assert torch.equal(twice[key], 2 * td[key]), key
    assert torch.equal(twice["flag"], td["flag"])
