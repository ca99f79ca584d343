"""Tensors whose fields are read by address, against what torch says of them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tensordict import TensorDict
from tensordict._kernel import native
from tensordict._polyfills import shapes as twins

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int8, torch.int64, torch.uint16, torch.bool, torch.complex64]
SHAPE = st.lists(st.integers(0, 4), max_size=7)


def unusual() -> dict[str, Tensor]:
    """Tensors of the plain type that are not what their memory says, or have none."""
    values = torch.arange(1.0, 7.0).reshape(2, 3)
    pair = torch.complex(values, values)
    return {
        "neg": torch._neg_view(values),
        "conj": pair.conj(),
        "imag of conj": pair.conj().imag,
        "zero": torch._efficientzerotensor((2, 3)),
        "meta": values.to("meta"),
        "sparse": values.to_sparse(),
        "mkldnn": values.to_mkldnn(),
    }


def test_the_short_way_is_open() -> None:
    # Without it everything still works, slowly: a torch of another build should not slip by.
    assert native.all_tensors([torch.zeros(2)])


@given(st.lists(SHAPE, min_size=1, max_size=5), st.sampled_from(DTYPES), st.lists(st.integers(0, 9), max_size=3))
def test_shapes(shapes: list[list[int]], dtype: torch.dtype, sizes: list[int]) -> None:
    leaves = [torch.zeros(shape, dtype=dtype) for shape in shapes]
    consumed = min(len(shape) for shape in shapes)
    found = native.regrouped(leaves, consumed, sizes)
    # Sizes of more than five dimensions lie elsewhere, and are left to torch.
    wanted = twins.regrouped(leaves, consumed, sizes) if max(map(len, shapes)) <= 5 else None
    assert found == wanted
    leading = shapes[0][: len(sizes)]
    if wanted is not None:
        assert native.all_fit(leaves, leading) is twins.all_fit(leaves, leading)


@pytest.mark.parametrize("kind", unusual())
def test_what_memory_does_not_say_is_left_to_torch(kind: str) -> None:
    leaf = unusual()[kind]
    assert native.regrouped([leaf], 0, []) is None
    assert not native.all_fit([leaf], [2])
    if kind in ("neg", "conj", "imag of conj", "zero"):
        found = native.stack([[leaf, leaf.clone()], [leaf, leaf]], 0)
        for column in found or []:
            torch.testing.assert_close(column, torch.stack([leaf, leaf]))
        td = TensorDict({"a": leaf}, [2])
        torch.testing.assert_close(torch.stack([td, td])["a"], torch.stack([leaf, leaf]))
        torch.testing.assert_close(td[torch.tensor([1, 0])]["a"], leaf[torch.tensor([1, 0])])


def test_types_that_are_not_quite_tensors() -> None:
    parameter = torch.nn.Parameter(torch.zeros(2))
    assert not native.all_tensors([torch.zeros(2), parameter])
    assert not native.all_fit([torch.zeros(2), 1], [2])
    assert not native.all_fit([torch.zeros(2), torch.zeros(3)], [2])


@pytest.mark.parametrize("how", ["leaf", "view", "result", "view of a leaf", "detached", "once"])
def test_gradients_are_seen(how: str) -> None:
    leaf = torch.ones(3, requires_grad=True)
    plain = torch.ones(3)
    value = {
        "leaf": leaf,
        "view": plain[:],
        "result": leaf * 2,
        "view of a leaf": leaf[:],
        "detached": leaf.detach(),
        "once": torch.ones(3, requires_grad=True).requires_grad_(False),
    }[how]
    items = [TensorDict({"a": value}, [3]), TensorDict({"a": plain}, [3])]
    assert torch.stack(items)["a"].requires_grad is value.requires_grad
    assert torch.cat(items)["a"].requires_grad is value.requires_grad
    assert items[0][torch.tensor([0, 2])]["a"].requires_grad is value.requires_grad


def test_a_view_whose_base_comes_to_want_a_gradient() -> None:
    base = torch.zeros(3)
    view = base[:]
    items = [TensorDict({"a": view}, [3])] * 2
    assert not torch.stack(items)["a"].requires_grad
    base.mul_(torch.ones(3, requires_grad=True))
    assert view.requires_grad
    assert torch.stack(items)["a"].requires_grad


def test_inference_tensors() -> None:
    with torch.inference_mode():
        inside = TensorDict({"a": torch.arange(4.0)}, [4])
        assert torch.stack([inside, inside])["a"].tolist() == [[0.0, 1.0, 2.0, 3.0]] * 2
    assert torch.stack([inside, inside])["a"].tolist() == [[0.0, 1.0, 2.0, 3.0]] * 2


PROGRAM = """
import torch
from tensordict import TensorDict
from tensordict._kernel import native
print(native.all_tensors([torch.zeros(2)]))
td = TensorDict({"a": torch.arange(6.0).reshape(2, 3), "b": {"c": torch.arange(2)}}, [2])
print(torch.stack([td, td])["a"].tolist(), torch.cat([td, td])["b", "c"].tolist(), td[torch.tensor([1, 1])]["a"].tolist())
print(td.reshape(2, 1)["a"].shape, td.expand(3, 2)["b", "c"].shape, td.apply(torch.neg)["a"].tolist())
net = torch.nn.Linear(2, 1)
with TensorDict.from_module(net).data.clone().zero_().to_module(net):
    print(net(torch.ones(2)).item())
"""


def test_the_long_way_gives_the_same() -> None:
    def lines(switch: str) -> list[str]:
        environment = {**os.environ, "TD_DIRECT_READS": switch}
        done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    short, long = lines("1"), lines("0")
    assert (short[0], long[0]) == ("True", "False")
    assert short[1:] == long[1:]
