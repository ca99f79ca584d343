"""Operations on batch dimensions against torch: each leaf as its batch part is reshaped, the rest of it left alone."""

from __future__ import annotations

import pytest
import torch

from containers import check, leaves, named, nested, nodes, strided
from tensordict import TensorDict


def deep() -> TensorDict:
    td = TensorDict(
        {"a": torch.arange(48.0).reshape(2, 3, 4, 2), "n": {"m": TensorDict({"y": torch.rand(2, 3, 4, 5)}, (2, 3, 4, 5))}},
        (2, 3, 4),
    )
    td.names = ["i", "j", "k"]
    return td


# name: (of a tensordict, of a leaf with its dimensions behind the three batch dimensions, shape of the batch, names)
OPERATIONS = {
    "view": (lambda td: td.view(6, 4), lambda x: x.flatten(0, 1), (6, 4), None),
    "view -1": (lambda td: td.view(-1), lambda x: x.flatten(0, 2), (24,), None),
    "view list": (lambda td: td.view([4, 6]), lambda x: x.reshape(4, 6, *x.shape[3:]), (4, 6), None),
    "view size": (lambda td: td.view(size=(24, 1)), lambda x: x.reshape(24, 1, *x.shape[3:]), (24, 1), None),
    "reshape": (lambda td: td.reshape(3, -1), lambda x: x.reshape(3, 8, *x.shape[3:]), (3, 8), None),
    "reshape tuple": (lambda td: td.reshape((24,)), lambda x: x.flatten(0, 2), (24,), None),
    "unsqueeze": (lambda td: td.unsqueeze(1), lambda x: x.unsqueeze(1), (2, 1, 3, 4), ["i", None, "j", "k"]),
    "unsqueeze last": (lambda td: td.unsqueeze(-1), lambda x: x.unsqueeze(3), (2, 3, 4, 1), ["i", "j", "k", None]),
    "unsqueeze first": (lambda td: td.unsqueeze(-4), lambda x: x.unsqueeze(0), (1, 2, 3, 4), [None, "i", "j", "k"]),
    "squeeze": (lambda td: td.unsqueeze(1).squeeze(1), lambda x: x, (2, 3, 4), ["i", "j", "k"]),
    "squeeze all": (lambda td: td[:1].unsqueeze(2).squeeze(), lambda x: x[0], (3, 4), ["j", "k"]),
    "squeeze none": (lambda td: td.squeeze(0), lambda x: x, (2, 3, 4), ["i", "j", "k"]),
    "permute": (lambda td: td.permute(2, 0, 1), lambda x: x.movedim(2, 0), (4, 2, 3), ["k", "i", "j"]),
    "permute negative": (lambda td: td.permute((-1, 0, -2)), lambda x: x.movedim(2, 0), (4, 2, 3), ["k", "i", "j"]),
    "permute dims": (lambda td: td.permute(dims=[1, 0, 2]), lambda x: x.transpose(0, 1), (3, 2, 4), ["j", "i", "k"]),
    "transpose": (lambda td: td.transpose(0, -1), lambda x: x.transpose(0, 2), (4, 3, 2), ["k", "j", "i"]),
    "expand": (lambda td: td.expand(5, 2, 3, 4), lambda x: x.expand(5, *x.shape), (5, 2, 3, 4), [None, "i", "j", "k"]),
    "expand one": (lambda td: td[:1].expand(5, -1, 4), lambda x: x[:1].expand(5, *x.shape[1:]), (5, 3, 4), ["i", "j", "k"]),
    "flatten": (lambda td: td.flatten(), lambda x: x.flatten(0, 2), (24,), [None]),
    "flatten two": (lambda td: td.flatten(1, 2), lambda x: x.flatten(1, 2), (2, 12), ["i", None]),
    "flatten negative": (lambda td: td.flatten(-3, -2), lambda x: x.flatten(0, 1), (6, 4), [None, "k"]),
    "flatten one": (lambda td: td.flatten(1, 1), lambda x: x, (2, 3, 4), ["i", "j", "k"]),
    "unflatten": (lambda td: td.unflatten(2, (2, -1)), lambda x: x.unflatten(2, (2, 2)), (2, 3, 2, 2), ["i", "j", None, None]),
    "unflatten negative": (lambda td: td.unflatten(-3, [2, 1]), lambda x: x.unsqueeze(1), (2, 1, 3, 4), [None, None, "j", "k"]),
    "unbind": (lambda td: td.unbind(1)[2], lambda x: x[:, 2], (2, 4), ["i", "k"]),
    "unbind negative": (lambda td: td.unbind(-1)[0], lambda x: x[:, :, 0], (2, 3), ["i", "j"]),
    "split": (lambda td: td.split(2, 2)[1], lambda x: x[:, :, 2:], (2, 3, 2), ["i", "j", "k"]),
    "split rest": (lambda td: td.split(2, -2)[1], lambda x: x[:, 2:], (2, 1, 4), ["i", "j", "k"]),
    "split sizes": (lambda td: td.split([1, 0, 2], 1)[2], lambda x: x[:, 1:], (2, 2, 4), ["i", "j", "k"]),
    "split nothing": (lambda td: td.split([1, 0, 2], 1)[1], lambda x: x[:, :0], (2, 0, 4), ["i", "j", "k"]),
    "chunk": (lambda td: td.chunk(3, 2)[0], lambda x: x[:, :, :2], (2, 3, 2), ["i", "j", "k"]),
    "chunk many": (lambda td: td.chunk(9, 0)[1], lambda x: x[1:], (1, 3, 4), ["i", "j", "k"]),
}


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("lock", [False, True])
def test_against_torch(name, lock):
    run, of_leaf, batch, names = OPERATIONS[name]
    td = deep().lock_() if lock else deep()
    out = run(td)
    assert out.batch_size == batch
    for path, leaf in leaves(td).items():
        assert torch.equal(leaves(out)[path], of_leaf(leaf)), path
    for path, node in nodes(td).items():
        assert nodes(out)[path].batch_size == (*batch, *node.batch_size[3:])
    assert out.names == (names or [None] * len(batch))
    check(out)


@pytest.mark.parametrize("name", [name for name in OPERATIONS if not name.startswith(("reshape", "expand"))])
def test_storage_is_shared(name):
    td = deep()
    out = OPERATIONS[name][0](td)
    for path, leaf in leaves(out).items():
        assert leaf.untyped_storage().data_ptr() == leaves(td)[path].untyped_storage().data_ptr()


@pytest.mark.parametrize(
    "call",
    [
        lambda td: td.view(4, 3),
        lambda td: td.view(4, -1),
        lambda td: td.reshape(4, 3),
        lambda td: td.permute(0, 1),
        lambda td: td.transpose(1, 1),
        lambda td: td.squeeze(0),
        lambda td: td.squeeze(),
        lambda td: td.flatten(0, 0),
    ],
)
def test_nothing_to_do_gives_the_tensordict_itself(call):
    td = nested()
    assert call(td) is td


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda td: td.view(7), RuntimeError),
        (lambda td: td.view(-1, -1), RuntimeError),
        (lambda td: td.view(4, 3, 2), RuntimeError),
        (lambda td: td.view(), RuntimeError),
        (lambda td: td.transpose(0, 1).view(12), RuntimeError),
        (lambda td: td.reshape(5, -1), RuntimeError),
        (lambda td: td.unsqueeze(3), RuntimeError),
        (lambda td: td.unsqueeze(-4), RuntimeError),
        (lambda td: td.squeeze(2), IndexError),
        (lambda td: td.permute(0), ValueError),
        (lambda td: td.permute(0, 0), ValueError),
        (lambda td: td.permute(0, 2), ValueError),
        (lambda td: td.permute(0, 1, 2), ValueError),
        (lambda td: td.transpose(0, 2), ValueError),
        (lambda td: td.transpose(-3, 0), ValueError),
        (lambda td: td.expand(3), RuntimeError),
        (lambda td: td.expand(5, 3), RuntimeError),
        (lambda td: td.expand(), RuntimeError),
        (lambda td: td.flatten(0, 2), IndexError),
        (lambda td: td.flatten(2), IndexError),
        (lambda td: td.flatten(1, 0), ValueError),
        (lambda td: td.unflatten(2, (1, 1)), IndexError),
        (lambda td: td.unflatten(0, (3, 2)), RuntimeError),
        (lambda td: td.unbind(2), IndexError),
        (lambda td: td.split(0), ValueError),
        (lambda td: td.split(-1), ValueError),
        (lambda td: td.split([1, 1]), RuntimeError),
        (lambda td: td.split([5, -1]), RuntimeError),
        (lambda td: td.split(1, 2), IndexError),
        (lambda td: td.chunk(0), ValueError),
        (lambda td: td.chunk(2, 2), IndexError),
    ],
)
def test_refused(call, error):
    with pytest.raises(error):
        call(nested())


def test_without_batch():
    td = TensorDict({"a": torch.ones(3)})
    assert td.unsqueeze(0).batch_size == (1,)
    assert td.squeeze() is td
    assert td.permute() is td
    assert td.expand(3).batch_size == (3,)
    assert td.view(1).batch_size == (1,)
    assert td.flatten().batch_size == (1,)
    with pytest.raises(IndexError):
        td.unbind(0)


def test_empty_dimension():
    td = TensorDict({"a": torch.ones(0, 2)}, [0])
    assert td.unbind(0) == ()
    assert [part.batch_size for part in td.split(2)] == [(0,)]
    assert td.reshape(0, 5).batch_size == (0, 5)
    assert [part.batch_size for part in TensorDict({}, [2, 3]).unbind(0)] == [(3,), (3,)]


def test_leaves_that_cannot_be_viewed():
    td = strided()
    out = td.reshape(12)
    for path, leaf in leaves(td).items():
        assert torch.equal(leaves(out)[path], leaf.reshape(12, *leaf.shape[2:]))
    with pytest.raises(RuntimeError):
        td.view(12)


def test_view_as_dtype():
    td = TensorDict({"a": torch.ones(3, 4)}, [3])
    assert torch.equal(td.view(torch.int32)["a"], td["a"].view(torch.int32))


def test_names_of_nodes_with_more_dimensions():
    out = named().transpose(0, 1)
    assert out["n", "m"].names == ["columns", "rows", None]
