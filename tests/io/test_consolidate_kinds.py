"""Consolidated tensordicts of more than dense leaves: jagged ones, objects, tensorclasses; and files under a default device."""

from __future__ import annotations

import io
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tensordict import NonTensorStack, TensorClass, TensorDict, lazy_stack

Way = Callable[[Any, Path], Any]


class Held(TensorClass):
    """Fields of two dtypes, and an object."""

    left: torch.Tensor
    right: torch.Tensor
    word: str


def _saved(td: Any, where: Path) -> Any:
    data = io.BytesIO()
    torch.save(td.consolidate(), data)
    data.seek(0)
    return torch.load(data, weights_only=False)


def _stored(td: Any, where: Path) -> Any:
    td.consolidate(where / "f")
    return TensorDict.from_consolidated(where / "f")


WAYS: dict[str, Way] = {
    "memory": lambda td, where: td.consolidate(),
    "file": lambda td, where: td.consolidate(where / "f"),
    "opened": _stored,
    "pickled": lambda td, where: pickle.loads(pickle.dumps(td.consolidate())),
    "saved": _saved,
    "moved": lambda td, where: td.consolidate().to("cpu"),
}


def jagged(values: torch.Tensor, lengths: bool = False, dim: int = 1) -> torch.Tensor:
    counts = torch.tensor([1, 2]) if lengths else None
    made: torch.Tensor = torch.nested.nested_tensor_from_jagged(values, OFFSETS, counts, dim)
    return made


OFFSETS = torch.tensor([0, 2, 5])


def parts(leaf: torch.Tensor) -> list[Any]:
    return [part.tolist() for part in leaf.unbind()]


@pytest.mark.parametrize("way", WAYS)
def test_jagged_leaves(way: str, tmp_path: Path) -> None:
    td = TensorDict(
        {
            "x": jagged(torch.arange(5.0)),
            "n": {"y": jagged(torch.arange(5, dtype=torch.int16)), "z": torch.ones(2, dtype=torch.float64)},
            "short": jagged(torch.arange(5.0), lengths=True),
            "deep": jagged(torch.arange(10.0).view(2, 5), dim=2),
        },
        [2],
    )
    made = WAYS[way](td, tmp_path)
    assert made.is_consolidated()
    assert parts(made["x"]) == [[0, 1], [2, 3, 4]]
    assert parts(made["n", "y"]) == [[0, 1], [2, 3, 4]]
    assert parts(made["short"]) == [[0], [2, 3]]
    assert parts(made["deep"]) == [[[0, 1], [5, 6]], [[2, 3, 4], [7, 8, 9]]]
    assert parts(made["x"] + made["n", "y"]) == [[0, 2], [4, 6, 8]]  # they share their ragged dimension
    storage = made._consolidated["storage"]
    held = [made["x"].values(), made["x"].offsets(), made["short"].lengths(), made["n", "z"]]
    assert {one.untyped_storage().data_ptr() for one in held} == {storage.untyped_storage().data_ptr()}


def test_jagged_leaves_in_place_with_gradients() -> None:
    leaf = jagged(torch.arange(5.0)).requires_grad_()
    td = TensorDict({"x": leaf}, [2])
    td.consolidate(inplace=True)
    assert td.is_consolidated()
    assert not td["x"].requires_grad
    assert parts(td["x"]) == [[0, 1], [2, 3, 4]]


def test_what_has_no_place_is_named(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls them a prototype, once
        strided = torch.nested.nested_tensor([torch.zeros(1), torch.zeros(2)])
    for leaf in (strided, torch.eye(2).to_sparse()):
        for where in (None, tmp_path / "f"):
            with pytest.raises(RuntimeError, match=r"cannot be consolidated.*\('n', 'x'\)"):
                TensorDict({"n": {"x": leaf}}).consolidate(where)
    with pytest.raises(ValueError, match="NJT_VALUES"):
        TensorDict({"<NJT_VALUES>x": torch.ones(2)}).consolidate(tmp_path / "f")
    assert not (tmp_path / "f").exists()


@pytest.mark.parametrize(
    ("given", "false"), [("24, 48, 0, 1", "24, 48, 0, 9"), ("<NJT_OFFSETS>x", "<NJT_OFFSETS>w"), ("[3]", "[2]")]
)
def test_files_whose_jagged_leaves_lie(given: str, false: str, tmp_path: Path) -> None:
    path = tmp_path / "f"
    TensorDict({"x": jagged(torch.arange(5.0))}, [2]).consolidate(path)
    data = path.read_bytes()
    size = int.from_bytes(data[-8:], "little")
    text = data[-8 - size : -8].decode()
    assert given in text
    text = text.replace(given, false).encode()
    path.write_bytes(data[: -8 - size] + text + len(text).to_bytes(8, "little"))
    with pytest.raises(ValueError, match="f"):
        TensorDict.from_consolidated(path)


@pytest.mark.parametrize("way", WAYS)
def test_objects_beside_leaves_of_several_dtypes(way: str, tmp_path: Path) -> None:
    td = TensorDict({"a": torch.ones(2), "b": torch.ones(2, dtype=torch.int16), "s": "word"}, [2])
    td["t"] = NonTensorStack("u", "v")
    made = WAYS[way](td, tmp_path)
    assert made.is_consolidated()
    assert (made["s"], made["t"]) == ("word", ["u", "v"])
    assert (made["a"].dtype, made["b"].tolist()) == (torch.float32, [1, 1])


@pytest.mark.parametrize("way", WAYS)
def test_tensorclasses_below_keep_their_class(way: str, tmp_path: Path) -> None:
    held = Held(torch.zeros(2), torch.ones(2, dtype=torch.int64), "word", batch_size=[2])
    for td in (TensorDict({"q": held}, [2]), lazy_stack([TensorDict({"q": held}, [2])] * 2)):
        made = WAYS[way](td, tmp_path)
        assert made.is_consolidated()
        inner = made.get("q") if made.batch_dims == 1 else made[1].get("q")
        assert type(inner) is Held
        assert inner.right.tolist() == [1, 1]
        assert inner.word == "word"
    found = WAYS[way](held, tmp_path)
    assert type(found) is (TensorDict if way == "opened" else Held)  # the file of a tensorclass holds its tensordict
    assert found.get("right").tolist() == [1, 1]


def test_a_default_device_does_not_keep_from_writing_files(tmp_path: Path) -> None:
    td = TensorDict({"a": torch.arange(3), "x": jagged(torch.arange(5.0))})
    with torch.device("cpu"):
        made = td.consolidate(tmp_path / "f")
        found = TensorDict.from_consolidated(tmp_path / "f")
    for one in (made, found):
        assert one["a"].tolist() == [0, 1, 2]
        assert parts(one["x"]) == [[0, 1], [2, 3, 4]]


def test_a_pickled_stack_of_objects_stays_locked() -> None:
    words = NonTensorStack("a", "b").consolidate()
    again = pickle.loads(pickle.dumps(words))
    assert again.is_locked
    assert again.tolist() == ["a", "b"]
