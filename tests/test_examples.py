"""The example programs run, and a run that was killed ends as one that was not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "train_digits.py"


def run(out: Path, *options: str) -> str:
    """What the example prints."""
    command = [sys.executable, "-W", "error", str(EXAMPLE), "--out", str(out), "--epochs", "2", *options]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def files(folder: Path) -> dict[str, bytes]:
    """The contents of the files below a folder."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.timeout(600)
def test_killed_training_ends_as_an_undisturbed_one(tmp_path: Path) -> None:
    printed = run(tmp_path / "killed", "--at-least", "0.5")
    assert "Killed in the middle of epoch 2" in printed
    assert "Resumed from the checkpoint after epoch 1" in printed
    assert (tmp_path / "killed" / "misread.png").read_bytes().startswith(b"\x89PNG")
    run(tmp_path / "undisturbed", "--at-least", "0.5", "--undisturbed")
    assert files(tmp_path / "killed" / "checkpoint") == files(tmp_path / "undisturbed" / "checkpoint")
