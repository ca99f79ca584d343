"""Twins of the exchange of parameters."""

from __future__ import annotations

from typing import Any

import torch
from torch import Size, Tensor, nn

from tensordict._kernel import native
from tensordict._types import TensorCollection

_ABSENT = object()


class Swap:
    """What a swap has written, in order: `(dict, name, what was there, what it got)`."""

    def __init__(self) -> None:
        self.edits: list[tuple[dict[str, Any], str, Any, Any]] = []
        self.orders: list[tuple[dict[str, Any], list[str]]] = []
        self.sources: list[tuple[int, Any, str]] = []
        self.old: dict[str, Any] = {}


def _place(node: Any, key: str, module: nn.Module) -> KeyError:
    return KeyError(f"the module {type(module).__name__} has no parameter, buffer or submodule of this name: {key}")


# The dicts of a module are told apart by these names: compiled code of torch 2.11 cannot ask whether two dicts are one.
_PARAMETERS, _BUFFERS, _OWN = "_parameters", "_buffers", "__dict__"


def _dict_of(own: dict[str, Any], holder: str) -> dict[str, Any]:
    return own if holder == _OWN else own[holder]


def _holder(own: dict[str, Any], key: str, value: Any, module: nn.Module) -> str:
    """The dict of the module that has `key`."""
    if isinstance(value, Tensor):
        for holder in (_PARAMETERS, _BUFFERS, _OWN):
            if key in _dict_of(own, holder):
                return holder
    raise _place(None, key, module)


def _as_parameter(value: Any, old: Any) -> Any:
    """What takes the place of the parameter `old`: a parameter, unless `value` is part of a graph."""
    fits = value.requires_grad == (old.requires_grad if isinstance(value, nn.Parameter) else True)
    if fits or torch._C._functorch.maybe_current_level() is not None:
        return value
    return nn.Parameter(value, requires_grad=old.requires_grad)


def _target(had: str, old: Any, value: Any, preserve: bool) -> tuple[str, Any]:
    """The dict that a value goes to in place of `old`, which `had` has, and what goes there."""
    is_parameter = isinstance(value, nn.Parameter)
    if preserve and had == _PARAMETERS and old is not None:
        return _PARAMETERS, _as_parameter(value, old)
    if had == _BUFFERS and (preserve or not is_parameter):
        if is_parameter:
            value = value.detach().requires_grad_(value.requires_grad)
        return _BUFFERS, value
    return (_PARAMETERS if is_parameter else _OWN), value


def _plan(swap: Swap, node: Any, module: nn.Module, preserve: bool, seen: dict[int, dict[str, Any]]) -> dict[str, Any]:
    """Notes the edits of a level and of those below; gives the values that the module has, as fields."""
    if id(module) in seen:
        return seen[id(module)]
    old: dict[str, Any] = {}
    seen[id(module)] = old
    own = module.__dict__
    new: dict[str, Any] = {}
    for key, value in node._entries().items():
        if isinstance(value, TensorCollection):
            child = own["_modules"].get(key)
            if child is None:
                raise _place(node, key, module)
            old[key] = native_new(_plan(swap, value, child, preserve, seen))
            continue
        had = _holder(own, key, value, module)
        before = _dict_of(own, had)[key]
        place, after = _target(had, before, value, preserve)
        if place != had:
            swap.orders.append((_dict_of(own, had), list(_dict_of(own, had))))
            swap.edits.append((_dict_of(own, had), key, before, _ABSENT))
        swap.sources.append((len(swap.edits), node, key))
        swap.edits.append((_dict_of(own, place), key, _dict_of(own, place).get(key, _ABSENT), after))
        if place != _BUFFERS:
            new[key] = after
        if before is not None:
            old[key] = before
    _plan_flat_weights(swap, own, new)
    return old


def native_new(fields: dict[str, Any]) -> Any:
    """A tensordict of fields, without a batch size."""
    from tensordict._td import TensorDict

    return TensorDict._new(fields, Size(()))


def _plan_flat_weights(swap: Swap, own: dict[str, Any], new: dict[str, Any]) -> None:
    """The list of weights that an RNN module keeps, with the new ones in it."""
    if new and "_flat_weights" in own and "_flat_weights_names" in own:
        names, weights = own["_flat_weights_names"], own["_flat_weights"]
        listed = [new.get(name, weight) for name, weight in zip(names, weights)]
        swap.edits.append((own, "_flat_weights", weights, listed))


def swap_in(node: Any, module: nn.Module, preserve: bool) -> Swap:
    """Puts the leaves of a tensordict into a module and notes what was there. Nothing is written unless all has a place."""
    swap = Swap()
    swap.old = _plan(swap, node, module, preserve, {})
    for holder, key, _, after in swap.edits:
        if after is _ABSENT:
            del holder[key]
        else:
            holder[key] = after
    return swap


def swap_out(swap: Swap) -> None:
    """Puts back what the module had, also where entries were replaced or removed meanwhile."""
    replaced = []
    for index, node, key in swap.sources:
        holder, name, _, after = swap.edits[index]
        now = holder.get(name)
        if now is not after and isinstance(now, Tensor):
            replaced.append((node, key, now))
    for holder, key, before, _ in reversed(swap.edits):
        if before is not _ABSENT:
            holder[key] = before
        elif key in holder:
            del holder[key]
    for holder, order in swap.orders:
        names = order + [name for name in holder if name not in order]
        values = [holder[name] for name in names]
        for name in names:
            del holder[name]
        for name, value in zip(names, values):
            holder[name] = value
    # Ended once, it is ended.
    swap.edits, swap.orders, swap.sources = [], [], []
    for node, key, now in replaced:
        node._set_str(key, now)


def swap_values(swap: Swap) -> dict[str, Any]:
    """The values that the module had, as the fields of a tensordict."""
    return swap.old


def module_fields(module: nn.Module, filter_empty: bool) -> dict[str, Any]:
    """The parameters and buffers of a module as the fields of a tensordict, nested as the submodules are."""
    fields = {}
    for holder in (module._parameters, module._buffers):
        for key, value in holder.items():
            if value is not None:
                fields[key] = value
    for key, child in module._modules.items():
        if child is not None:
            inner = module_fields(child, filter_empty)
            if inner or not filter_empty:
                fields[key] = native_new(inner)
    return fields


TWINS: list[tuple[Any, Any]] = [
    (native.module_fields, module_fields),
    (native.swap_in, swap_in),
    (native.swap_out, swap_out),
    (native.swap_values, swap_values),
]
