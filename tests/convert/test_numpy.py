"""`numpy`, `from_struct_array`, `to_struct_array`, against numpy's own view of the data."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from containers import CONTAINERS, STACKS, leaves, nodes
from tensordict import TensorDict, TensorDictBase

KINDS = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16", ">i4", ">f8"]


@st.composite
def dtypes(draw: Any, depth: int = 2) -> np.dtype[Any]:
    """Structured dtypes: packed, aligned, nested, with sub-arrays."""
    names = draw(st.lists(st.sampled_from("abcd"), min_size=1, max_size=3, unique=True))
    fields: list[Any] = []
    for name in names:
        shape = draw(st.lists(st.integers(0, 3), max_size=2).map(tuple))
        if depth and draw(st.booleans()):
            fields.append((name, draw(dtypes(depth - 1))))
        else:
            fields.append((name, draw(st.sampled_from(KINDS)), shape))
    return np.dtype(fields, align=draw(st.booleans()))


def agree(td: Any, array: np.ndarray[Any, Any]) -> None:
    for name in array.dtype.names or ():
        if array[name].dtype.names is None:
            assert np.array_equal(td[name].numpy(), array[name])
            assert td[name].numpy().dtype == array[name].dtype.newbyteorder("=")
        else:
            agree(td[name], array[name])


@given(dtypes(), st.lists(st.integers(0, 3), max_size=2).map(tuple), st.integers(0, 2**32 - 1), st.booleans())
def test_struct_arrays(dtype: np.dtype[Any], shape: tuple[int, ...], seed: int, frozen: bool) -> None:
    size = int(np.prod(shape, dtype=int)) * dtype.itemsize
    content = np.random.default_rng(seed).integers(0, 2, size, dtype=np.uint8).tobytes()
    array = np.frombuffer(content, dtype=dtype).reshape(shape) if size else np.zeros(shape, dtype)
    if not frozen:
        array = array.copy()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        td = TensorDict.from_struct_array(array)
    assert td.batch_size == torch.Size(shape)
    agree(td, array)
    back = td.to_struct_array()
    assert back.shape == shape
    agree(td, back)
    back[...] = np.zeros((), back.dtype)
    agree(td, array)


def test_memory() -> None:
    """A field whose steps are whole elements is a view of the array, any other one a copy."""
    array = np.zeros(3, [("a", "i4"), ("b", "f8")])
    td = TensorDict.from_struct_array(array)
    td["a"].fill_(7)
    td["b"].fill_(7)
    assert array["a"].tolist() == [7, 7, 7]
    assert array["b"].tolist() == [0, 0, 0]
    td.to_struct_array()["a"][:] = 1
    assert td["a"].tolist() == [7, 7, 7]


def test_options_and_scalars() -> None:
    array = np.zeros((2, 3), [("a", "i4", 4), ("n", [("b", "f8")])])
    make = TensorDict.from_struct_array
    assert make(array, batch_size=[2]).batch_size == torch.Size([2])
    assert make(array, batch_size=[]).batch_size == make(array, batch_size=[])["n"].batch_size[:0]
    assert make(array, auto_batch_size=True, batch_dims=1).batch_size == torch.Size([2])
    assert make(array, device="meta")["n", "b"].device.type == "meta"
    assert make(array[0, 0])["a"].shape == torch.Size([4])
    assert make(array.view(np.recarray))["n"].batch_size == torch.Size([2, 3])


@pytest.mark.parametrize("bad", [np.ones(3), {"a": 1}, 3, None, np.float32(1)])
def test_no_fields(bad: Any) -> None:
    with pytest.raises(TypeError, match="named fields"):
        TensorDict.from_struct_array(bad)


@pytest.mark.parametrize("dtype", ["U3", "S2", "O", "M8[s]"])
def test_fields_that_torch_lacks(dtype: str) -> None:
    array = np.zeros(2, [("s", dtype)])
    made = TensorDict.from_struct_array(array)
    assert made.batch_size == (2,)
    assert np.array_equal(made["s"], array["s"])


def test_objects() -> None:
    td = TensorDict({"a": torch.zeros(2), "s": "long text", "l": ["u", {"k": 1}], "n": {"b": ["v", "w"]}}, [2])
    struct = td.to_struct_array()
    assert struct.tolist() == [(0.0, "long text", "u", ("v",)), (0.0, "long text", {"k": 1}, ("w",))]
    assert [struct.dtype[name] for name in ("s", "l")] == [np.dtype("U10"), np.dtype("O")]
    assert td.set("s", "longer than ten characters").to_struct_array().dtype["s"] == np.dtype("U26")
    td["s"] = "long text"
    arrays = td.numpy()
    assert (arrays["s"], arrays["l"], arrays["n"]) == ("long text", ["u", {"k": 1}], {"b": ["v", "w"]})
    named = td.to_namedtuple()
    assert (named.s, named.l, named.n.b) == ("long text", ["u", {"k": 1}], ["v", "w"])


@pytest.mark.parametrize("name", list(CONTAINERS))
def test_containers(name: str) -> None:
    td: TensorDictBase = CONTAINERS[name]()
    arrays = td.numpy()
    for path, leaf in leaves(td).items():
        found: Any = arrays
        for key in path:
            found = found[key]
        assert np.array_equal(found, leaf.numpy())
        if name not in ("gathered", *STACKS):
            assert np.shares_memory(found, td.get(path).numpy())
    struct = td.to_struct_array()
    assert struct.shape == tuple(td.batch_size)
    for path, leaf in leaves(td).items():
        found = struct
        for key in path:
            found = found[key]
        assert np.array_equal(found, leaf.numpy())
    back = TensorDict.from_struct_array(struct)
    if name != "objects":  # an array of strings is kept as one object
        assert set(nodes(back)) == set(nodes(td))


def test_leaves_that_numpy_lacks() -> None:
    for method in (TensorDict.numpy, TensorDict.to_struct_array):
        call: Callable[[Any], Any] = method
        with pytest.raises(TypeError, match=r"'x'.*bfloat16"):
            call(TensorDict({"x": torch.ones(3, dtype=torch.bfloat16)}, [3]))
    learned = TensorDict({"x": torch.ones(3, requires_grad=True)}, [3])
    with pytest.raises(RuntimeError, match="requires grad"):
        learned.numpy()
    assert learned.to_struct_array()["x"].tolist() == [1, 1, 1]
    conjugate = TensorDict({"x": torch.tensor([1 + 2j]).conj()}, [1])
    assert conjugate.to_struct_array()["x"].tolist() == [1 - 2j]
    assert TensorDict({}, [3]).to_struct_array().shape == (3,)


def test_fields_of_strings_come_back_as_they_were():
    words = np.array([("Rex", 9), ("Fido", 3)], dtype=[("name", "U10"), ("age", "i4")])
    for array in (words, np.array(words[0]), words.reshape(1, 2)):
        made = TensorDict.from_struct_array(array).to_struct_array()
        assert made.dtype == array.dtype
        assert (made == array).all()
