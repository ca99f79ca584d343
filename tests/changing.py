"""Trees whose keys are moved, added and deleted while an operation runs, and what each operation makes of their values.

All elements of an entry are the number that belongs to its key: so what stands under a key of a result says which entry it
was made of. `OPERATIONS` has a row for each operation: what it is, and what it makes of such a number.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from tensordict import LazyStackedTensorDict, TensorClass, TensorDict, is_tensor_collection, lazy_stack, pad, pad_sequence
from tensordict.data import collate

ROWS = 4
KEPT = "enm"  # one entry that stays, so that no tree is ever empty, and nodes
NAMES = "abcdefgh"  # at the root some of them, below the node "n" some of them
ERRORS = (KeyError, RuntimeError)  # what an operation may raise because of a change


def number(name: str, below: bool) -> float:
    """What belongs to a key."""
    return NAMES.index(name) + 1.0 + 20.0 * below


def entry(name: str, below: bool = False, make: Callable[[Any], Any] = lambda leaf: leaf) -> Any:
    return make(torch.full((ROWS, 2), number(name, below)))


def tree(make: Callable[[Any], Any] = lambda leaf: leaf) -> TensorDict:
    """Six entries at the root, of which one is a node of six."""
    td = TensorDict({name: entry(name, False, make) for name in NAMES[:5]}, [ROWS])
    td["n"] = TensorDict({name: entry(name, True, make) for name in NAMES[:6]}, [ROWS])
    return td


def move(td: Any, turn: int) -> None:
    """The first entry of each level goes to its end."""
    for node in (td, td.get("n", None)):
        name = None if node is None else next((key for key in list(node.keys()) if key not in KEPT), None)
        if name is not None:
            value = node.pop(name, None)
            if value is not None:
                node[name] = value


def rename(td: Any, turn: int) -> None:
    """The node goes elsewhere and comes back, behind all others."""
    if "n" in td.keys():
        td.rename_key_("n", "m")
        td.rename_key_("m", "n")


def replace(td: Any, turn: int) -> None:
    """An entry of each level goes, and one that is not there comes."""
    for node, below in ((td, False), (td.get("n", None), True)):
        if node is None:
            continue
        gone, come = NAMES[turn % 8], NAMES[(turn + 3) % 8]
        like = next((value for key, value in list(node.items()) if key not in "nm"), None)
        if gone not in KEPT:
            node.pop(gone, None)
        if like is not None and come not in node.keys():
            node[come] = entry(come, below).as_subclass(type(like))


CHANGES: dict[str, Callable[[Any, int], None]] = {"move": move, "rename": rename, "replace": replace}


class Pair(TensorClass):
    """Fields that all may be missing."""

    a: torch.Tensor | None = None
    b: torch.Tensor | None = None
    c: torch.Tensor | None = None
    d: torch.Tensor | None = None
    e: torch.Tensor | None = None
    f: torch.Tensor | None = None
    g: torch.Tensor | None = None
    h: torch.Tensor | None = None
    n: TensorDict | None = None


def check(result: Any, wanted: Callable[[float], Any], below: bool = False) -> int:
    """Raises where an entry of a result is not what belongs to its key; gives the number of the entries."""
    if isinstance(result, (tuple, list)):
        return sum([check(one, wanted, below) for one in result])
    count = 0
    for key, value in list(result.items()):
        if is_tensor_collection(type(value)) or isinstance(value, dict):
            count += check(value, wanted, True)
            continue
        *above, name = key.split(".")
        right = torch.as_tensor(wanted(number(name, below or bool(above))))
        found = torch.as_tensor(value).as_subclass(torch.Tensor)
        assert found.numel(), f"{key!r} is empty"
        assert bool((found == right).all()), f"{key!r} should be {right} and is {found.flatten()[0]}, that of another key"
        count += 1
    return count


def same(value: float) -> float:
    return value


def _flat_pairs(td: Any) -> dict[str, Any]:
    return {".".join([key] if isinstance(key, str) else key): value for key, value in td.items(True, True)}


def _walked(td: Any) -> dict[str, Any]:
    return {".".join([key] if isinstance(key, str) else key): td[key] for key in td.keys(True, True)}


def _tree_of(td: Any) -> Any:
    leaves, spec = pytree.tree_flatten(td)
    return pytree.tree_unflatten([leaf * 2 for leaf in leaves], spec)


def _into_rows(td: Any) -> Any:
    out = TensorDict({}, [ROWS])
    out[1:3] = td[1:3]
    return out[1:3]


def _written(td: Any) -> Any:
    td = td.clone()
    out = td.clone()
    out[2] = td[1]
    return out


def _packed(td: Any) -> Any:
    flat, layout = td.pack()
    return layout.unpack(flat)


def _gradients(td: Any) -> Any:
    td = td.detach()
    for leaf in td.values(True, True):
        leaf.requires_grad_()
    return torch.autograd.grad((td * td).sum(reduce=True), td)


def _gathered(td: Any) -> Any:
    return td.gather(0, torch.tensor([2, 0, 1]))


_EVEN = torch.tensor([True, False, True, False])

OPERATIONS: dict[str, tuple[Callable[[Any], Any], Callable[[float], Any]]] = {
    # pointwise
    "times a number": (lambda td: td * 2, lambda v: v * 2),
    "a number less": (lambda td: 100 - td, lambda v: 100 - v),
    "plus itself": (lambda td: td + td, lambda v: v + v),
    "times a tensor": (lambda td: td * torch.full((ROWS,), 3.0), lambda v: v * 3),
    "more dimensions": (lambda td: td + torch.ones(2, ROWS), lambda v: v + 1),
    "add with default": (lambda td: td.add(td, default=0.0), lambda v: v * 2),
    "intersection": (lambda td: td.mul(td, default="intersection"), lambda v: v * v),
    "negative": (lambda td: -td, lambda v: -v),
    "without foreach": (lambda td: td.isreal(), lambda v: True),
    "inverted twice": (lambda td: torch.square(td), lambda v: v * v),
    "clamp": (lambda td: td.clamp(2, 3), lambda v: min(max(v, 2), 3)),
    "clamp with trees": (lambda td: td.clamp(td, td), same),
    "addcmul": (lambda td: td.addcmul(td, td), lambda v: v + v * v),
    "lerp": (lambda td: td.lerp(td * 3, 0.5), lambda v: v * 2),
    "equal": (lambda td: td == 3.0, lambda v: v == 3),
    "less than itself plus one": (lambda td: td < td + 1, lambda v: True),
    "loss": (lambda td: torch.nn.functional.l1_loss(td, torch.zeros(ROWS, 1), reduction="none"), same),
    "torch.isclose": (lambda td: torch.isclose(td, td), lambda v: True),
    "torch.where": (lambda td: torch.where(_EVEN, td, td), same),
    "norm": (lambda td: td.norm() ** 2 / (2 * ROWS), lambda v: torch.linalg.vector_norm(torch.full((8,), v)) ** 2 / 8),
    # indices
    "row": (lambda td: td[1], same),
    "slice": (lambda td: td[:2], same),
    "step": (lambda td: td[::2], same),
    "new dimension": (lambda td: td[None], same),
    "tuple": (lambda td: td[1:3, ...], same),
    "list": (lambda td: td[[0, 2]], same),
    "numbers": (lambda td: td[torch.tensor([0, 2, 1])], same),
    "table of numbers": (lambda td: td[torch.tensor([[0, 2], [1, 1]])], same),
    "mask": (lambda td: td[_EVEN], same),
    "range": (lambda td: td[range(3)], same),
    "getitems": (lambda td: td.__getitems__([1, 2]), same),
    "gather": (_gathered, same),
    "masked_select": (lambda td: td.masked_select(_EVEN), same),
    "index_select": (lambda td: torch.index_select(td, 0, torch.tensor([3, 1])), same),
    "take_along_dim": (lambda td: torch.take_along_dim(td, torch.tensor([3, 1]), 0), same),
    "rows written": (_written, same),
    "rows of a new one": (_into_rows, same),
    # shapes
    "view": (lambda td: td.view(2, 2), same),
    "reshape": (lambda td: td.reshape(2, 2), same),
    "unsqueeze": (lambda td: td.unsqueeze(0), same),
    "squeeze": (lambda td: td.unsqueeze(1).squeeze(1), same),
    "permute": (lambda td: td.unsqueeze(0).permute(1, 0), same),
    "transpose": (lambda td: td.unsqueeze(0).transpose(0, 1), same),
    "expand": (lambda td: td.expand(3, ROWS), same),
    "unflatten": (lambda td: td.unflatten(0, (2, 2)).flatten(0, 1), same),
    "unbind": (lambda td: td.unbind(0), same),
    "iteration": (list, same),
    "split": (lambda td: td.split([1, 3]), same),
    "chunk": (lambda td: td.chunk(2), same),
    "tensor_split": (lambda td: td.tensor_split(3), same),
    "repeat": (lambda td: td.repeat(2), same),
    "repeat_interleave": (lambda td: td.repeat_interleave(2, 0), same),
    "flip": (lambda td: td.flip(0), same),
    "roll": (lambda td: td.roll(1, 0), same),
    "narrow": (lambda td: td.narrow(0, 1, 2), same),
    "atleast": (lambda td: td.atleast_3d(), same),
    "pad": (lambda td: pad(td, [1, 1])[1:-1], same),
    "contiguous": (lambda td: td.contiguous(), same),
    # reductions
    "sum": (lambda td: td.sum(0), lambda v: v * ROWS),
    "sum of all": (lambda td: td.sum(), lambda v: v * ROWS * 2),
    "sum of features": (lambda td: td.sum(dim="feature"), lambda v: v * 2),
    "max": (lambda td: td.max(0).values, same),
    "amin kept": (lambda td: td.amin(0, keepdim=True), same),
    "cummax": (lambda td: td.cummax(0).values, same),
    "cumsum": (lambda td: torch.cumsum(td, 0)[0], same),
    "sort": (lambda td: torch.sort(td, 0)[0], same),
    "logsumexp": (
        lambda td: td.to(torch.float64).logsumexp(0),
        lambda v: torch.full((4,), v, dtype=torch.float64).logsumexp(0),
    ),
    # functions of leaves
    "apply": (lambda td: td.apply(lambda leaf: leaf + 1), lambda v: v + 1),
    "apply with another": (lambda td: td.apply(lambda leaf, other: leaf + other, td), lambda v: v * 2),
    "apply with a default": (lambda td: td.apply(lambda one, two: two, td, default=None), same),
    "apply out": (lambda td: td.apply(lambda leaf: leaf * 2, out=TensorDict({}, [ROWS])), lambda v: v * 2),
    "named_apply": (lambda td: td.named_apply(lambda name, leaf: leaf - number(name, False)), lambda v: 20 * (v > 20)),
    "in threads": (lambda td: td._fast_apply(lambda leaf: leaf * 2, num_threads=2), lambda v: v * 2),
    # kinds and copies
    "double": (lambda td: td.double(), same),
    "to a dtype": (lambda td: td.to(torch.float64), same),
    "to a device": (lambda td: td.to("cpu"), same),
    "cast some": (lambda td: td.to(torch.float64, cast_filter=lambda key, leaf: key[-1] == "a"), same),
    "clone": (lambda td: td.clone(), same),
    "copy": (lambda td: td.copy(), same),
    "deepcopy": (copy.deepcopy, same),
    "to_tensordict": (lambda td: td.to_tensordict(), same),
    "detach": (lambda td: td.detach(), same),
    "data": (lambda td: td.data, same),
    "zeros_like": (torch.zeros_like, lambda v: 0),
    "new_full": (lambda td: td.new_full((2,), 3.0), lambda v: 3),
    # joins
    "stack": (lambda td: torch.stack([td, td]), same),
    "cat": (lambda td: torch.cat([td, td[:2]]), same),
    "stack lazily": (lambda td: lazy_stack([td, td]).contiguous(), same),
    "stack and read": (lambda td: lazy_stack([td, td]).to_dict(), same),
    "stack lazily times": (lambda td: lazy_stack([td, td]) * 2, lambda v: v * 2),
    "rows of a stack": (lambda td: lazy_stack([td, td], 1)[torch.tensor([1, 2])], same),
    "collate": (lambda td: collate([td, td]), same),
    "pad_sequence": (lambda td: pad_sequence([td, td[:2]], return_mask=False)[0], same),
    "dense or lazy": (lambda td: LazyStackedTensorDict.maybe_dense_stack([td, td]).to_dict(), same),
    "constructor of a stack": (lambda td: TensorDict(lazy_stack([td, td]), [2]), same),
    # choices
    "where": (lambda td: td.where(_EVEN, td), same),
    "where a number": (lambda td: td.where(_EVEN, 0.0)[::2], same),
    "where padded": (lambda td: td.where(_EVEN, td, pad=0.0)[::2], same),
    "masked_fill": (lambda td: td.masked_fill(_EVEN, 0.0)[1::2], same),
    # keys
    "items": (_flat_pairs, same),
    "keys, then each": (_walked, same),
    "to_dict": (lambda td: td.to_dict(), same),
    "numpy": (lambda td: td.numpy(), same),
    "tolist": (lambda td: td.tolist(), same),
    "to_namedtuple": (lambda td: {key: value for key, value in td.to_namedtuple()._asdict().items() if key not in "nm"}, same),
    "structured array": (lambda td: TensorDict.from_struct_array(td.to_struct_array(), batch_size=[ROWS]), same),
    "pack": (_packed, same),
    "split_keys": (lambda td: td.split_keys(["a"], strict=False)[1], same),
    "rename_keys": (lambda td: td.rename_keys({"a": "a"}, strict=False), same),
    "empty nodes left out": (lambda td: td.copy().filter_empty_(), same),
    "filter_non_tensor_data": (lambda td: td.filter_non_tensor_data(), same),
    "gradients": (_gradients, lambda v: v * 2),
    "repr": (lambda td: {} if repr(td) is None else td * 1, same),
    "flatten_keys": (lambda td: td.flatten_keys("."), same),
    "unflatten_keys": (lambda td: td.flatten_keys(".").unflatten_keys("."), same),
    "select": (lambda td: td.select("a", ("n", "b"), strict=False), same),
    "exclude": (lambda td: td.exclude("a"), same),
    "update": (lambda td: TensorDict({}, [ROWS]).update(td), same),
    "update a copy": (lambda td: td.clone().update(td * 1), same),
    "constructor": (lambda td: TensorDict(td, [ROWS]), same),
    "pytree": (_tree_of, lambda v: v * 2),
    # other containers
    "view at rows": (lambda td: td._get_sub_tensordict(slice(1, 3)) * 2, lambda v: v * 2),
    "view at numbers": (lambda td: td._get_sub_tensordict([0, 2]).clone(), same),
    "index of a view": (lambda td: td._get_sub_tensordict(slice(1, 4))[torch.tensor([0, 2])], same),
    "tensorclass": (lambda td: Pair._wrap(td) * 2, lambda v: v * 2),
    "tensorclass rows": (lambda td: Pair._wrap(td)[torch.tensor([1, 2])], same),
    "tensorclass stack": (lambda td: torch.stack([Pair._wrap(td), Pair._wrap(td)]), same),
    "tensorclass clone": (lambda td: Pair._wrap(td).clone(), same),
}

# Operations that put something in the place of a key that one operand lacks: both operands must be of one moment.
FILLED = ("add with default", "where padded")

# Operations in place, and what each makes of the numbers of the tree.
IN_PLACE: dict[str, tuple[Callable[[Any], Any], Callable[[float], Any]]] = {
    "times": (lambda td: td.mul_(2), lambda v: v * 2),
    "plus itself": (lambda td: td.add_(td), lambda v: v * 2),
    "times another": (lambda td: td.mul_(td + 1), lambda v: v * (v + 1)),
    "negative": (lambda td: td.neg_(), lambda v: -v),
    "without foreach": (lambda td: td.clamp_min_(3.0), lambda v: max(v, 3)),
    "apply_": (lambda td: td.apply_(lambda leaf: leaf * 2), lambda v: v * 2),
    "apply inplace": (lambda td: td.apply(lambda one, two: one + two, td, inplace=True), lambda v: v * 2),
    "named_apply": (lambda td: td.named_apply(lambda name, leaf: leaf * 2, inplace=True), lambda v: v * 2),
    "update_": (lambda td: td.update_(td * 2), lambda v: v * 2),
    "rows": (lambda td: td.__setitem__(slice(None), td * 2), lambda v: v * 2),
    "update inplace": (lambda td: td.update(td * 2, inplace=True), lambda v: v * 2),
    "masked_fill_": (lambda td: td.masked_fill_(torch.zeros(ROWS, dtype=torch.bool), 0.0), same),
    "a view at rows": (lambda td: td._get_sub_tensordict(slice(None)).mul_(2), lambda v: v * 2),
    "a view at numbers": (lambda td: td._get_sub_tensordict(list(range(ROWS))).mul_(2), lambda v: v * 2),
    "a tensorclass": (lambda td: Pair._wrap(td).mul_(2), lambda v: v * 2),
}


def stack_of(count: int) -> LazyStackedTensorDict:
    """A lazy stack whose members say by all their entries which they are."""
    return LazyStackedTensorDict(*[member(place) for place in range(count)])


def member(place: int) -> TensorDict:
    return TensorDict({"x": torch.full((2,), float(place)), "n": {"y": torch.full((2, 2), float(place))}}, [2])


# Reads of a stack; of each result all entries must be of the same members.
STACKED: dict[str, Callable[[Any], Any]] = {
    "contiguous": lambda td: td.contiguous(),
    "times": lambda td: (td * 1).contiguous(),
    "to_dict": lambda td: TensorDict(td.to_dict()),
    "items": lambda td: TensorDict(dict(td.items(True, True))),
    "flip": lambda td: td.flip(0).contiguous(),
    "numbers": lambda td: td[torch.tensor([1, 0, 2])].contiguous(),
    "slice": lambda td: td[:3].contiguous(),
    "inner rows": lambda td: td[:, 1].contiguous(),
    "mask": lambda td: td[:, torch.tensor([True, False])].contiguous(),
    "unsqueeze": lambda td: td.unsqueeze(0).contiguous()[0],
    "clone": lambda td: td.clone().contiguous(),
    "apply": lambda td: td.apply(lambda leaf: leaf + 0).contiguous(),
    "unbind": lambda td: torch.stack(td.unbind(1)),
    "split": lambda td: td.split(2)[0].contiguous(),
    "sum": lambda td: td.sum(1),
    "to_tensordict": lambda td: td.to_tensordict(),
    "where": lambda td: td.where(torch.tensor(True), td).contiguous(),
}


def of_one_kind(result: Any) -> None:
    """Raises where the entries of a result are not of the same members."""
    flat = result.flatten_keys(".")
    one, two = flat["x"], flat["n.y"]
    wide = one.reshape(*one.shape, 1).expand(two.shape) if two.ndim > one.ndim else one
    assert torch.equal(wide, two), f"{one} stands beside {two}"
