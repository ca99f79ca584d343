"""The `collate_fn` of DataLoaders."""

from __future__ import annotations

from typing import Any

from torch.utils.data import default_collate

from tensordict._ops.join import stack_tensordicts
from tensordict._types import TensorCollection


def collate(batch: Any) -> Any:
    """Makes a batch of what a `DataLoader` fetched; made for its `collate_fn`, also in worker processes.

    A tensordict, which is what a tensordict as data set gives for a whole batch, is returned as it is. A list of tensordicts
    is stacked; anything else is collated as torch does, with tensordicts stacked wherever they stand in the samples.

    >>> import torch
    >>> from tensordict import TensorDict, collate
    >>> samples = [TensorDict({"x": torch.tensor(i)}) for i in range(3)]
    >>> collate(samples)["x"]
    tensor([0, 1, 2])
    """
    if isinstance(batch, TensorCollection):
        return batch
    first = batch[0]
    if isinstance(first, TensorCollection):
        return stack_tensordicts(batch, 0)
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(collate(list(column)) for column in zip(*batch)))
    if isinstance(first, tuple):
        return tuple(collate(list(column)) for column in zip(*batch))
    if isinstance(first, list):
        return [collate(list(column)) for column in zip(*batch)]
    if isinstance(first, dict):
        return {key: collate([sample[key] for sample in batch]) for key in first}
    return default_collate(batch)
