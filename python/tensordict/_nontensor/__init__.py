"""Entries that are no tensors: one object for a whole batch, or one for each element."""

from tensordict._nontensor.attrs import TensorAttrs
from tensordict._nontensor.data import MetaData, NonTensorData, NonTensorDataBase
from tensordict._nontensor.files import describe as _describe  # noqa: F401  registers the readers of folders
from tensordict._nontensor.stack import NonTensorStack

__all__ = ["MetaData", "NonTensorData", "NonTensorDataBase", "NonTensorStack", "TensorAttrs"]
