"""Type checkers see fields, constructors and results of methods; annotations of methods resolve."""

from __future__ import annotations

import importlib.util
import inspect
import subprocess
import sys
import typing
from pathlib import Path

import pytest

from tensordict import TensorClass, TensorDict

ROOT = Path(__file__).resolve().parents[2]
FILE = "tests/tensorclass/expectations.py"


# basedpyright is pyright from the package index alone, with no download of its own.
@pytest.mark.parametrize("checker", ["mypy", "basedpyright"])
def test_expectations(checker: str) -> None:
    if importlib.util.find_spec(checker) is None:
        pytest.skip(f"{checker} is not installed")
    options = ["--pythonpath", sys.executable] if checker == "basedpyright" else []
    done = subprocess.run(
        [sys.executable, "-m", checker, *options, FILE], cwd=ROOT, capture_output=True, text=True, check=False
    )
    mine = [line for line in done.stdout.splitlines() if "expectations.py" in line]
    assert mine == [], done.stdout
    assert done.stdout


@pytest.mark.parametrize("cls", [TensorDict, TensorClass])
def test_hints_resolve(cls: type) -> None:
    methods = {name: value for name, value in inspect.getmembers(cls, callable) if not name.startswith("_")}
    assert len(methods) > 200
    for name, method in methods.items():
        assert isinstance(typing.get_type_hints(method), dict), name
