"""`assert_close`, timers and the logger."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch

from containers import CONTAINERS
from tensordict import TensorDict, assert_close
from tensordict.utils import logger, timeit


@pytest.fixture(params=list(CONTAINERS))
def td(request: pytest.FixtureRequest) -> Any:
    return CONTAINERS[request.param]()


def test_close(td: Any) -> None:
    assert assert_close(td, td)
    assert assert_close(td, td.clone())
    assert assert_close(td, td.clone() + 1e-9)
    # In a stack the key starts with the place of the member.
    with pytest.raises(AssertionError, match=r"key \(('\d', )*'a',?\) does not match, here\n.*not close"):
        assert_close(td, td.clone() + 1, msg="here")
    assert assert_close(td, td.clone() + 0.5, rtol=0, atol=1)


def test_what_counts() -> None:
    leaf = torch.arange(3.0)
    td = TensorDict({"a": leaf, "n": {"b": leaf}}, [3], names=["t"])
    assert assert_close(td, TensorDict({"n": {"b": leaf}, "a": leaf}))
    for other in ({"b": leaf + 1}, {"b": leaf.double()}, {"b": leaf[:2]}, {"b": leaf.to("meta")}):
        with pytest.raises(AssertionError, match=r"\('n', 'b'\)"):
            assert_close(td, TensorDict({"a": leaf, "n": other}))
    with pytest.raises(AssertionError, match=r"\('top', 'a'\)"):
        assert_close(td, td + 1, prefix=("top",))
    nan = td * torch.nan
    assert assert_close(nan, nan)
    with pytest.raises(AssertionError):
        assert_close(nan, nan, equal_nan=False)


def test_keys_and_types() -> None:
    leaf = torch.arange(3.0)
    td, less = TensorDict({"a": leaf, "n": {"b": leaf, "c": leaf}}), TensorDict({"n": {"b": leaf}, "z": leaf})
    with pytest.raises(KeyError, match=r"\['a'\].*\['z'\]"):
        assert_close(td, less)
    assert assert_close(td, less, intersection=True)
    for left, right in ((td, td.to_dict()), (leaf, td), (leaf, leaf), (td, TensorDict({"a": leaf, "n": leaf}))):
        for one, two in ((left, right), (right, left)):
            with pytest.raises(TypeError, match="compares tensordicts"):
                assert_close(one, two)
    with pytest.raises(ValueError, match="together"):
        assert_close(td, td, rtol=1)


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    handler = logging.Handler()
    monkeypatch.setattr(handler, "emit", lambda record: found.append(record.getMessage()))
    monkeypatch.setattr(logger, "handlers", [handler])
    monkeypatch.setattr(timeit, "_REG", {})
    return found


def test_timers(lines: list[str]) -> None:
    @timeit("work")
    def work(depth: int) -> int:
        return depth and work(depth - 1)

    assert work(2) == 0
    assert work.__name__ == "work"
    with pytest.raises(ValueError, match="stop"), timeit("block"):
        raise ValueError("stop")
    mean, total, count = timeit._REG["work"]
    assert count == 3
    assert mean == total / 3 > 0
    timeit.print()
    timeit.print("step")
    assert [line.split(" took ")[0] for line in lines] == ["block", "work", "step -- block", "step -- work"]
    assert lines[1].endswith(f"msec (total = {total} sec)")
    timeit.erase()
    assert timeit._REG == {"work": [0.0, 0.0, 0], "block": [0.0, 0.0, 0]}


def test_logger() -> None:
    assert logger is logging.getLogger("tensordict")
    assert logger.level == logging.INFO
    assert not logger.propagate
    assert any(type(handler) is logging.StreamHandler for handler in logger.handlers)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("layout", [torch.jagged, torch.strided])
def test_nested_leaves(layout):
    def made(*lengths, start=0):
        rows = [torch.arange(n) + start for n in lengths]
        return TensorDict({"r": torch.nested.nested_tensor(rows, layout=layout)}, [len(lengths)])

    assert assert_close(made(2, 3), made(2, 3))
    for other in (made(3, 2), made(2, 3, start=1), made(2, 3, 1)):
        with pytest.raises(AssertionError, match="'r'"):
            assert_close(made(2, 3).select("r"), TensorDict({"r": other["r"]}, []))
