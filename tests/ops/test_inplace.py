"""Changes of the batch in place: the tensordict and its nodes stay the objects that they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tensordict import NonTensorData, NonTensorStack, TensorClass, TensorDict, lazy_stack

Act = Callable[..., Any]


def held() -> TensorDict:
    td = TensorDict(
        {"a": torch.arange(12.0).view(3, 4), "n": {"b": torch.arange(24.0).view(3, 4, 2)}}, [3, 4], names=["t", "u"]
    )
    td["n"].batch_size = [3, 4, 2]
    return td


ACTS: dict[str, Act] = {
    "reshape": lambda td, **kw: td.reshape((2, 6), **kw),
    "flatten": lambda td, **kw: td.flatten(0, 1, **kw),
    "unflatten": lambda td, **kw: td.unflatten(1, (2, 2), **kw),
    "repeat": lambda td, **kw: td.repeat(2, 1, **kw),
    "repeat_interleave": lambda td, **kw: td.repeat_interleave(2, 1, **kw),
    "pad": lambda td, **kw: td.pad([0, 1, 2, 0], **kw),
    "roll": lambda td, **kw: td.roll(1, 1, **kw),
    "gather": lambda td, **kw: td.gather(1, torch.tensor([[3], [0], [1]]), **kw),
}


@pytest.mark.parametrize("name", ACTS)
def test_a_node_stays_the_same_object(name: str) -> None:
    td, wanted = held(), ACTS[name](held())
    below = td["n"]
    assert ACTS[name](td, inplace=True) is td
    assert td["n"] is below
    for one, two in ((td, wanted), (below, wanted["n"])):
        assert (one.batch_size, one.names) == (two.batch_size, two.names)
    assert torch.equal(td["a"], wanted["a"])
    assert torch.equal(td["n", "b"], wanted["n", "b"])


@pytest.mark.parametrize("name", ["reshape", "flatten", "unflatten", "repeat", "repeat_interleave", "gather"])
def test_a_lazy_stack_refuses(name: str) -> None:
    stack = lazy_stack([TensorDict({"x": torch.zeros(4)}, [4]) for _ in range(3)])
    with pytest.raises(NotImplementedError, match=name):
        ACTS[name](stack, inplace=True)
    with pytest.raises(NotImplementedError, match="contiguous"):
        stack.contiguous(inplace=True)
    assert stack.batch_size == (3, 4)


def test_a_lazy_stack_below_is_replaced() -> None:
    members = [TensorDict({"x": torch.full((4,), float(place))}, [4]) for place in range(3)]
    td = TensorDict({"s": lazy_stack(members)}, [3, 4])
    td.flatten(0, 1, inplace=True)
    assert td["s", "x"].tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert members[0].batch_size == (4,)


def test_pad_of_a_lazy_stack() -> None:
    members = [TensorDict({"x": torch.full((4,), float(place))}, [4]) for place in (1, 2)]
    stack = lazy_stack(members)
    assert stack.pad([0, 0, 0, 1], value=5.0, inplace=True) is stack
    assert [one is two for one, two in zip(stack.tensordicts, members)] == [True, True]
    assert members[0]["x"].tolist() == [1, 1, 1, 1, 5]
    stack.pad([0, 1, 0, 0], value=7.0, inplace=True)
    assert stack["x"].tolist() == [[1, 1, 1, 1, 5], [2, 2, 2, 2, 5], [7] * 5]


def test_objects_move_in_place() -> None:
    words = NonTensorStack("u", "v", "w")
    td = TensorDict({"s": words, "one": NonTensorData("o", batch_size=[3])}, [3])
    td.roll(1, 0, inplace=True)
    assert td.get("s") is words
    assert (words.tolist(), td["one"]) == (["w", "u", "v"], "o")
    td.pad([0, 1], inplace=True)
    assert (words.tolist(), td["one"]) == (["w", "u", "v", None], ["o", "o", "o", None])
    with pytest.raises(RuntimeError, match="cannot preserve the identity of a NonTensorData"):
        NonTensorData("a", batch_size=[2]).pad([0, 1], inplace=True)


def test_a_tensorclass_stays_one() -> None:
    class Row(TensorClass):
        x: torch.Tensor

    row = Row(torch.arange(3.0), batch_size=[3])
    td = TensorDict({"row": row}, [3])
    td.pad([1, 0], inplace=True)
    assert td["row"] is row
    assert (row.x.tolist(), row.batch_size) == ([0, 0, 1, 2], (4,))


def test_locked_nodes_are_not_changed() -> None:
    td = held()
    td["n"].lock_()
    with pytest.raises(RuntimeError, match="locked"):
        td.reshape((12,), inplace=True)
    assert (td.batch_size, td["n"].batch_size, td["a"].shape) == ((3, 4), (3, 4, 2), (3, 4))


def test_what_is_refused() -> None:
    td = held()
    with pytest.raises(ValueError, match="mutually exclusive"):
        td.gather(1, torch.zeros(3, 1, dtype=torch.int64), out=held(), inplace=True)
    with pytest.raises(RuntimeError, match="negative output size"):
        td.pad([-2, -2], inplace=True)
    for given in ("1", ["1", 2], 2.0, [1.0, 2.0]):
        with pytest.raises(TypeError, match="int or list of ints"):
            td.split(given)
    with pytest.raises(RuntimeError, match="Insufficient number"):
        td.split([])
    with pytest.raises(RuntimeError, match="repeated dim in destination"):
        td.movedim((0, 1), (1, 1))
    for error in (ValueError, RuntimeError, IndexError):
        with pytest.raises(error, match="permute"):
            td.permute(0, 2)


class TestUpdateOfSizes:
    """`update(update_batch_size=True)` below the root."""

    def make(self, size: int) -> TensorDict:
        words = NonTensorStack(*[f"{size}-{place}" for place in range(size)])
        stack = lazy_stack([TensorDict({"r": torch.full((place,), float(size))}, [place]) for place in range(1, size + 1)])
        inner = TensorDict({"y": torch.full((size, 2), float(size))}, [size, 2])
        return TensorDict({"n": TensorDict({"x": torch.full((size,), 1.0), "d": inner, "s": words}, [size]), "l": stack})

    @pytest.mark.parametrize(("old", "new"), [(2, 3), (3, 2)])
    def test_nodes_stay(self, old: int, new: int) -> None:
        td, source = self.make(old), self.make(new)
        nodes = [td["n"], td["n", "d"], td["l"]]
        td.update(source, update_batch_size=True)
        assert all(one is two for one, two in zip(nodes, (td["n"], td["n", "d"], td["l"])))
        assert (td["n"].batch_size, td["n", "d"].batch_size, len(td["l"].tensordicts)) == ((new,), (new, 2), new)
        assert td["n", "d", "y"].tolist() == [[new, new]] * new
        assert td["n", "s"] == [f"{new}-{place}" for place in range(new)]
        td["n"].set("x", torch.zeros(new), inplace=False)
        assert source["n", "x"].tolist() == [1] * new

    def test_refused(self) -> None:
        td, source = self.make(2), self.make(3)
        with pytest.raises(RuntimeError, match="keys_to_update"):
            td.update(source, update_batch_size=True, keys_to_update=["n"])
        td["n"].lock_()
        with pytest.raises(RuntimeError, match="lock"):
            td.update(source, update_batch_size=True)
        assert (td["n"].batch_size, len(td["l"].tensordicts)) == ((2,), 2)


@pytest.mark.parametrize("name", ["reshape", "unsqueeze", "squeeze", "permute", "expand"])
def test_keywords_that_a_method_lacks(name: str) -> None:
    args = {"reshape": ((12,),), "unsqueeze": (0,), "squeeze": (), "permute": (1, 0), "expand": (2, 3, 4)}[name]
    with pytest.raises(TypeError, match="keyword"):
        getattr(held(), name)(*args, out=held())
