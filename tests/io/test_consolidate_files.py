"""Consolidated files: what can be written can be read, and what cannot be written leaves the file that was there."""

from __future__ import annotations

import json
import math
import os
import pickle
import resource
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.containers import same

from tensordict import MemoryMappedTensor, NonTensorData, TensorCollection, TensorDict, lazy_stack

# Keys and strings of any code points, halves of surrogate pairs too, and some that look like parts of the format.
ODD = ("", "\0", "a.b", "é", "\U0001f600", "\ud800", "\udc00", "<NJT_VALUES>x", "_type", "cls", "leaves", "k" * 300)
TEXTS = st.text(st.characters(), max_size=4) | st.sampled_from(ODD)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | TEXTS
SCALARS |= st.sampled_from([2**63, 2**64, -(2**70), 10**400, 5e-324, -0.0, math.inf, math.nan, b"x", (1, 2), 1j])
OBJECTS = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3))
DTYPES = [dtype for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)]


WHOLE = [
    dtype for dtype in dict.fromkeys(DTYPES) if str(dtype).split(".")[1].startswith(("int", "uint")) and dtype.itemsize > 1
]
WHOLE += [torch.uint8, torch.int8, torch.bool, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex32]
WHOLE += [torch.complex64, torch.complex128, *[dtype for dtype in DTYPES if str(dtype).startswith("torch.float8")]]


@st.composite
def tensors(draw: Any) -> torch.Tensor:
    dtype, shape = draw(st.sampled_from(WHOLE)), draw(st.lists(st.integers(0, 3), max_size=3))
    size = math.prod(shape) * dtype.itemsize
    data = draw(st.binary(min_size=size, max_size=size))
    whole = torch.tensor([byte % 2 if dtype == torch.bool else byte for byte in data], dtype=torch.uint8)
    return whole.view(dtype).view(shape)


TREES = st.recursive(
    tensors() | st.builds(NonTensorData, OBJECTS),
    lambda inner: (
        st.dictionaries(TEXTS, inner, max_size=4).map(TensorDict)
        | st.lists(inner, min_size=1, max_size=2).map(lambda parts: lazy_stack([TensorDict({"m": part}) for part in parts]))
    ),
    max_leaves=6,
)


def equal(one: Any, two: Any) -> bool:
    """Whether two objects are the same, of the same classes, to the sign of zero."""
    if type(one) is not type(two):
        return False
    if isinstance(one, list):
        return len(one) == len(two) and all(map(equal, one, two))
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(equal(value, two[key]) for key, value in one.items())
    return repr(one) == repr(two) if isinstance(one, float) else bool(one == two)


def alike(one: Any, two: Any) -> bool:
    """Whether two trees are the same to the last bit."""
    if isinstance(one, torch.Tensor):
        bits = [leaf.contiguous().flatten().view(torch.uint8).tolist() if leaf.numel() else [] for leaf in (one, two)]
        return one.dtype == two.dtype and one.shape == two.shape and bits[0] == bits[1]
    if getattr(one, "_is_non_tensor", False):
        return equal(one.tolist(), two.tolist())
    if one.batch_size != two.batch_size or one.names != two.names:
        return False
    if hasattr(one, "tensordicts"):
        return len(one.tensordicts) == len(two.tensordicts) and all(map(alike, one.tensordicts, two.tensordicts))
    return set(one.keys()) == set(two.keys()) and all(alike(one.get(key), two.get(key)) for key in one.keys())


@given(st.dictionaries(TEXTS, TREES, max_size=4))
@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_what_is_written_is_read_and_what_is_refused_changes_nothing(entries: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "f")
        TensorDict({"before": torch.ones(1)}).consolidate(path)
        td = TensorDict(entries)
        try:
            td.consolidate(path)
        except (RuntimeError, ValueError) as error:
            refused = str(error)
            assert "consolidated file" in refused
            assert TensorDict.from_consolidated(path)["before"].tolist() == [1]
        else:
            assert alike(TensorDict.from_consolidated(path), td)
        assert os.listdir(folder) == ["f"]


@pytest.mark.parametrize("dtype", WHOLE, ids=str)
def test_every_dtype(dtype: torch.dtype, tmp_path: Path) -> None:
    data = (torch.arange(6 * dtype.itemsize) % 2).to(torch.uint8)
    td = TensorDict({"a": data.view(dtype).view(2, 3), "scalar": data.view(dtype)[0], "none": data.view(dtype)[:0].view(0, 4)})
    for made in (td.consolidate(), td.consolidate(tmp_path / "f"), TensorDict.from_consolidated(tmp_path / "f")):
        assert alike(made, td)
    assert alike(pickle.loads(pickle.dumps(td.consolidate())), td)


@pytest.mark.parametrize("shape", [[0], [0, 3], [2, 0]])
def test_batches_of_nothing(shape: list[int], tmp_path: Path) -> None:
    td = TensorDict({"a": torch.zeros(*shape, 2), "o": NonTensorData([1], shape), "n": TensorDict({}, shape)}, shape)
    td.consolidate(tmp_path / "f")
    assert alike(TensorDict.from_consolidated(tmp_path / "f"), td)


@pytest.mark.parametrize("depth", [100, 124, 200])
def test_deep_trees_and_deep_objects(depth: int, tmp_path: Path) -> None:
    td, held = TensorDict({"x": torch.arange(3)}), "end"
    for _ in range(depth):
        td, held = TensorDict({"n": td}), {"k": [held]}  # type: ignore[assignment]
    td["o"] = NonTensorData(held)
    td.consolidate(tmp_path / "f")
    found = TensorDict.from_consolidated(tmp_path / "f")
    assert found[("n",) * depth + ("x",)].tolist() == [0, 1, 2]
    assert found["o"] == held


def test_names_of_dimensions(tmp_path: Path) -> None:
    for name in ("\ud800", "é", ""):
        TensorDict({"a": torch.ones(1)}, [1], names=[name]).consolidate(tmp_path / "f")
        assert TensorDict.from_consolidated(tmp_path / "f").names == [name]
    before = (tmp_path / "f").read_bytes()
    for td in (
        TensorDict({"a": torch.ones(1)}, [1], names=["\ud83d\ude00"]),
        TensorDict({"n": {"\ud83d\ude00": torch.ones(1)}}),
        TensorDict({"\ud83d\ude00": {"a": torch.ones(1)}}),
    ):
        with pytest.raises(RuntimeError, match="as it is"):
            td.consolidate(tmp_path / "f")
        assert alike(td.consolidate(), td)
    assert (tmp_path / "f").read_bytes() == before


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    td = TensorDict({"a": torch.ones(2)})
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    (tmp_path / "file").write_bytes(b"")
    for name in ("folder", "link", "missing/f", "file/f"):
        with pytest.raises((OSError, RuntimeError), match=name):
            td.consolidate(tmp_path / name)
    assert sorted(os.listdir(tmp_path)) == ["file", "folder", "link"]
    assert not (tmp_path / "nowhere").exists()


def test_long_names_of_files(tmp_path: Path) -> None:
    path = tmp_path / ("f" * 255)
    for value in (1, 2):
        TensorDict({"a": torch.tensor(value)}).consolidate(path)
        assert TensorDict.from_consolidated(path)["a"] == value
    assert os.listdir(tmp_path) == ["f" * 255]


WRITER = """
import sys, torch
from tensordict import TensorDict
for value in range(1, int(sys.argv[2]) + 1):
    TensorDict({"a": torch.full((300_000,), value), "n": {"b": torch.full((7,), value)}}).consolidate(sys.argv[1])
    print(value, flush=True)
"""


def _writer(path: Path, count: int) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(count)], stdout=subprocess.PIPE, text=True)


def _whole(path: Path) -> int:
    found = TensorDict.from_consolidated(path)
    value = int(found["n", "b"][0])
    assert (found["a"] == value).all()
    assert (found["n", "b"] == value).all()
    return value


def test_a_killed_writer_leaves_one_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "f"
    for after in (1, 2, 3):
        with _writer(path, 100_000) as writer:
            assert writer.stdout is not None
            for _ in range(after):
                writer.stdout.readline()
            writer.send_signal(signal.SIGKILL)
        assert _whole(path) >= after
    TensorDict({"a": torch.full((3,), 5), "n": {"b": torch.full((7,), 5)}}).consolidate(path)
    assert _whole(path) == 5
    assert os.listdir(tmp_path) == ["f"]


def test_writers_at_once(tmp_path: Path) -> None:
    path = tmp_path / "f"
    TensorDict({"a": torch.zeros(3), "n": {"b": torch.zeros(3)}}).consolidate(path)
    failed: list[BaseException] = []

    def work(value: int) -> None:
        try:
            for _ in range(40):
                made = TensorDict({"a": torch.full((5000,), value), "n": {"b": torch.full((3,), value)}}).consolidate(path)
                assert (made["a"] == value).all()
                _whole(path)
        except BaseException as error:
            failed.append(error)

    with _writer(path, 40) as writer:
        threads = [threading.Thread(target=work, args=(value,)) for value in (51, 52, 53)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        writer.communicate(timeout=120)
        assert writer.returncode == 0
    assert not failed
    assert _whole(path) in (40, 51, 52, 53)
    assert os.listdir(tmp_path) == ["f"]


def test_what_a_killed_writer_left_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "f"
    for value in (1, 2):
        (tmp_path / ".f.tensordict-new").write_bytes(b"half")
        TensorDict({"a": torch.tensor(value)}).consolidate(path)
        assert TensorDict.from_consolidated(path)["a"] == value
    assert os.listdir(tmp_path) == ["f"]


def test_files_of_other_names_stay(tmp_path: Path) -> None:
    others = {".f.new", ".f", "f.new", "f.tensordict-new", ".g.tensordict-new", ".f.tensordict-new.old"}
    for name in others:
        (tmp_path / name).write_text("my own")
    TensorDict({"a": torch.zeros(2)}).consolidate(tmp_path / ".m.new")
    for value in (1.0, 2.0):
        TensorDict({"a": torch.tensor(value)}).consolidate(tmp_path / "f")
        TensorDict({"a": torch.tensor(value)}).consolidate(tmp_path / "m")
        MemoryMappedTensor.from_tensor(torch.tensor([value]), filename=tmp_path / "w.new", existsok=True)
        MemoryMappedTensor.from_tensor(torch.tensor([value]), filename=tmp_path / "w", existsok=True)
    assert set(os.listdir(tmp_path)) == {*others, "f", "m", ".m.new", "w", "w.new"}
    assert {(tmp_path / name).read_text() for name in others} == {"my own"}
    assert TensorDict.from_consolidated(tmp_path / ".m.new")["a"].tolist() == [0, 0]


@pytest.mark.parametrize("kind", ["folder", "link", "pipe"])
def test_what_is_no_file_stays(tmp_path: Path, kind: str) -> None:
    make = {"folder": os.mkdir, "link": lambda path: os.symlink("f", path), "pipe": os.mkfifo}[kind]
    TensorDict({"a": torch.tensor(1)}).consolidate(tmp_path / "f")
    make(tmp_path / ".f.tensordict-new")
    with pytest.raises(RuntimeError, match=r"\.f\.tensordict-new is not a regular file"):
        TensorDict({"a": torch.tensor(2)}).consolidate(tmp_path / "f")
    assert set(os.listdir(tmp_path)) == {"f", ".f.tensordict-new"}
    assert TensorDict.from_consolidated(tmp_path / "f")["a"] == 1


def test_the_name_of_what_is_on_its_way_is_refused(tmp_path: Path) -> None:
    path = tmp_path / ".f.tensordict-new"
    with pytest.raises(ValueError, match=r"\.f\.tensordict-new"):
        TensorDict({"a": torch.tensor(1)}).consolidate(path)
    with pytest.raises(ValueError, match=r"\.f\.tensordict-new"):
        MemoryMappedTensor.from_tensor(torch.zeros(2), filename=path)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("length", [238, 239, 240, 255])
def test_long_names_are_replaced(tmp_path: Path, length: int) -> None:
    path = tmp_path / ("x" * length)
    for value in (1, 2):
        TensorDict({"a": torch.tensor(value)}).consolidate(path)
    assert TensorDict.from_consolidated(path)["a"] == 2
    assert os.listdir(tmp_path) == [path.name]


HOSTILE = """
import json, os, pickle, random, resource, sys
import torch
from tensordict import NonTensorData, TensorDict, is_non_tensor, lazy_stack
from tensordict._kernel.errors import UnreadableError
folder = sys.argv[1]
path = os.path.join(folder, "the file")
jagged = torch.nested.nested_tensor_from_jagged(torch.arange(5.0), torch.tensor([0, 2, 5]), torch.tensor([1, 3]))
td = TensorDict({"a": torch.arange(4.0).view(2, 2), "j": jagged, "n": {"b": torch.ones(2)}}, [2])
td["o"] = NonTensorData({"k": [1, "x", None]}, [2])
td["s"] = lazy_stack([TensorDict({"x": torch.ones(3)}), TensorDict({"x": torch.zeros(2)})])
td.consolidate(path)
whole = open(path, "rb").read()
size = int.from_bytes(whole[-8:], "little")
data, text = whole[: -8 - size], whole[-8 - size : -8]
resource.setrlimit(resource.RLIMIT_AS, (int(open("/proc/self/statm").read().split()[0]) * 4096 + (1 << 30),) * 2)
random.seed(int(sys.argv[2]))
NUMBERS = [-1, 0, 1, 2**31, 2**40, 2**62, 2**63, 2**64, 10**30, 0.5, None, "x", [], {}, True]
NUMBERS += ["torch.float32", [2**62, 4], "<class 'x'>"]
def nodes(value):
    yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from nodes(inner)
def packed(text, length=None):
    return data + text + (len(text) if length is None else length).to_bytes(8, "little")
def mutated():
    kind = random.randrange(6)
    if kind == 0:  # bytes anywhere
        made = bytearray(whole)
        for _ in range(random.randint(1, 4)):
            made[random.randrange(len(made))] = random.randrange(256)
        return bytes(made)
    if kind == 1:  # bytes of the text
        made = bytearray(text)
        for _ in range(random.randint(1, 3)):
            made[random.randrange(len(made))] = random.choice(b'0123456789[]{},:"-.e ')
        return packed(bytes(made))
    if kind == 2:
        return whole[: random.randrange(len(whole))]
    if kind == 3:
        lengths = [0, 1, len(text) - 1, 2**31, 2**40, 2**63, 2**64 - 1, 2**64 - 9, random.getrandbits(64)]
        return packed(text, random.choice(lengths))
    level = json.loads(text)
    for _ in range(random.randint(1, 2)):
        target = random.choice([node for node in nodes(level) if node and isinstance(node, (dict, list))])
        place = random.choice(list(target)) if isinstance(target, dict) else random.randrange(len(target))
        if random.random() < 0.3:
            target.pop(place)
        else:
            target[place] = random.choice(NUMBERS)
    return packed(json.dumps(level).encode())
def touch(node):
    for value in getattr(node, "tensordicts", None) or node.values():
        if isinstance(value, torch.Tensor):
            for part in value.unbind() if value.is_nested else [value]:
                part.clone()
        else:
            touch(value) if not is_non_tensor(value) else repr(value.data)
def read(content):
    with open(path, "wb") as file:
        file.write(content)
    touch(TensorDict.from_consolidated(path))
ok = 0
for _ in range(int(sys.argv[3])):
    content = mutated()
    try:
        read(content)
        ok += 1
    except Exception as error:
        assert isinstance(error, (UnreadableError, OSError)), repr(error)
        assert "the file" in str(error), repr(error)
print(ok)
"""


def test_mutated_files_are_errors_that_name_them(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", HOSTILE, str(tmp_path), "0", "1500"], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout) < 1500


@pytest.mark.parametrize("length", [2**43 - 16, 2**42, 2**64 - 1])
def test_a_sparse_file_asks_for_no_memory(length: int, tmp_path: Path) -> None:
    path = tmp_path / "the file"
    with path.open("wb") as file:
        file.seek(2**43)
        file.write(length.to_bytes(8, "little"))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ValueError, match="the file"):
        TensorDict.from_consolidated(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kilobytes


def _file(path: Path, text: str, data: bytes = bytes(16)) -> Path:
    path.write_bytes(data + text.encode() + len(text.encode()).to_bytes(8, "little"))
    return path


def test_endless_nesting_is_an_error(tmp_path: Path) -> None:
    for text in ("[" * 3_000_000, '{"a":' * 1_000_000, "[" * 500_000 + "]" * 500_000):
        with pytest.raises(ValueError, match="the file"):
            TensorDict.from_consolidated(_file(tmp_path / "the file", text))
    level = '{"cls": "TensorDict", "non_tensors": {}, "leaves": {}, "cls_metadata": '
    level += '{"device": null, "names": null, "batch_size": [], "is_locked": false}'
    deep = f'{level}, "n": ' * 20_000 + level + "}" * 20_001
    with pytest.raises(RecursionError, match="the file"):
        TensorDict.from_consolidated(_file(tmp_path / "the file", deep))


MANY = """
import resource, sys
from tensordict import TensorDict
used = int(open("/proc/self/statm").read().split()[0]) * 4096
resource.setrlimit(resource.RLIMIT_AS, (used + (200 << 20),) * 2)
try:
    TensorDict.from_consolidated(sys.argv[1])
except ValueError as error:
    print(error)
"""


@pytest.mark.parametrize("one", ["0,", "[", '{"":'])
def test_more_values_than_memory_are_an_error(one: str, tmp_path: Path) -> None:
    text = '{"leaves": ' + "[" + one * (20_000_000 // len(one))
    path = _file(tmp_path / "the file", text)
    done = subprocess.run([sys.executable, "-c", MANY, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "the file" in done.stdout
    assert "no memory" in done.stdout


def test_offsets_that_lead_elsewhere(tmp_path: Path) -> None:
    leaf = torch.nested.nested_tensor_from_jagged(torch.arange(5.0), torch.tensor([0, 2, 5]))
    path = tmp_path / "the file"
    TensorDict({"j": leaf}, [2]).consolidate(path)
    whole = path.read_bytes()
    for offsets in ([0, 2, 6], [0, -2, 5], [3, 2, 5], [-(2**62), 2, 5], [0, 2**62, 2**63 - 1]):
        path.write_bytes(whole.replace(torch.tensor([0, 2, 5]).numpy().tobytes(), torch.tensor(offsets).numpy().tobytes()))
        with pytest.raises(ValueError, match=r"the file.*'j'"):
            TensorDict.from_consolidated(path)


def test_pickles_that_lie_are_errors() -> None:
    made = TensorDict({"a": torch.arange(4.0), "n": {"b": torch.ones(2, dtype=torch.int16)}}).consolidate()
    rebuild, (metadata, storage) = made.__reduce_ex__(2)
    assert same(rebuild(metadata, storage), made) is None
    for leaf in (
        ["torch.float32", [7], 0, 32, 4],
        ["torch.float32", [4], -16, 0, 0],
        ["torch.float32", [4], 2**62, 2**62 + 16, 0],
        ["torch.float32", [2**62, 2**62], 0, 16, 0],
        ["torch.float32", [2**40], 0, 16, 0],
        ["torch.float32", [2], 2, 10, 0],
        ["torch.load", [4], 0, 16, 0],
        ["torch.int16", [16], 0, 32, 0],
    ):
        lying = {**metadata, "leaves": {"a": leaf}}
        with pytest.raises((ValueError, RuntimeError, OverflowError)):
            rebuild(lying, storage)


def test_texts_that_only_python_reads_are_read(tmp_path: Path) -> None:
    """As the package that this one replaces writes them."""
    level = {
        "cls": "TensorDict",
        "non_tensors": {"o": ([math.inf, -math.inf, math.nan, 10**400, "\ud800"], [], None)},
        "leaves": {"\ud800": ("torch.float32", [4], 0, 16, 0)},
        "cls_metadata": {"device": None, "names": [], "batch_size": [], "is_locked": False},
    }
    found = TensorDict.from_consolidated(_file(tmp_path / "f", json.dumps(level), torch.arange(4.0).numpy().tobytes()))
    assert found["\ud800"].tolist() == [0, 1, 2, 3]
    assert equal(found["o"], [math.inf, -math.inf, math.nan, 10**400, "\ud800"])
    assert isinstance(found, TensorCollection)
