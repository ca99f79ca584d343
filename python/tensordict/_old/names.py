"""Names that programs import from where they once were, mostly private ones: one table, read when a name is asked for.

A module that programs name and that has no other content is a file of one line beside this one (`_C`, `_pytree`, ...). A
module of ours asks the table for the names that it does not have itself.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

# What several modules of the reference had, each under the same name.
_COMMON = {
    "CompatibleType": "_types",
    "DeviceType": "_types",
    "IndexType": "_types",
    "KEY_SEPARATOR": "_types",
    "MemoryMappedTensor": "memmap",
    "NO_DEFAULT": "_types",
    "NestedKey": "_types",
    "T": "_types",
    "TensorCollection": "_types",
    "_GENERIC_NESTED_ERR": "_old.objects",
    "_KEY_ERROR": "_old.objects",
    "_LOCK_ERROR": "_old.objects",
    "_default_is_leaf": "_kernel.registry:default_is_leaf",
    "_getitem_batch_size": "_kernel.index:batch_size_at",
    "_is_leaf_nontensor": "_kernel.registry:is_leaf_nontensor",
    "_is_tensor_collection": "_kernel.registry:is_tensor_collection",
    "_maybe_correct_neg_dim": "_old.objects",
    "_shape": "_kernel.shapes:shape_of",
    "_unravel_key_to_tuple": "_kernel.native:unravel_key_to_tuple",
    "_zip_strict": "_old.objects",
    "convert_ellipsis_to_idx": "_kernel.index:without_ellipsis",
    "expand_as_right": "_kernel.shapes",
    "is_tensor_collection": "_kernel.registry",
    "unravel_key": "_kernel.native",
    "unravel_key_list": "_kernel.native",
}

# Old module -> name -> home: a module of ours and, after a colon, the name of the object there if it has another one.
TABLE: dict[str, dict[str, str]] = {
    "_C": {
        "_unravel_key_to_tuple": "_kernel.native:unravel_key_to_tuple",
        "unravel_key": "_kernel.native",
        "unravel_key_list": "_kernel.native",
        "unravel_keys": "_kernel.native",
    },
    "_indexing": {
        "_getitem_batch_size": "_kernel.index:batch_size_at",
        "convert_ellipsis_to_idx": "_kernel.index:without_ellipsis",
    },
    "_nestedkey": {"NestedKey": "_types", "_NestedKeyMeta": "_types"},
    "_pytree": {
        "PYTREE_REGISTERED_TDS": "_torch.pytree:REGISTERED",
        "_td_flatten_with_keys": "_torch.pytree:flatten_with_keys",
        "_tensordict_flatten": "_torch.pytree:flatten",
        "_tensordict_unflatten": "_torch.pytree:unflatten",
    },
    "_td": {
        **_COMMON,
        "_SubTensorDict": "_views.rows",
        "_TensorDictKeysView": "_ops.keys:TreeKeys",
        "append_memmap": "_io.functions",
        "cat": "functional",
        "from_consolidated": "_io.functions",
        "from_module": "_module.conversions",
        "from_pytree": "_convert.functions",
        "fromkeys": "_convert.functions",
        "lazy_stack": "_lazy.functions",
        "load": "_io.functions",
        "load_memmap": "_io.functions",
        "maybe_dense_stack": "_lazy.functions",
        "memmap": "_io.functions",
        "save": "_io.functions",
        "stack": "functional",
    },
    "_tensorcollection": {"T": "_types", "TensorCollection": "_types"},
    "_torch_func": {
        "TD_HANDLED_FUNCTIONS": "_kernel.registry:TORCH_FUNCTIONS",
        "_cat": "functional:cat",
        "_stack": "_old.objects",
    },
    "_unbatched": {"UnbatchedTensor": "_leaves.unbatched"},
    "base": {**_COMMON, "Buffer": "_old.objects", "_NoDefault": "_types"},
    "_utils_options": {
        "_REPR_OPTIONS": "_kernel.printoptions:REPR_OPTIONS",
        "capture_non_tensor_stack": "_kernel.settings",
        "get_printoptions": "_kernel.printoptions",
        "lazy_legacy": "_kernel.settings",
        "list_to_stack": "_kernel.settings",
        "set_capture_non_tensor_stack": "_kernel.settings",
        "set_lazy_legacy": "_kernel.settings",
        "set_list_to_stack": "_kernel.settings",
        "set_printoptions": "_kernel.printoptions",
    },
    "utils": {
        **_COMMON,
        "LOGGING_LEVEL": "_kernel.log",
        "NUMPY_TO_TORCH_DTYPE_DICT": "_old.objects",
        "_DTYPE2STRDTYPE": "_old.objects:STR_DTYPE_TO_DTYPE",
        "_DTYPE_TO_STR_DTYPE": "_old.objects:DTYPE_TO_STR_DTYPE",
        "_NUMPY_TO_TORCH_DTYPE_DICT": "_old.objects:NUMPY_TO_TORCH_DTYPE_DICT",
        "_REPR_OPTIONS": "_kernel.printoptions:REPR_OPTIONS",
        "_STRDTYPE2DTYPE": "_old.objects:STR_DTYPE_TO_DTYPE",
        "_STR_DTYPE_TO_DTYPE": "_old.objects:STR_DTYPE_TO_DTYPE",
        "_TORCH_TO_NUMPY_DTYPE_DICT": "_old.objects:TORCH_TO_NUMPY_DTYPE_DICT",
        "_decode_key_from_filesystem": "_old.objects",
        "_encode_key_for_filesystem": "_old.objects",
        "_get_robust_key_setting": "_old.objects",
        "_get_robust_key_setting_with_warning": "_old.objects",
        "_is_dataclass": "_old.objects:is_dataclass",
        "_is_namedtuple": "_convert.anything:is_namedtuple",
        "_is_nested_key": "_types",
        "_is_safe_legacy_key": "_old.objects",
        "_is_seq_of_nested_key": "_old.objects:is_seq_of_nested_key",
        "_pass_through": "_leaves.unbatched:passes_through",
        "_prod": "_old.objects:prod",
        "capture_non_tensor_stack": "_kernel.settings",
        "is_non_tensor": "_kernel.registry",
        "is_tensorclass": "_tensorclass.decorator",
        "list_to_stack": "_kernel.settings",
        "set_capture_non_tensor_stack": "_kernel.settings",
        "set_list_to_stack": "_kernel.settings",
        "_strtobool": "_kernel.settings:truth",
        "_td_fields": "_old.objects",
        "_unravel_keys": "_kernel.native:unravel_key",
        "get_json_backend": "_old.objects",
        "is_batchedtensor": "_old.objects",
        "is_seq_of_nested_key": "_old.objects",
        "json_dumps": "_old.objects",
        "set_json_backend": "_old.objects",
        "strtobool": "_kernel.settings:truth",
        "unravel_keys": "_kernel.native:unravel_key",
    },
}


def resolver(module: str) -> Callable[[str], Any]:
    """The `__getattr__` of the module `module` of this package: a name of the table is looked up in its home."""
    short = module.removeprefix("tensordict.").removeprefix("_old.")
    names = TABLE[short]

    def __getattr__(name: str) -> Any:
        if name == "__all__":
            return sorted(names)
        home = names.get(name)
        if home is None:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        where, _, own = home.partition(":")
        return getattr(import_module(f"tensordict.{where}"), own or name)

    return __getattr__
