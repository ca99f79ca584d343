"""Random sequences of operations on a nested tensordict against a dict of dicts of tensors."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from containers import check, leaves
from tensordict import TensorDict

NAMES = st.sampled_from(["a", "b", "c"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map(tuple)
BATCH = (3, 2)
Model = dict[str, Any]


def key_of(path: tuple[str, ...]) -> Any:
    return path[0] if len(path) == 1 else path


def holder(model: Model, path: tuple[str, ...], make: bool = False) -> Model | None:
    """The dict right above the end of `path`; None where a leaf, or nothing, is in the way."""
    for name in path[:-1]:
        if name not in model and make:
            model[name] = {}
        below = model.get(name)
        if not isinstance(below, dict):
            return None
        model = below
    return model


def find(model: Model, path: tuple[str, ...]) -> Any:
    above = holder(model, path)
    return None if above is None else above.get(path[-1])


def through_leaf(model: Model, path: tuple[str, ...]) -> bool:
    return any(isinstance(find(model, path[:length]), torch.Tensor) for length in range(1, len(path)))


def flat(model: Model, prefix: tuple[str, ...] = ()) -> dict[tuple[str, ...], torch.Tensor]:
    out = {}
    for name, value in model.items():
        out.update(flat(value, (*prefix, name)) if isinstance(value, dict) else {(*prefix, name): value})
    return out


def all_paths(model: Model, prefix: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    out = set()
    for name, value in model.items():
        out |= {(*prefix, name)} | (all_paths(value, (*prefix, name)) if isinstance(value, dict) else set())
    return out


def copied(model: Model) -> Model:
    return {name: copied(value) if isinstance(value, dict) else value for name, value in model.items()}


def bare(model: Model) -> bool:
    return all(isinstance(value, dict) and bare(value) for value in model.values())


def merged(model: Model, other: Model) -> None:
    for name, value in other.items():
        if isinstance(value, dict) and isinstance(model.get(name), dict):
            merged(model[name], value)
        else:
            model[name] = copied(value) if isinstance(value, dict) else value


@st.composite
def trees(draw: Any, depth: int = 2) -> Model:
    out: Model = {}
    for name in draw(st.sets(NAMES, max_size=2)):
        out[name] = draw(trees(depth - 1)) if depth and draw(st.booleans()) else draw(values())
    return out


@st.composite
def values(draw: Any) -> torch.Tensor:
    rest = draw(st.sampled_from([(), (2,), (1, 3)]))
    return torch.full((*BATCH, *rest), draw(st.integers(-9, 9)))


class Machine(RuleBasedStateMachine):
    @initialize(source=trees())
    def start(self, source: Model) -> None:
        self.model = source
        self.td = TensorDict(source, BATCH)

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "td"):
            return
        check(self.td)
        wanted = flat(self.model)
        found = leaves(self.td)
        assert list(found) == list(wanted) or set(found) == set(wanted)
        for path, leaf in wanted.items():
            assert torch.equal(found[path], leaf), path
        paths = {(key,) if isinstance(key, str) else key for key in self.td.keys(True)}
        assert paths == all_paths(self.model)
        assert self.td.is_empty() == bare(self.model)

    @rule(path=PATHS, value=values())
    def set(self, path: tuple[str, ...], value: torch.Tensor) -> None:
        if through_leaf(self.model, path):
            with pytest.raises(KeyError):
                self.td[key_of(path)] = value
            return
        self.td[key_of(path)] = value
        holder(self.model, path, make=True)[path[-1]] = value

    @rule(path=PATHS)
    def get(self, path: tuple[str, ...]) -> None:
        wanted = find(self.model, path)
        assert (key_of(path) in self.td) == (wanted is not None)
        found = self.td.get(key_of(path), None)
        if isinstance(wanted, torch.Tensor):
            assert found is wanted or torch.equal(found, wanted)
        else:
            assert isinstance(found, TensorDict) == isinstance(wanted, dict)

    @rule(path=PATHS)
    def delete(self, path: tuple[str, ...]) -> None:
        if find(self.model, path) is None:
            with pytest.raises((KeyError, ValueError)):
                del self.td[key_of(path)]
            return
        del self.td[key_of(path)]
        del holder(self.model, path)[path[-1]]

    @rule(other=trees(), as_tensordict=st.booleans())
    def update(self, other: Model, as_tensordict: bool) -> None:
        self.td.update(TensorDict(other, BATCH) if as_tensordict else other)
        merged(self.model, other)

    @rule(other=trees())
    def update_that_fails(self, other: Model) -> None:
        with pytest.raises(RuntimeError):
            self.td.update({**other, "last": torch.zeros(7)})

    @rule(path=PATHS, number=st.integers(-9, 9))
    def fill(self, path: tuple[str, ...], number: int) -> None:
        if isinstance(find(self.model, path), torch.Tensor):
            leaf = find(self.model, path)
            value = torch.full_like(leaf, number)
            self.td.set_(key_of(path), value)
            self._write(leaf, value)

    def _write(self, leaf: torch.Tensor, value: torch.Tensor) -> None:
        """The model shares leaves with the tensordict where it was given them; both see the write."""
        leaf.copy_(value)

    @rule(old=PATHS, new=PATHS)
    def rename(self, old: tuple[str, ...], new: tuple[str, ...]) -> None:
        value = find(self.model, old)
        rest = copied(self.model)
        if value is not None:
            del holder(rest, old)[old[-1]]
        if value is None or (old != new and through_leaf(rest, new)):
            with pytest.raises((KeyError, ValueError)):
                self.td.rename_key_(key_of(old), key_of(new))
            return
        self.td.rename_key_(key_of(old), key_of(new))
        if old != new:
            holder(rest, new, make=True)[new[-1]] = value
            self.model = rest

    @rule(path=PATHS)
    def create(self, path: tuple[str, ...]) -> None:
        if through_leaf(self.model, path):
            return
        self.td.create_nested(key_of(path))
        holder(self.model, path, make=True)[path[-1]] = {}

    @rule()
    def drop_empty(self) -> None:
        self.td.filter_empty_()
        self.model = self._filtered(self.model)

    def _filtered(self, model: Model) -> Model:
        return {
            name: self._filtered(value) if isinstance(value, dict) else value
            for name, value in model.items()
            if not (isinstance(value, dict) and bare(value))
        }

    @rule(paths=st.sets(PATHS, max_size=3), inplace=st.booleans())
    def exclude(self, paths: set[tuple[str, ...]], inplace: bool) -> None:
        self.td = self.td.exclude(*map(key_of, paths), inplace=inplace)
        self.model = copied(self.model)
        for path in sorted(paths, key=len):
            if find(self.model, path) is not None:
                del holder(self.model, path)[path[-1]]

    @rule(inplace=st.booleans())
    def flatten(self, inplace: bool) -> None:
        self.td = self.td.flatten_keys("/", inplace=inplace)
        flattened = {"/".join(path): leaf for path, leaf in flat(self.model).items()}
        assert {path[0] for path in leaves(self.td)} == set(flattened)
        self.td = self.td.unflatten_keys("/", inplace=inplace)
        model: Model = {}
        for path, leaf in flat(self.model).items():
            holder(model, path, make=True)[path[-1]] = leaf
        self.model = model

    @rule()
    def copy(self) -> None:
        self.td = self.td.copy()
        self.model = copied(self.model)

    @rule(row=st.integers(0, 2))
    def write_a_row(self, row: int) -> None:
        self.td = self.td.clone()
        self.td[row] = 5
        self.model = self._mapped(self.model, row)

    def _mapped(self, model: Model, row: int) -> Model:
        out: Model = {}
        for name, value in model.items():
            if isinstance(value, dict):
                out[name] = self._mapped(value, row)
            else:
                out[name] = value.clone()
                out[name][row] = 5
        return out

    @rule(path=PATHS, value=values())
    def locked(self, path: tuple[str, ...], value: torch.Tensor) -> None:
        with self.td.lock_():
            if not through_leaf(self.model, path):
                with pytest.raises(RuntimeError):
                    self.td[key_of(path)] = value
            with pytest.raises(RuntimeError):
                self.td.clear()
        assert not self.td.is_locked


TestModel = Machine.TestCase
TestModel.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
