"""Rows at an index and writes into them: against torch, leaf by leaf."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from containers import CONTAINERS, check, leaves, named, nested, nodes, snapshot, unchanged
from tensordict import TensorDict, lazy_stack

MASK = torch.tensor([[True, False, True], [False, False, False], [True, True, True], [False, True, False]])
INDICES = {
    "int": 1,
    "negative": -1,
    "slice": slice(1, 3),
    "step": slice(None, None, 2),
    "nothing": slice(9, None),
    "none": None,
    "ellipsis": (..., 1),
    "ints": (1, 2),
    "column": (slice(None), 1),
    "none inside": (slice(None), None, 1),
    "none behind": (..., None),
    "zero-dim tensor": torch.tensor(2),
    "tensor": torch.tensor([2, 0, 2]),
    "negative tensor": torch.tensor([-1, 0]),
    "int32": torch.tensor([2, 0], dtype=torch.int32),
    "empty tensor": torch.tensor([], dtype=torch.int64),
    "matrix": torch.tensor([[0, 1, 2], [3, 2, 1]]),
    "second": (slice(None), torch.tensor([2, 0])),
    "second after int": (0, torch.tensor([2, 0])),
    "two": (torch.tensor([0, 3]), torch.tensor([2, 0])),
    "broadcast": (torch.tensor([[0], [3]]), torch.tensor([2, 0])),
    "apart": (torch.tensor([0, 3]), None, torch.tensor([2, 0])),
    "tensor and slice": (torch.tensor([0, 3]), slice(1, 3)),
    "mask": MASK[:, 0],
    "empty mask": torch.zeros(4, dtype=torch.bool),
    "matrix mask": MASK,
    "second mask": (slice(None), torch.tensor([True, False, True])),
    "mask after int": (1, torch.tensor([True, False, True])),
    "list": [2, 0],
    "list of lists": [[0, 1], [2, 3]],
    "list mask": [True, False, True, False],
    "two lists": ([0, 1], [2, 0]),
    "array": np.array([2, 0]),
    "array mask": np.array([True, False, True, False]),
    "numpy int": np.int64(2),
    "range": range(1, 3),
    "true": True,
    "false": False,
}


def _to_torch(index):
    """What torch takes for the same index; `...` stands for the rest of the batch, not of the leaf."""
    if isinstance(index, tuple):
        return tuple(_to_torch(part) for part in index)
    if isinstance(index, (list, range, np.ndarray)):
        return torch.as_tensor(np.array(index))
    return int(index) if isinstance(index, np.integer) else index


def expected(leaf, index):
    index = _to_torch(index)
    if isinstance(index, tuple) and index[0] is ...:
        index = (slice(None), 1) if index[1] == 1 else (slice(None), slice(None), None)
    return leaf[index]


@pytest.mark.parametrize("index", INDICES)
@pytest.mark.parametrize("container", CONTAINERS)
def test_reads(container, index):
    td = CONTAINERS[container]()
    out = td[INDICES[index]]
    batch = expected(torch.empty(4, 3), INDICES[index]).shape
    assert out.batch_size == batch
    assert not out.is_locked or td.is_locked
    assert out.device == td.device
    for path, leaf in leaves(td).items():
        assert torch.equal(leaves(out)[path], expected(leaf, INDICES[index])), path
    for path, node in nodes(td).items():
        assert nodes(out)[path].batch_size == (*batch, *node.batch_size[2:])
    check(out)


@pytest.mark.parametrize("index", ["int", "slice", "none", "ellipsis", "column", "ints", "step"])
def test_views(index):
    td = nested()
    for path, leaf in leaves(td[INDICES[index]]).items():
        assert leaf.untyped_storage().data_ptr() == leaves(td)[path].untyped_storage().data_ptr()


@pytest.mark.parametrize("index", ["tensor", "mask", "list", "matrix", "two", "matrix mask"])
def test_copies(index):
    td = nested()
    for path, leaf in leaves(td[INDICES[index]]).items():
        assert leaf.untyped_storage().data_ptr() != leaves(td)[path].untyped_storage().data_ptr()


def test_the_whole():
    td = nested()
    assert td[...] is td
    assert td[:] is td
    scalar = TensorDict({"a": 1})
    assert scalar[()] is scalar
    assert td[()] is td
    assert scalar[None].batch_size == (1,)


@pytest.mark.parametrize(
    ("index", "names"),
    [
        (0, ["columns"]),
        ((slice(None), 0), ["rows"]),
        (None, [None, "rows", "columns"]),
        ((slice(None), None), ["rows", None, "columns"]),
        (torch.tensor([1, 0]), ["rows", "columns"]),
        ((slice(None), torch.tensor([1, 0])), ["rows", "columns"]),
        (torch.tensor([[1, 0]]), [None, None, "columns"]),
        ((torch.tensor([1, 0]), torch.tensor([1, 0])), [None]),
        (MASK, [None]),
        (MASK[:, 0], ["rows", "columns"]),
    ],
)
def test_names(index, names):
    out = named()[index]
    assert out.names == names
    assert out["n", "m"].names == [*names, None]


@pytest.mark.parametrize(
    ("index", "error"),
    [
        (4, IndexError),
        (-5, IndexError),
        ((0, 3), IndexError),
        ((0, 0, 0), IndexError),
        (torch.tensor([4]), IndexError),
        (torch.tensor([-5]), IndexError),
        (torch.tensor(4), IndexError),
        (torch.ones(3, dtype=torch.bool), IndexError),
        (torch.ones(4, 3, 2, dtype=torch.bool), IndexError),
        ((slice(None), MASK[:, 0]), IndexError),
        (torch.tensor([0.5]), IndexError),
        (0.5, IndexError),
        ((..., ..., 0), RuntimeError),
        (slice(None, None, -1), ValueError),
        ((torch.tensor([0, 1]), torch.tensor([0, 1, 2])), IndexError),
    ],
)
def test_refused(index, error):
    td = nested()
    before = snapshot(td)
    with pytest.raises(error):
        td[index]
    with pytest.raises(error):
        td[index] = 0
    unchanged(td, before)


@pytest.mark.parametrize("index", [0, slice(2), torch.tensor([0]), [0], slice(None)])
def test_without_batch(index):
    with pytest.raises(RuntimeError, match="batch_dims==0"):
        TensorDict({"a": torch.ones(3)})[index]


@pytest.mark.parametrize("index", INDICES)
@pytest.mark.parametrize("container", ["nested", "locked", "placed", "named", "gathered"])
@pytest.mark.parametrize("kind", ["tensordict", "number", "tensor", "dict"])
def test_writes(container, index, kind):
    td, key = CONTAINERS[container](), INDICES[index]
    wanted = {path: leaf.clone() for path, leaf in leaves(td).items()}
    rows = td[key].clone()
    value = {"tensordict": rows.neg(), "number": 7, "tensor": torch.tensor(7.0), "dict": rows.neg().to_dict()}[kind]
    for path, leaf in wanted.items():
        place = _to_torch(key)
        if isinstance(place, tuple) and place[0] is ...:
            place = (slice(None), 1) if place[1] == 1 else (slice(None), slice(None), None)
        leaf[place] = -leaf[place] if kind in ("tensordict", "dict") else 7
        wanted[path] = leaf
    if container != "gathered":
        old = leaves(td)
    td[key] = value
    for path, leaf in leaves(td).items():
        assert torch.equal(leaf, wanted[path]), path
        if container != "gathered":
            assert leaf is old[path]


class TestWrites:
    def test_new_entries_are_zero_elsewhere(self):
        td = nested()
        below = {"below": torch.ones(3), "m": {"deep": torch.ones(3, 2), "more": {"deeper": torch.ones(3, 2)}}}
        td[1] = {"new": torch.ones(3, 5), "n": below, ("p", "q"): torch.ones(3)}
        assert td["new"].shape == (4, 3, 5)
        assert td["new"][1].all()
        assert td["new"].sum() == 15
        assert td["n", "below"].sum() == 3
        assert td["p", "q"].sum() == 3
        assert td["n", "m", "deep"].shape == td["n", "m", "more", "deeper"].shape == (4, 3, 2)
        assert td["n", "m", "deep"][1].all()
        assert td["n", "m", "deep"].sum() == 6
        check(td)

    def test_locked(self):
        td = nested().lock_()
        before = snapshot(td)
        with pytest.raises(RuntimeError, match="locked"):
            td[0] = {"a": torch.zeros(3, 2), "n": {"new": torch.ones(3)}}
        unchanged(td, before)

    @pytest.mark.parametrize(
        "value",
        [
            {"a": torch.zeros(3, 2), "n": {"x": torch.zeros(7)}},
            {"a": torch.zeros(3, 2), "n": torch.zeros(3)},
            {"a": {"x": torch.zeros(3)}},
            TensorDict({"a": torch.zeros(4, 3, 2)}, [4, 3]),
            TensorDict({"a": torch.zeros(5, 2)}, [5]),
            torch.zeros(7),
            "text",
            None,
            object(),
        ],
    )
    def test_refused(self, value):
        td = nested()
        before = snapshot(td)
        with pytest.raises((RuntimeError, ValueError, TypeError)):
            td[0] = value
        unchanged(td, before)

    def test_a_row_for_all_rows(self):
        td = nested()
        td[:2] = td[3].clone()
        assert torch.equal(td["n", "x"][0], td["n", "x"][3])
        assert torch.equal(td["n", "x"][1], td["n", "x"][3])

    def test_gradient(self):
        td = TensorDict({"a": torch.zeros(4)}, [4])
        source = torch.ones((), requires_grad=True)
        td["a"] = td["a"] + source
        td[torch.tensor([0, 2])]["a"].sum().backward()
        assert source.grad == 2


def test_length_and_iteration():
    td = nested()
    assert len(td) == 4
    rows = list(td)
    assert [row.batch_size for row in rows] == [(3,)] * 4
    assert torch.equal(rows[2]["n", "x"], td["n", "x"][2])
    assert len(TensorDict()) == 0
    with pytest.raises(TypeError, match="0-d"):
        iter(TensorDict())


def test_getitems():
    td = nested()
    assert torch.equal(td.__getitems__([2, 0])["a"], td["a"][[2, 0]])
    assert td.__getitems__([]).batch_size == (0, 3)
    assert td.__getitems__(torch.tensor([1])).batch_size == (1, 3)


@pytest.mark.parametrize("make", [nested, lambda: nested().to_tensordict(), lambda: lazy_stack(list(nested().unbind(0)))])
def test_rows_of_another_batch_size_are_refused(make):
    """A row takes no tensordict of a batch, also where all of its entries would be new."""
    td = make()
    for value in (TensorDict({"new": torch.zeros(7)}, [7]), TensorDict({"a": torch.zeros(7, 2)}, [7]), nested().unsqueeze(0)):
        before = snapshot(td)
        with pytest.raises(RuntimeError, match="batch size"):
            td[0] = value
        unchanged(td, before)


def test_a_stack_and_a_batch_of_fewer_dimensions():
    stack = lazy_stack([TensorDict({"a": torch.ones(2)}, [2]) for _ in range(3)], 1)
    other = TensorDict({"a": torch.ones(2)}, [2])
    condition = torch.ones(2, 3, dtype=torch.bool)
    for call in (stack.update_, stack.update, lambda value: stack.where(condition, value)):
        with pytest.raises(RuntimeError, match=r"batch.size"):
            call(other)
