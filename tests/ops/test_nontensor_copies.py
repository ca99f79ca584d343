"""Which objects a copy of a tensordict has of its own: in `clone` those that can be copied, in `copy` lists and dicts."""

from __future__ import annotations

import copy
import threading
from collections import OrderedDict, defaultdict, deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch

from tensordict import MetaData, NonTensorData, NonTensorStack, TensorClass, TensorDict, lazy_stack


@dataclass
class Point:
    at: list[int] = field(default_factory=lambda: [1])


class Plain:
    def __init__(self) -> None:
        self.at = [1]


class Own:
    """Says itself how it is copied."""

    def __init__(self, copies: int = 0) -> None:
        self.copies = copies

    def __deepcopy__(self, memo: Any) -> Own:
        return Own(self.copies + 1)


class Refuses:
    def __deepcopy__(self, memo: Any) -> Any:
        raise ValueError("this cannot be copied")


def function() -> None:
    """What is not copied."""


def td_of(value: Any) -> TensorDict:
    return TensorDict({"a": torch.zeros(2)}, [2]).set_non_tensor("m", value)


CONTAINERS = {
    "dict": (lambda: {"k": [1]}, lambda value: value["k"]),
    "list": (lambda: [{"k": 1}], lambda value: value[0]),
    "tuple": (lambda: ([1], 2), lambda value: value[0]),
    "deque": (lambda: deque([[1]], 3), lambda value: value[0]),
    "ordered": (lambda: OrderedDict(k=[1]), lambda value: value["k"]),
    "default": (lambda: defaultdict(list, k=[1]), lambda value: value["k"]),
}
OBJECTS = {
    "array": (lambda: np.zeros(2), None),
    "set": (lambda: {1}, None),
    "bytes": (lambda: bytearray(b"ab"), None),
    "dataclass": (Point, lambda value: value.at),
    "object": (Plain, lambda value: value.at),
    "tensor in a dict": (lambda: {"k": torch.zeros(2)}, lambda value: value["k"]),
    "array in a dict": (lambda: {"k": np.zeros(2)}, lambda value: value["k"]),
    "module": (lambda: torch.nn.Linear(1, 1), lambda value: value.weight),
}
DEEP = {
    "clone": lambda td: td.clone(),
    "torch.clone": torch.clone,
    "of a stack": lambda td: lazy_stack([td, td]).clone()[0],
    "from above": lambda td: TensorDict({"n": td}, [2]).clone()["n"],
    "update": lambda td: TensorDict({}, [2]).update(td, clone=True),
}
SHALLOW = {
    "copy": lambda td: td.copy(),
    "copy.copy": copy.copy,
    "clone(False)": lambda td: td.clone(False),
    "from above": lambda td: TensorDict({"n": td}, [2]).copy()["n"],
    "of a stack": lambda td: lazy_stack([td, td]).copy()[0],
}


def test_snapshots_stay_as_they_were():
    td = td_of({"lr": 1})
    history = []
    for epoch in range(3):
        td["m"]["lr"] = epoch
        history.append(td.clone())
    assert [then["m"] for then in history] == [{"lr": 0}, {"lr": 1}, {"lr": 2}]


@pytest.mark.parametrize("made", DEEP)
@pytest.mark.parametrize("kind", CONTAINERS | OBJECTS)
def test_a_clone_has_objects_of_its_own(kind, made):
    make, inner = (CONTAINERS | OBJECTS)[kind]
    value = make()
    found = DEEP[made](td_of(value))["m"]
    assert type(found) is type(value)
    assert found is not value
    if inner is not None:
        assert inner(found) is not inner(value)


@pytest.mark.parametrize("made", SHALLOW)
@pytest.mark.parametrize("kind", CONTAINERS)
def test_a_shallow_copy_has_lists_and_dicts_of_its_own(kind, made):
    make, inner = CONTAINERS[kind]
    value = make()
    found = SHALLOW[made](td_of(value))["m"]
    assert type(found) is type(value)
    assert found == value
    assert found is not value
    assert inner(found) is not inner(value)


@pytest.mark.parametrize("made", SHALLOW)
@pytest.mark.parametrize("kind", OBJECTS)
def test_a_shallow_copy_shares_all_other_objects(kind, made):
    make, inner = OBJECTS[kind]
    value = make()
    found = SHALLOW[made](td_of(value))["m"]
    if isinstance(value, dict):
        assert inner(found) is inner(value)
    else:
        assert found is value


@pytest.mark.parametrize(
    "value",
    ["a", 1, 1.5, None, True, b"a", ("a", 1), function, Plain, torch.float32, len],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
@pytest.mark.parametrize("made", [*DEEP.values(), *SHALLOW.values()])
def test_what_cannot_change_is_shared(value, made):
    assert made(td_of(value))["m"] is value


@pytest.mark.parametrize("make", [threading.Lock, Refuses, lambda: (item for item in [1]), lambda: threading])
def test_what_cannot_be_copied_is_shared(make):
    value = make()
    assert td_of(value).clone()["m"] is value
    held = {"value": value, "k": [1], "t": (value, [1])}
    found = td_of(held).clone()["m"]
    assert found["value"] is value
    assert found["t"][0] is value
    assert found is not held
    assert found["k"] == [1]
    assert found["k"] is not held["k"]
    assert found["t"][1] is not held["t"][1]


def test_a_tensor_with_a_history_is_shared():
    loss = torch.ones(1, requires_grad=True) * 2
    found = td_of({"loss": loss, "k": [1]}).clone()["m"]
    assert found["loss"] is loss


def test_an_object_copies_itself_once():
    td = td_of(Own())
    assert td.clone()["m"].copies == 1
    assert td["m"].copies == 0


def test_one_object_at_several_places_stays_one():
    value = {"k": [1]}
    td = TensorDict({"s": NonTensorStack(value, value), "n": {"m": NonTensorData(value, batch_size=[2])}}, [2])
    found = td.clone()
    assert found["s"][0] is found["s"][1] is found["n", "m"]
    assert found["s"][0] is not value


def test_what_holds_itself():
    value: list[Any] = [threading.Lock()]
    value.append(value)
    assert td_of(value).clone()["m"][0] is value[0]
    assert td_of(value).copy()["m"] is value


def test_holders():
    value = {"k": [1]}
    for holder in (NonTensorData(value, batch_size=[2]), MetaData(value)):
        found = holder.clone()
        assert type(found) is type(holder)
        assert found.batch_size == holder.batch_size
        assert found.data == value
        assert found.data is not value
        assert holder.copy().data is not value
        assert holder.to_tensordict().data is value


def test_fields_of_tensorclasses():
    class Run(TensorClass):
        a: torch.Tensor
        config: dict

    run = Run(a=torch.zeros(2), config={"k": [1]}, batch_size=[2])
    for found in (run.clone(), run.copy(), copy.copy(run)):
        assert found.config == {"k": [1]}
        assert found.config["k"] is not run.config["k"]


@pytest.mark.parametrize(
    "make",
    [
        lambda td: td[torch.arange(2)],
        lambda td: td.to("cpu"),
        lambda td: td.apply(lambda leaf: leaf + 1),
        lambda td: td.to_tensordict(),
        lambda td: torch.zeros_like(td),
        lambda td: torch.cat([td, td])[:2],
        lambda td: td.select("m"),
        lambda td: td.detach(),
        lambda td: TensorDict({}, [2]).update(td),
        lambda td: td.flip(0),
    ],
)
def test_other_operations_share_objects(make):
    value = {"k": [1]}
    assert make(td_of(value))["m"] is value


def test_writes_to_rows_of_a_sub_tensordict_leave_the_objects():
    rows: list[Any] = [{"k": 1}, {"k": 2}, {"k": 3}]
    td = TensorDict({"a": torch.arange(3), "s": NonTensorStack(*rows)}, [3])
    sub = td._get_sub_tensordict(torch.tensor([0, 2]))
    sub[0] = TensorDict({"a": torch.tensor(9), "s": "x"}, [])
    sub.update_at_(TensorDict({"a": torch.tensor(8)}, []), 1)
    sub.set_at_("s", "y", 0)
    assert td["a"].tolist() == [9, 1, 8]
    assert list(td["s"]) == ["y", {"k": 2}, {"k": 3}]
    assert td["s"][2] is rows[2]
