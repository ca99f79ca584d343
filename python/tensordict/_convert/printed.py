"""A tensordict from its printed form, compact or long."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from tensordict._ops.repr import dtype_code
from tensordict._reexport import dense_class

if TYPE_CHECKING:
    from tensordict.base import TensorDictBase

_DTYPES = {dtype_code(dtype): dtype for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)}

_OPENING = re.compile(r"\s*[A-Za-z_]\w*\(")
_NAME = re.compile(r"\s*(\w+)=")
_SHAPE = re.compile(r"(?:torch\.Size\()?\[((?:\d+(?:, ?\d+)*)?)\]\)?")
_WORD = re.compile(r"[\w.:]+")
_KEY = re.compile(r"\s*(.*?(?:: )*): ", re.DOTALL)
_CODE = re.compile(r"(\w+)\[((?:\d+(?:,\d+)*)?)\](?:@([\w:]+))?")
_LABEL = re.compile(r"(?:\[((?:\d+(?:,\d+)*)?)\])?\{")
_COMMA = re.compile(r",\s*")
_SPACE = re.compile(r"\s*")
_CLOSING = re.compile(r"\s*\}")
_NOTHING = re.compile(r"\{\s*\}")


@dataclass(slots=True)
class Printed:
    """What the text says of one tensordict: its fields are tensors or more of these."""

    fields: dict[str, torch.Tensor | Printed] = field(default_factory=dict)
    batch_size: torch.Size | None = None
    device: torch.device | None = None
    others: dict[str, str] = field(default_factory=dict)


class _Reader:
    """Reads a text from left to right; knows the key path it is at."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.path: list[str] = []

    def take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        match = pattern.match(self.text, self.at)
        if match is not None:
            self.at = match.end()
        return match

    def takes(self, word: str) -> bool:
        found = self.text.startswith(word, self.at)
        self.at += len(word) * found
        return found

    def need(self, pattern: re.Pattern[str], wanted: str) -> re.Match[str]:
        match = self.take(pattern)
        return match if match is not None else self.fail(wanted)

    def fail(self, wanted: str) -> NoReturn:
        where = f"the field {tuple(self.path)}" if self.path else "the printed tensordict"
        rest = self.text[self.at : self.at + 60].split("\n", 1)[0]
        raise ValueError(f"cannot read {where}: expected {wanted}, found {rest!r}")

    def tensordict(self, device: torch.device | None) -> Printed:
        """`Name(attribute=value, ...)`; compact texts inherit the device, long ones state it."""
        self.need(_OPENING, "a class name and '('")
        read = Printed(device=device)
        self.take(_SPACE)
        while not self.takes(")"):
            name = self.need(_NAME, "an attribute, such as 'batch_size='")[1]
            self.attribute(name, read)
            self.take(_COMMA)
        return read

    def attribute(self, name: str, read: Printed) -> None:
        if name == "batch_size":
            read.batch_size = _size(self.need(_SHAPE, "a shape, such as [3,4]")[1])
        elif name == "device":
            read.device = _device(self.need(_WORD, "a device")[0])
        elif name == "fields":
            if not self.takes("{"):
                self.fail("'{'")
            read.fields = self.fields(read.batch_size, read.device)
        elif name == "exclusive_fields":
            if self.take(_NOTHING) is None:
                self.fail("no exclusive fields, since a lazy stack cannot be rebuilt")
        else:
            read.others[name] = self.need(_WORD, f"a value of {name!r}")[0]

    def fields(self, batch_size: torch.Size | None, device: torch.device | None) -> dict[str, torch.Tensor | Printed]:
        """`key: value, ...}`, the opening brace being read."""
        found: dict[str, torch.Tensor | Printed] = {}
        if self.take(_CLOSING) is not None:
            return found
        while True:
            key = self.need(_KEY, "a key and ': '")[1]
            self.path.append(key)
            found[key] = self.value(batch_size, device)
            self.path.pop()
            if self.takes("}"):
                return found
            self.need(_COMMA, "',' or '}' after a field")

    def value(self, batch_size: torch.Size | None, device: torch.device | None) -> torch.Tensor | Printed:
        """A leaf or a tensordict, compact or long."""
        if self.text.startswith("TensorDict(", self.at):
            return self.tensordict(None)
        if self.takes("Tensor("):
            return self.long_leaf()
        label = self.take(_LABEL)
        if label is not None and batch_size is not None:
            batch_size = torch.Size([*batch_size, *_size(label[1] or "")])
            return Printed(self.fields(batch_size, device), batch_size, device)
        code = self.need(_CODE, "a tensor such as f32[3] or a tensordict, printed with the default options")
        if code[1] not in _DTYPES:
            self.at = code.start()
            self.fail("the short name of a dtype, such as f32")
        if batch_size is None:
            raise ValueError("cannot read the printed tensordict: its batch size is not shown")
        at = device if code[3] is None else torch.device(code[3])
        return torch.zeros([*batch_size, *_size(code[2])], dtype=_DTYPES[code[1]], device=at)

    def long_leaf(self) -> torch.Tensor:
        """`shape=..., device=..., dtype=...)`; whether it was shared, needed a gradient and so on is not rebuilt."""
        shown: dict[str, str] = {}
        while not self.takes(")"):
            name = self.need(_NAME, "an attribute of a tensor")[1]
            shown[name] = self.need(_SHAPE, "a shape")[1] if name == "shape" else self.need(_WORD, "a value")[0]
            self.take(_COMMA)
        dtype = getattr(torch, shown.get("dtype", "").removeprefix("torch."), None)
        if "shape" not in shown or not isinstance(dtype, torch.dtype):
            raise ValueError(f"cannot read the field {tuple(self.path)}: its shape and its dtype must be shown, got {shown}")
        return torch.zeros(_size(shown["shape"]), dtype=dtype, device=_device(shown.get("device", "None")))


def _size(dims: str) -> torch.Size:
    return torch.Size([int(dim) for dim in dims.split(",") if dim])


def _device(text: str) -> torch.device | None:
    return None if text == "None" else torch.device(text)


def read_printed(text: str) -> Printed:
    """What a printed tensordict says.

    Raises:
        ValueError: where the text is not the printed form of a tensordict, or shows too little to rebuild it.
    """
    if not isinstance(text, str):
        raise TypeError(f"expected the printed form of a tensordict as a str, got a {type(text).__name__}")
    read = _Reader(text).tensordict(None)
    _check(read)
    return read


def _check(read: Printed) -> None:
    if read.batch_size is None:
        raise ValueError("cannot read the printed tensordict: its batch size is not shown")
    for value in read.fields.values():
        if isinstance(value, Printed):
            _check(value)


def parse_tensor_dict_string(s: str) -> TensorDictBase:
    """A tensordict of zeros with the keys, shapes, dtypes, batch sizes and devices of a printed one.

    Args:
        s: what `repr` gave for a tensordict with the default print options, or in the long form.

    Raises:
        ValueError: where the text is not the printed form of a tensordict, shows too little to rebuild it, or has
            fields other than tensors and tensordicts.
        RuntimeError: where a shape does not begin with the batch size.

    >>> from tensordict import parse_tensor_dict_string
    >>> parse_tensor_dict_string("TensorDict(batch_size=[2], fields={a: f32[3], b: {c: i64[]}})")
    TensorDict(batch_size=[2], fields={a: f32[3], b: {c: i64[]}})
    """
    return _build(read_printed(s))


def _build(read: Printed) -> TensorDictBase:
    fields: dict[str, Any] = {key: _build(value) if isinstance(value, Printed) else value for key, value in read.fields.items()}
    built: TensorDictBase = dense_class()(fields, read.batch_size, read.device)
    return built
