"""The tree of a folder as text; the layout is the reference's."""

import logging

import pytest

from tensordict._io.tree_print import print_directory_tree


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "data"
    (root / "n" / "s").mkdir(parents=True)
    (root / "empty").mkdir()
    (root / "meta.json").write_bytes(b"x" * 24)
    (root / "n" / "x.memmap").write_bytes(b"x" * 1000)
    (root / "n" / "s" / "meta.json").write_bytes(b"")
    return root


TREE = ["data/", "    empty/", "    meta.json", "    n/", "        s/", "            meta.json", "        x.memmap"]


def test_tree(folder):
    assert print_directory_tree(folder).splitlines() == ["Directory size: 1.00 KB", *TREE]
    assert print_directory_tree(str(folder), display_metadata=False).splitlines() == TREE


def test_indent(folder):
    assert print_directory_tree(folder, indent="--", display_metadata=False).splitlines() == ["--" + line for line in TREE]


def test_logs_each_line(folder, monkeypatch):
    records = []
    handler = logging.Handler()
    monkeypatch.setattr(handler, "emit", records.append)
    monkeypatch.setattr(logging.getLogger("tensordict"), "handlers", [handler])
    text = print_directory_tree(folder)
    assert [record.getMessage() for record in records] == text.splitlines()


def test_file_and_nothing(folder):
    assert print_directory_tree(folder / "meta.json") == "Directory size: 0.00 B\nmeta.json"
    assert print_directory_tree(folder / "absent") == "Directory size: 0.00 B\nabsent"


def test_links(folder):
    (folder / "empty" / "loop").symlink_to(folder)
    (folder / "empty" / "gone").symlink_to(folder / "absent")
    (folder / "empty" / "file").symlink_to(folder / "meta.json")
    lines = print_directory_tree(folder / "empty").splitlines()
    assert lines == ["Directory size: 24.00 B", "empty/", "    file", "    gone", "    loop/"]


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0.00 B"), (1023, "1023.00 B"), (1024, "1.00 KB"), (3 * 1024**2, "3.00 MB"), (5 * 1024**4, "5.00 TB")],
)
def test_sizes(tmp_path, size, text):
    with open(tmp_path / "f", "wb") as file:
        file.truncate(size)
    assert print_directory_tree(tmp_path).splitlines()[0] == f"Directory size: {text}"
