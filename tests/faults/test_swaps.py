"""Swaps of parameters under unusual modules and in the middle of errors: spare parameters, mappings, keys that run code."""

from __future__ import annotations

import contextlib
import gc
import pickle
import sys
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import ClassVar

import pytest
import torch
from torch import nn

from modules import state
from tensordict import TensorDict


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
    if hasattr(torch.Tensor, "grad_dtype"):
        CHANGES["dtype of gradients"] = lambda p: setattr(p, "grad_dtype", torch.float64)
        CHANGES["any dtype of gradients"] = lambda p: setattr(p, "grad_dtype", None)

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
            assert getattr(net.weight, "grad_dtype", torch.float32) == torch.float32
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


class TestWhatABlockChanges:
    """What a block does to a module goes to the tensordict; the module, and the order of its names, is as before."""

    def net(self):
        return nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))

    def data(net):
        net[0].weight.data = torch.full((3, 2), 5.0)

    def view(net):
        net[0].weight.data = net[0].weight.data[:1]

    def registered(net):
        net[0].register_parameter("weight", nn.Parameter(torch.full((3, 2), 5.0)))

    def exchanged(net):
        torch.utils.swap_tensors(net[0].weight, nn.Parameter(torch.full((3, 2), 5.0)))

    def deleted_and_set(net):
        del net[0].weight
        net[0].weight = nn.Parameter(torch.full((3, 2), 5.0))

    def deleted_and_plain(net):
        del net[0].weight
        net[0].weight = torch.full((3, 2), 5.0)

    CHANGES: ClassVar[dict[str, tuple[Callable[[nn.Module], None], torch.Tensor]]] = {
        "data": (data, torch.full((3, 2), 5.0)),
        "view": (view, torch.zeros(1, 2)),
        "half": (nn.Module.half, torch.zeros(3, 2, dtype=torch.float16)),
        "double": (nn.Module.double, torch.zeros(3, 2, dtype=torch.float64)),
        "registered": (registered, torch.full((3, 2), 5.0)),
        "exchanged": (exchanged, torch.full((3, 2), 5.0)),
        "deleted and set": (deleted_and_set, torch.full((3, 2), 5.0)),
        "deleted and plain": (deleted_and_plain, torch.full((3, 2), 5.0)),
    }

    @pytest.mark.parametrize("locked", [False, True])
    @pytest.mark.parametrize("change", CHANGES)
    def test_a_parameter(self, change, locked):
        net = self.net()
        before, values = state(net), zeros(net)
        action, wanted = self.CHANGES[change]
        if locked:
            values.lock_()
        with values.to_module(net):
            action(net)
        assert state(net) == before
        torch.testing.assert_close(values["0", "weight"].detach(), wanted)
        with values.to_module(net):
            torch.testing.assert_close(net[0].weight.detach(), wanted)
        assert state(net) == before

    def test_a_loaded_state(self):
        net = self.net()
        before, values = state(net), zeros(net)
        for assign in (False, True):
            with values.to_module(net):
                net.load_state_dict({key: value + 1 for key, value in net.state_dict().items()}, assign=assign)
        assert state(net) == before
        assert all((leaf == 2).all() for leaf in values.values(True, True))

    def test_the_memory_of_a_source(self):
        net = self.net()
        values = zeros(net)
        leaf = values["0", "weight"]
        with values.to_module(net):
            leaf.data = torch.ones(3, 2)
        assert values["0", "weight"] is leaf
        assert (leaf == 1).all()

    def test_a_buffer_that_a_parameter_stands_for(self):
        net = self.net()
        values = TensorDict({"1": {"running_mean": nn.Parameter(torch.zeros(3))}})
        with values.to_module(net):
            net[1].running_mean.data = torch.ones(3)
        assert (values["1", "running_mean"] == 1).all()

    def test_what_is_on_no_device(self):
        net = self.net().to("meta")
        values = TensorDict.from_module(net).data
        leaf = values["0", "weight"]
        with values.to_module(net):
            pass
        assert values["0", "weight"] is leaf

    def test_every_name_of_a_shared_module(self):
        shared = nn.BatchNorm1d(2)
        net = nn.Sequential(shared, shared)
        values = TensorDict.from_module(net).data.clone()
        with values.to_module(net):
            shared.half()
            shared.num_batches_tracked = torch.tensor(7)
        for name in "01":
            assert values[name, "weight"].dtype == torch.float16
            assert values[name, "num_batches_tracked"] == 7

    @pytest.mark.parametrize("names", [["weight"], ["weight", "bias"], ["bias", "weight"]])
    def test_the_order_of_names_that_went_and_came(self, names):
        net = nn.Linear(2, 2)
        before = state(net)
        values = zeros(net).select(*names)
        with values.to_module(net):
            weight = net.weight
            del net.weight
            net.weight = weight
        assert state(net) == before
        with zeros(net).to_module(net):
            del net.weight, net.bias
        assert state(net) == before
        assert list(net.state_dict()) == ["weight", "bias"]

    def test_a_parameter_in_the_place_of_an_attribute(self):
        net = nn.Linear(2, 2)
        before, values = state(net), zeros(net)
        with values.to_module(net, preserve_module_state=False):
            net.weight = nn.Parameter(torch.ones(2, 2))
        assert state(net) == before
        assert (values["weight"] == 1).all()

    def test_nested_blocks(self):
        net = self.net()
        before, outer, inner = state(net), zeros(net), zeros(net)
        with outer.to_module(net):
            with inner.to_module(net):
                net[0].weight.data = torch.ones(3, 2)
            assert not net[0].weight.any()
            net.half()
        assert state(net) == before
        assert (inner["0", "weight"] == 1).all()
        assert outer["0", "weight"].dtype == torch.float16


def test_old_values_are_read_while_the_block_ends() -> None:
    """A thread that is making the nodes of the old values does not keep the module from getting them back."""
    net = nn.Sequential(nn.Linear(2, 2))
    before, values = state(net), zeros(net)
    old = values.to_module(net)
    inside, ended = threading.Event(), threading.Event()
    threads: list[int] = []

    def wait(frame, event, argument):
        if event == "call" and frame.f_code.co_name == "_new" and not threads:
            threads.append(threading.get_ident())
            inside.set()
            ended.wait(60)

    def read():
        sys.setprofile(wait)
        try:
            keys.extend(old.keys())
        finally:
            sys.setprofile(None)

    keys: list[str] = []
    thread = threading.Thread(target=read)
    thread.start()
    assert inside.wait(60)
    with old:
        pass
    ended.set()
    thread.join()
    assert state(net) == before
    assert keys == ["0"]


@pytest.mark.parametrize("wraps", [True, False])
def test_keys_that_are_other_strings_of_the_same_names(wraps: bool) -> None:
    net = nn.Linear(2, 3)
    names = {"".join(list(name)): value for name, value in net.named_parameters()}
    assert all(own is not name for own, name in zip(net._parameters, names, strict=True))
    values = {name: torch.full_like(value, 2.0).detach() for name, value in names.items()}
    given = TensorDict(values if wraps else {name: nn.Parameter(value) for name, value in values.items()})
    before = dict(net._parameters)
    with given.to_module(net):
        weight = net.weight
        del net.weight
        net.weight = weight
        net.bias.data = torch.full((3,), 5.0)
        assert list(net._parameters) == ["bias", "weight"]
    assert list(net._parameters) == ["weight", "bias"]
    assert all(net._parameters[name] is value for name, value in before.items())
    assert given["bias"].tolist() == [5.0] * 3
    assert given["weight"].tolist() == [[2.0] * 2] * 3
