"""Leaves in one buffer, in memory and in a file."""

from __future__ import annotations

import copy
import json
import multiprocessing
import pickle
import resource
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.containers import CONTAINERS, leaves, nodes, same

import tensordict
from tensordict import NonTensorData, TensorCollection, TensorDict, is_non_tensor
from tensordict._kernel import native
from tensordict._polyfills import consolidate as twin

DTYPES = [torch.uint8, torch.bool, torch.int16, torch.float16, torch.bfloat16, torch.float32, torch.int64]
DTYPES += [torch.complex64, torch.complex128, torch.float8_e5m2, torch.uint16]


def buffer_of(td: Any) -> torch.Tensor:
    storage = td._consolidated["storage"]
    assert isinstance(storage, torch.Tensor)
    return storage


def many() -> TensorDict:
    """All dtypes, odd sizes, strides, empty leaves and nodes, and leaves with gradients."""
    td = TensorDict({str(dtype): torch.arange(3).to(dtype) for dtype in DTYPES})
    td["n"] = {"turned": torch.arange(6.0).view(2, 3).T, "spaced": torch.arange(9)[::4], "none": torch.zeros(0, 3), "e": {}}
    td["wide"] = torch.ones(1).expand(5)
    td["grad"] = torch.ones(3, requires_grad=True)
    td["scalar"] = torch.tensor(3, dtype=torch.int8)
    td["conj"] = torch.tensor([1 + 2j]).conj()
    td["neg"] = torch.tensor([1 + 2j]).conj().imag
    return td


def holds(td: Any) -> None:
    """The leaves lie in the buffer, each in its own part, as the metadata says."""
    storage, known = buffer_of(td), []

    def check(node: Any, level: Any) -> None:
        members = getattr(node, "tensordicts", None)
        for key, value in node.items() if members is None else zip(map(str, range(len(members))), members):
            if is_non_tensor(value):
                continue
            if isinstance(value, TensorCollection):
                check(value, level[key])
                continue
            dtype, shape, start, stop, pad = level["leaves"][key]
            assert (dtype, shape) == (str(value.dtype), list(value.shape))
            assert value.is_contiguous()
            assert not value.requires_grad
            assert value.untyped_storage().data_ptr() == storage.untyped_storage().data_ptr()
            assert stop - start == value.numel() * value.itemsize + pad
            if value.numel():
                assert value.data_ptr() - storage.data_ptr() == start
                known.append((start, stop))

    check(td, td._consolidated["metadata"])
    known.sort()
    assert [start for start, _ in known] == [0, *[stop for _, stop in known]][: len(known)]
    assert not known or known[-1][1] == len(storage)


def test_objects(tmp_path: Path) -> None:
    for td in (CONTAINERS["objects"](), TensorDict({"a": torch.ones(2), "s": ["u", "v"]}, [2])):
        made = td.consolidate()
        stored = td.consolidate(tmp_path / "f")
        for one in (made, pickle.loads(pickle.dumps(made)), stored, TensorDict.from_consolidated(tmp_path / "f")):
            same(one, td)
            assert one.get("s").tolist() == td.get("s").tolist()
            assert one.get("s").batch_size == td.get("s").batch_size
            assert one.is_consolidated() or one is not made
        holds(made)


CHANGED_BY_JSON: list[object] = [{1, 2}, (1, "a"), b"x", 1j, Path("a"), torch.float32, {"k": (1,)}, {1: "a"}, {None: 1}]
CHANGED_BY_JSON += ["\ud83d\ude00", ["a\ud83d\ude00"], {"\ud83d\ude00": 1}, 10**4300, [-(10**4300)]]


@pytest.mark.parametrize("value", CHANGED_BY_JSON, ids=list(map(str, range(len(CHANGED_BY_JSON)))))
def test_objects_that_json_changes_are_refused(value: object, tmp_path: Path) -> None:
    td = TensorDict({"a": torch.ones(2), "n": {"s": NonTensorData(value)}}, [2])
    assert td.consolidate()["n", "s"] is value
    with pytest.raises(RuntimeError, match=r"\('n', 's'\)"):
        td.consolidate(tmp_path / "f")
    assert not (tmp_path / "f").exists()


@pytest.mark.parametrize("name", CONTAINERS)
def test_values_of_each_container(name: str, tmp_path: Path) -> None:
    td = CONTAINERS[name]()
    for made in (td.consolidate(), td.consolidate(tmp_path / "f")):
        same(made, td)
        holds(made)
        assert made.is_consolidated()
        assert made.is_locked
        assert made.names == td.names
    assert not td.is_consolidated()
    found = TensorDict.from_consolidated(tmp_path / "f")
    same(found, td)
    holds(found)
    assert found.is_consolidated()
    assert found.is_locked == td.is_locked
    assert found.device == td.device
    assert found.names == td.names


def test_every_kind_of_leaf(tmp_path: Path) -> None:
    td = many()
    wanted = {key: (leaf.dtype, leaf.tolist()) for key, leaf in leaves(td).items()}
    made = td.consolidate(), td.consolidate(tmp_path / "f"), tensordict.from_consolidated(tmp_path / "f")
    for one in (*made, pickle.loads(pickle.dumps(made[0]))):
        assert {key: (leaf.dtype, leaf.tolist()) for key, leaf in leaves(one).items()} == wanted
        assert nodes(one).keys() == nodes(td).keys()
        holds(one)
    assert td["grad"].requires_grad
    pads = [buffer_of(one).clone() for one in made[:2]]
    assert torch.equal(*pads)


def test_large_leaves() -> None:
    td = TensorDict({"a": torch.randn(1000, 2000).T, "b": torch.randn(3_000_001), "c": torch.randn(1, 1_000_000)})
    made = td.consolidate()
    same(made, td)
    holds(made)


def test_torch_copies_what_rust_leaves_alone(tmp_path: Path) -> None:
    class Own(torch.Tensor):
        pass

    td = TensorDict({"a": torch.arange(3.0).as_subclass(Own), "b": torch.ones(3, 2, dtype=torch.int16)}, [3])
    for made in (td.consolidate(), td.consolidate(tmp_path / "f"), TensorDict.from_consolidated(tmp_path / "f")):
        assert type(made["a"]) is torch.Tensor
        assert made["a"].tolist() == [0, 1, 2]
        assert made["b"].tolist() == [[1, 1]] * 3
        holds(made)


@pytest.mark.parametrize("file", [False, True])
def test_values_written_in_place_are_in_the_buffer(file: bool, tmp_path: Path) -> None:
    td = CONTAINERS["nested"]()
    made = td.consolidate(tmp_path / "f" if file else None)
    made.set_("a", torch.full_like(made["a"], 7))
    made["n", "x"].fill_(8)
    made[0] = td[1]
    made.add_(1)
    wanted = made.clone()
    same(pickle.loads(pickle.dumps(made)), wanted)
    same(made.to("cpu"), wanted)
    assert made.is_consolidated()
    if file:
        same(TensorDict.from_consolidated(tmp_path / "f"), wanted)
    buffer_of(made).zero_()
    assert all((leaf == 0).all() for leaf in leaves(made).values())


CHANGES: dict[str, Any] = {
    "replace": lambda td: td.set("a", torch.full((4, 3, 2), 5.0)),
    "replace below": lambda td: td.set(("n", "x"), torch.full((4, 3), 5.0)),
    "add": lambda td: td.set("new", torch.ones(4, 3)),
    "delete": lambda td: td.pop("a"),
    "delete below": lambda td: td["n"].pop("x"),
    "data": lambda td: setattr(td["a"], "data", torch.full((4, 3, 2), 5.0)),
    "swap": lambda td: td["a"].set_(torch.full((4, 3, 2), 5.0)),
    "rename": lambda td: td.rename_key_("a", "b"),
    "empty node": lambda td: td.set("new", {}),
}


@pytest.mark.parametrize("change", list(CHANGES))
@pytest.mark.parametrize("way", ["pickled", "unlocked", "opened", "locked"])
def test_nothing_stale_is_served(change: str, way: str, tmp_path: Path) -> None:
    td = CONTAINERS["nested"]()
    made = td.consolidate(tmp_path / "f")
    if way == "pickled":
        made = pickle.loads(pickle.dumps(made))
    elif way == "opened":
        made = TensorDict.from_consolidated(tmp_path / "f")
    elif way == "unlocked":
        made = made.unlock_()
    elif change not in ("data", "swap"):
        pytest.skip("a locked one refuses it")
    CHANGES[change](made)
    wanted = made.clone()
    same(pickle.loads(pickle.dumps(made)), wanted)
    same(made.to("cpu"), wanted)
    same(copy.deepcopy(made), wanted)
    again = made.consolidate()
    same(again, wanted)
    holds(again)
    made.consolidate(tmp_path / "g")
    same(TensorDict.from_consolidated(tmp_path / "g"), wanted)
    if change not in ("rename", "empty node"):
        assert not made.is_consolidated()
        assert not hasattr(made, "_consolidated")


def test_lock_and_buffer() -> None:
    made = CONTAINERS["nested"]().consolidate()
    with pytest.raises(RuntimeError, match="locked"):
        made["a"] = torch.zeros(4, 3, 2)
    with pytest.raises(RuntimeError, match="locked"):
        made["n"]["x"] = torch.zeros(4, 3)
    with made.unlock_():
        assert not made.is_consolidated()
    assert made.is_locked
    assert not made.is_consolidated()


@pytest.mark.parametrize("method", ["clone", "copy", "detach", "select", "index"])
def test_what_comes_of_it_is_not_consolidated(method: str) -> None:
    made = CONTAINERS["flat"]().consolidate()
    out = {"select": lambda: made.select("a"), "index": lambda: made[:2]}.get(method, getattr(made, method, None))()
    assert not out.is_consolidated()
    assert made.is_consolidated()


def test_inplace() -> None:
    td = CONTAINERS["nested"]()
    before, node = td.clone(), td["n"]
    assert td.consolidate(inplace=True) is td
    same(td, before)
    holds(td)
    assert td["n"] is node
    assert td.is_locked
    other = CONTAINERS["nested"]().lock_()
    with pytest.raises(RuntimeError, match="locked"):
        other.consolidate(inplace=True)
    with pytest.raises(RuntimeError):
        CONTAINERS["view"]().consolidate(inplace=True)


def test_what_is_done_is_not_done_again(tmp_path: Path) -> None:
    made = CONTAINERS["flat"]().consolidate()
    assert made.consolidate() is made
    assert made.consolidate(device="cpu") is made
    assert made.consolidate(inplace=True) is made
    shared = made.consolidate(share_memory=True)
    assert shared is not made
    assert shared["a"].is_shared()
    assert shared.consolidate(share_memory=True) is shared
    assert made.consolidate(device="meta")["a"].is_meta
    made.consolidate(tmp_path / "f")
    same(TensorDict.from_consolidated(tmp_path / "f"), made)


def test_devices() -> None:
    made = CONTAINERS["placed"]().consolidate()
    there = made.to("meta")
    assert there.is_consolidated()
    assert there.is_locked
    assert there.device == there["n"].device == torch.device("meta")
    assert {leaf.untyped_storage()._cdata for leaf in leaves(there).values()} == {buffer_of(there).untyped_storage()._cdata}
    direct = CONTAINERS["placed"]().consolidate(device="meta")
    assert direct.is_consolidated()
    assert direct["a"].is_meta
    assert direct.device == torch.device("meta")
    label = CONTAINERS["nested"]().consolidate().to("cpu")
    assert label.device == torch.device("cpu")
    assert label.is_consolidated()
    assert TensorDict({"a": torch.zeros(3, device="meta")}, [3]).consolidate()["a"].is_meta


def test_options(tmp_path: Path) -> None:
    td = CONTAINERS["nested"]()
    future = td.consolidate(num_threads=2, return_early=True)
    same(future.result(), td)
    assert td.consolidate(return_early=True).is_consolidated()
    for option in ("use_buffer", "non_blocking"):
        with pytest.raises(NotImplementedError, match=option):
            td.consolidate(num_threads=2, return_early=True, **{option: True})
    with pytest.raises(RuntimeError, match="mutually exclusive"):
        td.consolidate(tmp_path / "f", device="meta")
    with pytest.raises(RuntimeError, match=r"sparse.*'n', 'a'"):
        TensorDict({"n": {"a": torch.eye(3).to_sparse()}}).consolidate()


@given(st.lists(st.tuples(st.integers(0, 50), st.sampled_from([1, 2, 4, 8, 16]))))
def test_layout_is_that_of_the_twin(counts: list[tuple[int, int]]) -> None:
    sizes = [(count * item, item) for count, item in counts]
    assert native.packed_places(sizes) == twin.packed_places(sizes)


def test_empty(tmp_path: Path) -> None:
    for td in (TensorDict({}, [3]), TensorDict({"a": torch.zeros(0, 2)}, [0]), TensorDict({"n": {}})):
        made = td.consolidate(), td.consolidate(tmp_path / "f"), TensorDict.from_consolidated(tmp_path / "f")
        for one in made:
            same(one, td)
            assert one.is_consolidated()
            assert not len(buffer_of(one))


def test_views_can_be_saved(tmp_path: Path) -> None:
    td = CONTAINERS["nested"]()
    made = td.consolidate(tmp_path / "f")
    made.memmap(tmp_path / "folder")
    same(TensorDict.load_memmap(tmp_path / "folder"), td)
    mapped = TensorDict.load_memmap(tmp_path / "folder").consolidate()
    assert mapped.is_consolidated()
    assert not mapped.is_memmap()
    made.memmap_(tmp_path / "other")
    assert not made.is_consolidated()
    assert made.is_memmap()
    torch.save(td.consolidate(), tmp_path / "pt")
    same(torch.load(tmp_path / "pt", weights_only=False), td)


def test_a_file_is_replaced_not_changed(tmp_path: Path) -> None:
    first = TensorDict({"a": torch.ones(3), "b": torch.ones(3)}).consolidate(tmp_path / "f")
    first.unlock_()["a"] = torch.zeros(3)
    second = first.consolidate(tmp_path / "f")
    assert first["b"].tolist() == [1, 1, 1]
    second["b"].fill_(2)
    assert first["b"].tolist() == [1, 1, 1]
    assert TensorDict.from_consolidated(tmp_path / "f")["b"].tolist() == [2, 2, 2]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["f"]


def test_an_opened_file_is_not_written(tmp_path: Path) -> None:
    TensorDict({"a": torch.ones(3)}).consolidate(tmp_path / "f")
    found = TensorDict.from_consolidated(tmp_path / "f")
    found["a"].fill_(5)
    assert found.is_consolidated()
    assert pickle.loads(pickle.dumps(found))["a"].tolist() == [5, 5, 5]
    assert TensorDict.from_consolidated(tmp_path / "f")["a"].tolist() == [1, 1, 1]


def _add_one(queue: Any, done: Any) -> None:
    td = queue.get()
    td.add_(1)
    done.put(td.is_consolidated())


@pytest.mark.parametrize("file", [False, True])
def test_between_processes_memory_is_shared(file: bool, tmp_path: Path) -> None:
    td = TensorDict({"a": torch.zeros(3), "n": {"b": torch.ones(2)}})
    made = td.consolidate(tmp_path / "f") if file else td.consolidate(share_memory=True)
    context = multiprocessing.get_context("fork")
    queue, done = torch.multiprocessing.get_context("fork").Queue(), context.Queue()
    process = context.Process(target=_add_one, args=(queue, done))
    process.start()
    queue.put(made)
    assert done.get(timeout=60)
    process.join(60)
    assert made["a"].tolist() == [1, 1, 1]
    assert made["n", "b"].tolist() == [2, 2]
    if file:
        assert TensorDict.from_consolidated(tmp_path / "f")["a"].tolist() == [1, 1, 1]


def test_reserved_keys(tmp_path: Path) -> None:
    for key in ("cls", "leaves", "non_tensors", "cls_metadata"):
        td = TensorDict({"x": torch.ones(2), key: {"y": torch.zeros(2)}})
        same(pickle.loads(pickle.dumps(td.consolidate())), td)
        with pytest.raises(ValueError, match=key):
            td.consolidate(tmp_path / "f")
        TensorDict({key: torch.ones(2)}).consolidate(tmp_path / key)
        assert TensorDict.from_consolidated(tmp_path / key)[key].tolist() == [1, 1]


def test_format(tmp_path: Path) -> None:
    """What stands in a file, byte for byte."""
    td = TensorDict({"b": torch.tensor([1, 0, 1], dtype=torch.uint8), "é": {"x": torch.tensor([[7], [8]])}}, [], names=None)
    td.consolidate(tmp_path / "f")
    about = '"cls_metadata": {"device": null, "names": [], "batch_size": [], "is_locked": false}'
    start = '{"cls": "TensorDict", "non_tensors": {}, "leaves": '
    text = start + '{"b": ["torch.uint8", [3], 0, 8, 5]}, ' + about
    text += ', "\\u00e9": ' + start + '{"x": ["torch.int64", [2, 1], 8, 24, 0]}, ' + about + "}}"
    data = bytes([1, 0, 1, 0, 0, 0, 0, 0]) + bytes([7, *[0] * 7, 8, *[0] * 7])
    text += " " * (-(len(data) + len(text) + 8) % 16)
    assert (tmp_path / "f").read_bytes() == data + text.encode() + len(text).to_bytes(8, "little")


def test_damaged_files_are_errors_that_name_them(tmp_path: Path) -> None:
    path = tmp_path / "the file"
    TensorDict({"a": torch.arange(5), "n": {"b": torch.ones(3)}}).consolidate(path)
    whole = path.read_bytes()
    size = int.from_bytes(whole[-8:], "little")
    level = json.loads(whole[-8 - size : -8])
    wrong = [whole[:end] for end in range(0, len(whole), 7)] + [whole[5:], b"x" * 100]
    for leaf in (["torch.int64", [6], 0, 40, 0], ["torch.int64", [5], 4, 44, 0], ["os.system", [5], 0, 40, 0], 3):
        level["leaves"]["a"] = leaf
        text = json.dumps(level).encode()
        wrong.append(whole[: -8 - size] + text + len(text).to_bytes(8, "little"))
    for content in wrong:
        path.write_bytes(content)
        with pytest.raises((ValueError, RuntimeError), match="the file"):
            TensorDict.from_consolidated(path)
    with pytest.raises(FileNotFoundError, match="missing"):
        TensorDict.from_consolidated(tmp_path / "missing")
    with pytest.raises(RuntimeError, match=tmp_path.name):
        TensorDict.from_consolidated(tmp_path)


def test_a_failed_write_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "f"
    TensorDict({"a": torch.ones(3)}).consolidate(path)
    before = path.read_bytes()
    td = TensorDict({"a": torch.ones(100_000), "b": torch.ones(1_000_000)})
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, limits[1]))
    try:
        for inplace in (False, True):
            with pytest.raises(OSError, match=str(path)):
                td.consolidate(path, inplace=inplace)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["f"]
    assert not td.is_locked
    assert not td.is_consolidated()
    with pytest.raises(FileNotFoundError, match="no/f"):
        td.consolidate(tmp_path / "no" / "f")


def test_compiled() -> None:
    def step(td: Any) -> Any:
        made = td.consolidate()
        return made + 1

    td = TensorDict({"a": torch.arange(3.0), "n": {"b": torch.ones(3, 2, dtype=torch.float64)}}, [3])
    out = torch.compile(step, fullgraph=True, backend="eager")(td)
    same(out, td + 1)
    moved = torch.compile(lambda td: td.to("cpu") + 1, fullgraph=True, backend="eager")(td.consolidate())
    same(moved, td + 1)
