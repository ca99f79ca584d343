"""Python twins of the native functions, which `torch.compile` traces in their place.

Registering a twin imports dynamo, which takes seconds, so it is left to a hook on the import of dynamo itself: a program that
never compiles never pays. Each module here mirrors one of the binding, and lists its pairs in `TWINS`.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import sys
from types import ModuleType
from typing import Any

_DYNAMO = "torch._dynamo"
_MODULES = ("consolidate", "key", "rows", "schedule", "shapes", "swap", "walk")


def register() -> None:
    """Tells dynamo the twin of each native function."""
    import torch

    for name in _MODULES:
        for native, twin in importlib.import_module(f"{__name__}.{name}").TWINS:
            torch.compiler.substitute_in_graph(native, skip_signature_check=True)(twin)


class _Loader:
    """Runs dynamo's own loader, then registers."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def create_module(self, spec: Any) -> Any:
        return self._inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._inner.exec_module(module)
        register()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _Finder:
    """Finds dynamo as the other finders do, once, and puts its loader behind ours."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != _DYNAMO:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)  # type: ignore[assignment]
        return spec


def install() -> None:
    """Registers now if dynamo is imported, else as soon as it is."""
    if _DYNAMO in sys.modules:
        register()
    else:
        sys.meta_path.insert(0, _Finder())
