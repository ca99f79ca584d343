"""An import path that programs use, for the root of all containers: see `_old.names`."""

from tensordict._old.names import resolver

__getattr__ = resolver(__name__)
