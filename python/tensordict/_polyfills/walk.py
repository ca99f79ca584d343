"""Twins of the walks through a tree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensordict._kernel import native
from tensordict._kernel.keys import path_of
from tensordict._kernel.registry import default_is_leaf, is_branch
from tensordict._ops.keys import must_have
from tensordict._ops.trees import Tree, by_member
from tensordict._types import Key, Path, TensorCollection

IsLeaf = Callable[[type], bool]


def _walk(
    node: Any, prefix: Path, wanted: tuple[bool, bool, IsLeaf], out: list[tuple[Key, Any]], values: bool
) -> list[tuple[Key, Any]]:
    """Appends `(key, entry)` for every entry below `node`; what is below an entry comes before it.

    Without `values` an entry may be something in its place (see `Waist._outline`).
    """
    nested, leaves_only, is_leaf = wanted
    for name, value in node._entries().items() if values else node._outline():
        key: Key = (*prefix, name) if prefix else name
        if (nested or leaves_only) and isinstance(value, TensorCollection):
            leaf = is_leaf(type(value))
            if nested and not leaf:
                _walk(value, (*prefix, name), wanted, out, values)
            if leaves_only and not leaf:
                continue
        out.append((key, value))
    return out


def keys_below(node: Any, nested: bool, leaves_only: bool, is_leaf: IsLeaf | None) -> list[Any]:
    """The keys of the entries below `node`; what is below an entry comes before it."""
    pairs = _walk(node, (), (nested, leaves_only, default_is_leaf if is_leaf is None else is_leaf), [], False)
    return [key for key, _ in pairs]


def items_below(node: Any, nested: bool, leaves_only: bool, is_leaf: IsLeaf | None) -> list[tuple[Any, Any]]:
    """The pairs of key and entry below `node`, in the order of `keys_below`."""
    return _walk(node, (), (nested, leaves_only, default_is_leaf if is_leaf is None else is_leaf), [], True)


def values_below(node: Any, nested: bool, leaves_only: bool, is_leaf: IsLeaf | None) -> list[Any]:
    """The entries below `node`, in the order of `keys_below`."""
    return [value for _, value in items_below(node, nested, leaves_only, is_leaf)]


def count_below(node: Any, nested: bool, leaves_only: bool, is_leaf: IsLeaf | None) -> int:
    """How many keys `keys_below` gives."""
    return len(keys_below(node, nested, leaves_only, is_leaf))


def copy_nodes(node: Any, anew: bool = False) -> Any:
    """A copy of the nodes, unlocked; the leaves are shared. With `anew`, lists and dicts that are objects are new as well."""
    pieces = node._pieces()
    for key, part in pieces.items():
        if isinstance(part, TensorCollection):
            pieces[key] = copy_nodes(part, anew)
    made = node._from_pieces(pieces)
    return made._apart(None) if anew else made


def collect(node: Any, leaves: list[Any]) -> Tree:
    """The tree below `node`, whose leaves are appended to `leaves`, depth first."""
    pieces = node._pieces()
    for key, part in pieces.items():
        if isinstance(part, TensorCollection):
            pieces[key] = collect(part, leaves)
        else:
            leaves.append(part)
    return node, pieces


@by_member()
def selected(node: Any, keys: tuple[Any, ...], strict: bool) -> Any:
    """A container like `node` of the entries `keys` alone; the leaves are shared. The members of a stack are chosen from."""
    fields = node._entries()
    chosen: dict[str, Any] = {}
    below: dict[str, list[Path]] = {}
    for path in [path_of(key) for key in keys]:
        name = path[0]
        if strict and (name not in fields or len(path) > 1):
            must_have(node, path)
        if name not in fields or (len(path) > 1 and not isinstance(fields[name], TensorCollection)):
            continue
        if len(path) == 1:
            chosen[name] = fields[name]
            below.pop(name, None)
        elif name not in chosen or name in below:
            chosen.setdefault(name, None)
            below.setdefault(name, []).append(path[1:])
    for name, rest in below.items():
        chosen[name] = selected(fields[name], tuple(rest), False)
    return node._rebuild(chosen, node.batch_size, node.device, node._names)


@by_member()
def excluded(node: Any, keys: tuple[Any, ...]) -> Any:
    """A container like `node` without the entries `keys`; the leaves are shared. Members of a stack are left out of."""
    fields = node._entries()
    below: dict[str, list[Path]] = {}
    for path in [path_of(key) for key in keys]:
        if len(path) == 1:
            fields.pop(path[0], None)
        else:
            below.setdefault(path[0], []).append(path[1:])
    for name, rest in below.items():
        if isinstance(fields.get(name), TensorCollection):
            fields[name] = excluded(fields[name], tuple(rest))
    return node._rebuild(fields, node.batch_size, node.device, node._names)


@by_member()
def flattened(node: Any, separator: str, is_leaf: IsLeaf | None) -> Any:
    """A container like `node` of all leaves at one level, under their keys joined by `separator`; stacks by their members."""
    flat: dict[str, Any] = {}
    clash: list[Key] = []
    _flatten(node, "", separator, default_is_leaf if is_leaf is None else is_leaf, flat, clash)
    if clash:
        raise KeyError(f"Flattening keys in tensordict causes keys {clash} to collide.")
    return node._rebuild(flat, node.batch_size, node.device, node._names)


def _flatten(node: Any, prefix: str, separator: str, is_leaf: IsLeaf, out: dict[str, Any], clash: list[Key]) -> None:
    for name, value in node._entries().items():
        key = prefix + name
        if is_branch(value) and not is_leaf(type(value)):
            _flatten(value, key + separator, separator, is_leaf, out, clash)
        elif key in out:
            clash.append(tuple(key.split(separator)))
        else:
            out[key] = value


@by_member()
def unflattened(node: Any, separator: str) -> Any:
    """A container like `node` in which a key that holds `separator` is a path of nested keys; stacks by their members."""
    out = node._rebuild({}, node.batch_size, node.device, node._names)
    fields = node._entries()
    for key, value in fields.items():
        if separator not in key:  # nodes are copied, since paths may be written into them
            out._set_str(key, copy_nodes(value) if isinstance(value, TensorCollection) else value)
    for key, value in fields.items():
        if separator in key:
            _unflatten(out, tuple(key.split(separator)), value)
    return out


def _unflatten(node: Any, path: Path, value: Any) -> None:
    whole = path
    while len(path) > 1:
        below = node._fields().get(path[0])
        if below is None:
            below = node._rebuild({}, node.batch_size, node.device, node._names)
            node._set_str(path[0], below)
        elif not isinstance(below, TensorCollection):
            break
        node, path = below, path[1:]
    if path[0] in node._fields():
        raise KeyError(f"Unflattening key(s) in tensordict will override an existing for unflattened key {whole}.")
    node._set_str(path[0], value)


TWINS: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
    (native.collect, collect),
    (native.copy_nodes, copy_nodes),
    (native.count_below, count_below),
    (native.excluded, excluded),
    (native.flattened, flattened),
    (native.items_below, items_below),
    (native.keys_below, keys_below),
    (native.selected, selected),
    (native.unflattened, unflattened),
    (native.values_below, values_below),
]
