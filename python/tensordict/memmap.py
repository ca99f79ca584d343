"""Tensors whose memory is a file, or memory without a file that other processes map too."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing.reduction import DupFd, ForkingPickler
from types import EllipsisType, NoneType
from typing import Any, SupportsIndex, cast

import torch
from torch import Tensor
from typing_extensions import Self

from tensordict._kernel.copies import copy_whole
from tensordict._kernel.errors import NoFileError
from tensordict._kernel.index_chain import NotAnIndexError, compose
from tensordict._kernel.native import Map, map_anonymous, map_create, map_descriptor, map_filled, map_open, register_plain_type
from tensordict._kernel.pending import PENDING, wait_for
from tensordict._kernel.settings import SPARSE_FILES
from tensordict._kernel.sizes import Shape, as_size, bytes_of, elements, listed, parse_shape, size_of

__all__ = ["MemoryMappedTensor"]

_frombuffer = torch.frombuffer
_getitem = Tensor.__getitem__

# An index made of these gives a view. Of any other the result is compared with its source.
_VIEWS = frozenset((int, slice, NoneType, EllipsisType))


class _FileHandler:
    """Memory without a file, with the descriptor by which another process maps it."""

    __slots__ = ("_descriptor", "buffer", "size")

    def __init__(self, size: int, fileno: int | None = None, sparse: bool = False) -> None:
        """Takes `size` new bytes of zeros, or those that `fileno` stands for, which stays the caller's."""
        parts = map_anonymous(size, sparse) if fileno is None else map_descriptor(fileno, size)
        self.buffer, self._descriptor = parts
        self.size = size

    @property
    def fd(self) -> int:
        """The descriptor, open as long as this object is there."""
        return self._descriptor.fileno()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the bytes: a pickle may be read when this process is gone. Between processes see below."""
        return _copy_handler, (bytes(cast("bytes", self.buffer)),)


def _copy_handler(content: bytes) -> _FileHandler:
    handler = _FileHandler(len(content))
    memoryview(cast("bytes", handler.buffer))[:] = content
    return handler


def _rebuild_handler(size: int, descriptor: Any) -> _FileHandler:
    fileno = descriptor.detach()
    try:
        return _FileHandler(size, fileno)
    finally:
        os.close(fileno)


def _share_handler(handler: _FileHandler) -> tuple[Any, ...]:
    return _rebuild_handler, (handler.size, DupFd(handler.fd))


class _MappedStorage(torch.UntypedStorage):
    """Storage of a mapped tensor and of every plain tensor that is a view of it.

    torch takes a storage that it did not map itself for private memory: sending a view of it to another process would
    copy all of it and move the tensors here off their file. This class says what it is, so such views are sent by name
    or descriptor as the mapped tensors are.
    """

    _file: str | None = None
    _map: Map | None = None
    _handler: _FileHandler | None = None
    _mode: str | None = None

    @property
    def filename(self) -> str | None:
        """The file that is mapped, if one is."""
        return self._file

    def is_shared(self) -> bool:
        """True: other processes map the same memory."""
        return True

    def share_memory_(self) -> Self:
        """Does nothing, since the memory is shared."""
        return self

    def clone(self) -> torch.UntypedStorage:
        """A copy in memory of its own."""
        return cast("torch.UntypedStorage", torch.UntypedStorage(self.nbytes()).copy_(self, False))  # type: ignore[no-untyped-call]


def _is_there(filename: str, memory: Map | None) -> bool:
    """Whether a file is the one that a map is of: it could have been replaced by another one of that name."""
    return memory is None or not len(memory) or memory.is_at(filename)


def is_own_map(tensor: Any) -> bool:
    """Whether a mapped tensor still is what was mapped: it may have been given other memory, or other strides."""
    storage = tensor.untyped_storage()
    if not isinstance(storage, _MappedStorage):
        # one that torch mapped itself knows its file
        return bool(storage.filename is not None or not tensor.numel())
    return tensor._whole_shape is not None or bool(
        tensor.is_contiguous() and tensor.storage_offset() == 0 and tensor.numel() * tensor.itemsize == storage.nbytes()
    )


def origin_of(tensor: Any) -> tuple[str, Map | None] | None:
    """The name of the file that a mapped tensor was mapped from, and its map where it is known.

    None where there was no file, or the tensor was given other memory. Another file may have that name by now.
    """
    filename = tensor._filename
    if filename is None or not is_own_map(tensor):
        return None
    return filename, getattr(tensor.untyped_storage(), "_map", None)


def file_was_cut(tensor: Tensor) -> RuntimeError:
    """The error for a tensor of which to read the memory would be a fault: the file that it is mapped from was cut."""
    storage: Any = tensor.untyped_storage()
    name = getattr(storage, "filename", None)
    if name is None or not os.path.exists(name):
        return RuntimeError("the memory of a tensor is gone: the file that it is mapped from was cut")
    return RuntimeError(
        f"the memory of a tensor is gone: {name} was cut after it was mapped, it has {os.path.getsize(name)} bytes, fewer than "
        f"the {storage.nbytes()} wanted"
    )


def check_whole(tensor: Tensor) -> None:
    """Raises if a tensor is mapped from a file that was cut: to read it would end the process with a signal.

    A file that is cut after this, or that has no name any more, is not noticed.
    """
    if tensor.layout is not torch.strided or tensor.device.type != "cpu":
        return
    storage = tensor.untyped_storage()
    if not isinstance(storage, _MappedStorage) or storage._file is None or not _is_there(storage._file, storage._map):
        return
    if os.path.exists(storage._file) and os.path.getsize(storage._file) < storage.nbytes():
        raise file_was_cut(tensor)


def _share_storage(storage: _MappedStorage) -> tuple[Any, ...]:
    if storage._file is not None and not _is_there(storage._file, storage._map):
        return _rebuild_storage, (None, _copy_handler(bytes(cast("bytes", storage._map))), storage.nbytes(), None)
    return _rebuild_storage, (storage._file, storage._handler, storage.nbytes(), storage._mode, _number(storage))


def _number(storage: Any) -> tuple[int, int] | None:
    """What tells the file that a storage is mapped from from all others; None where it is not known, or there is none."""
    memory = getattr(storage, "_map", None)
    return memory.number() if memory is not None and storage._file is not None and len(memory) else None


def _check_sent(storage: Any, number: tuple[int, int] | None) -> None:
    """Raises if what was sent by the name of its file has come to be another file."""
    if number is not None and _number(storage) != number:
        raise RuntimeError(
            f"the file {storage._file} was replaced after a tensor that is mapped from it was sent to this process: send a "
            "copy (clone()), or save to another place"
        )


def _share_tensor(tensor: Any) -> tuple[Any, ...]:
    where, arguments = tensor.__reduce_ex__(2)
    if where != MemoryMappedTensor.from_filename:
        return where, arguments
    return _rebuild_sent, (arguments, _number(tensor.untyped_storage()))


def _rebuild_sent(arguments: tuple[Any, ...], number: tuple[int, int] | None) -> Any:
    made = MemoryMappedTensor.from_filename(*arguments)
    _check_sent(made.untyped_storage(), number)
    return made


def _rebuild_storage(
    filename: str | None,
    handler: _FileHandler | None,
    size: int,
    mode: str | None,
    number: tuple[int, int] | None = None,
) -> torch.UntypedStorage:
    dtype, shape = torch.uint8, torch.Size([size])
    made: Tensor
    if filename is not None:
        made = MemoryMappedTensor.from_filename(filename, dtype, shape, mode=mode)
    else:
        made = MemoryMappedTensor._from_handler(cast("_FileHandler", handler), dtype, shape)
    _check_sent(made.untyped_storage(), number)
    return made.untyped_storage()


# Within a program, that is between its processes, memory goes by descriptor and name.
ForkingPickler.register(_FileHandler, _share_handler)
ForkingPickler.register(_MappedStorage, _share_storage)


class MemoryMappedTensor(Tensor):
    """A CPU tensor whose memory is a file or is shared by descriptor.

    Operations give plain tensors in memory of their own; only views by index, `unbind`, `split` and `chunk` stay mapped
    tensors, and in-place operations write to the file. A pickle holds the file's name and the index, not the data:
    whoever reads it maps the same file. A tensor without a file goes to another process of the program as the same
    memory and into any other pickle by value.

    Args:
        source: a tensor, whose memory is kept unless `filename` is given; a storage; or data that `torch.tensor` takes.
        dtype: dtype of the result. Default: that of `source`.
        shape: shape of the result. Default: that of `source`.
        index: what of it to take.
        device: only `cpu` is possible.
        handler: memory without a file that `source` is a storage of.
        filename: the file to write a tensor to, or that a storage is mapped from.

    Raises:
        ValueError: another device than the CPU is asked for.

    Example:
        >>> import os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "rows.memmap")
        >>> rows = MemoryMappedTensor.from_tensor(torch.arange(3), filename=path)
        >>> rows[0] = 7
        >>> MemoryMappedTensor.from_filename(path, torch.int64, [3])
        MemoryMappedTensor([7, 1, 2])
        >>> rows + 1
        tensor([8, 2, 3])
    """

    # Results of operations are plain tensors, without a detour through Python.
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    _filename: str | None = None
    _handler: _FileHandler | None = None
    _mode: str | None = None
    # The indices that lead from the whole file to a view, the last one outermost: `((), first), last`.
    _index_chain: tuple[Any, ...] = ()
    # The shape of what is mapped, where it is not that of the tensor: for views and nested tensors.
    _whole_shape: Shape | None = None

    def __new__(
        cls,
        source: Any,
        *,
        dtype: torch.dtype | None = None,
        shape: Sequence[int] | Tensor | None = None,
        index: Any = None,
        device: torch.device | str | None = None,
        handler: _FileHandler | None = None,
        filename: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Wraps a tensor or storage; with `filename` a tensor is written there first."""
        if device is not None and torch.device(device).type != "cpu":
            raise ValueError(f"a {cls.__name__} is on the CPU, got device={device}")
        if isinstance(source, (torch.UntypedStorage, torch.storage.TypedStorage)):
            made = cls.from_storage(source, shape=shape, dtype=dtype, index=index, filename=filename, handler=handler)
            return cast("Self", made)
        tensor = source if isinstance(source, Tensor) else torch.tensor(source, dtype=dtype or torch.get_default_dtype())
        if dtype is not None:
            tensor = tensor.to(dtype)
        if tensor.device.type != "cpu":
            raise ValueError(f"a {cls.__name__} is on the CPU, got a tensor on {tensor.device}")
        if filename is not None:
            result = cls.from_tensor(tensor, filename=filename, shape=shape)
        else:
            result = (tensor if shape is None else tensor.view(torch.Size(shape))).as_subclass(cls)
            if isinstance(source, MemoryMappedTensor):
                result.__dict__.update(source.__dict__)
        return result if index is None else cast("Self", result[index])

    @classmethod
    def _from_map(
        cls, memory: Map, dtype: torch.dtype, shape: Sequence[int], filename: str | None, mode: str | None = None
    ) -> Self:
        """Makes the tensor of a whole map, unchecked: the file's absolute name, and a map of just these bytes."""
        return next(cls._from_maps(((memory, dtype, shape, filename),), "", mode))

    @classmethod
    def _from_maps(cls, parts: Iterable[tuple[Any, ...]], root: str, mode: str | None = None) -> Iterator[Self]:
        """Makes tensors of whole maps: each with its dtype, its shape and its file, whose name goes on from `root`."""
        for memory, dtype, shape, file in parts:
            plain: Any = _frombuffer(memory, dtype=dtype) if len(memory) else torch.empty(0, dtype=dtype)
            storage: Any = plain.untyped_storage()
            if len(shape) != 1:
                plain.set_(storage, 0, shape)
            # Nobody else has these two objects yet. Assigning a class takes a twentieth of the time of `as_subclass`.
            storage.__class__ = _MappedStorage
            plain.__class__ = cls
            plain._filename = storage._file = root + file if root else file
            storage._map = memory
            if mode is not None:
                plain._mode = storage._mode = mode
            yield plain

    @classmethod
    def _from_handler(cls, handler: _FileHandler, dtype: torch.dtype, shape: Any, index: Any = None) -> Any:
        """The tensor over memory without a file, or a view of it."""
        size = as_size(shape)
        wanted = bytes_of(size, dtype)
        if wanted != handler.size:
            raise RuntimeError(f"shape {listed(size)} of {dtype} takes {wanted} bytes, the memory has {handler.size}")
        result = cls._over(handler.buffer, dtype, size, None)
        result._handler = handler
        cast("_MappedStorage", result.untyped_storage())._handler = handler
        return result if index is None else result[index]

    @classmethod
    def _over(cls, memory: Map, dtype: torch.dtype, shape: Shape, filename: str | None, mode: str | None = None) -> Self:
        """The tensor of a whole map, nested if `shape` is a tensor."""
        if not isinstance(shape, Tensor):
            return cls._from_map(memory, dtype, shape, filename, mode)
        flat = cls._from_map(memory, dtype, [elements(shape)], filename, mode)
        return flat._nest(shape)

    def _nest(self, sizes: Tensor) -> Self:
        """This flat tensor as a nested one, a row of `sizes` a component."""
        strides, offsets = torch._nested_compute_contiguous_strides_offsets(sizes)
        plain = torch._nested_view_from_buffer(self.as_subclass(Tensor), sizes, strides, offsets)
        result = plain.as_subclass(type(self))
        result.__dict__.update(self.__dict__)
        result._whole_shape = sizes
        return result

    @classmethod
    def _allocate(
        cls, shape: Shape, dtype: torch.dtype, filename: Any, existsok: bool = False, sparse: bool | None = False
    ) -> Self:
        """Zeros in a new file, or in memory without one."""
        size = bytes_of(shape, dtype)
        sparse = SPARSE_FILES.value if sparse is None else sparse
        if filename is None:
            return cast("Self", cls._from_handler(_FileHandler(size, sparse=sparse), dtype, shape))
        path = _absolute(filename)
        if PENDING:
            wait_for(path)
        try:
            memory = map_create(path, size, existsok, sparse)
        except FileExistsError as error:
            # The type that users of this class expect.
            raise RuntimeError(f"The file {path} already exists.") from error
        return cls._over(memory, dtype, shape, path)

    @classmethod
    def _made(cls, shape: Shape, dtype: torch.dtype, filename: Any, existsok: bool, fill: Callable[[Tensor], object]) -> Self:
        """A new file of what `fill` writes into zeros, which has its name only then; or memory without a file."""
        size = bytes_of(shape, dtype)
        if filename is None or not size:
            made = cls._allocate(shape, dtype, filename, existsok)
            fill(made)
            return made
        path = _absolute(filename)
        if PENDING:
            wait_for(path)
        try:
            memory = map_filled(path, size, existsok, lambda memory: fill(cls._over(memory, dtype, shape, path)))
        except FileExistsError as error:
            raise RuntimeError(f"The file {path} already exists.") from error
        return cls._over(memory, dtype, shape, path)

    @classmethod
    def from_tensor(
        cls,
        input: Tensor,
        *,
        filename: str | os.PathLike[str] | None = None,
        existsok: bool = False,
        copy_existing: bool = False,
        copy_data: bool = True,
        shape: Sequence[int] | Tensor | None = None,
    ) -> Self:
        """Copies a tensor to a new file, or to memory without a file that other processes can map.

        Args:
            input: the tensor; one that is in memory without a file, and no other is asked for, is returned itself, as
                is one that already is the file `filename`.
            filename: the file to make.
            existsok: whether a file that is there is replaced. Tensors that are mapped to it keep the old content.
            copy_existing: whether a tensor that is mapped to another file may be copied.
            copy_data: whether the data is copied; zeros otherwise.
            shape: shape of the result, to which `input` is expanded.

        Raises:
            RuntimeError: the file exists, `input` is mapped to another file, requires gradients or has another shape.
            NotImplementedError: `input` has no data to copy, or is nested in the jagged layout.
            OSError: the file cannot be made or the disk is full; nothing is left behind.
        """
        if isinstance(input, MemoryMappedTensor):
            if _is_at(input, filename):
                return cast("Self", input)
            if input._filename is not None and filename is not None and not copy_existing:
                raise RuntimeError(
                    f"the tensor is mapped to {input._filename}: pass copy_existing=True to copy it to {filename}"
                )
        if input.requires_grad:
            raise RuntimeError("a tensor that requires gradients cannot be mapped: detach it first")
        if input.is_nested and input.layout is torch.jagged:
            raise NotImplementedError("nested tensors are mapped in the strided layout, got torch.jagged")
        size = size_of(input) if shape is None else as_size(shape)
        if not copy_data:
            return cls._allocate(size, input.dtype, filename, existsok, None)
        # All that can be wrong with the data comes up here, before a file is there.
        _check_copy(input)
        source = input if isinstance(size, Tensor) else input.expand(size)
        return cls._made(size, input.dtype, filename, existsok, lambda made: copy_whole(made, source))

    @classmethod
    def from_filename(
        cls,
        filename: str | os.PathLike[str],
        dtype: torch.dtype,
        shape: Sequence[int] | Tensor,
        index: Any = None,
        mode: str | None = None,
    ) -> Any:
        """Maps a file, or the start of one that is longer.

        Args:
            filename: the file.
            dtype: dtype of its content.
            shape: shape of its content; of a nested tensor a row of sizes a component.
            index: what of it to take.
            mode: `r+` writes to the file; `r` needs no permission to write and keeps what is written in this process;
                by default the file's permission decides.

        Raises:
            FileNotFoundError: there is no such file.
            RuntimeError: the file is too short for the shape.
            ValueError: the mode is another.
        """
        if mode not in (None, "r", "r+"):
            raise ValueError(f"mode must be 'r', 'r+' or None, got {mode!r}.")
        path = _absolute(filename)
        size = as_size(shape)
        wanted = bytes_of(size, dtype)
        if wanted:
            writes = mode == "r+" or (mode is None and _is_writable(path))
            memory = map_open(path, wanted, "r+" if writes else "c", 0)
        else:
            # There may be no file for no bytes.
            memory = map_anonymous(0)[0]
        result = cls._over(memory, dtype, size, path, mode)
        return result if index is None else result[index]

    @classmethod
    def from_storage(
        cls,
        storage: Any,
        *,
        shape: Sequence[int] | Tensor | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        index: Any = None,
        filename: str | os.PathLike[str] | None = None,
        handler: _FileHandler | None = None,
    ) -> Any:
        """Makes a tensor over a storage, which it keeps: nothing is copied.

        Args:
            storage: the storage.
            shape: shape of the result. Default: one dimension.
            dtype: dtype of the result. Default: torch's default dtype.
            device: only `cpu` is possible.
            index: what of it to take.
            filename: the file that the storage is mapped from. Default: what the storage says.
            handler: the memory without a file that it is of. Default: what the storage says.

        Raises:
            RuntimeError: the shape takes more or fewer bytes, or the storage is mapped from another file.
            ValueError: another device than the CPU is asked for.
        """
        if device is not None and torch.device(device).type != "cpu":
            raise ValueError(f"a {cls.__name__} is on the CPU, got device={device}")
        if isinstance(storage, torch.storage.TypedStorage):
            storage = storage._untyped_storage
        dtype = torch.get_default_dtype() if dtype is None else dtype
        own = storage.filename
        path = own if filename is None else _absolute(filename)
        if own is not None and path != own:
            raise RuntimeError(f"the storage is mapped from {own}, got filename={path}")
        flat = torch.empty(0, dtype=dtype).set_(storage).as_subclass(cls)
        flat._filename = path
        flat._handler = handler if handler is not None else getattr(storage, "_handler", None)
        flat._mode = getattr(storage, "_mode", None)
        result = flat._shaped(None if shape is None else as_size(shape))
        return result if index is None else result[index]

    def _shaped(self, shape: Shape | None) -> Self:
        """This flat tensor with a shape."""
        if shape is None:
            return self
        if isinstance(shape, Tensor):
            return self._nest(shape)
        result = self.view(shape).as_subclass(type(self))
        result.__dict__.update(self.__dict__)
        return result

    @classmethod
    def from_handler(cls, handler: _FileHandler, dtype: torch.dtype, shape: Sequence[int] | Tensor, index: Any = None) -> Any:
        """Makes a tensor over the memory of another one that has no file. Deprecated.

        Args:
            handler: the memory.
            dtype: dtype of the result.
            shape: shape of the result.
            index: what of it to take.

        Raises:
            RuntimeError: the shape takes more or fewer bytes.
        """
        _deprecated("from_handler")
        return cls._from_handler(handler, dtype, shape, index)

    @classmethod
    def empty(
        cls,
        *size: Any,
        shape: Any = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        filename: str | os.PathLike[str] | None = None,
        existsok: bool = False,
        sparse: bool | None = None,
    ) -> Self:
        """Makes a tensor of zeros. The space of a file is reserved; memory without one is taken as it is written to.

        A sparse file takes its space as it is written to, so that it may be larger than what the disk has: for buffers that
        are never filled. A write for which there is no space then ends the process with a signal (SIGBUS); so does one to
        memory without a file that is larger than what there is.

        Args:
            *size: the sizes, or one sequence of them; for a nested tensor a row of sizes a component.
            shape: the sizes by name.
            dtype: dtype of the result. Default: torch's default dtype.
            device: only `cpu` is possible.
            filename: the file to make. Default: memory without a file.
            existsok: whether a file that is there is replaced.
            sparse: take space as it is written to, and do not ask whether there is enough. Default: what the environment
                variable `TD_SPARSE_FILES` says, or False.

        Raises:
            TypeError: no shape is given.
            RuntimeError: the file exists, a size is negative, or another device is asked for.
            OSError: the file cannot be made or the disk is full; nothing is left behind.
        """
        _check_cpu(device)
        return cls._allocate(parse_shape(size, shape), dtype or torch.get_default_dtype(), filename, existsok, sparse)

    @classmethod
    def zeros(cls, *size: Any, **options: Any) -> Self:
        """Makes a tensor of zeros. Arguments are those of `empty`."""
        return cls.empty(*size, **options)

    @classmethod
    def ones(cls, *size: Any, **options: Any) -> Self:
        """Makes a tensor of ones. Arguments are those of `empty`; as all is written, space is always reserved."""
        return cls._full(size, 1, **options)

    @classmethod
    def full(cls, *size: Any, **options: Any) -> Self:
        """Makes a tensor of one value: `full(shape, value)` or `full(*sizes, fill_value=value)`.

        The dtype is torch's default one unless it is given. Other arguments are those of `empty`; as all is written, space is
        always reserved.

        Raises:
            TypeError: no value is given.
        """
        if "fill_value" in options:
            value = options.pop("fill_value")
        elif len(size) == 2 and not isinstance(size[0], int):
            *size, value = size  # type: ignore[assignment]
        else:
            raise TypeError("full() needs a fill_value")
        return cls._full(size, value, **options)

    @classmethod
    def _full(
        cls,
        size: tuple[Any, ...],
        value: Any,
        *,
        shape: Any = None,
        dtype: torch.dtype | None = None,
        device: Any = None,
        filename: Any = None,
        existsok: bool = False,
        sparse: bool | None = None,
    ) -> Self:
        _check_cpu(device)
        sizes, kind = parse_shape(size, shape), dtype or torch.get_default_dtype()
        return cls._made(sizes, kind, filename, existsok, lambda made: made.fill_(value))

    @classmethod
    def empty_like(cls, input: Tensor, *, filename: str | os.PathLike[str] | None = None, sparse: bool | None = None) -> Self:
        """Makes a tensor of zeros with the shape and dtype of another, as `empty` does.

        Args:
            input: the other.
            filename: the file to make. Default: memory without a file.
            sparse: take space as it is written to, as for `empty`.

        Raises:
            RuntimeError: the file exists.
        """
        return cls._allocate(size_of(input), input.dtype, filename, sparse=sparse)

    @classmethod
    def zeros_like(cls, input: Tensor, *, filename: str | os.PathLike[str] | None = None, sparse: bool | None = None) -> Self:
        """Makes a tensor of zeros with the shape and dtype of another. Arguments are those of `empty_like`."""
        return cls.empty_like(input, filename=filename, sparse=sparse)

    @classmethod
    def ones_like(cls, input: Tensor, *, filename: str | os.PathLike[str] | None = None) -> Self:
        """Makes a tensor of ones with the shape and dtype of another. Other arguments are those of `empty_like`."""
        return cls.full_like(input, 1, filename=filename)

    @classmethod
    def full_like(cls, input: Tensor, fill_value: Any, *, filename: str | os.PathLike[str] | None = None) -> Self:
        """Makes a tensor of one value with the shape and dtype of another. Arguments are those of `empty_like`."""
        return cls._made(size_of(input), input.dtype, filename, False, lambda made: made.fill_(fill_value))

    @property
    def filename(self) -> str:
        """The absolute name of the file.

        Raises:
            RuntimeError: there is none; it is an `AttributeError` as well.
        """
        if self._filename is None:
            raise NoFileError("The MemoryMappedTensor has no file associated.")
        return self._filename

    @property
    def _index(self) -> Any:
        """The last index of those that lead to this view."""
        return self._index_chain[1] if self._index_chain else None

    @property
    def _parent_shape(self) -> Shape:
        """The shape of all that is mapped."""
        return self.shape if self._whole_shape is None else self._whole_shape

    @property
    def index(self) -> Any:
        """The last index of those that lead to this view. Deprecated."""
        _deprecated("index")
        return self._index

    @property
    def parent_shape(self) -> Shape:
        """The shape of all that is mapped. Deprecated."""
        _deprecated("parent_shape")
        return self._parent_shape

    def __getitem__(self, index: Any) -> Any:
        """The view at a basic index, which stays mapped, or a copy at any other."""
        result = _getitem(self, index)
        if type(index) in _VIEWS or _is_view(index, result, self):
            return self._view(result, index)
        return result

    def _view(self, plain: Tensor, index: Any) -> Self:
        """A plain view of this tensor as a mapped one."""
        view = plain.as_subclass(type(self))
        view._filename = self._filename
        view._handler = self._handler
        view._mode = self._mode
        view._index_chain = (self._index_chain, index)
        view._whole_shape = self._parent_shape
        return view

    def unbind(self, dim: int = 0) -> tuple[Self, ...]:
        """The views along a dimension, which stay mapped."""
        parts = Tensor.unbind(self, dim)
        before = self._before(dim)
        return tuple(self._view(part, (*before, at)) for at, part in enumerate(parts))

    def split(self, split_size: int | Sequence[int], dim: int = 0) -> tuple[Self, ...]:
        """The views of consecutive rows along a dimension, which stay mapped."""
        return self._runs(Tensor.split(self, split_size, dim), dim)  # type: ignore[no-untyped-call]

    def chunk(self, chunks: int, dim: int = 0) -> tuple[Self, ...]:
        """At most `chunks` views of consecutive rows along a dimension, which stay mapped."""
        return self._runs(Tensor.chunk(self, chunks, dim), dim)

    def _runs(self, parts: Iterable[Tensor], dim: int) -> tuple[Self, ...]:
        before = self._before(dim)
        views = []
        start = 0
        for part in parts:
            stop = start + part.shape[dim]
            views.append(self._view(part, (*before, slice(start, stop))))
            start = stop
        return tuple(views)

    def _before(self, dim: int) -> tuple[slice, ...]:
        """What an index has before its entry for `dim`."""
        return (slice(None),) * (dim if dim >= 0 else dim + self.dim())

    def share_memory_(self) -> Self:
        """Does nothing to mapped memory, which is shared."""
        if self._filename is None and self._handler is None:
            super().share_memory_()  # type: ignore[no-untyped-call]
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """A copy in memory of its own, without a file."""
        check_whole(self)
        copy = type(self)._allocate(size_of(self), self.dtype, None)
        copy.copy_(self.detach())
        memo[id(self)] = copy
        return copy

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        """Pickles where the memory is: the file's name or the memory's descriptor, shape and index."""
        try:
            index = compose(self._parent_shape, self._index_chain)
        except NotAnIndexError:
            return self._reduce_copy()
        where: Callable[..., Any]
        if self._filename is not None:
            origin = origin_of(self)
            if origin is None or not _is_there(*origin):
                return self._reduce_copy()
            where, memory = MemoryMappedTensor.from_filename, self._filename
        elif self._handler is not None:
            where, memory = MemoryMappedTensor._from_handler, self._handler  # type: ignore[assignment]
        else:
            return MemoryMappedTensor, (self.detach().as_subclass(Tensor),)
        arguments = (memory, self.dtype, self._parent_shape, index)
        return where, arguments if self._mode is None else (*arguments, self._mode)

    def _reduce_copy(self) -> tuple[Any, ...]:
        """Pickles the values."""
        check_whole(self)
        return MemoryMappedTensor, (self.detach().as_subclass(Tensor).clone(),)


def _is_view(index: Any, result: Tensor, source: Tensor) -> bool:
    """Whether `result`, which is `source` at `index`, shares its memory."""
    if type(index) is tuple and all(type(item) in _VIEWS for item in index):
        return True
    return bool(result.untyped_storage()._cdata == source.untyped_storage()._cdata)


def _is_at(tensor: MemoryMappedTensor, filename: str | os.PathLike[str] | None) -> bool:
    """Whether the tensor is where it is wanted: in that file, or in memory without one."""
    if filename is None:
        return tensor._handler is not None
    return tensor._filename is not None and tensor._filename == _absolute(filename)


def _check_copy(tensor: Tensor) -> None:
    """Raises if a tensor cannot be copied into dense memory."""
    if tensor.is_meta:
        raise NotImplementedError("a tensor on the meta device has no data to copy")
    if tensor.layout is not torch.strided:
        raise RuntimeError(f"a dense tensor is needed, got the layout {tensor.layout}")
    check_whole(tensor)


def _check_cpu(device: Any) -> None:
    if device is not None and torch.device(device).type != "cpu":
        raise RuntimeError(f"Only CPU tensors are supported, got device={device}")


def _absolute(filename: str | os.PathLike[str]) -> str:
    return os.path.abspath(os.fspath(filename))


def _is_writable(path: str | os.PathLike[str]) -> bool:
    """Whether this process may write the file."""
    return os.access(path, os.W_OK)


def _deprecated(name: str) -> None:
    warnings.warn(f"MemoryMappedTensor.{name} is deprecated", DeprecationWarning, stacklevel=3)


# its memory is that of any tensor, so the core reads it the same way
register_plain_type(MemoryMappedTensor)
ForkingPickler.register(MemoryMappedTensor, _share_tensor)
