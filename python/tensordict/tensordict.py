"""The classes and functions under the name of the module that first had them (a public module of the reference)."""

from tensordict._kernel.registry import is_tensor_collection
from tensordict._kernel.shapes import expand_as_right, expand_right
from tensordict._lazy import LazyStackedTensorDict
from tensordict._td import TensorDict
from tensordict._tensorclass.decorator import is_tensorclass
from tensordict._types import NO_DEFAULT, NestedKey
from tensordict.base import TensorDictBase
from tensordict.functional import dense_stack_tds, make_tensordict, merge_tensordicts, pad, pad_sequence
from tensordict.memmap import MemoryMappedTensor
from tensordict.testing import assert_allclose_td

__all__ = [
    "NO_DEFAULT",
    "LazyStackedTensorDict",
    "MemoryMappedTensor",
    "NestedKey",
    "TensorDict",
    "TensorDictBase",
    "assert_allclose_td",
    "dense_stack_tds",
    "expand_as_right",
    "expand_right",
    "is_tensor_collection",
    "is_tensorclass",
    "make_tensordict",
    "merge_tensordicts",
    "pad",
    "pad_sequence",
]
