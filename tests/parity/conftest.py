"""The results of all programs on both packages, each run once a session."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

RUNNER = Path(__file__).with_name("runner.py")


def _start(out, reference=None):
    paths = [reference] if reference else [path for path in sys.path if path]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-W", "ignore", str(RUNNER), str(out), *([reference] if reference else [])]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def _finish(process, out):
    output, _ = process.communicate(timeout=100)
    if process.returncode:
        pytest.fail(f"the programs did not run:\n{output[-2000:]}")
    return json.loads(out.read_text())


@pytest.fixture(scope="session")
def both(tmp_path_factory):
    """What all programs give on our package and on the reference."""
    reference = os.environ.get("TD_REFERENCE")
    if not reference:
        pytest.skip("TD_REFERENCE does not name the folder of an installed reference")
    folder = tmp_path_factory.mktemp("parity")
    outs = folder / "ours.json", folder / "reference.json"
    started = _start(outs[0]), _start(outs[1], os.path.abspath(reference))
    return tuple(_finish(process, out) for process, out in zip(started, outs, strict=True))
