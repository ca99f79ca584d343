"""The stub of the extension module says what the module has. (`make check` compares the whole text.)"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest
from stubs import fill_containers

from tensordict import _core

STUB = Path(__file__).resolve().parent.parent / "python" / "tensordict" / "_core.pyi"
DEFINED = {node.name: node for node in ast.parse(STUB.read_text()).body if hasattr(node, "name")}


def parameters(function: ast.FunctionDef) -> list[str]:
    """The names of the parameters that a stub gives a function."""
    args = function.args
    every = [*args.posonlyargs, *args.args, args.vararg, *args.kwonlyargs, args.kwarg]
    return [arg.arg for arg in every if arg is not None]


def functions() -> Iterator[object]:
    """The functions of the stub and the methods of its classes that are called by their names."""
    for name, node in DEFINED.items():
        if isinstance(node, ast.FunctionDef):
            yield pytest.param(getattr(_core, name), node, id=name)
        elif isinstance(node, ast.ClassDef):
            for method in node.body:
                if isinstance(method, ast.FunctionDef) and not method.name.startswith("__") and not is_property(method):
                    yield pytest.param(getattr(getattr(_core, name), method.name), method, id=f"{name}.{method.name}")


def is_property(method: ast.FunctionDef) -> bool:
    """Whether the method is read as an attribute."""
    return any("property" in ast.unparse(d) or "setter" in ast.unparse(d) for d in method.decorator_list)


def test_names() -> None:
    """The stub lists the names of the module, no more and no fewer."""
    (listed,) = (n.value for n in ast.parse(STUB.read_text()).body if isinstance(n, ast.Assign))
    assert set(ast.literal_eval(listed)) == {n for n in vars(_core) if not n.startswith("__")} | {"__version__"}


@pytest.mark.parametrize(("function", "stub"), list(functions()))
def test_parameters(function: object, stub: ast.FunctionDef) -> None:
    bound = [name for name in parameters(stub) if name != "cls"]
    assert list(inspect.signature(function).parameters) == bound  # type: ignore[arg-type]


def test_bare_containers_are_filled() -> None:
    text = "from typing import Any\ndef f(a: list, b: dict | None, c: list[int]) -> tuple: ...\n"
    filled = "from typing import Any\ndef f(a: list[Any], b: dict[Any, Any] | None, c: list[int]) -> tuple[Any, ...]: ...\n"
    assert fill_containers(text) == filled


def test_any_is_imported_where_it_is_needed() -> None:
    assert fill_containers("x: list\n") == "from typing import Any\nx: list[Any]\n"
