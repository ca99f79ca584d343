"""The exchange of parameters, native against Python: the same places, types and values, and all put back."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tensordict import TensorDict
from tensordict._kernel import native
from tensordict._polyfills import swap as twins


def network() -> nn.Module:
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Sequential(nn.LSTM(2, 2), nn.Linear(2, 1, bias=False)))
    net[2][1].requires_grad_(False)
    net.register_parameter("none", None)
    net.plain = torch.ones(1)
    return net


def facts(net: nn.Module) -> list[Any]:
    """Where each tensor of the module is, what it is, and its value."""
    found: list[Any] = []
    for name, module in net.named_modules():
        for holder in ("_parameters", "_buffers", "__dict__"):
            values = vars(module) if holder == "__dict__" else vars(module)[holder]
            found += [
                (name, holder, key, type(value), value.requires_grad, value.detach().tolist())
                for key, value in values.items()
                if isinstance(value, torch.Tensor)
            ]
        flat = vars(module).get("_flat_weights", [])
        found.append([weight.detach().tolist() for weight in flat])
    return found


def make(kind: str, like: torch.Tensor) -> torch.Tensor:
    value = torch.full_like(like.detach(), 3)
    if kind == "plain" or not value.is_floating_point():
        return value
    if kind == "graph":
        return value.requires_grad_() * 1
    return nn.Parameter(value, requires_grad=kind == "parameter")


KEYS = list(TensorDict.from_module(network()).keys(True, True))


@settings(deadline=None, max_examples=60)
@given(
    chosen=st.dictionaries(st.sampled_from(KEYS), st.sampled_from(["plain", "graph", "parameter", "frozen"])),
    extra=st.sampled_from([None, "plain", "none", "nope"]),
    preserve=st.booleans(),
)
def test_swaps_are_alike(chosen: dict[Any, str], extra: str | None, preserve: bool) -> None:
    net = network()
    tree = TensorDict.from_module(net)
    values = TensorDict({key: make(kind, tree[key]) for key, kind in chosen.items()})
    if extra is not None:
        values[extra] = torch.zeros(1)
    before, outcomes = facts(net), []
    for module in (native, twins):
        try:
            swap = module.swap_in(values, net, preserve)
        except KeyError as error:
            outcomes.append(str(error))
        else:
            old = TensorDict(module.swap_values(swap))
            outcomes.append((sorted(facts(net), key=repr), {key: id(leaf) for key, leaf in old.items(True, True)}))
            module.swap_out(swap)
        assert facts(net) == before
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("filter_empty", [True, False])
def test_fields_are_alike(filter_empty: bool) -> None:
    net = nn.Sequential(nn.ReLU(), network(), nn.Sequential(nn.ReLU()))
    one, two = (TensorDict(module.module_fields(net, filter_empty)) for module in (native, twins))
    assert list(one.keys(True)) == list(two.keys(True))
    assert all(one[key] is two[key] for key in one.keys(True, True))
