"""State dicts and pickles."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from torch import Tensor
from typing_extensions import Self

from tensordict._kernel.keys import key_of
from tensordict._ops.coerce import as_size
from tensordict._ops.waist import Waist
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

        Raises:
            RuntimeError: the keys differ and `strict` is set, or a value does not fit.
        """
        nested = _nested(state_dict, self, from_flatten)
        if strict:
            _check_same_keys(self, nested)
        if assign:
            self.update(nested)  # type: ignore[attr-defined]
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
            self.update({key: value.clone() for key, value in unlike.items()})  # type: ignore[attr-defined]
        self.update({k: v for k, v in nested.items() if k not in unlike}, inplace=True)  # type: ignore[attr-defined]

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


def _add_state(node: Any, root: Any, out: Any, prefix: str, place: str, keep_vars: bool, flatten: bool) -> None:
    root._metadata[place] = {"batch_size": node.batch_size, "device": node.device}
    for key, value in node._fields().items():
        below = f"{place}.{key}" if place else key
        if isinstance(value, TensorCollection):
            if flatten:
                _add_state(value, root, out, f"{prefix}{key}.", below, keep_vars, True)
            else:
                inner: OrderedDict[str, Any] = OrderedDict()
                _add_state(value, root, inner, "", below, keep_vars, False)
                out[prefix + key] = inner
        else:
            out[prefix + key] = value if keep_vars else value.detach()


def _nested(state: Mapping[str, Any], node: Any, flat: bool | None) -> dict[str, Any]:
    """A state dict as nested dicts, by the keys of `node`, so that keys with dots in them are found."""
    if flat is None:
        flat = not any(isinstance(value, Mapping) for value in state.values())
    if not flat:
        return {key: value for key, value in state.items() if key not in ("__batch_size", "__device")}
    names = {".".join(path if isinstance(path, tuple) else (path,)): path for path in node.keys(True, True)}
    out: dict[str, Any] = {}
    for key, value in state.items():
        if key in ("__batch_size", "__device"):
            continue
        path = names.get(key, tuple(key.split(".")))
        path = path if isinstance(path, tuple) else (path,)
        inner = out
        for part in path[:-1]:
            inner = inner.setdefault(part, {})
        inner[path[-1]] = value
    return out


def _check_same_keys(node: Any, nested: Mapping[str, Any], path: tuple[str, ...] = ()) -> None:
    own = {
        key
        for key, value in node._fields().items()
        if not (isinstance(value, TensorCollection) and value.is_empty())  # type: ignore[attr-defined]
    }
    given = {key for key, value in nested.items() if not (isinstance(value, Mapping) and not value)}
    if own != given:
        where = f" under {key_of(path)!r}" if path else ""
        raise RuntimeError(
            f"Cannot load state-dict because the key sets don't match{where}: got state_dict extra keys "
            f"{sorted(given - own)} and tensordict extra keys {sorted(own - given)}"
        )
    for key in own:
        value = node._fields()[key]
        if isinstance(value, TensorCollection) and isinstance(nested[key], Mapping):
            _check_same_keys(value, nested[key], (*path, key))
