"""Names that programs import from their old places."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch

import tensordict
from tensordict import TensorDict
from tensordict._old.names import TABLE

NAMES = [(module, name) for module, names in TABLE.items() for name in names]


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_each_row_leads_somewhere(module: str, name: str) -> None:
    home, _, own = TABLE[module][name].partition(":")
    found = getattr(importlib.import_module(f"tensordict.{module}"), name)
    assert found is getattr(importlib.import_module(f"tensordict.{home}"), own or name)


@pytest.mark.parametrize("module", list(TABLE))
def test_names_that_are_nowhere(module: str) -> None:
    with pytest.raises(AttributeError, match=f"tensordict.{module}.*_no_such_name"):
        _ = importlib.import_module(f"tensordict.{module}")._no_such_name
    with pytest.raises(ImportError):
        exec(f"from tensordict.{module} import _no_such_name")


def test_public_modules() -> None:
    for module in ("tensordict", "testing", "utils", "base", "functional"):
        found = importlib.import_module(f"tensordict.{module}")
        for name in found.__all__:
            assert hasattr(found, name), (module, name)
    from tensordict.tensordict import TensorDict as Old

    assert Old is TensorDict
    assert tensordict.assert_close is tensordict.assert_allclose_td is tensordict.testing.assert_close


# What they give, by an expression and its value.
VALUES: list[tuple[str, str, Any]] = [
    ("_C", "unravel_keys(('a', ('b',)))", ("a", "b")),
    ("_C", "_unravel_key_to_tuple('a')", ("a",)),
    ("_C", "unravel_key_list(['a', ('b', ('c',))])", ["a", ("b", "c")]),
    ("utils", "_unravel_key_to_tuple(1)", ()),
    ("utils", "_getitem_batch_size((3, 2), (slice(2), 0))", torch.Size([2])),
    ("utils", "list(_zip_strict([1], [2]))", [(1, 2)]),
    ("utils", "_maybe_correct_neg_dim(-1, (3, 2))", 1),
    ("utils", "_maybe_correct_neg_dim(-3, None, ndim=3)", 0),
    ("utils", "is_seq_of_nested_key(['a', ('b', 'c')])", True),
    ("utils", "is_seq_of_nested_key([1])", False),
    ("utils", "is_seq_of_nested_key(3)", False),
    ("utils", "_is_nested_key(('a', 'b'))", True),
    ("utils", "strtobool('yes')", True),
    ("utils", "strtobool('0')", False),
    ("utils", "_STRDTYPE2DTYPE['torch.bfloat16']", torch.bfloat16),
    ("utils", "_DTYPE_TO_STR_DTYPE[TORCH.bfloat16]", "torch.bfloat16"),
    ("utils", "NUMPY_TO_TORCH_DTYPE_DICT[NUMPY('int16')]", torch.int16),
    ("utils", "_TORCH_TO_NUMPY_DTYPE_DICT[TORCH.bool]", np.dtype("bool")),
    ("utils", "_encode_key_for_filesystem('a/b c')", "a%2Fb%20c"),
    ("utils", "_decode_key_from_filesystem('a%2Fb%20c')", "a/b c"),
    ("utils", "_decode_key_from_filesystem(_encode_key_for_filesystem(''))", ""),
    ("utils", "_decode_key_from_filesystem(_encode_key_for_filesystem('é%/'))", "é%/"),
    ("utils", "_shape(TORCH.ones(2, 3))", torch.Size([2, 3])),
    ("utils", "_prod([2, 3])", 6),
    ("utils", "_LOCK_ERROR.startswith('Cannot modify locked TensorDict')", True),
    ("utils", "is_batchedtensor(TORCH.ones(2))", False),
    ("utils", "'a: Tensor(shape=' in _td_fields(TD)", True),
    ("base", "_GENERIC_NESTED_ERR.format(3)[-10:]", "Got key 3."),
    ("base", "_default_is_leaf(type(TD)), _default_is_leaf(TORCH.Tensor)", (False, True)),
    ("base", "_is_leaf_nontensor(type(TD)), _is_tensor_collection(type(TD))", (False, True)),
    ("_torch_func", "TORCH.abs in TD_HANDLED_FUNCTIONS", True),
    ("_torch_func", "_stack([TD, TD], 0).batch_size", torch.Size([2, 3])),
    ("_pytree", "_tensordict_unflatten(*_tensordict_flatten(TD)).batch_size", torch.Size([3])),
    ("_pytree", "[str(key) for key, _ in _td_flatten_with_keys(TD)[0]]", ["['a']"]),
    ("_pytree", "type(TD) in PYTREE_REGISTERED_TDS", True),
]


@pytest.mark.parametrize(("module", "expression", "value"), VALUES, ids=[f"{row[0]}.{row[1]}" for row in VALUES])
def test_values(module: str, expression: str, value: Any) -> None:
    found = importlib.import_module(f"tensordict.{module}")

    class Names(dict[str, Any]):
        def __missing__(self, name: str) -> Any:
            try:
                return getattr(found, name)
            except AttributeError:
                raise KeyError(name) from None

    space = Names(TORCH=torch, NUMPY=np.dtype, TD=TensorDict({"a": torch.ones(3)}, [3]))
    assert eval(expression, {}, space) == value


def test_errors() -> None:
    from tensordict.utils import _maybe_correct_neg_dim, _strtobool, _zip_strict

    with pytest.raises(IndexError, match="dim 2"):
        _maybe_correct_neg_dim(2, (3, 2))
    with pytest.raises(ValueError, match="truth value"):
        _strtobool("perhaps")
    with pytest.raises(ValueError, match="longer"):
        list(_zip_strict([1], [2, 3]))


# What an environment variable changes: a program and what it prints.
PROGRAMS = [
    ("TD_GET_DEFAULTS_TO_NONE", "0", "print(tensordict.get_defaults_to_none())", "False"),
    ("TD_GET_DEFAULTS_TO_NONE", "True", "print(tensordict.get_defaults_to_none())", "True"),
    ("EXCLUDE_TD_FROM_PYTREE", "1", "print(len(tree_leaves(TD)))", "1"),
    ("EXCLUDE_TD_FROM_PYTREE", "0", "print(len(tree_leaves(TD)))", "2"),
    ("TD_LOGGING_LEVEL", "warning", "print(logging.getLogger('tensordict').level)", "30"),
    ("TD_CHECK_INVARIANTS", "1", "TD._fields()['a'] = torch.ones(2); print(raised(TD.clone))", "AssertionError"),
    ("TD_CHECK_INVARIANTS", "0", "TD._fields()['a'] = torch.ones(2); print(raised(TD.clone))", "None"),
    ("TD_CHECK_INVARIANTS", "1", "print(torch.vmap(lambda td: td + 1)(TD)['n', 'b'].tolist())", "[2.0, 2.0, 2.0]"),
]
SCRIPT = """
import logging
import torch
from torch.utils._pytree import tree_leaves
import tensordict
import tensordict.utils
TD = tensordict.TensorDict({"a": torch.ones(3), "n": {"b": torch.ones(3)}}, [3])
def raised(call):
    try:
        call()
    except Exception as error:
        return type(error).__name__
"""


@pytest.mark.parametrize(("variable", "value", "program", "printed"), PROGRAMS)
def test_environment(variable: str, value: str, program: str, printed: str) -> None:
    environment = {**os.environ, variable: value, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-c", SCRIPT + program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == printed


def test_environment_variable_that_says_nothing() -> None:
    environment = {**os.environ, "TD_GET_DEFAULTS_TO_NONE": "perhaps", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", "import tensordict"], env=environment, capture_output=True, text=True)
    assert "TD_GET_DEFAULTS_TO_NONE: invalid truth value 'perhaps'" in done.stderr


def test_json_backend() -> None:
    from tensordict import utils

    utils.set_json_backend("json")
    assert utils.get_json_backend().__name__ == "json"
    assert utils.json_dumps({"a": [1]}) == '{"a": [1]}'
    with pytest.raises(ValueError, match="json"):
        utils.set_json_backend("yaml")
    assert utils._encode_key_for_filesystem("a/b") == "a%2Fb"
    assert utils._encode_key_for_filesystem("a b", robust=False) == "a b"
