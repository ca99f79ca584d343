"""Swaps of parameters under unusual modules and in the middle of errors: spare parameters, mappings, keys that run code."""

from __future__ import annotations

import contextlib
import gc
import pickle
import sys
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import ClassVar

import pytest
import torch
from torch import nn

from tensordict import TensorDict


def state(module: nn.Module) -> list[object]:
    """Every dict of every module, by identity and order, and the lists of the RNN modules."""
    found: list[object] = []
    for name, child in module.named_modules(remove_duplicate=False):
        for kind in ("_parameters", "_buffers"):
            found += [(name, kind, key, id(value)) for key, value in getattr(child, kind).items()]
        found += [(name, key) for key in child.__dict__]
        found += [(name, id(weight)) for weight in child.__dict__.get("_flat_weights", [])]
    return found


def zeros(module: nn.Module) -> TensorDict:
    return TensorDict.from_module(module).data.clone().zero_()


class TestSpareParameters:
    """The parameter that a swap makes for a plain tensor is kept for the next one only while it is as if it were new."""

    def net(self):
        net = nn.Linear(2, 2, bias=False)
        return net, TensorDict({"weight": torch.zeros(2, 2)})

    def number(self, values, net):
        with values.to_module(net):
            return id(net.weight)

    def test_kept_while_nobody_has_touched_it(self):
        net, values = self.net()
        first = self.number(values, net)
        between = [nn.Parameter(torch.zeros(1)) for _ in range(10)]  # would take the place of one that had gone
        assert self.number(values, net) == first
        assert len(between) == 10

    CHANGES: ClassVar[dict[str, Callable[[nn.Parameter], object]]] = {
        "attribute": lambda p: setattr(p, "note", 1),
        "attributes exchanged": lambda p: setattr(p, "__dict__", {"note": 1}),
        "empty attributes exchanged": lambda p: setattr(p, "__dict__", {}),
        "class": lambda p: setattr(p, "__class__", type("Other", (nn.Parameter,), {})),
        "gradient": lambda p: setattr(p, "grad", torch.ones(2, 2)),
        "hook": lambda p: p.register_hook(lambda grad: None),
        "later hook": lambda p: p.register_post_accumulate_grad_hook(lambda p: None),
        "no gradient wanted": lambda p: p.requires_grad_(False),
        "history": lambda p: p.requires_grad_(False).mul_(torch.ones(1, requires_grad=True)),
        "cycle": lambda p: setattr(p, "me", p),
    }

    @pytest.mark.parametrize("change", CHANGES)
    def test_a_changed_one_is_not_seen_again(self, change):
        net, values = self.net()
        self.number(values, net)
        with values.to_module(net):
            self.CHANGES[change](net.weight)
        with values.to_module(net):
            assert type(net.weight) is nn.Parameter
            assert vars(net.weight) == {}
            assert net.weight.is_leaf
            assert net.weight.requires_grad
            assert net.weight.grad is None
            assert net.weight._backward_hooks is None
            assert net.weight._post_accumulate_grad_hooks is None
            assert torch.equal(net.weight, values["weight"])

    def test_attributes_that_somebody_still_holds(self):
        net, values = self.net()
        with values.to_module(net):
            held = vars(net.weight)
        held["note"] = 1
        with values.to_module(net):
            assert vars(net.weight) == {}

    def test_weak_references_end_with_the_block(self):
        net, values = self.net()
        ended = []
        with values.to_module(net):
            reference = weakref.ref(net.weight, ended.append)
        gc.collect()
        assert reference() is None
        assert ended == [reference]
        with values.to_module(net):
            assert reference() is None

    def test_a_cycle_goes(self):
        class Held:
            pass

        net, values = self.net()
        with values.to_module(net):
            net.weight.held = Held()
            net.weight.held.parameter = net.weight
            reference = weakref.ref(net.weight.held)
        del values
        gc.collect()
        assert reference() is None


def old_module() -> nn.Module:
    """A module as old pickles have it, with `OrderedDict`s, the first entry moved to the end."""
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    for module in net.modules():
        for kind in ("_parameters", "_buffers", "_modules"):
            module.__dict__[kind] = OrderedDict(module.__dict__[kind])
    net[0]._parameters.move_to_end("weight")
    return net


class TestOrderedDicts:
    @pytest.mark.parametrize("preserve", [True, False])
    def test_a_swap_and_back(self, preserve):
        net = old_module()
        before = state(net)
        names = [name for name, _ in net.named_parameters()]
        assert names[:2] == ["0.bias", "0.weight"]
        values = zeros(net)
        assert list(TensorDict.from_module(net)["0"].keys()) == ["bias", "weight"]
        for _ in range(2):
            with values.to_module(net, preserve_module_state=preserve):
                assert not net[0].weight.any()
                assert [name for name, _ in net.named_parameters()] == (names if preserve else [])
            assert state(net) == before
            assert [name for name, _ in net.named_parameters()] == names
        assert len(list(net.parameters())) == 4
        assert pickle.loads(pickle.dumps(net._modules)).keys() == net._modules.keys()

    def test_for_good(self):
        net = old_module()
        before = state(net)
        old = zeros(net).to_module(net)
        assert len(list(net.parameters())) == 4
        old.to_module(net)
        assert state(net) == before

    def test_what_a_mapping_does_is_done(self):
        """A dict with rules of its own is written by them."""

        class Noted(dict):
            def __setitem__(self, key, value):
                written.append(key)
                super().__setitem__(key, value)

        written: list[str] = []
        net = nn.Linear(2, 2)
        net.__dict__["_parameters"] = Noted(net._parameters)
        with zeros(net).to_module(net):
            assert written == ["weight", "bias"]
        assert sorted(written) == ["bias", "bias", "weight", "weight"]


class Refusing(dict):
    """A dict that refuses to be written from the given write on, as often as said."""

    def __init__(self, entries, first, times=1):
        super().__init__(entries)
        self.writes, self.first, self.times = 0, first, times

    def __setitem__(self, key, value):
        self.writes += 1
        if self.first <= self.writes < self.first + self.times:
            raise OSError(f"write {self.writes} of {key}")
        super().__setitem__(key, value)


class TestFaults:
    def net(self, first, times=1):
        net = nn.Module()
        for name in "abcd":
            net.register_parameter(name, nn.Parameter(torch.ones(1)))
        net.__dict__["_parameters"] = Refusing(net._parameters, first, times)
        return net

    @pytest.mark.parametrize("first", [1, 2, 3, 4])
    def test_a_write_that_fails_undoes_those_before(self, first):
        net = self.net(first)
        before, values = state(net), zeros(net)
        leaves = dict(values.items())
        with pytest.raises(OSError, match=f"write {first} of"):
            values.to_module(net)
        assert state(net) == before
        assert all(values[key] is leaf for key, leaf in leaves.items())

    def test_the_rest_is_put_back_after_one_that_fails(self):
        net = self.net(6, 2)  # four writes in, then the last but one and the one before it out
        before, values = dict(net._parameters), zeros(net)
        swap = values.to_module(net)
        with pytest.raises(OSError, match="write 6 of c") as caught, swap:
            pass
        assert [name for name in "abcd" if net._parameters[name] is before[name]] == ["a", "d"]
        if sys.version_info >= (3, 11):
            assert caught.value.__notes__ == ["and then, while the rest was put back: OSError: write 7 of b"]

    def test_an_end_comes_once(self):
        net = self.net(100)
        before, values = state(net), zeros(net)
        kept = dict(values.items())
        old = values.to_module(net)
        with old:
            pass
        assert state(net) == before
        net.a = own = nn.Parameter(torch.full((1,), 7.0))
        with old:
            pass
        assert net.a is own
        assert all(values[key] is leaf for key, leaf in kept.items())

    def test_an_inplace_copy_that_fails_is_undone(self):
        net = nn.Linear(2, 2)
        weight = net.weight.detach().clone()
        values = TensorDict({"weight": torch.zeros(2, 2), "bias": torch.zeros(2)})
        values["bias"] = torch.zeros(2).to_sparse()
        with pytest.raises((RuntimeError, NotImplementedError)):
            values.to_module(net, inplace=True)
        assert torch.equal(net.weight, weight)


class Key(str):
    """A name that runs code when it is looked for."""

    action: Callable[[], object] | None = None

    def __hash__(self):
        if self.action is not None:
            action, self.action = self.action, None
            action()
        return super().__hash__()


class TestKeysThatRunCode:
    def net(self, count=50):
        net = nn.Module()
        for number in range(count):
            net.register_parameter(f"p{number}", nn.Parameter(torch.ones(1)))
        return net

    def with_key(self, action):
        net = self.net()
        key = Key("special")
        net.register_parameter(key, nn.Parameter(torch.ones(1)))
        net.register_parameter("last", nn.Parameter(torch.ones(1)))
        key.action = lambda: action(net)
        return net

    ACTIONS: ClassVar[dict[str, Callable[[nn.Module], object]]] = {
        "clear": lambda net: net._parameters.clear(),
        "grow": lambda net: net._parameters.update({f"q{n}": nn.Parameter(torch.ones(1)) for n in range(500)}),
        "exchange": lambda net: net.__dict__.update(_parameters={}),
        "collect": lambda net: (net._parameters.clear(), gc.collect()),
    }

    @pytest.mark.parametrize("action", ACTIONS)
    def test_from_module(self, action):
        net = self.with_key(self.ACTIONS[action])
        assert len(list(TensorDict.from_module(net).keys())) == 52

    @pytest.mark.parametrize("action", ACTIONS)
    def test_to_module(self, action):
        net = self.with_key(lambda net: None)
        values = zeros(net)
        key = Key("special")
        values._tensordict = {key if name == "special" else name: leaf for name, leaf in values.items()}
        key.action = lambda: self.ACTIONS[action](net)
        # What becomes of the values is open where the module loses its names; nothing crashes, and no panic is raised.
        with contextlib.suppress(KeyError), values.to_module(net):
            key.action = lambda: self.ACTIONS[action](net)

    def test_finalizers_of_what_a_block_put_in(self):
        ended = []

        class Ending:
            def __del__(self):
                ended.append(1)
                net._parameters.clear()
                gc.collect()

        net = self.net(5)
        values = zeros(net)
        with values.to_module(net):
            net.p2 = None
            net._parameters["p2"] = Ending()
        assert ended == [1]


@pytest.mark.parametrize("lazy", [torch._neg_view, torch.conj])
def test_a_source_with_a_lazy_sign_or_conjugation(lazy: Callable[[torch.Tensor], torch.Tensor]) -> None:
    dtype = torch.complex64 if lazy is torch.conj else torch.float32
    source = torch.full((1, 2), 1 + 2j, dtype=dtype) if dtype.is_complex else torch.ones(1, 2)
    params = TensorDict({"weight": source}, [])
    module = torch.nn.Linear(2, 1, bias=False, dtype=dtype)
    with params.to_module(module):
        pass
    wanted = lazy(source).clone().resolve_conj().resolve_neg()
    source.data = lazy(source.data)
    with params.to_module(module):
        assert torch.equal(module.weight.detach().resolve_conj().resolve_neg(), wanted)
