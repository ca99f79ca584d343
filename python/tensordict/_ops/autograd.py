"""Gradients: detached trees, trees of `.data` and `.grad`, the flag, backward passes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from typing_extensions import Self

from tensordict._kernel.keys import key_of
from tensordict._kernel.registry import is_branch
from tensordict._ops.leafwise import relock
from tensordict._ops.trees import by_member, collect, has_own, leaves_like, leaves_of, map_leaves, refill
from tensordict._ops.waist import Waist
from tensordict._types import Path, TensorCollection


class AutogradOps(Waist):
    """What tensordicts have of autograd."""

    __slots__ = ()

    def detach(self) -> Self:
        """The tensordict of detached leaves; they share storage with those of this one."""
        return relock(map_leaves(self, Tensor.detach), self)

    def detach_(self) -> Self:
        """Detaches every leaf in place.

        Raises:
            RuntimeError: a leaf is a view, which torch cannot detach in place.
        """
        for leaf in leaves_of(self):
            leaf.detach_()
        return self

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Sets the flag of every leaf.

        Raises:
            RuntimeError: a leaf is of integers or booleans, which have no gradient. No flag is changed then.
        """
        leaves = leaves_of(self)
        for leaf in leaves if requires_grad else ():
            if not (leaf.is_floating_point() or leaf.is_complex()):
                raise RuntimeError(f"only Tensors of floating point dtype can require gradients, got a leaf of {leaf.dtype}")
        for leaf in leaves:
            leaf.requires_grad_(requires_grad)
        return self

    @property
    def data(self) -> Self:
        """The tensordict of the `.data` of all leaves; they share storage with those of this one.

        Setting it sets the `.data` of those leaves that the new tensordict has, all or none.

        Raises:
            RuntimeError: the batch sizes differ.
            KeyError: the new tensordict has a key that this one lacks.
        """
        return relock(map_leaves(self, lambda leaf: leaf.data), self)

    @data.setter
    def data(self, value: Any) -> None:
        _check_source(value, "data")
        if value.batch_size != self.batch_size:
            raise RuntimeError(
                f"Cannot assign .data from a source with batch size {value.batch_size} to a destination with batch size "
                f"{self.batch_size}."
            )
        if not has_own(self):
            _set_in_stacks(self, value, "data")
            return
        mine, given = dict(_paths(self, ())), dict(_paths(value, ()))
        missing = [path for path in given if path not in mine]
        if missing:
            raise KeyError(f"Cannot assign .data: the keys {missing} of the source are not in the destination.")
        _assign([mine[path] for path in given], "data", list(given.values()))

    @property
    def grad(self) -> Self | None:
        """The tensordict of the gradients of the leaves that have one, or None if none has.

        Setting it sets the gradient of every leaf, all or none; None removes them.

        Raises:
            KeyError: the new tensordict lacks a key of this one.
            RuntimeError: a gradient does not fit its leaf.
        """
        found = _gradients(self)
        return None if found is None else relock(found, self)

    @grad.setter
    def grad(self, value: Any) -> None:
        if value is not None and not has_own(self):
            _check_source(value, "grad")
            _set_in_stacks(self, value, "grad")
            return
        if value is None:
            leaves = leaves_of(self)
            _assign(leaves, "grad", [None] * len(leaves))
            return
        _check_source(value, "grad")
        rows = list(_paths(self, ()))
        _assign([leaf for _, leaf in rows], "grad", [_entry(value, path) for path, _ in rows])

    def zero_grad(self, set_to_none: bool = True) -> Self:
        """Removes, or zeroes, the gradient of every leaf."""
        for leaf in leaves_of(self):
            if leaf.grad is not None:
                if set_to_none:
                    leaf.grad = None
                else:
                    with torch.no_grad():
                        leaf.grad.zero_()
        return self

    def backward(
        self,
        gradient: Any = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Any = None,
    ) -> None:
        """One backward pass from all leaves that require gradients.

        Args:
            gradient: the tensordict of the gradients with respect to those leaves; not needed where they have one element.
            retain_graph: keep the graph for another pass.
            create_graph: make the gradients differentiable.
            inputs: the tensors, or the tensordict, whose gradients are accumulated; all if not given.

        Raises:
            RuntimeError: no leaf requires gradients, or one has several elements and there is no `gradient`.
            KeyError: `gradient` lacks the key of such a leaf.
            TypeError: `gradient` is no tensordict.
        """
        if gradient is not None and not isinstance(gradient, TensorCollection):
            raise TypeError(
                "gradient must be a TensorDictBase with entries matching the differentiable leaves of the tensordict, got "
                f"{type(gradient).__name__} instead."
            )
        rows = [(path, leaf) for path, leaf in _paths(self, ()) if leaf.requires_grad]
        if not rows:
            raise RuntimeError("backward() cannot be called on a tensordict that has no leaf tensor requiring gradients.")
        for path, leaf in rows if gradient is None else ():
            if leaf.numel() != 1:
                raise RuntimeError(
                    f"grad can be implicitly created only for scalar outputs: the leaf at key {path!r} has shape "
                    f"{tuple(leaf.shape)}. Pass a gradient tensordict of the same keys."
                )
        grads = None if gradient is None else [_entry(gradient, path) for path, _ in rows]
        wanted = leaves_of(inputs) if isinstance(inputs, TensorCollection) else inputs
        torch.autograd.backward([leaf for _, leaf in rows], grads, retain_graph, create_graph, inputs=wanted)


def _paths(node: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    """Each leaf with its path, in the order of `leaves_of`."""
    for key, value in node._entries().items():
        if isinstance(value, TensorCollection):
            yield from _paths(value, (*path, key))
        else:
            yield (*path, key), value


def _entry(node: Any, path: Path) -> Any:
    """The leaf of `node` at a path."""
    for key in path:
        fields = node._fields() if isinstance(node, TensorCollection) else {}
        if key not in fields:
            raise KeyError(f"Missing gradient entry for key {key_of(path)!r} in the gradient tensordict.")
        node = fields[key]
    return node


def _check_source(value: Any, name: str) -> None:
    if not isinstance(value, TensorCollection):
        raise TypeError(f"the .{name} of a tensordict is set from a tensordict, got a {type(value).__name__}")


def _assign(leaves: list[Any], name: str, values: list[Any]) -> None:
    """Sets the attribute `name` of each leaf; where torch refuses one, the others get back what they had."""
    before = [getattr(leaf, name) for leaf in leaves]
    try:
        for leaf, value in zip(leaves, values):
            setattr(leaf, name, value)
    except Exception:
        for leaf, value in zip(leaves, before):
            setattr(leaf, name, value)
        raise


def _set_in_stacks(node: Any, value: Any, name: str) -> None:
    """Sets an attribute of each leaf of a tree with stacks in it, level by level."""
    pieces = node._pieces()
    for mine, entry in zip(pieces.values(), node._pieces_of(value, pieces)):
        if not isinstance(mine, TensorCollection):
            _assign([mine], name, [entry])
        elif is_branch(mine):  # objects stay as they are
            setattr(mine, name, entry)


@by_member()
def _gradients(node: Any) -> Any:
    fields = {}
    for key, value in node._entries().items():
        if isinstance(value, TensorCollection):
            found = _gradients(value)
        else:
            # torch warns of the gradient of an intermediate result, which has none
            found = value.grad if value.is_leaf or value.retains_grad else None
        if found is not None:
            fields[key] = found
    return node._rebuild(fields, node.batch_size, node.device, node._names) if fields else None


def _without_none(node: Any) -> Any:
    """`node` without the entries that are None."""
    fields = {}
    for key, value in node._fields().items():
        if value is not None:
            fields[key] = _without_none(value) if isinstance(value, TensorCollection) else value
    return node._rebuild(fields, node.batch_size, node.device, node._names)


def only(given: Any, what: str) -> Any:
    """The one tensor or tensordict that is given, alone or in a sequence of one."""
    if isinstance(given, Sequence) and not isinstance(given, (Tensor, TensorCollection)):
        if len(given) != 1:
            raise ValueError(f"torch.autograd.grad with tensordicts takes one {what}, got {len(given)}")
        return given[0]
    return given


def grad(outputs: Any, inputs: Any, grad_outputs: Any = None, *args: Any, **kwargs: Any) -> Any:
    """`torch.autograd.grad` where the outputs, the inputs or both are one tensordict.

    Args:
        outputs: a tensordict or a tensor.
        inputs: a tensordict or a tensor.
        grad_outputs: the gradients with respect to the outputs: a tensordict of the same keys, or a tensor.
        *args: as in torch.
        **kwargs: as in torch.

    Returns:
        For a tensordict as inputs one of the same keys, without the leaves that have no gradient (with `allow_unused`); for
        a tensor the tuple of torch.

    Raises:
        ValueError: several outputs or inputs, or `grad_outputs` is not of the kind of the outputs.
    """
    source, target = only(outputs, "output"), only(inputs, "input")
    weights = only(grad_outputs, "grad_output")
    if weights is not None and isinstance(weights, TensorCollection) is not isinstance(source, TensorCollection):
        raise ValueError(f"grad_outputs must be of the kind of the outputs, got a {type(weights).__name__}")
    rows: list[Any] = []
    if not isinstance(source, TensorCollection):
        rows = [source]
    else:
        outputs_tree = collect(source, rows)
    if isinstance(weights, TensorCollection):
        weights = leaves_like(outputs_tree, weights)
    elif weights is not None:
        weights = [weights]
    if not isinstance(target, TensorCollection):
        return torch.autograd.grad(rows, [target], weights, *args, **kwargs)
    wanted: list[Any] = []
    tree = collect(target, wanted)
    found = torch.autograd.grad(rows, wanted, weights, *args, **kwargs)
    out = refill(tree, iter(found))
    return relock(_without_none(out) if any(one is None for one in found) else out, target)
