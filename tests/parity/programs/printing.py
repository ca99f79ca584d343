"""Printed forms across the options."""

SETUP = """
E = torch.ones
_M = TensorDict
plain = _M({"a": E(3, 4), "b": {"c": torch.arange(3), "d": _M({}, [3])}}, [3])
device = _M({"a": E(3, 4), "n": {"x": E(3)}}, [3], device="cpu", names=["t"])
mixed = _M({"a": E(3, device="meta"), "n": _M({"x": E(3, 4, device="meta")}, [3, 4], device="meta"), "z": E(3)}, [3])
_types = [torch.bfloat16, torch.bool, torch.complex64, torch.uint8, torch.float8_e5m2]
dtypes = _M({str(t)[6:]: torch.zeros(2, dtype=t) for t in _types}, [2])
wide = _M({f"key number {i}": {"x": E(2, i), "y": {"z" * 9 * i: E(2)}} for i in range(9)}, [2])
views = _M({"t": E(4, 6).t(), "s": E(4, 6)[::2], "p": torch.nn.Parameter(E(3)), "e": E(1).expand(4), "z": E(0)})
numbers = _M({"f": torch.arange(10) * 1.37, "i": torch.arange(5), "c": torch.tensor([1 + 2j, 1 - 2j]), "b": E(2) > 0})
"""

_NAMES = ["plain", "device", "mixed", "dtypes", "wide", "views"]
_OPTIONS = [
    "",
    "compact=False",
    "verbose=False",
    "verbose=False, compact=False",
    "verbose=False, show_dtype=True",
    "show_batch_size=False",
    "show_device=False",
    "show_is_shared=False",
    "show_shape=False",
    "show_field_device=False",
    "show_dtype=False",
    "show_field_is_shared=False",
    "show_grad=True",
    "show_is_contiguous=True",
    "show_is_view=True",
    "show_storage_size=True",
    "show_grad=True, show_is_contiguous=True, show_is_view=True, show_storage_size=True, verbose=False",
    "sort_keys='insertion'",
    "sort_keys=len",
    "sort_keys=lambda line: line[::-1], compact=False",
    "html=False",
    "compact=True, show_shape=False, show_grad=True",
]
CASES = [
    *(
        f"with set_printoptions({options}): text = repr({name}), {name}._repr_html_()\ntext"
        for name in _NAMES
        for options in _OPTIONS
    ),
    "with set_printoptions(plain=True): text = repr(numbers)\ntext",
    "with set_printoptions(plain=True): text = repr(views)\ntext",
    "print(plain)",
    "print(plain.lock_())",
    "with set_printoptions(compact=False): print(plain.share_memory_())",
    *(f"parse_tensor_dict_string(repr({name}))" for name in _NAMES if name not in ("views",)),
    "set_printoptions(q=1)",
    "set_printoptions(False)",
    "get_printoptions()",
]
