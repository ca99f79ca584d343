"""The printed form of a container: compact text, long text, and a tree for notebooks.

A container describes itself by a few hooks of `ReprOps`; the functions below lay the description out. A container that
prints otherwise overrides one hook: what its fields are (`_repr_fields`), the name before its fields (`_repr_label`),
which attributes follow those that all have (`_repr_names`), the word for it inside another one (`_words`), its long text
(`_repr_long`). Reading a leaf never fails and, but for the option `plain`, never looks at its values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from html import escape
from textwrap import indent
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from tensordict._kernel.printoptions import Options, get_printoptions
from tensordict._kernel.registry import is_node
from tensordict._ops.waist import Waist

if TYPE_CHECKING:
    pass

_WIDTH = 80
_UNKNOWN = "?"
_DIM = '<span style="opacity:0.7">'
_LIST = '<ul style="list-style:none;margin:0;padding-left:1.5em">'


@dataclass(frozen=True, slots=True)
class Entry:
    """How one value reads in the compact form: `head` alone for a leaf, `head{fields}` for a node."""

    head: str
    fields: list[tuple[str, Entry]] | None
    inline: str

    @classmethod
    def leaf(cls, text: str) -> Entry:
        """An entry of one word."""
        return cls(text, None, text)

    @classmethod
    def node(cls, head: str, fields: list[tuple[str, Entry]]) -> Entry:
        """An entry with entries of its own."""
        return cls(head, fields, f"{head}{{{', '.join(f'{key}: {entry.inline}' for key, entry in fields)}}}")


class ReprOps(Waist):
    """`repr` and the notebook view, on the hooks that a container may override."""

    __slots__ = ()

    # Whether the option `sort_keys` applies; a class whose fields are declared keeps their order.
    _repr_sorts: ClassVar[bool] = True
    # The attributes that a class shows after those that all have.
    _repr_names: ClassVar[tuple[str, ...]] = ()

    def __repr__(self) -> str:
        """The compact form, or the long one where the print options ask for it.

        >>> import torch
        >>> from tensordict import TensorDict
        >>> TensorDict({"a": torch.zeros(3, 4), "b": {"c": torch.arange(3)}}, [3])
        TensorDict(batch_size=[3], fields={a: f32[4], b: {c: i64[]}})
        """
        options = get_printoptions()
        return self._repr_compact(options) if options["compact"] else self._repr_long(options)

    def _repr_html_(self) -> str | None:
        """The tree that a notebook shows, with what the text shows; None where the option `html` is off."""
        options = get_printoptions()
        if not options["html"]:
            return None
        if not options["compact"]:
            return f"<pre>{escape(self._repr_long(options))}</pre>"
        header = self._repr_header(options)
        names = self._names
        if options["show_batch_size"] and names is not None:
            header.insert(1, f"names=[{_dims(names)}]")
        title = f"<b>{escape(self._repr_name())}</b> {_DIM}{escape(', '.join(header))}</span>"
        fields = "".join(_html(key, entry) for key, entry in self._repr_entries(options))
        return (
            f'<div style="font-family:monospace;line-height:1.4"><details open><summary>{title}</summary>'
            f"{_LIST}{fields}</ul></details></div>"
        )

    def _repr_name(self) -> str:
        """The name a container prints under."""
        return type(self).__name__

    def _repr_label(self, parent: ReprOps) -> str:
        """The name before the fields inside another container; none for a plain tensordict."""
        if self._repr_names and self._repr_names == parent._repr_names and self.batch_size == parent.batch_size:
            return ""  # the stack of the nodes that the members of a stack have
        name = self._repr_name()
        return "" if name == "TensorDict" else name

    def _repr_fields(self) -> Iterable[tuple[str, Any]]:
        """The fields to print, in their own order."""
        return self._outline()

    def _repr_header(self, options: Options) -> list[str]:
        """`name=value` of the attributes in the compact form."""
        shown = []
        if options["show_batch_size"]:
            shown.append(f"batch_size=[{_dims(self.batch_size)}]")
        if options["show_device"] and self.device is not None:
            shown.append(f"device={self.device}")
        return shown + [f"{name}={getattr(self, name)}" for name in self._repr_names]

    def _repr_entries(self, options: Options) -> list[tuple[str, Entry]]:
        """The fields in the compact form, in the order to print."""
        fields = [(str(key), _entry(value, self, options)) for key, value in self._repr_fields()]
        return [
            *_ordered(self, fields, options, lambda entry: entry.inline),
            *((key, Entry.leaf("None")) for key in self._unset()),
        ]

    def _unset(self) -> list[str]:
        """The declared fields that are not set."""
        schema, fields = self._schema, self._fields()
        return [] if schema is None else [name for name in schema.fields if name not in fields]

    def _repr_entry(self, parent: ReprOps, options: Options) -> Entry:
        """This container inside the compact form of another."""
        if self._words is not None:
            alone, in_stack = self._words
            return Entry.leaf(in_stack if parent._repr_names else alone)
        head = self._repr_label(parent)
        beyond = self.batch_size[len(parent.batch_size) :]
        if beyond:
            head += f"[{_dims(beyond)}]"
        return Entry.node(head, self._repr_entries(options))

    def _repr_compact(self, options: Options) -> str:
        """One line where it fits, else a line per field."""
        head = "".join(f"{part}, " for part in self._repr_header(options))
        fields = Entry.node(f"{self._repr_name()}({head}fields=", self._repr_entries(options))
        return "".join(_layout(fields, "", 0, 1)) + ")"

    def _repr_long(self, options: Options) -> str:
        """A line per field and attribute; those of a class with declared fields are at one level."""
        if self._words is not None:
            return repr(self)
        fields = [(str(key), _long(value, options)) for key, value in self._repr_fields()]
        ordered = _ordered(self, fields, options, str)
        if self._schema is not None:
            lines = [f"{key}={value}" for key, value in ordered] + [f"{name}=None" for name in self._unset()]
            text = ",\n".join([*lines, *self._repr_tail(options)]).replace("\n", "\n    ")
            return f"{self._repr_name()}(\n    {text})"
        text = ",\n".join(f"{key}: {value}" for key, value in ordered)
        lines = [f"fields={{\n{indent(text, ' ' * 4)}}}" if ordered else "fields={\n}", *self._repr_tail(options)]
        return f"{self._repr_name()}(\n{indent(f',{chr(10)}'.join(lines), ' ' * 4)})"

    def _repr_tail(self, options: Options) -> list[str]:
        """`name=value` of the attributes in the long form."""
        shown = []
        if options["show_batch_size"]:
            shown.append(f"batch_size={self.batch_size}")
        if options["show_device"]:
            shown.append(f"device={self.device}")
        if options["show_is_shared"]:
            shown.append(f"is_shared={_read(lambda: self.is_shared())}")
        return shown + [f"{name}={getattr(self, name)}" for name in self._repr_names]


def _ordered(
    owner: ReprOps, fields: list[tuple[str, Any]], options: Options, text: Callable[[Any], str]
) -> list[tuple[str, Any]]:
    """The fields in the order that `sort_keys` asks for: it sorts printed lines, `key: value`, not keys."""
    order = options["sort_keys"] if owner._repr_sorts else "insertion"
    if order != "alphabetical" and not callable(order):
        return fields
    by = order if callable(order) else str
    return sorted(fields, key=lambda field: by(f"{field[0]}: {text(field[1])}"))


def _layout(entry: Entry, margin: str, column: int, after: int) -> list[str]:
    """The pieces of an entry that starts at a column and has `after` characters behind it on its last line."""
    if not entry.fields or column + len(entry.inline) + after <= _WIDTH:
        return [entry.inline]
    margin += " " * 4
    pieces = [entry.head, "{\n"]
    last = len(entry.fields) - 1
    for position, (key, value) in enumerate(entry.fields):
        behind = 1 + after if position == last else 1
        pieces += [margin, key, ": ", *_layout(value, margin, len(margin) + len(key) + 2, behind)]
        pieces.append("}" if position == last else ",\n")
    return pieces


def _html(key: str, entry: Entry) -> str:
    """A list item: a word for a leaf, a folder for a node."""
    name = escape(key)
    if entry.fields is None:
        return f"<li>{name}: {_DIM}{escape(entry.head)}</span></li>"
    count = len(entry.fields)
    words = f"{count} {'entry' if count == 1 else 'entries'}"
    title = escape(f"{entry.head} {words}" if entry.head else words)
    inner = "".join(_html(*field) for field in entry.fields)
    return f"<li><details open><summary>{name}: {_DIM}{title}</span></summary>{_LIST}{inner}</ul></details></li>"


def _read(getter: Callable[[], Any], default: object = None) -> Any:
    """What a getter gives, or the default: batched, fake and sparse tensors refuse some questions."""
    try:
        return getter()
    except Exception:
        return default


def _dims(shape: Iterable[Any]) -> str:
    return ",".join(map(str, shape))


def _shape(value: Any) -> torch.Size:
    """The shape of a leaf, -1 for a dimension of varying length."""
    try:
        return value.shape
    except RuntimeError:
        return torch.Size([_read(partial(value.size, dim), -1) for dim in range(value.dim())])


def dtype_code(dtype: torch.dtype) -> str:
    """The short name of a dtype.

    >>> import torch
    >>> dtype_code(torch.float32), dtype_code(torch.uint8), dtype_code(torch.bfloat16), dtype_code(torch.bool)
    ('f32', 'u8', 'bf16', 'bool')
    """
    name = str(dtype).removeprefix("torch.")
    for word, letter in (("uint", "u"), ("int", "i"), ("float", "f"), ("complex", "c")):
        name = name.replace(word, letter)
    return name


def _entry(value: Any, parent: ReprOps, options: Options) -> Entry:
    """A value in the compact form of its container."""
    if is_node(value):
        entry: Entry = value._repr_entry(parent, options)
        return entry
    shape = _read(lambda: _shape(value))
    if shape is None:
        return Entry.leaf(type(value).__name__)
    code = dtype_code(_read(lambda: value.dtype, _UNKNOWN)) if options["show_dtype"] else ""
    text = f"{code}[{_dims(shape[len(parent.batch_size) :])}]"
    device = _read(lambda: value.device)
    if parent.device is None and device is not None and device.type != "cpu":
        text += f"@{device}"
    return Entry.leaf(text)


def _long(value: Any, options: Options) -> str:
    """A value in the long form of its container."""
    if is_node(value):
        text: str = value._repr_long(options)
        return text
    shown = [f"{name}={_read(partial(read, value), default)}" for name, read, default in _shown(options)]
    if options["plain"]:
        shown.append(_read(lambda: _summary(value), _UNKNOWN))
    return f"{type(value).__name__}({', '.join(shown)})"


_LEAF: tuple[tuple[str, str, Callable[[Any], Any], str | None], ...] = (
    ("show_shape", "shape", _shape, _UNKNOWN),
    ("show_field_device", "device", lambda leaf: leaf.device, _UNKNOWN),
    ("show_dtype", "dtype", lambda leaf: leaf.dtype, _UNKNOWN),
    ("show_field_is_shared", "is_shared", lambda leaf: leaf.is_shared(), None),
    ("show_grad", "requires_grad", lambda leaf: leaf.requires_grad, _UNKNOWN),
    ("show_is_contiguous", "is_contiguous", lambda leaf: leaf.is_contiguous(), _UNKNOWN),
    ("show_is_view", "is_view", lambda leaf: leaf._is_view(), _UNKNOWN),
    ("show_storage_size", "storage_size", lambda leaf: leaf.untyped_storage().nbytes(), _UNKNOWN),
)


def _shown(options: Options) -> list[tuple[str, Callable[[Any], Any], str | None]]:
    """The attributes of a leaf that the options show: name, how to read it, what to print where that fails."""
    return [(name, read, default) for option, name, read, default in _LEAF if options[option]]


def _summary(leaf: torch.Tensor) -> str:
    """The values of a leaf in two numbers: mean and deviation, or the bounds where it holds integers."""
    leaf = leaf.detach()
    if leaf.numel() == 0:
        return "[]"
    if leaf.is_complex() or leaf.is_floating_point():
        wide = leaf.to(torch.complex128 if leaf.is_complex() else torch.float64)
        # torch warns about the deviation of a single value; it is not defined.
        deviation = wide.std().item() if wide.numel() > 1 else math.nan
        return f"mean={wide.mean().item():.4g}, std={deviation:.4g}"
    if leaf.dtype in (torch.uint16, torch.uint32, torch.uint64):  # no minimum in torch
        values = leaf.flatten().tolist()
        return f"min={min(values)}, max={max(values)}"
    return f"min={leaf.min().item()}, max={leaf.max().item()}"
