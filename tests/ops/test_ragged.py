"""Nested leaves: each operation against the same on each component, in both layouts, with holes and other ragged dimensions."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import tensordict
from tensordict import TensorDict

pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")

LENGTHS = st.lists(st.integers(0, 4), min_size=1, max_size=5)
KINDS = ("jagged", "holes", "behind", "strided")


def components(lengths: list[int], start: float = 0.0) -> list[Tensor]:
    return [torch.arange(size * 3.0).reshape(size, 3) + 10 * row + start for row, size in enumerate(lengths)]


def nest(kind: str, parts: list[Tensor]) -> Tensor:
    """Components `(L, 3)` as a nested tensor; with the ragged dimension last for "behind"."""
    if kind == "strided":
        return torch.nested.nested_tensor(parts, layout=torch.strided)
    lengths = torch.tensor([len(part) for part in parts])
    if kind == "holes":
        gap = torch.full((2, 3), 777.0)
        values = torch.cat([piece for part in parts for piece in (gap, part)] + [gap])
        starts = (lengths + 2).cumsum(0) - lengths
        offsets = torch.cat([starts, torch.tensor([len(values)])])
        return torch.nested.nested_tensor_from_jagged(values, offsets, lengths)
    made = torch.nested.nested_tensor_from_jagged(torch.cat(parts), torch.cat([torch.zeros(1, dtype=int), lengths.cumsum(0)]))
    return made.transpose(1, 2) if kind == "behind" else made


def ragged(kind: str, lengths: list[int], start: float = 0.0) -> TensorDict:
    count = len(lengths)
    leaf = nest(kind, components(lengths, start))
    return TensorDict({"a": leaf, "n": {"b": leaf * 1}, "d": torch.arange(count * 2.0).view(count, 2)}, [count])


def parts_of(td: Any, key: Any = "a") -> list[Tensor]:
    """The components of a leaf, each `(L, 3)`."""
    leaf = td[key]
    assert leaf.is_nested
    turned = leaf.layout is torch.jagged and leaf._ragged_idx == 2
    return [part.mT if turned else part for part in leaf.unbind()]


def check(td: Any, wanted: list[Tensor]) -> None:
    for key in ("a", ("n", "b")):
        found = parts_of(td, key)
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted):
            torch.testing.assert_close(one, other)


def same_dim(one: Tensor, other: Tensor) -> bool:
    """Whether the ragged dimension of two jagged tensors is the same one."""
    return one.shape[one._ragged_idx] == other.shape[other._ragged_idx]


UNARY: list[Callable[[Any], Any]] = [
    torch.abs, torch.exp, torch.neg, torch.sin, torch.isnan, torch.sign, torch.round,
    lambda x: x + 1, lambda x: 2 - x, lambda x: x * 0.5, lambda x: x / 2, lambda x: x**2, lambda x: x % 3,
    lambda x: x == 3, lambda x: x > 3, lambda x: x != 0, lambda x: x.clamp(1, 5), lambda x: ~(x > 3),
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", range(len(UNARY)))
def test_unary(kind: str, number: int) -> None:
    function, td = UNARY[number], ragged(kind, [2, 0, 3])
    result = function(td)
    check(result, [function(part) for part in components([2, 0, 3])])
    torch.testing.assert_close(result["d"], function(td["d"]))
    if kind != "strided":
        assert same_dim(result["a"], td["a"])


BINARY: list[Callable[[Any, Any], Any]] = [
    torch.add, torch.sub, torch.mul, torch.div, torch.pow, torch.maximum,
    lambda x, y: x == y, lambda x, y: x < y, lambda x, y: (x > 3).logical_and(y > 4), lambda x, y: (x > 3) | (y > 4),
    lambda x, y: x.lerp(y, 0.25), lambda x, y: x.clamp_max(y),
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", range(len(BINARY)))
def test_binary(kind: str, number: int) -> None:
    """Also of two leaves whose offsets are other tensors of the same content."""
    function = BINARY[number]
    one, two = ragged(kind, [2, 0, 3]), ragged(kind, [2, 0, 3], 1.5)
    wanted = [function(*pair) for pair in zip(components([2, 0, 3]), components([2, 0, 3], 1.5))]
    check(function(one, two), wanted)
    if kind != "strided":
        assert same_dim(function(one, two)["a"], one["a"])


@pytest.mark.parametrize("kind", KINDS)
def test_lengths_that_differ(kind: str) -> None:
    one, two = ragged(kind, [2, 1, 3]), ragged(kind, [1, 2, 3])
    before = [part.clone() for part in parts_of(one)]
    for function in (torch.add, lambda x, y: x == y, lambda x, y: x.update_(y), lambda x, y: x.where(x["d"][:, 0] > 0, y)):
        with pytest.raises(RuntimeError):
            function(one, two)
    check(one, before)


@given(LENGTHS, st.sampled_from(KINDS), st.data())
def test_tensors_of_the_batch(lengths: list[int], kind: str, data: st.DataObject) -> None:
    td, count = ragged(kind, lengths), len(lengths)
    scale = torch.arange(1.0, count + 1)
    check(td * scale, [part * factor for part, factor in zip(components(lengths), scale)])
    mask = torch.tensor(data.draw(st.lists(st.booleans(), min_size=count, max_size=count)))
    other = ragged(kind, lengths, 100.0)
    chosen = [a if m else b for m, a, b in zip(mask, components(lengths), components(lengths, 100.0))]
    check(td.where(mask, other), chosen)
    check(td.where(mask, -1.0), [a if m else torch.full_like(a, -1) for m, a in zip(mask, components(lengths))])
    filled = [torch.full_like(a, 7) if m else a for m, a in zip(mask, components(lengths))]
    check(td.masked_fill(mask, 7), filled)
    check(td.clone().masked_fill_(mask, 7), filled)


@given(LENGTHS, st.sampled_from(KINDS), st.data())
def test_rows(lengths: list[int], kind: str, data: st.DataObject) -> None:
    td, parts, count = ragged(kind, lengths), components(lengths), len(lengths)
    rows = data.draw(st.lists(st.integers(-count, count - 1), min_size=1, max_size=6))
    mask = data.draw(st.lists(st.booleans(), min_size=count, max_size=count).filter(any))
    start = data.draw(st.integers(0, count - 1))
    step = data.draw(st.integers(1, 3))
    index = torch.tensor(rows)
    check(td[index], [parts[row] for row in rows])
    check(td[rows], [parts[row] for row in rows])
    check(td.gather(0, index % count), [parts[row] for row in rows])
    check(td[torch.tensor(mask)], [part for part, kept in zip(parts, mask) if kept])
    check(td.masked_select(torch.tensor(mask)), [part for part, kept in zip(parts, mask) if kept])
    check(td[start::step], parts[start::step])
    check(td.narrow(0, start, count - start), parts[start:])
    check(td.flip(0), parts[::-1])
    check(td.roll(1, 0), [parts[-1], *parts[:-1]])
    check(td.repeat(2), parts * 2)
    check(td.repeat_interleave(2, dim=0), [part for part in parts for _ in range(2)])
    sizes = [start, count - start]
    for piece, wanted in zip(td.split(sizes), (parts[:start], parts[start:])):
        if wanted:
            check(piece, wanted)
    assert [len(piece) for piece in td.chunk(2)] == [len(piece) for piece in torch.zeros(count).chunk(2)]
    for piece, part in zip(td.unbind(0), parts):
        torch.testing.assert_close(piece["a"].mT if kind == "behind" else piece["a"], part)
    row = td[rows[0]]
    torch.testing.assert_close(row["n", "b"].mT if kind == "behind" else row["n", "b"], parts[rows[0]])


@pytest.mark.parametrize("function", [
    lambda td: td[[2, 0]], lambda td: td[1:], lambda td: td[torch.tensor([True, False, True])], lambda td: td.flip(0),
    lambda td: td.split(2)[0], lambda td: td + 1, lambda td: torch.cat([td, td]), lambda td: td.clone(), lambda td: td.double(),
    lambda td: td.to("cpu"), lambda td: pickle.loads(pickle.dumps(td)), copy.deepcopy,
])  # fmt: skip
@pytest.mark.parametrize("kind", ["jagged", "holes", "behind"])
def test_leaves_of_one_ragged_dimension_keep_one(function: Callable[[Any], Any], kind: str) -> None:
    result = function(ragged(kind, [2, 1, 3]))
    assert same_dim(result["a"], result["n", "b"])


def test_equal_lengths_stay_ragged() -> None:
    td = ragged("jagged", [2, 2, 2])
    for result in (td, td[:2], td[[0, 2]], td + 1, torch.cat([td, td]), td.flip(0)):
        assert result["a"].is_nested
        assert result["a"].layout is torch.jagged
    with pytest.raises(RuntimeError, match="rows of a ragged leaf"):
        td.unsqueeze(0)
    with pytest.raises(RuntimeError, match="cannot be stacked"):
        torch.stack([td, td])
    with pytest.raises(RuntimeError):
        td + TensorDict({"a": torch.ones(3, 2, 3), "n": {"b": torch.ones(3, 2, 3)}, "d": torch.ones(3, 2)}, [3])


def test_what_computes_across_rows_is_refused() -> None:
    for count in (1, 2, 3, 4):
        td = TensorDict({"a": nest("strided", components([2] * count))}, [count])
        for function in (lambda td: td.sum(0), lambda td: td.cumsum(0), lambda td: td.pad([0, 1])):
            if count > 1 and hasattr(td, function.__code__.co_names[0]):
                with pytest.raises(RuntimeError):
                    function(td)


@pytest.mark.parametrize("kind", KINDS)
def test_new_dimensions_behind_the_first(kind: str) -> None:
    td = ragged(kind, [2, 1, 3])
    for wide in (td.unsqueeze(1), td.reshape(3, 1), td.view(3, 1)):
        assert wide.batch_size == (3, 1)
        for found, part in zip(wide["a"].unbind(), components([2, 1, 3])):
            torch.testing.assert_close(found[0], part.mT if kind == "behind" else part)
        check(wide.squeeze(1), components([2, 1, 3]))
    check(torch.stack([td, td + 1], 1)[:, 1], components([2, 1, 3], 1.0))
    assert td.expand(3).batch_size == (3,)


@given(LENGTHS, LENGTHS, st.sampled_from(KINDS))
def test_cat(one: list[int], two: list[int], kind: str) -> None:
    check(torch.cat([ragged(kind, one), ragged(kind, two, 5.0)]), components(one) + components(two, 5.0))


@given(LENGTHS, st.sampled_from(KINDS), st.data())
def test_writes(lengths: list[int], kind: str, data: st.DataObject) -> None:
    td, count = ragged(kind, lengths), len(lengths)
    leaf = td["a"]
    td.update_(ragged(kind, lengths, 50.0))
    check(td, components(lengths, 50.0))
    assert td["a"] is leaf
    td.copy_(ragged(kind, lengths, 60.0))
    check(td, components(lengths, 60.0))
    row = data.draw(st.integers(0, count - 1))
    td[row] = ragged(kind, lengths, 70.0)[row]
    wanted = components(lengths, 60.0)
    wanted[row] = components(lengths, 70.0)[row]
    check(td, wanted)
    td[:1] = ragged(kind, lengths, 80.0)[:1]
    wanted[0] = components(lengths, 80.0)[0]
    check(td, wanted)
    td[[row]] = 0
    wanted[row] = torch.zeros_like(wanted[row])
    check(td, wanted)
    td.add_(1)
    check(td, [part + 1 for part in wanted])
    td.zero_()
    check(td, [torch.zeros_like(part) for part in wanted])


def test_a_write_that_fails_changes_nothing() -> None:
    td = TensorDict({"d": torch.zeros(2), "a": nest("jagged", components([2, 1]))}, [2])
    with pytest.raises(RuntimeError, match="component"):
        td.update_({"d": torch.ones(2), "a": nest("jagged", components([1, 2]))})
    with pytest.raises(RuntimeError, match="component"):
        td[0] = TensorDict({"d": torch.ones(()), "a": torch.ones(3, 3)})
    assert td["d"].tolist() == [0, 0]
    assert [part.tolist() for part in parts_of(td)] == [part.tolist() for part in components([2, 1])]


@given(LENGTHS, st.sampled_from(KINDS))
def test_padded(lengths: list[int], kind: str) -> None:
    dense = ragged(kind, lengths).to_padded_tensor(-1.0)
    wanted = torch.nn.utils.rnn.pad_sequence(components(lengths), batch_first=True, padding_value=-1.0)
    for key in ("a", ("n", "b")):
        found = dense[key].mT if kind == "behind" else dense[key]
        assert torch.equal(found, wanted)
    assert not dense["d"].is_nested


def test_a_ragged_batch_dimension() -> None:
    leaf = nest("jagged", components([2, 3]))
    td = TensorDict({"a": leaf, "n": TensorDict({"b": leaf + 1}, [2, leaf.shape[1]])}, [2, leaf.shape[1]])
    dense = td.to_padded_tensor(mask_key="m")
    assert dense.batch_size == (2, 3) == dense["n"].batch_size
    assert dense["m"].tolist() == [[True, True, False], [True, True, True]]
    with pytest.raises(RuntimeError, match="mask_key"):
        TensorDict({"a": leaf}, [2]).to_padded_tensor(mask_key="m")


def test_construction_checks_the_batch_size() -> None:
    for kind in KINDS:
        leaf = nest(kind, components([2, 3]))
        TensorDict({"a": leaf}, [2])
        for size in ([3], [2, 2]):
            with pytest.raises(RuntimeError, match="batch"):
                TensorDict({"a": leaf}, size)


@pytest.mark.parametrize("kind", KINDS)
def test_conversions(kind: str) -> None:
    td = ragged(kind, [2, 1])
    for result in (td.clone(), td.to("cpu"), td.apply(lambda leaf: leaf * 1), td.detach(), td.contiguous(), td.to_tensordict()):
        check(result, components([2, 1]))
    check(td.double(), [part.double() for part in components([2, 1])])
    assert "a:" in repr(td)
    arrays = td.numpy()["a"]
    assert [np.asarray(array).shape for array in arrays] == ([(3, 2), (3, 1)] if kind == "behind" else [(2, 3), (1, 3)])


@pytest.mark.parametrize("kind", KINDS)
def test_gradients(kind: str) -> None:
    td = ragged(kind, [2, 1]).apply(lambda leaf: leaf.detach().requires_grad_())
    result = (td * torch.tensor([2.0, 3.0]) + 1)[[1, 1, 0]]
    total = sum((part.sum() for part in result["a"].unbind()), torch.zeros(()))
    total.backward()
    grad = td["a"].grad
    assert [part.unique().tolist() for part in grad.unbind()] == [[2.0], [6.0]]


def test_names_and_locks_stay() -> None:
    td = TensorDict({"a": nest("jagged", components([2, 1]))}, [2], names=["t"]).lock_()
    assert (td + 1).is_locked
    assert (td + 1).names == ["t"]
    assert td[1:].names == ["t"]
    assert tensordict.cat([td, td]).names == ["t"]
