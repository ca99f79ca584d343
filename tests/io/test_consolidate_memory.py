"""Whose memory the leaves of a consolidated tensordict are, and that nothing reads memory which was given back."""

from __future__ import annotations

import gc
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tensordict import MemoryMappedTensor, TensorDict, from_consolidated
from tensordict._kernel import native

WAYS: dict[str, Callable[[TensorDict, Path], Any]] = {
    "memory": lambda td, where: td.consolidate(),
    "alone": lambda td, where: td.consolidate().consolidate(share_memory=True),
    "file": lambda td, where: td.consolidate(where / "f"),
    "opened": lambda td, where: from_consolidated(td.consolidate(where / "f")._consolidated["filename"]),
    "pickled": lambda td, where: pickle.loads(pickle.dumps(td.consolidate())),
    "by torch": lambda td, where: td.set("odd", torch.tensor([1j]).conj()).consolidate(),
    "moved": lambda td, where: td.consolidate().to("cpu"),
}


def leaves() -> TensorDict:
    """Alike leaves, leaves of all forms, and two dtypes."""
    td = TensorDict({str(number): torch.full((2, 3), number + 1.0) for number in range(5)})
    td["n"] = {"turned": torch.arange(1, 7.0).view(2, 3).T, "scalar": torch.tensor(3.0), "long": torch.arange(1, 4)}
    td["n", "double"] = torch.ones(3, dtype=torch.float64)
    return td


@pytest.mark.parametrize("way", WAYS)
def test_a_write_to_the_buffer_is_known_to_backward(way: str, tmp_path: Path) -> None:
    made = WAYS[way](leaves(), tmp_path)
    storage = made._consolidated["storage"]
    for key in ("0", "3", ("n", "turned"), ("n", "scalar"), ("n", "double")):
        leaf = made[key]
        w = torch.ones_like(leaf).requires_grad_()
        (leaf * w).sum().backward()
        assert w.grad is not None
        assert torch.equal(w.grad, leaf)
        out = (leaf * w).sum()
        storage.mul_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            out.backward()


@pytest.mark.parametrize("way", WAYS)
def test_a_gradient_written_in_place_is_that_of_one_leaf(way: str, tmp_path: Path) -> None:
    made = WAYS[way](leaves(), tmp_path)
    w = torch.full((2, 3), 2.0, requires_grad=True)
    made["0"].mul_(w)
    made["1"].copy_(w * 3)
    others = [key for key in made.keys(True, True) if key not in ("0", "1")]
    assert not any(made[key].requires_grad for key in others)
    (made["0"] + made["1"]).sum().backward()
    assert torch.equal(w.grad, torch.full((2, 3), 1.0 + 3.0))
    assert made["0"].tolist() == [[2.0] * 3] * 2
    leaf = made["2"].requires_grad_()
    with pytest.raises(RuntimeError, match="leaf"):
        leaf.add_(1)
    with torch.no_grad():
        leaf.add_(1)
    assert made._consolidated["storage"].view(torch.uint8).requires_grad is False


SIZES = [(3, 100), (40, 40_000), (3, 2_000_000)]  # without and with a release of the interpreter lock


@pytest.mark.parametrize(("count", "size"), SIZES)
def test_leaves_that_lose_their_memory_meanwhile(count: int, size: int, tmp_path: Path) -> None:
    """Another thread gives leaves other storages, as `module.half()` does, and the freed memory is written to.

    It does so with the interpreter lock held. What torch does to a tensor without it, as in `set_`, nobody can guard against.
    """
    source = TensorDict({str(number): torch.ones(size) for number in range(count)})
    parts = list(source.values())
    done = threading.Event()

    def swap() -> None:
        while not done.is_set():
            for part in parts:
                new = torch.ones(size)
                part.data = new
                torch.full((size,), 7.0)  # takes what was freed, mostly

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for _ in range(15):
            assert all(bool((leaf == 1).all()) for leaf in source.consolidate().values())
            source.consolidate(tmp_path / "f")
            assert all(bool((leaf == 1).all()) for leaf in from_consolidated(tmp_path / "f").values())
    finally:
        done.set()
        thread.join(60)


@pytest.mark.parametrize("size", [100, 3_000_000])
def test_leaves_that_change_while_the_buffer_is_made(size: int) -> None:
    """What `allocate` runs may free the memory of leaves: addresses are read after it."""
    parts = [torch.full((size,), 1.0), torch.full((size,), 2.0)]

    def allocate(count: int) -> torch.Tensor:
        for number, part in enumerate(parts):
            part.data = torch.full((size,), number + 3.0)
        gc.collect()
        torch.full((size,), 9.0)
        return torch.empty(count, dtype=torch.uint8)

    made = native.consolidate(parts, allocate)
    assert made is not None
    assert [view.unique().tolist() for view in made[1]] == [[3.0], [4.0]]


def test_leaves_that_are_others_after_the_buffer_is_made() -> None:
    parts = [torch.ones(4), torch.ones(6, 2)]

    def allocate(count: int) -> torch.Tensor:
        parts[1].data = torch.ones(1000, 2)
        return torch.empty(count, dtype=torch.uint8)

    assert native.consolidate(parts, allocate) is None
    for wrong in (torch.empty(3, dtype=torch.uint8), torch.empty(10_000, dtype=torch.uint8)):
        with pytest.raises(RuntimeError):
            native.consolidate([torch.ones(4)], lambda count, wrong=wrong: wrong)


def test_leaves_that_are_not_read_directly() -> None:
    """More dimensions than fit a tensor object, a parameter, a mapped tensor: read in other ways."""
    td = TensorDict({"deep": torch.arange(64.0).view(2, 2, 2, 2, 2, 2).mT, "p": torch.nn.Parameter(torch.arange(3.0))})
    td["m"] = MemoryMappedTensor.from_tensor(torch.arange(5))
    td["neg"] = torch.tensor([1 + 2j]).conj().imag
    made = td.consolidate()
    for key, leaf in td.items():
        assert torch.equal(made[key], leaf)
        assert not made[key].requires_grad
        assert made[key].untyped_storage().data_ptr() == made._consolidated["storage"].untyped_storage().data_ptr()


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 200])
def test_many_alike_leaves(count: int) -> None:
    for dtype, shape in ((torch.float32, (2, 3)), (torch.int16, (4,)), (torch.float64, ()), (torch.int8, (0, 2))):
        values = [torch.full(shape, number % 100, dtype=dtype) for number in range(count)]
        made = TensorDict({str(number): value for number, value in enumerate(values)}).consolidate()
        assert made.is_consolidated()
        assert all(torch.equal(made[str(number)], value) for number, value in enumerate(values))
        assert all(made[str(number)].is_contiguous() for number in range(count))
