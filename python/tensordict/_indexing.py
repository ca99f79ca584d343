"""An import path that programs use, for helpers of indexing: see `_old_names`."""

from tensordict._old_names import resolver

__getattr__ = resolver(__name__)
