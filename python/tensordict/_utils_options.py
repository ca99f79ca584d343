"""An import path that programs use, for the options: see `_old_names`."""

from tensordict._old_names import resolver

__getattr__ = resolver(__name__)
