"""A dictionary of tensors that behaves like one tensor."""

from tensordict._kernel.native import __version__
from tensordict._kernel.registry import default_is_leaf, is_leaf_nontensor, is_tensor_collection
from tensordict._kernel.settings import get_defaults_to_none, set_get_defaults_to_none
from tensordict._td import TensorDict
from tensordict._types import NestedKey, TensorCollection
from tensordict.base import TensorDictBase

__all__ = [
    "NestedKey",
    "TensorCollection",
    "TensorDict",
    "TensorDictBase",
    "__version__",
    "default_is_leaf",
    "get_defaults_to_none",
    "is_leaf_nontensor",
    "is_tensor_collection",
    "set_get_defaults_to_none",
]
