"""Random operations on a lazy stack with strings and ragged leaves against a list of dicts.

`TD_MODEL_STEPS` sets how many operations are made in all; a test run makes a few hundred.
"""

import os
import pickle
import shutil
import tempfile

import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from torch import Size

from tensordict import LazyStackedTensorDict, TensorDict, lazy_stack

_STEPS = 40
_EXAMPLES = max(1, int(os.environ.get("TD_MODEL_STEPS", "1000")) // _STEPS)

# A number, a string, a tensor of a length of its own, and a nested one of each.
ROW = st.builds(
    lambda a, s, r, t: {"a": a, "s": s, "r": r, "n": {"t": t, "q": r[:1] * 2}},
    st.integers(-9, 9),
    st.text("abc", max_size=3),
    st.lists(st.integers(0, 9), min_size=1, max_size=4),
    st.text("xyz", max_size=2),
)


def member(row):
    nested = TensorDict({"t": row["n"]["t"], "q": torch.tensor(row["n"]["q"])})
    return TensorDict({"a": torch.tensor(row["a"]), "s": row["s"], "r": torch.tensor(row["r"]), "n": nested})


def as_rows(td):
    """The rows of a tensordict of one batch dimension, read member by member."""
    return [
        {
            "a": one["a"].item(),
            "s": one["s"],
            "r": one["r"].tolist(),
            "n": {"t": one["n", "t"], "q": one["n", "q"].tolist()},
        }
        for one in td.unbind(0)
    ]


class StackModel(RuleBasedStateMachine):
    """A stack and its model."""

    def __init__(self):
        super().__init__()
        self.rows = [{"a": 0, "s": "a", "r": [1], "n": {"t": "", "q": [1, 1]}}]
        self.td = lazy_stack([member(row) for row in self.rows])
        self.folder = tempfile.mkdtemp()
        self.saves = 0

    def teardown(self):
        shutil.rmtree(self.folder)

    def place(self, data, extra=0):
        return data.draw(st.integers(0, len(self.rows) - 1 + extra))

    # Writes.

    @precondition(lambda self: self.rows)
    @rule(data=st.data(), row=ROW)
    def replace_member(self, data, row):
        place = self.place(data)
        self.rows[place] = row
        members = list(self.td.unbind(0))
        members[place] = member(row)
        self.td = lazy_stack(members)

    @precondition(lambda self: self.rows)
    @rule(data=st.data(), value=st.integers(-9, 9), text=st.text("abc", max_size=3))
    def write_row(self, data, value, text):
        place = self.place(data)
        row = self.rows[place]
        self.rows[place] = {**row, "a": value, "s": text}
        self.td[place] = TensorDict({"a": torch.tensor(value), "s": text})

    @precondition(lambda self: self.rows)
    @rule(data=st.data(), text=st.text("xyz", max_size=2))
    def write_in_list(self, data, text):
        place = self.place(data)
        self.rows[place] = {**self.rows[place], "s": text}
        self.td["s"][place] = text

    @precondition(lambda self: self.rows)
    @rule(data=st.data())
    def write_column(self, data):
        values = [data.draw(st.integers(-9, 9)) for _ in self.rows]
        texts = [data.draw(st.text("abc", max_size=2)) for _ in self.rows]
        self.rows = [{**row, "a": v, "n": {**row["n"], "t": t}} for row, v, t in zip(self.rows, values, texts)]
        self.td.set("a", torch.tensor(values))
        self.td["n", "t"] = texts

    @precondition(lambda self: self.rows)
    @rule(step=st.integers(1, 3))
    def add_in_place(self, step):
        self.rows = [
            {
                **row,
                "a": row["a"] + step,
                "r": [v + step for v in row["r"]],
                "n": {**row["n"], "q": [v + step for v in row["n"]["q"]]},
            }
            for row in self.rows
        ]
        self.td.add_(step)

    # Growth.

    @precondition(lambda self: len(self.rows) < 12)
    @rule(row=ROW, data=st.data())
    def insert(self, row, data):
        place = self.place(data, 1)
        self.rows.insert(place, row)
        self.td.insert(place, member(row))

    @precondition(lambda self: len(self.rows) < 12)
    @rule(rows=st.lists(ROW, min_size=1, max_size=3))
    def extend(self, rows):
        self.rows = self.rows + rows
        self.td.extend([member(row) for row in rows])

    @precondition(lambda self: len(self.rows) < 12)
    @rule(rows=st.lists(ROW, min_size=1, max_size=3))
    def cat(self, rows):
        self.rows = self.rows + rows
        self.td = torch.cat([self.td, lazy_stack([member(row) for row in rows])])

    # Moves.

    @precondition(lambda self: self.rows)
    @rule(data=st.data())
    def take(self, data):
        places = data.draw(st.lists(st.integers(0, len(self.rows) - 1), min_size=1, max_size=8))
        self.rows = [self.rows[place] for place in places]
        # a lazy stack shares its members with the rows of a list of places
        self.td = self.td[torch.tensor(places)].clone()

    @precondition(lambda self: self.rows)
    @rule(data=st.data())
    def mask(self, data):
        keep = [data.draw(st.booleans()) for _ in self.rows]
        if any(keep):
            self.rows = [row for row, kept in zip(self.rows, keep) if kept]
            self.td = self.td[torch.tensor(keep)]

    @precondition(lambda self: len(self.rows) > 1)
    @rule(data=st.data())
    def cut(self, data):
        start = data.draw(st.integers(0, len(self.rows) - 1))
        self.rows, self.td = self.rows[start:], self.td[start:]

    @precondition(lambda self: self.rows)
    @rule(shift=st.integers(-3, 3))
    def roll(self, shift):
        count = shift % len(self.rows)
        self.rows = self.rows[len(self.rows) - count :] + self.rows[: len(self.rows) - count]
        self.td = self.td.roll(shift, 0)

    @precondition(lambda self: self.rows)
    @rule()
    def flip(self):
        self.rows = self.rows[::-1]
        self.td = self.td.flip(0)

    @precondition(lambda self: self.rows)
    @rule()
    def reshape(self):
        size = len(self.rows)
        # dense where all members are alike
        self.td = self.td.reshape(1, size).permute(1, 0).reshape(size).to_lazystack(0)

    @precondition(lambda self: self.rows)
    @rule()
    def restack(self):
        self.td = lazy_stack(list(self.td.unbind(0)))

    @precondition(lambda self: self.rows and len(self.rows) < 10)
    @rule(before=st.integers(0, 2), after=st.integers(0, 2), value=st.integers(0, 9))
    def pad(self, before, after, value):
        # what is put in is shaped as the elements of one member, where all are alike
        if len({(len(row["r"])) for row in self.rows}) > 1:
            return
        length = len(self.rows[0]["r"])
        fresh = {"a": value, "s": None, "r": [value] * length, "n": {"t": None, "q": [value] * 2}}
        self.rows = [fresh] * before + self.rows + [fresh] * after
        self.td = self.td.pad([before, after], value=value)

    # Copies and files.

    @rule()
    def copied(self):
        self.td = self.td.clone()

    @rule()
    def pickled(self):
        self.td = pickle.loads(pickle.dumps(self.td))

    @precondition(lambda self: self.rows)
    @rule()
    def saved(self):
        self.saves += 1
        where = f"{self.folder}/{self.saves}"
        self.td.save(where)
        self.td = TensorDict.load(where).clone()

    @precondition(lambda self: self.rows)
    @rule()
    def saved_again(self):
        where = f"{self.folder}/again"
        self.td.save(where)
        assert as_rows(TensorDict.load(where)) == self.rows

    @precondition(lambda self: self.rows)
    @rule(row=ROW)
    def locked(self, row):
        self.td.lock_()
        for write in (
            lambda: self.td.set("new", torch.zeros(len(self.rows))),
            lambda: self.td.append(member(row)),
            lambda: self.td.unbind(0)[0].set("new", torch.zeros(())),
        ):
            with pytest.raises(RuntimeError, match="lock"):
                write()
        self.td.unlock_()

    @invariant()
    def same(self):
        assert self.td.batch_size == Size([len(self.rows)])
        assert as_rows(self.td) == self.rows
        if self.rows and isinstance(self.td, LazyStackedTensorDict):
            assert self.td["a"].tolist() == [row["a"] for row in self.rows]
            assert self.td["s"] == [row["s"] for row in self.rows]
            assert self.td["n", "t"] == [row["n"]["t"] for row in self.rows]
            lists = self.td.get("r", as_list=True)
            assert [value.tolist() for value in lists] == [row["r"] for row in self.rows]
            nested = self.td.get("r", as_nested_tensor=True)
            assert [value.tolist() for value in nested.unbind()] == [row["r"] for row in self.rows]


TestStackModel = StackModel.TestCase
TestStackModel.settings = settings(
    max_examples=_EXAMPLES,
    stateful_step_count=_STEPS,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
