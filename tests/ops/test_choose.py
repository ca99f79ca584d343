"""gather, masks, where: against torch leaf by leaf."""

from __future__ import annotations

import pytest
import torch

from tensordict import TensorDict

MASK = torch.tensor([True, False, True])


def sample() -> TensorDict:
    return TensorDict(
        {"a": torch.arange(12).reshape(3, 4), "b": TensorDict({"c": torch.randn(3, 4, 2)}, [3, 4])}, [3], names=["x"]
    )


def test_gather() -> None:
    td, index = sample(), torch.tensor([2, 0, 2, 1])
    out = td.gather(0, index)
    assert out.batch_size == torch.Size([4])
    assert out["b"].batch_size == torch.Size([4, 4])
    assert out.names == ["x"]
    assert (out["a"] == td["a"][index]).all()
    assert (out["b", "c"] == td["b", "c"][index]).all()


def test_gather_along_the_second_dimension() -> None:
    td = TensorDict({"a": torch.randn(3, 4), "f": torch.randn(3, 4, 5)}, [3, 4])
    index = torch.randint(4, (3, 2))
    out = td.gather(-1, index)
    assert (out["a"] == td["a"].gather(1, index)).all()
    assert (out["f"] == td["f"].gather(1, index[..., None].expand(3, 2, 5))).all()
    assert (torch.gather(td, 1, index) == out).all()


def test_gather_writes_into_out_and_in_place() -> None:
    td, index = sample(), torch.tensor([1, 0])
    out = td[:2].clone()
    assert td.gather(0, index, out=out) is out
    assert (out["a"] == td["a"][index]).all()
    copy = td.clone()
    assert copy.gather(0, index, inplace=True) is copy
    assert copy.batch_size == torch.Size([2])
    assert (copy["a"] == td["a"][index]).all()


@pytest.mark.parametrize(
    ("dim", "index", "says"),
    [
        (1, torch.tensor([0]), "along dim 1"),
        (0, torch.zeros(2, 2, dtype=torch.int64), "1 dimensions"),
        (0, torch.tensor([5]), "5"),
    ],
)
def test_gather_refuses(dim: int, index: torch.Tensor, says: str) -> None:
    with pytest.raises(RuntimeError, match=says):
        sample().gather(dim, index)


def test_masked_select() -> None:
    td = sample()
    out = td.masked_select(MASK)
    assert (out["a"] == td["a"][MASK]).all()
    assert (out["b", "c"] == td["b", "c"][MASK]).all()
    wide = TensorDict({"a": torch.randn(3, 4, 2)}, [3, 4])
    mask = torch.rand(3, 4) > 0.5
    assert (wide.masked_select(mask)["a"] == wide["a"][mask]).all()
    assert td.masked_select(MASK, inplace=True) is td
    assert td.batch_size == torch.Size([2])


def test_masked_fill() -> None:
    td = sample()
    out = td.masked_fill(MASK, -1)
    assert (out["a"] == td["a"].masked_fill(MASK[:, None], -1)).all()
    assert (out["b", "c"] == td["b", "c"].masked_fill(MASK[:, None, None], -1)).all()
    assert td["a"][0, 0] == 0
    td.lock_()
    assert td.masked_fill_(MASK, 7) is td
    assert td["a"].tolist() == [[7] * 4, [4, 5, 6, 7], [7] * 4]
    with pytest.raises(RuntimeError, match="incompatible with dest shape"):
        td.masked_fill(torch.ones(4, dtype=torch.bool), 0)


@pytest.mark.parametrize("other", [0, torch.tensor(7), None])
def test_where(other: object) -> None:
    td = sample()
    value = td + 100 if other is None else other
    out = td.where(MASK, value)
    for key in ("a", ("b", "c")):
        wide = MASK.reshape(3, *[1] * (td[key].ndim - 1))
        assert (out[key] == torch.where(wide, td[key], value[key] if other is None else value)).all()
    assert out.names == ["x"]
    if other is None:
        assert (torch.where(MASK, td, value) == out).all()


def test_where_with_unlike_keys() -> None:
    td, other = sample(), TensorDict({"a": torch.zeros(3, 4), "q": torch.ones(3)}, [3])
    with pytest.raises(KeyError, match="b not found"):
        td.where(MASK, other)
    out = td.where(MASK, other, pad=-1)
    assert out["q"].tolist() == [-1, 1, -1]
    assert (out["b", "c"][1] == -1).all()
    assert (out["b", "c"][0] == td["b", "c"][0]).all()


def test_where_writes_into_out() -> None:
    td = sample()
    out = td.clone()
    leaf = out["a"]
    assert td.where(MASK, td * 0, out=out) is out
    assert out["a"] is leaf
    assert leaf[1].tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize(
    "call", [lambda t: t.gather(0, torch.tensor([0, 2])), lambda t: t.masked_fill(MASK, 2), lambda t: t.where(MASK, t + 1)]
)
def test_compiled(call) -> None:
    td = sample()
    assert (torch.compile(call, fullgraph=True, backend="eager")(td) == call(td)).all()
