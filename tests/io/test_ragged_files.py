"""Nested leaves in folders and pickles: their exact ragged dimension, offsets and lengths; metadata that lies."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tensordict import TensorDict

pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")


def jagged(holes: bool = False, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    values = torch.arange(20.0).reshape(10, 2)
    offsets = torch.tensor([0, 4, 7, 10], dtype=dtype)
    return torch.nested.nested_tensor_from_jagged(values, offsets, torch.tensor([2, 3, 0], dtype=dtype) if holes else None)


def strided() -> torch.Tensor:
    return torch.nested.nested_tensor([torch.arange(6.0).reshape(2, 3), torch.zeros(0, 3), torch.ones(1, 3)])


@pytest.mark.parametrize("holes", [False, True])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("turned", [False, True])
def test_jagged(tmp_path: Path, holes: bool, dtype: torch.dtype, turned: bool) -> None:
    leaf = jagged(holes, dtype)
    leaf = leaf.transpose(1, 2) if turned else leaf
    td = TensorDict({"a": leaf, "d": torch.arange(3), "n": {"b": leaf + 1}, "other": jagged(holes, dtype)}, [3])
    for found in (td.memmap(tmp_path / "x"), TensorDict.load_memmap(tmp_path / "x"), td.memmap()):
        assert found.batch_size == (3,)
        for key in ("a", ("n", "b"), "other"):
            one, two = found[key], td[key]
            assert one.layout is torch.jagged
            assert one._ragged_idx == two._ragged_idx
            assert torch.equal(one.values(), two.values())
            assert torch.equal(one.offsets(), two.offsets())
            assert one.offsets().dtype == dtype
            assert (one.lengths() is None) is not holes
            if holes:
                assert torch.equal(one.lengths(), two.lengths())
        dim = leaf._ragged_idx
    loaded = TensorDict.load_memmap(tmp_path / "x")
    assert loaded["a"].shape[dim] == loaded["n", "b"].shape[dim]
    assert loaded["a"].shape[dim] != loaded["other"].shape[1]
    assert torch.equal((loaded["a"] + loaded["n", "b"]).values(), 2 * leaf.values() + 1)


def test_components_without_dimensions(tmp_path: Path) -> None:
    TensorDict({"a": torch.nested.nested_tensor([torch.tensor(1.0), torch.tensor(2.0)])}).memmap(tmp_path)
    assert [part.item() for part in TensorDict.load_memmap(tmp_path)["a"].unbind()] == [1.0, 2.0]


def test_writes_reach_the_file(tmp_path: Path) -> None:
    TensorDict({"a": jagged(), "s": strided()}, [3]).memmap(tmp_path)
    TensorDict.load_memmap(tmp_path).zero_()
    again = TensorDict.load_memmap(tmp_path)
    assert not again["a"].values().any()
    assert not again["s"].values().any()
    assert again["a"].offsets().tolist() == [0, 4, 7, 10]


def test_strided(tmp_path: Path) -> None:
    TensorDict({"s": strided()}, [3]).memmap(tmp_path)
    found = TensorDict.load_memmap(tmp_path)["s"]
    assert found.layout is torch.strided
    for one, two in zip(found.unbind(), strided().unbind(), strict=True):
        assert torch.equal(one, two)


def test_like_has_the_structure_and_no_values(tmp_path: Path) -> None:
    td = TensorDict({"a": jagged(True), "s": strided()}, [3])
    for found in (td.memmap_like(tmp_path), td.memmap_like(), TensorDict.load_memmap(tmp_path)):
        assert found["a"].offsets().tolist() == [0, 4, 7, 10]
        assert found["a"].lengths().tolist() == [2, 3, 0]
        assert not found["a"].values().any()
        assert [part.shape for part in found["s"].unbind()] == [(2, 3), (0, 3), (1, 3)]


def test_a_saved_folder_is_replaced(tmp_path: Path) -> None:
    TensorDict({"a": jagged(True)}, [3]).memmap(tmp_path)
    TensorDict({"b": torch.ones(3)}, [3]).memmap(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.memmap", "meta.json"]


def test_a_key_like_a_file_of_another(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="offsets"):
        TensorDict({"a": jagged(), "a.offsets": torch.ones(3)}, [3]).memmap(tmp_path / "x")
    assert not (tmp_path / "x").exists()


def lie(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        meta = json.loads((folder / "meta.json").read_text())
        change(meta)
        (folder / "meta.json").write_text(json.dumps(meta))

    return apply


def numbers(name: str, values: list[int]) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes(torch.tensor(values).numpy().tobytes()) and None


@pytest.mark.parametrize(("change", "error"), [
    (numbers("a.offsets.memmap", [0, 4, 7, 11]), RuntimeError),
    (numbers("a.offsets.memmap", [-1, 4, 7, 10]), RuntimeError),
    (numbers("a.offsets.memmap", [0, 7, 4, 10]), RuntimeError),
    (numbers("a.offsets.memmap", [0, 4, 10]), RuntimeError),
    (numbers("a.lengths.memmap", [2, 3, 4]), RuntimeError),
    (numbers("a.lengths.memmap", [2, -3, 0]), RuntimeError),
    (numbers("b.offsets.memmap", [0, 3, 7, 10]), RuntimeError),
    (numbers("s.shape.memmap", [2, 3, 0, 3, 1, 4]), RuntimeError),
    (numbers("s.shape.memmap", [2, 3, 0, 3, -1, 3]), RuntimeError),
    (numbers("s.shape.memmap", [2**62, 4, 0, 3, 1, 3]), RuntimeError),
    (lambda folder: (folder / "a.offsets.memmap").unlink(), FileNotFoundError),
    (lie(lambda meta: meta["a"].update(shape=[2**40, 2])), RuntimeError),
    (lie(lambda meta: meta["a"].update(shape="x")), ValueError),
    (lie(lambda meta: meta["a"].update(ragged_idx=9)), ValueError),
    (lie(lambda meta: meta["a"].update(layout="torch.sparse")), ValueError),
    (lie(lambda meta: meta["a"].pop("offsets")), ValueError),
    (lie(lambda meta: meta["a"]["offsets"].update(dtype="torch.float32")), ValueError),
    (lie(lambda meta: meta["a"]["lengths"].update(shape=[2])), ValueError),
    (lie(lambda meta: meta.update(shape=[4])), RuntimeError),
    (lie(lambda meta: meta["s"].update(shape=[3])), ValueError),
])  # fmt: skip
def test_what_lies_is_refused(tmp_path: Path, change: Callable[[Path], None], error: type[Exception]) -> None:
    leaf = jagged(True)
    TensorDict({"a": leaf, "b": leaf + 1, "s": strided()}, [3]).memmap(tmp_path)
    change(tmp_path)
    with pytest.raises(error):
        TensorDict.load_memmap(tmp_path)


def test_strided_leaves_are_added(tmp_path: Path) -> None:
    td = TensorDict({}, []).memmap_(tmp_path)
    made = td.make_memmap(("n", "z"), torch.tensor([[1, 2], [1, 3]]), dtype=torch.int16)
    assert [part.tolist() for part in made.unbind()] == [[[0, 0]], [[0, 0, 0]]]
    td.make_memmap_from_tensor("s", strided())
    td.make_memmap("d", (2,))
    made[1].fill_(4)
    found = TensorDict.load_memmap(tmp_path)
    for one in (td, found):
        assert [part.tolist() for part in one["n", "z"].unbind()] == [[[0, 0]], [[4, 4, 4]]]
        assert one["n", "z"].dtype is torch.int16
        assert [part.tolist() for part in one["s"].unbind()] == [part.tolist() for part in strided().unbind()]
        assert one["d"].shape == (2,)
    with pytest.raises(NotImplementedError, match="jagged leaf 'j'"):
        td.make_memmap_from_tensor("j", jagged())


def test_storage_of_a_file_that_is_gone_is_added(tmp_path: Path) -> None:
    old = TensorDict({"a": torch.arange(3.0)}).memmap_(tmp_path)
    new = TensorDict({}).memmap_(tmp_path)  # which removes the file of "a"
    new.make_memmap_from_storage("a", old["a"].untyped_storage(), (3,), dtype=torch.float32)
    assert TensorDict.load_memmap(tmp_path)["a"].tolist() == [0, 1, 2]
