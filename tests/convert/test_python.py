"""`to_dict`, `tolist`, `LinkedList`."""

from __future__ import annotations

import copy
import gc
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from containers import CONTAINERS, same
from tensordict import TensorCollection, TensorDict, TensorDictBase, is_non_tensor
from tensordict.utils import LinkedList


def expected(td: TensorDictBase, index: tuple[int, ...] = ()) -> Any:
    """Nested lists of nested dicts of numbers, built index by index."""
    if len(index) < len(td.batch_size):
        return [expected(td, (*index, i)) for i in range(td.batch_size[len(index)])]
    return {
        key: plain(value, index) if isinstance(value, TensorCollection) else value[index].tolist() for key, value in td.items()
    }


def plain(node: Any, index: tuple[int, ...]) -> Any:
    if is_non_tensor(node):
        return node[index].data
    return {
        key: plain(value, index) if isinstance(value, TensorCollection) else value[index].tolist()
        for key, value in node.items()
    }


@pytest.fixture(params=list(CONTAINERS))
def td(request: pytest.FixtureRequest) -> Any:
    return CONTAINERS[request.param]()


def without_unset(tree: Any) -> Any:
    """Without the fields of tensorclasses that are not set."""
    if isinstance(tree, list):
        return [without_unset(item) if isinstance(item, (dict, list)) else item for item in tree]
    return {key: without_unset(item) if isinstance(item, dict) else item for key, item in tree.items() if item is not None}


def test_tolist(td: Any) -> None:
    members = getattr(td, "tensordicts", None)
    if members and members[0].keys() != td.keys():
        pytest.skip("the rows of members of unlike keys have keys that the stack has not")
    assert without_unset(td.tolist(convert_tensors=True)) == expected(td)
    rows = td.tolist(convert_nodes=False)
    for i, row in enumerate(rows):
        for j, item in enumerate(row):
            same(item, td[i, j])
    tensors = td.tolist()
    assert without_unset(tensors[1][2]).keys() == set(td.keys())
    assert isinstance(next(iter(tensors[0][0].values())), (torch.Tensor, dict))


@given(st.lists(st.integers(0, 3), max_size=3))
def test_lists_round_trip(batch: list[int]) -> None:
    td = TensorDict({"a": torch.randn(*batch, 2), "n": {"b": torch.arange(torch.Size(batch).numel()).view(batch)}}, batch)
    rows = td.tolist()
    if batch and all(batch):
        flat = rows
        for _ in batch[1:]:
            flat = [item for row in flat for item in row]
        same(TensorDict.from_list(flat).reshape(batch), td)
    elif not batch:
        same(TensorDict(rows), td)


def test_options() -> None:
    td = TensorDict({"n": TensorDict({"a": torch.arange(4).view(2, 2)}, [2, 2])}, [2])
    assert td.tolist(convert_tensors=True) == [{"n": {"a": [0, 1]}}, {"n": {"a": [2, 3]}}]
    assert td.tolist(convert_tensors=True, tolist_first=True) == [{"n": [{"a": 0}, {"a": 1}]}, {"n": [{"a": 2}, {"a": 3}]}]
    assert td.to_dict(convert_tensors=True) == {"n": {"a": [[0, 1], [2, 3]]}}
    nested = [[{"a": 0}, {"a": 1}], [{"a": 2}, {"a": 3}]]
    assert td.to_dict(convert_tensors=True, tolist_first=True) == {"n": nested}
    assert td.to_dict()["n"]["a"] is td["n", "a"]
    with pytest.raises(TypeError, match="convert_nodes"):
        td.tolist(convert_nodes=False, convert_tensors=True)
    bare = TensorDict({"a": torch.arange(2)})
    assert bare.tolist(convert_nodes=False) is bare
    assert bare.tolist(convert_tensors=True) == {"a": [0, 1]}
    assert TensorDict({}, [2]).tolist() == [{}, {}]


def linked() -> tuple[TensorDict, Any]:
    td = TensorDict({"a": torch.arange(3), "n": {"b": torch.arange(3.0)}}, [3])
    return td, td.tolist(as_linked_list=True)


def test_linked_list_writes() -> None:
    td, rows = linked()
    assert isinstance(rows, LinkedList)
    assert rows == td.tolist()
    rows[0] = {"a": torch.tensor(7), "n": {"b": torch.tensor(8.0)}}
    rows[-1] = {"a": 9}
    rows[1:2] = [{"a": 5}]
    assert td["a"].tolist() == [7, 5, 9]
    assert td["n", "b"].tolist() == [8.0, 1.0, 2.0]
    assert rows[2] == {"a": 9}
    assert type(rows.tolist()) is list
    assert repr(LinkedList([1])) == "LinkedList([1])"
    td.lock_()
    rows[0] = {"a": 1}
    assert td["a"][0] == 1


def test_linked_list_checks_first() -> None:
    td, rows = linked()
    with pytest.raises(ValueError, match="2 values for 2 rows"):
        rows[:2] = [{"a": 1}]
    with pytest.raises(IndexError):
        rows[3] = {"a": 1}
    with pytest.raises((TypeError, RuntimeError, ValueError)):
        rows[0] = {"a": torch.zeros(4)}
    assert len(rows) == 3
    assert td["a"].tolist() == [0, 1, 2]
    assert rows[0]["a"] == 0


MOVES: dict[str, Callable[[Any], Any]] = {
    "append": lambda rows: rows.append({}),
    "clear": lambda rows: rows.clear(),
    "extend": lambda rows: rows.extend([{}]),
    "insert": lambda rows: rows.insert(0, {}),
    "pop": lambda rows: rows.pop(0),
    "remove": lambda rows: rows.remove(rows[0]),
    "reverse": lambda rows: rows.reverse(),
    "sort": lambda rows: rows.sort(key=lambda row: -row["a"]),
    "del": lambda rows: rows.__delitem__(0),
    "+=": lambda rows: rows.__iadd__([{}]),
    "*=": lambda rows: rows.__imul__(2),
}


@pytest.mark.parametrize("move", MOVES)
def test_link_ends(move: str) -> None:
    td, rows = linked()
    plain = list(rows)
    assert MOVES[move](rows) is MOVES[move](plain) or move in ("pop", "+=", "*=")
    assert rows == plain
    for i in range(len(rows)):
        rows[i] = {"a": 100}
    assert td["a"].tolist() == [0, 1, 2]


def test_link_is_weak_and_not_copied() -> None:
    td, rows = linked()
    for other in (copy.copy(rows), copy.deepcopy(rows), pickle.loads(pickle.dumps(rows))):
        assert type(other) is LinkedList
        other[0] = 3
    assert td["a"].tolist() == [0, 1, 2]
    assert pickle.dumps(rows).find(b"tensordict.utils") > 0
    del td
    gc.collect()
    rows[0] = 3
    assert rows[0] == 3
