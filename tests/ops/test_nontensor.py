"""Entries that hold objects, against lists of dicts."""

from __future__ import annotations

import copy
import pickle
from collections import OrderedDict
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from torch import Size

from tensordict import (
    MetaData,
    NonTensorData,
    NonTensorStack,
    TensorAttrs,
    TensorDict,
    capture_non_tensor_stack,
    is_leaf_nontensor,
    is_non_tensor,
    is_tensorclass,
    lazy_stack,
    list_to_stack,
    set_capture_non_tensor_stack,
    set_list_to_stack,
)


def grid() -> TensorDict:
    """Numbers and the same numbers as strings, for each element."""
    numbers = torch.arange(12.0).reshape(4, 3)
    return TensorDict({"a": numbers, "s": [[f"{int(v)}" for v in row] for row in numbers.tolist()], "m": "all"}, [4, 3])


def agree(td) -> None:
    """The strings are those of the numbers, element by element."""
    expected = td["a"].reshape(-1).tolist()
    flat = [item for item in _flat(td.get("s").tolist())]
    assert flat == [f"{int(value)}" for value in expected]
    assert td.get("s").batch_size == td.batch_size
    assert set(_flat([td["m"]])) <= {"all"}
    assert td.get("m").batch_size == td.batch_size


def _flat(value):
    return [below for item in value for below in _flat(item)] if isinstance(value, list) else [value]


MOVES = {
    "int": lambda td: td[1],
    "int_last": lambda td: td[:, 2],
    "element": lambda td: td[1, 2],
    "slice": lambda td: td[1:3, ::2],
    "rows": lambda td: td[torch.tensor([3, 0, 0])],
    "rows_last": lambda td: td[:, torch.tensor([2, 1])],
    "pairs": lambda td: td[torch.tensor([3, 0]), torch.tensor([1, 1])],
    "mask": lambda td: td[td["a"] > 4],
    "mask_rows": lambda td: td[torch.tensor([True, False, False, True])],
    "none": lambda td: td[None, :, None],
    "gather": lambda td: td.gather(1, torch.tensor([[0, 2], [1, 1], [2, 0], [0, 0]])),
    "gather_first": lambda td: td.gather(0, torch.tensor([[3, 2, 1]])),
    "masked_select": lambda td: td.masked_select(td["a"] % 2 == 0),
    "reshape": lambda td: td.reshape(2, 6),
    "flatten": lambda td: td.flatten(),
    "view": lambda td: td.view(12),
    "unflatten": lambda td: td.unflatten(0, (2, 2)),
    "permute": lambda td: td.permute(1, 0),
    "transpose": lambda td: td.transpose(0, 1),
    "unsqueeze": lambda td: td.unsqueeze(1),
    "squeeze": lambda td: td[:1].squeeze(0),
    "expand": lambda td: td.expand(2, 4, 3),
    "split": lambda td: td.split(3)[1],
    "split_last": lambda td: td.split([1, 2], 1)[1],
    "chunk": lambda td: td.chunk(2, 1)[0],
    "unbind": lambda td: td.unbind(1)[2],
    "stack": lambda td: torch.stack([td, td[[1, 0, 3, 2]]], 1),
    "cat": lambda td: torch.cat([td, td[:1]]),
    "cat_last": lambda td: torch.cat([td[:, 1:], td], 1),
    "lazy": lambda td: lazy_stack([td[0], td[2]], 1),
    "lazy_index": lambda td: lazy_stack([td[0], td[2]], 1)[torch.tensor([2, 0])],
    "where": lambda td: td.where(td["a"] > 5, td[[1, 0, 3, 2]]),
    "clone": lambda td: td.clone(),
    "tensordict": lambda td: td.to_tensordict(),
    "apply": lambda td: td.apply(lambda leaf: leaf),
    "double": lambda td: td + 0,
    "pickle": lambda td: pickle.loads(pickle.dumps(td)),
    "deepcopy": lambda td: copy.deepcopy(td),
    "memmap": lambda td: td.memmap(),
    "flat_keys": lambda td: TensorDict({"n": td}, td.batch_size).flatten_keys().unflatten_keys()["n"],
    "roll": lambda td: td.roll(1, 0),
    "roll_both": lambda td: td.roll((1, 2), (0, 1)),
    "flip": lambda td: td.flip((0, 1)),
    "rot90": lambda td: td.rot90(),
    "narrow": lambda td: td.narrow(1, 1, 2),
    "repeat": lambda td: td.repeat(2, 1),
    "repeat_interleave": lambda td: td.repeat_interleave(2, dim=1),
    "tile": lambda td: td.tile((1, 2)),
    "movedim": lambda td: td.movedim(0, 1),
    "tensor_split": lambda td: td.tensor_split(3)[0],
}
NEEDS = {"roll_both": "roll", "tensor_split": "tensor_split"}
NAMED = ("roll", "flip", "rot90", "narrow", "repeat", "repeat_interleave", "tile", "movedim", *NEEDS)
PRESENT = {name: move for name, move in MOVES.items() if name not in NAMED or hasattr(TensorDict, NEEDS.get(name, name))}


class TestMoves:
    @pytest.mark.parametrize("name", PRESENT)
    def test_as_tensors_move(self, name):
        agree(PRESENT[name](grid()))

    @pytest.mark.parametrize("first", ["rows", "permute", "stack", "lazy", "expand", "cat_last"])
    @pytest.mark.parametrize("name", ["mask", "reshape", "int_last", "cat", "where", "split_last"])
    def test_twice(self, first, name):
        td = PRESENT[first](grid())
        if name not in ("mask", "cat"):
            td = td.reshape(-1, 1).expand(-1, 3)[:4]
        agree(PRESENT[name](td))

    @pytest.mark.skipif(not hasattr(TensorDict, "pad"), reason="there is no padding")
    def test_padding_puts_none(self):
        td = grid().pad([1, 0, 0, 2], value=float("nan"))
        assert td["s"][0] == [None] * 5
        assert td["s"][1] == ["0", "1", "2", None, None]
        assert td["m"][0] == [None] * 5
        assert td["m"][2][:4] == ["all", "all", "all", None]

    def test_views_share(self):
        td = grid()
        td[1]["s"][2] = "new"
        view = td[1]
        view["s"][2] = "new"
        assert td["s"][1] == ["3", "4", "new"]

    def test_copies_do_not_share(self):
        td = grid()
        taken = td[torch.tensor([1])]
        taken["s"][0][2] = "new"
        assert td["s"][1] == ["3", "4", "5"]
        assert taken["s"] == [["3", "4", "new"]]

    def test_empty(self):
        td = grid()
        assert td[torch.zeros(4, 3, dtype=torch.bool)]["s"] == []
        assert td[2:2].get("s").batch_size == Size([0, 3])

    def test_reduction_keeps_what_is_equal(self):
        td = TensorDict({"a": torch.ones(2, 2), "s": [["p", "q"], ["p", "q"]]}, [2, 2])
        assert td.sum(0)["s"] == ["p", "q"]
        assert td.sum(0, keepdim=True)["s"] == [["p", "q"]]
        with pytest.raises(RuntimeError, match="filter_non_tensor_data"):
            td.sum(1)
        assert td.filter_non_tensor_data().sum(1)["a"].tolist() == [2, 2]

    def test_vmap(self):
        td = TensorDict({"a": torch.arange(3.0), "s": ["x", "y", "z"], "m": "all"}, [3])
        out = torch.vmap(lambda row: row + 1)(td)
        assert out["a"].tolist() == [1, 2, 3]
        assert out["s"] == ["x", "y", "z"]
        assert out.get("m").batch_size == Size([3])

    @pytest.mark.parametrize(
        "function",
        [lambda td: td + 1, lambda td: td[:2] + 1, lambda td: td.unsqueeze(0) + 1, lambda td: torch.stack([td, td]) + 1],
    )
    def test_compile(self, function):
        td = TensorDict({"a": torch.arange(3.0), "m": "all"}, [3])
        out = torch.compile(function, fullgraph=True, backend="eager")(td)
        expected = function(td)
        assert torch.equal(out["a"], expected["a"])
        assert out["m"] == expected["m"]

    def test_compile_stack(self):
        td = TensorDict({"a": torch.arange(3.0), "s": ["x", "y", "z"]}, [3])
        out = torch.compile(lambda td: td[:2] + 1, fullgraph=True, backend="eager")(td)
        assert out["s"] == ["x", "y"]


class TestWrites:
    @pytest.mark.parametrize("index", [0, slice(1, 3), torch.tensor([3, 0]), torch.tensor([True, False, False, True]), (0, 1)])
    def test_rows(self, index):
        td, other = grid(), grid().apply(lambda leaf: leaf + 100)
        other["s"] = [[f"{int(v)}" for v in row] for row in other["a"].tolist()]
        td[index] = other[index]
        agree(td)

    def test_one_for_all_becomes_several(self):
        td = TensorDict({"a": torch.zeros(3), "s": "x"}, [3])
        td[0] = TensorDict({"a": torch.ones(()), "s": "y"})
        assert td["s"] == ["y", "x", "x"]
        td[1:] = {"s": ["p", "q"]}
        assert td["s"] == ["y", "p", "q"]
        td[0] = 0.0
        assert td["s"] == ["y", "p", "q"]

    def test_new_entry_in_rows(self):
        td = TensorDict({"a": torch.zeros(3)}, [3])
        td[1] = {"s": "y"}
        assert td["s"] == "y"
        td[:2] = {"t": ["p", "q"]}
        assert td["t"] == ["p", "q", None]

    @pytest.mark.parametrize("lock", [False, True])
    def test_list_writes_back(self, lock):
        td = grid()
        if lock:
            td.lock_()
        td["s"][0][1] = "new"
        td["s"][2] = ["p", "q", "r"]
        assert td["s"] == [["0", "new", "2"], ["3", "4", "5"], ["p", "q", "r"], ["9", "10", "11"]]

    def test_list_writes_back_through_lazy_stacks(self):
        members = [TensorDict({"s": name, "a": torch.zeros(3)}, [3]) for name in "xy"]
        td = lazy_stack(members, 1)
        td["s"][0][1] = "new"
        assert members[1]["s"] == ["new", "y", "y"]
        assert td["s"] == [["x", "new"], ["x", "y"], ["x", "y"]]

    def test_list_that_grows_is_a_list(self):
        td = grid()
        rows = td["s"]
        rows.append("z")
        assert len(td["s"]) == 4

    def test_nested(self):
        td = TensorDict({"n": {"s": ["x", "y"]}}, [2])
        td["n", "s"][0] = "z"
        assert td["n", "s"] == ["z", "y"]

    @pytest.mark.parametrize("value", [["u", "v", "w"], NonTensorStack("u", "v", "w")])
    @pytest.mark.parametrize("start", ["x", ["x", "y", "z"]])
    def test_in_place(self, start, value):
        for write in (
            lambda td: td.set_("s", value),
            lambda td: td.update_({"s": value}),
            lambda td: td.update({"s": value}, inplace=True),
            lambda td: td.set_at_("s", value, slice(None)),
            lambda td: td.update_at_({"s": value}, slice(None)),
        ):
            td = TensorDict({"s": start}, [3])
            held = td.get("s")
            write(td.lock_())
            assert td["s"] == ["u", "v", "w"] or td["s"] == value
            assert td.get("s") is held or not is_non_tensor(start)

    def test_replaced(self):
        td = grid()
        td["s"] = "one"
        assert td["s"] == "one"
        td["s"] = torch.ones(4, 3)
        assert torch.equal(td["s"], torch.ones(4, 3))
        td.update({"m": TensorDict({"u": torch.ones(4, 3)}, [4, 3])})
        assert td["m", "u"].shape == (4, 3)

    def test_refused(self):
        td = grid()
        with pytest.raises(RuntimeError):
            td.set_("s", torch.ones(4, 3))
        with pytest.raises(RuntimeError):
            td["s"] = ["too", "short"]
        with pytest.raises(RuntimeError):
            td.set_("a", "x")
        with pytest.raises(ValueError, match="maybe_to_stack"):
            td.get("m")[0] = NonTensorData("y")
        agree(td)


class TestKinds:
    @pytest.mark.parametrize(
        "value",
        ["x", b"x", None, {1}, (1, "a"), len, torch.float32, range(3), object(), torch.nn.Linear(1, 1)],
        ids=lambda value: type(value).__name__,
    )
    def test_object(self, value):
        td = TensorDict({"o": value}, [2])
        assert td["o"] is value
        assert td.get("o").batch_size == Size([2])
        assert td[0]["o"] is value

    def test_lists(self):
        td = TensorDict({"l": [1, "a", None], "n": [1, 2, 3], "t": [["a"], ["b"], ["c"]]}, [3])
        assert td["l"] == [1, "a", None]
        assert torch.equal(td["n"], torch.tensor([1, 2, 3]))
        assert td.get("t").batch_size == Size([3, 1])
        assert TensorDict({"l": [{"a": 1}, {"b": 2}]}, [2])[1]["l"] == {"b": 2}
        assert TensorDict({"l": [TensorDict({"a": 1}), TensorDict({"a": 2})]}, [2])["l", "a"].tolist() == [1, 2]

    def test_switches(self):
        assert list_to_stack()
        assert list_to_stack(allow_none=True) is None
        assert not capture_non_tensor_stack()
        assert capture_non_tensor_stack(allow_none=True) is None
        with set_list_to_stack(False):
            assert TensorDict({"l": ["a", "b", "c"]}, [2])["l"] == ["a", "b", "c"]
            assert list_to_stack(allow_none=True) is False
        pair = [TensorDict({"s": "a"}), TensorDict({"s": "a"})]
        with set_capture_non_tensor_stack(True):
            assert torch.stack(pair)["s"] == "a"
            assert lazy_stack(pair)["s"] == "a"
        assert torch.stack(pair)["s"] == ["a", "a"]
        assert torch.stack([MetaData("a"), MetaData("a")]).data == "a"
        assert torch.stack([MetaData("a"), MetaData("b")]).tolist() == ["a", "b"]

    def test_holder(self):
        held = NonTensorData("x", batch_size=[2, 1])
        assert held.data == "x"
        assert held.tolist() == [["x"], ["x"]]
        assert is_tensorclass(held)
        assert is_non_tensor(held)
        assert not held.is_empty()
        assert held.maybe_to_stack().tolist() == [["x"], ["x"]]
        assert NonTensorData(held).data == "x"
        assert repr(held) == "NonTensorData(data=x, batch_size=torch.Size([2, 1]), device=None)"
        held.data = "y"
        assert held.get("data") == "y"
        with pytest.raises(RuntimeError):
            held.lock_().data = "z"
        with pytest.raises(AttributeError):
            held.other  # noqa: B018

    def test_stack(self):
        stack = NonTensorStack("x", "y")
        assert stack.tolist() == ["x", "y"]
        with pytest.raises(AttributeError):
            stack.data  # noqa: B018
        stack.append("z")
        stack[0] = "w"
        assert stack.tolist() == ["w", "y", "z"]
        assert NonTensorStack("x", "x").data == "x"
        assert repr(NonTensorStack("a")) == "NonTensorStack(\n    ['a'],\n    batch_size=torch.Size([1]),\n    device=None)"

    def test_comparison(self):
        left, right = NonTensorStack("x", "y"), NonTensorStack("x", "z")
        assert (left == right).tolist() == [True, False]
        assert (left != right).tolist() == [False, True]
        assert (NonTensorData("x", batch_size=[2]) == left).tolist() == [True, False]
        assert not (grid() == grid().clone().set("s", "x")).all()
        assert (grid() == grid()).all()

    def test_keys(self):
        td = TensorDict({"a": torch.ones(2), "n": {"s": "x"}, "s": ["y", "z"]}, [2])
        assert set(td.keys(True, True)) == {"a"}
        assert set(td.keys(True, True, is_leaf_nontensor)) == {"a", ("n", "s"), "s"}
        assert set(td.keys(True)) == {"a", "n", ("n", "s"), "s"}
        assert [key for key, _ in td.non_tensor_items()] == ["s"]
        assert {key for key, _ in td.non_tensor_items(True)} == {"s", ("n", "s")}
        assert set(td.filter_non_tensor_data().keys(True)) == {"a", "n"}
        assert td.is_non_tensor("s")
        assert not td.is_non_tensor("a")
        assert td.set_non_tensor(("p", "q"), 3).get_non_tensor(("p", "q")) == 3
        assert td.get_non_tensor("missing", "default") == "default"
        assert not TensorDict({"s": "x"}).is_empty()

    def test_dicts(self):
        source = {"s": "x", "l": ["a", "b"], "n": {"o": None}}
        td = TensorDict.from_dict(source)
        assert td.to_dict() == source
        assert TensorDict.from_dict({"s": "x", "l": ["a", "b"]}, auto_batch_size=True).get("s").batch_size == Size([2])
        rows = TensorDict.from_list([{"s": "a", "x": 1}, {"s": "b", "x": 2}])
        assert rows["s"] == ["a", "b"]

    def test_state(self):
        td = TensorDict({"a": torch.zeros(2), "s": ["x", "y"]}, [2], names=["t"])
        assert td.get("s").names == ["t"]
        assert list(td.state_dict()) == ["a"]
        assert td.lock_().get("s").is_locked
        copied = copy.deepcopy(TensorDict({"o": NonTensorData([1])}))
        assert copied["o"] == [1]

    def test_deepcopy_copies_objects(self):
        held = [1]
        td = TensorDict({"o": NonTensorData(held)})
        assert copy.deepcopy(td)["o"] is not held
        assert td.clone()["o"] is not held
        assert td[None]["o"] is held

    def test_attrs(self):
        attrs = TensorDict({"a": torch.zeros(3, 2), "s": "x"}, [3]).attrs()
        assert attrs.get("a").tgt_shape == Size([3, 2])
        assert attrs.get("a").tgt_dtype == torch.float32
        assert attrs.batch_size == Size([])
        assert TensorAttrs.from_tensor(torch.zeros(2), fields=["dtype"]).tgt_shape is None


class Thing:
    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        return isinstance(other, Thing) and self.value == other.value


class TestFolders:
    @pytest.mark.parametrize(
        "td",
        [
            grid(),
            TensorDict({"n": {"s": ["x", "y"]}, "m": MetaData("z")}, [2]),
            TensorDict({"s": NonTensorData({"k": [1, 2.5, None, True]}), "t": NonTensorStack(["p"], ["q", "r"])}),
            TensorDict({"s": NonTensorData("x")}, [0]),
        ],
        ids=["grid", "nested", "json", "empty"],
    )
    def test_json(self, td, tmp_path):
        td.memmap(tmp_path)
        assert not [path for path in tmp_path.rglob("*") if path.suffix in (".pickle", ".pkl")]
        found = TensorDict.load_memmap(tmp_path, allow_pickle=False)
        assert found.to_dict().keys() == td.to_dict().keys()
        for key in td.keys(True, True, is_leaf_nontensor):
            assert found.get(key).shape == td.get(key).shape
            if is_non_tensor(td.get(key)):
                assert type(found.get(key)) is type(td.get(key))
                assert found.get(key).tolist() == td.get(key).tolist()

    @pytest.mark.parametrize("value", [Thing(1), (1, 2), float("inf"), b"x", {1: 2}])
    @pytest.mark.parametrize("stacked", [False, True])
    def test_pickle_only_if_allowed(self, value, stacked, tmp_path, monkeypatch):
        from tensordict._nontensor import files

        td = TensorDict({"o": NonTensorStack(value, "x") if stacked else NonTensorData(value)}, [2] if stacked else [])
        td.memmap(tmp_path)
        expected = [value, "x"] if stacked else value
        assert TensorDict.load_memmap(tmp_path)["o"] == expected  # this process wrote it
        with pytest.raises(RuntimeError, match="allow_pickle=True"):
            TensorDict.load_memmap(tmp_path, allow_pickle=False)
        monkeypatch.setattr(files, "_WRITTEN", OrderedDict())  # as another process
        with pytest.raises(RuntimeError, match="allow_pickle=True"):
            TensorDict.load_memmap(tmp_path)
        assert TensorDict.load_memmap(tmp_path, allow_pickle=True)["o"] == expected

    def test_memmap_in_place(self, tmp_path):
        td = grid().memmap_(tmp_path)
        assert td.is_memmap()
        assert td.get("s").is_locked
        agree(td)
        agree(TensorDict.load_memmap(tmp_path))


ROW = st.fixed_dictionaries({"a": st.integers(0, 99), "s": st.text("abc", max_size=2)})


def test_pickles_that_were_written_long_ago_are_forgotten(tmp_path, monkeypatch):
    from tensordict._nontensor import files

    monkeypatch.setattr(files, "_WRITTEN", OrderedDict())
    monkeypatch.setattr(files, "_MOST", 10)
    made = {number: TensorDict({"a": NonTensorData({number})}) for number in range(30)}
    for number, data in made.items():
        data.memmap(tmp_path / str(number))
        assert TensorDict.load_memmap(tmp_path / "0")["a"] == {0}  # what is read is not forgotten
    assert len(files._WRITTEN) == 10
    assert TensorDict.load_memmap(tmp_path / "29")["a"] == {29}
    with pytest.raises(RuntimeError, match="allow_pickle=True"):
        TensorDict.load_memmap(tmp_path / "1")
    assert TensorDict.load_memmap(tmp_path / "1", allow_pickle=True)["a"] == {1}


def of_rows(rows):
    return TensorDict({"a": torch.tensor([r["a"] for r in rows]), "s": NonTensorStack(*[r["s"] for r in rows])}, [len(rows)])


class Model(RuleBasedStateMachine):
    """Random operations on a batch with strings against a list of dicts."""

    def __init__(self):
        super().__init__()
        self.rows = [{"a": 0, "s": "a"}, {"a": 1, "s": ""}]
        self.td = of_rows(self.rows)

    @precondition(lambda self: self.rows)
    @rule(data=st.data(), row=ROW)
    def put(self, data, row):
        place = data.draw(st.integers(0, len(self.rows) - 1))
        self.rows[place] = dict(row)
        self.td[place] = TensorDict(row)

    @precondition(lambda self: self.rows)
    @rule(data=st.data(), text=st.text("xyz", max_size=2))
    def put_in_list(self, data, text):
        place = data.draw(st.integers(0, len(self.rows) - 1))
        self.rows[place] = {**self.rows[place], "s": text}
        self.td["s"][place] = text

    @rule(data=st.data())
    def take(self, data):
        size = len(self.rows)
        if not size:
            return
        places = data.draw(st.lists(st.integers(0, size - 1), max_size=8))
        self.rows = [dict(self.rows[place]) for place in places]
        # a lazy stack shares its members with the rows of a list of places
        self.td = self.td[torch.tensor(places, dtype=torch.long)].clone()

    @rule(data=st.data())
    def cut(self, data):
        start = data.draw(st.integers(0, len(self.rows)))
        self.rows, self.td = self.rows[start:], self.td[start:].clone()

    @precondition(lambda self: len(self.rows) < 12)
    @rule(rows=st.lists(ROW, min_size=1, max_size=3))
    def cat(self, rows):
        self.rows = self.rows + [dict(row) for row in rows]
        self.td = torch.cat([self.td, of_rows(rows)])

    @precondition(lambda self: self.rows)
    @rule()
    def stack(self):
        self.td = torch.stack(list(self.td.unbind(0)))

    @precondition(lambda self: self.rows)
    @rule()
    def lazy(self):
        self.td = lazy_stack(list(self.td.unbind(0)))

    @precondition(lambda self: self.rows)
    @rule()
    def reshape(self):
        size = len(self.rows)
        self.td = self.td.reshape(1, size).permute(1, 0).reshape(size)

    @rule()
    def copied(self):
        self.td = pickle.loads(pickle.dumps(self.td))

    @precondition(lambda self: self.rows and hasattr(TensorDict, "roll"))
    @rule(shift=st.integers(-3, 3))
    def roll(self, shift):
        self.td = self.td.roll(shift, 0)
        count = shift % len(self.rows)
        self.rows = self.rows[len(self.rows) - count :] + self.rows[: len(self.rows) - count]

    @precondition(lambda self: len(self.rows) < 10 and hasattr(TensorDict, "pad"))
    @rule(before=st.integers(0, 2), after=st.integers(0, 2))
    def pad(self, before, after):
        self.td = self.td.pad([before, after], value=7)
        fresh = {"a": 7, "s": None}
        self.rows = [dict(fresh) for _ in range(before)] + self.rows + [dict(fresh) for _ in range(after)]

    @invariant()
    def same(self):
        if self.rows:
            assert self.td["a"].tolist() == [row["a"] for row in self.rows]
            assert self.td.get("s").tolist() == [row["s"] for row in self.rows]
        assert self.td.batch_size == Size([len(self.rows)])


TestModel = Model.TestCase
TestModel.settings = settings(
    max_examples=60,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_chains_of_moves(data):
    td = grid()
    for _ in range(3):
        name = data.draw(st.sampled_from(["rows", "permute", "unsqueeze", "flatten", "mask", "expand", "int", "stack"]))
        dims = td.batch_dims
        if name == "rows":
            td = td[torch.tensor([0, 0])] if dims and td.batch_size[0] else td
        elif name == "permute":
            td = td.permute(*data.draw(st.permutations(range(dims))))
        elif name == "unsqueeze":
            td = td.unsqueeze(data.draw(st.integers(0, dims)))
        elif name == "flatten":
            td = td.reshape(-1)
        elif name == "mask":
            td = td[td["a"] % 2 == 0]
        elif name == "expand":
            td = td.expand(2, *td.batch_size)
        elif name == "int":
            td = td[0] if dims and td.batch_size[0] else td
        else:
            td = torch.stack([td, td], data.draw(st.integers(0, dims)))
    agree(td)


@pytest.mark.parametrize(
    ("value", "expected"), [(NonTensorData("k"), "k"), (MetaData("k"), "k"), (NonTensorStack("k", "l"), ["k", "l"])]
)
def test_a_holder_is_not_held(value, expected):
    td = TensorDict({"a": torch.zeros(2)}, [2]).set_non_tensor(("n", "z"), value)
    assert td["n", "z"] == expected
    assert td.get(("n", "z")).batch_size == Size([2])


class TestTyped:
    def test_one_class_for_a_type(self):
        held = MetaData[int](3, batch_size=[2])
        assert MetaData[int] is MetaData[int]
        assert isinstance(held, MetaData[int])
        assert not isinstance(held, MetaData[str])
        assert not isinstance(MetaData(3), MetaData[int])
        assert repr(held[0]) == "MetaData[int](data=3, batch_size=torch.Size([]), device=None)"
        with pytest.raises(TypeError, match="has a type already"):
            MetaData[int][str]

    @pytest.mark.parametrize(
        ("kind", "good", "bad"), [(int, 3, "a"), (int | str, "a", 1.0), (list[int], [1], 1), (int | None, None, "a")], ids=str
    )
    def test_checked(self, kind, good, bad):
        assert MetaData[kind](good).data == good
        with pytest.raises(TypeError, match="Expected data of type"):
            MetaData[kind](bad)

    def test_what_cannot_be_checked(self):
        assert MetaData[Any](3).data == 3

    def test_moves_keep_the_type(self, tmp_path):
        td = TensorDict({"m": MetaData[str]("a")}, [])
        assert isinstance(torch.stack([td, td]).get("m"), MetaData[str])
        assert isinstance(lazy_stack([td, td]).get("m"), MetaData[str])
        assert isinstance(pickle.loads(pickle.dumps(td)).get("m"), MetaData[str])
        assert type(pickle.loads(pickle.dumps(MetaData("a")))) is MetaData
        leaves, spec = torch.utils._pytree.tree_flatten(td)
        assert isinstance(torch.utils._pytree.tree_unflatten(leaves, spec).get("m"), MetaData[str])
        found = TensorDict.load_memmap(td.memmap(tmp_path)._rare["prefix"]).get("m")
        assert (type(found), found.data) == (MetaData, "a")


class TestMappedObjects:
    def test_written_through(self, tmp_path):
        td = TensorDict({"a": NonTensorData({1: 2}), "b": NonTensorData("x")}).memmap_(tmp_path)
        td.get("a").update_(NonTensorData({3: 4}))
        td.get("b").update(NonTensorData("y"), inplace=True)
        found = TensorDict.load_memmap(tmp_path)
        assert (found["a"], found["b"]) == ({3: 4}, "y")

    def test_a_part_of_a_stack_is_not_written_alone(self, tmp_path):
        stack = NonTensorStack(NonTensorStack("a", "b"), NonTensorStack("c", "d")).memmap_(tmp_path)
        for part in (stack[0], stack[0, 1], stack[:1]):
            with pytest.raises(RuntimeError, match="Cannot update a leaf NonTensorDataBase from a memmaped parent"):
                part.update_(NonTensorData("z"))
        assert stack.tolist() == [["a", "b"], ["c", "d"]]
        stack[0, 1] = "z"
        assert stack.tolist() == TensorDict.load_memmap(tmp_path).tolist() == [["a", "z"], ["c", "d"]]
        stack.unlock_()
        stack[0].update_(NonTensorData("u"))
        assert stack.tolist() == [["u", "u"], ["c", "d"]]


def test_masks_of_booleans():
    one, two = TensorDict({"a": NonTensorData(True), "s": "x"}), TensorDict({"a": NonTensorData(False), "s": "x"})
    assert (one | two)["a"]
    assert (one ^ two)["a"]
    assert not (one ^ one)["a"]
    assert (one ^ two)["s"] == "x"


def test_the_link_of_a_list_that_grew():
    td = TensorDict({"a": NonTensorStack("x", "y")}, [2])
    rows = td["a"]
    assert rows._td() is td.get("a")
    rows.append("z")
    assert rows._td() is None
    rows[0] = "w"
    assert td["a"] == ["x", "y"]


def test_replace_and_match():
    holder = NonTensorData("a", batch_size=[2], names=["k"])
    other = holder.__replace__(data="b")
    assert (type(other), other.data, other.batch_size, other.names) == (NonTensorData, "b", torch.Size([2]), ["k"])
    assert holder.__replace__(batch_size=[3], names=None).batch_size == torch.Size([3])
    with pytest.raises(AttributeError, match="'c'"):
        holder.__replace__(c=1)
    match other:
        case NonTensorData(data):
            assert data == "b"
        case _:
            pytest.fail("no match")


def test_a_stack_of_objects_of_another_batch_size_is_named() -> None:
    td = TensorDict({"a": torch.zeros(3, 4)}, [3, 4])
    with pytest.raises(RuntimeError, match=r"(?s)batch dimension mismatch.*words|words.*batch dimension mismatch"):
        td["words"] = NonTensorStack("x", "y", "z")
    assert list(td.keys()) == ["a"]
