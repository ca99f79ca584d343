"""Saving to folders and reading them: values, aliasing, locks and types are those of the reference."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

import tensordict
from tensordict import MemoryMappedTensor, NonTensorStack, TensorClass, TensorDict, lazy_stack
from tensordict._io.memmap import TensorDictFuture

KEYS = [
    "a",
    "x/y.z \u00e9",
    ".",
    "..",
    "",
    "%",
    "%2F",
    "0",
    "meta",
    "meta.json",
    "shape",
    "device",
    "_type",
    "_class",
    "_names",
]


def sample(offset: float = 0.0) -> TensorDict:
    rows = torch.arange(3.0) + offset
    return TensorDict({"a": rows, "n": {"b": rows.view(3, 1).clone(), "e": {}}, "c": (rows * 2).long()}, [3])


def same(left: TensorDict, right: TensorDict) -> bool:
    if left.batch_size != right.batch_size or set(left.keys()) != set(right.keys()):
        return False
    pairs = [(left[key], right[key]) for key in left.keys()]
    return all(torch.equal(a, b) if isinstance(a, Tensor) else same(a, b) for a, b in pairs)


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_round_trip(tmp_path: Path) -> None:
    source = sample()
    saved = source.memmap(tmp_path / "t")
    assert saved is not source
    assert saved.is_locked
    assert saved.is_memmap()
    assert saved.device == torch.device("cpu")
    assert saved.saved_path == tmp_path / "t"
    assert saved["n"].saved_path == tmp_path / "t" / "n"
    assert type(saved["a"]) is MemoryMappedTensor
    assert saved["a"].filename == str(tmp_path / "t" / "a.memmap")
    assert not source.is_locked
    loaded = TensorDict.load_memmap(tmp_path / "t")
    assert same(loaded, source)
    assert list(loaded.keys()) == ["a", "n", "c"]
    assert not loaded.is_locked
    assert not loaded.is_memmap()
    loaded["a"][0] = 7
    assert TensorDict.load(tmp_path / "t")["a"][0] == 7
    assert files(tmp_path / "t") == ["a.memmap", "c.memmap", "meta.json", "n/b.memmap", "n/e/meta.json", "n/meta.json"]


def test_metadata_is_the_documented_one(tmp_path: Path) -> None:
    TensorDict({"a": torch.zeros(3, 2).long(), "b": {}}, [3], names=["t"]).memmap(tmp_path)
    meta = json.loads((tmp_path / "meta.json").read_text())
    assert meta == {
        "a": {"device": "cpu", "shape": [3, 2], "dtype": "torch.int64", "is_nested": False},
        "b": {"type": "TensorDict"},
        "shape": [3],
        "device": "cpu",
        "_type": "<class 'tensordict._td.TensorDict'>",
        "_format_version": 1,
        "_class": "tensordict:TensorDict",
        "_names": ["t"],
    }
    assert TensorDict.load(tmp_path).names == ["t"]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("nested", [False, True])
def test_any_key_comes_back(tmp_path: Path, key: str, nested: bool) -> None:
    if nested and key == "meta.json":
        with pytest.raises(ValueError, match="would both be stored"):
            TensorDict({key: {"q": torch.ones(3)}}, [3]).memmap(tmp_path / "t")
        return
    source = TensorDict({key: {"q": torch.ones(3)} if nested else torch.ones(3), "z": torch.zeros(3)}, [3])
    source.memmap(tmp_path / "t")
    assert same(TensorDict.load_memmap(tmp_path / "t"), source)
    assert os.listdir(tmp_path) == ["t"]


def test_keys_that_leave_the_folder_are_refused(tmp_path: Path) -> None:
    for key in ("..", "x/y", "/x", "."):
        with pytest.raises(ValueError, match="no name for a file"):
            TensorDict({key: {"q": torch.ones(3)}}, [3]).memmap(tmp_path / "t", robust_key=False)
    assert os.listdir(tmp_path) == []


def test_in_place(tmp_path: Path) -> None:
    source = sample()
    leaf = source["a"]
    assert source.memmap_(tmp_path) is source
    assert source.is_memmap()
    assert source["n"].is_locked
    assert type(source["n", "b"]) is MemoryMappedTensor
    assert torch.equal(source["a"], leaf)
    with pytest.raises(RuntimeError, match="locked"):
        source["new"] = torch.zeros(3)
    source.unlock_()
    assert not source.is_memmap()


def test_like_is_zero_and_reads_nothing(tmp_path: Path) -> None:
    like = TensorDict({"a": torch.ones(3, device="meta")}, [3]).memmap_like(tmp_path)
    assert torch.equal(like["a"], torch.zeros(3))
    assert like.is_memmap()
    assert torch.equal(sample().memmap_like()["n", "b"], torch.zeros(3, 1))


def test_without_folder() -> None:
    shared = sample().memmap()
    assert shared.is_memmap()
    assert shared.saved_path is None
    assert same(shared, sample())


def test_mapped_leaves_stay_where_they_are(tmp_path: Path) -> None:
    saved = sample().memmap(tmp_path / "one")
    before = os.stat(tmp_path / "one" / "a.memmap").st_ino
    again = saved.memmap(tmp_path / "one")
    assert again["a"] is saved["a"]
    assert os.stat(tmp_path / "one" / "a.memmap").st_ino == before
    with pytest.raises(RuntimeError, match="already has a file associated"):
        saved.memmap(tmp_path / "two")
    assert not (tmp_path / "two").exists()
    copied = saved.memmap(tmp_path / "two", copy_existing=True)
    assert copied["a"].filename == str(tmp_path / "two" / "a.memmap")
    assert saved.memmap()["a"] is saved["a"]


def test_maps_of_replaced_files_keep_the_old_values(tmp_path: Path) -> None:
    old = sample().memmap(tmp_path)
    sample(10).memmap(tmp_path)
    assert same(old, sample())
    assert same(TensorDict.load(tmp_path), sample(10))
    assert same(old.memmap_refresh_(), sample(10))
    assert old.is_memmap()


def test_two_keys_swap_files(tmp_path: Path) -> None:
    saved = TensorDict({"a": torch.zeros(2), "b": torch.ones(2)}, [2]).memmap(tmp_path)
    TensorDict({"a": saved["b"], "b": saved["a"]}, [2]).memmap(tmp_path, copy_existing=True)
    loaded = TensorDict.load(tmp_path)
    assert torch.equal(loaded["a"], torch.ones(2))
    assert torch.equal(loaded["b"], torch.zeros(2))


def test_replacing_can_be_forbidden(tmp_path: Path) -> None:
    sample().memmap(tmp_path / "t", existsok=False)
    with pytest.raises(RuntimeError, match="already exists"):
        sample(1).memmap(tmp_path / "t", existsok=False)
    assert same(TensorDict.load(tmp_path / "t"), sample())


@pytest.mark.parametrize(
    "leaf",
    [
        torch.arange(6).view(2, 3).t(),
        torch.zeros(1).expand(3),
        torch.tensor([1 + 2j, 3, 4]).conj(),
        torch.tensor([1 + 2j, 3, 4]).conj().imag,
        torch.zeros(3, requires_grad=True),
        torch.nn.Parameter(torch.ones(3)),
        torch.tensor([1.5, 2, 3]).bfloat16(),
        torch.zeros(3, dtype=torch.uint16),
        torch.zeros(3).to(torch.float8_e4m3fn),
        torch.ones(3, dtype=torch.complex128),
        torch.tensor([True, False, True]),
        torch.zeros(3, 0),
    ],
)
def test_leaves_of_every_kind(tmp_path: Path, leaf: Tensor) -> None:
    TensorDict({"a": leaf}, [3]).memmap(tmp_path)
    loaded = TensorDict.load(tmp_path)["a"]
    assert loaded.dtype == leaf.dtype
    assert loaded.shape == leaf.shape
    raw = leaf.detach().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format).view(-1)
    assert torch.equal(loaded.reshape(-1).view(torch.uint8), raw.view(torch.uint8))
    assert not loaded.requires_grad


@pytest.mark.parametrize(
    ("leaf", "error"),
    [
        (torch.eye(3).to_sparse(), RuntimeError),
        (torch.zeros(3, device="meta"), NotImplementedError),
    ],
)
def test_leaves_without_plain_values_are_refused(tmp_path: Path, leaf: Tensor, error: type[Exception]) -> None:
    with pytest.raises(error):
        TensorDict({"z": torch.ones(3), "a": leaf}, [3]).memmap(tmp_path / "t")
    assert os.listdir(tmp_path) == []


def test_parts_are_read_alone(tmp_path: Path) -> None:
    source = sample()
    source["n", "e", "f"] = torch.ones(3)
    source.memmap(tmp_path)
    (tmp_path / "a.memmap").write_bytes(b"broken")
    assert same(TensorDict.load_memmap(tmp_path, subpath="n"), source["n"])
    assert same(TensorDict.load_memmap(tmp_path, subpath=("n", "e")), source["n", "e"])
    assert same(TensorDict.load_memmap(tmp_path, subpath="n/e"), source["n", "e"])
    for missing in ("zz", "n.e", ("n", "b"), "../x"):
        with pytest.raises(ValueError, match="No tensordict found under subpath"):
            TensorDict.load_memmap(tmp_path, subpath=missing)
    for wrong in ((), ["n"]):
        with pytest.raises(ValueError, match="subpath must be"):
            TensorDict.load_memmap(tmp_path, subpath=wrong)


def test_modes(tmp_path: Path) -> None:
    sample().memmap(tmp_path)
    TensorDict.load_memmap(tmp_path, mode="r")["a"].fill_(9)
    assert torch.equal(TensorDict.load(tmp_path)["a"], torch.arange(3.0))
    TensorDict.load_memmap(tmp_path, mode="r+")["a"].fill_(9)
    assert torch.equal(TensorDict.load(tmp_path)["a"], torch.full((3,), 9.0))
    with pytest.raises(ValueError, match="mode must be"):
        TensorDict.load_memmap(tmp_path, mode="w")


def test_into_another_tensordict(tmp_path: Path) -> None:
    sample().memmap(tmp_path)
    out = sample(5)
    assert TensorDict.load_memmap(tmp_path, out=out) is out
    assert same(out, sample())
    target = TensorDict({"a": torch.zeros(3), "other": torch.zeros(3)}, [3])
    assert target.load_memmap_(tmp_path) is target
    assert same(target, sample())
    with pytest.raises(RuntimeError, match="batch"):
        TensorDict({}, [4]).load_memmap_(tmp_path)
    with pytest.raises(RuntimeError, match="locked"):
        target.lock_().load_memmap_(tmp_path)
    with pytest.warns(DeprecationWarning, match="load_memmap_"):
        sample().load_(tmp_path)
    assert TensorDict.load_memmap(tmp_path, device="meta")["a"].device.type == "meta"


def test_futures(tmp_path: Path) -> None:
    future = sample().memmap(tmp_path / "a", return_early=True, num_threads=2)
    assert isinstance(future, TensorDictFuture)
    assert same(future.result(), sample())
    source = sample()
    assert source.memmap_(tmp_path / "b", return_early=True, num_threads=2).result() is source
    assert not isinstance(sample().memmap(tmp_path / "c", return_early=True), TensorDictFuture)


def test_functions_of_the_package(tmp_path: Path) -> None:
    tensordict.save(sample(), tmp_path / "a")
    assert same(tensordict.load(tmp_path / "a"), sample())
    assert tensordict.memmap(sample(), tmp_path / "b").is_memmap()
    assert same(tensordict.load_memmap(tmp_path / "b", subpath="n"), sample()["n"])
    sample().dumps(tmp_path / "c")
    assert same(TensorDict.load(tmp_path / "c"), sample())


def test_entries_are_added(tmp_path: Path) -> None:
    saved = sample().memmap(tmp_path)
    made = saved.make_memmap("x", (3, 2), dtype=torch.int8)
    assert type(made) is MemoryMappedTensor
    assert saved["x"] is made
    made.fill_(3)
    saved.make_memmap_from_tensor(("n", "t"), torch.ones(3))
    saved.make_memmap_from_tensor(("q", "r", "t"), torch.ones(3) * 2, copy_data=False)
    assert saved.is_locked
    assert saved["q", "r"].is_locked
    assert saved["q", "r"].saved_path == tmp_path / "q" / "r"
    saved.make_memmap_from_storage("s", torch.arange(3.0).untyped_storage(), (3,), dtype=torch.float32)
    own = torch.UntypedStorage.from_file(str(tmp_path / "own.memmap"), True, 12)
    saved.make_memmap_from_storage("own", own, (3,), dtype=torch.float32)
    assert same(TensorDict.load(tmp_path), saved)
    assert torch.equal(TensorDict.load(tmp_path)["x"], torch.full((3, 2), 3, dtype=torch.int8))
    with pytest.raises(RuntimeError, match="already exists"):
        saved.make_memmap("x", (3, 2))
    with pytest.raises(RuntimeError, match="batch"):
        saved.make_memmap("y", (4,))
    with pytest.raises(RuntimeError, match="not permitted"):
        saved.make_memmap_from_storage("y", torch.UntypedStorage.from_file(str(tmp_path / "no"), True, 12), (3,))
    with pytest.raises(RuntimeError, match="within a memory-mapped"):
        sample().make_memmap("y", (3,))
    assert torch.equal(sample().memmap().make_memmap("y", (3,)), torch.zeros(3))


class Held(TensorClass):
    inner: TensorDict
    x: Tensor


@pytest.mark.parametrize("robust_key", [True, False])
@pytest.mark.parametrize("asked", [True, False])
def test_parts_are_found_however_they_are_spelled(tmp_path: Path, robust_key: bool, asked: bool) -> None:
    deep = TensorDict({"e f": {"v": torch.arange(3)}, "v": torch.ones(3)}, [3])
    held = Held(inner=deep.clone(), x=torch.zeros(3), batch_size=[3])
    source = TensorDict({"k%y": deep.clone(), "held": held, "twice": Held(inner=held, x=torch.ones(3), batch_size=[3])}, [3])
    source.memmap(tmp_path, robust_key=robust_key)
    for key in (("k%y",), ("k%y", "e f"), ("held",), ("held", "inner"), ("held", "inner", "e f"), ("twice", "inner", "inner")):
        for part in (key, "/".join(key)):
            found = TensorDict.load_memmap(tmp_path, subpath=part, robust_key=asked)
            assert type(found) is type(source[key])
            assert (found == source[key]).all()
    for missing in (("held", "x"), ("held", "nothing"), ("twice", "inner", "e f"), "k%y/../held"):
        with pytest.raises(ValueError, match="No tensordict found under subpath"):
            TensorDict.load_memmap(tmp_path, subpath=missing, robust_key=asked)


@pytest.mark.parametrize("robust_key", [True, False])
def test_a_level_that_was_made_knows_its_folder(tmp_path: Path, robust_key: bool) -> None:
    saved = TensorDict({"x": torch.zeros(3)}, [3]).memmap_(tmp_path)
    other = TensorDict.load_memmap(tmp_path).memmap_(tmp_path)
    saved.make_memmap(("k%y", "v"), (3,), robust_key=robust_key)
    # Here that level is not known yet, and its folder is there.
    other.make_memmap(("k%y", "w"), (3,), robust_key=not robust_key)
    assert other["k%y"].saved_path == saved["k%y"].saved_path == Path(other["k%y", "w"].filename).parent
    assert set(other["k%y"].memmap_refresh_().keys()) == {"v", "w"}


def test_rows_are_appended(tmp_path: Path) -> None:
    sample().memmap(tmp_path)
    tensordict.append_memmap(tmp_path, sample(10))
    loaded = TensorDict.load(tmp_path)
    assert loaded.batch_size == (6,)
    assert loaded["n"].batch_size == (6,)
    assert torch.equal(loaded["a"], torch.tensor([0.0, 1, 2, 10, 11, 12]))
    for rows in (sample()[0], sample().select("a"), TensorDict({**sample(), "a": torch.zeros(3, 2)}, [3])):
        with pytest.raises(ValueError, match=r"append|Cannot append"):
            tensordict.append_memmap(tmp_path, rows)
    with pytest.raises(TypeError):
        tensordict.append_memmap(tmp_path, torch.zeros(3))
    with pytest.raises(ValueError, match="is not one"):
        tensordict.append_memmap(tmp_path / "no", sample())
    assert TensorDict.load(tmp_path).batch_size == (6,)


def test_from_schema(tmp_path: Path) -> None:
    schema = {"a": ((2,), torch.float32), ("m", "c"): ((), torch.bool)}
    plain = TensorDict.from_schema(schema, batch_size=[3])
    assert plain["a"].shape == (3, 2)
    assert plain["m"].batch_size == (3,)
    assert torch.equal(plain["m", "c"], torch.zeros(3, dtype=torch.bool))
    mapped = TensorDict.from_schema(schema, batch_size=[3], storage="memmap", prefix=tmp_path)
    assert mapped.is_memmap()
    assert same(TensorDict.load(tmp_path), plain)
    with pytest.raises(ValueError, match="Unknown storage backend"):
        TensorDict.from_schema(schema, storage="cpu")


def test_older_folders_are_read(tmp_path: Path) -> None:
    """The reference's early versions wrote neither version nor class; and did not encode keys."""
    meta = {
        "x y": {"device": "cpu", "shape": [2], "dtype": "torch.int64", "is_nested": False},
        "shape": [2],
        "device": "cpu",
        "_type": "<class 'tensordict._td.TensorDict'>",
    }
    (tmp_path / "meta.json").write_text(json.dumps(meta))
    (tmp_path / "x y.memmap").write_bytes(torch.arange(2).numpy().tobytes() + b"\n")
    assert torch.equal(TensorDict.load(tmp_path)["x y"], torch.arange(2))


def test_a_level_of_another_class_is_named(tmp_path: Path) -> None:
    sample().memmap(tmp_path)
    (tmp_path / "n" / "meta.json").write_text('{"_type": "<class \'x.Y\'>", "data": 1}')
    with pytest.raises(RuntimeError, match=r"'n'.*x\.Y"):
        TensorDict.load(tmp_path)


@pytest.mark.parametrize("replacing", [False, True])
def test_durable(tmp_path: Path, replacing: bool) -> None:
    td = TensorDict({"a": torch.arange(3), "n": {"b": torch.ones(3, 2)}}, [3])
    if replacing:
        (td * 0).memmap(tmp_path / "t")
    td.memmap(tmp_path / "t", durable=True)
    assert (TensorDict.load_memmap(tmp_path / "t") == td).all()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t"]


class TestRefresh:
    def test_nodes_that_others_hold_stay(self, tmp_path):
        mapped = TensorDict({"a": torch.zeros(3), "n": {"b": torch.zeros(3), "m": {"c": torch.zeros(3)}}}, [3]).memmap_(
            tmp_path
        )
        node, below = mapped["n"], mapped["n", "m"]
        new = {"a": torch.ones(4), "n": {"b": torch.ones(4), "m": {"c": torch.ones(4), "d": torch.ones(4, 2)}}}
        TensorDict(new, [4]).memmap(tmp_path)
        assert mapped.memmap_refresh_() is mapped
        assert mapped["n"] is node
        assert mapped["n", "m"] is below
        assert (mapped.batch_size, node.batch_size, below.batch_size) == ((4,),) * 3
        assert node["b"].tolist() == [1] * 4
        assert below["d"].tolist() == [[1, 1]] * 4
        assert all(part.is_memmap() and part.is_locked for part in (mapped, node, below))

    def test_what_cannot_be_refreshed_stays(self, tmp_path):
        mapped = TensorDict({"a": torch.zeros(3), "n": {"b": torch.zeros(3)}}, [3]).memmap_(tmp_path)
        members = [TensorDict({"b": torch.zeros(size)}) for size in (2, 3, 4)]
        TensorDict({"a": torch.ones(3), "n": lazy_stack(members)}, [3]).memmap(tmp_path)
        mapped.memmap_refresh_()
        assert mapped["n"].stack_dim == 0
        TensorDict({"a": torch.ones(2), "n": lazy_stack(members[:2])}, [2]).memmap(tmp_path)
        with pytest.raises(RuntimeError, match=r"'n'.*a stack of 2 members.*a stack of 3 members"):
            mapped.memmap_refresh_()
        assert mapped.is_memmap()
        assert mapped.is_locked
        assert mapped.batch_size == (3,)
        assert mapped["a"].tolist() == [1, 1, 1]

    def test_stacks_are_refreshed_member_by_member(self, tmp_path):
        stack = lazy_stack([TensorDict({"b": torch.zeros(size)}) for size in (2, 3)]).memmap_(tmp_path)
        first = stack.tensordicts[0]
        lazy_stack([TensorDict({"b": torch.ones(size)}) for size in (4, 5)]).memmap(tmp_path)
        stack.memmap_refresh_()
        assert stack.tensordicts[0] is first
        assert [member["b"].tolist() for member in stack.tensordicts] == [[1] * 4, [1] * 5]

    def test_members_of_other_classes_and_objects_are_replaced(self, tmp_path):
        stack = lazy_stack([TensorDict({"x": torch.zeros(2)}, [2])] * 2).memmap(tmp_path / "stack")
        lazy_stack([TensorDict({"x": torch.ones(2)}, [2]), Fields(torch.ones(2), batch_size=[2])]).memmap(tmp_path / "stack")
        stack.memmap_refresh_()
        assert [type(member) for member in stack.tensordicts] == [TensorDict, Fields]
        assert stack.tensordicts[1].x.tolist() == [1, 1]
        assert stack.is_memmap()
        words = NonTensorStack("a", "b").memmap(tmp_path / "words")
        NonTensorStack("c", "d").memmap(tmp_path / "words")
        assert words.memmap_refresh_().tolist() == ["c", "d"]

    def test_who_holds_whom_is_as_before(self, tmp_path):
        data = {
            "a": torch.zeros(3),
            "n": {"m": {"c": torch.zeros(3)}},
            "s": lazy_stack([TensorDict({"x": torch.zeros(3)}, [3])]),
        }
        mapped = TensorDict(data, []).memmap_(tmp_path)
        nodes = [mapped["n"], mapped["n", "m"], mapped["s"], mapped["s"].tensordicts[0]]
        held = [len(node._extra["parents"]) for node in nodes]
        for _ in range(3):
            mapped.memmap_refresh_()
        assert [len(node._extra["parents"]) for node in nodes] == held
        for node in nodes:
            with pytest.raises(RuntimeError, match="locked graph"):
                node.unlock_()
        mapped.unlock_()
        assert not any(node.is_locked for node in nodes)

    def test_what_is_new_is_held_like_the_rest(self, tmp_path):
        mapped = TensorDict({"a": torch.zeros(3)}, [3]).memmap_(tmp_path)
        TensorDict({"a": torch.ones(3), "n": {"m": {"c": torch.ones(3)}}}, [3]).memmap(tmp_path)
        mapped.memmap_refresh_()
        for node in (mapped["n"], mapped["n", "m"]):
            assert (node.is_locked, node.is_memmap()) == (True, True)
            assert [holder() for holder in node._lock_parents_weakrefs][-1] is mapped
            with pytest.raises(RuntimeError, match="locked graph"):
                node.unlock_()
        assert mapped["n", "m"].saved_path == tmp_path / "n" / "m"

    @pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # in generators that are closed
    def test_one_that_is_broken_off_leaves_it_locked_and_mapped(self, tmp_path):
        """By a signal, whose handler runs where a function is entered, or where one written in C returns."""
        mapped = TensorDict({"a": torch.zeros(3), "n": {"b": torch.zeros(3), "m": {"c": torch.zeros(3)}}}, [3]).memmap_(
            tmp_path
        )
        TensorDict({"a": torch.ones(3), "n": {"b": torch.ones(3), "m": {"c": torch.ones(3)}}}, [3]).memmap(tmp_path)
        number, left = 0, 0

        def profile(frame, event, argument):
            nonlocal left
            left -= event in ("call", "c_return")
            if left == 0:
                sys.setprofile(None)
                raise KeyboardInterrupt

        while left <= 0:
            number += 1
            left = number
            try:
                sys.setprofile(profile)
                mapped.memmap_refresh_()
                sys.setprofile(None)
            except KeyboardInterrupt:
                pass
            for node in (mapped, mapped["n"], mapped["n", "m"]):
                assert (node.is_locked, node.is_memmap()) == (True, True), number
            assert mapped.saved_path == tmp_path
        assert number > 50
        assert mapped["n", "m", "c"].tolist() == [1, 1, 1]


class Fields(TensorClass):
    x: torch.Tensor
    y: torch.Tensor | None = None


def test_a_key_that_is_no_field_is_not_written(tmp_path):
    alone = Fields(torch.zeros(3), batch_size=[3]).memmap_(tmp_path / "alone")
    inside = TensorDict({"n": Fields(torch.zeros(3), batch_size=[3])}, [3]).memmap_(tmp_path / "inside")
    for mapped, key in ((alone, "z"), (inside, ("n", "z"))):
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(ValueError, match="'z'"):
            mapped.make_memmap(key, (3, 2))
        with pytest.raises(ValueError, match="'z'"):
            mapped.make_memmap_from_tensor(key, torch.zeros(3, 2))
        assert sorted(tmp_path.rglob("*")) == before
        mapped.memmap_refresh_()
    alone.make_memmap("y", (3, 2)).fill_(2)
    assert Fields.load_memmap(tmp_path / "alone").y.tolist() == [[2, 2]] * 3


def test_what_is_mapped_in_place_in_the_background_is_locked_at_once(tmp_path: Path) -> None:
    source = TensorDict({"a": torch.ones(3)}, [3])
    future = source.memmap_(tmp_path / "a", return_early=True, num_threads=2)
    with pytest.raises(RuntimeError, match="locked"):
        source["b"] = torch.zeros(3)
    assert future.result() is source
    assert source.is_locked
    assert set(TensorDict.load_memmap(tmp_path / "a").keys()) == {"a"}


def test_what_cannot_be_mapped_in_the_background_is_unlocked_again(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    source = TensorDict({"a": torch.ones(3)}, [3])
    future = source.memmap_(tmp_path / "file" / "a", return_early=True, num_threads=2)
    with pytest.raises(OSError, match="file"):
        future.result()
    assert not source.is_locked
    assert not source.is_memmap()
    source["b"] = torch.zeros(3)
