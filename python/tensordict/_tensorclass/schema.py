"""What a tensorclass knows of its fields: names, defaults, how a value is cast."""

from __future__ import annotations

import dataclasses
import sys
import typing
from collections.abc import Callable, Mapping
from types import GenericAlias, UnionType
from typing import Any, Union

import numpy as np
import torch
from torch import Tensor

from tensordict._reexport import non_tensor
from tensordict._types import TensorCollection

# What a tensor can be made of, in a class that casts neither by its annotations nor not at all.
_NUMBERS = (bool, int, float, complex, list)
_PLAIN = (bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset)
FLAGS = ("autocast", "nocast", "frozen", "tensor_only", "shadow", "skip_post_init_on_rebuild")

Convert = Callable[["Schema", Any, str, Any], Any]


class Schema:
    """The declared fields of one class.

    Attributes:
        owner: the class.
        fields: the dataclass fields by name, in the order of the constructor.
        names: the names that the constructor takes by position.
        init_only: those of them that are passed on to `__post_init__` and not stored.
        convert: the value that stands for one a user gave.
    """

    __slots__ = ("_hints", "convert", "fields", "init_only", "keys", "names", "owner", "parameters")

    def __init__(self, owner: Any, dataclass: Any) -> None:
        everything = dataclass.__dataclass_fields__.values()
        kinds = {field.name: field._field_type.name for field in everything}
        self.owner = owner
        self.fields: dict[str, Any] = {field.name: field for field in everything if kinds[field.name] == "_FIELD"}
        accepted = [field for field in everything if kinds[field.name] != "_FIELD_CLASSVAR" and field.init]
        self.parameters: dict[str, Any] = {field.name: field for field in accepted}
        self.names: list[str] = [field.name for field in accepted if not field.kw_only]
        self.init_only: tuple[str, ...] = tuple(f.name for f in everything if kinds[f.name] == "_FIELD_INITVAR")
        self.keys = self.fields.keys()
        self.convert: Convert = _by_value
        self._hints: dict[str, Any] = {}

    def admit(self, node: Any, key: str, value: Any) -> Any:
        """What is stored in `node` under `key` for `value`.

        Raises:
            ValueError: the class has no such field.
        """
        if key not in self.fields:
            raise self.foreign({key})
        return self.convert(self, node, key, value)

    def foreign(self, keys: set[str]) -> ValueError:
        """The error of keys that are no fields."""
        return ValueError(
            f"Keys from the tensordict ({sorted(keys)}) must correspond to the class attributes ({sorted(self.fields)}). "
            f"The keys {sorted(keys - self.fields.keys())} do not belong to the class {self.owner.__name__}."
        )

    def bind(self, args: tuple[Any, ...], given: dict[str, Any]) -> dict[str, Any]:
        """The arguments of the constructor by name.

        Raises:
            TypeError: there are too many, or one is given twice.
        """
        name = self.owner.__name__
        if len(args) > len(self.names):
            raise TypeError(
                f"{name}.__init__() takes {len(self.names) + 1} positional arguments but {len(args) + 1} were given"
            )
        bound = dict(zip(self.names, args))
        for key, value in given.items():
            if key in bound:
                raise TypeError(f"{name}.__init__() got multiple values for argument {key!r}")
            bound[key] = value
        return bound

    def complete(self, values: dict[str, Any]) -> None:
        """Adds the defaults of the fields that `values` lacks.

        Raises:
            TypeError: a field without default is missing, or a name is no field.
        """
        missing = []
        for name, field in {**self.parameters, **self.fields}.items():
            if name in values:
                continue
            if field.default is not dataclasses.MISSING:
                values[name] = field.default
            elif field.default_factory is not dataclasses.MISSING:
                values[name] = field.default_factory()
            elif name in self.parameters:
                missing.append(name)
        unknown = sorted([name for name in values if name not in self.parameters and name not in self.fields])
        if unknown:
            raise TypeError(
                f"{self.owner.__name__}.__init__() got unexpected keyword arguments {unknown}. Its fields are "
                f"{sorted(self.fields)}."
            )
        if missing:
            kind = "keyword-only" if missing[0] not in self.names else "positional"
            plural = "s" if len(missing) > 1 else ""
            raise TypeError(
                f"{self.owner.__name__}.__init__() missing {len(missing)} required {kind} argument{plural}: "
                f"{', '.join(map(repr, missing))}"
            )

    def unset(self) -> dict[str, Any]:
        """None for each argument of the constructor that has no default."""
        missing = dataclasses.MISSING
        return {
            name: None for name, item in self.parameters.items() if item.default is missing and item.default_factory is missing
        }

    def hint(self, key: str) -> Any:
        """The annotation of a field as a type; None where it names something that is not there."""
        if key not in self._hints:
            self._hints[key] = self._evaluated(self.fields[key].type)
        return self._hints[key]

    def _evaluated(self, annotation: Any) -> Any:
        if not isinstance(annotation, str):
            return annotation
        for owner in self.owner.__mro__:
            scope = vars(sys.modules.get(owner.__module__, typing))
            try:
                found = eval(annotation, {**scope, self.owner.__name__: self.owner})
                return self._evaluated(found) if isinstance(found, str) else found
            except Exception:  # a name of a scope that is out of reach
                continue
        return None

    def check_tensor_only(self) -> None:
        """Raises `TypeError` where an annotation is not of tensors alone."""
        for name in self.fields:
            for kind in alternatives(self.hint(name)):
                if not _holds_tensors(kind):
                    raise TypeError(
                        f"tensor_only requires types to be Tensor, Tensor-subtrypes or None, got {self.fields[name].type} "
                        f"for the field {name!r}"
                    )


def alternatives(hint: Any) -> list[Any]:
    """The members of a union, or the annotation itself."""
    if typing.get_origin(hint) in (Union, UnionType):
        return [kind for part in typing.get_args(hint) for kind in alternatives(part)]
    return [hint]


def _holds_tensors(kind: Any) -> bool:
    kind = typing.get_origin(kind) or kind
    if kind is None or kind is type(None) or type(kind).__name__ == "tensortype":  # torch.IntTensor and its kin
        return True
    return isinstance(kind, type) and issubclass(kind, (Tensor, TensorCollection))


def _object(node: Any, value: Any) -> Any:
    return non_tensor(value, node.batch_size, node.device)


def _by_value(schema: Schema, node: Any, key: str, value: Any) -> Any:
    """What can be a tensor becomes one, everything else is kept as an object."""
    if isinstance(value, (Tensor, TensorCollection, *_NUMBERS)):
        return value
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufc":
        return value
    return _object(node, value)


def _by_tensor(schema: Schema, node: Any, key: str, value: Any) -> Any:
    """As `_by_value`, and dicts become tensordicts, other mappings where the annotation says so."""
    if isinstance(value, dict):
        return value
    if isinstance(value, Mapping) and not isinstance(value, TensorCollection):
        hints = [typing.get_origin(kind) or kind for kind in alternatives(schema.hint(key))]
        if any(isinstance(hint, type) and _is_container(hint) for hint in hints):
            return value
    return _by_value(schema, node, key, value)


def _is_container(kind: type) -> bool:
    return issubclass(kind, TensorCollection) and not getattr(kind, "_is_non_tensor", False)


def _unchanged(schema: Schema, node: Any, key: str, value: Any) -> Any:
    """Only tensors, and lists of numbers and tensors, are tensors."""
    return value if isinstance(value, (Tensor, TensorCollection, list)) else _object(node, value)


def _by_annotation(schema: Schema, node: Any, key: str, value: Any) -> Any:
    """What the annotation asks for, where it is a tensor, a container or a plain type; else as `_by_value`."""
    hint = schema.hint(key)
    if not isinstance(hint, type) or isinstance(hint, GenericAlias):
        return _by_value(schema, node, key, value)
    try:
        if issubclass(hint, Tensor):
            return value if isinstance(value, (Tensor, TensorCollection)) else torch.as_tensor(value)
        if _is_container(hint):
            return _cast_mapping(hint, node, value)
        if issubclass(hint, np.ndarray):
            return _object(node, np.asarray(value))
        if hint in _PLAIN:
            return _object(node, value if isinstance(value, hint) else hint(value))
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"Failed to cast the value {key} to the type annotation {hint}.") from error
    return _by_value(schema, node, key, value)


def _cast_mapping(kind: Any, node: Any, value: Any) -> Any:
    if isinstance(value, TensorCollection) or not isinstance(value, Mapping) or not hasattr(kind, "_schema"):
        return value
    if kind._schema is None:
        return value
    # what the mapping lacks is not set, also where the constructor asks for it
    return kind(**{**kind._schema.unset(), **value}, batch_size=node.batch_size, device=node.device)


CONVERTERS: dict[str, Convert] = {"autocast": _by_annotation, "nocast": _unchanged, "tensor_only": _by_tensor}
