"""An import path that programs use, for the functions of the former C++ extension: see `_old.names`."""

from tensordict._old.names import resolver

__getattr__ = resolver(__name__)
