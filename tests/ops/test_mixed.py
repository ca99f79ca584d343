"""Leaves that a foreach function cannot take together, descriptions of tensors, and samples of objects."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.func import jacrev

from tensordict import NonTensorStack, TensorAttrs, TensorDict, pad_sequence


@pytest.mark.parametrize(
    "act",
    [TensorDict.clone, lambda td: td + 1, lambda td: td * td, lambda td: -td, lambda td: td.clamp_min(0), lambda td: td**2],
)
def test_a_leaf_with_gradient_beside_integers(act: Callable[[TensorDict], TensorDict]) -> None:
    td = TensorDict({"x": torch.arange(3.0, requires_grad=True), "i": torch.arange(3)}, [3])
    out = act(td)
    for key in td.keys():
        assert torch.equal(out[key], act(TensorDict({key: td[key].detach()}, [3]))[key])
    assert out["x"].requires_grad
    out["x"].sum().backward()
    assert td["x"].grad is not None


class TestToDescribed:
    td = TensorDict({"a": torch.zeros(3), "n": {"b": torch.zeros(3), "c": torch.zeros(3, dtype=torch.int8)}}, [3])

    def test_leaves_that_are_described(self) -> None:
        spec = TensorDict({"a": TensorAttrs(tgt_dtype=torch.int32), "n": {"b": TensorAttrs(tgt_device="meta")}})
        out = self.td.lock_().to(spec)
        self.td.unlock_()
        assert (out["a"].dtype, out["n", "b"].dtype, out["n", "c"].dtype) == (torch.int32, torch.float32, torch.int8)
        assert (out["a"].device.type, out["n", "b"].device.type) == ("cpu", "meta")
        assert out["n", "c"] is self.td["n", "c"]
        assert out.is_locked

    def test_refused(self) -> None:
        spec = TensorDict({"a": TensorAttrs(tgt_dtype=torch.int32)})
        with pytest.raises(TypeError, match="positional"):
            self.td.to(spec, "cpu")
        with pytest.raises(TypeError, match="dtype"):
            self.td.to(spec, dtype=torch.int8)
        with pytest.raises(NotImplementedError, match="non_blocking_pin"):
            self.td.to(spec, non_blocking_pin=True)


@pytest.mark.parametrize("features", [(), (2,), (3,), (2, 2)])
def test_jacobians_have_the_batch_size(features: tuple[int, ...]) -> None:
    x = torch.arange(1.0, 1.0 + 2 * torch.Size(features).numel()).view(2, *features)
    td = TensorDict({"a": x}, [2])
    out = jacrev(lambda td: TensorDict({"y": td["a"] ** 2}, td.batch_size))(td)
    assert out.batch_size == (2,)
    found = out["y", "a"].reshape(x.numel(), x.numel())
    assert torch.equal(found, torch.diag(2 * x.flatten()))


def test_padded_samples_keep_their_objects() -> None:
    rows = [TensorDict({"x": torch.ones(length), "s": word}) for length, word in ((1, "u"), (2, "v"))]
    padded = pad_sequence(rows)
    assert padded["s"] == ["u", "v"]
    assert isinstance(pad_sequence(rows[:1]).get("s"), NonTensorStack)
    rows = [TensorDict({"x": torch.ones(len(words)), "s": NonTensorStack(*words)}, [len(words)]) for words in ("u", "vw")]
    assert pad_sequence(rows)["s"] == [["u", None], ["v", "w"]]
    assert pad_sequence(rows, padding_side="left")["s"] == [[None, "u"], ["v", "w"]]
