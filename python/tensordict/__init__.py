"""A dictionary of tensors that behaves like one tensor."""

from tensordict._core import __version__

__all__ = ["__version__"]
