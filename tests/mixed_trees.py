"""Trees with every kind of node, all of whose values say of which save they are."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from tensordict import NonTensorData, NonTensorStack, TensorClass, TensorDict, lazy_stack

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch says once in a process that nested tensors may change
    torch.nested.nested_tensor([torch.zeros(1)])


class Pair(TensorClass):
    """A class with a tensor and a text."""

    x: torch.Tensor
    text: str


def tree(value: int) -> TensorDict:
    """A tree for a value. How many members its stack has, and whether objects are pickled, depends on it too."""

    def full(*shape: int) -> torch.Tensor:
        return torch.full(shape, float(value))

    members = [
        TensorDict({"a": full(3, place + 1), "of": NonTensorData((value, place), batch_size=[3])}, [3])
        for place in range(2 + value % 3)
    ]
    fields: dict[str, Any] = {f"k{place}": full(3, 2) for place in range(4)}
    fields["nested"] = TensorDict({"a": full(3), "deep": TensorDict({"b": full(3, 1)}, [3])}, [3])
    fields["pair"] = Pair(x=full(3), text=f"{value}", batch_size=[3])
    fields["object"] = NonTensorData({value} if value % 2 else value, batch_size=[3])
    fields["objects"] = NonTensorStack(*[{value} if value % 2 else value] * 3)
    fields["stack"] = lazy_stack(members, 1)
    fields["ragged"] = torch.nested.nested_tensor([full(value % 4 + 1, 2)] * 3)
    return TensorDict(fields, [3])


def values(found: Any) -> set[float]:
    """What the parts of a tree say of which save they are: one number where it is a whole."""
    single = [found[f"k{place}"] for place in range(4)]
    single += [found["nested", "a"], found["nested", "deep", "b"], found["pair"].x, *found["ragged"].unbind()]
    said = {float(value) for leaf in single for value in leaf.flatten().tolist()}
    said.add(float(found["pair"].text))
    objects = [found.get("object").data, *found.get("objects").tolist()]
    members = found.get("stack").tensordicts
    for place, member in enumerate(members):
        said.update(member["a"].flatten().tolist())
        of, number = member.get("of").data
        objects.append(of)
        assert number == place
    said.update(float(*value) if isinstance(value, set) else float(value) for value in objects)
    if len(said) == 1:
        assert len(members) == 2 + int(next(iter(said))) % 3
        assert found["ragged"].size(0) == 3
    return said
