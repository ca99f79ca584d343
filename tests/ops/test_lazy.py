"""Lazy stacks: each operation against the same operation on the members, stacked."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch

from containers import CONTAINERS, check, same
from tensordict import (
    LazyStackedTensorDict,
    TensorDict,
    dense_stack_tds,
    lazy_legacy,
    lazy_stack,
    load_memmap,
    maybe_dense_stack,
    set_lazy_legacy,
)

STACKS = ["stacked", "stacked_last", "stacked_unlike", "stacked_twice", "holds_stack"]


def members(count: int = 3) -> list[TensorDict]:
    return [
        TensorDict({"a": torch.arange(8.0).reshape(4, 2) + 10 * place, "n": {"x": torch.arange(4) * place}}, [4])
        for place in range(count)
    ]


def ragged() -> LazyStackedTensorDict:
    """Members of unlike shapes, along the second dimension."""
    rows = [TensorDict({"a": torch.arange(4.0 * size).reshape(4, size), "b": torch.ones(4) * size}, [4]) for size in (2, 3, 1)]
    return LazyStackedTensorDict(*rows, stack_dim=1)


def dense(td: Any) -> TensorDict:
    """The same entries in a plain tensordict, read one by one."""
    fields = {
        key: dense(value) if isinstance(value, (TensorDict, LazyStackedTensorDict)) else value for key, value in td.items()
    }
    return TensorDict(fields, td.batch_size)


MASK = torch.arange(12).reshape(4, 3) % 3 == 0
INDICES: dict[str, Any] = {
    "int": 1,
    "negative": -1,
    "slice": slice(1, 3),
    "step": slice(None, None, 2),
    "ellipsis": (..., 0),
    "pair": (1, 2),
    "none": None,
    "none last": (..., None),
    "none between": (slice(None), None, slice(1, None)),
    "list": [2, 0, 2],
    "second list": (slice(None), [2, 0, 2, 1]),
    "lists": ([0, 3], [1, 2]),
    "matrix": torch.tensor([[0, 1], [3, 0]]),
    "second matrix": (slice(None), torch.tensor([[0, 1], [2, 0]])),
    "mask": MASK[:, 0],
    "second mask": (slice(None), torch.tensor([True, False, True])),
    "whole mask": MASK,
    "no rows": torch.zeros(4, dtype=torch.bool),
    "empty": slice(0, 0),
    "empty second": (slice(None), slice(0, 0)),
}


@pytest.mark.parametrize("index", INDICES)
@pytest.mark.parametrize("container", STACKS)
def test_rows(container, index):
    td = CONTAINERS[container]()
    wanted = dense(td)[INDICES[index]]
    out = td[INDICES[index]]
    assert out.batch_size == wanted.batch_size
    if 0 not in out.batch_size:
        same(dense(out.select(*wanted.keys(True, True))), wanted)
        check(out)


@pytest.mark.parametrize("value", ["number", "tensordict"])
@pytest.mark.parametrize("index", [name for name in INDICES if "none" not in name])
@pytest.mark.parametrize("container", STACKS)
def test_writes_of_rows(container, index, value):
    td = CONTAINERS[container]().clone()
    wanted, at = dense(td), INDICES[index]
    rows = wanted[at].apply(lambda leaf: leaf * 3 + 1)
    given = {"number": 7.5, "tensordict": rows}[value]
    if 0 in rows.batch_size:
        given = 7.5
    wanted[at] = given
    td[at] = given
    same(dense(td), wanted)


OPERATIONS: dict[str, Callable[[Any], Any]] = {
    "view": lambda td: td.view(12),
    "view of two": lambda td: td.view(2, 2, 3),
    "reshape": lambda td: td.reshape(3, 4),
    "permute": lambda td: td.permute(1, 0),
    "squeeze": lambda td: td.unsqueeze(0).squeeze(0),
    "expand": lambda td: td.expand(2, 4, 3),
    "unbind": lambda td: td.unbind(0)[1],
    "unbind last": lambda td: td.unbind(1)[2],
    "split": lambda td: td.split([1, 3], 0)[1],
    "chunk": lambda td: td.chunk(2, 1)[0],
    "gather": lambda td: td.gather(1, torch.tensor([[0, 2], [1, 1], [0, 0], [2, 1]])),
    "gather rows": lambda td: td.gather(0, torch.tensor([[3, 0, 1]])),
    "roll": lambda td: td.roll((1, 1), (0, 1)),
    "flip": lambda td: td.flip((0,)),
    "flip last": lambda td: td.flip((1,)),
    "pad": lambda td: td.pad([1, 0, 0, 2], value=3.0),
    "repeat": lambda td: td.repeat(2, 1),
    "repeat_interleave": lambda td: td.repeat_interleave(2, dim=1),
    "narrow": lambda td: td.narrow(1, 1, 2),
    "rot90": lambda td: td.rot90(),
    "sum": lambda td: td.sum(0),
    "sum last": lambda td: td.sum(1),
    "sum of all": lambda td: td.sum(),
    "mean": lambda td: td.double().mean((0, 1)).float(),
    "softmax": lambda td: td.double().softmax(1),
    "where": lambda td: td.where(MASK, td * 2),
    "masked_fill": lambda td: td.masked_fill(MASK, 5.0),
    "mask of rows": lambda td: td.masked_fill(MASK[:, 0], 5.0),
    "add a column": lambda td: td + torch.arange(4.0).reshape(4, 1),
    "add a row": lambda td: td + torch.arange(3.0),
    "grow": lambda td: td + torch.arange(24.0).reshape(2, 4, 3),
    "add dense": lambda td: td + dense(td),
    "to dense": lambda td: dense(td) + td,
    "apply": lambda td: td.apply(lambda x, y: x - y, td * 2),
    "stack": lambda td: torch.stack([td, td * 2], 1),
    "stack of both": lambda td: torch.stack([td, dense(td)], 2),
    "cat": lambda td: torch.cat([td, td * 2], 0),
    "cat last": lambda td: torch.cat([td, td * 2], 1),
    "cat of both": lambda td: torch.cat([dense(td), td], 1),
    "contiguous": lambda td: td.contiguous(),
    "clone": lambda td: td.clone(),
    "to_tensordict": lambda td: td.to_tensordict(),
    "flatten_keys": lambda td: td.flatten_keys(),
    "and back": lambda td: td.flatten_keys().unflatten_keys(),
    "select": lambda td: td.select("a"),
    "exclude": lambda td: td.exclude("a"),
    "double": lambda td: td.double(),
    "to": lambda td: td.to("cpu"),
    "zeros_like": lambda td: torch.zeros_like(td),
    "densify": lambda td: td.select("a").densify(),
    "to_lazystack": lambda td: td.to_lazystack(0),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda td: pickle.loads(pickle.dumps(td)),
}


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("container", STACKS)
def test_as_dense(container, operation):
    td, call = CONTAINERS[container](), OPERATIONS[operation]
    if (container, operation) == ("stacked_unlike", "add dense"):
        pytest.skip("the members have keys that the operand lacks")
    wanted, out = call(dense(td)), call(td)
    assert out.batch_size == wanted.batch_size
    same(dense(out), dense(wanted))
    check(out)


def test_members_are_kept():
    rows = members()
    td = LazyStackedTensorDict(*rows, stack_dim=1)
    assert all(one is two for one, two in zip(td.unbind(1), rows))
    assert td[:, 1] is rows[1]
    assert td[..., -1] is rows[2]
    assert td[:, [2, 0]].tensordicts == [rows[2], rows[0]] or td[:, [2, 0]].tensordicts[0] is rows[2]
    assert td.permute(1, 0)[0] is rows[0]
    assert list(td.permute(1, 0))[2] is rows[2]


VIEWS: dict[str, Callable[[Any], Any]] = {
    "row": lambda td: td[1],
    "permuted": lambda td: td.permute(1, 0)[:, 1],
    "viewed": lambda td: td.view(-1)[3:6],
    "viewed in other rows": lambda td: td.view(3, 4).view(12)[3:6],
    "unsqueezed": lambda td: td.unsqueeze(0)[:, 1],
    "divided": lambda td: td.view(4, 3, 1)[1],
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=list(VIEWS))
def test_writes_through_views(view):
    td = LazyStackedTensorDict(*members(), stack_dim=1)
    view(td).zero_()
    assert (td[1] == 0).all()
    assert not (td[2]["a"] == 0).any()


@pytest.mark.parametrize("index", [1, slice(1, 3), [0, 3], (slice(None), 2)], ids=str)
def test_writes_through_sub_tensordicts(index):
    td, wanted = lazy_stack(members(), 1), dense(lazy_stack(members(), 1))
    for target in (td, wanted):
        rows = target._get_sub_tensordict(index)
        rows["a"] = torch.zeros_like(rows["a"])
        rows.fill_("n", 5)
        rows.add_(1)
    same(dense(td), wanted)


def test_writes_reach_the_members():
    rows = members()
    td = lazy_stack(rows, 1)
    td["new"] = torch.arange(12).reshape(4, 3)
    td["n", "deep", "er"] = torch.arange(12.0).reshape(4, 3)
    td.set_("a", torch.full((4, 3, 2), 3.0))
    td.update({"n": {"x": torch.ones(4, 3, dtype=torch.int64)}}, inplace=True)
    assert rows[1]["new"].tolist() == [1, 4, 7, 10]
    assert rows[2]["n", "deep", "er"].tolist() == [2, 5, 8, 11]
    assert (rows[0]["a"] == 3).all()
    assert (rows[0]["n", "x"] == 1).all()
    td.fill_("n", 4)
    td.set_at_("a", 9.0, (0, 2))
    assert (rows[1]["n", "x"] == 4).all()
    assert rows[2]["a"][0].tolist() == [9, 9]
    td.rename_key_("new", "old")
    del td["a"]
    assert sorted(rows[0].keys()) == ["n", "old"]


def test_forms_of_unlike_entries():
    td = ragged()
    with pytest.raises(RuntimeError, match="as_padded_tensor"):
        td["a"]
    assert [value.shape[1] for value in td.get("a", as_list=True)] == [2, 3, 1]
    padded = td.get("a", as_padded_tensor=True, padding_value=-1.0)
    assert padded.shape == (4, 3, 3)
    assert padded[0].tolist() == [[0, 1, -1], [0, 1, 2], [0, -1, -1]]
    left = td.get("a", as_padded_tensor=True, padding_side="left")
    assert left[1].tolist() == [[0, 2, 3], [3, 4, 5], [0, 0, 1]]
    nested = td.permute(1, 0).get("a", as_nested_tensor=True)
    assert nested.is_nested
    assert nested.layout is torch.jagged
    assert [part.shape for part in nested.unbind(0)] == [(4, 2), (4, 3), (4, 1)]
    assert td.get("missing", as_list=True) is None
    assert td.get("missing", 3, as_list=True) == 3


def test_operations_of_unlike_entries():
    td = ragged()
    for out in (
        td + 1,
        td * td + td,
        td.apply(lambda leaf: leaf + 1),
        td.clone(),
        td.double(),
        td[:, [0, 2]],
        td.flip((1,)),
        td[::2],
    ):
        assert isinstance(out, LazyStackedTensorDict)
    sums = td.sum(0)
    assert sums.batch_size == (3,)
    assert sums[1]["a"].tolist() == td[:, 1]["a"].sum(0).tolist()
    flat = td.reshape(-1)
    assert [row["a"].tolist() for row in flat[:3]] == [[0, 1], [0, 1, 2], [0]]
    swapped = td.reshape(3, 4)
    assert swapped[1, 0]["a"].tolist() == td[1, 1]["a"].tolist()
    both = torch.cat([td, td], 0)
    assert both.batch_size == (8, 3)
    assert both[5, 2]["a"].tolist() == td[1, 2]["a"].tolist()
    assert td.permute(1, 0).densify(layout=torch.jagged).get("b").shape == (3, 4)


def test_grows():
    td = lazy_stack(members(2))
    td.append(members(3)[2])
    td.insert(0, members(1)[0])
    td.extend(td)
    assert td.batch_size == (8, 4)
    with pytest.raises(ValueError, match=r"Batch sizes.*\[3\]"):
        td.append(TensorDict({}, [3]))
    with pytest.raises(TypeError, match="int"):
        td.append(3)
    with pytest.raises(RuntimeError, match="locked"):
        td.lock_().append(members(1)[0])


def test_names_and_locks():
    rows = members()
    td = LazyStackedTensorDict(*rows, stack_dim=1, stack_dim_name="who")
    assert td.names == [None, "who"]
    td.names = ["when", "who"]
    assert rows[0].names == ["when"]
    assert td.permute(1, 0).names == ["who", "when"]
    assert td["n"].names == ["when", "who"]
    assert td[0].names == ["who"]
    assert td[:, 0].names == ["when"]
    td.lock_()
    assert rows[0].is_locked
    with pytest.raises(RuntimeError, match="locked graph"):
        rows[0].unlock_()
    assert (td + 1).is_locked
    td.unlock_()
    assert not rows[0].is_locked


def test_construction():
    with pytest.raises(RuntimeError, match="too big"):
        LazyStackedTensorDict(*members(), stack_dim=2)
    with pytest.raises(RuntimeError, match="negative"):
        LazyStackedTensorDict(*members(), stack_dim=-3)
    with pytest.raises(TypeError, match="Tensor"):
        LazyStackedTensorDict(torch.zeros(3))
    with pytest.raises(RuntimeError, match="batch_size"):
        LazyStackedTensorDict(*members(), batch_size=[5, 4])
    with pytest.raises(RuntimeError, match="empty"):
        lazy_stack([])
    assert LazyStackedTensorDict(stack_dim=1, batch_size=[3]).batch_size == (3, 0)
    assert LazyStackedTensorDict(*members(), stack_dim=-1).stack_dim == 1
    unlike = lazy_stack([TensorDict({"a": torch.zeros(2)}, [2]), TensorDict({"a": torch.zeros(3)}, [3])])
    assert unlike.batch_size == (2, -1)
    assert unlike[1].batch_size == (3,)
    assert (unlike + 1)[0]["a"].tolist() == [1, 1]


def test_dense_or_lazy():
    assert type(maybe_dense_stack(members())) is TensorDict
    assert type(maybe_dense_stack(ragged().tensordicts)) is LazyStackedTensorDict
    assert type(dense_stack_tds(lazy_stack(members(), 1))) is TensorDict
    assert type(TensorDict.from_list([{"a": torch.zeros(2)}, {"a": torch.zeros(3)}])) is LazyStackedTensorDict
    assert type(TensorDict.from_list([{"a": torch.zeros(2)}] * 2, lazy=True)) is LazyStackedTensorDict
    parts = [TensorDict({"a": torch.zeros(3), "n": {"x": torch.zeros(size)}}) for size in (1, 2)]
    partly = maybe_dense_stack(parts)
    assert type(partly) is TensorDict
    assert type(partly["n"]) is LazyStackedTensorDict


def test_legacy_switch():
    assert not lazy_legacy()
    with set_lazy_legacy(True):
        assert lazy_legacy()
        assert type(torch.stack(members())) is LazyStackedTensorDict
    assert type(torch.stack(members())) is TensorDict


@pytest.mark.parametrize(
    "make", [lambda: lazy_stack(members(), 1), ragged, lambda: TensorDict({"s": lazy_stack(members(), 1)}, [4])]
)
def test_memory_maps(make, tmp_path):
    td = make()
    saved = td.memmap(tmp_path / "td")
    assert saved.is_memmap()
    for back in (saved, load_memmap(tmp_path / "td")):
        assert type(back) is type(td)
        assert (back == td).all()
    smaller = td[..., :2] if isinstance(td, LazyStackedTensorDict) else td
    smaller.memmap(tmp_path / "td")
    assert load_memmap(tmp_path / "td").batch_size == smaller.batch_size


def test_vmap_and_pytree():
    td = lazy_stack(members(), 1)
    out = torch.vmap(lambda row: row["a"].sum(-1), (1,))(td)
    assert torch.equal(out, td["a"].permute(1, 0, 2).sum(-1))
    out = torch.vmap(lambda row: row + 1)(td)
    assert torch.equal(out["a"], td["a"] + 1)
    mapped = torch.utils._pytree.tree_map(lambda leaf: leaf * 2, td)
    assert type(mapped) is LazyStackedTensorDict
    assert torch.equal(mapped["a"], td["a"] * 2)
    unlike = torch.utils._pytree.tree_map(lambda leaf: leaf * 2, ragged())
    assert [value.shape[1] for value in unlike.get("a", as_list=True)] == [2, 3, 1]


def test_gradients_reach_the_members():
    rows = [TensorDict({"a": torch.ones(4, requires_grad=True)}, [4]) for _ in range(3)]
    (lazy_stack(rows, 1)["a"] * torch.arange(12.0).reshape(4, 3)).sum().backward()
    assert rows[1]["a"].grad.tolist() == [1, 4, 7, 10]


def test_printed():
    lines = str(lazy_stack(members(), 1)).splitlines()
    assert lines[0] == "LazyStackedTensorDict(batch_size=[4,3], stack_dim=1, fields={"
    assert [line.strip() for line in lines[1:]] == ["a: f32[2],", "n: {x: i64[]}})"]
    assert str(ragged().select("b")) == "LazyStackedTensorDict(batch_size=[4,3], stack_dim=1, fields={b: f32[]})"
    assert "a: f32[-1]" in str(ragged())


class TestOfMembers:
    def make(self):
        return lazy_stack([TensorDict({"a": torch.arange(3.0) + place}, [3]) for place in range(4)])

    @pytest.mark.filterwarnings("ignore:To copy construct from a tensor")
    def test_new_tensor(self):
        stack = self.make()
        for out, shape in (
            (stack.new_tensor(torch.zeros(0)), (0,)),
            (stack.new_tensor([1, 2]), (2,)),
            (stack.new_tensor(stack[0]), (3,)),
            (stack.new_tensor(TensorDict({"a": torch.zeros(2, 3)}, [2, 3])), (2, 3)),
        ):
            assert out.batch_size == out["a"].shape == shape
            assert out["a"].dtype == torch.float32
        assert stack.new_tensor([1, 2])["a"].tolist() == [1, 2]

    @pytest.mark.parametrize("weights", ["stack", "dense"])
    def test_gradients(self, weights):
        stack = self.make().requires_grad_()
        out = stack * stack
        ones = torch.ones_like(out)
        grads = torch.autograd.grad(out, stack, ones if weights == "stack" else ones.contiguous())
        assert isinstance(grads, LazyStackedTensorDict)
        assert torch.equal(grads["a"], 2 * stack["a"])


def test_the_dense_stack_of_a_dense_tensordict_is_itself():
    td = TensorDict({"a": torch.ones(4, 3)}, [4])
    assert dense_stack_tds(td) is td


class TestMembersOfRows:
    """Integers, lists of numbers, loops, pieces: what can be told from the members alone."""

    def make(self, dim):
        members = [TensorDict({"a": torch.arange(6.0).reshape(2, 3) + 10 * place}, [2, 3]) for place in range(4)]
        return lazy_stack(members, dim), torch.stack([member["a"] for member in members], dim)

    @pytest.mark.parametrize("dim", [0, 1, 2])
    @pytest.mark.parametrize(
        "index",
        [
            torch.tensor([-1, 0]),
            (slice(None), torch.tensor([1, 0, -1])),
            (slice(None), slice(None), [2, 0]),
            (slice(1), torch.tensor([1])),
            torch.tensor([], dtype=torch.int64),
            -2,
        ],
    )
    def test_rows(self, dim, index):
        stack, dense = self.make(dim)
        out = stack[index]
        assert out.batch_size == dense[index].shape
        if out.batch_size.numel():
            assert torch.equal(out["a"], dense[index])

    @pytest.mark.parametrize("dim", [0, 1, 2])
    @pytest.mark.parametrize("at", [0, 1, 2, -1])
    def test_pieces(self, dim, at):
        stack, dense = self.make(dim)
        for ours, theirs in ((stack.unbind(at), dense.unbind(at)), (stack.split(2, at), dense.split(2, at))):
            assert [tuple(piece.batch_size) for piece in ours] == [tuple(piece.shape) for piece in theirs]
            assert all(torch.equal(piece["a"], wanted) for piece, wanted in zip(ours, theirs))
        stack.split(2, at)[0].zero_()
        assert not stack.split(2, at)[0]["a"].any()
        assert [tuple(part.batch_size) for part in stack] == [tuple(part.shape) for part in dense]

    @pytest.mark.parametrize("index", [4, -5, torch.tensor([4]), [0, -5]])
    def test_bounds(self, index):
        with pytest.raises(IndexError):
            self.make(0)[0][index]

    def test_locked_pieces(self):
        stack, _ = self.make(0)
        stack.lock_()
        assert all(piece.is_locked for piece in stack.split(2))
        assert stack[torch.tensor([0, 1])].tensordicts[0] is stack.tensordicts[0]

    def test_no_members(self):
        stack = LazyStackedTensorDict(batch_size=[3], stack_dim=0)
        assert stack.unbind(0) == ()
        assert not [*stack]


def test_stacks_of_unlike_stacks_are_lazy() -> None:
    one, two = TensorDict({"a": torch.zeros(3), "b": torch.zeros(4)}), TensorDict({"b": torch.zeros(5), "a": torch.zeros(3)})
    first, second = TensorDict.maybe_dense_stack([one, two]), TensorDict.maybe_dense_stack([one, two]).clone()
    del one["a"]
    for items in ([first, second], [second, first]):
        found = TensorDict.maybe_dense_stack(items)
        assert [type(member).__name__ for member in found.tensordicts] == ["LazyStackedTensorDict"] * 2


def test_a_dense_node_of_unknown_size_takes_entries() -> None:
    """What some operations give for stacks of unlike members is no stack, and has a size of -1."""
    node = TensorDict._new({}, torch.Size([3, -1]))
    node.set("n", TensorDict._new({}, torch.Size([3, -1])))
    with pytest.raises(RuntimeError, match="a"):
        node.set("a", torch.zeros(3, 2))
