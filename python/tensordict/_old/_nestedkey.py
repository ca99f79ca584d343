"""An import path that programs use, for the type of keys: see `_old.names`."""

from tensordict._old.names import resolver

__getattr__ = resolver(__name__)
