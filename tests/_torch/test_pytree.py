"""Tensordicts as pytrees: `torch.vmap`, `torch.func`, tree maps."""

from __future__ import annotations

import pytest
import torch
from torch.utils import _pytree as pytree

from containers import CONTAINERS, check, leaves, named, nested, same
from tensordict import NonTensorStack, TensorDict


class TestTree:
    @pytest.mark.parametrize("container", ["flat", "nested", "locked", "named", "placed", "strided"])
    def test_round_trip(self, container):
        td = CONTAINERS[container]()
        values, spec = pytree.tree_flatten(td)
        assert [id(value) for value in values] == [id(leaf) for leaf in leaves(td).values()]
        out = pytree.tree_unflatten(values, spec)
        same(out, td)
        assert (out.names, out.device) == (td.names, td.device)
        check(out)

    def test_map(self):
        same(pytree.tree_map(lambda leaf: leaf + 1, nested()), nested() + 1)
        same(pytree.tree_map(torch.add, nested(), nested()), nested() * 2)

    def test_paths(self):
        pairs, _ = pytree.tree_flatten_with_path(nested())
        assert [tuple(entry.key for entry in path) for path, _ in pairs] == list(leaves(nested()))

    def test_leaves_of_other_kinds(self):
        sizes = pytree.tree_map(lambda leaf: leaf.ndim, nested())
        assert pytree.tree_leaves(sizes) == [leaf.ndim for leaf in leaves(nested()).values()]
        assert pytree.tree_map(lambda n: n + 1, sizes) is not None

    @pytest.mark.parametrize(
        ("change", "batch"),
        [
            (lambda leaf: leaf.sum(), ()),
            (lambda leaf: leaf[0], (3,)),
            (lambda leaf: leaf[:2], (2, 3)),
            (lambda leaf: leaf.unsqueeze(-1), (4, 3)),
            (lambda leaf: leaf.sum(-1), (4,)),
            (lambda leaf: leaf.flatten(), ()),
        ],
    )
    def test_the_batch_size_fits_what_comes_back(self, change, batch):
        out = pytree.tree_map(change, nested())
        assert out.batch_size[: len(batch)] == batch
        check(out)

    def test_specs(self):
        one, two = (pytree.tree_structure(td) for td in (nested(), nested() + 1))
        assert one == two
        assert one != pytree.tree_structure(nested().select("a"))
        assert pytree.tree_structure(named()) != one


class TestVmap:
    def test_each_row(self):
        def row(td):
            assert td.batch_size == (3,)
            assert td["n", "m"].batch_size == (3, 2)
            return td + td["n", "x"]

        td = nested()
        out = torch.vmap(row)(td)
        assert out.batch_size == (4, 3)
        assert out["n", "m"].batch_size == (4, 3, 2)
        same(out, td + td["n", "x"])

    @pytest.mark.parametrize("in_dims", [0, 1, -1])
    @pytest.mark.parametrize("out_dims", [0, 1])
    def test_dims(self, in_dims, out_dims):
        tail = () if in_dims < 0 else (2,)  # a negative dimension is counted from the end of each leaf
        td = TensorDict({"a": torch.rand(4, 3, *tail), "n": {"x": torch.rand(4, 3, *tail)}, "e": {}}, [4, 3])
        out = torch.vmap(lambda row: row * 2, in_dims=in_dims, out_dims=out_dims)(td)
        wanted = td * 2 if in_dims % 2 == out_dims else (td * 2).transpose(0, 1)
        same(out, wanted)

    def test_beside_tensors(self):
        td, weights = nested(), torch.rand(4)
        out = torch.vmap(lambda row, weight: row * weight)(td, weights)
        for path, leaf in leaves(td).items():
            torch.testing.assert_close(leaves(out)[path], leaf * weights.reshape(4, *[1] * (leaf.ndim - 1)))
        shared = torch.vmap(lambda row, weight: row["n", "x"] * weight, in_dims=(0, None))(td, torch.tensor(2.0))
        torch.testing.assert_close(shared, td["n", "x"] * 2)
        back = torch.vmap(lambda weight, row: row * weight, in_dims=(0, None))(weights, td[0])
        assert back.batch_size == (4, 3)
        assert back["n", "m"].batch_size == (4, 3, 2)

    def test_nested(self):
        td = nested()

        def cell(one):
            assert one.batch_size == ()
            return one.apply(torch.neg)

        same(torch.vmap(torch.vmap(cell))(td), -td)

    def test_makes_tensordicts(self):
        out = torch.vmap(lambda x: TensorDict({"a": x, "n": {"b": x.sum()}}))(torch.arange(6.0).reshape(3, 2))
        assert out.batch_size == (3,)
        assert out["n"].batch_size == (3,)
        assert out["n", "b"].tolist() == [1, 5, 9]

    def test_writes_inside(self):
        def row(td):
            td["new"] = td["a"].sum()
            td["n", "below"] = td["n", "x"] * 2
            return td.select("new", ("n", "below"))

        td = TensorDict({"a": torch.rand(4, 2), "n": {"x": torch.rand(4)}}, [4])
        out = torch.vmap(row)(td)
        torch.testing.assert_close(out["new"], td["a"].sum(1))
        assert "new" not in td

    def test_tuple_of_outputs(self):
        first, second = torch.vmap(lambda td: (td * 2, td["n", "x"]))(nested())
        same(first, nested() * 2)
        assert torch.equal(second, nested()["n", "x"])

    @pytest.mark.parametrize("in_dims", [2, 3])
    def test_a_dimension_that_is_no_batch_dimension(self, in_dims):
        td = TensorDict({"a": torch.rand(4, 3, 2, 5)}, [4, 3])
        with pytest.raises(RuntimeError, match="batch dimensions"):
            torch.vmap(lambda row: row * 2, in_dims=in_dims)(td)

    def test_chunks_and_randomness(self):
        out = torch.vmap(lambda td: td + 1, chunk_size=2)(nested())
        same(out, nested() + 1)


class TestFunc:
    def test_grad(self):
        td = nested()
        grad = torch.func.grad(lambda td: (td * td).sum(reduce=True))(td)
        assert grad.batch_size == (4, 3)
        for path, leaf in leaves(td).items():
            torch.testing.assert_close(leaves(grad)[path], leaf * 2)

    def test_grad_of_each_row(self):
        td = TensorDict({"a": torch.rand(4, 2), "n": {"x": torch.rand(4)}}, [4])
        grad = torch.vmap(torch.func.grad(lambda td: td["a"].pow(2).sum() + td["n", "x"]))(td)
        assert grad.batch_size == (4,)
        torch.testing.assert_close(grad["a"], 2 * td["a"])
        torch.testing.assert_close(grad["n", "x"], torch.ones(4))

    @pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:FutureWarning")
    @pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
    def test_jvp(self):
        td = nested()
        _, tangent = torch.func.jvp(lambda td: td * 3, (td,), (torch.ones_like(td),))
        assert (tangent == 3).all()

    def test_functional_call(self):
        net = torch.nn.Linear(3, 2)
        params = TensorDict({name: value.detach() for name, value in net.named_parameters()})
        stacked = torch.stack([params, params * 2])
        out = torch.vmap(lambda p, x: torch.func.functional_call(net, p.to_dict(), (x,)), in_dims=(0, None))(
            stacked, torch.ones(3)
        )
        torch.testing.assert_close(out[1], out[0] * 2)


def test_lists_of_rows_are_lists():
    rows = TensorDict({"s": ["a", "b"]}, [2])["s"]
    assert pytree.tree_map(str.upper, rows) == ["A", "B"]
    assert [(key, item) for key, item in pytree.tree_flatten_with_path(rows)[0]] == [
        ((pytree.SequenceKey(0),), "a"),
        ((pytree.SequenceKey(1),), "b"),
    ]


class TestObjects:
    """Objects are no leaves: they follow where it is known how, and nobody guesses where it is not."""

    def make(self, *rows: str) -> TensorDict:
        return TensorDict({"a": torch.arange(4), "n": {"s": list(rows)}, "one": "x"}, [4])

    @pytest.mark.parametrize(
        "function",
        [
            lambda leaf: leaf[0],
            lambda leaf: leaf[:2],
            lambda leaf: leaf[:0],
            lambda leaf: leaf[torch.tensor([3, 1])],
            lambda leaf: leaf.view(2, 2),
            lambda leaf: torch.cat([leaf, leaf]),
            lambda leaf: leaf.sum(0),
        ],
    )
    def test_elements_that_nobody_knows_are_an_error(self, function):
        td = self.make("a", "b", "c", "d")
        with pytest.raises(RuntimeError, match="nobody knows which of them are meant"):
            pytree.tree_map(function, td)
        same_for_all = pytree.tree_map(function, self.make("z", "z", "z", "z"))
        shape = function(torch.arange(4)).shape
        assert same_for_all.batch_size == shape
        for key, value in ((("n", "s"), "z"), ("one", "x")):
            assert same_for_all[key] == value
            assert same_for_all.get(key).batch_size == shape

    def test_one_row(self):
        td = TensorDict({"a": torch.zeros(2, 3), "s": [["a", "b", "c"], ["d", "e", "f"]]}, [2, 3])
        with pytest.raises(RuntimeError, match="nobody knows"):
            pytree.tree_map(lambda leaf: leaf[1], td)

    @pytest.mark.parametrize("function", [lambda leaf: leaf + 1, torch.clone, lambda leaf: leaf.new_zeros(4)])
    def test_leaves_of_the_same_shape(self, function):
        assert list(pytree.tree_map(function, self.make("a", "b", "c", "d"))["n", "s"]) == ["a", "b", "c", "d"]

    @pytest.mark.parametrize(
        "function", [lambda leaf: leaf[None], lambda leaf: leaf.unsqueeze(0), lambda leaf: leaf.expand(1, 4)]
    )
    def test_new_dimensions_in_front(self, function):
        found = pytree.tree_map(function, self.make("a", "b", "c", "d"))
        assert found["n"].get("s").tolist() == [["a", "b", "c", "d"]]

    def test_vmap_of_each_dimension(self):
        strings = [["a", "b", "c"], ["d", "e", "f"]]
        td = TensorDict({"a": torch.arange(6).view(2, 3), "s": NonTensorStack.from_list(strings)}, [2, 3])
        found = torch.vmap(lambda row: row + 1)(td)
        assert found["a"].tolist() == [[1, 2, 3], [4, 5, 6]]
        assert found.get("s").tolist() == strings
        found = torch.vmap(torch.vmap(lambda row: row + 1))(td)
        assert found.get("s").tolist() == strings
        assert torch.vmap(lambda row: row["a"] * 2, in_dims=1)(td).tolist() == [[0, 6], [2, 8], [4, 10]]
