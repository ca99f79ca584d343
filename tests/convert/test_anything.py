"""`from_any` and the conversions of dicts, tuples and dataclasses."""

from __future__ import annotations

import collections
import dataclasses
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

import tensordict
from tensordict import NonTensorData, NonTensorStack, TensorDict
from tensordict._convert.anything import CONVERTERS, Converter

X = torch.arange(6.0).reshape(3, 2)
Y = torch.arange(3)


class Pair(NamedTuple):
    x: Any
    y: Any


@dataclasses.dataclass
class Record:
    x: Any
    y: Any = 3


STRUCT = np.array([(1, 2.0), (3, 4.0), (5, 6.0)], dtype=[("i", "i4"), ("f", "f8")])

# For each kind of object the keys and leaves that it has.
SOURCES: dict[str, tuple[Any, dict[str, Tensor]]] = {
    "dict": ({"x": X, "y": Y}, {"x": X, "y": Y}),
    "proxy": (types.MappingProxyType({"x": X, "y": Y}), {"x": X, "y": Y}),
    "user dict": (collections.UserDict(x=X, y=Y), {"x": X, "y": Y}),
    "named tuple": (Pair(X, Y), {"x": X, "y": Y}),
    "collections": (collections.namedtuple("Old", "x y")(X, Y), {"x": X, "y": Y}),
    "tuple": ((X, Y), {"0": X, "1": Y}),
    "dataclass": (Record(X, Y), {"x": X, "y": Y}),
    "struct": (STRUCT, {"i": torch.tensor([1, 3, 5], dtype=torch.int32), "f": torch.tensor([2.0, 4, 6]).double()}),
}


@pytest.fixture(params=list(SOURCES))
def source(request: pytest.FixtureRequest) -> tuple[Any, dict[str, Tensor]]:
    return SOURCES[request.param]


def check(td: Any, leaves: dict[str, Tensor], batch_size: list[int]) -> None:
    assert type(td) is TensorDict
    assert td.batch_size == torch.Size(batch_size)
    assert list(td.keys()) == list(leaves)
    for key, leaf in leaves.items():
        assert td[key].dtype == leaf.dtype
        assert torch.equal(td[key], leaf)


@pytest.mark.parametrize("convert", [TensorDict.from_any, tensordict.from_any, tensordict.base.from_any])
def test_any(source: tuple[Any, dict[str, Tensor]], convert: Callable[..., Any]) -> None:
    obj, leaves = source
    check(convert(obj), leaves, [3] if obj is STRUCT else [])
    check(convert(obj, auto_batch_size=True), leaves, [3])
    check(convert(obj, auto_batch_size=True, batch_dims=0), leaves, [])
    check(convert(obj, batch_size=[3]), leaves, [3])
    assert convert(obj, device="cpu").device == torch.device("cpu")


def test_any_nested(source: tuple[Any, dict[str, Tensor]]) -> None:
    obj, leaves = source
    for outer in ({"n": obj}, Pair(obj, X), Record(obj, X), (obj, X)):
        td = TensorDict.from_any(outer, auto_batch_size=True)
        key = next(iter(td.keys()))
        check(td[key], leaves, [3])
        check(TensorDict.from_any(outer, batch_size=[3])[key], leaves, [3])
        placed = TensorDict.from_any(outer, device="meta")
        assert {leaf.device.type for leaf in placed.values(True, True)} == {"meta"}


def test_any_deep() -> None:
    td = TensorDict.from_any({"a": (Pair(X, {"b": Record((X, Y), 2.5)}), [[1, 2], [3, 4]])})
    assert torch.equal(td["a", "0", "y", "b", "x", "1"], Y)
    assert torch.equal(td["a", "0", "y", "b", "y"], torch.tensor(2.5))
    assert torch.equal(td["a", "1"], torch.tensor([[1, 2], [3, 4]]))


@pytest.mark.parametrize("obj", [3, 2.5, None, "text", X, X.numpy(), {1, 2}, range(3), object(), TensorDict({"a": X}, [3])])
def test_any_keeps_what_it_does_not_know(obj: Any) -> None:
    assert TensorDict.from_any(obj) is obj
    if isinstance(obj, TensorDict):
        assert TensorDict.from_any(obj, batch_size=[], auto_batch_size=False) is obj


@pytest.mark.parametrize("numbers", [[], [1, 2], [1.5, 2], [True, False], [[1, 2], [3, 4]], [[[1j]]]])
def test_any_numbers(numbers: list[Any]) -> None:
    made = TensorDict.from_any(numbers)
    assert made.dtype == torch.tensor(numbers).dtype
    assert torch.equal(made, torch.tensor(numbers))
    assert torch.equal(TensorDict.from_any({"a": numbers})["a"], made)
    assert TensorDict.from_any(numbers, device="meta").device.type == "meta"


@pytest.mark.parametrize("value", ["text", None, object(), [X, X], [{"a": X}], [1, "a"], [["b"], ["c"]], [[1], [2, 3]]])
@pytest.mark.parametrize("make", [TensorDict.from_any, TensorDict.from_dict])
def test_objects_are_kept(value: Any, make: Callable[..., Any]) -> None:
    made = make({"n": {"inner": value}})
    found = made["n", "inner"]
    assert found is value or repr(made.get(("n", "inner")).tolist()) == repr(value)
    assert isinstance(made.get(("n", "inner")), NonTensorStack if isinstance(value, list) else NonTensorData)


def test_bad_keys() -> None:
    for bad in ({1: X}, {"a": {1: X}}, {(): X}):
        with pytest.raises(KeyError, match="Got key"):
            TensorDict.from_any(bad)


def test_nested_keys() -> None:
    """A nested key may add to a node that another one made, whatever they share."""
    shared = {"b": {"c": torch.zeros(3, 4, 6)}, ("b", "f"): torch.zeros(3, 4, 5), ("d", "e"): torch.zeros(3, 4)}
    for td in (TensorDict.from_any(shared, auto_batch_size=True), TensorDict.from_dict(shared, auto_batch_size=True)):
        assert td.batch_size == td["b"].batch_size == td["d"].batch_size == torch.Size([3, 4])
    assert torch.equal(TensorDict.from_any({("a", "b"): X})["a", "b"], X)


def test_given_tensordicts_stay_as_they_are() -> None:
    """Neither a batch size that is found nor one that is given changes a tensordict that was put in."""
    for wrap in (lambda td: {"n": td}, lambda td: (td,), lambda td: Pair({"m": td}, X), lambda td: Record(td, X)):
        for options in ({"auto_batch_size": True}, {"batch_size": [3]}):
            inner = TensorDict({"a": X, "m": {"b": X}})
            td = TensorDict.from_any(wrap(inner), **options)
            assert inner.batch_size == inner["m"].batch_size == torch.Size([])
            assert td.batch_size[:1] == torch.Size([3])
    inner = TensorDict({"a": X}).lock_()
    assert TensorDict.from_any({"n": inner}, auto_batch_size=True)["n"].is_locked
    assert TensorDict.from_any({"n": inner})["n"] is inner


@pytest.mark.parametrize("name", ["from_tuple", "from_namedtuple", "from_dataclass", "from_struct_array"])
def test_options_that_exclude_each_other(name: str) -> None:
    obj = {"from_tuple": (X, Y), "from_namedtuple": Pair(X, Y), "from_dataclass": Record(X, Y), "from_struct_array": STRUCT}[
        name
    ]
    convert = getattr(TensorDict, name)
    with pytest.raises(TypeError, match=f"{name}.*batch_size or auto_batch_size"):
        convert(obj, batch_size=[3], auto_batch_size=True)
    with pytest.warns(FutureWarning, match=f"{name} ignores batch_dims=1"):
        td = convert(obj, batch_dims=1)
    assert td.batch_size == torch.Size([3] if obj is STRUCT else [])


def test_from_dict_options() -> None:
    d = {"x": X, "n": {"y": Y}}
    assert TensorDict.from_dict(d, batch_dims=1).batch_size == torch.Size([3])
    assert TensorDict.from_dict(d, batch_dims=1, auto_batch_size=True)["n"].batch_size == torch.Size([3])
    assert TensorDict.from_dict(d, batch_size=[3], auto_batch_size=True).batch_size == torch.Size([3])
    assert TensorDict.from_dict(d, batch_size=[3], names=["t"])["n"].names == ["t"]
    assert list(TensorDict.from_dict([("x", X)]).keys()) == ["x"]
    with pytest.raises(ValueError, match="batch_size or batch_dims"):
        TensorDict.from_dict(d, batch_size=[3], batch_dims=1)
    with pytest.raises(RuntimeError, match="'x'"):
        TensorDict.from_dict(d, batch_size=[4])
    with pytest.raises(TypeError, match="int"):
        TensorDict.from_dict(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="list"):
        TensorDict.from_dict([X])


def test_from_dict_instance() -> None:
    td = TensorDict({"x": X, "n": {"y": Y}}, [3], names=["t"]).lock_()
    made = td.from_dict_instance({"n": {"y": Y + 1}, "m": (X, Y), "x": X}, batch_size=[3])
    assert made.batch_size == made["n"].batch_size == made["m"].batch_size == torch.Size([3])
    assert not made.is_locked
    assert torch.equal(made["n", "y"], Y + 1)
    assert torch.equal(made["m", "0"], X)
    copy = td.from_dict_instance(td)
    assert copy is not td
    assert copy.batch_size == td.batch_size
    with pytest.raises(TypeError, match="int"):
        td.from_dict_instance(3)  # type: ignore[arg-type]


def test_from_list() -> None:
    rows = [{"x": X, "n": {"y": Y}}, {"x": X + 1, "n": {"y": Y + 1}}]
    td = TensorDict.from_list(iter(rows), auto_batch_size=True)
    assert td.batch_size == torch.Size([2, 3])
    assert torch.equal(td["x"], torch.stack([X, X + 1]))
    with pytest.raises(ValueError, match="length of the list"):
        TensorDict.from_list(rows, batch_size=[3])


def test_named_tuples() -> None:
    td = TensorDict({"x": X, "y": {"x": Y, "y": Y + 1}}, [3])
    generic = td.to_namedtuple()
    assert type(generic).__name__ == "GenericDict"
    assert generic._fields == ("x", "y")
    assert generic.x is td["x"]
    assert generic.y.y is td["y", "y"]
    made = td.to_namedtuple(Pair)
    assert isinstance(made, Pair)
    assert isinstance(made.y, Pair)
    assert made.y.x is td["y", "x"]
    back = TensorDict.from_namedtuple(generic, auto_batch_size=True)
    assert list(back.keys(True, True)) == list(td.keys(True, True))
    assert TensorDict.from_namedtuple(torch.return_types.max((X[0], Y))).keys() == {"values", "indices"}
    for bad in ("class", "a b", "_a"):
        with pytest.raises(ValueError, match=r"[Ff]ield names"):
            TensorDict({bad: X}).to_namedtuple()
    with pytest.raises(TypeError):
        TensorDict({"z": X}).to_namedtuple(Pair)
    with pytest.raises(TypeError, match="named tuple, got a tuple"):
        TensorDict.from_namedtuple((X, Y))


def test_dataclasses() -> None:
    td = TensorDict.from_dataclass(Record(Record(X), 2))
    assert torch.equal(td["x", "y"], torch.tensor(3))
    with pytest.raises(TypeError, match="the class Record"):
        TensorDict.from_any(Record)
    with pytest.raises(TypeError, match="got a dict"):
        TensorDict.from_dataclass({})


def test_abstract_root() -> None:
    for td in (tensordict.TensorDictBase.from_dict({"x": X}), tensordict.TensorDictBase.fromkeys(["x"])):
        assert type(td) is TensorDict
    assert type(tensordict.TensorDictBase.from_schema({"x": ((2,), torch.int)})) is TensorDict


def test_subclass_and_view() -> None:
    class Own(TensorDict):
        __slots__ = ()

    assert type(Own.from_dict({"x": X})) is Own
    assert type(Own.from_dict({"n": {"x": X}})["n"]) is TensorDict
    view = TensorDict({"x": X}, [3])._get_sub_tensordict(slice(1, 3))
    assert type(view.from_dict({"x": X})) is TensorDict


def test_table_can_grow() -> None:
    class Celsius:
        def __init__(self, degrees: float) -> None:
            self.degrees = degrees

    row = Converter(lambda obj: isinstance(obj, Celsius), lambda cls, obj, **options: torch.tensor(obj.degrees))
    CONVERTERS.append(row)
    try:
        assert TensorDict.from_any({"t": Celsius(21.5)})["t"] == 21.5
    finally:
        CONVERTERS.remove(row)


def test_make_tensordict() -> None:
    make = tensordict.make_tensordict
    assert make({"x": X}, x=Y, z=Y).keys() == {"x", "z"}
    assert make({"x": X}, x=Y)["x"] is X
    assert make(x=X, auto_batch_size=True).batch_size == X.shape
    assert make(batch_size=[3]).batch_size == torch.Size([3])
    assert make(TensorDict({"x": X}, [3])).batch_size == torch.Size([])
    with pytest.raises(TypeError):
        make(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="sequence"):
        make((X,))  # type: ignore[arg-type]


def test_struct_array_as_an_entry() -> None:
    td = TensorDict({"s": STRUCT}, [3])
    check(td["s"], SOURCES["struct"][1], [3])
