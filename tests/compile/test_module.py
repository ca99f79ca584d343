"""Swapping parameters inside `torch.compile(fullgraph=True)`, against the same function run as it is."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tensordict import TensorDict, unravel_key, unravel_key_list, unravel_key_to_tuple

# A value that is no parameter goes to the module's own dict, from which dynamo of torch 2.11 cannot delete.
OWN_DICT = pytest.mark.skipif(torch.__version__ < (2, 12), reason="dynamo of torch 2.11 deletes nothing from `__dict__`")


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Sequential(nn.Linear(4, 2)))


def compiled(function: Any) -> Any:
    torch._dynamo.reset()
    return torch.compile(function, fullgraph=True, backend="eager")


@pytest.mark.parametrize("preserve", [True, pytest.param(False, marks=OWN_DICT)])
@pytest.mark.parametrize("grad", [True, False])
def test_forward_in_a_block(preserve: bool, grad: bool) -> None:
    net, x = network(), torch.randn(5, 3)
    before = list(net.parameters())
    params = TensorDict.from_module(net).data.apply(lambda leaf: leaf + 1)
    if grad:
        params = params.apply(lambda leaf: leaf.clone().requires_grad_())

    def call(x: torch.Tensor, params: TensorDict) -> torch.Tensor:
        with params.to_module(net, preserve_module_state=preserve):
            return net(x)

    expected = torch.func.functional_call(net, dict(params.flatten_keys(".").items()), x)
    function = compiled(call)
    for _ in range(2):
        torch.testing.assert_close(function(x, params), expected)
        assert all(one is two for one, two in zip(net.parameters(), before, strict=True))
    if grad:
        one, *_ = torch.autograd.grad(function(x, params).sum(), [params["0", "weight"]])
        two, *_ = torch.autograd.grad(expected.sum(), [params["0", "weight"]])
        torch.testing.assert_close(one, two)


@OWN_DICT
def test_vmap_in_a_block() -> None:
    net, x = network(), torch.randn(5, 3)
    params = TensorDict.from_module(net).data.apply(lambda leaf: torch.stack([leaf, leaf + 1]), batch_size=[2])

    def call(params: TensorDict, x: torch.Tensor) -> torch.Tensor:
        with params.to_module(net, preserve_module_state=False):
            return net(x)

    function = torch.vmap(call, (0, None))
    torch.testing.assert_close(compiled(function)(params, x), function(params, x))


def test_old_values() -> None:
    net, x = network(), torch.randn(5, 3)
    params = TensorDict.from_module(net).data.apply(lambda leaf: leaf + 1)

    def call(x: torch.Tensor, params: TensorDict) -> tuple[torch.Tensor, torch.Tensor]:
        with params.to_module(net) as old:
            return net(x), old["0", "weight"] + 1

    function = compiled(call)
    for _ in range(2):
        torch.testing.assert_close(function(x, params)[1], net[0].weight + 1)


def test_keys() -> None:
    def call(x: torch.Tensor) -> Any:
        key = ("a", ("b", "c"))
        return x + 1, unravel_key(key), unravel_key_list([key, "d"]), unravel_key_to_tuple("e")

    _, *found = compiled(call)(torch.ones(1))
    assert found == [("a", "b", "c"), [("a", "b", "c"), "d"], ("e",)]
