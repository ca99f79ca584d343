"""A dictionary of tensors that behaves like one tensor."""

import tensordict.tensorclass  # noqa: F401  first: below, the name is that of the decorator
from tensordict import _polyfills
from tensordict import _torch as _torch
from tensordict._convert.functions import (
    from_any,
    from_dict,
    from_namedtuple,
    from_pytree,
    from_struct_array,
    from_tuple,
    fromkeys,
)
from tensordict._convert.printed import parse_tensor_dict_string
from tensordict._io.functions import append_memmap, from_consolidated, load, load_memmap, memmap, save
from tensordict._kernel.dtype import is_bool, is_floating, is_inexact, is_integer
from tensordict._kernel.native import __version__, unravel_key, unravel_key_list, unravel_key_to_tuple
from tensordict._kernel.printoptions import get_printoptions, set_printoptions
from tensordict._kernel.registry import default_is_leaf, is_leaf_nontensor, is_non_tensor, is_tensor_collection
from tensordict._kernel.settings import (
    capture_non_tensor_stack,
    get_defaults_to_none,
    lazy_legacy,
    list_to_stack,
    set_capture_non_tensor_stack,
    set_get_defaults_to_none,
    set_lazy_legacy,
    set_list_to_stack,
)
from tensordict._lazy import LazyStackedTensorDict
from tensordict._leaves.unbatched import UnbatchedTensor
from tensordict._module.conversions import from_module, from_modules
from tensordict._nontensor import MetaData, NonTensorData, NonTensorDataBase, NonTensorStack, TensorAttrs
from tensordict._ops.pack import PackLayout
from tensordict._td import TensorDict
from tensordict._tensorclass.cls import TensorClass
from tensordict._tensorclass.decorator import from_dataclass, is_tensorclass, tensorclass
from tensordict._types import KEY_SEPARATOR, NestedKey, TensorCollection
from tensordict.base import TensorDictBase
from tensordict.functional import (
    cat,
    collate,
    dense_stack_tds,
    group_by,
    lazy_stack,
    make_tensordict,
    maybe_dense_stack,
    merge_tensordicts,
    pad,
    pad_sequence,
    stack,
    unpad_sequence,
)
from tensordict.memmap import MemoryMappedTensor
from tensordict.testing import assert_allclose_td, assert_close
from tensordict.typedtensordict import TypedTensorDict

__all__ = [
    "KEY_SEPARATOR",
    "LazyStackedTensorDict",
    "MemoryMappedTensor",
    "MetaData",
    "NestedKey",
    "NonTensorData",
    "NonTensorDataBase",
    "NonTensorStack",
    "PackLayout",
    "TensorAttrs",
    "TensorClass",
    "TensorCollection",
    "TensorDict",
    "TensorDictBase",
    "TypedTensorDict",
    "UnbatchedTensor",
    "__version__",
    "append_memmap",
    "assert_allclose_td",
    "assert_close",
    "capture_non_tensor_stack",
    "cat",
    "collate",
    "default_is_leaf",
    "dense_stack_tds",
    "from_any",
    "from_consolidated",
    "from_dataclass",
    "from_dict",
    "from_module",
    "from_modules",
    "from_namedtuple",
    "from_pytree",
    "from_struct_array",
    "from_tuple",
    "fromkeys",
    "get_defaults_to_none",
    "get_printoptions",
    "group_by",
    "is_bool",
    "is_floating",
    "is_inexact",
    "is_integer",
    "is_leaf_nontensor",
    "is_non_tensor",
    "is_tensor_collection",
    "is_tensorclass",
    "lazy_legacy",
    "lazy_stack",
    "list_to_stack",
    "load",
    "load_memmap",
    "make_tensordict",
    "maybe_dense_stack",
    "memmap",
    "merge_tensordicts",
    "pad",
    "pad_sequence",
    "parse_tensor_dict_string",
    "save",
    "set_capture_non_tensor_stack",
    "set_get_defaults_to_none",
    "set_lazy_legacy",
    "set_list_to_stack",
    "set_printoptions",
    "stack",
    "tensorclass",
    "unpad_sequence",
    "unravel_key",
    "unravel_key_list",
    "unravel_key_to_tuple",
]

__path__.append(f"{__path__[0]}/_old")  # where `tensordict._C` and other names of old are found
_polyfills.install()
