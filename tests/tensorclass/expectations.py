"""What a type checker must see of tensorclasses: checked by `test_typing.py`, never run."""

from __future__ import annotations

import torch
from torch import Size, Tensor
from typing_extensions import assert_type

from tensordict import TensorClass, TypedTensorDict, tensorclass


class Pair(TensorClass):
    left: Tensor
    right: Tensor | None = None


class Triple(Pair):
    third: Tensor | None = None


@tensorclass
class Image:
    pixels: Tensor
    label: str = ""


class State(TypedTensorDict):
    position: Tensor


pair = Pair(torch.zeros(3), batch_size=[3])
assert_type(pair.left, Tensor)
assert_type(pair.right, Tensor | None)
assert_type(pair.reshape(-1), Pair)
assert_type(pair.clone(), Pair)
assert_type(pair.to("cpu").lock_(), Pair)
assert_type(pair.batch_size, Size)
assert_type(Triple(torch.zeros(3), None, torch.zeros(3), device="cpu").third, Tensor | None)
assert_type(Image(torch.zeros(3)).pixels, Tensor)
assert_type(Image(pixels=torch.zeros(3), label="a").label, str)
state = State(position=torch.zeros(3), batch_size=[3])
assert_type(state.position, Tensor)
assert_type(state.clone(), State)

Pair(torch.zeros(3), wrong=1)  # type: ignore[call-arg]
Pair()  # type: ignore[call-arg]
Image()  # type: ignore[call-arg]
print(pair.wrong)  # type: ignore[attr-defined]
State(wrong=1)  # type: ignore[call-arg]
