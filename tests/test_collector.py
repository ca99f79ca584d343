"""The garbage collector held back: what it was before, it is after."""

import gc

import pytest
import torch

from tensordict import TensorDict
from tensordict._kernel.collector import collector_paused


@pytest.fixture(autouse=True)
def _collector():
    yield
    gc.enable()


def test_paused_and_back():
    with collector_paused():
        assert not gc.isenabled()
        with collector_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_back_after_an_error():
    with pytest.raises(KeyError), collector_paused():
        raise KeyError("x")
    assert gc.isenabled()


def test_off_stays_off():
    gc.disable()
    with collector_paused():
        assert not gc.isenabled()
    assert not gc.isenabled()


def test_saving_and_loading_leave_it_on(tmp_path):
    TensorDict({"a": torch.zeros(3)}, [3]).memmap(tmp_path / "td")
    assert gc.isenabled()
    TensorDict.load_memmap(tmp_path / "td")
    with pytest.raises(FileNotFoundError):
        TensorDict.load_memmap(tmp_path / "none")
    assert gc.isenabled()
