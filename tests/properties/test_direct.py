"""Tensors whose fields are read by address, against what torch says of them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tensordict import TensorDict
from tensordict._kernel import native
from tensordict._kernel.settings import direct_reads
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


MODE = direct_reads()
OPEN = pytest.mark.skipif(MODE == "off", reason="direct reads are closed")


def test_the_short_way_is_as_open_as_it_should_be() -> None:
    # Without it everything still works, slowly: a torch of another build should not slip by.
    assert native.read_directly() == ([] if MODE == "off" else ["memory", "history", "gradient", "offset"])


def test_who_reads_directly() -> None:
    for version in ("2.11.0", "2.11.1+cu130", "2.15.0"):
        assert direct_reads(version, "") == "on"
    for version in ("2.99.0", "3.0.0", "2.15.0a0+git1234", "2.15.0.dev20260101", "2.1", "", "local"):
        assert direct_reads(version, "") == "off"
        assert [direct_reads(version, wanted) for wanted in ("0", "1", "check")] == ["off", "on", "check"]


def test_types_are_known_in_both_ways() -> None:
    parameter = torch.nn.Parameter(torch.zeros(2))
    for values in ([], [torch.zeros(2)], [torch.zeros(2), parameter], [1], list(unusual().values())):
        assert native.all_tensors(values) is twins.all_tensors(values)


@given(st.lists(SHAPE, min_size=1, max_size=5), st.sampled_from(DTYPES), st.lists(st.integers(0, 9), max_size=3))
def test_shapes(shapes: list[list[int]], dtype: torch.dtype, sizes: list[int]) -> None:
    leaves = [torch.zeros(shape, dtype=dtype) for shape in shapes]
    consumed = min(len(shape) for shape in shapes)
    found = native.regrouped(leaves, consumed, sizes)
    # Sizes of more than five dimensions lie elsewhere, and are left to torch.
    open_to_all = MODE != "off" and max(map(len, shapes)) <= 5
    wanted = twins.regrouped(leaves, consumed, sizes) if open_to_all else None
    assert found == wanted
    leading = shapes[0][: len(sizes)]
    if wanted is not None:
        assert native.all_fit(leaves, leading) is twins.all_fit(leaves, leading)


@given(st.lists(st.tuples(SHAPE, st.sampled_from(DTYPES)), min_size=1, max_size=20))
def test_each_leaf_has_a_place_of_its_own_in_a_buffer(kinds: list[tuple[list[int], torch.dtype]]) -> None:
    leaves = {str(n): torch.randint(0, 2, shape).to(dtype) for n, (shape, dtype) in enumerate(kinds)}
    td = TensorDict({**leaves, "last": torch.ones(1)}).consolidate()
    taken = []
    for name, leaf in leaves.items():
        view = td[name]
        assert view.is_contiguous()
        assert view.dtype is leaf.dtype
        assert view.untyped_storage().data_ptr() == td["last"].untyped_storage().data_ptr()
        torch.testing.assert_close(view, leaf)
        first = view.storage_offset() * view.itemsize
        taken.append((first, first + view.numel() * view.itemsize))
    taken = sorted(place for place in taken if place[0] < place[1])
    assert all(one[1] <= two[0] for one, two in pairwise(taken))
    before = [view._version for view in td.values()]
    td["last"].add_(1)
    assert [view._version for view in td.values()] == [version + 1 for version in before]
    assert not any(view.requires_grad or view._is_view() for view in td.values())


@pytest.mark.parametrize("kind", unusual())
def test_what_memory_does_not_say_is_left_to_torch(kind: str) -> None:
    leaf = unusual()[kind]
    assert native.regrouped([leaf], 0, []) is None
    assert not native.all_fit([leaf], [2])
    if kind in ("neg", "conj", "imag of conj", "zero"):
        found = native.stack_dicts([{"a": leaf, "b": leaf}, {"a": leaf.clone(), "b": leaf}], ["a", "b"], 0)
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


def test_a_lazy_sign_is_seen_whatever_the_strides_are() -> None:
    values = torch.complex(torch.arange(8.0), torch.arange(8.0) + 1)
    leaf = values.conj().imag.as_strided((2, 3), (3, 1), 0)
    assert leaf.is_neg()
    td = TensorDict({"a": leaf}, [2])
    torch.testing.assert_close(torch.stack([td, td])["a"], torch.stack([leaf, leaf]))
    torch.testing.assert_close(td[torch.tensor([1, 0])]["a"], leaf[torch.tensor([1, 0])])


PROGRAM = """
import torch
from tensordict import TensorDict
from tensordict._kernel import native
print(native.read_directly())
td = TensorDict({"a": torch.arange(6.0).reshape(2, 3), "b": {"c": torch.arange(2)}}, [2])
print(torch.stack([td, td])["a"].tolist(), torch.cat([td, td])["b", "c"].tolist(), td[torch.tensor([1, 1])]["a"].tolist())
print(td.reshape(2, 1)["a"].shape, td.expand(3, 2)["b", "c"].shape, td.apply(torch.neg)["a"].tolist())
net = torch.nn.Linear(2, 1)
with TensorDict.from_module(net).data.clone().zero_().to_module(net):
    print(net(torch.ones(2)).item())
"""


def run(program: str, switch: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "TD_DIRECT_READS": switch}
    return subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)


def lines(program: str, switch: str = "1") -> list[str]:
    done = run(program, switch)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_both_ways_give_the_same() -> None:
    short, checked, long = (lines(PROGRAM, switch) for switch in ("1", "check", "0"))
    assert (short[0], long[0]) == ("['memory', 'history', 'gradient', 'offset']", "[]")
    assert short == checked
    assert short[1:] == long[1:]


# What the program does to torch before it is looked at, and what is still read directly then.
RENAMED = {
    "torch._C._dispatch_keys": "[]",
    "torch.Tensor.as_strided": "[]",
    "torch.Tensor.register_post_accumulate_grad_hook": "['memory', 'history', 'offset']",
    "torch.Tensor.register_hook": "['memory', 'history', 'offset']",
}
WITHOUT = """
import torch
class Gone:
    def __get__(self, *_):
        raise AttributeError("renamed")
owner, name = {path!r}.rsplit(".", 1)
owner = eval(owner)
setattr(owner, name, Gone()) if isinstance(owner, type) else delattr(owner, name)
"""


@pytest.mark.parametrize("path", RENAMED)
def test_a_name_that_torch_does_not_have_any_more_closes_what_needs_it(path: str) -> None:
    found, wanted = lines(WITHOUT.format(path=path) + PROGRAM), lines(PROGRAM, "0")
    assert found[0] == RENAMED[path]
    assert found[1:] == wanted[1:]


def test_another_value_is_refused() -> None:
    done = run("import tensordict", "perhaps")
    assert done.returncode != 0
    assert (
        "ValueError: the environment variable TD_DIRECT_READS: invalid truth value 'perhaps', nor is it 'check'" in done.stderr
    )


# Torch is made to say something else before it is looked at.
DIFFERS = """
import torch
torch.Tensor.is_neg = lambda tensor: True
from tensordict import TensorDict
td = TensorDict({"a": torch.zeros(2)}, [2])
torch.stack([td, td])
"""


def test_check_raises_with_both_values() -> None:
    done = run(DIFFERS, "check")
    assert "the fields say: its values as they stand; torch says: a lazy sign or conjugation" in done.stderr
    assert done.returncode != 0
    assert run(DIFFERS, "1").returncode == 0


# Who is asked for a gradient while it is compared what tensors say of themselves.
ASKED = """
import torch
from tensordict import TensorDict
from tensordict._kernel import native
assert "gradient" in native.read_directly()
net, other = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
net.weight.grad = torch.ones(2, 2)
tree = TensorDict.from_module(net)
values = tree.data.clone()
shared = [*net.parameters(), *other.parameters(), *values.values()]
asked = []
torch.Tensor.grad = property(asked.append)
with tree.to_module(other), values.to_module(net):
    pass
print(sum(any(tensor is held for held in shared) for tensor in asked), len(asked))
"""


def test_a_gradient_that_another_thread_may_take_away_is_not_asked_for() -> None:
    # Torch hands it out while it ends. Two parameters were made for the swap alone, and are asked.
    assert lines(ASKED, "check") == ["0 2"]


def test_gradients_while_another_thread_goes_backward() -> None:
    # Autograd writes gradients without the interpreter lock, while a swap asks whether there is one.
    net = torch.nn.Linear(64, 64)
    values = TensorDict.from_module(net).data.clone()
    x = torch.randn(64, 64)
    done = threading.Event()

    def work() -> None:
        for _ in range(100):
            torch.func.functional_call(net, {}, x).sum().backward()
            net.zero_grad(set_to_none=True)
        done.set()

    thread = threading.Thread(target=work)
    thread.start()
    other = torch.nn.Linear(64, 64)
    tree = TensorDict.from_module(net)
    while not done.is_set():
        with tree.to_module(other):
            assert other.weight is net.weight
        with values.to_module(other):
            assert other.weight.grad is None
    thread.join()
