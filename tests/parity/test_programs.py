"""Each case of each program gives the same on our package and on the reference."""

import importlib.util
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs"


def _load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _cases():
    for path in sorted(PROGRAMS.glob("*.py")):
        program = _load(path)
        differs = getattr(program, "DIFFERS", {})
        unknown = differs.keys() - set(program.CASES)
        assert not unknown, f"{path.name}: DIFFERS names no case: {unknown}"
        for case in program.CASES:
            yield pytest.param(f"{path.stem}: {case}", differs.get(case), id=f"{path.stem}: {case}")


def _comparable(result, other):
    """All but the message of an error, whose words are our own, and classes of an error that the other one lacks."""
    out = {name: value for name, value in result.items() if name != "message"}
    if "error" in out and "error" in other:
        out["error"] = [kind for kind in out["error"] if kind in other["error"]]
    return out


@pytest.mark.parametrize(("case", "reason"), list(_cases()))
def test_same(case, reason, both):
    ours, reference = both[0][case], both[1][case]
    # whoever catches the error of the reference must catch ours, which may be of more classes
    one, two = _comparable(ours, reference), _comparable(reference, reference)
    if reason is None:
        assert one == two, (ours.get("message"), reference.get("message"))
    else:
        assert one != two, f"the same after all, though: {reason}"
