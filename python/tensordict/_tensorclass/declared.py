"""What a type checker reads of attributes that a constructor sets from values of other types. Nothing here runs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Size


class SizeAttribute:
    """A batch size, set from a size, a sequence of integers or an integer."""

    def __get__(self, instance: Any, owner: Any = None) -> Size: ...  # type: ignore[empty-body]
    def __set__(self, instance: Any, value: Any) -> None: ...


class DeviceAttribute:
    """A device or None, given as whatever names one."""

    def __get__(self, instance: Any, owner: Any = None) -> torch.device | None: ...
    def __set__(self, instance: Any, value: Any) -> None: ...
