"""Tensorclasses made of other classes: the decorator, and conversions from dataclasses."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Callable
from typing import Any, TypeVar, overload

from typing_extensions import dataclass_transform

from tensordict._io.tree import CLASS_READERS
from tensordict._kernel.registry import CLASSES
from tensordict._ops.coerce import as_size
from tensordict._tensorclass.cls import TensorClass
from tensordict._tensorclass.meta import TensorClassMeta

T = TypeVar("T")
Filter = Callable[[Any, Any], bool]


@overload
def tensorclass(cls: type[T], /) -> type[T]: ...
@overload
def tensorclass(
    cls: None = None,
    /,
    *,
    autocast: bool = False,
    frozen: bool = False,
    nocast: bool = False,
    shadow: bool = False,
    tensor_only: bool = False,
    skip_post_init_on_rebuild: bool = False,
    cast_filter: Filter | None = None,
    kw_only: bool = False,
) -> Callable[[type[T]], type[T]]: ...
@dataclass_transform(eq_default=False, field_specifiers=(dataclasses.field, dataclasses.Field))
def tensorclass(
    cls: Any = None,
    /,
    *,
    autocast: bool = False,
    frozen: bool = False,
    nocast: bool = False,
    shadow: bool = False,
    tensor_only: bool = False,
    skip_post_init_on_rebuild: bool = False,
    cast_filter: Filter | None = None,
    kw_only: bool = False,
) -> Any:
    """Makes a tensorclass of a class that declares fields as a dataclass does.

    The result is a subclass of the decorated class and of `TensorClass`, which describes the options.

    Args:
        cls: the class.
        autocast: cast what is assigned to what the annotation says.
        frozen: fields cannot be assigned; instances are locked.
        nocast: keep numbers and arrays as they are.
        shadow: let fields have the names of methods.
        tensor_only: all annotations are of tensors.
        skip_post_init_on_rebuild: do not run `__post_init__` in `from_tensordict`.
        cast_filter: `fn(key, leaf)`, true for the leaves that are cast.
        kw_only: fields are given by keyword.

    >>> import torch
    >>> from tensordict import tensorclass
    >>> @tensorclass
    ... class Image:
    ...     pixels: torch.Tensor
    ...     mask: torch.Tensor
    >>> images = Image(torch.zeros(8, 3, 4), torch.ones(8, 3, dtype=torch.bool), batch_size=[8])
    >>> images[:2].pixels.shape
    torch.Size([2, 3, 4])
    """
    options = {
        "autocast": autocast,
        "frozen": frozen,
        "nocast": nocast,
        "shadow": shadow,
        "tensor_only": tensor_only,
        "skip_post_init_on_rebuild": skip_post_init_on_rebuild,
        "cast_filter": cast_filter,
    }
    given = {name: value for name, value in options.items() if value}
    if cls is None:
        return lambda decorated: _made(decorated, given, kw_only)
    return _made(cls, given, kw_only)


def _made(cls: Any, options: dict[str, Any], kw_only: bool = False, bases: tuple[type, ...] | None = None) -> Any:
    """The tensorclass of a class."""
    if not isinstance(cls, type):
        raise TypeError(f"tensorclass takes a class, got {cls!r} of type {type(cls).__name__}")
    known = isinstance(cls, TensorClassMeta)
    if known and not options:
        return cls
    own = {} if known else inspect.get_annotations(cls)
    fields = cls.__dict__.get("__dataclass_fields__", {})
    space = {name: fields.get(name, cls.__dict__.get(name)) for name in own if name in fields or name in cls.__dict__}
    space.update(
        __annotations__=dict(own), __module__=cls.__module__, __qualname__=cls.__qualname__, __doc__=cls.__dict__.get("__doc__")
    )
    above = (cls,) if known else (cls, TensorClass)
    return TensorClassMeta(cls.__name__, above, space, kw_only=kw_only, **options)


def from_dataclass(
    obj: Any,
    *,
    dest_cls: Any = None,
    auto_batch_size: bool = False,
    batch_dims: int | None = None,
    batch_size: Any = None,
    frozen: bool = False,
    autocast: bool = False,
    nocast: bool = False,
    inplace: bool = False,
    shadow: bool = False,
    tensor_only: bool = False,
    device: Any = None,
) -> Any:
    """The tensorclass of a dataclass, or of an instance of one.

    Args:
        obj: a dataclass: a tensorclass of the same fields is made; or an instance, whose fields are taken over.
        dest_cls: the class of the result, for an instance; made anew if not given.
        auto_batch_size: without `batch_size`, take the longest leading dimensions that all fields share.
        batch_dims: the most dimensions that `auto_batch_size` takes.
        batch_size: the batch size of an instance.
        frozen: as for `tensorclass`, and so are `autocast`, `nocast`, `shadow` and `tensor_only`.
        autocast: see there.
        nocast: see there.
        inplace: accepted; a class cannot become another one.
        shadow: see there.
        tensor_only: see there.
        device: the device of an instance.

    Raises:
        TypeError: `obj` is no dataclass.
    """
    if not dataclasses.is_dataclass(obj):
        raise TypeError(f"Expected a obj input, got a {type(obj)} input instead: it is no dataclass.")
    options = {"frozen": frozen, "autocast": autocast, "nocast": nocast, "shadow": shadow, "tensor_only": tensor_only}
    given = {name: value for name, value in options.items() if value}
    if isinstance(obj, type):
        return obj if isinstance(obj, TensorClassMeta) and not given else _class_of(obj, given)
    cls = dest_cls or (type(obj) if isinstance(obj, TensorClass) and not given else _class_of(type(obj), given))
    values = {item.name: getattr(obj, item.name) for item in dataclasses.fields(obj)}
    size = None if batch_size is None else as_size(batch_size)
    out = cls(**values, batch_size=size, device=device)
    if size is None and (auto_batch_size or batch_dims is not None):
        out.auto_batch_size_(batch_dims=batch_dims)
    return out


def _class_of(kind: Any, options: dict[str, Any]) -> Any:
    """A tensorclass with the fields of a dataclass and its methods."""
    name = kind.__name__ + "_tc"
    space = {"__module__": kind.__module__, "__qualname__": kind.__qualname__ + "_tc", "__doc__": kind.__doc__}
    base = (kind,) if isinstance(kind, TensorClassMeta) else (kind, TensorClass)
    return TensorClassMeta(name, base, space, **options)


def is_tensorclass(obj: Any) -> bool:
    """Whether a class, or the class of an object, is a tensorclass.

    >>> from tensordict import TensorClass, TensorDict, is_tensorclass
    >>> is_tensorclass(TensorClass), is_tensorclass(TensorDict())
    (True, False)
    """
    return issubclass(obj if isinstance(obj, type) else type(obj), TensorClass)


def _restore(type_name: str, inner: Any) -> Any:
    """`inner`, read from a folder, in the tensorclass that the folder names.

    Raises:
        RuntimeError: there is no such tensorclass.
        ValueError: `inner` has a key that is no field of it, or is no tensordict.
    """
    for cls in reversed(CLASSES):
        if str(cls) == type_name:
            return _wrapped(cls, inner)
    module, _, name = type_name.removeprefix("<class '").removesuffix("'>").rpartition(".")
    # a data set must not say what is imported, which runs code
    found = getattr(sys.modules.get(module), name, None)
    if not isinstance(found, TensorClassMeta):
        raise RuntimeError(f"the folder holds a {type_name}: there is no tensorclass of that name; import its module first")
    return _wrapped(found, inner)


def _wrapped(cls: Any, inner: Any) -> Any:
    """A tensordict as an instance of a class, which has fields for all keys of it."""
    if inner._is_non_tensor:
        raise ValueError(f"the entries of a {cls.__name__} are a tensordict, not a {type(inner).__name__}")
    keys = set(inner._fields())
    if not keys <= cls._schema.keys:
        raise cls._schema.foreign(keys)
    return cls._wrap(inner)


CLASS_READERS.append(_restore)
