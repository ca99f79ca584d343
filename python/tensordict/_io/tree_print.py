"""The files below a folder, as text."""

from __future__ import annotations

import os
from collections.abc import Iterator

from tensordict._kernel.log import logger

_UNITS = ("B", "KB", "MB", "GB", "TB")


def print_directory_tree(path: str | os.PathLike[str], indent: str = "", display_metadata: bool = True) -> str:
    """Logs the tree of files below a folder, line by line, and returns it.

    Entries come in alphabetical order. A link to a folder is named but not entered, since it may lead to one above it.

    Args:
        path: a folder, such as one that `memmap` wrote, or a file.
        indent: what each line begins with.
        display_metadata: whether the total size of the files comes first.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     root = pathlib.Path(folder, "data")
    ...     (root / "obs").mkdir(parents=True)
    ...     _ = (root / "meta.json").write_text("{}")
    ...     print(print_directory_tree(root))
    Directory size: 2.00 B
    data/
        meta.json
        obs/
    """
    root = os.fspath(path)
    lines = [f"Directory size: {_size(_bytes(root))}"] if display_metadata else []
    lines += _lines(root, indent)
    for line in lines:
        logger.info(line)
    return "\n".join(lines)


def _lines(path: str, indent: str, entered: bool = True) -> Iterator[str]:
    folder = os.path.isdir(path)
    yield f"{indent}{os.path.basename(os.path.normpath(path))}{'/' * folder}"
    if folder and entered:
        for name in sorted(os.listdir(path)):
            inner = os.path.join(path, name)
            yield from _lines(inner, indent + " " * 4, entered=not os.path.islink(inner))


def _bytes(path: str) -> int:
    """The bytes of the files below a folder; a link to a file counts as the file."""
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                total += os.path.getsize(os.path.join(folder, name))
            except OSError:  # a link that leads nowhere
                continue
    return total


def _size(count: float) -> str:
    for unit in _UNITS[:-1]:
        if count < 1024:
            return f"{count:.2f} {unit}"
        count /= 1024
    return f"{count:.2f} {_UNITS[-1]}"
