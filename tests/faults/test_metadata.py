"""Metadata that is not what it must be: one kind of error, which names the file, whatever is wrong where."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tensordict import (
    MetaData,
    NonTensorData,
    NonTensorStack,
    TensorClass,
    TensorDict,
    is_tensor_collection,
    lazy_stack,
)
from tensordict._kernel.errors import MissingFileError, UnreadableError

pytestmark = pytest.mark.filterwarnings("ignore:.*nested tensors is in prototype stage:UserWarning")


class Described(TensorClass):
    rows: torch.Tensor
    label: str


class Other:
    """Pickled, as JSON has no such objects."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Other)

    __hash__ = object.__hash__


def everything() -> TensorDict:
    """An entry of each kind that has metadata of its own."""
    rows = torch.arange(6.0).reshape(3, 2)
    parts = [torch.ones(2, 2), torch.ones(3, 2), torch.ones(1, 2)]
    return TensorDict(
        {
            "leaf": rows,
            "empty": torch.zeros(3, 0),
            "nested": {"leaf": rows},
            "strided": torch.nested.nested_tensor(parts, layout=torch.strided),
            "jagged": torch.nested.nested_tensor(parts, layout=torch.jagged),
            "stack": lazy_stack([TensorDict({"leaf": torch.ones(size)}, []) for size in (1, 2, 3)]),
            "object": NonTensorData({"some": ["text", 1]}, batch_size=[3]),
            "pickled": NonTensorData(Other(), batch_size=[3]),
            "constant": MetaData("text", batch_size=[3]),
            "objects": NonTensorStack("a", "b", "c"),
            "pickles": NonTensorStack(Other(), Other(), Other()),
            "class": Described(rows=rows, label="text", batch_size=[3]),
        },
        batch_size=[3],
        names=["time"],
    )


ODD: list[Any] = [
    None,
    True,
    -1,
    0,
    7,
    2**63,
    10**400,
    1.5,
    1e300,
    "",
    "text",
    "torch.int8",
    "../a",
    "pickle.pkl",
    [],
    {},
    [2**62, 2**62],
    [-1],
    [3, 2, None],
    ["time", "time"],
    [[]],
    {"type": "TensorDict"},
    {"type": 3},
    {"shape": [3], "dtype": "torch.float32"},
    {"shape": None, "dtype": None},
    {"is_nested": True},
    "tensordict:TensorDict",
    "tensordict:LazyStackedTensorDict",
    "tensordict:NonTensorStack",
    "<class 'tensordict._td.TensorDict'>",
    "<class 'tensordict.tensorclass.NonTensorData'>",
    f"<class '{__name__}.Described'>",
]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something is in JSON, from the outermost on."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from places(item, (*path, key))


def variants(meta: Any) -> Iterator[tuple[str, Any]]:
    """Metadata with one place that is not there, is something else, is twice there, or holds one thing more."""
    for path in places(meta):
        for odd in ODD:
            changed = copy.deepcopy({"root": meta})
            at: Any = changed
            for key in ("root", *path)[:-1]:
                at = at[key]
            at[("root", *path)[-1]] = odd
            yield f"{path} = {odd!r:.60}", changed["root"]
        if path:
            changed = copy.deepcopy(meta)
            at = changed
            for key in path[:-1]:
                at = at[key]
            del at[path[-1]]
            yield f"{path} is missing", changed
    for key in ("more", "0", "3", "..", "", "shape", "_fields", "_names", "stack_dim"):
        for odd in ODD:
            yield f"{key!r} = {odd!r:.60}", {**meta, key: odd}


def touch(node: Any) -> None:
    """Reads all that was loaded."""
    if getattr(node, "tensordicts", None) is not None:
        for member in node.tensordicts:
            touch(member)
    elif getattr(node, "_is_non_tensor", False):
        repr(node.data)
    elif is_tensor_collection(node):
        for _, value in node.items():
            touch(value)
    else:
        for part in node.unbind() if node.is_nested else [node]:
            if part.numel() < 100:
                part.clone()


def loaded(folder: Path) -> Exception | None:
    """Loads a set, and reads all of it; gives the error of the load."""
    try:
        found = TensorDict.load_memmap(folder, allow_pickle=True)
    except Exception as error:
        return error
    touch(found)
    return None


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("metadata") / "set"
    everything().memmap(folder)
    return folder


FILES = [
    "",
    "nested",
    "stack",
    "stack/1",
    "object",
    "pickled",
    "constant",
    "objects",
    "pickles",
    "class",
    "class/_tensordict",
    "class/_tensordict/label",
]


@pytest.mark.parametrize("level", FILES)
def test_any_metadata_is_read_or_refused(saved: Path, tmp_path: Path, level: str) -> None:
    file = saved / level / "meta.json"
    text = file.read_text()
    assert {str(found.parent.relative_to(saved)) for found in saved.rglob("meta.json")} >= {level or "."}
    refused = 0
    strange: list[str] = []
    try:
        for said, changed in variants(json.loads(text)):
            file.write_text(json.dumps(changed))
            outcome = loaded(saved)
            if isinstance(outcome, UnreadableError) and str(saved) in str(outcome):
                refused += 1
            elif outcome is not None:
                strange.append(f"{said} is {type(outcome).__name__}: {outcome}")
    finally:
        file.write_text(text)
    assert strange == []
    assert refused > 30
    touch(TensorDict.load_memmap(saved, allow_pickle=True))


def test_keys_that_are_no_fields_are_refused(tmp_path: Path) -> None:
    for folder, data in (
        (tmp_path / "class", Described(rows=torch.ones(3), label="text", batch_size=[3])),
        (
            tmp_path / "nested" / "class",
            TensorDict({"class": Described(rows=torch.ones(3), label="text", batch_size=[3])}, [3]),
        ),
    ):
        top = tmp_path / folder.relative_to(tmp_path).parts[0]
        data.memmap(top)
        inner = folder / "_tensordict"
        meta = json.loads((inner / "meta.json").read_text())
        meta["other"] = meta["rows"]
        (inner / "meta.json").write_text(json.dumps(meta))
        shutil.copy(inner / "rows.memmap", inner / "other.memmap")
        for load in (TensorDict.load_memmap, Described.load_memmap):
            with pytest.raises(ValueError, match=r"\['other'\] do not belong to the class Described") as caught:
                load(top)
            assert str(folder) in str(caught.value)


def test_a_file_that_is_missing_or_damaged_is_one_kind_of_error(saved: Path, tmp_path: Path) -> None:
    folder = tmp_path / "set"
    shutil.copytree(saved, folder)
    (folder / "pickled" / "other.pickle").write_bytes(b"\x80")
    with pytest.raises(UnreadableError, match=r"pickled.*other\.pickle"):
        TensorDict.load_memmap(folder, allow_pickle=True)
    (folder / "leaf.memmap").write_bytes(b"\0" * 5)
    with pytest.raises(UnreadableError, match=r"leaf\.memmap has 5 bytes"):
        TensorDict.load_memmap(folder, allow_pickle=True)
    (folder / "leaf.memmap").unlink()
    with pytest.raises(MissingFileError, match=r"leaf\.memmap is missing"):
        TensorDict.load_memmap(folder, allow_pickle=True)
    assert issubclass(MissingFileError, UnreadableError)
