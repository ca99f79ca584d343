"""The native row functions against their twins, which are plain torch."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tensordict import TensorDict, pad_sequence
from tensordict._kernel import native
from tensordict._polyfills import rows as twins

pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
FLOATS8 = [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz]
COMPLEX = [torch.complex32, torch.complex64, torch.complex128]
SIGNED = [torch.int8, torch.int16, torch.int32, torch.int64]
UNSIGNED = [torch.uint8, torch.uint16, torch.uint32, torch.uint64]
DTYPES = [torch.bool, *FLOATS, *FLOATS8, *COMPLEX, *SIGNED, *UNSIGNED]
PADDED = [torch.bool, *FLOATS, *COMPLEX[1:], *SIGNED, torch.uint8]
# For each item size a dtype that every function of torch has.
BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128}
LAYOUTS = ["contiguous", "transposed", "stepped", "expanded", "offset"]
BATCH = st.lists(st.integers(0, 4), min_size=1, max_size=3)


def bits(leaf: Tensor) -> Tensor:
    return leaf.view(BITS[leaf.element_size()])


def check_same(found: list[Tensor] | None, wanted: list[Tensor], dtypes: list[torch.dtype]) -> None:
    """Ordinary tensors of these dtypes, whose bits are those of `wanted`."""
    assert found is not None
    assert [leaf.dtype for leaf in found] == dtypes
    for leaf, other in zip(found, wanted, strict=True):
        assert type(leaf) is Tensor
        assert leaf.is_contiguous()
        assert not leaf.requires_grad
        assert leaf.untyped_storage().nbytes() == leaf.numel() * leaf.element_size()
        assert leaf.shape == other.shape
        assert torch.equal(bits(leaf), bits(other))


def filled(shape: list[int], dtype: torch.dtype) -> Tensor:
    """A contiguous tensor of small values that every dtype has, neighbours unlike."""
    values = torch.arange(torch.Size(shape).numel()) % 13
    return (values % 2 if dtype is torch.bool else values).to(torch.float32).to(dtype).reshape(shape)


def relayout(leaf: Tensor, how: str) -> Tensor:
    """The same shape and dtype, otherwise in memory."""
    if leaf.ndim == 0 or how == "contiguous":
        return leaf
    if how == "transposed":
        return leaf.reshape(leaf.shape[::-1]).permute(list(reversed(range(leaf.ndim))))
    if how == "stepped":
        return filled([*leaf.shape[:-1], leaf.shape[-1] * 2], leaf.dtype)[..., 1::2]
    if how == "expanded":
        return leaf[:1].expand(leaf.shape) if leaf.shape[0] else leaf
    return filled([leaf.numel() + 1], leaf.dtype)[1:].reshape(leaf.shape)


@st.composite
def leaf_of(draw: st.DrawFn, batch: list[int], dtypes: list[torch.dtype]) -> Tensor:
    shape = [*batch, *draw(st.lists(st.integers(0, 3), max_size=2))]
    return relayout(filled(shape, draw(st.sampled_from(dtypes))), draw(st.sampled_from(LAYOUTS)))


@st.composite
def columns_of(draw: st.DrawFn, batches: list[list[int]], dtypes: list[torch.dtype]) -> list[list[Tensor]]:
    columns = []
    for _ in range(draw(st.integers(0, 3))):
        dtype = draw(st.sampled_from(dtypes))
        extra = draw(st.lists(st.integers(0, 3), max_size=2))
        shapes = [[*batch, *extra] for batch in batches]
        columns.append([relayout(filled(shape, dtype), draw(st.sampled_from(LAYOUTS))) for shape in shapes])
    return columns


def of_columns(columns: list[list[Tensor]]) -> tuple[list[list[Tensor]], list[torch.dtype]]:
    return [[bits(leaf) for leaf in column] for column in columns], [column[0].dtype for column in columns]


def stack(columns: list[list[Tensor]], dim: int) -> list[Tensor] | None:
    """`torch.stack` of each column, natively."""
    keys = [str(number) for number in range(len(columns))]
    rows = [{key: column[place] for key, column in zip(keys, columns)} for place in range(len(columns[0]) if columns else 0)]
    return native.stack_dicts(rows, keys, dim)


@given(st.data(), BATCH)
def test_gather(data: st.DataObject, batch: list[int]) -> None:
    leaves = data.draw(st.lists(leaf_of(batch, DTYPES), max_size=4))
    dim = data.draw(st.integers(0, len(batch) - 1))
    size = batch[dim]
    shape = data.draw(st.lists(st.integers(0, 3), max_size=2)) if size else [0]
    count = torch.Size(shape).numel()
    numbers = data.draw(st.lists(st.integers(-size, max(size - 1, 0)), min_size=count, max_size=count))
    index = torch.tensor(numbers, dtype=data.draw(st.sampled_from([torch.int32, torch.int64]))).reshape(shape)
    wanted = twins.gather([bits(leaf) for leaf in leaves], index, dim)
    check_same(native.gather(leaves, index, dim), wanted, [leaf.dtype for leaf in leaves])


def test_gather_reads_a_strided_index() -> None:
    leaves = [filled([5, 2], torch.float32)]
    for index in (torch.arange(5)[1::2], torch.tensor(3).expand(4), torch.arange(4).reshape(2, 2).t()):
        check_same(native.gather(leaves, index, 0), twins.gather(leaves, index, 0), [torch.float32])


@pytest.mark.parametrize("wrong", [3, -4, 2**62, -(2**63)])
@pytest.mark.parametrize("dim", [0, 1])
def test_gather_out_of_bounds(wrong: int, dim: int) -> None:
    leaves = [torch.zeros(3, 3)]
    index = torch.tensor([0, wrong])
    with pytest.raises(IndexError) as theirs:
        twins.gather(leaves, index, dim)
    with pytest.raises(IndexError) as ours:
        native.gather(leaves, index, dim)
    # torch calls every dimension 0.
    assert str(ours.value) == str(theirs.value).replace("dimension 0", f"dimension {dim}")


def test_gather_where_there_is_nothing_to_copy() -> None:
    """torch raises for a dimension without rows, but not for rows without elements: it is left to torch."""
    assert native.gather([torch.zeros(3, 0)], torch.tensor([5]), 0) is None
    assert native.gather([torch.zeros(0, 3)], torch.tensor([0]), 0) is None


def test_gather_of_unlike_sizes() -> None:
    leaves = [filled([3], torch.int64), filled([5], torch.int64), filled([3, 2], torch.int64)]
    index = torch.tensor([-1, 0])
    check_same(native.gather(leaves, index, 0), twins.gather(leaves, index, 0), [torch.int64] * 3)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.bool, torch.float32, torch.uint32])
def test_gather_declines_other_indices(dtype: torch.dtype) -> None:
    assert native.gather([torch.zeros(3)], torch.tensor([1, 0, 1]).to(dtype), 0) is None


@given(st.data(), st.lists(st.integers(0, 3), max_size=3), st.integers(1, 4))
def test_stack(data: st.DataObject, batch: list[int], count: int) -> None:
    columns = data.draw(columns_of([batch] * count, DTYPES))
    dim = data.draw(st.integers(0, len(batch)))
    plain, dtypes = of_columns(columns)
    check_same(stack(columns, dim), [torch.stack(column, dim) for column in plain], dtypes)


@given(st.data(), BATCH, st.lists(st.integers(0, 4), min_size=1, max_size=4))
def test_cat(data: st.DataObject, batch: list[int], lengths: list[int]) -> None:
    dim = data.draw(st.integers(0, len(batch) - 1))
    columns = data.draw(columns_of([[*batch[:dim], length, *batch[dim + 1 :]] for length in lengths], DTYPES))
    plain, dtypes = of_columns(columns)
    check_same(native.cat(columns, dim), twins.cat(plain, dim), dtypes)


@given(st.data(), BATCH, st.lists(st.integers(0, 4), min_size=1, max_size=4))
def test_pad_stack(data: st.DataObject, batch: list[int], lengths: list[int]) -> None:
    dim = data.draw(st.integers(0, len(batch) - 1))
    columns = data.draw(columns_of([[*batch[:dim], length, *batch[dim + 1 :]] for length in lengths], PADDED))
    dtypes = [column[0].dtype for column in columns]
    check_same(native.pad_stack(columns, dim, 1), twins.pad_stack(columns, dim, 1), dtypes)


def test_dicts() -> None:
    dicts = [{"a": filled([2, 3], torch.int32) + i, "b": filled([2], torch.int32)} for i in range(5)]
    for native_way, twin in ((native.stack_dicts, twins.stack_dicts), (native.cat_dicts, twins.cat_dicts)):
        check_same(native_way(dicts, ["b", "a"], 0), twin(dicts, ["b", "a"], 0), [torch.int32] * 2)
        assert native_way(dicts, ["a", "c"], 0) is None


def test_what_torch_refuses_is_left_to_torch() -> None:
    a, b = torch.zeros(2, 3), torch.zeros(2, 4)
    for join in (native.cat, lambda columns, dim: native.pad_stack(columns, dim, 0)):
        assert join([[a, b]], 0) is None
        assert join([[a, a.double()]], 0) is None
        assert join([[]], 0) is None
        assert join([[a]], 3) is None
    assert native.cat([[a, torch.zeros(0)]], 0) is None
    assert native.stack_dicts([{"a": a}, {"a": b}], ["a"], 0) is None
    assert native.stack_dicts([{"a": a}, {"a": a.double()}], ["a"], 0) is None
    assert native.stack_dicts([{"a": a}], ["a"], 4) is None
    assert native.gather([torch.tensor(1.0)], torch.tensor([0]), 0) is None


def taken(leaf: Any) -> set[bool]:
    """Whether the functions take this leaf of three rows: one answer if they agree."""
    index = torch.tensor([1, 0])
    ways: list[Callable[[], Any]] = [
        lambda: native.gather([leaf], index, 0),
        lambda: stack([[leaf, leaf]], 0),
        lambda: native.cat([[leaf, leaf]], 0),
        lambda: native.pad_stack([[leaf, leaf]], 0, 0),
    ]
    return {way() is not None for way in ways}


def test_gradient() -> None:
    leaf = torch.ones(3, 2, requires_grad=True)
    for wants in (leaf, leaf * 2, torch.nn.Parameter(torch.ones(3, 2))):
        assert taken(wants) == {False}
        with torch.no_grad():
            assert taken(wants) == {True}
        with torch.inference_mode():
            assert taken(wants) == {True}
        assert taken(wants.detach()) == {True}
    assert taken(torch.nn.Parameter(torch.ones(3, 2), requires_grad=False)) == {True}
    assert stack([[torch.ones(3), torch.ones(3, requires_grad=True)]], 0) is None


def test_inference_mode_makes_inference_tensors() -> None:
    with torch.inference_mode():
        made = stack([[torch.ones(3)] * 2], 0)
    assert made is not None
    assert made[0].is_inference()


def test_subclasses() -> None:
    class Other(Tensor):
        pass

    class Plain(Tensor):
        __torch_function__ = torch._C._disabled_torch_function_impl

    other, plain = torch.ones(3).as_subclass(Other), torch.ones(3).as_subclass(Plain)
    assert taken(other) == {False}
    assert not native.is_plain([other])
    native.register_plain_type(Plain)
    native.register_plain_type(Plain)
    assert taken(plain) == {True}
    assert native.is_plain([plain])
    assert taken("no tensor") == {False}


def test_lazy_bits() -> None:
    z = torch.tensor([1 + 2j, 3 + 4j, 5 + 6j])
    assert taken(z.conj()) == {False}
    assert taken(z.conj().imag) == {False}
    assert taken(z.conj().imag[:1].expand(3)) == {False}
    assert taken(torch._neg_view(torch.ones(3, 4))[:, ::2]) == {False}
    assert taken(z.imag) == {True}
    assert taken(z.conj().resolve_conj()) == {True}
    assert taken(z.conj().imag.resolve_neg()) == {True}
    single = z[1:2].conj().imag.reshape(1, 1)
    assert single.is_neg()
    assert stack([[single]], 0) is None
    assert stack([[torch.ones(1, 1), single]], 0) is None


@pytest.mark.filterwarnings("ignore")
def test_other_kinds() -> None:
    dense = torch.ones(3, 2)
    assert taken(dense) == {True}
    for other in (
        dense.to_sparse(),
        dense.to_sparse_csr(),
        torch.empty(3, 2, device="meta"),
        torch.quantize_per_tensor(dense, 0.1, 0, torch.qint8),
        torch.nested.nested_tensor([dense, dense, dense]),
        torch.nested.nested_tensor([dense, dense, dense], layout=torch.jagged),
        torch._efficientzerotensor((3, 2)),
        torch.ones([3] + [1] * 10),
        torch.empty(3, dtype=torch.int4),
        torch.empty(3, dtype=torch.uint3),
    ):
        assert taken(other) == {False}
    dense.untyped_storage().resize_(0)
    assert taken(dense) == {False}


@pytest.mark.filterwarnings("ignore:.*torch.jit.script")
def test_transforms() -> None:
    outside = torch.ones(3, 3)
    seen = []

    def look(inside: Tensor) -> Tensor:
        assert taken(inside) == {False}
        assert taken(outside) == {False}
        assert not native.is_plain([outside])
        seen.append(inside)
        return inside.sum()

    torch.vmap(look)(torch.ones(3, 3))
    torch.func.grad(look)(torch.ones(3))
    torch.func.jvp(look, (torch.ones(3),), (torch.ones(3),))
    torch.func.functionalize(look)(torch.ones(3))
    assert len(seen) == 4
    assert native.is_plain([outside])
    # A tensor that outlives its transform.
    assert taken(seen[0]) == {False}


def test_forward_gradient() -> None:
    with torch.autograd.forward_ad.dual_level():
        assert taken(torch.autograd.forward_ad.make_dual(torch.ones(3), torch.ones(3))) == {False}
    assert taken(torch.ones(3)) == {True}


def test_modes() -> None:
    from torch._subclasses import FakeTensorMode
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    leaf, index = torch.ones(3), torch.tensor([0])
    modes: list[Any] = [TorchFunctionMode(), TorchDispatchMode(), FakeTensorMode(), torch.device("meta")]
    for mode in modes:
        with mode:
            assert native.gather([leaf], index, 0) is None
            assert stack([[leaf, leaf]], 0) is None
            assert not native.is_plain([leaf])
    with FakeTensorMode():
        fake = torch.ones(3)
    assert taken(fake) == {False}
    assert native.is_plain([leaf])


def test_is_plain() -> None:
    parameter = torch.nn.Parameter(torch.ones(3))
    assert native.is_plain([])
    assert native.is_plain([torch.ones(3), parameter, parameter * 2])
    assert not native.is_plain([torch.ones(3), None])


def test_results_are_ordinary_tensors() -> None:
    """Of their own storage, which can grow, be shared and be pickled."""
    source = torch.ones(3, 2)
    for made in (native.gather([source] * 2, torch.tensor([0, 1]), 0), stack([[source]] * 2, 0)):
        assert made is not None
        first, second = made
        assert first.untyped_storage().data_ptr() != second.untyped_storage().data_ptr()
        first.zero_()
        assert torch.equal(source, torch.ones(3, 2))
        assert not first.is_shared()
        assert torch.equal(pickle.loads(pickle.dumps(second)), second)
        assert torch.equal(copy.deepcopy(second), second)
        assert first.resize_(50).shape == (50,)
        assert second.share_memory_().is_shared()
        second.requires_grad_().sum().backward()
        assert second.grad is not None


def check_large() -> None:
    """Enough rows for the pool to be used."""
    leaves = [torch.arange(4000 * 64, dtype=torch.float32).reshape(4000, 64) + i for i in range(4)]
    index = torch.arange(4000).flip(0)
    for found, wanted in zip(native.gather(leaves, index, 0) or [], twins.gather(leaves, index, 0), strict=True):
        assert torch.equal(found, wanted)
    for found, wanted in zip(native.cat([leaves] * 2, 1) or [], twins.cat([leaves] * 2, 1), strict=True):
        assert torch.equal(found, wanted)


def check_large_in_one_thread() -> None:
    # The pool of torch does not survive a fork.
    torch.set_num_threads(1)
    check_large()


def test_many_threads() -> None:
    done = []

    def work() -> None:
        for _ in range(5):
            check_large()
        done.append(True)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert done == [True] * 8


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_fork() -> None:
    """A child inherits a pool without threads, and must not wait for them."""
    check_large()
    child = multiprocessing.get_context("fork").Process(target=check_large_in_one_thread)
    child.start()
    child.join(60)
    assert child.exitcode == 0


def test_compile() -> None:
    import torch._dynamo

    def work(a: Tensor, b: Tensor, index: Tensor) -> list[Tensor]:
        assert not native.is_plain([a])
        return [
            *native.gather([a, b], index, 0),
            *stack([[a, b], [b, a]], 1),
            *native.cat([[a, b]], 0),
            *native.stack_dicts([{"k": a}, {"k": b}], ["k"], 0),
            *native.cat_dicts([{"k": a}, {"k": b}], ["k"], 0),
            *native.pad_stack([[a, b[:1]]], 0, 3.0),
        ]

    a, b = torch.randn(3, 4), torch.randn(3, 4)
    index = torch.tensor([2, -3])
    found = torch.compile(work, fullgraph=True, backend="eager")(a, b, index)
    wanted = [
        a[index],
        b[index],
        torch.stack([a, b], 1),
        torch.stack([b, a], 1),
        torch.cat([a, b]),
        torch.stack([a, b]),
        torch.cat([a, b]),
        torch.stack([a, torch.cat([b[:1], torch.full((2, 4), 3.0)])]),
    ]
    for x, y in zip(found, wanted, strict=True):
        assert torch.equal(x, y)


def odd_among_alike() -> dict[str, torch.Tensor]:
    """Leaves of one shape and dtype, of which some are not plainly what their memory says, or want a gradient."""
    leaves = {key: torch.arange(12.0).reshape(4, 3) + place for place, key in enumerate("abcdef")}
    leaves["b"] = torch._neg_view(leaves["b"])
    leaves["d"] = leaves["d"].clone().requires_grad_()
    leaves["e"] = leaves["e"].t().contiguous().t()
    return leaves


@pytest.mark.parametrize("index", [torch.tensor([2, 0, 2]), torch.tensor([True, False, True, True])], ids=["rows", "mask"])
def test_rows_of_odd_leaves_among_alike_ones(index: torch.Tensor) -> None:
    leaves = odd_among_alike()
    taken = TensorDict(leaves, [4])[index]
    for key, leaf in leaves.items():
        assert torch.equal(taken[key], leaf[index])
        assert taken[key].requires_grad == leaf.requires_grad


@pytest.mark.parametrize("join", [torch.stack, torch.cat])
def test_joins_of_odd_leaves_among_alike_ones(join: Any) -> None:
    leaves = list(odd_among_alike().values())
    joined = join([TensorDict({"x": leaf}, [4]) for leaf in leaves])["x"]
    assert torch.equal(joined, join(leaves))
    assert joined.requires_grad


@pytest.mark.parametrize("odd", [None, 3])
def test_sequences_whose_lengths_come_back(odd: int | None) -> None:
    leaves = [torch.arange(float(2 + place % 4)) + place for place in range(20)]
    if odd is not None:
        leaves[odd] = torch._neg_view(leaves[odd])
    padded = pad_sequence([TensorDict({"x": leaf}, []) for leaf in leaves])["x"]
    assert torch.equal(padded, torch.nn.utils.rnn.pad_sequence(leaves, batch_first=True))


def test_consolidated_odd_leaves_among_alike_ones() -> None:
    leaves = odd_among_alike()
    made = TensorDict(leaves, [4]).consolidate()
    for key, leaf in leaves.items():
        assert torch.equal(made[key], leaf)
