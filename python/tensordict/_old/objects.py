"""What programs import from old places and nothing here needs (see `_old.names`)."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import unquote_to_bytes

import numpy as np
import torch
from torch.nn import Buffer as Buffer

from tensordict._kernel.errors import LOCKED
from tensordict._kernel.native import key_file_name
from tensordict._kernel.printoptions import get_printoptions
from tensordict._kernel.shapes import wrap
from tensordict._ops.repr import _long
from tensordict._types import NestedKey, TensorCollection
from tensordict.functional import stack

_GENERIC_NESTED_ERR = (
    "Only NestedKeys are supported: a key must be a string or a non-empty, possibly nested tuple of strings. Got key {!r}."
)
_KEY_ERROR = 'key "{}" not found in {} with keys {}'
_LOCK_ERROR = LOCKED

_DTYPES = (
    *(torch.bool, torch.bfloat16, torch.float16, torch.float32, torch.float64),
    *(torch.complex32, torch.complex64, torch.complex128),
    *(torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32, torch.uint64),
    *(torch.qint8, torch.qint32, torch.quint8, torch.quint4x2),
)
STR_DTYPE_TO_DTYPE = {str(dtype): dtype for dtype in _DTYPES}
DTYPE_TO_STR_DTYPE = {dtype: name for name, dtype in STR_DTYPE_TO_DTYPE.items()}
_SHARED = "bool complex64 complex128 float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64"
TORCH_TO_NUMPY_DTYPE_DICT = {getattr(torch, name): np.dtype(name) for name in _SHARED.split()}
NUMPY_TO_TORCH_DTYPE_DICT = {array: dtype for dtype, array in TORCH_TO_NUMPY_DTYPE_DICT.items()}

_zip_strict = functools.partial(zip, strict=True)
is_batchedtensor = torch._C._functorch.is_batchedtensor
is_dataclass = dataclasses.is_dataclass


def prod(sizes: Iterable[int]) -> int:
    """The product of sizes."""
    return math.prod(sizes)


def is_seq_of_nested_key(keys: Any) -> bool:
    """Whether `keys` is a list, tuple or string whose elements are all keys."""
    return isinstance(keys, Sequence) and all(isinstance(key, NestedKey) for key in keys)


def _maybe_correct_neg_dim(dim: int, shape: Sequence[int] | None, ndim: int | None = None) -> int:
    """`dim` counted from the front.

    Raises:
        IndexError: there is no such dimension.
    """
    dims = len(shape) if shape is not None else ndim or 0
    shown = shape if shape is not None else (dims,)
    return wrap(dim, dims, lambda: IndexError(f"Incompatible dim {dim} for tensordict with shape {shown}."))


def _td_fields(td: Any) -> str:
    """The entries as the long form of `repr` shows them, each on a line."""
    options = get_printoptions()
    rows = [(key, repr(value) if isinstance(value, TensorCollection) else _long(value, options)) for key, value in td.items()]
    return "\n" + ",\n".join(f"    {key}: {text}" for key, text in rows)


def _encode_key_for_filesystem(key: str, robust: bool = True) -> str:
    """The name that a file for `key` has; the key itself if it is not `robust`."""
    return key_file_name(key, True) if robust else key


def _get_robust_key_setting(robust_key: bool | None) -> bool:
    """Whether keys are percent-encoded in the names of files: they are, unless that is refused."""
    return robust_key is not False


def _get_robust_key_setting_with_warning(key: str, robust_key: bool | None) -> bool:
    """The same; no key is worth a warning."""
    return _get_robust_key_setting(robust_key)


def _is_safe_legacy_key(key: str, *, is_collection: bool = False) -> bool:
    """Whether the file of a key that is not encoded, or its folder if it is a collection, stays in the folder it belongs to."""
    return not (any(mark in key for mark in "/\\:") or (is_collection and key in ("", ".", "..")))


def _stack(
    list_of_tensordicts: Sequence[Any], dim: int = 0, *, out: Any = None, strict: bool = False, contiguous: bool = False
) -> Any:
    """`tensordict.stack` with options that mean nothing: keys always have to be the same, and leaves are contiguous."""
    return stack(list_of_tensordicts, dim, out=out)


def set_json_backend(backend: str) -> None:
    """Accepts the name of a JSON library; metadata are written by the standard one, whose text all libraries read.

    Raises:
        ValueError: it is none of `"json"` and `"orjson"`.
    """
    if backend not in ("json", "orjson"):
        raise ValueError(f"Backend must be either 'json' or 'orjson', got {backend!r}")


def get_json_backend() -> Any:
    """The module that writes metadata."""
    return json


json_dumps = json.dumps


def _decode_key_from_filesystem(name: str) -> str:
    """The key that a file called `name` is for."""
    return "" if name == "%" else unquote_to_bytes(name).decode()
