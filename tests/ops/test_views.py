"""Views of a tensordict of another batch size, under the legacy mode."""

import pytest
import torch
from torch import Size

from containers import leaves, same
from tensordict import LazyStackedTensorDict, NonTensorStack, TensorDict, lazy_stack, set_lazy_legacy
from tensordict._lazy import (
    _PermutedTensorDict,
    _SqueezedTensorDict,
    _TransposedTensorDict,
    _UnsqueezedTensorDict,
    _ViewedTensorDict,
)


def source():
    return TensorDict(
        {"a": torch.arange(6.0).reshape(2, 1, 3), "n": {"b": torch.arange(12).reshape(2, 1, 3, 2)}, "s": "text"}, [2, 1, 3]
    )


def stack():
    return LazyStackedTensorDict(*source().unbind(0), stack_dim=0)


# The operation, the class of the result, the operation that leads back.
OPS = {
    "view": (lambda td: td.view(6), _ViewedTensorDict, lambda td: td.view(2, 1, 3)),
    "unsqueeze": (lambda td: td.unsqueeze(1), _UnsqueezedTensorDict, lambda td: td.squeeze(1)),
    "squeeze": (lambda td: td.squeeze(1), _SqueezedTensorDict, lambda td: td.unsqueeze(1)),
    "permute": (lambda td: td.permute(2, 0, 1), _PermutedTensorDict, lambda td: td.permute(1, 2, 0)),
    "transpose": (lambda td: td.transpose(0, 2), _TransposedTensorDict, lambda td: td.transpose(0, 2)),
}


@pytest.fixture(params=OPS)
def op(request):
    return OPS[request.param]


@pytest.fixture(params=[source, stack])
def td(request):
    return request.param()


def legacy(op, td):
    with set_lazy_legacy(True):
        return op[0](td)


def test_reads(op, td):
    view, dense = legacy(op, td), op[0](source())
    assert type(view) is op[1]
    assert view._source is td
    assert view.batch_size == dense.batch_size
    same(view, dense)
    assert view["s"] == op[0](td)["s"]
    assert type(view["n"]) is op[1]
    same(view[0], dense[0])
    same(view + 1, dense + 1)
    same(view.clone(), dense)
    assert type(view.clone()) is type(view[0]) is type(view.to_tensordict()) is TensorDict
    same(torch.cat([view, view]), torch.cat([dense, dense]))


def test_views_share(op):
    td = source()
    view = legacy(op, td)
    for path, leaf in leaves(view).items():
        assert leaf.untyped_storage().data_ptr() == leaves(td)[path].untyped_storage().data_ptr()


def test_writes_reach_the_source(op, td):
    view = legacy(op, td)
    shape = view.batch_size
    value = torch.randn(*shape, 4)
    view["new"] = value
    view["n", "new"] = value[..., 0].clone()
    view["m"] = {"x": value.clone()}
    for key in ("new", ("n", "new"), ("m", "x")):
        assert td[key].shape[:3] == Size([2, 1, 3])
    assert torch.equal(view["new"], value)
    assert torch.equal(op[0](TensorDict({"x": td["new"]}, [2, 1, 3]))["x"], value)
    view.set_("a", torch.ones(shape))
    assert (td["a"] == 1).all()
    view[0] = view[0].apply(lambda leaf: leaf * 0 + 7)
    assert (op[0](TensorDict({"x": td["a"]}, [2, 1, 3]))["x"][0] == 7).all()
    assert (td["a"] == 7).sum() == td["a"].numel() // shape[0]
    view.zero_()
    assert not td["n", "b"].any()
    view.add_(2)
    assert (td["m", "x"] == 2).all()
    del view["new"]
    assert "new" not in td.keys()
    view.rename_key_("a", "c")
    assert "c" in td.keys()


def test_objects_move(op):
    rows = [NonTensorStack(NonTensorStack(*texts)) for texts in ("abc", "def")]
    td = TensorDict({"s": NonTensorStack(*rows)}, [2, 1, 3])
    assert legacy(op, td)["s"] == op[0](td)["s"]


def test_back_is_the_source(op, td):
    with set_lazy_legacy(True):
        assert op[2](op[0](td)) is td


def test_views_of_views(op):
    td = source()
    with set_lazy_legacy(True):
        view = op[0](td).unsqueeze(0)
        assert view.batch_size == (1, *op[0](td).batch_size)
        view["new"] = torch.ones(view.batch_size)
    assert td["new"].shape == Size([2, 1, 3])


def test_batch_size_is_fixed(op):
    view = legacy(op, source())
    with pytest.raises(RuntimeError, match=r"batch.size"):
        view.batch_size = [1]


def test_lock_names_and_device(op):
    td = source()
    td.names = ["x", "y", "z"]
    view = legacy(op, td)
    assert view.names == op[0](td).names or op[1] is _ViewedTensorDict
    view.lock_()
    assert td.is_locked
    with pytest.raises(RuntimeError, match="lock"):
        view["new"] = torch.zeros(view.batch_size)
    view.unlock_()
    assert not td.is_locked
    assert view.device is None


def test_shallow_copy(op):
    td = source()
    view = legacy(op, td)
    copy = view.clone(recurse=False)
    assert type(copy) is op[1]
    copy["new"] = torch.zeros(view.batch_size)
    assert "new" not in td.keys()
    assert copy["a"].data_ptr() == td["a"].data_ptr()


def test_block(op):
    td = source()
    with set_lazy_legacy(True), op[0](td) as view:
        view["new"] = torch.zeros(view.batch_size)
    assert td["new"].shape == Size([2, 1, 3])


def test_memory(op, tmp_path):
    td = source()
    view = legacy(op, td)
    dense = op[0](source())
    view.memmap_(tmp_path / "td")
    assert view.is_memmap()
    assert td.is_locked
    same(TensorDict.load_memmap(tmp_path / "td"), dense)
    same(td, source())
    view.set_("a", torch.zeros(view.batch_size))
    assert not td["a"].any()
    assert not TensorDict.load_memmap(tmp_path / "td")["a"].any()


def test_repr():
    td = TensorDict({"a": torch.zeros(2, 3)}, [2, 3])
    with set_lazy_legacy(True):
        assert repr(td.permute(1, 0)) == f"_PermutedTensorDict(\n\tsource={td!r}, \n\top=permute(dims=[1, 0]))"
        assert repr(td.unsqueeze(-1)) == f"_UnsqueezedTensorDict(\n\tsource={td!r}, \n\top=unsqueeze(dim=2))"


def test_stack_of_views():
    td = source()
    with set_lazy_legacy(True):
        view = td.permute(2, 0, 1)
        both = torch.stack([view, view])
    same(both, torch.stack([view.clone(), view.clone()]))
    same(lazy_stack([view, view]), torch.stack([view.clone(), view.clone()]))


def test_not_by_default(op):
    assert type(op[0](source())) is TensorDict
