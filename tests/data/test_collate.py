"""`collate` as the `collate_fn` of DataLoaders, in this process and in workers."""

from __future__ import annotations

import collections

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from containers import nested, same
from tensordict import TensorDict, collate

Pair = collections.namedtuple("Pair", ["td", "label"])


def data() -> TensorDict:
    return TensorDict({"x": torch.arange(10.0), "n": {"y": torch.arange(20).reshape(10, 2)}}, [10])


class Rows(Dataset):
    """Single samples, each a pair."""

    def __len__(self):
        return 10

    def __getitem__(self, index):
        return data()[index], index


@pytest.mark.parametrize("workers", [0, 2])
def test_tensordict_as_data_set(workers):
    loader = DataLoader(data(), batch_size=4, collate_fn=collate, num_workers=workers)
    batches = list(loader)
    assert [batch.batch_size for batch in batches] == [(4,), (4,), (2,)]
    same(torch.cat(batches), data())


@pytest.mark.parametrize("workers", [0, 2])
def test_samples(workers):
    loader = DataLoader(Rows(), batch_size=5, collate_fn=collate, num_workers=workers, shuffle=True)
    seen = []
    for td, index in loader:
        same(td, data()[index])
        seen += index.tolist()
    assert sorted(seen) == list(range(10))


def test_lists_are_stacked():
    rows = list(data())
    same(collate(rows), data())


def test_batches_stay():
    td = nested()
    assert collate(td) is td


def test_trees():
    rows = [TensorDict({"a": torch.tensor(float(place))}) for place in range(3)]
    out = collate([Pair(row, place) for place, row in enumerate(rows)])
    assert type(out) is Pair
    assert out.td["a"].tolist() == [0, 1, 2]
    assert out.label.tolist() == [0, 1, 2]
    out = collate([{"td": row, "rest": [place, (row, 1.5)]} for place, row in enumerate(rows)])
    assert out["td"].batch_size == (3,)
    assert out["rest"][0].tolist() == [0, 1, 2]
    assert out["rest"][1][0]["a"].tolist() == [0, 1, 2]
    assert out["rest"][1][1].tolist() == [1.5] * 3


def test_rows_that_do_not_fit():
    pytest.importorskip("tensordict._lazy")
    samples = [TensorDict({"a": torch.ones(2)}), TensorDict({"a": torch.ones(3)})]
    batch = collate(samples)
    assert batch.batch_size == (2,)
    assert [len(sample["a"]) for sample in batch.unbind(0)] == [2, 3]
