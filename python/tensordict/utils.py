"""Helpers around tensordicts (a public module of the reference)."""

from typing import TYPE_CHECKING

from torch.nn import Buffer

from tensordict._convert.linked_list import LinkedList
from tensordict._convert.printed import parse_tensor_dict_string
from tensordict._io.memmap import TensorDictFuture
from tensordict._io.tree_print import print_directory_tree
from tensordict._kernel.dtype import is_bool, is_floating, is_inexact, is_integer
from tensordict._kernel.index import batch_size_at as _getitem_batch_size
from tensordict._kernel.index import without_ellipsis as convert_ellipsis_to_idx
from tensordict._kernel.log import logger
from tensordict._kernel.native import unravel_key, unravel_key_list, unravel_key_to_tuple
from tensordict._kernel.printoptions import get_printoptions, set_printoptions
from tensordict._kernel.settings import lazy_legacy, set_lazy_legacy
from tensordict._kernel.shapes import expand_as_right, expand_right
from tensordict._kernel.timing import timeit
from tensordict._old.names import resolver
from tensordict._ops.check import _TensorDictPropertyError
from tensordict._ops.check import check_tree as _check_recursive_properties
from tensordict._types import KEY_SEPARATOR, DeviceType, IndexType, NestedKey
from tensordict.functional import isin, remove_duplicates
from tensordict.testing import assert_allclose_td, assert_close

if not TYPE_CHECKING:
    __getattr__ = resolver(__name__)

__all__ = [
    "KEY_SEPARATOR",
    "Buffer",
    "DeviceType",
    "IndexType",
    "LinkedList",
    "NestedKey",
    "TensorDictFuture",
    "_TensorDictPropertyError",
    "_check_recursive_properties",
    "_getitem_batch_size",
    "assert_allclose_td",
    "assert_close",
    "convert_ellipsis_to_idx",
    "expand_as_right",
    "expand_right",
    "get_printoptions",
    "is_bool",
    "is_floating",
    "is_inexact",
    "is_integer",
    "isin",
    "lazy_legacy",
    "logger",
    "parse_tensor_dict_string",
    "print_directory_tree",
    "remove_duplicates",
    "set_lazy_legacy",
    "set_printoptions",
    "timeit",
    "unravel_key",
    "unravel_key_list",
    "unravel_key_to_tuple",
]
