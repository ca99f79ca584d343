"""How objects are kept in folders: as JSON where that gives the same object back, else as a pickle."""

from __future__ import annotations

import json
import os
import pickle
from collections import OrderedDict
from hashlib import sha256
from typing import Any

from tensordict._io.as_json import same_in_json
from tensordict._io.tree import OBJECT_WRITERS, READERS, Saved
from tensordict._kernel.native import save_level
from tensordict._kernel.pending import PENDING, wait_for
from tensordict._kernel.turns import TURNS
from tensordict._nontensor.data import MetaData, NonTensorData, NonTensorDataBase
from tensordict._nontensor.stack import NonTensorStack
from tensordict._nontensor.values import holders

_PICKLED = "pickle.pkl"
_OTHER = "other.pickle"


def describe(node: Any) -> tuple[str, list[tuple[str, bytes]]]:
    """What a folder says of a node that holds objects, and the other files in it: their names and bytes."""
    return _describe_stack(node) if node._stacked else _describe_data(node)


def _describe_data(node: Any) -> tuple[str, list[tuple[str, bytes]]]:
    kind = MetaData if isinstance(node, MetaData) else type(node)  # the type of `MetaData[int]` is not written
    metadata: dict[str, Any] = {"_type": str(kind)}
    files = []
    held = {"data": node._data, "_metadata": node._metadata}
    pickled = {name: value for name, value in held.items() if not same_in_json(value)}
    metadata.update({name: value for name, value in held.items() if name not in pickled})
    if pickled:
        files.append((_OTHER, _pickled(pickled)))
    metadata["_is_non_tensor"] = True
    return json.dumps(metadata), files


def _describe_stack(node: Any) -> tuple[str, list[tuple[str, bytes]]]:
    values = node.tolist()
    dims = len(node.batch_size)
    plain = [item._data for item in holders(node)] if -1 not in node.batch_size else []
    in_json = -1 not in node.batch_size and all(map(same_in_json, plain))
    metadata = {
        "_type": str(type(node)),
        "_format_version": 1,
        "_class": f"tensordict:{type(node).__name__}",
        "stack_dim": node.stack_dim,
        "device": "cpu",
        "data": values if in_json else _PICKLED,
        "_batch_dims": dims,
    }
    return json.dumps(metadata), [] if in_json else [(_PICKLED, _pickled(values))]


def resave(node: Any) -> None:
    """Writes a node that holds objects to its folder again, after they were changed in place.

    What is written last is what the last of several threads has left: the objects are looked at in the turn of each.
    """
    folder = node._rare.get("prefix")
    if folder is not None:
        if PENDING:
            wait_for(folder)
        with TURNS.at(os.fspath(folder)):
            save_level(folder, *describe(node), node._rare.get("known") or [])


# The digests of the pickles that this process wrote or read last: those it may read back without being told. There are not
# more than so many, as a process may write pickles for as long as it lives.
_WRITTEN: OrderedDict[bytes, None] = OrderedDict()
_MOST = 1 << 17


def _pickled(value: Any) -> bytes:
    found = pickle.dumps(value)
    _remember(sha256(found).digest())
    return found


def _remember(digest: bytes) -> None:
    _WRITTEN.pop(digest, None)
    _WRITTEN[digest] = None
    while len(_WRITTEN) > _MOST:
        _WRITTEN.popitem(last=False)


def _unpickled(saved: Saved, name: str) -> Any:
    """What a pickle beside the metadata of a level holds.

    Raises:
        UnreadableError: it is not there, or none.
        RuntimeError: reading pickles was not allowed, and this process did not write this one.
    """
    found, allowed = saved.files.get(name), saved.allow_pickle
    if found is None:
        raise saved.unreadable(f"it is that of an object in {name}, and there is none")
    digest = sha256(found).digest()
    if allowed is None and digest in _WRITTEN:
        _remember(digest)
    elif not allowed:
        path = os.path.join(saved.folder, name)
        raise RuntimeError(
            f"Refusing to load pickled non-tensor data from a memory-mapped TensorDict: {path} is a pickle, and reading "
            "one can run any code. Pass allow_pickle=True if the folder comes from where you trust it."
        )
    try:
        return pickle.loads(found)
    except (EOFError, pickle.UnpicklingError) as error:
        raise saved.unreadable(f"the pickle {name} beside it is damaged: {error}") from error


def _read_data(saved: Saved) -> Any:
    metadata = saved.metadata()
    kind = _KINDS.get(metadata["_type"].split(".")[-1].rstrip("'>"))
    held = {name: metadata[name] for name in ("data", "_metadata") if name in metadata}
    if "data" not in held or "_metadata" not in held:
        found = _unpickled(saved, _OTHER)
        held.update(found if isinstance(found, dict) else {})
    if kind is None or "data" not in held:
        raise saved.unreadable(f"it is that of a {metadata['_type']}, and what it holds is no object in one")
    made = kind._of(held["data"])
    object.__setattr__(made, "_metadata", held.get("_metadata"))
    return made


_KINDS: dict[str, type[NonTensorDataBase]] = {kind.__name__: kind for kind in (MetaData, NonTensorData, NonTensorDataBase)}


def _read_stack(saved: Saved) -> Any:
    metadata = saved.metadata()
    values, dim, dims = metadata.get("data"), metadata.get("stack_dim", 0), metadata.get("_batch_dims")
    if values == _PICKLED:
        values = _unpickled(saved, _PICKLED)
    is_count = dims is None or (type(dims) is int and dims > 0)
    if type(values) is not list or type(dim) is not int or not is_count:
        raise saved.unreadable(f"it is that of a stack of objects, with {values!r} along {dim!r} of {dims!r} dimensions")
    try:
        return _stack(values, dims)
    except RecursionError as error:
        raise saved.too_deep() from error
    except (LookupError, OverflowError, RuntimeError, TypeError, ValueError) as error:
        raise saved.unreadable(f"its objects make no stack of {dims} dimensions: {error}") from error


def _stack(values: list[Any], dims: int | None) -> Any:
    """A stack of the objects in nested lists; all lists are parts of it where the number of dimensions is not known."""
    below = None if dims is None else dims - 1
    parts = [_stack(value, below) if type(value) is list and below != 0 else NonTensorData._of(value) for value in values]
    return NonTensorStack._of(parts, 0)


READERS.update({f"<class 'tensordict.tensorclass.{name}'>": _read_data for name in _KINDS})
READERS["tensordict:NonTensorStack"] = READERS["<class 'tensordict.tensorclass.NonTensorStack'>"] = _read_stack
OBJECT_WRITERS.append(describe)
