"""Leaves whose shape is free of the batch: computed on, not moved."""

import math
import operator
import pickle

import pytest
import torch
from torch import Size, Tensor

from tensordict import LazyStackedTensorDict, TensorDict, UnbatchedTensor, lazy_stack, pad
from tensordict.utils import _check_recursive_properties, _TensorDictPropertyError

VALUES = torch.tensor([1.0, -2.0, 3.0])


def made(batch=(4,), values=VALUES):
    return TensorDict(
        {"a": torch.arange(24.0).reshape(4, 6)[:, :2], "n": {"u": UnbatchedTensor(values)}, "u": UnbatchedTensor(values)}, [4]
    ).reshape(*batch)


def outcome(way, value):
    try:
        return way(value)
    except Exception as error:
        return type(error), str(error)


def untouched(td, batch, values=VALUES):
    assert td.batch_size == Size(batch)
    for key in ("u", ("n", "u")):
        leaf = td[key]
        assert type(leaf) is UnbatchedTensor
        assert leaf.batch_size == Size(batch)
        assert torch.equal(leaf.as_subclass(Tensor) if values is VALUES else leaf, values)


class TestTensor:
    def test_is_a_tensor(self):
        leaf = UnbatchedTensor([1.0, 2.0], batch_size=[3])
        assert isinstance(leaf, Tensor)
        assert leaf.shape == Size([2])
        assert leaf.batch_size == Size([3])
        assert (leaf + 1).batch_size == Size([3])
        assert type(leaf.sum()) is UnbatchedTensor
        assert leaf[1].item() == 2
        assert repr(leaf) == "UnbatchedTensor(tensor([1., 2.]))"

    @pytest.mark.parametrize("values", [torch.tensor(3), torch.tensor([1.25]), torch.tensor([1, 2]), torch.empty(0)], ids=str)
    def test_converts_as_a_tensor(self, values):
        ways = [str, format, bool, int, float, operator.index, round, math.trunc, lambda leaf: format(leaf, ".2f")]
        for way in ways:
            assert outcome(way, UnbatchedTensor(values)) == outcome(way, values)

    def test_shares_storage(self):
        base = torch.zeros(3)
        leaf = UnbatchedTensor(base)
        leaf += 1
        assert torch.equal(base, torch.ones(3))

    def test_pickle(self):
        leaf = pickle.loads(pickle.dumps(UnbatchedTensor(VALUES, batch_size=[2])))
        assert type(leaf) is UnbatchedTensor
        assert leaf.batch_size == Size([2])
        assert torch.equal(leaf, VALUES)

    def test_module(self):
        from tensordict._unbatched import UnbatchedTensor as other

        assert other is UnbatchedTensor
        assert UnbatchedTensor.__module__ == "tensordict._unbatched"


MOVES = {
    "index": (lambda td: td[1], ()),
    "slice": (lambda td: td[1:3], (2,)),
    "rows": (lambda td: td[torch.tensor([0, 3, 3])], (3,)),
    "mask": (lambda td: td[torch.tensor([True, False, True, False])], (2,)),
    "masked_select": (lambda td: td.masked_select(torch.tensor([True, False, True, False])), (2,)),
    "reshape": (lambda td: td.reshape(2, 2), (2, 2)),
    "view": (lambda td: td.view(2, 2), (2, 2)),
    "unflatten": (lambda td: td.unflatten(0, (2, 2)), (2, 2)),
    "flatten": (lambda td: td.reshape(2, 2).flatten(), (4,)),
    "expand": (lambda td: td.expand(3, 4), (3, 4)),
    "unsqueeze": (lambda td: td.unsqueeze(0), (1, 4)),
    "squeeze": (lambda td: td.unsqueeze(0).squeeze(0), (4,)),
    "transpose": (lambda td: td.reshape(1, 4).transpose(0, 1), (4, 1)),
    "permute": (lambda td: td.reshape(1, 4).permute(1, 0), (4, 1)),
    "unbind": (lambda td: td.unbind(0)[2], ()),
    "split": (lambda td: td.split(2)[1], (2,)),
    "chunk": (lambda td: td.chunk(2)[0], (2,)),
    "gather": (lambda td: td.gather(0, torch.tensor([1, 0])), (2,)),
    "repeat": (lambda td: td.repeat(2), (8,)),
    "repeat_interleave": (lambda td: td.repeat_interleave(2), (8,)),
    "tile": (lambda td: td.tile(2), (8,)),
    "roll": (lambda td: td.roll(1, 0), (4,)),
    "flip": (lambda td: td.flip(0), (4,)),
    "narrow": (lambda td: td.narrow(0, 1, 2), (2,)),
    "pad": (lambda td: pad(td, [1, 2]), (7,)),
    "stack": (lambda td: torch.stack([td, td], 1), (4, 2)),
    "cat": (lambda td: torch.cat([td, td]), (8,)),
    "lazy": (lambda td: lazy_stack([td, td]), (2, 4)),
    "lazy row": (lambda td: lazy_stack([td, td])[1], (4,)),
    "lazy dense": (lambda td: lazy_stack([td, td]).contiguous(), (2, 4)),
    "sum": (lambda td: td.sum(0), ()),
    "mean kept": (lambda td: td.mean(0, keepdim=True), (1,)),
    "whole": (lambda td: td.sum(), ()),
    "feature": (lambda td: td.sum(dim="feature"), (4,)),
    "max": (lambda td: td.max(0).values, ()),
    "cumsum": (lambda td: torch.cumsum(td, 0), (4,)),
    "softmax": (lambda td: td.softmax(0), (4,)),
    "sort": (lambda td: torch.sort(td, 0).values, (4,)),
    "topk": (lambda td: torch.topk(td, 2, 0).values, (2,)),
    "index_select": (lambda td: torch.index_select(td, 0, torch.tensor([2])), (1,)),
    "masked_fill": (lambda td: td.masked_fill(torch.ones(4, dtype=torch.bool), 5.0), (4,)),
    "where": (lambda td: td.where(torch.tensor([True, False, True, False]), td + 1), (4,)),
    "where number": (lambda td: td.where(torch.tensor([True, False, True, False]), 0.0), (4,)),
    "clone": (lambda td: td.clone(), (4,)),
    "flatten_keys": (lambda td: td.flatten_keys().unflatten_keys(), (4,)),
    "pickle": (lambda td: pickle.loads(pickle.dumps(td)), (4,)),
}


@pytest.mark.parametrize("name", MOVES)
def test_left_alone(name):
    move, batch = MOVES[name]
    td = made()
    untouched(move(td), batch)
    untouched(td, (4,))


COMPUTED = {
    "add": (lambda td: td + 1, VALUES + 1),
    "two": (lambda td: td * td, VALUES * VALUES),
    "abs": (lambda td: td.abs(), VALUES.abs()),
    "apply": (lambda td: td.apply(lambda leaf: leaf * 3), VALUES * 3),
    "eq": (lambda td: td == 1, VALUES == 1),
    "lerp": (lambda td: td.lerp(td + 2, 0.5), VALUES + 1),
    "double": (lambda td: td.double(), VALUES.double()),
    "zeros_like": (lambda td: torch.zeros_like(td), torch.zeros(3)),
    "update": (lambda td: td.update({"u": UnbatchedTensor(VALUES + 1), "n": {"u": UnbatchedTensor(VALUES + 1)}}), VALUES + 1),
    "in place": (lambda td: td.clone().add_(1), VALUES + 1),
}


@pytest.mark.parametrize("name", COMPUTED)
def test_computed(name):
    compute, values = COMPUTED[name]
    untouched(compute(made(values=VALUES.clone())), (4,), values)


def test_any_shape_may_be_stored():
    td = TensorDict({"a": torch.zeros(4)}, [4])
    td["u"] = UnbatchedTensor(torch.zeros(7, 2))
    assert td["u"].batch_size == Size([4])
    td.set("u", UnbatchedTensor(torch.zeros(1)))
    assert td["u"].shape == Size([1])
    with pytest.raises(RuntimeError, match="u"):
        td["u"] = torch.zeros(3)


def test_the_first_of_unlike_values_stays():
    other = made(values=VALUES * 2)
    with pytest.warns(UserWarning, match="different data storage"):
        untouched(torch.stack([made(), other]), (2, 4))
    untouched(torch.cat([made(), other]), (8,))
    with pytest.warns(UserWarning, match="different data storage"):
        untouched(lazy_stack([made(), other]), (2, 4))
    with pytest.raises(RuntimeError, match="shape"):
        torch.stack([made(), made(values=torch.zeros(2))])


def test_batch_sizes_that_are_set():
    td = TensorDict({"a": torch.zeros(4, 3), "u": UnbatchedTensor(VALUES)}, [4])
    td.batch_size = [4, 3]
    assert td["u"].batch_size == Size([4, 3])
    td.batch_size = []
    assert td["u"].batch_size == Size([])
    td.auto_batch_size_()
    assert (td.batch_size, td["u"].batch_size) == (Size([4, 3]), Size([4, 3]))
    td["u"] = UnbatchedTensor(torch.zeros(4, 2))
    assert td.auto_batch_size_().batch_size == Size([4, 3])


def test_checked_by_what_it_says():
    td = made()
    assert _check_recursive_properties(td)
    dict.__setitem__(td._tensordict, "u", UnbatchedTensor(VALUES))
    with pytest.raises(_TensorDictPropertyError, match="'u'"):
        _check_recursive_properties(td)


def test_the_batch_of_a_mapped_tree():
    td = TensorDict({"a": torch.ones(4, 3), "u": UnbatchedTensor(torch.ones(2))}, [4, 3])
    kept = torch.utils._pytree.tree_map(lambda leaf: leaf * 2 if isinstance(leaf, UnbatchedTensor) else leaf[0], td)
    assert (kept.batch_size, kept["u"].batch_size) == (Size([3]), Size([3]))
    assert kept["u"].tolist() == [2, 2]


def test_rows_are_written_beside_it():
    td = made()
    before = td["u"]
    td[0] = 7.0
    td[torch.tensor([True, False, False, True])] = made(values=VALUES * 5)[:2] * 0 + 9
    assert td["a"][:, 0].tolist() == [9, 6, 12, 9]
    assert td["u"] is before
    untouched(td, (4,))
    td.masked_fill_(torch.ones(4, dtype=torch.bool), 1.0)
    assert (td["a"] == 1).all()
    untouched(td, (4,))


def test_members_of_a_stack_get_it():
    stack = lazy_stack([TensorDict({"a": torch.zeros(2)}, [2]) for _ in range(3)])
    stack["u"] = UnbatchedTensor(VALUES)
    assert isinstance(stack, LazyStackedTensorDict)
    assert stack["u"].batch_size == Size([3, 2])
    assert [member["u"].batch_size for member in stack.tensordicts] == [Size([2])] * 3


@pytest.mark.parametrize(
    "save", [lambda td, to: td.memmap(to), lambda td, to: td.memmap(), lambda td, to: td.consolidate()], ids="abc"
)
def test_files_refuse_it(save, tmp_path):
    with pytest.raises(NotImplementedError, match="UnbatchedTensor"):
        save(made(), tmp_path / "td")
    assert not (tmp_path / "td").exists()


def test_leaves_of_a_reduction_together():
    td = made()
    assert td.sum(reduce=True) == td["a"].sum()
    assert torch.equal(td.sum(0, reduce=True), td["a"].sum(0))


@pytest.mark.parametrize(
    "joined",
    [
        (lambda td: torch.stack([td, td]), (2, 4)),
        (lambda td: torch.cat([td, td]), (8,)),
        (lambda td: lazy_stack([td, td]).contiguous(), (2, 4)),
    ],
    ids=["stack", "cat", "lazy"],
)
def test_compiled_joins(joined):
    join, batch = joined
    untouched(torch.compile(join, backend="eager", fullgraph=True)(made()), batch)


def test_compiled():
    def step(td):
        return (td + 1)[1:].reshape(-1)

    untouched(torch.compile(step, backend="eager")(made()), (3,), VALUES + 1)


def test_a_check_of_the_tree_knows_it():
    from tensordict._ops.check import check_tree

    assert check_tree(made())


def test_batch_sizes_are_found_without_it():
    td = TensorDict({"a": torch.zeros(4, 3), "u": UnbatchedTensor(torch.zeros(7))}, [4])
    td._check_batch_size()
    assert td.auto_batch_size_().batch_size == Size([4, 3])
    td.batch_size = [4]
    other = TensorDict({"a": torch.ones(4, 3), "u": UnbatchedTensor(torch.ones(7))}, [4])
    td.load_state_dict(other.state_dict())
    assert (td["u"] == 1).all()


def test_rounding_of_one_number_and_copy():
    one = UnbatchedTensor(torch.tensor(1.5))
    assert (math.ceil(one), math.floor(one)) == (2, 1)
    leaf = UnbatchedTensor(torch.ones(2), batch_size=[3])
    copied = leaf.copy()
    assert type(copied) is UnbatchedTensor
    assert copied is not leaf
    assert (copied.data_ptr(), copied.batch_size) == (leaf.data_ptr(), torch.Size([3]))
