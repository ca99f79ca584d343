"""Random indices: rows and writes against torch on a tensor of the batch shape."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from containers import check, leaves, nodes
from tensordict import TensorDict

SHAPES = st.lists(st.integers(0, 4), min_size=1, max_size=3).map(tuple)


@st.composite
def integer_array(draw: Any, size: int, max_dims: int = 2) -> Any:
    shape = draw(st.lists(st.integers(0 if not size else 1, 3), min_size=0, max_size=max_dims).map(tuple))
    if not size:
        shape = (0,) if not shape or 0 not in shape else shape
    elements = st.integers(-size, size - 1) if size else st.just(0)
    array = draw(hnp.arrays(np.int64, shape, elements=elements))
    form = draw(st.sampled_from(["tensor", "array", "list", "int32"]))
    if form == "array" and shape:
        return array
    if form == "list" and shape and array.size:
        return array.tolist()
    return torch.from_numpy(array.copy()).to(torch.int32 if form == "int32" else torch.int64)


@st.composite
def item(draw: Any, sizes: tuple[int, ...]) -> tuple[Any, int]:
    """One element of an index, and how many dimensions it takes."""
    size = sizes[0] if sizes else 0
    kinds = ["none"]
    if sizes:
        kinds += ["slice", "array", "mask"] + (["int"] if size else [])
        if len(sizes) > 1:
            kinds.append("mask2")
    kind = draw(st.sampled_from(kinds))
    if kind == "none":
        return None, 0
    if kind == "slice":
        step = draw(st.none() | st.integers(1, 3))
        bound = st.none() | st.integers(-size - 2, size + 2)
        return slice(draw(bound), draw(bound), step), 1
    if kind == "int":
        return draw(st.integers(-size, size - 1)), 1
    if kind == "array":
        return draw(integer_array(size)), 1
    shape = sizes[: 1 if kind == "mask" else 2]
    mask = draw(hnp.arrays(np.bool_, shape))
    return (torch.from_numpy(mask.copy()) if draw(st.booleans()) else mask), len(shape)


@st.composite
def index_of(draw: Any, shape: tuple[int, ...]) -> Any:
    parts, at = [], 0
    for _ in range(draw(st.integers(0, 4))):
        part, width = draw(item(shape[at:]))
        parts.append(part)
        at += width
    if draw(st.booleans()):
        spot = draw(st.integers(0, len(parts)))
        # what stands behind the ellipsis was made for the dimensions it would have without it: only full rests are kept
        if at == len(shape) or spot == len(parts):
            parts.insert(spot, ...)
    if len(parts) == 1 and draw(st.booleans()):
        return parts[0]
    return tuple(parts)


@st.composite
def cases(draw: Any) -> tuple[tuple[int, ...], Any]:
    shape = draw(SHAPES)
    return shape, draw(index_of(shape))


def tree(shape: tuple[int, ...]) -> TensorDict:
    def leaf(*rest: int) -> torch.Tensor:
        full = torch.Size((*shape, *rest))
        return torch.arange(full.numel()).reshape(full)

    below = TensorDict({"y": leaf(2, 3)}, [*shape, 2])
    return TensorDict({"a": leaf(), "b": leaf(2), "n": {"x": leaf(1, 2), "m": below}}, shape)


def to_torch(index: Any, dims: int) -> Any:
    """The index for a leaf, which has more dimensions than the batch: the ellipsis becomes the slices it stands for."""
    parts = [
        torch.as_tensor(np.array(part)) if isinstance(part, (list, np.ndarray)) else part
        for part in (index if isinstance(index, tuple) else (index,))
    ]
    spot = next((place for place, part in enumerate(parts) if part is ...), None)
    if spot is not None:
        used = sum(
            0
            if part is None or part is ...
            else part.ndim
            if isinstance(part, torch.Tensor) and part.dtype is torch.bool
            else 1
            for part in parts
        )
        parts[spot : spot + 1] = [slice(None)] * (dims - used)
    return tuple(parts)


def attempt(call: Any) -> Any:
    try:
        return call(), None
    except (IndexError, RuntimeError, ValueError, TypeError) as error:
        return None, error


@settings(max_examples=400, deadline=None)
@given(cases())
def test_reads(case):
    shape, index = case
    td, key = tree(shape), to_torch(case[1], len(shape))
    wanted, error = attempt(lambda: torch.empty(shape)[key])
    if error is not None:
        _, ours = attempt(lambda: td[index])
        assert ours is not None
        return
    out = td[index]
    assert out.batch_size == wanted.shape
    for path, leaf in leaves(td).items():
        assert torch.equal(leaves(out)[path], leaf[key]), path
    for path, node in nodes(td).items():
        assert nodes(out)[path].batch_size == (*wanted.shape, *node.batch_size[len(shape) :])
    check(out)


@settings(max_examples=300, deadline=None)
@given(cases(), st.sampled_from(["number", "tensordict", "dict"]))
def test_writes(case, kind):
    shape, index = case
    td, key = tree(shape), to_torch(case[1], len(shape))
    if attempt(lambda: torch.empty(shape)[key])[1] is not None:
        return
    wanted = tree(shape)
    rows = td[index].clone() * -1 - 1
    value = {"number": -7, "tensordict": rows, "dict": rows.to_dict()}[kind]
    for path, leaf in leaves(wanted).items():
        leaf[key] = -7 if kind == "number" else leaves(rows)[path]
    old = leaves(td)
    td[index] = value
    for path, leaf in leaves(td).items():
        assert leaf is old[path]
        if kind == "number" or _once(shape, key):
            assert torch.equal(leaf, leaves(wanted)[path]), path


def _once(shape: tuple[int, ...], key: Any) -> bool:
    """Whether no element is written twice, which torch does in any order."""
    counts = torch.arange(torch.Size(shape).numel()).reshape(shape)[key].flatten()
    return len(counts.unique()) == len(counts)


@settings(max_examples=200, deadline=None)
@given(cases())
def test_views_at_an_index(case):
    shape, index = case
    td, key = tree(shape), to_torch(case[1], len(shape))
    if attempt(lambda: torch.empty(shape)[key])[1] is not None:
        return
    sub = td._get_sub_tensordict(index)
    assert sub.batch_size == td[index].batch_size
    sub.zero_()
    for path, leaf in leaves(tree(shape)).items():
        leaf[key] = 0
        assert torch.equal(leaves(td)[path], leaf), path
