"""An import path that programs use, for how tensordicts are flattened: see `_old.names`."""

from tensordict._old.names import resolver

__getattr__ = resolver(__name__)
