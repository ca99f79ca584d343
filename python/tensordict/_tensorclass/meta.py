"""How a tensorclass is made: the fields of a class body become a schema and properties."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

from torch import Tensor

from tensordict._kernel.registry import exposed, new_class
from tensordict._ops.waist import Waist
from tensordict._tensorclass.schema import CONVERTERS, FLAGS, Schema

# What may be a field although containers have an attribute of that name.
_FREE = ("append", "data", "fields", "insert", "stack_dim", "tensordicts")
# What a dataclass below writes, and a tensorclass above it has its own of.
_WRITTEN = ("__init__", "__repr__", "__eq__", "__hash__", "__setattr__", "__delattr__")
_GIVEN = ("batch_size", "device", "names")


class TensorClassMeta(type):
    """The type of tensorclasses."""

    _dataclass: Any
    _schema: Schema | None

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> Any:
        roots = [base for base in bases if isinstance(base, TensorClassMeta)]
        if not roots or "_is_root" in namespace or options.pop("flags_only", False):
            return super().__new__(mcs, name, bases, namespace)
        root = next(base for base in roots[0].__mro__ if "_is_root" in base.__dict__)
        kw_only = options.pop("kw_only", False)
        namespace.update(_option_attributes(name, bases, options))
        shape = _as_dataclass(name, bases, namespace, kw_only)
        schema = Schema(None, shape)
        own = _own_fields(schema, bases, namespace)
        _check_names(own, root, bool(_option("_shadow", namespace, bases)))
        whole = bool(_option("_tensor_only", namespace, bases))
        namespace.update({key: field(key, whole) for key in own})
        namespace.update(
            _dataclass=shape,
            _schema=schema,
            __dataclass_fields__=shape.__dataclass_fields__,
            __dataclass_params__=shape.__dataclass_params__,
            __expected_keys__=set(schema.fields),
            __match_args__=tuple(schema.names),
        )
        if _option("_frozen", namespace, bases):
            namespace.setdefault("__hash__", object.__hash__)
        if any(dataclasses.is_dataclass(base) for base in bases if not isinstance(base, TensorClassMeta)):
            namespace.update({key: getattr(root, key) for key in _WRITTEN if key not in namespace})
        if "__init__" in _user_methods(bases) or "__init__" in namespace:
            namespace.setdefault("__new__", _allocated)
        namespace.setdefault("__doc__", None)
        cls = super().__new__(mcs, name, bases, namespace)
        schema.owner = cls
        schema.convert = next((CONVERTERS[flag] for flag in CONVERTERS if getattr(cls, f"_{flag}")), schema.convert)
        if cls._tensor_only:  # type: ignore[attr-defined]
            schema.check_tensor_only()
        new_class(cls)
        return cls

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> None:
        super().__init__(name, bases, namespace)

    @property
    def __signature__(cls) -> inspect.Signature:
        """The fields, and what every tensorclass takes."""
        if cls._schema is None or "__init__" in _user_methods((cls,)):
            return inspect.Signature.from_callable(cls.__init__)  # type: ignore[misc]
        own = inspect.signature(cls._dataclass)
        kinds = inspect.Parameter
        defaults = (kinds.empty, None, None)
        given = [kinds(key, kinds.KEYWORD_ONLY, default=default) for key, default in zip(_GIVEN, defaults)]
        taken = own.parameters
        return own.replace(parameters=[*taken.values(), *(item for item in given if item.name not in taken)])


def _allocated(cls: Any, *args: Any, **kwargs: Any) -> Any:
    """The `__new__` of classes with a constructor of their own: it may set a field at once."""
    return cls._new_empty(None)


def _user_methods(bases: tuple[type, ...]) -> set[str]:
    """The special methods that classes or their bases write themselves."""
    above = [kind for base in bases for kind in base.__mro__ if kind is not object]
    ours = {kind for kind in above if "_is_root" in kind.__dict__}
    ours |= {kind for root in ours for kind in root.__mro__}
    return {key for kind in above if kind not in ours for key in ("__init__", "__setattr__") if key in kind.__dict__}


def _option(name: str, namespace: dict[str, Any], bases: tuple[type, ...]) -> Any:
    return namespace[name] if name in namespace else next((getattr(base, name) for base in bases if hasattr(base, name)), None)


def _option_attributes(name: str, bases: tuple[type, ...], options: dict[str, Any]) -> dict[str, Any]:
    """The options of a class as its attributes.

    Raises:
        TypeError: an option is not known, or two exclude each other.
    """
    unknown = options.keys() - {*FLAGS, "cast_filter"}
    if unknown:
        raise TypeError(
            f"{name} got the unknown options {sorted(unknown)}; a tensorclass takes {[*FLAGS, 'cast_filter', 'kw_only']}"
        )
    out = {f"_{key}": value for key, value in options.items()}
    if "_cast_filter" in out and out["_cast_filter"] is not None:
        out["_cast_filter"] = staticmethod(out["_cast_filter"])
    autocast, nocast, tensor_only = (_option(f"_{flag}", out, bases) for flag in ("autocast", "nocast", "tensor_only"))
    if autocast and nocast:
        raise TypeError("autocast is exclusive with nocast.")
    if tensor_only and (autocast or nocast):
        raise TypeError("tensor_only and autocast or nocast are exclusive features.")
    return out


def _as_dataclass(name: str, bases: tuple[type, ...], namespace: dict[str, Any], kw_only: bool) -> Any:
    """A plain dataclass of the fields of a class body and its bases: dataclasses decide what a field is, and the order."""
    below: list[Any] = []
    for base in bases:
        known = base.__dict__.get("_dataclass") if isinstance(base, TensorClassMeta) else base
        if known is not None and dataclasses.is_dataclass(known):
            below.append(known)
    annotations = namespace.get("__annotations__", {})
    body = {key: namespace[key] for key in annotations if key in namespace}
    body.update(__annotations__=dict(annotations), __module__=namespace.get("__module__", ""))
    plain = type(name, tuple(below) or (object,), body)
    return dataclasses.dataclass(init=True, repr=False, eq=False, match_args=False, kw_only=kw_only)(plain)


def _own_fields(schema: Schema, bases: tuple[type, ...], namespace: dict[str, Any]) -> list[str]:
    """The fields that no tensorclass above has: those of the class body, and of plain dataclasses."""
    known = [base._schema for base in bases if isinstance(base, TensorClassMeta) and base._schema is not None]
    above = {key for other in known for key in other.fields}
    return [key for key in schema.fields if key in namespace.get("__annotations__", ()) or key not in above]


def _check_names(names: list[str], root: type, shadow: bool) -> None:
    """Raises `AttributeError` for a field whose name a container needs itself."""
    for name in names:
        reserved = name in Waist.__dict__ or name.startswith("__") or name in ("_tensordict", "_schema", "_wrap", "_is_root")
        if reserved or (not shadow and name not in _FREE and hasattr(root, name)):
            raise AttributeError(
                f"Attribute name {name} can't be used with @tensorclass or TensorClass, as tensorclasses have an attribute of "
                "that name" + ("." if reserved else "; the option shadow=True lets a field take its place.")
            )


def field(name: str, whole: bool = False) -> property:
    """The property that reads and writes the field `name`.

    Args:
        name: the field.
        whole: an entry that holds objects is read as it is, and not as its objects.
    """

    def read(self: Any) -> Any:
        try:
            value = self._tensordict._tensordict[name]
        except KeyError:
            # a lookup that failed leaves no guard in compiled code, and this question does
            return read(self) if name in self._tensordict._tensordict else None
        except AttributeError:
            if name not in self._tensordict._fields():
                return None
            value = self._tensordict._get_str(name)
        return value if whole or type(value) is Tensor else exposed(value, self._tensordict, name)

    def write(self: Any, value: Any) -> None:
        self._set_field(name, value)

    def remove(self: Any) -> None:
        self._tensordict.pop(name, None)

    return property(read, write, remove, f"The field `{name}`.")
