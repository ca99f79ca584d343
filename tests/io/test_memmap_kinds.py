"""What is kept of awkward values, stacks and paths in folders."""

from __future__ import annotations

import json
import os
import pickle
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import pytest
import torch

from tensordict import NonTensorData, NonTensorStack, TensorClass, TensorDict, append_memmap, lazy_stack


def nested_list(depth: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


VALUES = [
    2**70,
    [2**70, 1, -(2**80)],
    {"a": {"b": 2**64}},
    10**400,
    0.1,
    -0.0,
    float("inf"),
    float("nan"),
    1e308,
    "\ud800",
    "\x00\u2028",
    {"type": "cat"},
    {"shape": [3], "dtype": "torch.float32"},
    {"_type": 1, "0": {}},
    nested_list(300),
    (1, (2, [3])),
    None,
    True,
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:20])
def test_objects_come_back_as_they_were(tmp_path: Path, value: Any) -> None:
    TensorDict({"o": NonTensorData(value)}).memmap(tmp_path / "one")
    assert repr(TensorDict.load_memmap(tmp_path / "one").get("o").data) == repr(value)
    TensorDict({"o": NonTensorStack(NonTensorData(value), NonTensorData(1))}, [2]).memmap(tmp_path / "two")
    found = TensorDict.load_memmap(tmp_path / "two").get("o").tolist()
    assert repr(found) == repr([value, 1])


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def stack(count: int) -> TensorDict:
    return lazy_stack([TensorDict({"b": torch.ones(place + 1)}) for place in range(count)])


def test_what_a_save_no_longer_has_goes(tmp_path: Path) -> None:
    plain = ["a.memmap", "meta.json"]
    dense = TensorDict({"a": torch.ones(2)}, [2])
    for old in (
        stack(3),
        TensorDict({"a": stack(2), "n": {"s": stack(12)}}, []),
        TensorDict({"o": NonTensorData({1, 2})}, []),
        TensorDict({"o": NonTensorStack({1}, "x"), "a": torch.ones(2)}, [2]),
        TensorDict({"j": torch.nested.nested_tensor([torch.ones(1), torch.ones(2)], layout=torch.jagged)}, [2]),
        TensorDict({"deep": {"er": {"a": torch.ones(2)}}}, []),
    ):
        old.memmap(tmp_path)
        (tmp_path / "theirs.memmap").write_bytes(b"x")
        dense.memmap(tmp_path)
        assert names(tmp_path) == sorted([*plain, "theirs.memmap"])
        (tmp_path / "theirs.memmap").unlink()
    stack(3).memmap(tmp_path)
    stack(2).memmap(tmp_path)
    assert names(tmp_path) == ["0", "0/b.memmap", "0/meta.json", "1", "1/b.memmap", "1/meta.json", "meta.json"]
    NonTensorData({1}).memmap(tmp_path / "o")
    NonTensorData(1).memmap(tmp_path / "o")
    assert names(tmp_path / "o") == ["meta.json"]


def test_a_folder_is_known_by_its_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    data = TensorDict({"a": torch.ones(3), "o": NonTensorData("x", batch_size=[3]), "n": {"b": torch.ones(3)}}, [3])
    mapped, loaded = data.memmap("set"), TensorDict.load_memmap("set")
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    assert mapped.saved_path == tmp_path / "set"
    assert mapped["n"].saved_path == tmp_path / "set" / "n"
    mapped.make_memmap("z", (3,))
    mapped["n"].make_memmap("y", (3,))
    mapped.get("o").update(NonTensorData("new", batch_size=[3]), inplace=True)
    mapped.memmap_refresh_()
    assert mapped["o"] == "new"
    assert loaded["n"].keys() == {"b"}
    assert set(TensorDict.load_memmap(tmp_path / "set").keys(True, True)) == {"a", "z", ("n", "b"), ("n", "y")}
    assert names(tmp_path / "below") == []


class Pair(TensorClass):
    """A class with a tensor and a text."""

    x: torch.Tensor
    text: str


def test_the_folder_of_a_class_says_what_the_other_package_says(tmp_path: Path) -> None:
    Pair(x=torch.ones(3), text="a", batch_size=[3]).memmap(tmp_path)
    assert list(json.loads((tmp_path / "meta.json").read_text())) == ["_type"]
    assert (tmp_path / "_tensordict" / "meta.json").exists()


def test_entries_are_added_below_a_class(tmp_path: Path) -> None:
    data = TensorDict({"pair": Pair(x=torch.ones(3), text="a", batch_size=[3])}, [3]).memmap(tmp_path)
    data["pair"]._tensordict.make_memmap("y", (3,))
    assert (tmp_path / "pair" / "_tensordict" / "y.memmap").exists()
    inner = TensorDict.load_memmap(tmp_path / "pair" / "_tensordict")
    assert inner.keys() == {"x", "text", "y"}


def test_verbatim_names_are_those_of_the_levels(tmp_path: Path) -> None:
    mapped = TensorDict({"a b": {"c": torch.ones(3)}}, [3]).memmap(tmp_path, robust_key=False)
    assert mapped["a b"].saved_path == tmp_path / "a b"
    mapped["a b"].make_memmap("d", (3,), robust_key=False)
    assert (tmp_path / "a b" / "d.memmap").exists()
    assert TensorDict.load_memmap(tmp_path, robust_key=False)["a b"].keys() == {"c", "d"}


def test_surrogates_in_keys_are_named(tmp_path: Path) -> None:
    for data in (TensorDict({"\ud800": torch.ones(1)}), TensorDict({"\ud800": {"a": torch.ones(1)}})):
        with pytest.raises(ValueError, match=r"the key '\\ud800' cannot be stored"):
            data.memmap(tmp_path / "set")
    assert not (tmp_path / "set").exists()


def test_members_that_are_missing_are_an_error(tmp_path: Path) -> None:
    stack(3).memmap(tmp_path)
    for place in ("1", "0"):
        os.rename(tmp_path / place, tmp_path / f"gone{place}")
        with pytest.raises((ValueError, FileNotFoundError), match=str(tmp_path)):
            TensorDict.load_memmap(tmp_path)
    (tmp_path / "meta.json").write_text((tmp_path / "meta.json").read_text().replace('"0"', '"00"').replace('"1"', '"11"'))
    with pytest.raises((ValueError, FileNotFoundError), match=str(tmp_path)):
        TensorDict.load_memmap(tmp_path)


def test_leaves_whose_files_were_replaced_are_saved_and_sent_as_they_are(tmp_path: Path) -> None:
    def make(value: float) -> TensorDict:
        return TensorDict({"a": torch.full((3,), value), "n": {"b": torch.full((3,), value)}, "v": torch.tensor(value)})

    old = make(1.0).memmap(tmp_path)
    make(2.0).memmap(tmp_path)
    copies = [pickle.loads(pickle.dumps(old)), pickle.loads(ForkingPickler.dumps(old))]
    plain = pickle.loads(ForkingPickler.dumps(old["a"][1:].as_subclass(torch.Tensor)))
    assert plain.tolist() == [1.0, 1.0]
    for found in (old, *copies):
        assert {float(leaf.max()) for leaf in found.values(True, True)} == {1.0}
    old.memmap(tmp_path)
    assert {float(leaf.max()) for leaf in TensorDict.load_memmap(tmp_path).values(True, True)} == {1.0}
    # one that still is its file is left alone, and sent by name
    new = TensorDict.load_memmap(tmp_path)
    number = (tmp_path / "a.memmap").stat().st_ino
    new.memmap(tmp_path)
    assert (tmp_path / "a.memmap").stat().st_ino == number
    pickle.loads(pickle.dumps(new))["a"].fill_(5)
    assert new["a"].tolist() == [5.0, 5.0, 5.0]


def test_what_was_written_to_private_maps_is_saved(tmp_path: Path) -> None:
    TensorDict({"a": torch.ones(3), "b": torch.ones(3)}, [3]).memmap(tmp_path)
    private = TensorDict.load_memmap(tmp_path, mode="r")
    private["a"].fill_(9)
    private.memmap(tmp_path)
    assert TensorDict.load_memmap(tmp_path)["a"].tolist() == [9.0, 9.0, 9.0]


@pytest.mark.parametrize("change", ["data", "set_", "transposed"])
def test_leaves_that_were_given_other_memory_are_saved_and_sent(tmp_path: Path, change: str) -> None:
    mapped = TensorDict({"a": torch.arange(6.0).reshape(2, 3)}, []).memmap(tmp_path)
    leaf = mapped["a"]
    if change == "data":
        leaf.data = torch.full((2, 3), 5.0)
    elif change == "set_":
        leaf.set_(torch.full((2, 3), 5.0))
    else:
        leaf.t_()
    wanted = leaf.tolist()
    assert pickle.loads(pickle.dumps(leaf)).tolist() == wanted
    mapped.memmap(tmp_path)
    assert TensorDict.load_memmap(tmp_path)["a"].tolist() == wanted


class Masked(TensorClass):
    """A class with an optional field."""

    x: torch.Tensor
    mask: torch.Tensor | None = None


def test_entries_are_added_to_a_class_itself(tmp_path: Path) -> None:
    mapped = Masked(x=torch.ones(3), batch_size=[3]).memmap(tmp_path / "root")
    mapped.make_memmap_from_tensor("mask", torch.full((3,), 5.0))
    assert Masked.load_memmap(tmp_path / "root").mask.tolist() == [5.0] * 3
    data = TensorDict({"t": Masked(x=torch.ones(3), batch_size=[3])}, [3]).memmap(tmp_path / "nested")
    data["t"].make_memmap_from_tensor("mask", torch.full((3,), 5.0))
    assert TensorDict.load_memmap(tmp_path / "nested")["t"].mask.tolist() == [5.0] * 3


def test_a_moved_folder_is_not_made_again(tmp_path: Path) -> None:
    mapped = TensorDict({"a": torch.ones(3)}, [3]).memmap(tmp_path / "d")
    (tmp_path / "d").rename(tmp_path / "e")
    with pytest.raises(FileNotFoundError, match=str(tmp_path / "d")):
        mapped.make_memmap("q", (3,))
    assert not (tmp_path / "d").exists()
    assert mapped.keys() == {"a"}


def test_files_that_must_not_be_replaced_stay(tmp_path: Path) -> None:
    TensorDict({"a": torch.ones(3)}, [3]).memmap(tmp_path)
    TensorDict({"b": torch.ones(3)}, [3]).memmap(tmp_path, existsok=False)
    assert (tmp_path / "a.memmap").exists()


def test_a_data_set_does_not_say_what_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    TensorDict({"a": torch.ones(3)}, [3]).memmap(tmp_path / "set" / "_tensordict")
    (tmp_path / "set" / "evil.py").write_text("raise SystemExit('code runs')")
    (tmp_path / "set" / "meta.json").write_text("""{"_type": "<class 'set.evil.X'>"}""")
    with pytest.raises(RuntimeError, match="import its module first"):
        TensorDict.load_memmap(tmp_path / "set")


def test_rows_with_another_object_reach_the_folder(tmp_path: Path) -> None:
    for number, write in enumerate(("setitem", "update_at_", "nested")):
        source = TensorDict({"a": torch.zeros(3), "u": NonTensorData("old", batch_size=[3])}, [3])
        mapped = TensorDict({"n": source}, [3]).memmap(tmp_path / str(number))
        row = TensorDict({"a": torch.ones(()), "u": NonTensorData("new")})
        if write == "setitem":
            mapped["n"][0] = row
        elif write == "update_at_":
            mapped["n"].update_at_(row, 0)
        else:
            mapped[0] = TensorDict({"n": row})
        for found in (mapped, TensorDict.load_memmap(tmp_path / str(number)), mapped.memmap_refresh_()):
            assert found["n"].get("u").tolist() == ["new", "old", "old"]
            assert found["n", "a"].tolist() == [1.0, 0.0, 0.0]


def test_a_node_of_fewer_batch_dimensions(tmp_path: Path) -> None:
    data = TensorDict({"n": {"b": torch.zeros(3, 4)}}, [3])
    data["n"].batch_size = []
    data.memmap(tmp_path)
    found = TensorDict.load_memmap(tmp_path)
    assert found.batch_size == torch.Size([3])
    assert found["n"].batch_size == torch.Size([])
    assert found["n", "b"].shape == torch.Size([3, 4])


def test_a_pair_of_surrogates_stays_two(tmp_path: Path) -> None:
    value = "\ud83d" + "\ude00"
    TensorDict({"o": NonTensorData(value)}).memmap(tmp_path)
    assert TensorDict.load_memmap(tmp_path)["o"] == value


def test_appends_that_would_lose_something_are_refused(tmp_path: Path) -> None:
    TensorDict({"a": torch.zeros(3), "o": NonTensorData("x", batch_size=[3])}, [3]).memmap(tmp_path)
    rows = TensorDict({"a": torch.ones(3), "o": NonTensorData("y", batch_size=[3])}, [3])
    with pytest.raises(ValueError, match="'o'"):
        append_memmap(tmp_path, rows)
    assert TensorDict.load_memmap(tmp_path)["o"] == "x"


def test_what_was_sent_by_name_is_not_taken_from_another_save(tmp_path: Path) -> None:
    mapped = TensorDict({"a": torch.ones(3)}, [3]).memmap(tmp_path)
    whole, row = bytes(ForkingPickler.dumps(mapped)), bytes(ForkingPickler.dumps(mapped["a"][1:].as_subclass(torch.Tensor)))
    assert pickle.loads(whole)["a"].tolist() == [1.0] * 3
    assert pickle.loads(row).tolist() == [1.0] * 2
    TensorDict({"a": torch.zeros(3)}, [3]).memmap(tmp_path)
    for sent in (whole, row):
        with pytest.raises(RuntimeError, match=r"a\.memmap was replaced"):
            pickle.loads(sent)


KINDS: dict[str, Any] = {
    "leaf": lambda value: torch.full((3,), value),
    "node": lambda value: TensorDict(
        {"deep": {"c": torch.full((3,), value)}, "other.pickle": {"c": torch.full((3,), value)}}, [3]
    ),
    "object": lambda value: NonTensorData(f"text {value}", batch_size=[3]),
    "pickled": lambda value: NonTensorData((value, {1}), batch_size=[3]),
    "objects": lambda value: NonTensorStack(*[f"text {value}"] * 3),
    "stack": lambda value: lazy_stack([TensorDict({"c": torch.full((2,), value)}) for _ in range(3)]),
    "empty": lambda value: torch.zeros(3, 0),
}


@pytest.mark.parametrize("old", KINDS)
@pytest.mark.parametrize("new", KINDS)
def test_an_entry_takes_the_place_of_one_of_another_kind(tmp_path: Path, old: str, new: str) -> None:
    for old_key in ("a", "a.memmap", "a.memmap.memmap"):
        for new_key in ("a", "a.memmap"):
            folder, fresh = tmp_path / f"{old_key} {new_key}", tmp_path / f"fresh {old_key} {new_key}"
            TensorDict({old_key: KINDS[old](1.0), "n": {old_key: KINDS[old](1.0)}}, [3]).memmap(folder)
            wanted = TensorDict({new_key: KINDS[new](2.0), "n": {new_key: KINDS[new](2.0)}}, [3])
            wanted.clone().memmap(folder)
            wanted.clone().memmap(fresh)
            assert names(folder) == names(fresh)
            found, like = (TensorDict.load_memmap(place, allow_pickle=True) for place in (folder, fresh))
            assert found.to_dict().keys() == {new_key, "n"}
            assert repr(found.to_dict()) == repr(like.to_dict()).replace("fresh ", "")
