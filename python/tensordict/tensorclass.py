"""Tensorclasses: dataclasses of tensors that share batch dimensions."""

from tensordict._kernel.registry import is_non_tensor
from tensordict._nontensor import MetaData, NonTensorData, NonTensorDataBase, NonTensorStack, TensorAttrs
from tensordict._tensorclass.cls import TensorClass
from tensordict._tensorclass.decorator import from_dataclass, is_tensorclass, tensorclass

__all__ = [
    "MetaData",
    "NonTensorData",
    "NonTensorDataBase",
    "NonTensorStack",
    "TensorAttrs",
    "TensorClass",
    "from_dataclass",
    "is_non_tensor",
    "is_tensorclass",
    "tensorclass",
]
