"""The functions of the package: merging, grouping, membership and uniqueness of rows."""

from __future__ import annotations

import pytest
import torch

from tensordict import TensorDict, group_by, merge_tensordicts
from tensordict.utils import (
    _check_recursive_properties,
    _getitem_batch_size,
    _TensorDictPropertyError,
    convert_ellipsis_to_idx,
    expand_as_right,
    expand_right,
    isin,
    remove_duplicates,
)


def test_merge() -> None:
    one = TensorDict({"a": torch.zeros(3), "n": {"x": torch.zeros(3)}}, [3])
    two = TensorDict({"a": torch.ones(3), "n": {"y": torch.ones(3)}}, [3])
    out = merge_tensordicts(one, two)
    assert set(out.keys(True, True)) == {"a", ("n", "x"), ("n", "y")}
    assert out["a"] is one["a"]
    assert ("n", "y") not in one
    assert merge_tensordicts(one, two, callback_exist=torch.add)["a"].tolist() == [1, 1, 1]
    with pytest.raises(RuntimeError, match="at least 2"):
        merge_tensordicts(one)


def test_group_by() -> None:
    td = TensorDict({"k": torch.tensor([2, 0, 2, 1]), "v": torch.arange(4)}, [4])
    values, groups = group_by(td, "k")
    assert values.tolist() == [0, 1, 2]
    assert [group["v"].tolist() for group in groups] == [[1], [3], [0, 2]]
    with pytest.raises(KeyError, match="zz"):
        group_by(td, "zz")


def test_isin() -> None:
    td = TensorDict({"a": torch.tensor([1, 2, 3]), "r": torch.tensor([[1, 2], [3, 4], [1, 3]])}, [3])
    other = TensorDict({"a": torch.tensor([2, 9]), "r": torch.tensor([[1, 3], [1, 2]])}, [2])
    assert isin(td, other, "a").tolist() == [False, True, False]
    assert isin(td, other, "r").tolist() == [True, False, True]
    with pytest.raises(KeyError, match="zz"):
        isin(td, other, "zz")
    with pytest.raises(ValueError, match="'1' is invalid"):
        isin(td, other, "a", dim=1)


def test_remove_duplicates() -> None:
    td = TensorDict({"a": torch.tensor([3, 1, 3, 2, 1]), "b": torch.arange(5)}, [5])
    out, places = remove_duplicates(td, "a", return_indices=True)
    assert out["a"].tolist() == [1, 2, 3]
    assert out["b"].tolist() == [1, 3, 0]
    assert places.tolist() == [2, 0, 2, 1, 0]
    columns = TensorDict({"a": torch.tensor([[3, 3], [1, 1]])}, [2, 2])
    assert remove_duplicates(columns, "a", dim=1)["a"].tolist() == [[3], [1]]
    with pytest.raises(KeyError, match="does not exist"):
        remove_duplicates(td, "zz")


def test_expansion_on_the_right() -> None:
    mask = torch.tensor([True, False])
    assert expand_as_right(mask, torch.zeros(2, 3)).tolist() == [[True] * 3, [False] * 3]
    assert expand_right(mask, (2, 1, 2)).shape == torch.Size([2, 1, 2])
    with pytest.raises(RuntimeError, match="incompatible"):
        expand_as_right(torch.ones(3), torch.ones(2, 3))
    with pytest.raises(RuntimeError, match="at least as many dimensions"):
        expand_as_right(torch.ones(3, 1), torch.ones(3))


@pytest.mark.parametrize("index", [(0, ..., [0, 1]), (..., torch.tensor([True, False, True, True, False])), (slice(1), 2)])
def test_shapes_of_indices(index: tuple[object, ...]) -> None:
    tensor = torch.zeros(2, 3, 4, 5)
    full = convert_ellipsis_to_idx(index, tensor.shape)
    assert ... not in [item for item in full if not isinstance(item, (torch.Tensor, list))]
    assert _getitem_batch_size(tensor.shape, full) == tensor[index].shape == tensor[full].shape


def test_a_tree_agrees_with_itself() -> None:
    nested = TensorDict({"x": torch.ones(3)}, [3])
    td = TensorDict({"a": torch.zeros(3, 2), "n": nested}, [3], names=["batch"])
    assert _check_recursive_properties(td)
    td["n"].names = ["other"]
    with pytest.raises(_TensorDictPropertyError, match=r"Names mismatch.*\('n',\)"):
        _check_recursive_properties(td)
    td["n"].names = ["batch"]
    td.lock_()
    td["n"]._is_locked = False
    with pytest.raises(_TensorDictPropertyError, match=r"Lock mismatch.*\('n',\)"):
        _check_recursive_properties(td)
    td["n"]._is_locked = True
    td["n"]._tensordict["x"] = torch.ones(4)
    assert not _check_recursive_properties(td, raise_exception=False)
    with pytest.raises(_TensorDictPropertyError, match=r"Batch-size mismatch.*\('n', 'x'\)"):
        _check_recursive_properties(td)
    with pytest.raises(_TensorDictPropertyError, match="Device mismatch"):
        _check_recursive_properties(TensorDict._new({"a": torch.zeros(3)}, torch.Size([3]), torch.device("meta")))
