"""An import path that programs use, for what torch functions do with tensordicts: see `_old.names`."""

from tensordict._old.names import resolver

__getattr__ = resolver(__name__)
