"""An import path that programs and pickles use, for `UnbatchedTensor`: see `_old.names`."""

from tensordict._old.names import resolver

__getattr__ = resolver(__name__)
