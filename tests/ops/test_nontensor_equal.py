"""Objects that are equal and are not one: a write puts the one that was given, and leaves the others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tensordict import NonTensorData, NonTensorStack, TensorDict
from tensordict._nontensor.values import interchangeable, same


class Text(str):
    """A string of another class."""

    __slots__ = ()


class Equal:
    """Says that it is equal to everything."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


class Raises:
    def __eq__(self, other: object) -> bool:
        raise ValueError("no answer")

    __hash__ = None  # type: ignore[assignment]


class Elementwise:
    """Its comparison is one of elements, as those of tables are."""

    def __init__(self, *values: int) -> None:
        self.values = np.array(values)

    def __eq__(self, other: Any) -> Any:
        return Answers(self.values == other.values)

    __hash__ = None  # type: ignore[assignment]


class Answers:
    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return self.values

    def __bool__(self) -> bool:
        raise ValueError("the truth value is ambiguous")


PAIRS = {
    "bool": (1, True),
    "float": (1, 1.0),
    "subclass": ("a", Text("a")),
    "dict": ({"k": 1}, {"k": 1}),
    "list": ([1], [1]),
    "within": ((1, "a"), (True, "a")),
    "zero": (0.0, -0.0),
    "equal to all": (Equal(), Equal()),
    "raises": (Raises(), Raises()),
    "array": (np.zeros(2), np.zeros(2)),
    "arrays of unlike shapes": (np.zeros(2), np.zeros(3)),
    "arrays in dicts": ({"k": np.zeros(2)}, {"k": np.zeros(2)}),
    "elementwise": (Elementwise(1, 2), Elementwise(1, 2)),
}


def td_of(value: Any) -> TensorDict:
    return TensorDict({"a": torch.zeros(2)}, [2]).set_non_tensor("s", value)


def row_of(value: Any) -> TensorDict:
    return TensorDict({"a": torch.zeros(())}, []).set_non_tensor("s", value)


def objects(td: TensorDict) -> list[Any]:
    return td.get("s").tolist()


@pytest.mark.parametrize("pair", PAIRS)
class TestWrites:
    @pytest.mark.parametrize(
        "write",
        [
            lambda td, new: td.set_non_tensor("s", new),
            lambda td, new: td.update(td_of(new)),
            lambda td, new: td.update_(td_of(new)),
            lambda td, new: td.__setitem__(slice(None), td_of(new)),
            lambda td, new: td.__setitem__(..., td_of(new)),
            lambda td, new: td.set_("s", NonTensorData(new, batch_size=[2])),
            lambda td, new: td.get("s").update(NonTensorData(new)),
        ],
    )
    def test_all_rows(self, pair, write):
        old, new = PAIRS[pair]
        td = td_of(old)
        write(td, new)
        assert all(found is new for found in objects(td))

    @pytest.mark.parametrize(
        "write",
        [
            lambda td, new: td.__setitem__(0, row_of(new)),
            lambda td, new: td.__setitem__([0], row_of(new)[None]),
            lambda td, new: td.update_at_(row_of(new), 0),
            lambda td, new: td.set_at_("s", NonTensorData(new), 0),
        ],
    )
    def test_one_row(self, pair, write):
        old, new = PAIRS[pair]
        td = td_of(old)
        write(td, new)
        first, second = objects(td)
        assert first is new
        assert second is old

    def test_several_over_one(self, pair):
        old, new = PAIRS[pair]
        td = td_of(old)
        td.update_(TensorDict({"s": NonTensorStack(NonTensorData(old), NonTensorData(new))}, [2]))
        first, second = objects(td)
        assert first is old
        assert second is new

    def test_where(self, pair):
        old, new = PAIRS[pair]
        first, second = objects(torch.where(torch.tensor([True, False]), td_of(old), td_of(new)))
        assert first is old
        assert second is new


@pytest.mark.parametrize("value", ["text", 10**30, 1.5, float("nan"), b"bytes", ("text", 1.5, None), None, True])
def test_what_cannot_be_told_apart_stays_one(value):
    other = eval(repr(value), {"nan": float("nan")})
    assert interchangeable(value, other)
    td = td_of(value)
    td[0] = row_of(other)
    assert isinstance(td.get("s"), NonTensorData)


@pytest.mark.parametrize("pair", ["bool", "float", "subclass"])
def test_objects_of_unlike_classes_are_not_joined_into_one(pair):
    old, new = PAIRS[pair]
    found = objects(torch.cat([td_of(old), td_of(new)]))
    assert [type(item) for item in found] == [type(old)] * 2 + [type(new)] * 2


@pytest.mark.parametrize(
    ("one", "two", "expected"),
    [
        (1, True, True),
        (1, 2, False),
        (np.zeros(2), np.zeros(2), True),
        (np.zeros(2), np.ones(2), False),
        (np.zeros(2), np.zeros(3), False),
        (np.zeros((1, 2)), np.zeros(2), False),
        ({"k": np.zeros(2)}, {"k": np.zeros(2)}, True),
        ({"k": np.zeros(2)}, {"k": np.ones(2)}, False),
        ({"k": torch.zeros(2)}, {"k": torch.zeros(2)}, True),
        ([(np.zeros(2), 1)], [(np.zeros(2), 1)], True),
        ([np.zeros(2)], (np.zeros(2),), False),
        (Elementwise(1, 2), Elementwise(1, 2), True),
        (Elementwise(1, 2), Elementwise(1, 3), False),
        (Raises(), Raises(), False),
        (torch.zeros(2), torch.zeros(2, dtype=torch.int64), True),
        (torch.zeros(2), torch.zeros(3), False),
        (torch.zeros(2), np.zeros(2), False),
        (float("nan"), float("nan"), False),
    ],
)
def test_equal(one, two, expected):
    assert same(one, two) is expected
    assert (td_of(one) == td_of(two)).get("s").tolist() == [expected] * 2


def test_a_clone_is_equal():
    td = td_of({"k": [np.zeros(2), torch.ones(2)], "n": "text"})
    assert (td == td.clone()).all()
