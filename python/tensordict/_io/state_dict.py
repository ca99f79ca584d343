"""State dicts and pickles."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor
from typing_extensions import Self

from tensordict._io.plan import OBJECTS, is_one_object, kind_of
from tensordict._kernel.keys import key_of
from tensordict._kernel.registry import is_branch, is_non_tensor
from tensordict._ops.coerce import as_size
from tensordict._ops.waist import Waist
from tensordict._reexport import dense_class, non_tensor
from tensordict._types import TensorCollection

# How pickles name the state; the reference reads and writes the same names.
_STATE = ("_tensordict", "_device", "_batch_size", "_td_dim_names")
_RARE = {"_is_memmap": "memmap", "_is_shared": "shared", "_memmap_prefix": "prefix"}
_DROPPED = ("_is_locked", "_locked_schema", "_last_op", "_cache")


class StateOps(Waist):
    """`state_dict`, `load_state_dict`, `__getstate__`, `__setstate__`."""

    __slots__ = ()

    def state_dict(
        self, destination: Any = None, prefix: str = "", keep_vars: bool = False, flatten: bool = True
    ) -> OrderedDict[str, Any]:
        """The leaves by name, as `torch.nn.Module.state_dict` gives them; storage is shared.

        Objects are in its metadata, beside batch size and device: those of a tensorclass as `_non_tensor` of its place.

        Args:
            destination: an ordered dict to add to.
            prefix: put before each name.
            keep_vars: give the leaves themselves instead of detached ones.
            flatten: give all leaves at one level, under names joined by dots, instead of nested dicts.
        """
        out: Any = OrderedDict() if destination is None else destination
        if not hasattr(out, "_metadata"):
            out._metadata = OrderedDict()
        _add_state(self, out, out, prefix, prefix[:-1], keep_vars, flatten)
        return out

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False, from_flatten: bool | None = None
    ) -> Self:
        """Takes over the values of a state dict, flat or nested; all, or none if one does not fit.

        Args:
            state_dict: what `state_dict` gave.
            strict: the keys must be the same.
            assign: store the tensors of the state dict themselves, instead of copying into the leaves.
            from_flatten: whether the state dict is flat; found out if not given.

        Objects are taken from the metadata of the state dict, if it has any.

        Raises:
            RuntimeError: the keys differ and `strict` is set, or a value does not fit.
            KeyError: a key is no field of a tensorclass, and `strict` is set.
        """
        nested = _nested(state_dict, self, from_flatten)
        if strict:
            _check_same_keys(self, nested)
        nested = _known(self, nested)
        if assign:
            self.update(nested)
        else:
            self._take_values(nested)
        metadata = getattr(state_dict, "_metadata", {}).get("")
        if metadata and "batch_size" in metadata:
            target: Any = self
            target.batch_size = as_size(metadata["batch_size"])
        return self

    def _take_values(self, nested: Mapping[str, Any]) -> None:
        """Copies values into leaves of the same shape, and replaces leaves of another."""
        unlike = {
            key: value
            for key, value in nested.items()
            if isinstance(value, Tensor) and getattr(self._fields().get(key), "shape", None) != value.shape
        }
        if unlike:
            self.update({key: value.clone() for key, value in unlike.items()})
        self.update({k: v for k, v in nested.items() if k not in unlike}, inplace=True)

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = {name: getattr(self, name) for name in _STATE}
        if self.is_locked:
            state["_is_locked"] = True
        rare = self._extra or {}
        if rare.get("memmap"):
            state.update(_is_memmap=True, _is_shared=False, _memmap_prefix=rare.get("prefix"))
        elif rare.get("shared"):
            state["_is_shared"] = True
        own = getattr(self, "__dict__", None)
        return {**state, **own} if own else state

    def __setstate__(self, state: dict[str, Any]) -> None:
        target: Any = self
        target._extra = None
        target._is_locked = False
        for slot in _STATE:
            setattr(target, slot, None)
        for name, value in state.items():
            if name in _STATE:
                setattr(target, name, value)
            elif name in _RARE:
                if value:
                    target._rare[_RARE[name]] = value
            elif name not in _DROPPED and hasattr(self, "__dict__"):
                self.__dict__[name] = value
        if state.get("_is_locked"):
            target.lock_()


def _described(node: Any) -> dict[str, Any]:
    """What the metadata of a state dict say of a node."""
    found: dict[str, Any] = {"batch_size": node.batch_size, "device": node.device}
    if kind_of(node) is OBJECTS:
        one = is_one_object(node)
        objects = {"data": node.data, "_metadata": node._metadata, "_is_non_tensor": True} if one else {}
    elif node._schema is not None:
        fields = node._fields()
        objects = {name: None for name in node._schema.fields if name not in fields}
        objects.update({key: value.data for key, value in fields.items() if is_one_object(value)})
    else:
        return found
    return {**found, "_type": type(node).__name__, "_non_tensor": objects} if objects else found


def _add_state(node: Any, root: Any, out: Any, prefix: str, place: str, keep_vars: bool, flatten: bool) -> None:
    root._metadata[place] = _described(node)
    for key, value in list(node._fields().items()):
        if not isinstance(value, TensorCollection):
            out[prefix + key] = value if keep_vars else value.detach()
        elif node._schema is not None and is_one_object(value):
            continue  # the metadata of the tensorclass have it
        elif flatten:
            _add_state(value, root, out, f"{prefix}{key}.", f"{place}.{key}" if place else key, keep_vars, True)
        else:
            inner: Any = OrderedDict()
            inner._metadata = OrderedDict()
            _add_state(value, inner, inner, "", "", keep_vars, False)
            out[prefix + key] = inner


def _nested(state: Mapping[str, Any], node: Any, flat: bool | None) -> dict[str, Any]:
    """A state dict as nested dicts with the objects in it, by the keys of `node`, so that keys with dots in them are found."""
    if flat is None:
        flat = not any(isinstance(value, Mapping) for value in state.values())
    if not flat:
        return _with_objects(state)
    names = {".".join(path if isinstance(path, tuple) else (path,)): path for path in node.keys(True)}
    out: dict[str, Any] = {}
    for key, value in state.items():
        if key not in _LEGACY:
            _put(out, _path(key, names), value)
    for place, found in getattr(state, "_metadata", {}).items():
        for path, value in _objects(found):
            _put(out, (*(_path(place, names) if place else ()), *path), value)
    return out


_UNSET = object()  # a field of a tensorclass that is not set
# Entries of state dicts that older releases wrote.
_LEGACY = ("__batch_size", "__device")


def _path(name: str, names: dict[str, Any]) -> tuple[str, ...]:
    path = names.get(name, tuple(name.split(".")))
    return path if isinstance(path, tuple) else (path,)


def _put(out: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for part in path[:-1]:
        out = out.setdefault(part, {})
    out[path[-1]] = value


def _objects(found: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The objects in the metadata of one place, and where they are below it."""
    objects = found.get("_non_tensor", {})
    if "_is_non_tensor" in objects:
        yield (), non_tensor(objects.get("data"))
        return
    for name, value in objects.items():
        yield (name,), _UNSET if value is None else non_tensor(value)


def _with_objects(state: Mapping[str, Any]) -> Any:
    """A nested state dict with the objects of its metadata; in the place of that of a holder, its object."""
    if "_tensordict" in state and not state.keys() - {"_tensordict", "_non_tensordict"}:  # as older releases wrote them
        out: dict[str, Any] = dict(_with_objects(state["_tensordict"]))
        own = {"_non_tensor": state.get("_non_tensordict", {})}
    else:
        out = {
            key: _with_objects(value) if isinstance(value, Mapping) else value
            for key, value in state.items()
            if key not in _LEGACY
        }
        own = getattr(state, "_metadata", {}).get("", {})
    for path, value in _objects(own):
        if not path:
            return value
        out[path[0]] = value
    return out


def _known(node: Any, nested: Mapping[str, Any]) -> dict[str, Any]:
    """What of nested dicts can be stored in `node`: nothing that is no field of a tensorclass or was not set."""
    schema, fields = node._schema, node._fields()
    out = {}
    for key, value in nested.items():
        inner = fields.get(key)
        if value is _UNSET or (schema is not None and key not in schema.fields):
            continue
        if not isinstance(value, Mapping):
            out[key] = value
        elif is_branch(inner):
            out[key] = _known(inner, value)
        elif schema is None and not isinstance(inner, TensorCollection):
            out[key] = _known(dense_class()(), value)
    return out


def _check_same_keys(node: Any, nested: Mapping[str, Any], path: tuple[str, ...] = ()) -> None:
    fields = node._fields()
    foreign = set() if node._schema is None else nested.keys() - node._schema.fields
    if foreign:
        raise KeyError(f"Key {key_of((*path, min(foreign)))!r} wasn't expected in the state-dict.")
    own, given = (
        {key for key, value in found.items() if not (value is _UNSET or is_non_tensor(value) or _is_bare(value))}
        for found in (fields, nested)
    )
    if own != given:
        where = f" under {key_of(path)!r}" if path else ""
        raise RuntimeError(
            f"Cannot load state-dict because the key sets don't match{where}: got state_dict extra keys "
            f"{sorted(given - own)} and tensordict extra keys {sorted(own - given)}"
        )
    for key in own:
        if isinstance(fields[key], TensorCollection) and isinstance(nested[key], Mapping):
            _check_same_keys(fields[key], nested[key], (*path, key))


def _is_bare(value: Any) -> bool:
    return value.is_empty() if isinstance(value, TensorCollection) else isinstance(value, Mapping) and not value
