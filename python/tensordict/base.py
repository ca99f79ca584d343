"""The abstract tensordict: all methods that are written once on the waist."""

from __future__ import annotations

from collections.abc import MutableMapping
from types import GenericAlias
from typing import TYPE_CHECKING, Any, ClassVar

from tensordict._convert.anything import AnyConversions
from tensordict._convert.functions import from_any, from_dict, from_namedtuple, from_struct_array, from_tuple
from tensordict._convert.numpy import NumpyConversions
from tensordict._convert.python import PythonConversions
from tensordict._convert.pytree import PytreeConversions
from tensordict._io.consolidate import ConsolidateOps
from tensordict._io.memmap import MemmapOps
from tensordict._io.share import ShareOps
from tensordict._io.state_dict import StateOps
from tensordict._kernel.errors import _InplaceWriteError, _KeyThroughLeafError
from tensordict._kernel.registry import PYTHON_FUNCTIONS, TORCH_FUNCTIONS, is_tensor_collection
from tensordict._kernel.settings import get_defaults_to_none, set_get_defaults_to_none
from tensordict._module.conversions import ModuleConversions
from tensordict._old.names import resolver
from tensordict._ops.apply import ApplyOps
from tensordict._ops.autograd import AutogradOps
from tensordict._ops.batch import BatchOps
from tensordict._ops.cast import CastOps
from tensordict._ops.choose import ChooseOps
from tensordict._ops.compare import CompareOps
from tensordict._ops.device import DeviceOps
from tensordict._ops.indexing import IndexOps
from tensordict._ops.join import JoinOps
from tensordict._ops.like import LikeOps
from tensordict._ops.lock import LockOps
from tensordict._ops.names import NameOps
from tensordict._ops.objects import ObjectOps
from tensordict._ops.pack import PackOps
from tensordict._ops.padded import PaddedOps
from tensordict._ops.pointwise import PointwiseOps
from tensordict._ops.rearrange import RearrangeOps
from tensordict._ops.reductions import ReductionOps
from tensordict._ops.repr import ReprOps
from tensordict._ops.shape import ShapeOps
from tensordict._ops.softmax import SoftmaxOps
from tensordict._ops.update import UpdateOps
from tensordict._types import NO_DEFAULT

__all__ = [
    "NO_DEFAULT",
    "TensorDictBase",
    "TensorDictOps",
    "_InplaceWriteError",
    "_KeyThroughLeafError",
    "from_any",
    "from_dict",
    "from_namedtuple",
    "from_struct_array",
    "from_tuple",
    "get_defaults_to_none",
    "is_tensor_collection",
    "set_get_defaults_to_none",
]

if not TYPE_CHECKING:
    __getattr__ = resolver(__name__)


class TensorDictOps(
    RearrangeOps,
    ShapeOps,
    PackOps,
    PaddedOps,
    ChooseOps,
    IndexOps,
    UpdateOps,
    LockOps,
    ApplyOps,
    PointwiseOps,
    CompareOps,
    ReductionOps,
    SoftmaxOps,
    CastOps,
    DeviceOps,
    AutogradOps,
    LikeOps,
    NameOps,
    BatchOps,
    ReprOps,
    JoinOps,
    ConsolidateOps,
    ObjectOps,
    StateOps,
    MemmapOps,
    ShareOps,
    AnyConversions,
    PythonConversions,
    PytreeConversions,
    NumpyConversions,
    ModuleConversions,
):
    """Every method that is written once on the waist (see `_ops.waist`), for tensordicts and tensorclasses alike."""

    __slots__ = ()

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs a `torch.*` function that has a meaning for tensordicts."""
        implementation = TORCH_FUNCTIONS.get(func)
        if implementation is None:
            # dynamo does not find a function written in Python among the keys of a dict
            for function, candidate in PYTHON_FUNCTIONS:
                if func is function:
                    return candidate(*args, **(kwargs or {}))
            return NotImplemented
        return implementation(*args, **(kwargs or {}))


class TensorDictBase(TensorDictOps):
    """The root of all tensordicts. A subclass writes the waist."""

    __slots__ = ()

    # `TensorDict[str, Tensor]`, as annotations write it
    __class_getitem__: ClassVar[Any] = classmethod(GenericAlias)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)


# A virtual base, so that `isinstance(td, Mapping)` holds without the cost of an ABC's instance checks.
MutableMapping.register(TensorDictBase)  # type: ignore[type-abstract]
