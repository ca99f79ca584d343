"""The `collate_fn` of DataLoaders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import default_collate

from tensordict._kernel.keys import key_of, path_of
from tensordict._kernel.native import cat, pad_stack
from tensordict._ops.join import stack_tensordicts
from tensordict._reexport import maybe_dense_stack
from tensordict._types import Key, Path, TensorCollection
from tensordict.data.padding import padded_stack


def collate(
    batch: Any,
    *,
    pad_keys: Mapping[Key, float] | None = None,
    nested_keys: Sequence[Key] | None = None,
    mask_key: Key | None = None,
) -> Any:
    """Makes a batch of what a `DataLoader` fetched; made for its `collate_fn`, also in worker processes.

    A tensordict, which is what a tensordict as data set gives for a whole batch, is returned as it is. A list of tensordicts
    is stacked, lazily if they do not fit; anything else is collated as torch does, with tensordicts stacked wherever they
    stand in the samples.

    Args:
        batch: the samples.
        pad_keys: entries whose first dimension is filled up to the longest, with the value to fill in.
        nested_keys: entries that become nested tensors of the jagged layout, ragged where the samples differ.
        mask_key: where to put booleans for each of the `pad_keys` that say what was there before.

    Raises:
        KeyError: a sample lacks one of the keys.
        ValueError: a key is to be padded and nested, there is a `mask_key` and nothing is padded or it is taken, or the
            first dimension of an entry to pad is a batch dimension.
        RuntimeError: an entry to pad has no dimension, or differs in another one.

    >>> import torch
    >>> from tensordict import TensorDict, collate
    >>> samples = [TensorDict({"x": torch.ones(i)}) for i in range(1, 3)]
    >>> collate(samples, pad_keys={"x": 0.0})["x"]
    tensor([[1., 0.],
            [1., 1.]])
    """
    job = _Collation(pad_keys, nested_keys, mask_key)
    return job.run(batch)


class _Collation:
    """What one call of `collate` does with the tensordicts of a batch."""

    __slots__ = ("mask", "nested", "padded")

    def __init__(self, pad_keys: Any, nested_keys: Any, mask_key: Any) -> None:
        self.padded: dict[Path, float] = {path_of(key): value for key, value in pad_keys.items()} if pad_keys else {}
        self.nested: list[Path] = [path_of(key) for key in nested_keys or ()]
        self.mask: Path | None = None if mask_key is None else path_of(mask_key)
        both = [key_of(path) for path in self.padded if path in self.nested]
        if both:
            raise ValueError(f"collate got the keys {both} in both pad_keys and nested_keys.")
        if mask_key is not None and not self.padded:
            raise ValueError("collate got a mask_key but no pad_keys to mask.")

    def run(self, batch: Any) -> Any:
        """The batch of samples."""
        if isinstance(batch, TensorCollection) or not len(batch):
            return batch
        first = batch[0]
        if isinstance(first, TensorCollection):
            return self._tensordicts(list(batch)) if self.padded or self.nested else _stacked(batch)
        if isinstance(first, tuple) and hasattr(first, "_fields"):
            return type(first)(*(self.run(list(column)) for column in zip(*batch)))
        if isinstance(first, tuple):
            return tuple(self.run(list(column)) for column in zip(*batch))
        if isinstance(first, list):
            return [self.run(list(column)) for column in zip(*batch)]
        if isinstance(first, dict):
            return {key: self.run([sample[key] for sample in batch]) for key in first}
        return default_collate(batch)

    def _tensordicts(self, batch: list[Any]) -> Any:
        columns = {path: _column(batch, path) for path in (*self.padded, *self.nested)}
        self._check(batch, columns)
        apart = _tree(dict.fromkeys(columns))
        rest = _stacked([_without(sample, apart) for sample in batch])
        made = self._padded(columns)
        if rest._dict_backed:
            made.update((path, _nested(columns[path])) for path in self.nested)
            out = _with(rest, batch[0], _tree(made))
        elif self.nested:
            raise ValueError(
                f"collate got nested_keys={[key_of(path) for path in self.nested]}, but the other entries of the samples "
                "differ in shape, so they stack lazily and the nested tensors could not be read back. Name the entries "
                "that vary in length in pad_keys or nested_keys."
            )
        else:
            out = rest
            for path, value in made.items():
                out.set(path, value)
        if self.mask is not None:
            for path in self.padded:
                out.set(self.mask + path, _mask(columns[path]))
        return out

    def _check(self, batch: list[Any], columns: dict[Path, list[Any]]) -> None:
        for path in self.padded:
            if isinstance(columns[path][0], TensorCollection):
                raise KeyError(f"collate got the key {key_of(path)!r} in pad_keys, which names a tensordict and no tensor.")
            if not columns[path][0].ndim:
                raise RuntimeError(f"Cannot pad scalars: the entry {key_of(path)!r} has no dimension")
        if self.mask is not None and any([sample.get(self.mask, None) is not None for sample in batch]):
            raise ValueError(f"collate got mask_key={key_of(self.mask)!r}, which is an entry of a sample.")
        if self.padded and batch[0].batch_size:
            raise ValueError(
                "collate(pad_keys=...) pads the first dim of each entry, which is a batch dim of these samples "
                f"(batch_size={batch[0].batch_size}). Give the samples an empty batch size, or call pad_sequence."
            )

    def _padded(self, columns: dict[Path, list[Any]]) -> dict[Path, Any]:
        """The entries to pad."""
        made: dict[Path, Any] = {}
        for value in dict.fromkeys(self.padded.values()):
            paths = [path for path, own in self.padded.items() if own == value]
            found = pad_stack([columns[path] for path in paths], 0, value)
            if found is None:
                found = [padded_stack(columns[path], 0, value, False, path) for path in paths]
            made.update(zip(paths, found))
        return made


def _stacked(batch: Sequence[Any]) -> Any:
    """The stack of tensordicts, lazy if they do not fit."""
    try:
        return stack_tensordicts(batch, 0)
    except (RuntimeError, KeyError):
        return maybe_dense_stack(batch, 0)


def _column(batch: list[Any], path: Path) -> list[Any]:
    """The entries of all samples at `path`."""
    found = batch
    try:
        for name in path:
            found = [node._fields()[name] for node in found]
    except (KeyError, AttributeError):
        raise KeyError(f"collate got the key {key_of(path)!r}, which a sample lacks.") from None
    return found


def _tree(values: dict[Path, Any]) -> dict[str, Any]:
    """Nested dicts of what stands at paths."""
    tree: dict[str, Any] = {}
    for (*above, last), value in values.items():
        below = tree
        for name in above:
            below = below.setdefault(name, {})
        below[last] = value
    return tree


def _without(node: Any, tree: dict[str, Any]) -> Any:
    """A sample without the entries in `tree`; the nodes on the way to them stay."""
    fields = {}
    for key, value in node._entries().items():
        if key not in tree:
            fields[key] = value
        elif tree[key]:
            fields[key] = _without(value, tree[key])
    return node._rebuild(fields, node.batch_size, node.device, node._names)


def _with(node: Any, sample: Any, tree: dict[str, Any]) -> Any:
    """The stack of what `_without` gave with the entries of `tree`, all in the order of a sample."""
    own = node._fields()
    fields = {}
    for key, value in sample._entries().items():
        made = tree.get(key)
        if made is None:
            fields[key] = own[key]
        else:
            fields[key] = _with(own[key], value, made) if isinstance(made, dict) else made
    return node._rebuild(fields, node.batch_size, node.device, node._names)


def _nested(column: list[Any]) -> Any:
    """Tensors as one nested tensor in the jagged layout."""
    joined = cat([column], 0) if column[0].ndim else None
    if joined is None:
        return torch.nested.as_nested_tensor(column, layout=torch.jagged)
    lengths = torch.tensor([0, *(leaf.shape[0] for leaf in column)], device=column[0].device)
    return torch.nested.nested_tensor_from_jagged(joined[0], lengths.cumsum(0))


def _mask(column: list[Any]) -> Tensor:
    """Where the padded entries have what was there."""
    lengths = torch.tensor([leaf.shape[0] for leaf in column], device=column[0].device)
    return torch.arange(int(lengths.max()), device=lengths.device) < lengths.unsqueeze(1)
