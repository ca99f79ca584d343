"""The base of all tensorclasses, and the decorator that makes one."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Size, Tensor
from typing_extensions import Self, dataclass_transform

from tensordict._kernel.index import Index
from tensordict._kernel.keys import is_key, path_of
from tensordict._kernel.registry import exposed
from tensordict._ops.coerce import as_device, as_size
from tensordict._ops.writes import Writes
from tensordict._td import TensorDict
from tensordict._tensorclass.meta import TensorClassMeta
from tensordict._tensorclass.schema import FLAGS, Schema
from tensordict._tensorclass.wrapper import Wrapper
from tensordict._types import IndexType, Key, Names, TensorCollection
from tensordict.base import TensorDictOps

_NO_BATCH = Size(())


class _Fields(Wrapper, TensorDictOps, metaclass=TensorClassMeta):
    """What a tensorclass does, but for what type checkers read off its base."""

    __slots__ = ("__weakref__", "_tensordict")

    _is_root = True
    _dataclass: ClassVar[Any] = None
    _schema: ClassVar[Schema | None] = None
    _autocast: ClassVar[bool] = False
    _nocast: ClassVar[bool] = False
    _frozen: ClassVar[bool] = False
    _shadow: ClassVar[bool] = False
    _tensor_only: ClassVar[bool] = False
    _skip_post_init_on_rebuild: ClassVar[bool] = False
    __expected_keys__: ClassVar[set[str]] = set()
    # Whether a class overrides what an assignment does, and whether there is something to do once the fields are set.
    _assigns: ClassVar[bool] = False
    _ends: ClassVar[bool] = False

    _tensordict: Any

    def __init__(
        self,
        *args: Any,
        batch_size: Any = None,
        device: Any = None,
        names: Any = None,
        **fields: Any,
    ) -> None:
        schema = self._schema
        if schema is None:
            raise NotImplementedError(f"{type(self).__name__} has no fields: subclass it, or decorate a class")
        if args:
            short = not fields and len(args) <= len(schema.names)
            fields = dict(zip(schema.names, args)) if short else schema.bind(args, fields)
        if self._shadow:
            batch_size, device, names = _shadowed(schema, fields, batch_size, device, names)
        size = _NO_BATCH if batch_size is None else as_size(batch_size)
        place = None if device is None else as_device(device)
        stored: dict[str, Any] = {}
        inner = TensorDict._new(stored, size, place)
        object.__setattr__(self, "_tensordict", inner)
        if names is not None:
            inner.names = names
        lock = False
        if fields.keys() != schema.keys:
            if "lock" in fields and "lock" not in schema.keys:
                lock = fields.pop("lock")
            schema.complete(fields)
        self._store(schema, stored, fields, size if place is None else None)
        if lock or self._ends:
            self._after_init(fields, lock)

    def _store(self, schema: Schema, stored: dict[str, Any], fields: dict[str, Any], size: Size | None) -> None:
        """Stores the values that the constructor got; plain tensors directly, where they need not move to a device."""
        dims = -1 if size is None or self._assigns or self._autocast or schema.init_only else len(size)
        fitting: Size | None = None  # the last shape that was found to fit; fields often share theirs
        for key, value in fields.items():
            if type(value) is Tensor and dims >= 0 and not value.is_nested:
                shape = value.shape
                if shape == fitting or shape[:dims] == size:
                    fitting = shape
                    stored[key] = value
                    continue
            if key in schema.keys:
                setattr(self, key, value) if self._assigns else self._set_field(key, value)

    def _after_init(self, fields: dict[str, Any], lock: bool = False) -> None:
        """Runs `__post_init__` and locks, as the class and its constructor ask for."""
        after = getattr(type(self), "__post_init__", None)
        if after is not None:
            schema: Any = self._schema
            after(self, *[fields[name] for name in schema.init_only])
        if lock or self._frozen:
            self.lock_()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__()
        cls._assigns = cls.__setattr__ is not _Fields.__setattr__
        cls._ends = cls._frozen or hasattr(cls, "__post_init__")

    def __class_getitem__(cls, item: Any) -> Any:
        """A base with options, as `TensorClass["autocast", "frozen"]`; for generic classes, a class of those types."""
        flags = item if isinstance(item, tuple) else (item,)
        if not all(isinstance(flag, str) and flag in FLAGS for flag in flags):
            generic = getattr(super(), "__class_getitem__", None)
            if cls._schema is not None and generic is not None:
                return generic(item)
            raise TypeError(f"TensorClass[...] takes the flags {FLAGS}, got {flags}")
        name = f"{cls.__name__}_{'_'.join(flags)}"
        space = {f"_{flag}": True for flag in flags}
        if space.get("_autocast") and space.get("_nocast"):
            raise TypeError("autocast is exclusive with nocast.")
        if space.get("_tensor_only") and (space.get("_autocast") or space.get("_nocast")):
            raise TypeError("tensor_only and autocast or nocast are exclusive features.")
        body = {**space, "__module__": cls.__module__, "__slots__": ()}
        return TensorClassMeta(name, (cls,), body, flags_only=True)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs a `torch.*` function that has a meaning for tensordicts; not of tensorclasses that are no kin."""
        for kind in types:
            if kind is not cls and issubclass(kind, _Fields) and not (kind._is_non_tensor or _kin(kind, cls)):
                return NotImplemented
        return super().__torch_function__(func, types, args, kwargs)

    def __replace__(self, /, **changes: Any) -> Self:
        """A tensorclass with some fields changed, which shares all others; what `copy.replace` calls.

        `batch_size`, `device` and `names` can be changed as well.

        Raises:
            AttributeError: there is no such field.
        """
        schema: Any = self._schema
        given = {
            name: changes.pop(name, getattr(self, name))
            for name in ("batch_size", "device", "names")
            if name not in schema.keys
        }
        unknown = sorted(changes.keys() - schema.keys - set(schema.init_only))
        if unknown:
            raise self._no_field(unknown[0])
        kept = {name: getattr(self, name) for name in schema.parameters if name in schema.keys}
        return type(self)(**(kept | changes), **given)

    # Fields as attributes.

    def __setattr__(self, name: str, value: Any) -> None:
        schema: Any = self._schema
        if name in schema.fields:
            if self._frozen:
                raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
            self._set_field(name, value)
        elif name.startswith("__") or hasattr(getattr(type(self), name, None), "__set__"):
            object.__setattr__(self, name, value)
        else:
            raise self._no_field(name)

    def _no_field(self, name: Any) -> AttributeError:
        schema: Any = self._schema
        return AttributeError(
            f"Cannot set the attribute {name!r}: {type(self).__name__} has no such field. Its fields are "
            f"{sorted(schema.fields)}."
        )

    def _set_field(self, name: str, value: Any) -> None:
        inner = self._tensordict
        if (
            type(value) is Tensor
            and type(inner) is TensorDict
            and not (inner._is_locked or self._autocast or value.is_nested)
            and inner._device is None
            and value.shape[: len(inner._batch_size)] == inner._batch_size
        ):
            inner._tensordict[name] = value
            return
        if value is None:
            self._check_unlocked()
            if name in inner._fields():
                inner._del_str(name)
            return
        schema: Any = self._schema
        inner.set(name, schema.convert(schema, self, name, value))

    def __delattr__(self, name: str) -> None:
        if self._frozen:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super().__delattr__(name)

    @classmethod
    def fields(cls) -> tuple[Any, ...]:
        """The dataclass fields."""
        return dataclasses.fields(cls)  # type: ignore[arg-type]

    # Fields by key.

    def get(self, key: Key, *args: Any, **kwargs: Any) -> Any:
        """The value of a field, None for one that is not set; `default` for what is no field. See `TensorDict.get`."""
        schema: Any = self._schema
        if isinstance(key, str) and key not in self._fields():
            if key in schema.fields:
                return None
            if not args and "default" not in kwargs and hasattr(type(self), key):
                return getattr(self, key)
        return exposed(self._tensordict.get(key, *args, **kwargs))

    def set(self, key: Key, item: Any, inplace: bool = False, *, non_blocking: bool = False, **kwargs: Any) -> Self:
        """Sets a field, or an entry below one. See `TensorDict.set`.

        Raises:
            AttributeError: the class has no such field.
        """
        path = path_of(key)
        schema: Any = self._schema
        if path[0] not in schema.fields:
            raise self._no_field(path[0])
        if len(path) == 1:
            if item is None:
                self._set_field(path[0], None)
                return self
            item = schema.convert(schema, self, path[0], item)
        self._tensordict.set(path, item, inplace, non_blocking=non_blocking, **kwargs)
        return self

    def update(self, input_dict_or_td: Any = None, *args: Any, **kwargs: Any) -> Self:
        """Sets fields from another container or a mapping; those that are None there are unset. See `TensorDict.update`."""
        schema: Any = self._schema
        if isinstance(input_dict_or_td, Mapping) and not isinstance(input_dict_or_td, TensorCollection):
            unset = [key for key, value in input_dict_or_td.items() if value is None]
            if unset:
                input_dict_or_td = {key: value for key, value in input_dict_or_td.items() if value is not None}
                if not set(unset) <= schema.fields.keys():
                    raise schema.foreign({str(key) for key in unset})
            super().update(input_dict_or_td, *args, **kwargs)
            for key in unset:
                self._set_field(key, None)
            return self
        return super().update(input_dict_or_td, *args, **kwargs)

    def __getitem__(self, index: IndexType) -> Any:
        """The rows at an index. A field is read as an attribute, or by `get`."""
        if is_key(index):
            raise ValueError(
                f"Invalid indexing arguments: {index!r}. A tensorclass is indexed along its batch dimensions; to read a field, "
                "use the attribute or get()."
            )
        return self._get_rows(index)

    def __setitem__(self, index: IndexType, value: Any) -> None:
        """Writes into the rows at an index. A field is written as an attribute, or by `set`."""
        if is_key(index):
            raise ValueError(
                f"Invalid indexing arguments: {index!r}. A tensorclass is indexed along its batch dimensions; to write a "
                "field, use the attribute or set()."
            )
        self._set_item(index, value)

    def __bool__(self) -> bool:
        raise RuntimeError(
            "Converting a tensorclass to boolean value is not permitted. Use len(tc.keys()) to test for keys, tc.is_empty() "
            "to test for leaves, or (a == b).all() / .any() to reduce a comparison."
        )

    # The waist, where fields are declared.

    @property
    def _wrapped(self) -> Any:
        return self._tensordict

    def _rebuild(
        self, fields: dict[str, Any], batch_size: Size, device: torch.device | None = None, names: Names = None
    ) -> Self:
        schema: Any = self._schema
        if not fields.keys() <= schema.fields.keys():
            raise schema.foreign(set(fields))
        return self._wrap(self._tensordict._rebuild(fields, batch_size, device, names))

    def _set_str(self, key: str, value: Any) -> None:
        schema: Any = self._schema
        if key not in schema.fields:
            raise schema.foreign({key})
        self._tensordict._set_str(key, value)

    def _plan_assign(self, index: Index, value: Any, plan: Writes) -> None:
        self._check_fields(value)
        super()._plan_assign(index, value, plan)

    def _check_fields(self, value: Any) -> None:
        """Raises where what is written into rows is of a class with fields that this one lacks."""
        schema: Any = self._schema
        if isinstance(value, _Fields) and not value._fields().keys() <= schema.fields.keys():
            raise ValueError(
                "__setitem__ is only allowed for same-class or compatible class (i.e. same members) assignment: "
                f"{type(value).__name__} has the fields {sorted(value.__expected_keys__)}, {type(self).__name__} has "
                f"{sorted(schema.fields)}"
            )

    # Conversions.

    @classmethod
    def from_tensordict(cls, tensordict: Any, non_tensordict: Any = None, safe: Any = None) -> Self:
        """A tensorclass around a tensordict, which is not copied.

        Args:
            tensordict: a tensordict, of any kind, or a tensorclass.
            non_tensordict: more fields, by name.
            safe: with False, keys that are no fields are let through.

        Raises:
            RuntimeError: `tensordict` is none.
            ValueError: it has a key that is no field.
        """
        if not isinstance(tensordict, TensorCollection):
            raise RuntimeError(f"Expected a TensorDictBase instance but got {type(tensordict)}")
        inner: Any = tensordict._tensordict if isinstance(tensordict, Wrapper) else tensordict
        schema: Any = cls._schema
        keys = set(inner._fields())
        if safe is not False and not keys <= schema.fields.keys():
            raise schema.foreign(keys)
        self = cls._wrap(inner)
        for key, value in (non_tensordict or {}).items():
            if key not in schema.fields:
                raise schema.foreign({key})
            self._set_field(key, value)
        if not cls._skip_post_init_on_rebuild:
            self._after_init({name: getattr(schema.parameters[name], "default", None) for name in schema.init_only})
        elif cls._frozen:
            self.lock_()
        return self

    @classmethod
    def _from_tensordict(cls, tensordict: Any, non_tensordict: Any = None, safe: Any = None) -> Self:
        return cls.from_tensordict(tensordict, non_tensordict, safe)

    @classmethod
    def from_dict(cls, input_dict: Any, **options: Any) -> Self:
        """A tensorclass of a dict of its fields; the options are those of `TensorDict.from_dict`."""
        if isinstance(input_dict, Mapping):
            input_dict = {key: value for key, value in input_dict.items() if value is not None}
        return cls.from_tensordict(TensorDict.from_dict(input_dict, **options))

    def to_dict(self, *, retain_none: bool = True, **options: Any) -> dict[str, Any]:
        """A nested dict of the fields. See `TensorDict.to_dict`.

        Args:
            retain_none: also give fields that are not set, as None.
            **options: those of `TensorDict.to_dict`.
        """
        out = self._tensordict.to_dict(retain_none=retain_none, **options)
        if retain_none:
            schema: Any = self._schema
            out.update({name: None for name in schema.fields if name not in out})
        return out

    def to_tensordict(self, *, retain_none: bool | None = None) -> Any:
        """A plain `TensorDict` of copies of the leaves; tensorclasses below become tensordicts too."""
        return self._tensordict.to_tensordict(retain_none=retain_none)

    def select(self, *keys: Key, inplace: bool = False, strict: bool = True, as_tensordict: bool = False) -> Any:
        """The fields of these names, the others not set; with `as_tensordict`, a tensordict. See `TensorDict.select`."""
        out = super().select(*keys, inplace=inplace, strict=strict)
        return out._tensordict if as_tensordict else out

    # What only a lazy stack has.

    def append(self, tensordict: Any) -> None:
        """Appends a member to the lazy stack."""
        self._tensordict.append(tensordict._tensordict if isinstance(tensordict, Wrapper) else tensordict)

    def insert(self, index: int, tensordict: Any) -> None:
        """Inserts a member into the lazy stack."""
        self._tensordict.insert(index, tensordict._tensordict if isinstance(tensordict, Wrapper) else tensordict)

    def extend(self, tensordict: Any) -> None:
        """Appends the rows of another one to a tensorclass that holds a lazy stack."""
        self._tensordict.extend(tensordict._tensordict if isinstance(tensordict, Wrapper) else tensordict)

    # Copies and pickles.

    @property
    def _non_tensordict(self) -> dict[str, Any]:
        """What is not in the tensordict: the fields that are not set."""
        return dict.fromkeys(self._unset())

    def __getstate__(self) -> dict[str, Any]:
        return {"tensordict": self._tensordict, "non_tensordict": self._non_tensordict}

    def __setstate__(self, state: dict[str, Any]) -> None:
        object.__setattr__(self, "_tensordict", state["tensordict"])
        for name, value in state.get("non_tensordict", {}).items():
            if value is not None:
                self._set_field(name, value)
        if self._frozen and not self._tensordict.is_locked:
            self.lock_()


def _kin(one: type, two: type) -> bool:
    return issubclass(one, two) or issubclass(two, one)


def _shadowed(schema: Schema, fields: dict[str, Any], *given: Any) -> tuple[Any, Any, Any]:
    """The arguments that are no fields of the same names; the others are moved to `fields`."""
    left = []
    for name, value in zip(("batch_size", "device", "names"), given):
        if name in schema.fields and value is not None:
            fields.setdefault(name, value)
            value = None
        left.append(value)
    return left[0], left[1], left[2]


if TYPE_CHECKING:
    from tensordict._tensorclass.declared import DeviceAttribute, SizeAttribute

    @dataclass_transform(kw_only_default=False, eq_default=False, field_specifiers=(dataclasses.field, dataclasses.Field))
    class _Declared(_Fields):
        """Says that annotations of subclasses are fields."""
else:
    _Declared = _Fields


class TensorClass(_Declared):
    """The base of classes whose fields are tensors with shared batch dimensions.

    A subclass declares its fields as a dataclass does. An instance has all methods of a `TensorDict`, which give instances
    of the same class; a field is read and written as an attribute, and one that is not set reads as None.

    Options are given as `class A(TensorClass, frozen=True)` or as `class A(TensorClass["frozen"])`:

    - `autocast`: cast what is assigned to what the annotation says (tensors, tensordicts, tensorclasses, plain types);
    - `nocast`: keep numbers and arrays as they are, instead of making them tensors;
    - `tensor_only`: all annotations are of tensors, checked when the class is made; mappings become tensordicts;
    - `frozen`: fields cannot be assigned, instances are locked and can be hashed;
    - `shadow`: fields may have the names of methods, which are then out of reach under that name;
    - `skip_post_init_on_rebuild`: `from_tensordict` does not run `__post_init__`;
    - `cast_filter`: `fn(key, leaf)`, true for the leaves that `to(dtype)`, `float()` and so on cast, with the key as a tuple;
    - `kw_only`: fields are given by keyword.

    Args:
        batch_size: the leading dimensions that all fields share.
        device: if given, tensors are moved to it, now and when they are set later.
        names: a name, or None, for each batch dimension.
        lock: lock the instance once it is filled.

    Raises:
        RuntimeError: the leading dimensions of a field are not the batch size.
        TypeError: a field without default is missing, or an argument is no field.

    >>> import torch
    >>> from tensordict import TensorClass
    >>> class Pair(TensorClass):
    ...     left: torch.Tensor
    ...     right: torch.Tensor | None = None
    >>> pair = Pair(torch.zeros(3, 2), batch_size=[3])
    >>> pair[0].left.shape, (pair + 1).left[0, 0].item(), pair.right
    (torch.Size([2]), 1.0, None)
    """

    __slots__ = ()
    _is_root = True

    if TYPE_CHECKING:
        # what the constructor takes besides the fields
        batch_size: SizeAttribute = dataclasses.field(default=SizeAttribute(), kw_only=True)
        device: DeviceAttribute = dataclasses.field(default=DeviceAttribute(), kw_only=True)
        names: Any = dataclasses.field(default=None, kw_only=True)


TensorClass.__module__ = "tensordict.tensorclass"
