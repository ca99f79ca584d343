"""The leaves of one tensordict joined: as a tensor, as an entry, as a matrix of all features and back."""

from __future__ import annotations

import pickle

import pytest
import torch

from containers import CONTAINERS, check, leaves, named, nested, nodes, same, snapshot, unchanged
from tensordict import PackLayout, TensorDict


def alike() -> TensorDict:
    return TensorDict({"b": torch.ones(3, 2), "a": torch.zeros(3, 2), "n": {"c": torch.full((3, 2), 2.0)}}, [3])


@pytest.mark.parametrize(
    ("order", "values"), [(None, [1, 0, 2]), (False, [1, 0, 2]), (True, [0, 1, 2]), ([("n", "c"), "a", "b"], [2, 0, 1])]
)
def test_all_leaves_as_one_tensor(order, values):
    td = alike()
    assert td.stack_from_tensordict(sorted=order)[:, 0, 0].tolist() == values
    assert td.stack_from_tensordict(-1, sorted=order)[0, 0].tolist() == values
    assert td.cat_from_tensordict(sorted=order)[::3, 0].tolist() == values
    assert td.cat_from_tensordict(1, sorted=order).shape == (3, 6)


def test_all_leaves_into_a_tensor():
    out = torch.empty(3, 3, 2)
    assert alike().stack_from_tensordict(out=out) is out
    assert out[2, 0, 0] == 2
    flat = torch.empty(9, 2)
    assert alike().cat_from_tensordict(out=flat) is flat


@pytest.mark.parametrize("keys", [["a"], ["zz"], ["a", "b", ("n", "c"), "d"]])
def test_all_leaves_needs_all_keys(keys):
    with pytest.raises(RuntimeError, match="differs"):
        alike().cat_from_tensordict(sorted=keys)


def test_all_leaves_of_nothing():
    with pytest.raises(RuntimeError):
        TensorDict().stack_from_tensordict()


def test_entries_as_one_entry():
    td = alike()
    assert td.cat_tensors("a", ("n", "c"), out_key=("n", "z"), dim=-1) is td
    assert td["n", "z"].tolist() == [[0, 0, 2, 2]] * 3
    assert set(td.keys(True, True)) == {"b", ("n", "z")}
    td = alike().stack_tensors("a", "b", out_key="z", dim=1, keep_entries=True)
    assert td["z"].tolist() == [[[0, 0], [1, 1]]] * 3
    assert set(td.keys()) == {"a", "b", "n", "z"}
    assert alike().cat_tensors("a", "b", out_key="a", dim=1)["a"].shape == (3, 4)
    assert alike().cat_tensors("a", "a", out_key="z", dim=1)["z"].shape == (3, 4)
    view = alike()._get_sub_tensordict(slice(0, 2)).stack_tensors("a", "b", out_key="z", dim=-1)
    assert view.get_parent_tensordict()["z"].tolist() == [[[0, 1], [0, 1]]] * 2 + [[[0, 0], [0, 0]]]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda td: td.cat_tensors("a", "zz", out_key="z", dim=1), KeyError),
        (lambda td: td.cat_tensors("a", "b", out_key="z"), RuntimeError),
        (lambda td: td.stack_tensors("a", "b", out_key="z"), RuntimeError),
        (lambda td: td.cat_tensors("n", out_key=("n", "z"), dim=0), RuntimeError),
        (lambda td: td.cat_tensors("a", "b", out_key=("b", "z"), dim=1), RuntimeError),
        (lambda td: td.lock_().cat_tensors("a", out_key="z", dim=1), RuntimeError),
        (lambda td: td.lock_().stack_tensors("a", out_key="z", dim=1, keep_entries=True), RuntimeError),
    ],
)
def test_a_refused_join_changes_nothing(call, error):
    td = alike()
    fields = {path: id(leaf) for path, leaf in leaves(td).items()}
    with pytest.raises(error):
        call(td)
    assert {path: id(leaf) for path, leaf in leaves(td).items()} == fields


@pytest.mark.parametrize("dim", [-1, 0, 1, 2])
@pytest.mark.parametrize("container", CONTAINERS)
def test_pack_and_unpack(container, dim):
    td = CONTAINERS[container]()
    flat, layout = td.pack(dim)
    features = {path: leaf[0, 0].numel() for path, leaf in leaves(td).items()}
    at = dim % 3
    assert flat.shape == (*td.batch_size[:at], sum(features.values()), *td.batch_size[at:])
    first = min(leaves(td))
    assert torch.equal(
        flat.movedim(at, -1)[..., : features[first]],
        leaves(td)[first].flatten(2) if features[first] > 1 else leaves(td)[first].reshape(4, 3, 1),
    )
    out = layout.unpack(flat)
    full = {path: leaf for path, leaf in leaves(out).items()}
    assert full.keys() == features.keys()
    for path, leaf in leaves(td).items():
        assert torch.equal(full[path], leaf)
    for path, node in nodes(td).items():
        assert nodes(out)[path].batch_size == node.batch_size
    assert out.device == td.device
    assert not out.is_locked
    check(out)


def test_unpack_other_batches():
    td = nested()
    flat, layout = td.pack()
    same(layout.unpack(flat[1]), td[1])
    assert layout.unpack(flat.expand(7, 4, 3, 23 if flat.shape[-1] == 23 else flat.shape[-1])).batch_size == (7, 4, 3)
    assert layout.unpack(flat)["a"].untyped_storage().data_ptr() == flat.untyped_storage().data_ptr()


def test_layout():
    _, layout = alike().pack()
    assert layout.keys == ("a", "b", ("n", "c"))
    assert layout.shapes == (torch.Size([2]),) * 3
    assert (layout.dim, layout.offsets, layout.numel) == (-1, (0, 2, 4), 6)
    assert layout.nested == (("n", torch.Size([]), None),)
    assert layout == alike().pack(1)[1] == pickle.loads(pickle.dumps(layout))
    assert hash(layout) == hash(alike().pack()[1])
    assert PackLayout(("a",), (torch.Size([2]),)).unpack(torch.ones(3, 2))["a"].shape == (3, 2)
    with pytest.raises(AttributeError):
        layout.dim = 3  # type: ignore[misc]


def test_pack_by_a_layout():
    flat, layout = alike().pack()
    other, again = (alike() + 1).select("n", "b", "a").pack(layout=layout)
    assert again == layout
    assert torch.equal(other, flat + 1)
    with pytest.raises(KeyError, match="leaves"):
        alike().exclude("a").pack(layout=layout)
    with pytest.raises(ValueError, match="feature shapes"):
        alike().set("a", torch.zeros(3, 5)).pack(layout=layout)
    with pytest.raises(ValueError, match="along dim"):
        alike().pack(0, layout=layout)


def test_pack_refused():
    td = alike()
    before = snapshot(td)
    for dim in (2, -3):
        with pytest.raises(IndexError, match="out of range"):
            td.pack(dim)
    flat, layout = td.pack()
    with pytest.raises(ValueError, match="Expected 6"):
        layout.unpack(flat[:, :4])
    with pytest.raises(IndexError, match="dimensions"):
        layout.unpack(torch.zeros(()))
    with pytest.raises(TypeError, match="dtypes"):
        td.clone().set("b", torch.zeros(3, 2, dtype=torch.int64)).pack()
    unchanged(td, before)


def test_pack_nothing():
    flat, layout = TensorDict({}, [3]).pack()
    assert flat.shape == (3, 0)
    assert layout.unpack(flat).batch_size == (3,)


def test_gradients_and_graphs():
    td = alike().apply(lambda leaf: leaf.requires_grad_())
    td.pack()[0].pow(2).sum().backward()
    assert all(torch.equal(leaf.grad, 2 * leaf) for leaf in leaves(td).values())

    def program(td):
        flat, layout = td.pack()
        return layout.unpack(flat * 2)

    same(torch.compile(program, fullgraph=True, backend="eager")(nested()), nested() * 2)


class TestNames:
    def test_rename(self):
        td = named()
        out = td.rename("q", None)
        assert (out.names, out["n", "m"].names) == (["q", None], ["q", None, None])
        assert td.names == ["rows", "columns"]
        assert out["a"] is td["a"]
        assert td.rename(rows="columns", columns="rows").names == ["columns", "rows"]
        assert td.rename(None).names == [None, None]
        assert not named().lock_().rename("q", "r").is_locked
        check(out)

    def test_rename_in_place(self):
        td = named().lock_()
        assert td.rename_(rows="q") is td
        assert (td.names, td["n"].names) == (["q", "columns"], ["q", "columns"])
        check(td)

    def test_rows_of_a_parent(self):
        view = named()._get_sub_tensordict(slice(2))
        assert view.rename("q", "r").names == ["q", "r"]
        with pytest.raises(RuntimeError):
            view.rename_("q", "r")

    @pytest.mark.parametrize(
        ("names", "result"),
        [
            (("q", "r"), ["q", "r"]),
            ((..., "r"), [None, "r"]),
            (("q", ...), ["q", None]),
            (("q", ..., "r"), ["q", "r"]),
            ((...,), [None, None]),
            ((None, "r"), [None, "r"]),
        ],
    )
    def test_refine(self, names, result):
        td = nested()
        assert td.refine_names(*names) is td
        assert td.names == td["n"].names == result
        assert named().refine_names("rows", ...).names == ["rows", "columns"]

    @pytest.mark.parametrize(
        ("call", "error"),
        [
            (lambda td: td.rename("q"), ValueError),
            (lambda td: td.rename(), ValueError),
            (lambda td: td.rename("q", rows="r"), ValueError),
            (lambda td: td.rename(zz="q"), ValueError),
            (lambda td: td.rename_("q", "q"), ValueError),
            (lambda td: td.rename_(rows="columns"), ValueError),
            (lambda td: td.refine_names("q", "columns"), RuntimeError),
            (lambda td: td.refine_names(None, "columns"), RuntimeError),
            (lambda td: td.refine_names("rows"), ValueError),
            (lambda td: td.refine_names("rows", ..., "columns", "more"), IndexError),
        ],
    )
    def test_refused(self, call, error):
        td = named()
        before = snapshot(td)
        with pytest.raises(error):
            call(td)
        unchanged(td, before)


class TestAutoBatchSize:
    @staticmethod
    def sample() -> TensorDict:
        return TensorDict({"a": torch.zeros(3, 4, 5), "n": TensorDict({"x": torch.zeros(3, 4)}, [3, 4]), "e": {}}, [])

    def test_all(self):
        td = self.sample().auto_batch_size_()
        assert (td.batch_size, td["n"].batch_size, td["e"].batch_size) == ((3, 4), (3, 4), (3, 4))
        check(td)

    def test_some(self):
        td = self.sample().auto_batch_size_(1)
        assert (td.batch_size, td["n"].batch_size, td["e"].batch_size) == ((3,), (3,), (3,))

    def test_what_complies_stays(self):
        td = self.sample().auto_batch_size_(1, keep_compliant_size=True)
        assert (td.batch_size, td["n"].batch_size) == ((3,), (3, 4))
        assert self.sample().auto_batch_size_(keep_compliant_size=True).batch_size == (3, 4)

    def test_without_leaves(self):
        assert TensorDict({"n": {}}, [3]).auto_batch_size_().batch_size == (3,)
