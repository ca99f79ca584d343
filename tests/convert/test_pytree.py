"""`from_pytree` and `to_pytree`: what goes in comes back."""

from __future__ import annotations

import pickle
from collections import OrderedDict, defaultdict, namedtuple
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import tensordict
from tensordict import TensorDict

Pair = namedtuple("Pair", "x y")
KEYS = st.sampled_from(["a", "b", "a.b", "0", "1", 1, 2.5, (1, 2), None, ("a", "b"), ("c", "b", "d")])


def leaf() -> st.SearchStrategy[Any]:
    return st.integers(-5, 5).map(lambda value: torch.full((2, 1), value))


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(inner, max_size=3)
    return (
        several
        | several.map(tuple)
        | st.tuples(inner, inner).map(lambda both: Pair(*both))
        | st.dictionaries(KEYS, inner, max_size=3).filter(apart)
        | st.dictionaries(st.sampled_from("ab"), inner, max_size=2).map(OrderedDict)
        | st.dictionaries(st.sampled_from("ab"), inner, max_size=2).map(lambda d: defaultdict(list, d))
    )


def apart(tree: dict[Any, Any]) -> bool:
    """Whether no key of the dict leads through an entry at another one."""
    return not ({"a", ("a", "b")} <= tree.keys())


def same(left: Any, right: Any) -> bool:
    if isinstance(left, torch.Tensor):
        return torch.equal(left, right)
    if type(left) is not type(right) or len(left) != len(right):
        return False
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    return all(map(same, left, right))


@given(st.recursive(leaf(), containers, max_leaves=8))
def test_round_trip(tree: Any) -> None:
    td = TensorDict.from_pytree(tree)
    back = td.to_pytree() if isinstance(td, TensorDict) else td
    assert same(tree, back)
    if isinstance(tree, defaultdict):
        assert back.default_factory is list
    if isinstance(td, TensorDict) and td.is_empty() is False:
        batched = TensorDict.from_pytree(tree, batch_size=[2])
        assert batched.batch_size == torch.Size([2])
        assert same(tree, batched.to_pytree())
        assert same(tree, TensorDict.from_pytree(tree, auto_batch_size=True).to_pytree())


def test_entries_of_now() -> None:
    td = TensorDict.from_pytree({"a": [torch.tensor(1), torch.tensor(2)], 3: torch.tensor(3), ("x", "y"): torch.tensor(4)})
    td["a", "0"] = torch.tensor(10)
    td["new"] = torch.tensor(5)
    del td["x"]
    assert td.to_pytree() == {"a": [10, 2], 3: 3, "new": 5}
    assert tensordict.from_pytree((1, 2.5)).to_pytree() == (1, 2.5)


def test_leaves() -> None:
    for value in (3, 2.5, True, 1j, np.ones(2), np.float32(1)):
        made = TensorDict.from_pytree(value)
        assert torch.equal(made, torch.as_tensor(value))
        assert torch.equal(TensorDict.from_pytree([value])["0"], made)
    td = TensorDict({"a": torch.ones(3)}, [3])
    assert TensorDict.from_pytree(td) is td
    assert td.to_pytree() is td
    assert TensorDict.from_pytree({"t": td}).to_pytree()["t"] is td
    for bad in (None, "text", object(), {"a": None}, ([], "text")):
        with pytest.raises(NotImplementedError, match="no leaf for"):
            TensorDict.from_pytree(bad)


def test_a_tensordict_that_was_given_stays() -> None:
    td = TensorDict({"a": torch.ones(3)})
    TensorDict.from_pytree([{"t": td}], auto_batch_size=True)
    assert td.batch_size == torch.Size([])


def test_memory_is_of_the_node() -> None:
    """A result of an operation and a pickle hold no memory of the tree."""
    td = TensorDict.from_pytree((torch.ones(2), torch.ones(2)))
    assert isinstance(td.clone().to_pytree(), TensorDict)
    assert pickle.loads(pickle.dumps(td)).keys() == {"0", "1"}
    assert isinstance(td.to_pytree(), tuple)
