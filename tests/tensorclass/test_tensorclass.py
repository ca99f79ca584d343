"""What tensorclasses have of their own: fields, options, construction, copies, folders."""

from __future__ import annotations

import collections
import copy
import dataclasses
import pickle
from typing import Any, Generic, TypeVar

import pytest
import torch
from torch import Tensor

import tensordict
from tensordict import (
    LazyStackedTensorDict,
    NonTensorData,
    TensorClass,
    TensorDict,
    from_dataclass,
    is_tensorclass,
    lazy_stack,
    tensorclass,
)

T = TypeVar("T")


class Pair(TensorClass):
    left: Tensor
    right: Tensor | None = None


@tensorclass
class Node:
    value: Tensor
    below: Node | None = None

    def doubled(self) -> Tensor:
        return self.value * 2

    def __repr__(self) -> str:
        return f"mine {super().__repr__()}"


class Frozen(TensorClass["frozen"]):
    value: Tensor


class Shifted(TensorClass):
    value: Tensor

    def __post_init__(self) -> None:
        self.value = self.value + 1


class Counted(TensorClass):
    _stored: Tensor | None = None

    @property
    def stored(self) -> Any:
        return self._stored

    @stored.setter
    def stored(self, value: Tensor) -> None:
        self._stored = value * 2


class Shifting(TensorClass):
    value: Tensor

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value + 1)


class Shadowing(TensorClass, shadow=True):
    clone: Tensor
    values: Tensor


class Box(TensorClass, Generic[T]):
    content: T


def pair() -> Pair:
    return Pair(torch.arange(3.0), batch_size=[3])


class TestConstruction:
    def test_by_position_and_name(self):
        a, b = torch.zeros(3), torch.ones(3)
        for made in (Pair(a, b), Pair(a, right=b), Pair(left=a, right=b)):
            assert made.left is a
            assert made.right is b
            assert made.batch_size == ()

    @pytest.mark.parametrize(
        ("arguments", "names", "text"),
        [
            ((), {}, "missing 1 required positional argument: 'left'"),
            ((1, 2, 3), {}, "takes 3 positional arguments but 4 were given"),
            ((1,), {"left": 1}, "multiple values"),
            ((1,), {"other": 1}, "unexpected"),
        ],
    )
    def test_errors(self, arguments, names, text):
        with pytest.raises(TypeError, match=text):
            Pair(*arguments, **names)

    def test_batch_size_is_checked(self):
        with pytest.raises(RuntimeError, match="batch dimension mismatch"):
            Pair(torch.zeros(4), batch_size=[3])

    def test_defaults(self):
        class Defaults(TensorClass):
            made: Tensor = dataclasses.field(default_factory=lambda: torch.ones(2))
            given: Tensor = torch.zeros(2)

        first, second = Defaults(), Defaults()
        assert first.made is not second.made
        assert torch.equal(first.given, torch.zeros(2))

    def test_post_init_runs_once(self):
        made = Shifted(torch.zeros(3), batch_size=[3])
        assert made.value.tolist() == [1, 1, 1]
        for same in (made[:], made.clone(), made.reshape(3), pickle.loads(pickle.dumps(made)), made + 0):
            assert same.value.tolist() == [1, 1, 1]
        assert Shifted.from_tensordict(TensorDict(value=torch.zeros(1))).value.tolist() == [1]

    def test_own_init(self):
        class Own(TensorClass):
            value: Tensor

            def __init__(self, number: int) -> None:
                self.value = torch.full((2,), number)

        assert Own(3).value.tolist() == [3, 3]

    def test_inheritance(self):
        class Triple(Pair):
            third: Tensor | None = None

        made = Triple(torch.zeros(2), None, torch.ones(2), batch_size=[2])
        assert [field.name for field in Triple.fields()] == ["left", "right", "third"]
        assert isinstance(made[0], Pair)
        assert made[0].third == 1

    def test_generic(self):
        assert Box[Tensor](torch.zeros(2)).content.shape == (2,)


class TestFields:
    def test_unset(self):
        made = pair()
        assert made.right is None
        assert made.get("right", "else") is None
        assert list(made.keys()) == ["left"]
        made.right = torch.ones(3)
        made.right = None
        assert list(made.keys()) == ["left"]

    def test_unknown(self):
        made = pair()
        with pytest.raises(AttributeError, match="no attribute 'other'"):
            _ = made.other
        with pytest.raises(AttributeError, match="no such field"):
            made.other = 1
        with pytest.raises(AttributeError, match="no such field"):
            made.set("other", torch.zeros(3))
        with pytest.raises(ValueError, match="do not belong"):
            made.update({"left": torch.ones(3), "other": torch.zeros(3)})
        assert made.left.tolist() == [0, 1, 2]
        with pytest.raises(AttributeError):
            TensorDict(p=made, batch_size=[3]).set(("p", "other"), torch.zeros(3))

    def test_index_is_of_rows(self):
        with pytest.raises(ValueError, match="Invalid indexing arguments"):
            pair()["left"]
        assert pair()[1].left == 1

    def test_property(self):
        made = Counted()
        made.stored = torch.ones(2)
        assert made.stored.tolist() == [2, 2]

    def test_own_setattr(self):
        made = Shifting(torch.zeros(2))
        assert made.value.tolist() == [1, 1]
        made.value = torch.ones(2)
        assert made.value.tolist() == [2, 2]

    def test_shadow(self):
        made = Shadowing(torch.zeros(2), torch.ones(2))
        assert made.clone.tolist() == [0, 0]
        assert made.values.tolist() == [1, 1]
        assert (made + 1).values.tolist() == [2, 2]
        with pytest.raises(AttributeError, match="can't be used"):

            class Wrong(TensorClass):
                clone: Tensor

    def test_nested(self):
        made = Node(torch.zeros(3, 2), Node(torch.ones(3), batch_size=[3]), batch_size=[3])
        held = TensorDict({"n": {"m": made}}, [3])
        assert made.doubled().shape == (3, 2)
        assert repr(made).startswith("mine Node(")
        for node in (made[1:], made.flip(0), held[1:]["n", "m"], torch.stack([held, held])[0]["n", "m"]):
            assert type(node) is type(node.below) is Node
        assert held["n", "m", "below", "value"] is made.below.value


class TestOptions:
    def test_frozen(self):
        made = Frozen(torch.zeros(3), batch_size=[3])
        assert made.is_locked
        assert {made: 1}[made] == 1
        with pytest.raises(dataclasses.FrozenInstanceError):
            made.value = torch.ones(3)
        with pytest.raises(RuntimeError, match="locked"):
            made.update(value=torch.ones(3))
        for same in (copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
            assert type(same) is Frozen
            assert torch.equal(same.value, made.value)

    def test_autocast(self):
        class Cast(TensorClass["autocast"]):
            value: Tensor
            pair: Pair | Any = None
            node: Pair = None

        made = Cast(3, node={"left": torch.zeros(2)}, batch_size=[])
        assert torch.equal(made.value, torch.tensor(3))
        assert type(made.node) is Pair
        with pytest.raises(TypeError, match="Failed to cast the value value"):
            made.value = "text"

    def test_tensor_only(self):
        class Only(TensorClass["tensor_only"]):
            value: Tensor
            tree: TensorDict | None = None

        made = Only(3, {"a": torch.zeros(2)})
        assert type(made.tree) is TensorDict
        with pytest.raises(TypeError, match="tensor_only requires"):

            class Wrong(TensorClass["tensor_only"]):
                value: str

    def test_cast_filter(self):
        class Mixed(TensorClass, cast_filter=lambda key, leaf: key == ("a",)):
            a: Tensor
            b: Tensor

        made = Mixed(torch.zeros(2), torch.zeros(2)).double()
        assert (made.a.dtype, made.b.dtype) == (torch.float64, torch.float32)
        assert Mixed(torch.zeros(2), torch.zeros(2)).to(torch.float16).b.dtype is torch.float32

    def test_exclusive(self):
        for flags in (("autocast", "nocast"), ("tensor_only", "nocast")):
            with pytest.raises(TypeError, match="exclusive"):
                TensorClass[flags]
        with pytest.raises(TypeError, match="flags"):
            TensorClass["other"]

    def test_kw_only(self):
        class Named(TensorClass, kw_only=True):
            value: Tensor

        assert Named(value=torch.zeros(1)).value == 0
        with pytest.raises(TypeError):
            Named(torch.zeros(1))


class TestElsewhere:
    def test_folders(self, tmp_path):
        made = Node(torch.rand(3), Node(torch.ones(3), batch_size=[3]), batch_size=[3])
        TensorDict({"n": {"m": made}}, [3]).memmap(tmp_path / "td")
        made.memmap(tmp_path / "tc")
        for found in (TensorDict.load(tmp_path / "td")["n", "m"], TensorDict.load(tmp_path / "tc")):
            assert type(found) is type(found.below) is Node
            assert torch.equal(found.value, made.value)

    def test_pickles_of_consolidated(self):
        for made in (pair(), TensorDict(p=pair(), batch_size=[3])):
            packed = made.consolidate()
            again = pickle.loads(pickle.dumps(packed))
            assert type(again) is type(made)
            assert (again == made).all()
        assert type(again["p"]) is Pair

    def test_missing_class(self, tmp_path):
        pair().memmap(tmp_path)
        meta = tmp_path / "meta.json"
        meta.write_text(meta.read_text().replace("Pair", "Gone"))
        with pytest.raises(RuntimeError, match="no tensorclass of that name"):
            TensorDict.load(tmp_path)

    def test_from_dataclass(self):
        @dataclasses.dataclass
        class Plain:
            a: Tensor
            b: int = 3

        made = from_dataclass(Plain(torch.zeros(2)))
        assert is_tensorclass(made)
        assert made.b == 3
        assert is_tensorclass(from_dataclass(Plain))
        with pytest.raises(TypeError):
            from_dataclass(3)

    def test_from_tensordict(self):
        td = TensorDict(left=torch.zeros(3), batch_size=[3])
        made = Pair.from_tensordict(td)
        made.left = torch.ones(3)
        assert td["left"].tolist() == [1, 1, 1]
        with pytest.raises(ValueError, match="do not belong"):
            Pair.from_tensordict(TensorDict(other=1))
        with pytest.raises(RuntimeError, match="Expected a TensorDictBase"):
            Pair.from_tensordict({"left": 1})
        assert type(Pair.from_dict({"left": 1, "right": None})) is Pair
        assert type(Pair.fromkeys(["left"])) is Pair

    def test_vmap_and_compile(self):
        def step(made: Pair) -> Pair:
            return Pair(made.left + 1, made.left, batch_size=made.batch_size)[:2]

        made = pair()
        assert torch.vmap(lambda row: row + 1)(made).left.tolist() == [1, 2, 3]
        compiled = torch.compile(step, fullgraph=True, backend="eager")(made)
        assert type(compiled) is Pair
        assert compiled.left.tolist() == [1, 2]
        shifted = torch.compile(lambda value: Shifted(value).value, fullgraph=True, backend="eager")
        assert shifted(torch.zeros(2)).tolist() == [1, 1]

    def test_prints(self):
        assert repr(pair()) == "Pair(batch_size=[3], fields={left: f32[], right: None})"
        assert "right: " in pair()._repr_html_()
        with tensordict.set_printoptions(compact=False):
            assert repr(pair()).endswith("right=None,\n    batch_size=torch.Size([3]),\n    device=None,\n    is_shared=False)")


class TestLazyStacks:
    def test_are_of_the_class(self):
        ways = (lambda pairs: lazy_stack(pairs, 1), lambda pairs: torch.stack(pairs, 1).to_lazystack(1))
        for way in (*ways, lambda pairs: Pair.lazy_stack(pairs, 1)):
            pairs = [Pair(torch.full((2,), float(n)), batch_size=[2]) for n in range(3)]
            made = way(pairs)
            assert type(made) is Pair
            assert type(made._tensordict) is LazyStackedTensorDict
            assert made.batch_size == (2, 3)
            assert made.left.tolist() == [[0, 1, 2], [0, 1, 2]]
            made[:, 0] = pairs[2]
            assert made.left[:, 0].tolist() == [2, 2]

    def test_of_unlike_shapes_below(self):
        outer = [TensorDict({"p": Pair(torch.zeros(n))}) for n in (1, 2)]
        entry = lazy_stack(outer)["p"]
        assert type(entry) is Pair
        assert [entry[n].left.shape for n in range(2)] == [(1,), (2,)]

    def test_of_several_classes(self):
        class Other(TensorClass):
            left: Tensor

        made = lazy_stack([Pair(torch.zeros(())), Other(torch.ones(()))])
        assert type(made) is LazyStackedTensorDict
        assert [type(member) for member in made.tensordicts] == [Pair, Other]


@dataclasses.dataclass
class Plain:
    data: Any
    other: Any = None


class TestFromDataclass:
    def test_fields_of_the_dataclass(self):
        made = from_dataclass(Plain(torch.ones(2), "x"))
        assert made.data.tolist() == [1, 1]
        assert made.other == "x"
        made.data = torch.zeros(2)
        assert made.data.tolist() == [0, 0]
        assert from_dataclass(Plain)(data=[1, 2]).data.tolist() == [1, 2]

    def test_nodes_stay_what_they_are(self):
        @dataclasses.dataclass
        class Holder:
            data: TensorDict

        inner = TensorDict(x=1.0).lock_()
        assert from_dataclass(Holder(inner), tensor_only=True).data is inner
        made = from_dataclass(Holder(collections.UserDict(n=inner)), tensor_only=True).data
        assert type(made) is TensorDict
        assert made["n"] is inner


class TestTensorOnly:
    def test_dicts_are_tensordicts(self):
        class Typed(TensorClass["tensor_only"]):
            objects: NonTensorData | None = None
            entries: TensorDict | None = None

        mapping = collections.UserDict(x=1.0)
        made = Typed(objects=mapping, entries=mapping)
        assert isinstance(made.objects, NonTensorData)
        assert made.objects.data is mapping
        assert type(made.entries) is TensorDict
        assert type(Typed(objects={"x": 1.0}).objects) is TensorDict


@tensorclass(autocast=True)
class Cast:
    number: Tensor
    text: str
    # quotes in a module whose annotations are not evaluated
    below: "Cast"  # noqa: UP037


def test_mappings_are_cast_without_all_fields():
    made = Cast(1.0, "a", {"number": 2.0})
    assert type(made.below) is Cast
    assert (made.below.number, made.below.text, made.below.below) == (2.0, None, None)
    with pytest.raises(TypeError, match="Failed to cast the value below"):
        Cast(1.0, "a", {"other": 2.0})


@pytest.mark.parametrize("consolidate", [lambda td, file: td.consolidate(file), lambda td, file: td.consolidate()], ids="fm")
def test_saved_by_torch_from_a_buffer(tmp_path, consolidate):
    for text in ("a", "ab", "abc", "abcd"):
        saved = Named(torch.ones(2), text, batch_size=[2])
        torch.save(consolidate(saved, tmp_path / "file"), tmp_path / "saved.pt")
        found = torch.load(tmp_path / "saved.pt", weights_only=False)
        assert (type(found), found.name, found.value.tolist()) == (Named, text, [1, 1])


class Named(TensorClass):
    value: Tensor
    name: str


def test_errors_of_writes():
    td = TensorDict(x=torch.zeros(3), s="text", batch_size=[3])
    for key, value in (("x", NonTensorData("a")), ("s", torch.zeros(3))):
        with pytest.raises(RuntimeError, match=f"Failed to update '{key}': Cannot update an existing entry"):
            td.set(key, value, inplace=True)
    with pytest.raises(RuntimeError, match="the Tensor below has shape"):
        td["n"] = TensorDict(below=torch.zeros(1))
    with pytest.raises(RuntimeError, match=r"tensorclass\.device = device"):
        Pair(torch.zeros(3)).device = "cpu"


WHOLE = {
    "rows": lambda td: list(td),
    "unbind": lambda td: td.unbind(1),
    "split": lambda td: td.split(2),
    "chunk": lambda td: td.chunk(2, 1),
    "reshape": lambda td: td.reshape(6),
    "permute": lambda td: td.permute(1, 0),
    "stack": lambda td: torch.stack([td, td], 1),
    "cat": lambda td: torch.cat([td, td]),
    "sum": lambda td: td.sum(0),
    "mask": lambda td: td[torch.tensor([True, False, True])],
    "where": lambda td: td.where(torch.tensor([True, False, True]), td + 1),
    "gather": lambda td: td.gather(0, torch.zeros(1, 2, dtype=torch.long)),
    "contiguous": lambda td: td.contiguous(),
    "densify": lambda td: td.densify(),
    "vmap": lambda td: torch.vmap(lambda row: row + 1)(td),
    "pickle": lambda td: pickle.loads(pickle.dumps(td)),
    "memmap": lambda td: td.memmap(),
    "consolidate": lambda td: td.consolidate(),
    "update_": lambda td: td.update_(td.clone() + 1),
    "stack lazily": lambda td: lazy_stack([td, td])[:, 0],
    "member lock": lambda td: td.lock_(),
}


@pytest.mark.parametrize("name", WHOLE)
def test_around_a_lazy_stack(name):
    """What a tensorclass around a lazy stack gives is what the stack gives, in the class."""

    def stack():
        return lazy_stack([TensorDict(left=torch.arange(6.0).reshape(2, 3) * n, batch_size=[2]) for n in (1, 2, 3)])

    def each(found):
        return found if isinstance(found, (tuple, list)) else [found]

    expected, found = each(WHOLE[name](stack())), each(WHOLE[name](Pair.from_tensordict(stack())))
    assert len(found) == len(expected)
    for one, two in zip(found, expected):
        assert type(one) is Pair
        assert one.batch_size == two.batch_size
        assert torch.equal(one.left, two["left"])
    if name == "memmap":
        assert found[0].is_memmap()


def test_folder_of_a_lazy_stack(tmp_path):
    made = lazy_stack([Pair(torch.full((2,), float(n))) for n in range(3)])
    made.memmap(tmp_path)
    found = Pair.load_memmap(tmp_path)
    assert type(found) is Pair
    assert type(found._tensordict) is LazyStackedTensorDict
    assert torch.equal(found.left, made.left)


def test_torch_functions_of_several_classes():
    class Other(TensorClass):
        left: Tensor
        right: Tensor | None = None

    class Below(Pair):
        pass

    one = Pair(torch.zeros(2), batch_size=[2])
    for join in (torch.stack, torch.cat):
        with pytest.raises(TypeError, match=r"no implementation found|Multiple dispatch failed"):
            join([one, Other(torch.ones(2), batch_size=[2])])
        assert type(join([one, Below(torch.ones(2), batch_size=[2])])) is Pair
        assert type(join([one, one.to_tensordict()])) is Pair
    assert torch.stack([NonTensorData("a"), tensordict.MetaData("a")]).tolist() == ["a", "a"]


class Sample(TensorClass):
    a: Tensor
    b: str = "x"


def test_replace_shares_what_is_not_changed():
    sample = Sample(a=torch.ones(3), batch_size=[3], names=["k"]).lock_()
    other = sample.__replace__(b="y")
    assert type(other) is Sample
    assert (other.b, other.names, other.batch_size, other.is_locked) == ("y", ["k"], torch.Size([3]), False)
    assert other.a is sample.a
    assert sample.b == "x"
    assert sample.__replace__(a=torch.zeros(2), batch_size=[2], names=None).a.shape == (2,)
    with pytest.raises(AttributeError, match="attribute 'c'"):
        sample.__replace__(c=1)
    with pytest.raises(RuntimeError, match="batch"):
        sample.__replace__(a=torch.zeros(2))
    assert torch.equal(sample.a, torch.ones(3))


def test_replace_of_frozen_ones():
    @tensorclass(frozen=True)
    class Frozen:
        a: Tensor
        b: Tensor

    frozen = Frozen(torch.ones(2), torch.zeros(2), batch_size=[2])
    assert frozen.__replace__(b=torch.ones(2)).b.sum() == 2
    assert frozen.b.sum() == 0


def test_stacks_of_tensorclasses_around_stacks_become_dense() -> None:
    rows = [Box(torch.full((2,), float(row)), batch_size=[2]) for row in range(3)]
    stack = lazy_stack([lazy_stack(rows), lazy_stack(rows)])
    assert torch.equal(stack.contiguous().content, torch.stack([torch.stack([row.content for row in rows])] * 2))
    below = lazy_stack(
        [TensorDict({"b": lazy_stack(rows)}, [3]), TensorDict({"b": lazy_stack(rows), "more": torch.ones(3)}, [3])]
    )
    assert torch.equal(below.contiguous()["b"].content, stack.contiguous().content)
