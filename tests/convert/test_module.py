"""`from_module` and `to_module` in eager mode. The expected values are the module's own tensors, and torch's results."""

from __future__ import annotations

import copy
import gc
import threading
import weakref
from collections.abc import Callable

import pytest
import torch
from torch import nn

import tensordict
from modules import state
from tensordict import LazyStackedTensorDict, TensorDict


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(2, 2, bias=False)
        self.b = nn.Linear(2, 2, bias=False)
        self.b.weight = self.a.weight


class CustomSet(nn.Linear):
    def __setattr__(self, name: str, value: object) -> None:
        if name == "weight" and "weight" in self._parameters:
            raise AssertionError("a swap does not go through __setattr__")
        super().__setattr__(name, value)


class CustomGet(nn.Linear):
    def __getattr__(self, name: str) -> object:
        return 7 if name == "magic" else super().__getattr__(name)


def modules() -> dict[str, nn.Module]:
    torch.manual_seed(0)
    shared = nn.Linear(2, 2)
    return {
        "linear": nn.Linear(2, 2),
        "nested": nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2))),
        "shared": nn.Sequential(shared, nn.ReLU(), shared),
        "tied": Tied(),
        "no bias": nn.Linear(2, 2, bias=False),
        "custom setattr": CustomSet(2, 2),
        "custom getattr": CustomGet(2, 2),
        "lstm": nn.LSTM(2, 3),
        "weight norm": nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)),
        "frozen": nn.Linear(2, 2).requires_grad_(False),
    }


NAMES = list(modules())


@pytest.fixture(params=NAMES)
def module(request: pytest.FixtureRequest) -> nn.Module:
    return modules()[request.param]


def zeros(module: nn.Module) -> TensorDict:
    return TensorDict.from_module(module).data.clone().zero_()


# from_module


def test_leaves_are_the_parameters_and_buffers(module: nn.Module) -> None:
    tree = TensorDict.from_module(module)
    expected = dict(module.named_parameters(remove_duplicate=False)) | dict(module.named_buffers(remove_duplicate=False))
    found = {".".join(k) if isinstance(k, tuple) else k: v for k, v in tree.items(True, True)}
    assert found.keys() == expected.keys()
    assert all(found[key] is expected[key] for key in found)
    assert type(tree) is TensorDict
    assert tree.batch_size == torch.Size([])
    assert tree.device is None


def test_lock_defaults_differ() -> None:
    net = nn.Sequential(nn.Linear(1, 1))
    assert not TensorDict.from_module(net).is_locked
    assert TensorDict.from_module(net, lock=True)["0"].is_locked
    assert tensordict.from_module(net).is_locked
    assert not tensordict.from_module(net, lock=False).is_locked


def test_filter_empty() -> None:
    net = nn.Sequential(nn.Linear(1, 1), nn.ReLU())
    assert list(TensorDict.from_module(net).keys()) == ["0"]
    full = TensorDict.from_module(net, filter_empty=False)
    assert list(full.keys()) == ["0", "1"]
    assert full["1"].is_empty()


def test_from_state_dict_runs_hooks_and_detaches() -> None:
    net = nn.BatchNorm1d(2)
    net.register_buffer("scratch", torch.ones(1), persistent=False)
    net._register_state_dict_hook(lambda module, state, *_: state.update(weight=state["weight"] + 1))
    tree = TensorDict.from_module(net, use_state_dict=True)
    assert "scratch" not in tree
    assert not tree["weight"].requires_grad
    torch.testing.assert_close(tree["weight"], torch.full((2,), 2.0))


def test_a_module_that_holds_itself() -> None:
    net = nn.Linear(1, 1)
    net._modules["me"] = net
    with pytest.raises(RecursionError):
        TensorDict.from_module(net)


def test_as_module_says_that_it_is_to_come() -> None:
    with pytest.raises(NotImplementedError, match="TensorDictParams"):
        TensorDict.from_module(nn.Linear(1, 1), as_module=True)


# to_module for the time of a block


@pytest.mark.parametrize("preserve", [True, False])
def test_a_block_sees_the_values_and_then_all_is_as_before(module: nn.Module, preserve: bool) -> None:
    before, values = state(module), zeros(module)
    for _ in range(2):  # the second time with the parameters of the first
        with values.to_module(module, preserve_module_state=preserve):
            for key, value in values.items(True, True):
                *path, name = (key,) if isinstance(key, str) else key
                now = getattr(module.get_submodule(".".join(path)), name)
                assert torch.equal(now, torch.zeros_like(value))
        assert state(module) == before


@pytest.mark.parametrize("preserve", [True, False])
def test_an_exception_in_the_block(module: nn.Module, preserve: bool) -> None:
    before = state(module)
    with pytest.raises(ZeroDivisionError), zeros(module).to_module(module, preserve_module_state=preserve):
        raise ZeroDivisionError
    assert state(module) == before


def test_forward_under_the_values() -> None:
    net, x = modules()["nested"].eval(), torch.randn(4, 2)
    values = TensorDict.from_module(net).data.apply(lambda leaf: leaf + 1)
    expected = torch.func.functional_call(net, dict(values.flatten_keys(".").items()), x)
    with values.to_module(net):
        torch.testing.assert_close(net(x), expected)


def test_plain_tensors_become_parameters_of_the_same_memory() -> None:
    net = nn.Linear(2, 2)
    net.bias.requires_grad_(False)
    values = zeros(net)
    with values.to_module(net):
        assert isinstance(net.weight, nn.Parameter)
        assert net.weight.data_ptr() == values["weight"].data_ptr()
        assert net.weight.requires_grad
        assert not net.bias.requires_grad
        assert list(net.state_dict()) == ["weight", "bias"]


def test_what_is_part_of_a_graph_goes_in_as_it_is() -> None:
    net = nn.Linear(2, 2, bias=False)
    leaf = torch.ones(2, 2, requires_grad=True)
    values = TensorDict({"weight": leaf * 2})
    with values.to_module(net):
        assert net.weight is values["weight"]
        net(torch.ones(2)).sum().backward()
    assert torch.equal(leaf.grad, torch.full((2, 2), 2.0))


@pytest.mark.parametrize("base", [True, False])
@pytest.mark.parametrize("given", [True, False])
def test_parameters(base: bool, given: bool) -> None:
    net = nn.Linear(2, 2, bias=False).requires_grad_(base)
    value = nn.Parameter(torch.zeros(2, 2), requires_grad=given)
    with TensorDict({"weight": value}).to_module(net):
        assert (net.weight is value) == (base == given)
        assert net.weight.requires_grad == base
    with TensorDict({"weight": value}).to_module(net, preserve_module_state=False):
        assert net.weight is value


def test_without_preservation_plain_tensors_are_attributes() -> None:
    net = nn.Linear(2, 2)
    values = zeros(net)
    with values.to_module(net, preserve_module_state=False):
        assert net.weight is values["weight"]
        assert not net.state_dict()
    assert [name for name, _ in net.named_parameters()] == ["weight", "bias"]


def test_buffers_stay_buffers() -> None:
    net = nn.Module()
    net.register_buffer("x", torch.ones(2))
    value = nn.Parameter(torch.zeros(2))
    with TensorDict({"x": value}).to_module(net):
        assert type(net.x) is torch.Tensor
        assert net.x.data_ptr() == value.data_ptr()
        assert not list(net.parameters())
    with TensorDict({"x": value}).to_module(net, preserve_module_state=False):
        assert list(net.parameters()) == [value]
    assert not list(net.parameters())
    assert torch.equal(net.x, torch.ones(2))


def test_attributes_that_are_no_parameters() -> None:
    net = nn.Linear(2, 2)
    net.extra = torch.ones(1)
    with TensorDict({"extra": torch.zeros(1)}).to_module(net):
        assert net.extra.item() == 0
    assert net.extra.item() == 1


def test_partial_trees_leave_the_rest() -> None:
    net = nn.Linear(2, 2)
    bias = net.bias
    with TensorDict({"weight": torch.zeros(2, 2)}).to_module(net):
        assert net.bias is bias


def test_nested_blocks() -> None:
    net, x = nn.Linear(2, 2), torch.ones(2)
    before, zero = state(net), zeros(net)
    one = zero.apply(lambda leaf: leaf + 1)
    with zero.to_module(net):
        with one.to_module(net):
            assert torch.equal(net(x), torch.full((2,), 3.0))
            with zero.to_module(net):
                assert torch.equal(net(x), torch.zeros(2))
        assert torch.equal(net(x), torch.zeros(2))
    assert state(net) == before


def test_what_the_block_sets_goes_to_the_tensordict() -> None:
    net = nn.BatchNorm1d(2)
    values = TensorDict.from_module(net).data.clone().lock_()
    kept = values["weight"]
    with values.to_module(net):
        net.num_batches_tracked = torch.tensor(77)
        net(torch.randn(4, 2))
    assert values["num_batches_tracked"].item() == 78
    assert values["weight"] is kept
    assert net.num_batches_tracked.item() == 0


def test_what_the_block_removes_or_adds() -> None:
    net = nn.BatchNorm1d(2)
    before = state(net)
    values = zeros(net)
    with values.to_module(net):
        del net.running_mean
        net.weight = None
        net.register_parameter("later", nn.Parameter(torch.ones(1)))
    assert {entry for entry in state(net) if "later" not in entry} == set(before)
    assert net.later.item() == 1
    assert set(values.keys()) == {"weight", "bias", "running_mean", "running_var", "num_batches_tracked"}


def test_rnn_modules_compute_with_the_values() -> None:
    net, x = nn.LSTM(2, 3), torch.randn(4, 1, 2)
    y = net(x)[0]
    weights = list(net._flat_weights)
    for preserve in (True, False):
        with zeros(net).to_module(net, preserve_module_state=preserve):
            assert torch.equal(net(x)[0], torch.zeros(4, 1, 3))
            assert net._flat_weights[0] is net.weight_ih_l0
        assert torch.equal(net(x)[0], y)
        assert all(one is two for one, two in zip(weights, net._flat_weights, strict=True))


def test_the_first_name_of_a_shared_module_counts() -> None:
    net = modules()["shared"]
    values = zeros(net)
    values["2", "weight"].fill_(1)
    with values.to_module(net) as old:
        assert torch.equal(net[2].weight, torch.zeros(2, 2))
    assert old["2", "weight"] is old["0", "weight"] is net[0].weight


def test_meta_base() -> None:
    base = nn.Linear(3, 1).to("meta")
    before = state(base)
    with TensorDict({"weight": torch.ones(1, 3), "bias": torch.zeros(1)}).to_module(base):
        assert base(torch.ones(3)).item() == 3
    assert state(base) == before
    with TensorDict.from_module(base).to_module(net := nn.Linear(3, 1)):
        assert net(torch.ones(3, device="meta")).device.type == "meta"


def test_lazy_modules() -> None:
    net = nn.LazyLinear(3)
    assert isinstance(TensorDict.from_module(net)["weight"], nn.UninitializedParameter)
    old = TensorDict({"weight": torch.zeros(3, 2), "bias": torch.zeros(3)}).to_module(net)
    assert net.weight.shape == (3, 2)
    assert isinstance(old["weight"], nn.UninitializedParameter)


# The parameters that are made for plain tensors, and kept


def test_each_block_starts_without_gradient_or_hooks() -> None:
    net = nn.Linear(2, 1)
    values = zeros(net)
    calls: list[int] = []
    for _ in range(3):
        with values.to_module(net):
            assert net.weight.grad is None
            net.weight.register_hook(lambda grad: calls.append(1))
            net(torch.ones(2)).sum().backward()
            assert torch.equal(net.weight.grad, torch.ones(1, 2))
    assert len(calls) == 3


@pytest.mark.parametrize(
    "use",
    [
        lambda weight, note: weight.register_post_accumulate_grad_hook(note),
        lambda weight, note: weight.register_hook(note),
        lambda weight, note: setattr(weight, "grad", torch.ones(1, 2)),
        lambda weight, note: weight.requires_grad_(False),
    ],
    ids=["hook after accumulation", "hook", "gradient", "flag"],
)
def test_a_parameter_that_was_used_is_not_used_again(use: Callable[[nn.Parameter, Callable[..., None]], object]) -> None:
    net = nn.Linear(2, 1)
    values = zeros(net)
    calls: list[object] = []
    with values.to_module(net):
        use(net.weight, calls.append)
    with values.to_module(net):
        assert net.weight.requires_grad
        assert net.weight.grad is None
        net(torch.ones(2)).sum().backward()
        assert torch.equal(net.weight.grad, torch.ones(1, 2))
    assert not calls


def test_graphs_of_an_earlier_block_are_another_parameters() -> None:
    net = nn.Linear(2, 1)
    values = zeros(net)
    with values.to_module(net):
        first = net(torch.ones(2)).sum()
        one = net.weight
    with values.to_module(net):
        assert net.weight is not one
        first.backward()
        assert net.weight.grad is None
    assert torch.equal(one.grad, torch.ones(1, 2))
    with values.to_module(net):
        loss = net(torch.ones(2)).sum()
    with values.to_module(net):
        loss.backward()
        assert net.weight.grad is None


def test_changed_memory_shape_and_flags_are_seen() -> None:
    net = nn.Linear(2, 2, bias=False)
    value = torch.zeros(2, 2)
    values = TensorDict({"weight": value})
    for change in (
        lambda: setattr(value, "data", torch.full((2, 2), 3.0)),
        lambda: value.t_(),
        lambda: value.mul_(2),
        lambda: value.resize_(3, 2),
        lambda: setattr(value, "data", torch.zeros(1, 2, dtype=torch.float64)),
    ):
        with values.to_module(net):
            pass
        change()
        with values.to_module(net):
            assert net.weight.dtype == value.dtype
            assert torch.equal(net.weight, value)
            assert net.weight.data_ptr() == value.data_ptr()
    with values.to_module(net):
        net.requires_grad_(False)
    with values.to_module(net):
        assert net.weight.requires_grad
        assert torch.equal(net.weight, value)
    net.requires_grad_(False)
    with values.to_module(net):
        assert not net.weight.requires_grad
    value.requires_grad_()
    with values.to_module(net):
        assert net.weight is value


def test_nothing_outlives_the_values() -> None:
    net = nn.Linear(2, 2, bias=False)
    values = TensorDict({"weight": torch.zeros(2, 2)})
    with values.to_module(net):
        reference = weakref.ref(net.weight)
    value = weakref.ref(values["weight"])
    del values
    gc.collect()
    assert value() is None
    assert reference() is None


# to_module for good


def test_static_swap_and_back(module: nn.Module) -> None:
    before, tree = state(module), TensorDict.from_module(module)
    old = zeros(module).to_module(module)
    assert state(module) != before
    assert isinstance(old, TensorDict)
    for key, value in tree.items(True, True):
        assert old[key] is value
    assert type(old) is TensorDict
    assert not old.is_locked
    assert old.batch_size == torch.Size([])
    old.to_module(module, preserve_module_state=False)
    assert state(module) == before


def test_the_swap_of_a_static_call_ends_a_later_block() -> None:
    net = nn.Linear(2, 2)
    before = state(net)
    with zeros(net).to_module(net):
        pass
    old = zeros(net).to_module(net)
    assert old.keys() == {"weight", "bias"}
    with old:
        assert torch.equal(net.weight, torch.zeros(2, 2))
    assert state(net) == before


def test_what_is_set_in_the_old_values_goes_to_the_module() -> None:
    net = nn.Linear(2, 2)
    new = nn.Parameter(torch.full((2, 2), 5.0))
    with zeros(net).to_module(net) as old:
        old["weight"] = new
    assert net.weight is new


def test_the_old_values_can_be_used_like_any_other() -> None:
    net = nn.Linear(2, 2)
    weight = net.weight
    assert repr(zeros(net).to_module(net)).startswith("TensorDict(")
    net.weight = weight
    assert torch.equal(zeros(net).to_module(net).data["weight"], weight.data)
    assert isinstance(copy.copy(zeros(net).to_module(net)), TensorDict)
    assert len(torch.utils._pytree.tree_leaves(zeros(net).to_module(net))) == 2
    assert torch.equal(torch.stack([zeros(net).to_module(net)] * 2)["bias"], torch.zeros(2, 2))
    with pytest.raises(AttributeError, match="nope"):
        zeros(net).to_module(net).nope  # noqa: B018


def test_return_swap() -> None:
    net = nn.Linear(2, 2)
    assert zeros(net).to_module(net, return_swap=False) is None
    assert torch.equal(net.weight, torch.zeros(2, 2))


def test_swap_dest() -> None:
    net = modules()["nested"]
    tree = TensorDict.from_module(net)
    before = state(net)
    dest = tree.data.clone()
    assert zeros(net).to_module(net, swap_dest=dest) is dest
    assert all(dest[key] is value for key, value in tree.items(True, True))
    tree.to_module(net)
    assert state(net) == before
    with pytest.raises(RuntimeError, match="locked"):
        zeros(net).to_module(net, swap_dest=tree.data.clone().lock_())
    with pytest.raises(KeyError):
        zeros(net).to_module(net, swap_dest=TensorDict())
    assert state(net) == before


def test_inplace() -> None:
    net = modules()["nested"]
    before, tree = state(net), TensorDict.from_module(net).data.clone()
    values = zeros(net)
    old = values.to_module(net, inplace=True)
    assert state(net) == before
    assert all((leaf == 0).all() for leaf in TensorDict.from_module(net).data.values(True, True))
    assert all(torch.equal(old[key], value) for key, value in tree.items(True, True))
    old.to_module(net, inplace=True)
    with values.to_module(net, inplace=True):
        assert (net[0].weight == 0).all()
        net[0].weight.data.add_(5)
    assert torch.equal(net[0].weight, tree["0", "weight"])
    assert torch.equal(values["0", "weight"], torch.full((3, 2), 5.0))
    assert state(net) == before


def test_inplace_checks_all_shapes_first() -> None:
    net = nn.Linear(2, 2)
    weight = net.weight.detach().clone()
    with pytest.raises(RuntimeError, match="bias"):
        TensorDict({"weight": torch.zeros(2, 2), "bias": torch.zeros(7)}).to_module(net, inplace=True)
    assert torch.equal(net.weight, weight)
    with pytest.raises(KeyError, match="nope"):
        TensorDict({"weight": torch.zeros(2, 2), "nope": torch.zeros(7)}).to_module(net, inplace=True)
    assert torch.equal(net.weight, weight)


def test_through_the_state_dict() -> None:
    net = nn.Linear(2, 2)
    before = state(net)
    net._register_load_state_dict_pre_hook(
        lambda module, state, *_: state.update({key: value * 2 for key, value in state.items()}), with_module=True
    )
    ones = zeros(net).apply(lambda leaf: leaf + 1)
    weight = net.weight
    with ones.to_module(net, use_state_dict=True) as old:
        assert torch.equal(net.weight, torch.full((2, 2), 2.0))
        assert isinstance(net.weight, nn.Parameter)
    assert old["weight"] is weight
    assert [entry for entry in state(net) if "_load_state_dict_pre_hooks" not in entry] == [
        entry for entry in before if "_load_state_dict_pre_hooks" not in entry
    ]
    for inplace in (True, False):
        with pytest.raises(RuntimeError, match="inplace argument cannot be passed"):
            ones.to_module(net, use_state_dict=True, inplace=inplace)
    with pytest.raises(KeyError, match="nope"):
        TensorDict({"nope": torch.zeros(1)}).to_module(net, use_state_dict=True)


# What does not fit


@pytest.mark.parametrize("preserve", [True, False])
@pytest.mark.parametrize(
    "change",
    [
        {("2", "nope"): torch.zeros(1)},
        {("9", "weight"): torch.zeros(1)},
        {"2": torch.zeros(1)},
        {("0", "weight", "a"): torch.zeros(1)},
    ],
)
def test_a_name_that_the_module_does_not_have(change: dict[object, torch.Tensor], preserve: bool) -> None:
    net = modules()["nested"]
    before, values = state(net), zeros(net)
    for key, value in change.items():
        if isinstance(key, tuple) and len(key) == 3:
            del values[key[:2]]
        values[key] = value
    with pytest.raises(KeyError):
        values.to_module(net, preserve_module_state=preserve)
    assert state(net) == before


def test_integers_cannot_become_parameters_with_gradient() -> None:
    net = nn.Linear(2, 2)
    before = state(net)
    values = TensorDict({"bias": torch.zeros(2), "weight": torch.zeros(2, 2, dtype=torch.int)})
    with pytest.raises(RuntimeError, match="floating point"):
        values.to_module(net)
    assert state(net) == before


def test_arguments() -> None:
    net = nn.Linear(2, 2)
    with pytest.raises(RuntimeError, match="memo cannot be passed"):
        zeros(net).to_module(net, memo={})
    with pytest.raises(TypeError):
        zeros(net).to_module(net, True)
    for bad in (3, None):
        with pytest.raises((TypeError, AttributeError)):
            zeros(net).to_module(bad)
        with pytest.raises(AttributeError):
            TensorDict.from_module(bad)


# Transforms and threads


def test_vmap_and_grad() -> None:
    base, x = nn.Linear(3, 2).to("meta"), torch.randn(5, 3)
    stacked = TensorDict({"weight": torch.randn(4, 2, 3), "bias": torch.randn(4, 2)}, [4])

    def call(params: TensorDict, x: torch.Tensor) -> torch.Tensor:
        with params.to_module(base):
            return base(x)

    expected = torch.stack([nn.functional.linear(x, w, b) for w, b in zip(stacked["weight"], stacked["bias"])])
    torch.testing.assert_close(torch.vmap(call, (0, None))(stacked, x), expected)
    one = stacked[0].clone()
    grads = torch.func.grad(lambda params: call(params, x).sum())(one)
    torch.testing.assert_close(grads["bias"], torch.full((2,), 5.0))
    torch.testing.assert_close(grads["weight"], x.sum(0).expand(2, 3))
    assert all(parameter.device.type == "meta" for parameter in base.parameters())


def test_threads_with_a_module_each_share_the_values() -> None:
    values = zeros(modules()["nested"])
    errors: list[BaseException] = []

    def work() -> None:
        try:
            net = copy.deepcopy(modules()["nested"]).eval()
            before = state(net)
            for _ in range(100):
                with values.to_module(net):
                    assert (net(torch.ones(1, 2)) == 0).all()
                assert state(net) == before
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_two_threads_on_one_module_do_not_crash() -> None:
    net = modules()["nested"]
    values = zeros(net)

    def work() -> None:
        for _ in range(200):
            with values.to_module(net):
                pass

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class TestSeveralModules:
    def nets(self, count=3):
        return [nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.ReLU()) for _ in range(count)]

    def test_stacked(self):
        nets = self.nets()
        params = TensorDict.from_modules(*nets)
        assert params.batch_size == (3,)
        assert params.is_locked
        assert set(params.keys(True, True)) == set(TensorDict.from_module(nets[0]).keys(True, True))
        for path, leaf in params.items(True, True):
            for place, net in enumerate(nets):
                own = net.get_parameter(".".join(path)) if isinstance(leaf, nn.Parameter) else net.get_buffer(".".join(path))
                assert torch.equal(leaf[place], own)
            assert leaf.is_leaf
            assert leaf.requires_grad is isinstance(leaf, nn.Parameter)
        assert isinstance(params["0", "weight"], nn.Parameter)
        assert not isinstance(params["1", "running_mean"], nn.Parameter)
        params["0", "weight"].data.zero_()
        assert nets[0][0].weight.any()

    def test_requires_grad_where_one_does(self):
        nets = [net.requires_grad_(False) for net in self.nets()]
        assert not TensorDict.from_modules(*nets)["0", "weight"].requires_grad
        nets[1][0].weight.requires_grad_(True)
        params = tensordict.from_modules(*nets, lock=False)
        assert params["0", "weight"].requires_grad
        assert not params["0", "bias"].requires_grad
        assert not params.is_locked

    def test_lazy(self):
        nets = [nn.Linear(2, 3), nn.Linear(4, 3)]
        params = TensorDict.from_modules(*nets, lazy_stack=True)
        assert isinstance(params, LazyStackedTensorDict)
        assert params.tensordicts[1]["weight"] is nets[1].weight
        with pytest.raises(RuntimeError, match="weight"):
            TensorDict.from_modules(*nets)

    def test_the_same_module(self):
        net = self.nets(1)[0]
        params = TensorDict.from_modules(net, net, expand_identical=True)
        leaf = params["0", "weight"]
        assert leaf.shape == (2, 3, 2)
        assert leaf.data_ptr() == net[0].weight.data_ptr()
        leaf.sum().backward()
        assert (net[0].weight.grad == 2).all()
        assert TensorDict.from_modules(net, net)["0", "weight"].is_leaf

    def test_ensemble(self):
        nets = [nn.Linear(2, 3) for _ in range(4)]
        x = torch.randn(5, 2)

        def call(params, x):
            with params.to_module(nets[0]):
                return nets[0](x)

        params = TensorDict.from_modules(*nets)
        out = torch.vmap(call, (0, None))(params, x)
        torch.testing.assert_close(out, torch.stack([net(x) for net in nets]))
        out.sum().backward()
        assert params["weight"].grad.shape == (4, 3, 2)

    def test_refused(self):
        with pytest.raises(RuntimeError, match="at least one"):
            TensorDict.from_modules()
        with pytest.raises(RuntimeError, match="keys"):
            TensorDict.from_modules(nn.Linear(2, 3), nn.Linear(2, 3, bias=False))
