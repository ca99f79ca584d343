"""Typed tensordicts: keys are checked when one is made."""

from __future__ import annotations

import pickle

import pytest
import torch
from torch import Tensor
from typing_extensions import NotRequired

from tensordict import TensorDict, TypedTensorDict


class State(TypedTensorDict):
    position: Tensor
    speed: NotRequired[Tensor]


class Labelled(State):
    label: Tensor


def state() -> State:
    return State(position=torch.arange(3.0), batch_size=[3])


def test_keys():
    assert State.__required_keys__ == {"position"}
    assert State.__optional_keys__ == {"speed"}
    assert Labelled.__expected_keys__ == {"position", "speed", "label"}


def test_checks():
    with pytest.raises(TypeError, match=r"missing required field.*position"):
        State(batch_size=[3])
    with pytest.raises(TypeError, match=r"unexpected field.*other"):
        State(position=torch.zeros(3), other=torch.zeros(3))
    with pytest.raises(AttributeError, match="shadows a TensorDictBase attribute"):

        class Wrong(TypedTensorDict):
            clone: Tensor

    with pytest.raises(ValueError, match="Unknown TypedTensorDict option"):
        TypedTensorDict["other"]


def test_access():
    made = state()
    assert made.position is made["position"]
    with pytest.raises(AttributeError, match="declared but not set"):
        _ = made.speed
    made.speed = torch.ones(3)
    assert made["speed"].tolist() == [1, 1, 1]
    for same in (made[:], made.clone(), made + 0, pickle.loads(pickle.dumps(made)), torch.stack([made])[0]):
        assert type(same) is State
        assert same.position.tolist() == [0, 1, 2]
    assert type(made.to_tensordict()) is TensorDict
    assert dict(**made).keys() == {"position", "speed"}


def test_from_tensordict():
    td = TensorDict(position=torch.zeros(3), batch_size=[3])
    made = State.from_tensordict(td)
    made.position = torch.ones(3)
    assert td["position"].tolist() == [1, 1, 1]
    with pytest.raises(TypeError, match="missing"):
        State.from_tensordict(TensorDict())
    assert list(State.from_tensordict(TensorDict(), check=False).keys()) == []


def test_frozen():
    class Fixed(TypedTensorDict["frozen"]):
        x: Tensor

    made = Fixed(x=torch.zeros(2))
    with pytest.raises(RuntimeError, match="locked"):
        made["x"] = torch.ones(2)
