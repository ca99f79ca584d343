"""Saves that are refused: the old set is as it was, and the next save works."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mixed_trees import tree, values
from tensordict import NonTensorData, TensorDict, lazy_stack

EXAMPLES = int(os.environ.get("TD_OBSTACLES", "40"))

LONG = "x" * 249  # a folder of that name can be made, and no file with `.memmap` after it


def leaf_key(bad: TensorDict, where: Any, key: str) -> None:
    bad[(*where, key)] = torch.zeros(3, 1)


def level_key(bad: TensorDict, where: Any, key: str) -> None:
    bad[(*where, key)] = TensorDict({"z": torch.zeros(3, 1)}, [3])


def object_key(bad: TensorDict, where: Any, key: str) -> None:
    bad[(*where, key)] = NonTensorData({1}, batch_size=[3])


def stack_key(bad: TensorDict, where: Any, key: str) -> None:
    bad[(*where, key)] = lazy_stack([TensorDict({key: torch.zeros(3)}, [3])] * 2, 1)


class Unpicklable:
    """An object that refuses to be saved."""

    def __reduce__(self) -> Any:
        raise ValueError("no")


KEYS = {
    "long": LONG,
    "longer": "x" * 300,
    "wide": "\u00e9" * 125,
    "surrogate": "\ud800",
    "staging": ".tensordict-staging",
    "metadata": "meta.json",
}
WAYS: dict[str, Callable[[TensorDict, Any, str], None]] = {
    "leaf": leaf_key,
    "level": level_key,
    "object": object_key,
    "stack": stack_key,
}


def obstacle(folder: Path, kind: str, name: str) -> list[Path]:
    """Puts something in the way of a save; what is to be removed afterwards, in that order."""
    place = folder / name
    place.parent.mkdir(exist_ok=True)
    if kind == "folder":
        place.mkdir()
        (place / "file").write_text("theirs")
        return [place / "file", place]
    if kind == "link":
        place.symlink_to(folder.parent)
    else:
        place.write_text("theirs")
    return [place]


def attempt(folder: Path, data: TensorDict) -> bool:
    """Whether a save was refused."""
    try:
        data.memmap(folder)
    except (OSError, RuntimeError, ValueError, NotImplementedError):
        return True
    return False


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def check_refused(folder: Path, bad: TensorDict) -> None:
    before = snapshot(folder)
    refused = attempt(folder, bad)
    if refused:
        assert snapshot(folder) == before
        assert values(TensorDict.load_memmap(folder, allow_pickle=True)) == {1.0}
        assert [path for path in folder.rglob("*") if path.name.startswith(".")] == []
    tree(2).memmap(folder)
    assert values(TensorDict.load_memmap(folder, allow_pickle=True)) == {2.0}
    assert set(snapshot(folder)) >= {"meta.json", "stack/0/a.memmap"}


WHERE = st.sampled_from([(), ("nested",), ("nested", "deep"), ("pair",), ("new",)])


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    WHERE,
    st.sampled_from(sorted(WAYS)),
    st.sampled_from(sorted(KEYS)),
)
def test_names_that_are_refused(where: tuple[str, ...], way: str, key: str) -> None:
    with tempfile.TemporaryDirectory() as top:
        folder = Path(top) / "set"
        tree(1).memmap(folder)
        bad = tree(3)
        if where == ("pair",):
            where = ("pair_too",)
        WAYS[way](bad, where, KEYS[key])
        check_refused(folder, bad)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from(["folder", "link", "file"]),
    st.sampled_from(["z.memmap", "z", "n/z.memmap", "n", "nested/z.memmap", "nested/z", "stack/4", "nested/deep/z.memmap"]),
)
def test_places_that_are_taken(kind: str, name: str) -> None:
    with tempfile.TemporaryDirectory() as top:
        folder = Path(top) / "set"
        tree(1).memmap(folder)
        ways = obstacle(folder, kind, name)
        bad = tree(3)
        for key in ("z", ("n", "z"), ("nested", "z"), ("nested", "deep", "z")):
            bad[key] = torch.full((3, 1), 3.0)
        bad["nested", "z2"] = torch.zeros(3, 1)
        before = snapshot(folder)
        if attempt(folder, bad):
            assert snapshot(folder) == before
            assert values(TensorDict.load_memmap(folder, allow_pickle=True)) == {1.0}
        else:
            assert values(TensorDict.load_memmap(folder, allow_pickle=True)) == {3.0}
        for path in ways:
            if path.is_dir() and not path.is_symlink():
                if not list(path.iterdir()):
                    path.rmdir()
            else:
                path.unlink(missing_ok=True)
        tree(2).memmap(folder)
        assert values(TensorDict.load_memmap(folder, allow_pickle=True)) == {2.0}


@pytest.mark.parametrize("make", [lambda: tree(3), lambda: TensorDict({"new": torch.zeros(3, 1)}, [3])])
def test_values_that_are_refused(tmp_path: Path, make: Callable[[], TensorDict]) -> None:
    for value in (
        NonTensorData(Unpicklable(), batch_size=[3]),
        torch.zeros(3, 2).to_sparse(),
        torch.zeros(3, device="meta"),
    ):
        folder = tmp_path / "set"
        tree(1).memmap(folder)
        bad = make()
        bad["z"] = value
        before = snapshot(folder)
        assert attempt(folder, bad)
        assert snapshot(folder) == before
        check_refused(folder, bad)


# As another user than root, whom permissions bind.
BOUND = """
import os, sys, pathlib, torch
sys.path[:0] = sys.argv[2].split(":")
from mixed_trees import tree, values
from tensordict import TensorDict
torch.set_num_threads(1)
folder = pathlib.Path(sys.argv[1])
# what is imported late is imported now: that user may not be able to read it
tree(1).memmap(f"{folder}-before")
assert values(TensorDict.load_memmap(f"{folder}-before", allow_pickle=True)) == {1.0}
os.setgid(65534)
os.setuid(65534)
tree(1).memmap(folder)
for name in (".", "nested", "nested/deep", "pair", "pair/_tensordict", "stack", "stack/1", "object", "objects"):
    os.chmod(folder / name, 0o555)
    try:
        for again in range(2):
            try:
                tree(3 + again).memmap(folder)
            except PermissionError as error:
                assert str(folder) in str(error), error
            else:
                raise AssertionError(f"{name}: not refused")
            assert values(TensorDict.load_memmap(folder, allow_pickle=True)) == {1.0}, name
            assert [path for path in folder.rglob("*") if path.name.startswith(".")] == [], name
    finally:
        os.chmod(folder / name, 0o755)
    tree(2).memmap(folder)
    assert values(TensorDict.load_memmap(folder, allow_pickle=True)) == {2.0}, name
    tree(1).memmap(folder)
"""


def test_folders_that_must_not_be_written(tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("needs to become another user")
    with tempfile.TemporaryDirectory() as top:
        os.chmod(top, 0o777)
        path = ":".join([str(Path(__file__).parents[1]), *sys.path])
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", BOUND, f"{top}/set", path], check=False, capture_output=True, text=True
        )
    assert done.returncode == 0, done.stderr[-2000:]


# As another user, in folders of root's with the sticky bit, where only root may replace what is root's.
STICKY = """
import os, sys, pathlib, torch
sys.path[:0] = sys.argv[2].split(":")
from mixed_trees import tree, values
from tensordict import TensorDict
torch.set_num_threads(1)
folder = pathlib.Path(sys.argv[1])
tree(1).memmap(folder)
assert values(TensorDict.load_memmap(folder, allow_pickle=True)) == {1.0}
places = [folder, *(path for path in folder.rglob("*") if path.is_dir())]
def mode(sticky):
    for place in places:
        os.chmod(place, 0o777)
        os.chown(place, 0, 0)
    for path in folder.rglob("*"):
        os.chown(path, 65534, 65534)
    os.chown(sticky, 0, 0)
    for path in sticky.iterdir():
        os.chown(path, 0, 0)
    os.chmod(sticky, 0o1777)
def refused():
    os.setgid(65534)
    os.setuid(65534)
    try:
        TensorDict({"new": torch.zeros(3)}, [3]).memmap(folder) if sys.argv[3] == "other" else tree(3).memmap(folder)
    except PermissionError as error:
        assert str(folder) in str(error), error
        assert "counts" not in str(error), error
        os._exit(7)
    os._exit(0)
for place in places:
    mode(place)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    child = os.fork()
    if child == 0:
        refused()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7, place
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before, place
    assert values(TensorDict.load_memmap(folder, allow_pickle=True)) == {1.0}, place
# Who may act for all owners is not bound.
mode(folder)
tree(2).memmap(folder)
assert values(TensorDict.load_memmap(folder, allow_pickle=True)) == {2.0}
"""


@pytest.mark.parametrize("how", ["same", "other"])
def test_files_of_others_in_sticky_folders(how: str) -> None:
    if os.getuid() != 0:
        pytest.skip("needs to become another user")
    with tempfile.TemporaryDirectory() as top:
        os.chmod(top, 0o777)
        path = ":".join([str(Path(__file__).parents[1]), *sys.path])
        command = [sys.executable, "-W", "ignore", "-c", STICKY, f"{top}/set", path, how]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
