"""An import path that programs and pickles use, for `UnbatchedTensor`: see `_old_names`."""

from tensordict._old_names import resolver

__getattr__ = resolver(__name__)
