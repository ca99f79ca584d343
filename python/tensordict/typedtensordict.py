"""Tensordicts with declared keys."""

from __future__ import annotations

import re
import typing
from typing import TYPE_CHECKING, Any, ClassVar, get_origin

import typing_extensions
from typing_extensions import Self, dataclass_transform

from tensordict._kernel.registry import exposed, new_class
from tensordict._td import TensorDict
from tensordict._tensorclass.wrapper import Wrapper
from tensordict.base import TensorDictBase

__all__ = ["TypedTensorDict"]

_OPTIONS = ("shadow", "frozen", "autocast", "nocast", "tensor_only")


class _TypedMeta(type):
    """The type of typed tensordicts: it collects the annotations."""

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], total: bool = True, **options: bool) -> Any:
        if not any(isinstance(base, _TypedMeta) for base in bases):
            return super().__new__(mcs, name, bases, namespace)
        unknown = sorted(options.keys() - set(_OPTIONS))
        if unknown:
            raise ValueError(f"Unknown TypedTensorDict option: {unknown[0]!r}. Valid options: {', '.join(_OPTIONS)}")
        namespace.update({f"_{key}": value for key, value in options.items()})
        required = {key for base in bases for key in getattr(base, "__required_keys__", ())}
        optional = {key for base in bases for key in getattr(base, "__optional_keys__", ())}
        own = [key for key, hint in namespace.get("__annotations__", {}).items() if not _is(hint, "ClassVar")]
        _check_names(own, namespace, bases)
        for key in own:
            hint = namespace["__annotations__"][key]
            needed = _is(hint, "Required") or (total and not _is(hint, "NotRequired") and key not in namespace)
            (required if needed else optional).add(key)
            (optional if needed else required).discard(key)
        defaults = {key: value for base in bases for key, value in getattr(base, "__field_defaults__", {}).items()}
        defaults.update({key: namespace[key] for key in own if key in namespace})
        namespace.update({key: _field(key) for key in own})
        namespace.update(
            __required_keys__=frozenset(required),
            __optional_keys__=frozenset(optional),
            __expected_keys__=frozenset(required | optional),
            __field_defaults__=defaults,
        )
        cls = super().__new__(mcs, name, bases, namespace)
        new_class(cls)
        return cls

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> None:
        super().__init__(name, bases, namespace)

    def __getitem__(cls, item: Any) -> Any:
        """A base with options, as `TypedTensorDict["frozen"]`."""
        options = item if isinstance(item, tuple) else (item,)
        name = "_".join([cls.__name__, *map(str, options)])
        space = {"__module__": cls.__module__, "__slots__": ()}
        return _TypedMeta(name, (cls,), space, **dict.fromkeys(map(str, options), True))


def _is(hint: Any, word: str) -> bool:
    """Whether an annotation, evaluated or as text, is a `word[...]`."""
    if isinstance(hint, str):
        return re.match(rf"(\w+\.)*{word}\s*(\[|$)", hint.strip()) is not None
    forms = {getattr(module, word, None) for module in (typing, typing_extensions)} - {None}
    return hint in forms or get_origin(hint) in forms


def _check_names(names: list[str], namespace: dict[str, Any], bases: tuple[type, ...]) -> None:
    """Raises `AttributeError` for a field with the name of a method, unless the class may shadow."""
    shadow = namespace.get("_shadow", any(getattr(base, "_shadow", False) for base in bases))
    for name in names:
        if hasattr(TensorDictBase, name) and (not shadow or name in TypedTensorDict._NEEDED):
            raise AttributeError(
                f"Field '{name}' of {namespace.get('__qualname__')} shadows a TensorDictBase attribute. Use "
                'TypedTensorDict["shadow"] to allow it.'
            )


def _field(name: str) -> property:
    """The property that reads and writes the entry `name`."""

    def read(self: Any) -> Any:
        fields = self._tensordict._fields()
        if name not in fields:
            raise AttributeError(f"'{type(self).__name__}' has field '{name}' declared but not set")
        return exposed(fields[name])

    def write(self: Any, value: Any) -> None:
        self.set(name, value)

    return property(read, write, None, f"The entry `{name}`.")


if TYPE_CHECKING:
    from tensordict._tensorclass.declared import DeviceAttribute, SizeAttribute

    @dataclass_transform(kw_only_default=True, eq_default=False)
    class _Declared(Wrapper, TensorDictBase, metaclass=_TypedMeta):
        """Says that annotations of subclasses are entries."""
else:

    class _Declared(Wrapper, TensorDictBase, metaclass=_TypedMeta):
        __slots__ = ()


class TypedTensorDict(_Declared):
    """A tensordict whose keys are declared as annotations of a subclass, and checked when it is made.

    Entries are read and written as attributes too. An annotation `NotRequired[Tensor]` declares a key that may be missing.
    Options are given as `class A(TypedTensorDict, frozen=True)` or `class A(TypedTensorDict["frozen"])`: `frozen` locks each
    instance, `shadow` lets fields have the names of methods.

    Args:
        _source: a mapping or tensordict of entries, instead of keywords.
        batch_size: the leading dimensions that all entries share.
        device: if given, all tensors are moved to it.
        names: a name, or None, for each batch dimension.
        non_blocking: for the moves to `device`.
        lock: lock it once it is filled.
        **kwargs: entries by keyword.

    Raises:
        TypeError: a required entry is missing, or one is not declared.

    >>> import torch
    >>> from tensordict import TypedTensorDict
    >>> class State(TypedTensorDict):
    ...     position: torch.Tensor
    >>> State(position=torch.zeros(3, 2), batch_size=[3])[0].position.shape
    torch.Size([2])
    """

    __slots__ = ("__weakref__", "_tensordict")

    # Attributes that every operation reads.
    _NEEDED: ClassVar[tuple[str, ...]] = ("batch_size", "device", "is_locked", "names")

    _shadow: ClassVar[bool] = False
    _frozen: ClassVar[bool] = False
    _autocast: ClassVar[bool] = False
    _nocast: ClassVar[bool] = False
    _tensor_only: ClassVar[bool] = False
    __required_keys__: ClassVar[frozenset[str]] = frozenset()
    __optional_keys__: ClassVar[frozenset[str]] = frozenset()
    __expected_keys__: ClassVar[frozenset[str]] = frozenset()
    __field_defaults__: ClassVar[dict[str, Any]] = {}

    if TYPE_CHECKING:
        batch_size: SizeAttribute = SizeAttribute()
        device: DeviceAttribute = DeviceAttribute()
        names: Any = None
        lock: bool = False
    else:

        def __init__(
            self,
            _source: Any = None,
            *,
            batch_size: Any = None,
            device: Any = None,
            names: Any = None,
            non_blocking: bool | None = None,
            lock: bool = False,
            **kwargs: Any,
        ) -> None:
            cls = type(self)
            given = {**(_source._entries() if isinstance(_source, TensorDictBase) else _source or {}), **kwargs}
            for key, value in self.__field_defaults__.items():
                given.setdefault(key, value)
            given = {key: value for key, value in given.items() if value is not None or key in self.__required_keys__}
            self._check_keys(given, cls.__name__, extra=True)
            inner = TensorDict(given, batch_size=batch_size, device=device, names=names, non_blocking=non_blocking)
            object.__setattr__(self, "_tensordict", inner)
            if lock or self._frozen:
                self.lock_()

    @classmethod
    def _check_keys(cls, given: Any, what: str, extra: bool = False) -> None:
        missing = sorted(cls.__required_keys__ - set(given))
        if missing:
            raise TypeError(f"{what}() missing required field(s): {', '.join(missing)}")
        unexpected = sorted(set(given) - cls.__expected_keys__) if extra else []
        if unexpected:
            raise TypeError(f"{what}() got unexpected field(s): {', '.join(map(str, unexpected))}")

    @classmethod
    def from_tensordict(cls, td: Any, *, check: bool = True) -> Self:
        """A typed tensordict around `td`, which is not copied: writes reach it. It may have more keys than declared.

        Raises:
            TypeError: `td` is no tensordict, or a required key is missing and `check` is set.
        """
        if not isinstance(td, TensorDictBase):
            raise TypeError(f"from_tensordict takes a tensordict, got a {type(td).__name__}")
        if check:
            cls._check_keys(td._fields(), f"{cls.__name__}.from_tensordict")
        self = cls._wrap(td._tensordict if isinstance(td, Wrapper) else td)
        return self.lock_() if cls._frozen else self

    def to_tensordict(self, *, retain_none: bool | None = None) -> Any:
        """A plain `TensorDict` of copies of the leaves."""
        return self._tensordict.to_tensordict(retain_none=retain_none)

    def __getstate__(self) -> dict[str, Any]:
        return {"_source": self._tensordict}

    def __setstate__(self, state: dict[str, Any]) -> None:
        object.__setattr__(self, "_tensordict", state["_source"])
