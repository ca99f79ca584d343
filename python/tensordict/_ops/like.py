"""Copies, and containers made after the pattern of another one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Size, Tensor
from typing_extensions import Self

from tensordict._ops.coerce import as_device, as_size
from tensordict._ops.leafwise import foreach_of, run
from tensordict._ops.shape import sizes_of
from tensordict._ops.trees import Tree, by_member, collect, copy_nodes, leaves_like, map_leaves, refill, solid
from tensordict._ops.waist import Waist
from tensordict._types import NO_DEFAULT, TensorCollection

_CLONE = foreach_of("clone")


class LikeOps(Waist):
    """Clones, empty copies, `new_*`."""

    __slots__ = ()

    def clone(self, recurse: bool = True, **kwargs: Any) -> Self:
        """A copy, unlocked.

        Args:
            recurse: copy the leaves too, and the objects that can be copied; otherwise the nodes are new, and lists and
                dicts among the objects, and the leaves are shared.
        """
        if not recurse:
            return copy_nodes(self, True)
        leaves: list[Any] = []
        tree = _collect_apart(self, leaves, {})
        return refill(tree, iter(run(leaves, torch.clone, _CLONE)))

    def _cloned(self) -> Self:
        """A copy, unlocked, that shares its objects."""
        leaves: list[Any] = []
        tree = collect(self, leaves)
        return refill(tree, iter(run(leaves, torch.clone, _CLONE)))

    def copy(self) -> Self:
        """A shallow copy: new nodes, shared leaves; lists and dicts that are objects are new as well."""
        return copy_nodes(self, True)

    def __copy__(self) -> Self:
        return copy_nodes(self, True)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        import copy

        leaves: list[Any] = []
        tree = _collect_apart(self, leaves, memo, copy.deepcopy)
        return refill(tree, iter([copy.deepcopy(leaf, memo) for leaf in leaves]))

    def to_tensordict(self, *, retain_none: bool | None = None) -> Any:
        """A plain, unlocked `TensorDict` of copies of the leaves."""
        return _unwrapped(solid(_unwrapped(self._cloned())))

    def empty(
        self, recurse: bool = False, *, batch_size: Any = None, device: Any = NO_DEFAULT, names: Any = NO_DEFAULT
    ) -> Self:
        """A tensordict with the same batch size, device and names, without leaves.

        Args:
            recurse: keep the nodes below, empty as well.
            batch_size: another batch size.
            device: another device label.
            names: other names; kept for the dimensions that there are if not given.

        Raises:
            RuntimeError: with `recurse`, the batch size of a node below and the new one contradict each other.
        """
        size = self.batch_size if batch_size is None else as_size(batch_size)
        label = self.device if device is NO_DEFAULT else as_device(device)
        if batch_size is None:
            out: Any = _empty(self, label, device is NO_DEFAULT, recurse)
        else:
            out = _emptied(self, size, label, device is NO_DEFAULT, recurse)
        if names is not NO_DEFAULT and names is not None:
            out._name_dims(names)
        return out

    def new_empty(self, *size: Any, **kwargs: Any) -> Self:
        """`torch.Tensor.new_empty` of each leaf: uninitialised leaves of the batch size `size`."""
        return _new(self, size, kwargs, Tensor.new_empty)

    def new_zeros(self, *size: Any, **kwargs: Any) -> Self:
        """`torch.Tensor.new_zeros` of each leaf: leaves of zeros of the batch size `size`."""
        return _new(self, size, kwargs, Tensor.new_zeros)

    def new_ones(self, *size: Any, **kwargs: Any) -> Self:
        """`torch.Tensor.new_ones` of each leaf: leaves of ones of the batch size `size`."""
        return _new(self, size, kwargs, Tensor.new_ones)

    def new_full(self, size: Any, fill_value: Any, **kwargs: Any) -> Self:
        """`torch.Tensor.new_full` of each leaf: leaves of one value of the batch size `size`."""

        def make(leaf: Tensor, shape: Size, **options: Any) -> Tensor:
            return leaf.new_full(shape, fill_value, **options)

        return _new(self, (size,), kwargs, make)

    def new_tensor(self, data: Any, *, device: Any = NO_DEFAULT, **kwargs: Any) -> Self:
        """`torch.Tensor.new_tensor` of each leaf: copies of data, with the dtype of the leaf unless one is given.

        Args:
            data: a tensordict of the same keys, whose leaves are copied; or what makes a tensor, copied for every leaf, whose
                shape is then the batch size.
            device: the device of the result.
            **kwargs: the other options of `torch.Tensor.new_tensor`.

        Raises:
            KeyError: `data` is a tensordict of other keys.
        """
        if device is not NO_DEFAULT and device is not None:
            kwargs["device"] = device
        node = solid(self)
        if isinstance(data, TensorCollection):
            leaves: list[Any] = []
            tree = collect(node, leaves)
            rows = zip(leaves, leaves_like(tree, data))
            out = refill(tree, iter([leaf.new_tensor(value, **kwargs) for leaf, value in rows]))
            out.batch_size = data.batch_size
            if "device" in kwargs:
                out._label_device(as_device(kwargs["device"]))
            return out
        source = torch.as_tensor(data)
        label = as_device(kwargs.get("device", source.device))
        out = map_leaves(node, lambda leaf: leaf.new_tensor(data, **{**kwargs, "device": label}))
        out._adopt_names(None)
        return _resized(out, source.shape, label)


def _collect_apart(node: Any, leaves: list[Any], known: dict[int, Any], copy: Callable[..., Any] | None = None) -> Tree:
    """`collect`, with holders of copies of the objects in the places of theirs."""
    pieces = node._pieces()
    for key, part in pieces.items():
        if type(part) is Tensor or not isinstance(part, TensorCollection):
            leaves.append(part)
        else:
            pieces[key] = _collect_apart(part, leaves, known, copy)
    return node._apart(known, copy), pieces


@by_member()
def _empty(node: Any, device: torch.device | None, own_device: bool, recurse: bool) -> Any:
    """A node of the same batch size without leaves."""
    return _emptied(node, node.batch_size, node.device if own_device else device, own_device, recurse)


def _emptied(node: Any, size: Size, device: torch.device | None, own_device: bool, recurse: bool) -> Any:
    fields = {}
    for key, value in node._entries().items() if recurse else ():
        if not isinstance(value, TensorCollection):
            continue
        inner: Size = value.batch_size
        shared = min(len(inner), len(size))
        if inner[:shared] != size[:shared]:
            raise RuntimeError(f"the node at the key {key!r} of batch size {inner} cannot be emptied to the batch size {size}")
        label = value.device if own_device else device
        fields[key] = _emptied(value, inner if shared == len(size) else size, label, own_device, recurse)
    names = node._names
    if names is not None:
        names = (names + [None] * len(size))[: len(size)]
        names = names if any(name is not None for name in names) else None
    return node._rebuild(fields, size, device, names)


def _resized(node: Any, batch_size: Size, device: torch.device | None) -> Any:
    fields = node._entries()
    return node._rebuild(
        {k: _resized(v, batch_size, device) if isinstance(v, Waist) else v for k, v in fields.items()}, batch_size, device
    )


def _new(node: Any, size: tuple[Any, ...], options: dict[str, Any], make: Callable[..., Tensor]) -> Any:
    given = size if size else (options.pop("size", ()),)
    options.pop("empty_lazy", None)
    if options.get("device") is NO_DEFAULT:
        del options["device"]
    batch_size = Size(sizes_of(given))
    return _new_node(node, batch_size, len(node.batch_size), options, make)


def _new_node(node: Any, batch_size: Size, consumed: int, options: dict[str, Any], make: Callable[..., Tensor]) -> Any:
    fields = {}
    for key, value in node._entries().items():
        if isinstance(value, TensorCollection):
            inner = Size(batch_size + value.batch_size[consumed:])
            fields[key] = _new_node(value, inner, len(value.batch_size), options, make)
        else:
            fields[key] = make(value, Size(batch_size + value.shape[consumed:]), **options)
    device = as_device(options["device"]) if options.get("device") is not None else node.device
    names = node._names if len(batch_size) == len(node.batch_size) else None
    return node._rebuild(fields, batch_size, device, names) if fields else node._anew(batch_size, device, names)


def _unwrapped(node: Any) -> Any:
    """The containers that tensorclasses are around, at every depth, in place of the tensorclasses."""
    if node._wrapped is not None:
        return _unwrapped(node._wrapped)
    for key, value in node._entries().items() if node._dict_backed else ():
        if isinstance(value, TensorCollection):
            node._set_str(key, _unwrapped(value))
    return node
