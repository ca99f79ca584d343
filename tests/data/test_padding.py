"""Padding tensordicts to a common length, and back."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.utils.rnn import pad_sequence as torch_pad_sequence

from tensordict import TensorDict, collate, pad_sequence, unpad_sequence

LENGTHS = st.lists(st.integers(0, 4), min_size=1, max_size=5)


def sample(size: int, batch: list[int] | None = None) -> TensorDict:
    x = torch.arange(size * 3.0).reshape(size, 3) + size
    return TensorDict({"x": x, "n": {"y": torch.arange(size) + 1}}, [size] if batch is None else batch)


@given(LENGTHS, st.sampled_from(["left", "right"]), st.sampled_from([0.0, -1.0, 2.5]))
def test_against_torch(lengths: list[int], side: str, value: float) -> None:
    items = [sample(size) for size in lengths]
    padded = pad_sequence(items, padding_value=value, padding_side=side, return_mask=True)
    assert padded.batch_size == (len(lengths), max(lengths)) == padded["n"].batch_size
    for key in ("x", ("n", "y")):
        column = [item[key] for item in items]
        wanted = torch_pad_sequence(column, batch_first=True, padding_value=value, padding_side=side)
        assert torch.equal(padded[key], wanted)
        ones = [torch.ones(size, dtype=torch.bool) for size in lengths]
        mask = torch_pad_sequence(ones, batch_first=True, padding_value=False, padding_side=side)
        assert torch.equal(padded[("masks", *((key,) if isinstance(key, str) else key))], mask)


@given(LENGTHS, st.sampled_from([1, -1]))
def test_another_dimension(lengths: list[int], dim: int) -> None:
    items = [TensorDict({"x": torch.arange(2.0 * size).reshape(2, size)}, [2]) for size in lengths]
    padded = pad_sequence(items, dim, return_mask="m")
    assert padded.batch_size == (len(lengths), 2)
    for item, row, mask in zip(items, padded["x"], padded["m", "x"]):
        size = item["x"].shape[1]
        assert torch.equal(row[:, :size], item["x"])
        assert not row[:, size:].any()
        assert mask.tolist() == [[place < size for place in range(max(lengths))]] * 2


def test_values_by_key() -> None:
    padded = pad_sequence([sample(1), sample(2)], padding_value={("n", "y"): 7})
    assert padded["n", "y"].tolist() == [[1, 7], [1, 2]]
    assert padded["x"][0, 1].tolist() == [0, 0, 0]
    with pytest.raises(KeyError, match="'q'"):
        pad_sequence([sample(1)], padding_value={"q": 1.0})


def test_gradients_pass() -> None:
    leaf = torch.ones(2, requires_grad=True)
    pad_sequence([TensorDict({"x": leaf}, [2]), TensorDict({"x": torch.ones(3)}, [3])])["x"].sum().backward()
    assert leaf.grad is not None
    assert leaf.grad.tolist() == [1, 1]


def test_out() -> None:
    out = TensorDict({"x": torch.zeros(2, 2, 3)}, [2, 2])
    x = out["x"]
    assert pad_sequence([sample(1), sample(2)], out=out) is out
    assert out["x"] is x
    assert torch.equal(x[1], sample(2)["x"])
    assert out["n", "y"].shape == (2, 2)
    with pytest.raises(RuntimeError, match="batch size"):
        pad_sequence([sample(1), sample(3)], out=out)


@pytest.mark.parametrize(("call", "error"), [
    (lambda: pad_sequence([]), RuntimeError),
    (lambda: pad_sequence([sample(1)], padding_side="up"), ValueError),
    (lambda: pad_sequence([TensorDict({"s": torch.ones(())})]), RuntimeError),
    (lambda: pad_sequence([sample(1)], 2), IndexError),
    (lambda: pad_sequence([TensorDict({"x": torch.ones(2, 3)}), TensorDict({"x": torch.ones(3, 4)})]), RuntimeError),
    (lambda: pad_sequence([TensorDict({"masks": torch.ones(1)})], return_mask=True), RuntimeError),
])  # fmt: skip
def test_what_does_not_fit(call: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        call()


@given(LENGTHS)
def test_collate(lengths: list[int]) -> None:
    items = [TensorDict({**sample(size, []), "s": torch.tensor(size)}) for size in lengths]
    batch = collate(items, pad_keys={"x": -1.0, ("n", "y"): 0}, mask_key=("m", "k"))
    assert batch.batch_size == (len(lengths),)
    assert list(batch.keys()) == ["x", "n", "s", "m"]
    assert torch.equal(batch["x"], torch_pad_sequence([item["x"] for item in items], True, -1.0))
    assert torch.equal(batch["n", "y"], torch_pad_sequence([item["n", "y"] for item in items], True))
    assert batch["s"].tolist() == lengths
    assert batch["m", "k", "x"].tolist() == [[place < size for place in range(max(lengths))] for size in lengths]
    nested = collate(items, nested_keys=["x"], pad_keys={("n", "y"): 0})
    assert nested["x"].layout is torch.jagged
    for found, item in zip(nested["x"].unbind(), items):
        assert torch.equal(found, item["x"])


def test_collate_reaches_into_samples() -> None:
    batch = collate([{"t": (sample(1, []), 1)}, {"t": (sample(2, []), 2)}], pad_keys={"x": 0.0, ("n", "y"): 0})
    assert batch["t"][0]["x"].shape == (2, 2, 3)
    assert batch["t"][1].tolist() == [1, 2]


@pytest.mark.parametrize(("options", "error"), [
    ({"pad_keys": {"q": 0}}, KeyError),
    ({"nested_keys": ["q"]}, KeyError),
    ({"pad_keys": {"n": 0}}, KeyError),
    ({"pad_keys": {"x": 0}, "nested_keys": ["x"]}, ValueError),
    ({"mask_key": "m"}, ValueError),
    ({"pad_keys": {"x": 0}, "mask_key": "n"}, ValueError),
])  # fmt: skip
def test_collate_refuses(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        collate([sample(2, []), sample(2, [])], **options)


def test_collate_pads_no_batch_dimension() -> None:
    with pytest.raises(ValueError, match="batch dim"):
        collate([sample(2), sample(2)], pad_keys={"x": 0})


@given(LENGTHS.filter(all), st.sampled_from(["left", "right"]))
def test_unpadding_gives_back_what_was_padded(lengths: list[int], side: str) -> None:
    pytest.importorskip("tensordict._lazy")
    items = [sample(size) for size in lengths]
    padded = pad_sequence(items, padding_side=side, return_mask=True)
    masks = padded["masks"]
    rest = padded.exclude("masks")
    tensor = masks["x"]
    for stack in (unpad_sequence(padded), unpad_sequence(rest, masks), unpad_sequence(rest, tensor)):
        for one, two in zip(stack.unbind(0), items, strict=True):
            assert one.batch_size == two.batch_size
            assert set(one.keys(True, True)) == {"x", ("n", "y")}
            assert torch.equal(one["x"], two["x"])
            assert torch.equal(one["n", "y"], two["n", "y"])


def test_masks_that_do_not_fit() -> None:
    padded = pad_sequence([sample(1), sample(3)])
    gap = torch.tensor([[True, False, True], [True, True, True]])
    for mask in (None, gap, gap[:1], gap[:, :2], gap[..., None]):
        with pytest.raises(ValueError, match="mask"):
            unpad_sequence(padded, mask)
    with pytest.raises(ValueError, match="batch dimension"):
        unpad_sequence(padded.exclude("x")[0][0], gap)
