"""Compiled code that was traced while something was absent, and is called where it is there; and the other way round."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from tensordict import NonTensorData, TensorClass, TensorDict, TypedTensorDict, lazy_stack

W = torch.tensor([0.0, 1.0, 2.0])
Case = tuple[Callable[[Any], Any], Callable[[], Any], Callable[[], Any]]  # a function, what lacks something, what has it


class Masked(TensorClass):
    x: torch.Tensor
    mask: torch.Tensor | None = None


class Outer(TensorClass):
    x: torch.Tensor
    inner: Masked | None = None


class Typed(TypedTensorDict, total=False):
    x: torch.Tensor
    w: torch.Tensor


def one() -> torch.Tensor:
    return torch.ones(3)


def flat(**entries: Any) -> TensorDict:
    return TensorDict({"x": one(), **entries}, [3])


def flat_w() -> TensorDict:
    return flat(w=W.clone())


def nested(**entries: Any) -> TensorDict:
    return flat(n=TensorDict({"v": one(), **entries}, [3]))


def nested_w() -> TensorDict:
    return nested(w=W.clone())


def masked(**fields: Any) -> Masked:
    return Masked(x=one(), batch_size=[3], **fields)


def masked_w() -> Masked:
    return masked(mask=W.clone())


def typed() -> Typed:
    return Typed(flat(), batch_size=[3])


def typed_w() -> Typed:
    return Typed(flat_w(), batch_size=[3])


def stack() -> Any:
    return lazy_stack([flat(), flat_w()])


def stack_w() -> Any:
    return lazy_stack([flat_w(), flat_w()])


def attempt(function: Callable[[Any], Any], error: type[Exception] = KeyError) -> Callable[[Any], Any]:
    """What `function` does to a tensordict, ten times its `x` where that raises."""

    def call(td: Any) -> Any:
        try:
            out = function(td)
        except error:
            return td.get("x") * 10
        return out if isinstance(out, torch.Tensor) else td.get("x")

    return call


def after(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The entry `x` after `function` did something to a tensordict."""

    def call(td: Any) -> Any:
        function(td)
        return td.get("x") * 1

    return call


def set_mask(value: Any) -> Callable[[Any], Any]:
    def call(item: Any) -> None:
        item.mask = value(item)

    return call


def del_mask(item: Any) -> None:
    del item.mask


def mask_or_two(item: Any) -> Any:
    return item.x * 2 if item.mask is None else item.x * item.mask


def inner_mask(item: Any) -> Any:
    return item.x * 2 if item.inner is None else item.x * 3 if item.inner.mask is None else item.x * item.inner.mask


CASES: dict[str, Case] = {
    # fields of tensorclasses
    "field": (mask_or_two, masked, masked_w),
    "field of a result": (lambda item: mask_or_two(item + 1), masked, masked_w),
    "field of rows": (lambda item: mask_or_two(item[:2]), masked, masked_w),
    "field of a stack": (mask_or_two, lambda: lazy_stack([masked()] * 2), lambda: lazy_stack([masked_w()] * 2)),
    "field of a view": (
        mask_or_two,
        lambda: Masked.from_tensordict(flat()._get_sub_tensordict(slice(0, 2))),
        lambda: Masked.from_tensordict(flat(mask=W)._get_sub_tensordict(slice(0, 2))),
    ),
    "field of a field": (
        inner_mask,
        lambda: Outer(x=one(), inner=masked(), batch_size=[3]),
        lambda: Outer(x=one(), inner=masked_w(), batch_size=[3]),
    ),
    "field that holds one": (
        inner_mask,
        lambda: Outer(x=one(), batch_size=[3]),
        lambda: Outer(x=one(), inner=masked(), batch_size=[3]),
    ),
    "field by key": (lambda item: item.x * (2 if item.get("mask") is None else 3), masked, masked_w),
    "field removed": (after(del_mask), masked, masked_w),
    "field unset": (after(set_mask(lambda item: None)), masked, masked_w),
    "field set": (after(set_mask(lambda item: item.x * 2)), masked, masked_w),
    "typed field": (attempt(lambda td: td.x * td.w, AttributeError), typed, typed_w),
    "typed field by key": (lambda td: td.x * td.get("w", 2), typed, typed_w),
    # keys
    "get": (lambda td: td["x"] * td.get("w", 2), flat, flat_w),
    "get None": (lambda td: td["x"] * (2 if td.get("w") is None else 3), flat, flat_w),
    "get below": (lambda td: td["x"] * td.get(("n", "w"), 2), nested, nested_w),
    "get below a node that is not there": (lambda td: td["x"] * td.get(("n", "w"), 2), flat, nested_w),
    "get below a leaf": (lambda td: td["x"] * td.get(("n", "w"), 2), lambda: flat(n=one()), nested_w),
    "in": (lambda td: td["x"] * (3 if "w" in td else 2), flat, flat_w),
    "in keys": (lambda td: td["x"] * (3 if "w" in td.keys() else 2), flat, flat_w),
    "in below": (lambda td: td["x"] * (3 if ("n", "w") in td else 2), nested, nested_w),
    "in all keys": (lambda td: td["x"] * (3 if ("n", "w") in td.keys(True) else 2), nested, nested_w),
    "in keys of leaves": (lambda td: td["x"] * (3 if ("n", "w") in td.keys(True, True) else 2), nested, nested_w),
    "in below a leaf": (lambda td: td["x"] * (3 if ("n", "w") in td else 2), lambda: flat(n=one()), nested_w),
    "read": (attempt(lambda td: td["w"]), flat, flat_w),
    "read below": (attempt(lambda td: td["n", "w"]), nested, nested_w),
    "read for nothing": (attempt(lambda td: td["w"] is None), flat, flat_w),
    "setdefault": (lambda td: td.setdefault("w", td["x"] * 5) * 2, flat, flat_w),
    "setdefault below": (after(lambda td: td.setdefault(("n", "w"), td["x"] * 5)), nested, nested_w),
    "pop": (lambda td: td["x"] * td.pop("w", 3.0), flat, flat_w),
    "pop for nothing": (after(lambda td: td.pop("w", None)), flat, flat_w),
    "pop below": (after(lambda td: td.pop(("n", "w"), None)), nested, nested_w),
    "pop or raise": (attempt(lambda td: td.pop("w")), flat, flat_w),
    "del": (attempt(lambda td: td.del_("w")), flat, flat_w),
    "set_": (attempt(lambda td: td.set_("w", td["x"] * 3)), flat, flat_w),
    "set in place": (after(lambda td: td.set("w", td["x"] * 3, inplace=True)), flat, flat_w),
    "set below": (after(lambda td: td.set(("n", "w"), td["x"] * 3)), flat, nested_w),
    "rename": (attempt(lambda td: td.rename_key_("w", "q")), flat, flat_w),
    "select": (attempt(lambda td: td.select("w")["w"]), flat, flat_w),
    "select what is there": (lambda td: td.select("w", strict=False).get("w", td["x"] * 3), flat, flat_w),
    "exclude": (after(lambda td: td.exclude("w", inplace=True)), flat, flat_w),
    "update": (after(lambda td: td.update({"w": td["x"] * 3})), flat, flat_w),
    "another with the keys": (attempt(lambda td: (flat() + td)["x"]), flat, flat_w),
    "another with a default": (lambda td: td.add(flat(), default=3.0).get("w", td["x"]), flat, flat_w),
    "apply with a default": (
        lambda td: flat_w().apply(lambda mine, other: mine if other is None else other + 1, td, default=None)["w"],
        flat,
        flat_w,
    ),
    "values": (lambda td: sum((td * 2).values()), flat, flat_w),
    "values of rows": (lambda td: sum(td[torch.tensor([0, 1])].values()), flat, flat_w),
    "leaf or node": (lambda td: td["x"] * (2 if isinstance(td["n"], TensorDict) else 3), lambda: flat(n=one()), nested),
    # stacks and views
    "get of a stack": (lambda td: td["x"] * td.get("w", 2), stack, stack_w),
    "in a stack": (lambda td: td["x"] * (3 if "w" in td else 2), stack, stack_w),
    "read of a stack": (attempt(lambda td: td["w"]), stack, stack_w),
    "pop of a stack": (after(lambda td: td.pop("w", None)), stack, stack_w),
    "get of a view": (lambda td: td["x"] * td._get_sub_tensordict(0).get("w", torch.tensor(2.0)), flat, flat_w),
    # what is no entry
    "names": (lambda td: td["x"] * (2 if (td * 2)[:2].names == [None] else 3), flat, lambda: flat().refine_names("a")),
    "device": (lambda td: td["x"] * (2 if (td + 1).device is None else 3), flat, lambda: TensorDict(flat(), [3], device="cpu")),
    "lock": (lambda td: td["x"] * (2 if td.is_locked else 3), flat, lambda: flat().lock_()),
    "objects": (lambda td: td["x"] * (2 if td.get("s", None) is None else 3), flat, lambda: flat(s="text")),
    "objects or leaf": (lambda td: td["x"] * (2 if td.is_non_tensor("s") else 3), lambda: flat(s=one()), lambda: flat(s="a")),
    "None as an object": (
        lambda td: td["x"] * (2 if td["s"] is None else 3),
        lambda: flat(s=NonTensorData(None, batch_size=[3])),
        lambda: flat(s="text"),
    ),
}


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize("name", CASES)
def test_as_without_compiling(name):
    function, *makers = CASES[name]
    for order in (makers, makers[::-1]):
        torch._dynamo.reset()
        compiled = torch.compile(function, backend="eager")
        for make in order:
            alone, td = make(), make()
            wanted, found = function(alone), compiled(td)
            assert torch.equal(found, wanted)
            assert list(td.keys(True, True)) == list(alone.keys(True, True))
