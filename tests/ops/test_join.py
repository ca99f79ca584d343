"""Stack and cat against torch, leaf by leaf."""

from __future__ import annotations

import pytest
import torch

import tensordict
from containers import CONTAINERS, PLAIN, check, leaves, named, nested, nodes, strided
from tensordict import TensorDict

STACKS = {"torch": torch.stack, "module": tensordict.stack, "class": TensorDict.stack}
CATS = {"torch": torch.cat, "module": tensordict.cat, "class": TensorDict.cat, "concat": torch.concat}


@pytest.mark.parametrize("dim", [0, 1, 2, -1, -3])
@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("how", STACKS)
def test_stack(how, container, dim):
    items = [CONTAINERS[container]() for _ in range(3)]
    items[1] = items[1] + 1
    out = STACKS[how](items, dim)
    at = dim % 3
    batch = torch.stack([torch.empty(4, 3)] * 3, at).shape
    for path, leaf in leaves(out).items():
        assert torch.equal(leaf, torch.stack([leaves(item)[path] for item in items], at)), path
        assert leaf.is_contiguous()
    for path, node in nodes(out).items():
        assert node.batch_size == (*batch, *nodes(items[0])[path].batch_size[2:])
    assert not out.is_locked
    assert out.device == items[0].device
    assert out.names == [*items[0].names[:at], None, *items[0].names[at:]]
    check(out)


@pytest.mark.parametrize("dim", [0, 1, -1, -2])
@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("how", CATS)
def test_cat(how, container, dim):
    first = CONTAINERS[container]()
    items = [first, first[:, :2] if dim % 2 else first[1:], first + 1]
    out = CATS[how](items, dim)
    for path, leaf in leaves(out).items():
        assert torch.equal(leaf, torch.cat([leaves(item)[path] for item in items], dim % 2)), path
    batch = torch.cat([torch.empty(item.batch_size) for item in items], dim).shape
    for path, node in nodes(out).items():
        assert node.batch_size == (*batch, *nodes(first)[path].batch_size[2:])
    assert not out.is_locked
    assert out.names == first.names
    check(out)


@pytest.mark.parametrize("join", [torch.stack, torch.cat])
def test_results_are_copies(join):
    td = nested()
    out = join([td, td])
    out.zero_()
    assert td["a"].all()
    assert join([td])["a"].data_ptr() != td["a"].data_ptr()


@pytest.mark.parametrize("join", [torch.stack, torch.cat])
def test_out(join):
    td = nested()
    out = join([td, td]).zero_()
    old = leaves(out)
    assert join([td, td], 0, out=out) is out
    for path, leaf in leaves(out).items():
        assert leaf is old[path]
        assert torch.equal(leaf, join([leaves(td)[path]] * 2))
    for bad in (nested(), TensorDict({}, [2, 2])):
        with pytest.raises(RuntimeError, match="out"):
            join([td, td], 0, out=bad)


@pytest.mark.parametrize("join", [torch.stack, torch.cat])
def test_gradients(join):
    x = torch.ones(3, requires_grad=True)
    td = TensorDict({"a": x}, [3])
    join([td, td * 2])["a"].sum().backward()
    assert x.grad.tolist() == [3, 3, 3]


def test_dtypes_promote_as_in_torch():
    items = [TensorDict({"a": torch.ones(3)}, [3]), TensorDict({"a": torch.ones(3, dtype=torch.int64)}, [3])]
    for join in (torch.stack, torch.cat):
        assert join(items)["a"].dtype is join([item["a"] for item in items]).dtype


def test_devices():
    items = [TensorDict({"a": 1}, device="cpu"), TensorDict({"a": 1})]
    assert torch.stack(items).device is None
    assert torch.stack(items[:1]).device == torch.device("cpu")


def test_names():
    assert torch.stack([named(), named()], 1)["n", "m"].names == ["rows", None, "columns", None]


class TestRefused:
    @pytest.mark.parametrize("join", [tensordict.stack, tensordict.cat])
    def test_nothing(self, join):
        with pytest.raises(RuntimeError):
            join([])

    def test_dims_outside_the_batch(self):
        td = nested()
        for dim in (3, 4, -4):
            with pytest.raises(IndexError, match="out of range"):
                torch.stack([td, td], dim)
        for dim in (2, -3):
            with pytest.raises(RuntimeError, match="dim"):
                torch.cat([td, td], dim)

    def test_batch_sizes(self):
        td = nested()
        with pytest.raises(RuntimeError, match="batch sizes"):
            torch.stack([td, td[:2]])
        with pytest.raises(RuntimeError, match="batch dimensions"):
            torch.cat([td, td[:2]], 1)

    @pytest.mark.parametrize(
        "change",
        [
            lambda td: td.exclude("a"),
            lambda td: td.set(("n", "new"), torch.ones(4, 3)),
            lambda td: td.rename_key_("a", "b"),
            lambda td: td.rename_key_(("n", "m", "y"), ("n", "m", "w")),
        ],
    )
    def test_keys(self, change):
        for items in ([nested(), change(nested())], [change(nested()), nested()]):
            with pytest.raises(RuntimeError, match="exclusive"):
                torch.stack(items)
            with pytest.raises(KeyError):
                torch.cat(items)

    def test_kinds(self):
        for items in ([{"a": torch.ones(3)}, {"a": {}}], [{"a": {}}, {"a": torch.ones(3)}]):
            items = [TensorDict(item, [3]) for item in items]
            with pytest.raises(RuntimeError):
                torch.stack(items)
            with pytest.raises(KeyError):
                torch.cat(items)

    def test_shapes(self):
        items = [TensorDict({"n": {"x": torch.ones(3, size)}}, [3]) for size in (1, 2)]
        with pytest.raises(RuntimeError, match=r"'n', 'x'"):
            torch.stack(items)
        with pytest.raises(RuntimeError):
            torch.cat(items)

    def test_batch_sizes_of_nodes(self):
        items = [TensorDict({"n": TensorDict({"x": torch.ones(3, 4)}, size)}, [3]) for size in ([3], [3, 4])]
        for join in (torch.stack, torch.cat):
            with pytest.raises(RuntimeError, match="'n'"):
                join(items)

    def test_other_types(self):
        for other in (1, torch.ones(4, 3), None):
            with pytest.raises((TypeError, AttributeError, RuntimeError)):
                torch.stack([nested(), other])


@pytest.mark.parametrize("container", PLAIN)
def test_the_other_way(container):
    td = CONTAINERS[container]()
    back = torch.stack(td.unbind(1), 1)
    for path, leaf in leaves(td).items():
        assert torch.equal(leaves(back)[path], leaf)
    parts = torch.cat(td.split([1, 3]), 0)
    assert parts.batch_size == td.batch_size


def test_order_of_keys_does_not_matter():
    one, two = TensorDict({"a": 1, "b": 2}), TensorDict({"b": 3, "a": 4})
    assert torch.stack([one, two])["a"].tolist() == [1, 4]
    assert list(torch.stack([one, two]).keys()) == ["a", "b"]


def test_strided_leaves():
    td = strided()
    assert torch.equal(torch.stack([td, td])["n", "x"], torch.stack([td["n", "x"]] * 2))
