"""Reading and writing rows."""

SETUP = """
td = TensorDict({"a": torch.arange(24.0).reshape(4, 3, 2), "b": {"c": torch.arange(12).reshape(4, 3)}}, [4, 3])
flat = TensorDict({"a": torch.arange(8.0).reshape(4, 2)}, [4], names=["t"])
named = TensorDict({"a": torch.zeros(4, 3, 2), "n": {"x": torch.zeros(4, 3)}}, [4, 3], names=["t", "u"])
mask = torch.tensor([True, False, True, False])
mask2 = torch.arange(12).reshape(4, 3) % 2 == 0
rows = torch.tensor([3, 0])
rows2 = torch.tensor([[0, 1], [2, 3]])
"""

_INDICES = [
    *("0", "-1", "4", "-5", "True", "False", "None", "...", ":", "1:3", "::2", "3:1", "-2:", "10:20", "::-1", "1:3:0"),
    *("0, 1", "0, 3", "0, :", ":, 0", ":, -1", "..., 0", "0, ...", "..., None", "None, 0", ":, None", "None, None"),
    *("1:3, 1:", "[0, 2]", "[]", "[0, 4]", "[True, False, True, False]", "(0, 1)", "range(2)", "range(3, 0, -1)"),
    *("rows", "rows, 0", "rows, :", ":, [0, 2]", "rows, rows[1]", "rows2", "rows2, 0", ":, rows2 % 3", "rows - 4"),
    *(
        "rows + 1",
        "rows.to(torch.int32)",
        "rows.float()",
        "rows.to(torch.uint8)",
        "torch.tensor(1)",
        "torch.tensor([])",
    ),
    *(
        "mask",
        "mask, 0",
        "mask, :",
        ":, mask[:3]",
        "mask2",
        "mask2, 0",
        "mask[:3]",
        "~mask & mask",
        "torch.tensor(True)",
    ),
    *("rows.numpy()", "mask.numpy()", "1.5", "'q'", "0, 'a'", "0, 0, 0", "..., ...", "slice(None), slice(0, 2), 0"),
    *(
        "[[0, 1], [2, 0]]",
        "([0, 1], [2, 0])",
        "(slice(0, 2), [0, 1])",
        "(0, [0, 1])",
        "([0, 1], None)",
        "rows, None, rows",
    ),
]

CASES = [
    *(f"td[{index}]" for index in _INDICES),
    *(f"named[{index}]" for index in ("0", "1:3", ":, 0", "None", "rows", "mask", "mask2", "..., 0", "rows2", "0, 0")),
    *(f"flat[{index}]" for index in ("0", "mask", "rows", "...", "::2", "None", "0, 0", "rows2")),
    "td[0]['a']",
    "td[0].batch_size",
    "td[0] = td[1]",
    "td[0] = 0",
    "td[1:3] = td[:2]",
    "td[rows] = td[:2]",
    "td[mask] = td[:2]",
    "td[mask2] = 0",
    "td[:, 0] = td[:, 1]",
    "td[0] = TensorDict({'a': torch.zeros(3, 2)}, [3])",
    "td[0] = TensorDict({'q': torch.zeros(3, 2)}, [3])",
    "td[0] = {'a': torch.zeros(3, 2), 'b': {'c': torch.zeros(3, dtype=torch.int64)}}",
    "td[0] = td[:2]",
    "td[...] = 1",
    "td[None] = td[None]",
    "td[9] = 1",
    "flat[0] = torch.zeros(2)",
    "td.get_item_shape('a')",
    "td.unbind(0)",
    "td.unbind(1)",
    "td.unbind(-1)",
    "td.unbind(2)",
    "named.unbind(0)",
    "td.split(2)",
    "td.split([1, 3])",
    "td.split([1, 2])",
    "td.split(2, 1)",
    "td.split(2, -1)",
    "td.split(3)",
    "td.split(0)",
    "td.chunk(2)",
    "td.chunk(3)",
    "td.chunk(2, 1)",
    "td.chunk(0)",
    "list(td)",
    "list(flat)",
    "list(TensorDict())",
    "[row.batch_size for row in named]",
    "torch.stack([td, td])",
    "torch.stack([td, td], 1)",
    "torch.stack([td, td], -1)",
    "torch.stack([named, named])",
    "torch.stack([td, flat])",
    "torch.cat([td, td])",
    "torch.cat([td, td], 1)",
    "torch.cat([td, td], -1)",
    "torch.cat([named, named], 0)",
    "torch.cat([])",
    "torch.stack([])",
]

DIFFERS = {
    "td[0, 'a']": "an index of no known type is an IndexError, as in torch",
}
