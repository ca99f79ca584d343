"""Every example runs: those of the pages, and those of the docstrings."""

from __future__ import annotations

import doctest
import importlib
import re
import warnings
from pathlib import Path

import pytest

import tensordict

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "benches").rglob("*.md")])
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def examples(text: str) -> str:
    """The Python blocks of a page; all other lines are blank, so that line numbers stay right."""
    kept, inside = [], False
    for line in text.splitlines():
        fence = re.match(r"\s*```(\w*)", line)
        if fence:
            inside = fence[1] == "python" and not inside
        kept.append(line if inside and not fence else "")
    return "\n".join(kept)


def modules() -> list[str]:
    """The modules of the installed package, found without importing them."""
    top = Path(tensordict.__file__).parent
    paths = (path.relative_to(top.parent).with_suffix("") for path in top.rglob("*.py"))
    return sorted(".".join(path.parts).removesuffix(".__init__") for path in paths)


@pytest.fixture(autouse=True)
def _in_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_page(page: Path) -> None:
    blocks = examples(page.read_text())
    # What is no session at a prompt would be skipped in silence.
    assert not [line for line in blocks.splitlines() if line and not blocks.count(">>>")]
    test = doctest.DocTestParser().get_doctest(blocks, {}, page.name, str(page), 0)
    assert doctest.DocTestRunner(optionflags=OPTIONS).run(test).failed == 0


@pytest.mark.parametrize("name", modules())
def test_docstrings(name: str) -> None:
    with warnings.catch_warnings():
        # Importing a deprecated path says so.
        warnings.simplefilter("ignore", DeprecationWarning)
        module = importlib.import_module(name)
    assert doctest.testmod(module, optionflags=OPTIONS).failed == 0


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links(page: Path) -> None:
    """Links between the pages lead somewhere."""
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
    assert [target for target in targets if not (page.parent / target).exists()] == []
