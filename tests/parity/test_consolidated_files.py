"""Consolidated files and pickles written by one package and read by the other. Runs where `TD_REFERENCE` is given."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

REFERENCE = os.environ.get("TD_REFERENCE")
pytestmark = pytest.mark.skipif(not REFERENCE, reason="no reference is given")

SAMPLE = """
import pickle, sys, torch, warnings
warnings.simplefilter("ignore")
from tensordict import TensorDict
where = sys.argv[1]
def sample(device=None):
    dtypes = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
              torch.float32, torch.float64, torch.complex64, torch.uint16)
    leaves = {str(d)[6:]: torch.arange(6).view(2, 3).to(d) for d in dtypes}
    deep = TensorDict({"turned": torch.arange(12.0).view(2, 2, 3).mT, "empty": torch.zeros(2, 3, 0), "e": {}}, [2, 3],
                      names=["t", None])
    td = TensorDict({"all": leaves, "x": torch.arange(4.0).view(2, 2), "deep": deep}, [2], names=["t"], device=device)
    td["j"] = torch.nested.nested_tensor_from_jagged(torch.arange(5.0), torch.tensor([0, 2, 5]), torch.tensor([1, 3]))
    td["deep"].lock_()
    return td
def check(found):
    want = sample()
    assert found.batch_size == want.batch_size and found.names == want.names and found["deep"].batch_size == (2, 3)
    assert found.is_consolidated() and not found.is_locked and found["deep"].is_locked
    assert set(found.keys(True)) == set(want.keys(True)), set(found.keys(True))
    assert [part.tolist() for part in found["j"].unbind()] == [[0], [2, 3, 4]]
    for key in want.exclude("j").keys(True, True):
        assert found[key].dtype == want[key].dtype and found[key].shape == want[key].shape, key
        assert found[key].flatten().view(torch.uint8).tolist() == want[key].flatten().view(torch.uint8).tolist(), key
"""
WRITE = {
    "file": "sample().consolidate(where)",
    "pickle": "open(where, 'wb').write(pickle.dumps(sample().consolidate()))",
    "torch": "torch.save(sample().consolidate(), where)",
}
READ = {
    "file": "check(TensorDict.from_consolidated(where))",
    "pickle": "check(pickle.loads(open(where, 'rb').read()))",
    "torch": "check(torch.load(where, weights_only=False))",
}


def run(code: str, where: Path, reference: bool) -> None:
    paths = [str(REFERENCE)] if reference else [path for path in sys.path if path]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(
        [sys.executable, "-c", SAMPLE + code, str(where)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kind", list(WRITE))
@pytest.mark.parametrize("ours_writes", [False, True])
def test_either_reads_what_the_other_wrote(kind: str, ours_writes: bool, tmp_path: Path) -> None:
    run(WRITE[kind], tmp_path / "f", reference=not ours_writes)
    run(READ[kind], tmp_path / "f", reference=ours_writes)


# Objects, keys and depths that other parsers of JSON refuse.
ODD = """
import math
from tensordict import NonTensorData
odd = [math.inf, -math.inf, -0.0, 0.1, 5e-324, 2**63, 2**64, -2**70, 10**400]
odd += ["\\ud800", "\\U0001f600", "", "\\0", {"_type": [None, True]}]
def tree():
    td = TensorDict({"\\ud800": torch.ones(2), "": torch.zeros(0), "\\0": {"<NJT_VALUES>x": {"cls": torch.ones(1)}}})
    for place, value in enumerate(odd):
        td.set(str(place), NonTensorData(value))
    td.set("nan", NonTensorData(math.nan))
    deep = TensorDict({"x": torch.arange(2)})
    for _ in range(150):
        deep = TensorDict({"n": deep})
    return td.set("deep", deep)
def check_odd(found):
    assert [repr(found[str(place)]) for place in range(len(odd))] == list(map(repr, odd))
    assert math.isnan(found["nan"])
    assert found["\\ud800"].tolist() == [1, 1] and found[""].shape == (0,)
    assert found["\\0", "<NJT_VALUES>x", "cls"].tolist() == [1]
    assert found[("deep",) + ("n",) * 150 + ("x",)].tolist() == [0, 1]
"""


@pytest.mark.parametrize("ours_writes", [False, True])
@pytest.mark.parametrize("ours_reads", [False, True])
def test_odd_objects_keys_and_depths(ours_writes: bool, ours_reads: bool, tmp_path: Path) -> None:
    run(ODD + "tree().consolidate(where)", tmp_path / "f", reference=not ours_writes)
    run(ODD + "check_odd(TensorDict.from_consolidated(where))", tmp_path / "f", reference=not ours_reads)


def _parts(content: bytes) -> tuple[bytes, str]:
    """The data and the text of a file. Ours pads the text with spaces, so that torch can save views of the whole file."""
    length = int.from_bytes(content[-8:], "little")
    return content[: -8 - length], content[-8 - length : -8].decode().rstrip()


@pytest.mark.parametrize("device", [None, "cpu"])
def test_files_are_the_same(device: str | None, tmp_path: Path) -> None:
    for name in ("ours", "theirs"):
        run(f"sample({device!r}).consolidate(where)", tmp_path / name, reference=name == "theirs")
    parts = [_parts((tmp_path / name).read_bytes()) for name in ("ours", "theirs")]
    assert parts[0] == parts[1]
