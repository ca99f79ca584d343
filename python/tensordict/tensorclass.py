"""Tensorclasses: dataclasses of tensors that share batch dimensions."""

from tensordict._tensorclass.cls import TensorClass
from tensordict._tensorclass.decorator import from_dataclass, is_tensorclass, tensorclass

__all__ = ["TensorClass", "from_dataclass", "is_tensorclass", "tensorclass"]
