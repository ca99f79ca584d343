"""Locks of graphs, and tensordicts as context managers."""

from __future__ import annotations

import gc
import pickle

import pytest
import torch

from containers import check, leaves, named, nested, nodes, same
from tensordict import TensorDict, lazy_stack


class TestLock:
    def test_all_nodes(self):
        td = nested()
        assert td.lock_() is td
        assert all(node.is_locked for node in nodes(td).values())
        assert td.unlock_() is td
        assert not any(node.is_locked for node in nodes(td).values())

    def test_property(self):
        td = nested()
        td.is_locked = True
        assert td["n", "m"].is_locked
        td.is_locked = False
        assert not td["n", "m"].is_locked

    def test_twice(self):
        td = nested().lock_().lock_().unlock_()
        assert not td.is_locked
        assert not td["n", "m"].is_locked

    def test_a_node_of_a_locked_tree_stays_locked(self):
        td = nested().lock_()
        for node in (td["n"], td["n", "m"]):
            with pytest.raises(RuntimeError, match="part of a locked graph"):
                node.unlock_()
        assert td["n", "m"].is_locked

    def test_a_node_locked_before(self):
        td = nested()
        td["n"].lock_()
        assert not td.is_locked
        td.lock_()
        with pytest.raises(RuntimeError, match="locked graph"):
            td["n"].unlock_()
        td.unlock_()
        assert not td["n"].is_locked

    def test_two_parents(self):
        node = TensorDict({"x": 1})
        one, two = TensorDict({"n": node}), TensorDict({"n": node})
        one.lock_()
        two.lock_()
        with pytest.raises(RuntimeError, match="multiple graphs"):
            one.unlock_()
        assert one.is_locked
        assert node.is_locked
        root = TensorDict({"one": one, "two": two}).lock_()
        root.unlock_()
        assert not node.is_locked

    def test_a_parent_that_is_gone(self):
        node = TensorDict({"x": 1})
        parent = TensorDict({"n": node}).lock_()
        del parent
        gc.collect()
        node.unlock_()
        assert not node.is_locked

    def test_locked_node_in_an_unlocked_parent(self):
        td = nested()
        td["n"].lock_()
        td["a"] = torch.zeros(4, 3)
        with pytest.raises(RuntimeError, match="locked"):
            td["n", "x"] = torch.zeros(4, 3)
        assert td.unlock_() is td
        assert not td["n"].is_locked

    def test_in_place_writes_are_free(self):
        td = nested().lock_()
        td.zero_()
        td.set_("a", torch.ones_like(td["a"]))
        td[0] = 3
        assert (td["n", "x"][0] == 3).all()

    def test_pickles(self):
        td = pickle.loads(pickle.dumps(nested().lock_()))
        assert td["n", "m"].is_locked
        with pytest.raises(RuntimeError, match="locked graph"):
            td["n"].unlock_()

    @pytest.mark.parametrize(
        "make",
        [
            lambda td: td.abs(),
            lambda td: td + 1,
            lambda td: td.reshape(12),
            lambda td: td.unsqueeze(0),
            lambda td: td.permute(1, 0),
            lambda td: td.transpose(0, 1),
            lambda td: td.expand(2, 4, 3),
            lambda td: td.flatten(),
            lambda td: td.unflatten(0, (2, 2)),
            lambda td: td.split(2)[1],
            lambda td: td.chunk(2)[1],
            lambda td: td.double(),
            lambda td: td.to("cpu"),
            lambda td: td.detach(),
            lambda td: td.data,
            lambda td: td.lerp(td, 0.5),
            torch.zeros_like,
        ],
    )
    def test_operations_that_keep_the_lock(self, make):
        out = make(nested().lock_())
        assert all(node.is_locked for node in nodes(out).values())
        assert not make(nested()).is_locked

    @pytest.mark.parametrize(
        "make",
        [
            lambda td: td == 1,
            lambda td: td.clone(),
            lambda td: td.copy(),
            lambda td: td.select("n"),
            lambda td: td.exclude("a"),
            lambda td: td.unbind(0)[0],
            lambda td: torch.stack([td, td]),
            lambda td: torch.cat([td, td]),
            lambda td: td.sum(),
            lambda td: td.sum(0),
            lambda td: td.apply(torch.neg),
            lambda td: td.empty(True),
            lambda td: td.new_zeros(2),
            lambda td: td[0],
            lambda td: td.flatten_keys(),
        ],
    )
    def test_operations_that_drop_it(self, make):
        assert not make(nested().lock_()).is_locked


class TestWith:
    def test_locks(self):
        td = nested()
        with td.lock_() as inner:
            assert inner is td
            assert td.is_locked
        assert not td.is_locked
        td.lock_()
        with td.unlock_():
            td["b"] = torch.zeros(4, 3)
        assert td.is_locked
        assert td["n", "m"].is_locked

    def test_the_lock_is_as_it_was(self):
        td = nested()
        with td.unlock_():
            td["b"] = torch.zeros(4, 3)
        assert not td.is_locked
        td.lock_()
        with td.lock_():
            pass
        assert td.is_locked

    def test_nested_blocks(self):
        td = nested()
        with td.lock_():
            with td.unlock_():
                assert not td.is_locked
                with td.lock_():
                    assert td.is_locked
                assert not td.is_locked
            assert td.is_locked
        assert not td.is_locked

    def test_an_error_inside(self):
        td = nested()
        with pytest.raises(ZeroDivisionError), td.lock_():
            1 / 0  # noqa: B018
        assert not td.is_locked

    @pytest.mark.parametrize(
        "change",
        [
            lambda td: td.view(12),
            lambda td: td.reshape(2, 6),
            lambda td: td.unsqueeze(0),
            lambda td: td.unsqueeze(-1),
            lambda td: td.permute(1, 0),
            lambda td: td.transpose(0, 1),
            lambda td: td.flatten(0, 1),
            lambda td: td.unflatten(0, (2, 2)),
        ],
    )
    def test_what_is_done_to_the_result_comes_back(self, change):
        td, wanted = nested(), nested()
        with change(td) as inner:
            inner["new"] = change(wanted)["n", "x"] + 1
            inner["a"] = inner["a"] * 2
        assert td.batch_size == (4, 3)
        assert torch.equal(td["new"], wanted["n", "x"] + 1)
        assert torch.equal(td["a"], wanted["a"] * 2)
        same(td.select("n"), wanted.select("n"))
        check(td)

    def test_squeeze(self):
        td = nested().unsqueeze(0)
        with td.squeeze(0) as inner:
            inner["new"] = torch.ones(4, 3)
        assert td["new"].shape == (1, 4, 3)

    def test_permute_of_three(self):
        td = TensorDict({"a": torch.arange(24).reshape(2, 3, 4)}, [2, 3, 4])
        with td.permute(2, 0, 1) as inner:
            inner["b"] = inner["a"].clone()
        assert torch.equal(td["b"], td["a"])

    def test_keys(self):
        td = nested().exclude(("n", "e"))
        with td.flatten_keys(".") as flat:
            flat["n.m.new"] = torch.ones(4, 3, 2)
        assert td["n", "m", "new"].shape == (4, 3, 2)
        flat = nested().exclude(("n", "e")).flatten_keys("/")
        with flat.unflatten_keys("/") as deep:
            deep["n", "q"] = torch.ones(4, 3)
        assert "n/q" in flat

    def test_an_error_inside_brings_nothing_back(self):
        td = nested()
        with pytest.raises(ZeroDivisionError), td.view(12) as inner:  # noqa: PT012
            inner["new"] = torch.ones(12)
            1 / 0  # noqa: B018
        assert "new" not in td

    def test_nothing_to_undo(self):
        with pytest.raises(RuntimeError, match="with"), nested():
            pass

    def test_names_stay(self):
        td = named()
        with td.transpose(0, 1) as inner:
            inner["new"] = torch.ones(3, 4)
        assert td.names == ["rows", "columns"]
        assert set(leaves(td)) > {("new",)}


def test_references_to_holders_can_be_cleared():
    td = TensorDict({"n": {"a": torch.zeros(2)}}, [2]).lock_()
    node = td["n"]
    assert td.clear_refs_for_compile_() is td
    with pytest.raises(RuntimeError, match="locked graph"):
        node.unlock_()
    assert node.clear_refs_for_compile_().is_locked
    assert not node.unlock_().is_locked


def test_what_holds_the_members_holds_the_stack():
    members = [TensorDict({("a", "b"): 1.0}) for _ in range(2)]
    stack = lazy_stack(members).lock_()

    def holders(node):
        return {id(reference()) for reference in node._lock_parents_weakrefs}

    assert holders(stack["a"]) == {id(stack), *map(id, members)}
    assert holders(members[0]["a"]) == {id(stack), id(members[0])}
    assert holders(stack) == set()


def test_a_stack_is_locked_with_its_members():
    members = [TensorDict({"a": 1.0}) for _ in range(2)]
    stack = lazy_stack(members)
    members[0].lock_()
    assert not stack.is_locked
    members[1].lock_()
    assert stack.is_locked
    members[0].unlock_()
    assert not stack.is_locked
    stack.lock_()
    with pytest.raises(RuntimeError, match="part of a locked graph"):
        members[0].unlock_()
    stack.is_locked = False
    assert not members[0].is_locked
    assert not members[1].is_locked
