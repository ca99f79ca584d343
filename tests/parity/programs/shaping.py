"""Shape operations, joins of leaves, names of dimensions."""

SETUP = """
td = TensorDict({"a": torch.arange(24.0).reshape(4, 3, 2), "n": {"x": torch.arange(12).reshape(4, 3)}}, [4, 3])
named = TensorDict({"a": torch.arange(12.0).reshape(4, 3), "n": {"x": torch.zeros(4, 3, 2)}}, [4, 3], names=["t", "u"])
deep = TensorDict({"n": TensorDict({"x": torch.arange(24).reshape(2, 3, 4)}, [2, 3])}, [2])
locked = TensorDict({"a": torch.arange(12).reshape(4, 3), "n": {"x": torch.ones(4, 3)}}, [4, 3], lock=True)
point = TensorDict({"a": torch.arange(3)})
alike = TensorDict({"b": torch.ones(3, 2), "a": torch.zeros(3, 2), "n": {"c": torch.full((3, 2), 2.0)}}, [3])
mask = torch.arange(12).reshape(4, 3) % 2 == 0
places = torch.tensor([[0, 1, 3], [2, 2, 0]])
"""

_SHARED = [
    *("swapaxes(0, 1)", "swapdims(-1, 0)", "swapaxes(0, 0)", "swapaxes(0, 2)", "movedim(0, 1)", "movedim((0, 1), (1, 0))"),
    *("moveaxis(-1, 0)", "movedim(0, 2)", "movedim((0, 0), (0, 1))", "movedim((0,), (0, 1))", "atleast_1d()", "atleast_3d()"),
    *("expand_as(torch.zeros(2, 4, 3))", "expand_as(torch.zeros(2))", "repeat(2, 1)", "repeat((1, 2))", "repeat(2)"),
    *("repeat(1, 1)", "repeat(0, 2)", "repeat(-1, 1)", "repeat_interleave(2)", "repeat_interleave(2, 0)"),
    *("repeat_interleave(torch.tensor([1, 0, 2, 1]), dim=0)", "repeat_interleave(torch.tensor([1, 2]), dim=0)"),
    *("repeat_interleave(2, dim=2)", "repeat_interleave(-1, 0)", "flip(0)", "flip((0, -1))", "flip(2)", "flip((0, 0))"),
    *("fliplr()", "flipud()", "roll(1)", "roll(1, 0)", "roll((1, 2), (0, 1))", "roll(1, 2)", "roll((1, 2), 0)", "roll((1, 2))"),
    *("rot90()", "rot90(2)", "rot90(4)", "rot90(-1, (1, 0))", "rot90(1, (0, 0))", "rot90(1, (0, 2))", "rot90(1, (0,))"),
    *("narrow(0, 1, 2)", "narrow(-1, -2, 1)", "narrow(0, 3, 2)", "narrow(0, 1, -1)", "narrow(2, 0, 1)", "narrow(0, 4, 0)"),
    *("tensor_split(2)", "tensor_split(3, 1)", "tensor_split([1, 3])", "tensor_split([-1, 9])", "tensor_split([3, 1])"),
    *("tensor_split(0)", "tensor_split(2, 2)", "tensor_split(torch.tensor([1, 2]))", "pad([0, 1])", "pad([1, 1, 0, 2], 3)"),
    *("pad([-1, 0])", "pad([0, 1, 0])", "pad([0, 0, 0, 0, 1, 1])", "pad([])", "contiguous()", "contiguous(canonical=True)"),
    *(
        "gather(0, places)",
        "gather(1, places[:, :1])",
        "gather(2, places)",
        "gather(0, places + 9)",
        "gather(0, places.float())",
    ),
    *("masked_select(mask)", "masked_fill(mask, 7)", "masked_fill(mask[:2], 7)", "where(mask, 0)", "where(mask[:2], 0)"),
]

CASES = [
    *(f"{source}.{call}" for source in ("named", "locked") for call in _SHARED),
    *(
        f"td.{call}"
        for call in ("broadcast_to((2, 4, 3))", "broadcast_to((5, 3))", "tile((2, 1))", "tile(2)", "tile((2, 1, 2))")
    ),
    *(
        f"deep.{call}"
        for call in ("flip(0)", "repeat(2)", "roll(1, 0)", "pad([1, 0])", "atleast_2d()", "unsqueeze(0)", "pack()")
    ),
    *(
        f"named.{call}"
        for call in ("broadcast_to((2, 4, 3))", "tile(2)", "masked_select(mask[:, 0], inplace=True)", "flatten(1)")
    ),
    *(f"point.{call}" for call in ("atleast_1d()", "atleast_3d()", "tile(2)", "repeat_interleave(2)", "roll(1)", "roll(1, 0)")),
    *(f"point.{call}" for call in ("fliplr()", "flipud()", "rot90()", "repeat(2)", "flatten()", "pack()", "contiguous()")),
    *(
        f"named.{call}; named"
        for call in (
            "flatten(inplace=True)",
            "repeat(2, 1, inplace=True)",
            "repeat_interleave(2, 0, inplace=True)",
            "roll(1, 0, inplace=True)",
            "pad([0, 1], inplace=True)",
            "gather(0, places, inplace=True)",
            "rename_('p', 'q')",
            "rename_(t='p')",
            "rename_('p')",
            "refine_names('t', ...)",
            "refine_names('p', 'u')",
            "masked_fill_(mask, 7)",
        )
    ),
    *(f"locked.{call}" for call in ("flatten(inplace=True)", "repeat(1, 2, inplace=True)", "pad([0, 1], inplace=True)")),
    *(f"locked.{call}" for call in ("rename('p', 'q')", "rename_('p', 'q')", "contiguous(inplace=True)", "is_contiguous()")),
    "td.transpose(0, 1).is_contiguous()",
    "td.transpose(0, 1).contiguous(inplace=True)",
    "named.rename(None)",
    "named.rename(u='t', t='u')",
    "named.rename(u='t')",
    "named.rename(zz='t')",
    "named.rename()",
    "named.rename('p', u='q')",
    "td.refine_names('p', 'q')",
    "td.refine_names(..., 'q')",
    "td.refine_names('p')",
    "td.names",
    "td.where(mask, td + 1)",
    "td.where(mask, td.exclude('a'))",
    "td.where(mask, td.exclude('a'), pad=-1)",
    "td.exclude('n').where(mask, td, pad=-1)",
    "td.where(mask, td[0])",
    "out = td + 0; a = out['a']; td.where(mask, td + 1, out=out); out['a'] is a",
    "out = TensorDict({}, [4, 3]); td.where(mask, td + 1, out=out)",
    "torch.where(mask, td, 0)",
    "torch.where(mask, 0, td)",
    *(f"alike.stack_from_tensordict({args})" for args in ("", "1", "-1", "5", "sorted=True", "sorted=['a']")),
    *(f"alike.cat_from_tensordict({args})" for args in ("", "1", "-1", "5", "sorted=[('n', 'c'), 'b', 'a']")),
    "td.cat_from_tensordict()",
    "TensorDict().stack_from_tensordict()",
    *(f"alike.stack_tensors({args})" for args in ("'a', 'b', out_key='z', dim=1", "'a', 'zz', out_key='z', dim=1")),
    "alike.stack_tensors('a', 'b', out_key='z', dim=-1, keep_entries=True)",
    "alike.cat_tensors('a', 'b', out_key='z', dim=1)",
    "alike.cat_tensors('a', ('n', 'c'), out_key=('n', 'z'), dim=1)",
    "alike.cat_tensors('a', 'b', out_key='z', dim=0)",
    "alike.lock_().cat_tensors('a', 'b', out_key='z', dim=1)",
    *(f"alike.pack({args})" for args in ("", "0", "1", "-2", "2")),
    "flat, layout = alike.pack(); layout.unpack(flat * 2)",
    "flat, layout = alike.pack(0); layout.unpack(flat)",
    "flat, layout = alike.pack(); layout.unpack(flat[0])",
    "flat, layout = alike.pack(); layout.unpack(flat[:, :3])",
    "flat, layout = alike.pack(); alike.exclude('a').pack(layout=layout)",
    "flat, layout = alike.pack(); alike.pack(0, layout=layout)",
    "td.pack()",
    "repr(alike.pack()[1])",
    "TensorDict({}, [3]).pack()",
    *(f"torch.{name}(td)" for name in ("atleast_1d", "atleast_2d", "atleast_3d", "fliplr", "flipud", "rot90")),
    *(f"torch.{call}" for call in ("flip(td, (0,))", "roll(td, 1, 0)", "tile(td, (2, 1))", "narrow(td, 0, 1, 2)")),
    *(f"torch.{call}" for call in ("swapaxes(td, 0, 1)", "movedim(td, 0, 1)", "broadcast_to(td, (1, 4, 3))")),
    *(f"torch.{call}" for call in ("tensor_split(td, 2)", "tensor_split(td, (1,), dim=1)", "repeat_interleave(td, 2, dim=0)")),
    *(f"torch.{call}" for call in ("masked_select(td, mask)", "hstack([td, td])", "ravel(td)", "t(td)")),
    "tensordict.pad(td, [0, 1], 2)",
    "tensordict.dense_stack_tds([td, td], 1)",
    "tensordict.dense_stack_tds([td, td])",
    "tensordict.dense_stack_tds(td)",
    "tensordict.merge_tensordicts(td.exclude('n'), TensorDict({'a': td['a'] + 1}, [4, 3]))",
    "x = td.select('a'); tensordict.merge_tensordicts(x, x + 1, callback_exist=lambda *leaves: sum(leaves))",
    "x = td.select('a'); tensordict.merge_tensordicts(x, x + 1, x, callback_exist={'a': lambda *leaves: sum(leaves)})",
    "x = td.select('a'); tensordict.merge_tensordicts(x, td, x, callback_exist={('n', 'x'): lambda *leaves: sum(leaves)})",
    "tensordict.merge_tensordicts(td)",
    "tensordict.group_by(TensorDict({'k': torch.tensor([2, 0, 2]), 'v': torch.arange(3)}, [3]), 'k')",
    "tensordict.group_by(td, 'zz')",
    "tensordict.group_by(td, 'n')",
    "tensordict.group_by(point, 'a')",
    "tensordict.group_by(TensorDict({'k': torch.zeros(0)}, [0]), 'k')",
    "from tensordict.utils import expand_as_right; expand_as_right(named, torch.zeros(4, 3, 2))",
    *(
        f"with {source} as out:\n    out['new'] = out['a'] + 1\ntd"
        for source in (
            "td.view(-1)",
            "td.view(4, 3)",
            "td.flatten(0, 1)",
            "td.unflatten(0, (2, 2))",
            "td.squeeze(0)",
            "td.unsqueeze(-1)",
            "td.permute(1, 0)",
            "td.swapaxes(0, 1)",
            "td.movedim(0, 1)",
            "td.atleast_3d()",
            "td.flip(0)",
            "td.roll(1, 0)",
            "td.roll(1)",
            "td.rot90()",
            "td.rot90(2, (1, 0))",
        )
    ),
    "TensorDict({'a': torch.zeros(3, 4), 'n': {}}, [3]).auto_batch_size_()",
    "TensorDict({'a': torch.zeros(3, 4), 'n': {'x': torch.zeros(3, 4, 5)}}, []).auto_batch_size_(1)",
    "TensorDict({'a': torch.zeros(3, 4), 'n': TensorDict({'x': torch.zeros(3, 4)}, [3, 4])}, []).auto_batch_size_(1, True)",
    "TensorDict({'a': torch.zeros(3, 4)}, [3], names=['t']).auto_batch_size_()",
]

_NAMES = "names stay with their dimensions"
DIFFERS = {
    "alike.cat_tensors('a', 'b', out_key='z', dim=0)": "a join that does not fit changes nothing",
    "named.broadcast_to((2, 4, 3))": _NAMES,
    "named.flatten(1)": _NAMES,
    "named.masked_select(mask[:, 0], inplace=True)": _NAMES,
    "named.tile(2)": _NAMES,
    "out = td + 0; a = out['a']; td.where(mask, td + 1, out=out); out['a'] is a": "the leaves of out are written to",
}
