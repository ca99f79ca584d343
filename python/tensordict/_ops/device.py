"""The device label, moves between devices, pinned memory, addresses."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Size, Tensor
from typing_extensions import Self

from tensordict._ops.cast import cast_leaves
from tensordict._ops.coerce import as_device, as_size
from tensordict._ops.trees import Tree, collect, copy_nodes, leaves_of, refill
from tensordict._ops.waist import Waist
from tensordict._types import TensorCollection

_CPU = torch.device("cpu")
# `torch.nn.Module.to` too gives a memory format to the tensors of its number of dimensions, and leaves the others alone
_FORMAT_DIMS = {torch.channels_last: 4, torch.channels_last_3d: 5}


class _Target:
    """What the arguments of `to` ask for."""

    __slots__ = (
        "batch_size",
        "cast_filter",
        "device",
        "dtype",
        "inplace",
        "memory_format",
        "non_blocking",
        "num_threads",
        "pin",
    )

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        options = dict(kwargs)
        if "copy" in options or len(args) > 3:
            raise RuntimeError(".to() does not accept copy argument")
        self.device = options.pop("device", None)
        self.dtype = options.pop("dtype", None)
        self.non_blocking = options.pop("non_blocking", None)
        self.batch_size = options.pop("batch_size", None)
        self.cast_filter = options.pop("cast_filter", None)
        self.memory_format = options.pop("memory_format", None)
        self.inplace = bool(options.pop("inplace", False))
        self.num_threads = options.pop("num_threads", None)
        self.pin = bool(options.pop("non_blocking_pin", False))
        other = options.pop("other", None)
        if options:
            raise TypeError(f"to() got unexpected keyword arguments {sorted(options)}")
        if other is not None:
            if self.device is not None or (args and isinstance(args[0], (str, int, torch.device))):
                raise ValueError("other and device cannot be both passed")
            self._take(other)
        place = -1
        for value in args:
            before, place = place, place + 1 if value is None else self._take(value)
            if place <= before or (place == 2 and before != 1):
                raise TypeError(f"to() takes a device, a dtype and non_blocking in this order, got {args}")
        if self.dtype is not None and not isinstance(self.dtype, torch.dtype):
            raise TypeError(f"the dtype must be a torch.dtype, got {self.dtype!r} of type {type(self.dtype).__name__}")
        self.device = as_device(self.device)

    def _take(self, value: Any) -> int:
        """Takes one argument; returns its place among device (0), dtype or something to be like (1), and non_blocking (2)."""
        if isinstance(value, torch.dtype):
            self.dtype = value
            return 1
        if isinstance(value, bool):
            self.non_blocking = value
            return 2
        if isinstance(value, (str, int, torch.device)):
            if self.device is not None:
                raise TypeError(f"to() got the device {self.device} and the device {value}")
            self.device = value
            return 0
        if isinstance(value, (Tensor, TensorCollection)):
            self.device, self.dtype = value.device, value.dtype
            return 1
        raise TypeError(f"to() takes devices, dtypes, tensors and tensordicts, got {value!r} of type {type(value).__name__}")


class DeviceOps(Waist):
    """`to` and its relatives, pinned memory, addresses."""

    __slots__ = ()

    @property
    def device(self) -> torch.device | None:
        """The device of all entries, or None where they may be on several."""
        return self._device

    @device.setter
    def device(self, value: Any) -> None:
        kind = "tensordict" if self._schema is None else "tensorclass"
        raise RuntimeError(
            f"device cannot be set using {kind}.device = device, since a tensor cannot change its device in place: use "
            f"{kind}.to(device), which gives a {kind} on {value}"
        )

    def auto_device_(self) -> Self:
        """Sets the device label to the device of the leaves, if it is one for all."""
        devices = {leaf.device for leaf in leaves_of(self)}
        self._label_device(devices.pop() if len(devices) == 1 else None)
        return self

    def clear_device_(self) -> Self:
        """Removes the device label, here and below; the leaves stay where they are."""
        self._label_device(None)
        return self

    def _label_device(self, device: torch.device | None) -> None:
        self._set_device(device)
        for part in self._parts():
            if isinstance(part, DeviceOps):
                part._label_device(device)

    def _device_type(self) -> str | None:
        return None if self.device is None else self.device.type

    @property
    def is_cuda(self) -> bool:
        """Whether the device label is a CUDA device."""
        return self._device_type() == "cuda"

    @property
    def is_cpu(self) -> bool:
        """Whether the device label is the CPU."""
        return self._device_type() == "cpu"

    @property
    def is_meta(self) -> bool:
        """Whether the device label is the meta device."""
        return self._device_type() == "meta"

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """The tensordict on another device or with another dtype.

        Args:
            *args: a device, a dtype, a device and a dtype, a tensor or a tensordict to be like; then `non_blocking`. Or a
                tensordict of `TensorAttrs`, which say for each of their keys which device and dtype its leaf is to have, if
                they say it; beside it only `non_blocking` may be given.
            device: the device.
            dtype: the dtype of the leaves.
            other: a tensor or a tensordict to be like.
            non_blocking: True starts the copies and returns: no value may be read, and none of those in pinned memory
                changed, before the device is synchronised. Not given, or False, all has arrived when the method returns.
            non_blocking_pin: move by way of pinned memory, in several threads.
            num_threads: how many of them.
            memory_format: as in torch, for the leaves that have as many dimensions as the format.
            batch_size: the batch size of the result.
            cast_filter: `fn(key, leaf)`, true for the leaves that are cast to `dtype`, with the key as a tuple.
            inplace: replace the leaves of this tensordict and return it.

        Returns:
            This tensordict itself, where it has the device already and nothing else is asked for; otherwise a new one,
            whose leaves share storage where nothing had to change.

        Raises:
            TypeError: an argument is none of these, or a stack or a view would get another batch size.
            NotImplementedError: `non_blocking_pin` with a tensordict of `TensorAttrs`.
            ValueError: `other` and a device are given.
            RuntimeError: `copy` is asked for, or `inplace` of a locked tensordict would replace leaves.
        """
        if args and isinstance(args[0], TensorCollection) and _describes(args[0]):
            return _to_described(self, args, **kwargs)
        target = _Target(args, kwargs)
        result: Any = self
        if target.dtype is not None:
            dtype = target.dtype
            result = cast_leaves(result, lambda leaf: leaf.to(dtype), target.cast_filter)
        if target.memory_format is not None:
            result = cast_leaves(result, _formatted(target.memory_format), None)
        if target.device is not None and target.device != self.device:
            result = _moved(result, target)
        if target.batch_size is not None and as_size(target.batch_size) != result.batch_size:
            if self._stacked or self._is_view:
                raise TypeError(f"Cannot pass batch-size to {type(self).__name__}.to(): its batch size follows from its parts.")
            result = copy_nodes(result) if result is self else result
            result.batch_size = target.batch_size
        return _adopt(self, result) if target.inplace else result

    def _sync_all(self) -> None:
        """Waits for the devices that leaves of this tensordict are on: all copies from them have arrived then."""
        for device in {leaf.device: None for leaf in leaves_of(self) if leaf.device.type not in ("cpu", "meta")}:
            torch.accelerator.synchronize(device)

    def cpu(self, **kwargs: Any) -> Self:
        """The tensordict on the CPU; the keywords are those of `to`."""
        return self.to("cpu", **kwargs)

    def cuda(self, device: Any = None, **kwargs: Any) -> Self:
        """The tensordict on a CUDA device, the current one if not given; the keywords are those of `to`.

        Raises:
            RuntimeError: the device is of another kind.
        """
        target = torch.device("cuda", device) if isinstance(device, int) else torch.device(device or "cuda")
        if target.type != "cuda":
            raise RuntimeError(f"Invalid device {device}, must be a cuda device.")
        return self.to(target, **kwargs)

    def pin_memory(self, num_threads: int | None = None, inplace: bool = False) -> Self:
        """The tensordict in pinned memory, from which copies to an accelerator need not wait.

        Args:
            num_threads: the number of threads that copy; chosen by their number of leaves if not given.
            inplace: replace the leaves of this tensordict and return it.

        Raises:
            RuntimeError: a leaf is not on the CPU, or there is no accelerator.
        """
        return _pinned(self, num_threads, inplace)

    def pin_memory_(self, num_threads: int = 0) -> Self:
        """Deprecated: `pin_memory(inplace=True)`."""
        warnings.warn(
            "TensorDictBase.pin_memory_() is deprecated and will be removed in TensorDict 0.17. Use "
            "pin_memory(inplace=True) instead.",
            DeprecationWarning,
            stacklevel=2,
        )
        return _pinned(self, num_threads, True)

    def record_stream(self, stream: Any) -> Self:
        """Tells the allocator that a stream uses the leaves: their memory is not reused before it is done with them.

        Raises:
            RuntimeError: another stream was recorded before.
        """
        known = None if self._extra is None else self._extra.get("stream")
        if known is not None and known != stream:
            raise RuntimeError("A stream is already associated with this TensorDict instance.")
        for leaf in leaves_of(self):
            leaf.record_stream(stream)
        self._rare["stream"] = stream
        return self

    def data_ptr(self, *, storage: bool = False) -> Any:
        """The addresses of the leaves: a tensordict of the same keys, of integers without batch dimensions, on the CPU.

        Args:
            storage: the addresses of the storages, which views share.
        """

        def address(leaf: Tensor) -> Tensor:
            return torch.tensor(leaf.untyped_storage().data_ptr() if storage else leaf.data_ptr(), device=_CPU)

        out = self.apply(address, batch_size=Size(()), device=_CPU, filter_empty=True)
        return self.empty(batch_size=Size(()), device=_CPU) if out is None else out


def _formatted(memory_format: torch.memory_format) -> Callable[[Any], Any]:
    dims = _FORMAT_DIMS.get(memory_format)
    return lambda leaf: leaf.to(memory_format=memory_format) if dims is None or leaf.ndim == dims else leaf


def _moved(node: Any, target: _Target) -> Any:
    rare = node._extra
    if rare is not None and "buffer" in rare:
        moved = rare["buffer"].moved(node, target.device, bool(target.non_blocking), target.pin)
        if moved is not None:
            return moved
    device = target.device
    leaves: list[Any] = []
    tree = collect(node, leaves)
    if target.pin:
        leaves = _each_pinned(leaves, target.num_threads)
    # All copies to the CPU start at once and one wait ends them: without it, what has not arrived could be read.
    waits = device.type == "cpu" and target.non_blocking is None and any([_is_away(leaf) for leaf in leaves])
    starts = bool(target.non_blocking or waits or target.pin)
    moved = [leaf.to(device, non_blocking=starts) for leaf in leaves]
    result = refill(tree, iter(moved))
    if waits:
        node._sync_all()
    elif target.pin and not target.non_blocking and device.type != "cpu":
        result._sync_all()  # the pinned copies are freed here
    result._label_device(device)
    return result.lock_() if node.is_locked else result


def _is_away(leaf: Any) -> bool:
    """Whether a leaf is on a device whose copies the CPU does not wait for."""
    return leaf.device.type not in ("cpu", "meta")


def _describes(spec: Any) -> bool:
    """Whether a tensordict says what tensors are to be like, by `TensorAttrs`."""
    parts = [part for part in spec._parts() if isinstance(part, TensorCollection)]
    return any([part._describes or _describes(part) for part in parts])


def _to_described(node: Any, args: tuple[Any, ...], **options: Any) -> Any:
    """`to` with a tensordict of `TensorAttrs`."""
    if len(args) > 1:
        raise TypeError(f"to() of a tensordict of TensorAttrs does not accept additional positional arguments, got {args[1:]}")
    if options.pop("non_blocking_pin", False):
        raise NotImplementedError("to(..., non_blocking_pin=True) is not supported with a tensordict of TensorAttrs")
    non_blocking = options.pop("non_blocking", None)
    if options:
        raise TypeError(f"to() of a tensordict of TensorAttrs got unexpected keyword arguments {sorted(options)}")
    leaves: list[tuple[Any, Any]] = []
    tree = collect(node, [])
    _pair(tree, args[0], leaves)
    waits = non_blocking is None and any([_is_away(leaf) and _wants(spec, "device") == _CPU for leaf, spec in leaves])
    moved = [
        leaf
        if spec is None
        else leaf.to(_wants(spec, "device"), _wants(spec, "dtype"), non_blocking=bool(non_blocking or waits))
        for leaf, spec in leaves
    ]
    if waits:
        node._sync_all()
    result = refill(tree, iter(moved))
    if node.device is not None and any([leaf.device != node.device for leaf in moved]):
        result._label_device(None)
    return result.lock_() if node.is_locked else result


def _wants(spec: Any, what: str) -> Any:
    """The device or dtype that a description asks for, None for none."""
    value = None if spec is None else getattr(spec, f"tgt_{what}")
    return as_device(value) if what == "device" else value


def _pair(tree: Tree, spec: Any, out: list[tuple[Any, Any]]) -> None:
    """Collects each leaf of a tree, depth first, with what describes it, or None."""
    fields = None if spec is None else spec._fields()
    for name, part in tree[1].items():
        said = spec if type(name) is int else None if fields is None else fields.get(name)  # all members are described as one
        if type(part) is tuple:
            _pair(part, None if said is None or said._describes else said, out)
        else:
            out.append((part, said if said is not None and said._describes else None))


def _each_pinned(leaves: list[Any], num_threads: int | None) -> list[Any]:
    threads = min(8, len(leaves) // 16) if num_threads is None else num_threads
    if threads < 2:
        return [leaf.pin_memory() for leaf in leaves]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(lambda leaf: leaf.pin_memory(), leaves))


def _pinned(node: Any, num_threads: int | None, inplace: bool) -> Any:
    leaves: list[Any] = []
    tree = collect(node, leaves)
    result = refill(tree, iter(_each_pinned(leaves, num_threads)))
    if inplace:
        return _adopt(node, result)
    return result.lock_() if node.is_locked else result


def _adopt(node: Any, result: Any) -> Any:
    """Makes the leaves, device and batch size of `result` those of `node`, whose entries must not change if it is locked."""
    if result is node:
        return node
    if node.is_locked and any(new is not old for new, old in zip(leaves_of(result), leaves_of(node))):
        node._check_unlocked()
    own = node._pieces()
    for key, value in result._pieces().items():
        if isinstance(value, TensorCollection):
            _adopt(own[key], value)
        else:
            node._set_str(key, value)
    node._set_device(result.device)
    node._set_batch_size(Size(result.batch_size))
    return node
