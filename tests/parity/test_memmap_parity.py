"""Files and pickles of mapped tensors, exchanged with the reference in both directions."""

import json
import os
import pickle
import subprocess
import sys

import pytest
import torch

from tensordict import MemoryMappedTensor

REFERENCE = os.environ.get("TD_REFERENCE")
pytestmark = pytest.mark.skipif(REFERENCE is None, reason="TD_REFERENCE names no folder with the reference")

DTYPES = ["float32", "bfloat16", "int64", "bool", "uint16", "complex64", "float8_e4m3fn"]
TAKES = [
    "t",
    "t[1]",
    "t[1:][0]",
    "t[::2][1:]",
    "t[None]",
    "t[1:, None][0]",
    "t.unbind(-1)[1]",
    "t[..., 0][:, 1]",
    "t[()]",
]


def reference(code, *arguments):
    """Runs `code` with the reference in place of this package; what it prints is JSON."""
    environment = {**os.environ, "PYTHONPATH": REFERENCE}
    command = [sys.executable, "-W", "ignore", "-c", code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=100)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def source(dtype):
    return torch.arange(24).remainder(2).view(4, 3, 2).to(getattr(torch, dtype))


WRITE = """
import json, pickle, sys, torch
from tensordict import MemoryMappedTensor
folder, dtypes, takes = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
for dtype in dtypes:
    data = torch.arange(24).remainder(2).view(4, 3, 2).to(getattr(torch, dtype))
    t = MemoryMappedTensor.from_tensor(data, filename=f"{folder}/{dtype}")
    for at, take in enumerate(takes):
        with open(f"{folder}/{dtype}-{at}.pkl", "wb") as file:
            pickle.dump(eval(take), file)
print("null")
"""


def test_what_the_reference_writes_is_read(tmp_path):
    reference(WRITE, tmp_path, json.dumps(DTYPES), json.dumps(TAKES))
    for dtype in DTYPES:
        t = source(dtype)
        read = MemoryMappedTensor.from_filename(tmp_path / dtype, t.dtype, t.shape)
        assert read.view(torch.uint8).equal(t.view(torch.uint8))
        for at, take in enumerate(TAKES):
            loaded = pickle.loads((tmp_path / f"{dtype}-{at}.pkl").read_bytes())
            expected = eval(take)
            assert type(loaded) is MemoryMappedTensor
            assert loaded.shape == expected.shape
            assert loaded.to(torch.complex64).equal(expected.to(torch.complex64))
            assert loaded.filename == str(tmp_path / dtype)


READ = """
import json, pickle, sys, torch
folder, dtypes, takes = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
result = []
for dtype in dtypes:
    t = torch.arange(24).remainder(2).view(4, 3, 2).to(getattr(torch, dtype))
    for at, take in enumerate(takes):
        with open(f"{folder}/{dtype}-{at}.pkl", "rb") as file:
            loaded = pickle.load(file)
        expected = eval(take)
        right = loaded.shape == expected.shape and loaded.to(torch.complex64).equal(expected.to(torch.complex64))
        result.append([type(loaded).__name__, right, loaded.filename == f"{folder}/{dtype}"])
        if at == 1:
            loaded.zero_()
            break
print(json.dumps(result))
"""


def test_what_is_written_the_reference_reads(tmp_path):
    files = {}
    for dtype in DTYPES:
        t = files[dtype] = MemoryMappedTensor.from_tensor(source(dtype), filename=tmp_path / dtype)
        for at, take in enumerate(TAKES):
            (tmp_path / f"{dtype}-{at}.pkl").write_bytes(pickle.dumps(eval(take, {"t": t})))
    whole = READ.replace("        if at == 1:\n            loaded.zero_()\n            break\n", "")
    found = reference(whole, tmp_path, json.dumps(DTYPES), json.dumps(TAKES))
    assert found == [["MemoryMappedTensor", True, True]] * (len(DTYPES) * len(TAKES))
    # What it writes through the file that a pickle names is seen here.
    reference(READ, tmp_path, json.dumps(DTYPES), json.dumps(TAKES))
    for t in files.values():
        assert t[1].to(torch.complex64).count_nonzero() == 0
        assert t.to(torch.complex64).count_nonzero() > 0


SURFACE = """
import inspect, json
from tensordict import MemoryMappedTensor as M
print(json.dumps(sorted(name for name in vars(M) if not name.startswith("_"))))
"""


def test_every_public_member_is_there():
    missing = [name for name in reference(SURFACE) if not hasattr(MemoryMappedTensor, name)]
    assert missing == []
    assert MemoryMappedTensor.__module__ == "tensordict.memmap"
