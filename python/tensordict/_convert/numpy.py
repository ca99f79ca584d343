"""From and to NumPy: dicts of arrays, structured arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import Self

from tensordict._convert.anything import batch_of, build, is_struct_array, new
from tensordict._kernel.registry import is_branch
from tensordict._ops.trees import copy_nodes
from tensordict._ops.waist import Waist
from tensordict._reexport import dense_class
from tensordict._types import TensorCollection

Array = NDArray[Any]


def _tensor(field: Array) -> Any:
    """The tensor of a field of a structured array: a view of its memory where torch can have one."""
    if field.dtype.kind not in "biufc":
        return field  # kept as one object
    if not field.dtype.isnative:
        field = field.astype(field.dtype.newbyteorder("="))
    size = field.itemsize
    if not (field.flags.aligned and field.flags.writeable) or any(step < 0 or step % size for step in field.strides):
        field = field.copy()
    return torch.from_numpy(field)


def _array(key: str, leaf: Tensor) -> Any:
    if leaf.is_nested:
        return tuple([_array(key, component) for component in leaf.unbind()])
    try:
        return leaf.numpy()
    except TypeError as error:
        raise TypeError(f"the leaf {key!r} of dtype {leaf.dtype} on {leaf.device} has no NumPy array: {error}") from None


# The least number of characters that a field of strings has room for, as in the reference.
_TEXT = 10


def _objects(node: Any) -> Array:
    """The objects of a batch as an array: of strings where all are, else of objects; an array of the batch as it is."""
    whole = getattr(node, "_data", None)
    if isinstance(whole, np.ndarray) and whole.shape == tuple(node.batch_size):
        return whole
    values, size = node.tolist(), tuple(node.batch_size)
    out = np.empty(size, object)
    for place in np.ndindex(size):
        item = values
        for at in place:
            item = item[at]
        out[place] = item
    if not out.size or not all([type(item) is str for item in out.flat]):
        return out
    return out.astype(f"U{max(_TEXT, *map(len, out.flat))}")


def _dtype(node: Any) -> np.dtype[Any]:
    """The dtype of one element of the batch of `node`."""
    dims = len(node.batch_size)
    rows: list[tuple[str, Any, tuple[int, ...]]] = []
    for key, value in node._entries().items():
        if isinstance(value, TensorCollection):
            dtype = _dtype(value) if is_branch(value) else _objects(value).dtype
            rows.append((key, dtype, tuple(value.batch_size[dims:])))
        else:
            rows.append((key, _array(key, torch.empty(0, dtype=value.dtype)).dtype, tuple(value.shape[dims:])))
    return np.dtype(rows)


def _below(node: Any) -> Any:
    return node.numpy() if is_branch(node) else node.to_dict()


def _write(node: Any, into: Array) -> None:
    for key, value in node._entries().items():
        if is_branch(value):
            _write(value, into[key])
        elif isinstance(value, TensorCollection):
            into[key] = _objects(value)
        else:
            into[key] = value.detach().cpu().resolve_conj().resolve_neg().numpy()


class NumpyConversions(Waist):
    """`numpy`, `from_struct_array`, `to_struct_array`."""

    __slots__ = ()

    def numpy(self) -> dict[str, Any]:
        """A nested dict of NumPy arrays, which share the memory of the leaves; objects are as `to_dict` gives them.

        Raises:
            RuntimeError: a leaf requires gradients.
            TypeError: a leaf is not on the CPU, or has a dtype that NumPy lacks.

        >>> import torch
        >>> from tensordict import TensorDict
        >>> TensorDict({"a": torch.tensor([1, 2])}, [2]).numpy()
        {'a': array([1, 2])}
        """
        return {
            key: _below(value) if isinstance(value, NumpyConversions) else _array(key, value)
            for key, value in self._entries().items()
        }

    @classmethod
    def from_struct_array(
        cls,
        struct_array: Any,
        *,
        auto_batch_size: bool = False,
        batch_dims: int | None = None,
        device: Any = None,
        batch_size: Any = None,
    ) -> Self:
        """A tensordict of the fields of a NumPy structured array of shape `(*B)`.

        A leaf is a view of the array where its memory is laid out as torch has it, else a copy.

        Args:
            struct_array: the array; a field with fields of its own becomes a node.
            auto_batch_size: take the longest leading dimensions that all leaves share.
            batch_dims: the most dimensions that `auto_batch_size` takes.
            device: the device to move the leaves to.
            batch_size: the batch size; `(*B)` if neither it nor `auto_batch_size` is given.

        Raises:
            TypeError: the array has no fields, or one of a dtype that torch lacks.

        >>> import numpy as np
        >>> from tensordict import TensorDict
        >>> points = np.array([(0, 1.5), (1, 2.5)], dtype=[("id", "i8"), ("x", "f8")])
        >>> TensorDict.from_struct_array(points)["x"]
        tensor([1.5000, 2.5000], dtype=torch.float64)
        """
        if not is_struct_array(struct_array):
            kind = getattr(struct_array, "dtype", type(struct_array).__name__)
            raise TypeError(f"from_struct_array takes a NumPy array with named fields, got one of {kind}")
        array = np.asarray(struct_array)
        batch = batch_of("from_struct_array", batch_size, auto_batch_size, batch_dims)
        if batch.batch_size is None and not auto_batch_size:
            batch = batch._replace(batch_size=torch.Size(array.shape))

        def nested(field: Array) -> Any:
            if field.dtype.names is None:
                return _tensor(field)
            options: dict[str, Any] = {"auto_batch_size": batch.auto, "batch_dims": batch.dims_below}
            return dense_class().from_struct_array(field, device=device, **options)

        return build(new(cls, device), ((name, array[name]) for name in array.dtype.names or ()), batch, nested=nested)

    def to_struct_array(self) -> Array:
        """A new NumPy structured array of the shape of the batch, with a field for each entry.

        What a leaf has beyond the batch is the shape of its field; a node is a field with fields of its own.

        Raises:
            TypeError: a leaf has a dtype that NumPy lacks.

        >>> import torch
        >>> from tensordict import TensorDict
        >>> TensorDict({"a": torch.tensor([1, 2]), "b": torch.zeros(2, 3)}, [2]).to_struct_array().dtype
        dtype([('a', '<i8'), ('b', '<f4', (3,))])
        """
        node = copy_nodes(self)  # the fields are known before they are filled: the entries must not change in between
        out = np.zeros(tuple(node.batch_size), _dtype(node))
        _write(node, out)
        return out
