"""Walks through trees of all kinds of nodes: native against Python, and against dicts of dicts."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tensordict import (
    LazyStackedTensorDict,
    NonTensorData,
    NonTensorStack,
    TensorClass,
    TensorCollection,
    TensorDict,
    is_leaf_nontensor,
    set_lazy_legacy,
)
from tensordict._kernel import native
from tensordict._polyfills import walk as twins


class Pair(TensorClass):
    x: Any
    y: Any


class Sub(TensorDict):
    """A class that is no `TensorDict` itself."""


class Name(str):
    """A string that is no `str` itself."""


NAMES = st.sampled_from(["a", "b", "c", "a.b", "b.a", "a..b", ".", "", Name("a"), Name("n.m"), "ä.ö", "\ud800.x"])
BATCH = (2,)


def leaf(number: int) -> Any:
    made = torch.full((*BATCH, 3), float(number))
    return torch.nn.Parameter(made) if number % 3 == 0 else made


def new(fields: dict[str, Any], **options: Any) -> Any:
    """Nothing is checked, and no node below changed: views below cannot take the names of what holds them."""
    return TensorDict._new(fields, torch.Size(BATCH), **options)


def stack_of(fields: dict[str, Any]) -> Any:
    """A stack along a dimension of its own; what is in the fields is in each member."""
    return LazyStackedTensorDict(new(fields), new({**fields, "only": leaf(1)}), stack_dim=1)


def rows_of(fields: dict[str, Any]) -> Any:
    wide = new({key: value for key, value in fields.items() if not isinstance(value, LazyStackedTensorDict)})
    return wide._get_sub_tensordict(slice(0, 2))


def pair_of(fields: dict[str, Any]) -> Any:
    values = [*fields.values(), leaf(1), leaf(2)]
    return Pair._wrap(new({"x": values[0], "y": values[1]}))


def turned(fields: dict[str, Any]) -> Any:
    with set_lazy_legacy(True):
        return new({"deep": new(fields), "x": leaf(1)}).unsqueeze(1).squeeze(1)


def ordered(fields: dict[str, Any]) -> Any:
    """A tensordict whose dict is of a class of its own, as old pickles have it."""
    own = OrderedDict(fields)
    if own:
        own.move_to_end(next(iter(own)))
    return new(own)


def named(fields: dict[str, Any]) -> Any:
    return new(fields, device=torch.device("cpu"), names=["rows"], locked=True)


MAKERS: list[Callable[[dict[str, Any]], Any]] = [
    *[new] * 4,
    *(lambda fields: new(fields, kind=Sub), named, ordered, stack_of, pair_of, rows_of, turned),
]
leaves = st.one_of(
    st.integers(0, 9).map(leaf),
    st.integers(0, 9).map(leaf),
    st.sampled_from(["text", ["list"]]).map(lambda value: NonTensorData(value, batch_size=BATCH)),
    st.just(None).map(lambda _: NonTensorStack("x", "y")),
)


def node_of(entries: list[tuple[str, Any]], maker: Callable[[dict[str, Any]], Any]) -> Any:
    return maker({**dict(entries)})


def nodes(inner: Any) -> Any:
    return st.builds(node_of, st.lists(st.tuples(NAMES, inner), max_size=4), st.sampled_from(MAKERS))


trees = nodes(st.recursive(leaves, nodes, max_leaves=12))
keys = st.one_of(NAMES, st.lists(NAMES, min_size=1, max_size=3).map(tuple), st.tuples(NAMES, st.tuples(NAMES)))


class Seen:
    """Descriptions of entries, in which the entries of one tree are told by their numbers."""

    def __init__(self, tree: Any) -> None:
        self.kept = list(self.found(tree))
        self.numbers = {id(value): number for number, value in enumerate(self.kept)}

    def found(self, node: Any) -> Iterator[Any]:
        """All entries that are the same whenever they are read."""
        yield node
        for part in () if node._is_view else node._pieces().values():
            if isinstance(part, TensorCollection):
                yield from self.found(part)
            else:
                yield part

    def say(self, value: Any) -> Any:
        """What can be told of a result: classes, keys in order, states and numbers."""
        number = self.numbers.get(id(value))
        if isinstance(value, TensorCollection):
            state = (type(value), number, value.batch_size, value.device, value._names, value.is_locked)
            if value._is_non_tensor and not value._stacked:
                return (*state, value.data, id(value.data) if isinstance(value.data, list) else None)
            return (*state, [(type(key), key, self.say(part)) for key, part in value._pieces().items()])
        if isinstance(value, torch.Tensor):
            return type(value), number, value.shape, None if value.device.type == "meta" else value.tolist()
        if isinstance(value, dict):
            return type(value), [(key, self.say(part)) for key, part in value.items()]
        if isinstance(value, (list, tuple)):
            return type(value), [self.say(part) for part in value]
        return type(value), value

    def outcome(self, function: Any, *args: Any) -> Any:
        try:
            return self.say(function(*args))
        except Exception as error:
            return type(error), str(error)


def raising(cls: type) -> bool:
    raise ArithmeticError(cls.__name__)


def counted(cls: type) -> bool:
    return len(cls.__name__) % 2 == 0


is_leafs = st.sampled_from([None, None, is_leaf_nontensor, counted, raising, lambda cls: 1, lambda cls: []])


def alike(tree: Any, name: str, *args: Any) -> None:
    """The native function and its twin do the same, and nothing to the tree; lists that are made anew have no number."""
    seen = Seen(tree)
    before = seen.say(tree)
    assert seen.outcome(getattr(native, name), tree, *args) == seen.outcome(getattr(twins, name), tree, *args)
    assert seen.say(tree) == before


@given(trees, st.sampled_from(["keys", "values", "items", "count"]), st.booleans(), st.booleans(), is_leafs)
def test_entries_below(tree: Any, what: str, nested: bool, leaves_only: bool, is_leaf: Any) -> None:
    alike(tree, f"{what}_below", nested, leaves_only, is_leaf)


@given(trees, st.lists(keys, max_size=5).map(tuple), st.booleans())
def test_selected(tree: Any, keys: tuple[Any, ...], strict: bool) -> None:
    alike(tree, "selected", keys, strict)


@given(trees, st.lists(keys, max_size=5).map(tuple))
def test_excluded(tree: Any, keys: tuple[Any, ...]) -> None:
    alike(tree, "excluded", keys)


@given(trees, st.data())
def test_keys_that_are_there(tree: Any, data: st.DataObject) -> None:
    """Keys drawn at random are mostly missing."""
    there = native.keys_below(tree, True, False, is_leaf_nontensor)
    if there:
        chosen = tuple(data.draw(st.lists(st.sampled_from(there), max_size=6)))
        alike(tree, "selected", chosen, True)
        alike(tree, "excluded", chosen)


@given(trees, st.sampled_from([".", "/", "..", "ä", "\ud800", "", Name(".")]), is_leafs)
def test_flattened(tree: Any, separator: str, is_leaf: Any) -> None:
    alike(tree, "flattened", separator, is_leaf)


@given(trees, st.sampled_from([".", "/", "..", "ä", "\ud800", "", Name("."), 3, None]))
def test_unflattened(tree: Any, separator: Any) -> None:
    alike(tree, "unflattened", separator)


@given(trees, st.booleans())
def test_copied_and_collected(tree: Any, anew: bool) -> None:
    seen = Seen(tree)
    copies = [native.copy_nodes(tree, anew), twins.copy_nodes(tree, anew)]
    objects = [[td.get(key).data for key in _lists(td)] for td in copies]
    assert [[value is other for value, other in zip(found, objects[0])] for found in objects[1:]] == [
        [not anew] * len(found) for found in objects[1:]
    ]
    if not anew:
        assert seen.say(copies[0]) == seen.say(copies[1])
    one, other = [], []
    assert seen.say(native.collect(tree, one)) == seen.say(twins.collect(tree, other))
    assert seen.say(one) == seen.say(other)


def _lists(tree: Any) -> list[Any]:
    """The keys of the holders of lists in plain tensordicts."""
    found = []
    for key, value in tree._entries().items() if type(tree) is TensorDict else ():
        if type(value) is NonTensorData and isinstance(value.data, list):
            found.append(key)
        elif type(value) is TensorDict:
            found += [(key, *((below,) if isinstance(below, str) else below)) for below in _lists(value)]
    return found


# Against dicts of dicts.

plain_names = st.sampled_from(["a", "b", "c", "a.b", "b.c"])
models = st.dictionaries(
    plain_names, st.recursive(st.integers(0, 9), lambda inner: st.dictionaries(plain_names, inner, max_size=3)), max_size=4
)


def td_of(model: dict[str, Any]) -> TensorDict:
    return TensorDict({key: td_of(v) if isinstance(v, dict) else torch.full(BATCH, v) for key, v in model.items()}, BATCH)


def model_of(td: Any) -> Any:
    return {k: model_of(v) if isinstance(v, TensorDict) else int(v[0]) for k, v in td.items()}


def ordered_of(model: Any) -> Any:
    """A dict as pairs, so that the order counts."""
    return [(k, ordered_of(v)) for k, v in model.items()] if isinstance(model, dict) else model


def below(model: dict[str, Any], prefix: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, value in model.items():
        if isinstance(value, dict):
            yield from below(value, (*prefix, name))
        yield (*prefix, name), value


def short(path: tuple[str, ...]) -> Any:
    return path[0] if len(path) == 1 else path


@given(models, st.booleans())
def test_a_dict_of_dicts_has_the_same_entries(model: dict[str, Any], leaves_only: bool) -> None:
    td = td_of(model)
    wanted = [(short(path), value) for path, value in below(model) if not (leaves_only and isinstance(value, dict))]
    view = td.keys(True, leaves_only)
    assert list(view) == [key for key, _ in wanted]
    assert len(view) == len(wanted)
    found = list(td.items(True, leaves_only))
    assert [(key, model_of(v) if isinstance(v, TensorDict) else int(v[0])) for key, v in found] == wanted
    assert all(td.get(key) is value for key, value in found)
    assert all(one is value for one, (_, value) in zip(td.values(True, leaves_only), found))
    dotted = [".".join((key,) if isinstance(key, str) else key) for key, _ in wanted]
    assert list(td.keys(True, leaves_only, sort=True)) == [
        key for _, key in sorted(zip(dotted, [key for key, _ in wanted]), key=lambda pair: pair[0])
    ]


@given(models)
def test_a_dict_of_dicts_is_flattened(model: dict[str, Any]) -> None:
    pairs = [(".".join(path), value) for path, value in below(model) if not isinstance(value, dict)]
    if len({key for key, _ in pairs}) < len(pairs):
        with pytest.raises(KeyError, match="collide"):
            td_of(model).flatten_keys()
    else:
        assert list(model_of(td_of(model).flatten_keys()).items()) == pairs


def deepened(model: dict[str, Any]) -> dict[str, Any] | None:
    """A dict with nested dicts for dotted keys of the first level; None where one is in the way of another."""
    out = {key: deepcopy(value) for key, value in model.items() if "." not in key}
    for key, value in model.items():
        *path, last = key.split(".")
        at: Any = out
        if not path:
            continue
        for name in path:
            at = at.setdefault(name, {})
            if not isinstance(at, dict):
                return None
        if last in at:
            return None
        at[last] = value
    return out


@given(models)
def test_a_dict_of_dicts_is_unflattened(model: dict[str, Any]) -> None:
    td = td_of(model)
    wanted = deepened(td_model := model_of(td))
    if wanted is None:
        with pytest.raises(KeyError, match="override"):
            td.unflatten_keys()
        assert ordered_of(model_of(td)) == ordered_of(td_model)
    else:
        assert ordered_of(model_of(td.unflatten_keys())) == ordered_of(wanted)


@given(models, st.data())
def test_a_dict_of_dicts_is_chosen_from(model: dict[str, Any], data: st.DataObject) -> None:
    paths = [path for path, _ in below(model)]
    chosen = data.draw(st.lists(st.sampled_from(paths), unique=True)) if paths else []
    td = td_of(model)

    def within(path: tuple[str, ...], others: list[tuple[str, ...]]) -> bool:
        return any(path[: len(other)] == other for other in others)

    kept = {path for path in paths if within(path, chosen) or any(other[: len(path)] == path for other in chosen)}
    assert {path for path, _ in below(model_of(td.select(*chosen)))} == kept
    left = {path for path in paths if not within(path, chosen)}
    assert {path for path, _ in below(model_of(td.exclude(*chosen)))} == left


# What no tree at random is.


def chain(length: int) -> TensorDict:
    td = TensorDict({"x": torch.ones(())})
    for _ in range(length):
        td = TensorDict._new({"a": td}, torch.Size(()))
    return td


def test_a_deep_tree() -> None:
    td = chain(300)
    assert list(td.keys(True, True)) == [("a",) * 300 + ("x",)]
    assert list(td.flatten_keys().keys()) == ["a." * 300 + "x"]
    assert td.flatten_keys().unflatten_keys()[("a",) * 300 + ("x",)] is td[("a",) * 300 + ("x",)]
    assert td.copy()[("a",) * 300 + ("x",)] is td[("a",) * 300 + ("x",)]


@pytest.mark.parametrize(
    "walk",
    [
        lambda td: list(td.keys(True, True)),
        lambda td: list(td.items(True)),
        lambda td: td.flatten_keys(),
        lambda td: td.copy(),
        lambda td: native.collect(td, []),
    ],
)
def test_a_tree_that_holds_itself(walk: Any) -> None:
    td = TensorDict({"x": torch.ones(())})
    td._tensordict["td"] = td
    with pytest.raises(RecursionError, match="maximum recursion depth exceeded"):
        walk(td)


def test_unlike_leaves_of_a_stack_have_keys() -> None:
    """The keys are listed and counted though no tensor can be read under one of them."""
    stack = LazyStackedTensorDict(
        TensorDict({"a": torch.ones(2), "b": torch.ones(3)}), TensorDict({"a": torch.ones(2), "b": torch.ones(4)})
    )
    view = stack.keys(True, True)
    assert list(view) == ["a", "b"]
    assert len(view) == 2


class Changing(str):
    """A name that changes the dict it is looked up in."""

    def __hash__(self) -> int:
        return hash(str(self))

    def __eq__(self, other: object) -> bool:
        if self.tree is not None:
            tree, Changing.tree = Changing.tree, None
            tree._tensordict.clear()
        return str(self) == other

    tree: Any = None


def test_a_key_that_changes_the_tree() -> None:
    for walk in (
        lambda td: td.select(("n", Changing("a")), Changing("b")),
        lambda td: td.exclude(("n", Changing("a")), Changing("b")),
    ):
        td = TensorDict({"n": {"a": torch.ones(1)}, "b": torch.ones(1), "c": torch.ones(1)})
        Changing.tree = td
        assert isinstance(walk(td), TensorDict)
        Changing.tree = None


@pytest.mark.parametrize("name", ["keys_below", "items_below", "values_below", "count_below"])
def test_is_leaf_that_changes_the_tree(name: str) -> None:
    """Each level is as it was when it was reached."""
    td = TensorDict({"n": {"a": torch.ones(1)}, "b": torch.ones(1)})

    def is_leaf(cls: type) -> bool:
        td._tensordict.clear()
        return False

    found = getattr(native, name)(td, True, False, is_leaf)
    assert (found if name == "count_below" else len(found)) == 3
    assert td.is_empty()
