"""An import path that programs use, for how tensordicts are flattened: see `_old_names`."""

from tensordict._old_names import resolver

__getattr__ = resolver(__name__)
