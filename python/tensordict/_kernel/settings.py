"""Switches that users may set, each usable as a setter, a context manager and a decorator."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable
from typing import Any, TypeVar

import torch

F = TypeVar("F", bound=Callable[..., Any])


def truth(text: str) -> bool:
    """What a text such as "1", "yes", "off" means.

    Raises:
        ValueError: it means neither yes nor no.
    """
    word = text.strip().lower()
    if word in ("1", "true", "t", "yes", "y", "on"):
        return True
    if word in ("0", "false", "f", "no", "n", "off"):
        return False
    raise ValueError(f"invalid truth value {text!r}")


class Flag:
    """A named boolean of the process, read from the environment once."""

    __slots__ = ("chosen", "value")

    def __init__(self, default: bool, variable: str = "") -> None:
        text = os.environ.get(variable, "") if variable else ""
        self.chosen = bool(text)
        try:
            self.value = truth(text) if text else default
        except ValueError as error:
            raise ValueError(f"the environment variable {variable}: {error}") from None


class FlagScope:
    """Sets a flag for a `with` block, a decorated function, or (by `set`) from now on."""

    _flag: Flag

    def __init__(self, mode: bool = True) -> None:
        self._mode = bool(mode)
        self._saved: list[bool] = []

    def set(self) -> None:
        """Sets the flag until it is set again."""
        self._flag.value = self._mode

    def __enter__(self) -> FlagScope:
        self._saved.append(self._flag.value)
        self.set()
        return self

    def __exit__(self, *exc: object) -> None:
        self._flag.value = self._saved.pop()

    def __call__(self, function: F) -> F:
        @functools.wraps(function)
        def scoped(*args: Any, **kwargs: Any) -> Any:
            with type(self)(self._mode):
                return function(*args, **kwargs)

        return scoped  # type: ignore[return-value]


# The releases of torch whose tensors' own fields are read by default. A release gets here when the whole suite has passed on
# it in the three modes, which `make test TORCH=x.y.z`, the same with TD_DIRECT_READS=0 and with TD_DIRECT_READS=check do.
# On others TD_DIRECT_READS=1 asks for it: the places are found at run time, and the proofs are the same.
TESTED_TORCH = ("2.11", "2.15")
# What the user wants of it: "" (as the release says), "0", "1" or "check".
DIRECT_READS = os.environ.get("TD_DIRECT_READS", "").strip().lower()
if DIRECT_READS not in ("", "check"):
    try:
        DIRECT_READS = str(int(truth(DIRECT_READS)))
    except ValueError as error:
        raise ValueError(f"the environment variable TD_DIRECT_READS: {error}, nor is it 'check'") from None


def direct_reads(version: str = torch.__version__, wanted: str = DIRECT_READS) -> str:
    """Whether plain tensors are read through torch's own fields: "on", "off", or "check" to compare with torch each time.

    Args:
        version: the version of torch. Only releases are known, not what was built before one.
        wanted: what the user chose.
    """
    if wanted:
        return {"0": "off", "1": "on", "check": "check"}[wanted]
    release = re.fullmatch(r"(\d+\.\d+)\.\d+(\+.*)?", version)
    return "on" if release and release[1] in TESTED_TORCH else "off"


# Whether new nodes are checked against what they hold; for tests.
CHECK_INVARIANTS = Flag(False, "TD_CHECK_INVARIANTS")
# Whether tensordicts are leaves for `torch.utils._pytree`, which ends what vmap and compile know of them.
EXCLUDE_FROM_PYTREE = Flag(False, "EXCLUDE_TD_FROM_PYTREE")
GET_DEFAULTS_TO_NONE = Flag(True, "TD_GET_DEFAULTS_TO_NONE")
# Whether `torch.stack` of tensordicts is a lazy stack.
LAZY_LEGACY = Flag(False, "LAZY_LEGACY_OP")
# Whether what is made empty and mapped takes its space as it is written to, where a call does not say.
SPARSE_FILES = Flag(False, "TD_SPARSE_FILES")


class set_lazy_legacy(FlagScope):
    """Chooses whether stacks of tensordicts are lazy, as they once were: False, the default, copies the leaves.

    Args:
        mode: the behaviour, until the end of the `with` block, or for good with `.set()`.
    """

    _flag = LAZY_LEGACY

    def __init__(self, mode: bool) -> None:
        super().__init__(mode)


def lazy_legacy(allow_none: bool = False) -> bool:
    """Whether stacks of tensordicts are lazy (see `set_lazy_legacy`)."""
    return LAZY_LEGACY.value


class set_get_defaults_to_none(FlagScope):
    """Chooses what `get` of a missing key does: return `None` (True, the default) or raise a `KeyError` (False).

    Args:
        set_to_none: the behaviour, until the end of the `with` block, or for good with `.set()`.
    """

    _flag = GET_DEFAULTS_TO_NONE

    def __init__(self, set_to_none: bool = True) -> None:
        super().__init__(set_to_none)


def get_defaults_to_none(set_to_none: bool = True) -> bool:
    """Whether `get` of a missing key returns `None`."""
    return GET_DEFAULTS_TO_NONE.value


class ChoiceScope(FlagScope):
    """A scope of a flag that may not have been chosen: then it says None, and counts as its default."""

    def __init__(self, mode: bool) -> None:
        super().__init__(mode)
        self._chosen: list[bool] = []

    def set(self) -> None:
        """Sets the flag until it is set again."""
        super().set()
        self._flag.chosen = True

    def __enter__(self) -> ChoiceScope:
        self._chosen.append(self._flag.chosen)
        super().__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        super().__exit__(*exc)
        self._flag.chosen = self._chosen.pop()

    def clone(self) -> ChoiceScope:
        """A scope of the same mode."""
        return type(self)(self._mode)


CAPTURE_NON_TENSOR_STACK = Flag(False, "CAPTURE_NONTENSOR_STACK")
LIST_TO_STACK = Flag(True, "LIST_TO_STACK")


class set_capture_non_tensor_stack(ChoiceScope):
    """Chooses what becomes of equal objects that are stacked: one holder for all (True), or a stack (False, the default).

    Args:
        mode: the behaviour, until the end of the `with` block, or for good with `.set()`.

    >>> import torch
    >>> from tensordict import NonTensorData, set_capture_non_tensor_stack
    >>> with set_capture_non_tensor_stack(True):
    ...     torch.stack([NonTensorData("a"), NonTensorData("a")])
    NonTensorData(data=a, batch_size=torch.Size([2]), device=None)
    """

    _flag = CAPTURE_NON_TENSOR_STACK


class set_list_to_stack(ChoiceScope):
    """Chooses what becomes of a list that is set and cannot be a tensor: a stack of objects (True, the default), or one object.

    Args:
        mode: the behaviour, until the end of the `with` block, or for good with `.set()`.
    """

    _flag = LIST_TO_STACK


def capture_non_tensor_stack(allow_none: bool = False) -> bool | None:
    """Whether equal objects that are stacked become one; with `allow_none`, None where that was not chosen."""
    return None if allow_none and not CAPTURE_NON_TENSOR_STACK.chosen else CAPTURE_NON_TENSOR_STACK.value


def list_to_stack(allow_none: bool = False) -> bool | None:
    """Whether lists become stacks of objects; with `allow_none`, None where that was not chosen."""
    return None if allow_none and not LIST_TO_STACK.chosen else LIST_TO_STACK.value


for _option in (
    lazy_legacy,
    set_lazy_legacy,
    capture_non_tensor_stack,
    set_capture_non_tensor_stack,
    list_to_stack,
    set_list_to_stack,
):
    _option.__module__ = "tensordict.utils"
