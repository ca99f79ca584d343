"""Reductions, running extrema, their torch functions."""

SETUP = """
td = TensorDict({"a": torch.arange(24.0).reshape(4, 3, 2), "b": {"c": torch.arange(12.0).reshape(4, 3) - 3}}, [4, 3])
deep = TensorDict({"a": torch.ones(2, 3), "m": TensorDict({"y": torch.arange(12.0).reshape(2, 3, 2)}, [2, 3])}, [2])
named = TensorDict({"a": torch.arange(12.0).reshape(4, 3), "n": {"x": torch.ones(4, 3)}}, [4, 3], names=["t", "u"])
flat = TensorDict({"a": torch.arange(12.0).reshape(4, 3), "b": torch.arange(4.0)}, [4])
ints = TensorDict({"a": torch.arange(6).reshape(2, 3), "b": torch.tensor([True, False])}, [2])
holes = TensorDict({"a": torch.tensor([[1.0, float("nan")], [3.0, 4.0]])}, [2])
q = torch.tensor([0.25, 0.5])
"""

_ALL = ("sum", "nansum", "mean", "nanmean", "std", "var", "prod")
_DIMS = ("", "0", "-1", "2", "-3", "dim=None", "0, True", "keepdim=False", "'feature'", "reduce=True", "True", "'rows'", "()")

CASES = [
    *(f"td.{name}({args})" for name in _ALL for args in _DIMS),
    *(f"td.{name}({args})" for name in ("sum", "mean", "std", "var") for args in ("(0, 1)", "(1, 0), True", "keepdim=True")),
    *(f"deep.{name}({args})" for name in _ALL for args in ("0", "'feature'", "0, keepdim=True")),
    *(f"named.{name}({args})" for name in ("sum", "mean", "prod") for args in ("0", "1", "0, keepdim=True", "'feature'")),
    *(f"named.{name}(0, reduce=True)" for name in _ALL),
    *(f"flat.{name}('feature', reduce=True)" for name in _ALL),
    *(f"flat.{name}(0, reduce=True)" for name in _ALL),
    *(f"flat.select().{name}(reduce=True)" for name in _ALL),
    *(f"ints.{name}({args})" for name in _ALL for args in ("0", "dtype=torch.double", "reduce=True")),
    *(f"holes.{name}(0)" for name in _ALL),
    "named.sum(0, keepdim=True, reduce=True)",
    "td.sum((0, 0))",
    "td.lock_().sum(0)",
    "td.to('cpu').mean(1)",
    "td.std(0, correction=0)",
    "td.var(reduce=True, correction=0)",
    "td.sum(0, key_transform=lambda key: key + '_sum')",
    "td.mean('feature', key_transform=lambda key: (key, 'mean'))",
    *(f"td.quantile({args})" for args in ("0.5", "0.5, 0", "q, 0", "q", "q, 1, True", "q, 'feature'", "0.5, keepdim=True")),
    *(
        f"td.quantile({args})"
        for args in ("2.0, 0", "[0.5], 0", "0.5, 2", "0.5, 0, interpolation='nearest'", "0.5, reduce=True")
    ),
    "named.quantile(q, 0)",
    "named.quantile(q, 1, reduce=True)",
    "ints.quantile(0.5, 0)",
    *(
        f"td.{name}({args})"
        for name in ("max", "min")
        for args in ("", "0", "-1, True", "2", "None", "0, return_indices=False")
    ),
    *(f"td.{name}({args})" for name in ("max", "min") for args in ("reduce=True", "'feature', True", "(0, 1)", "'feature'")),
    *(f"named.{name}(0, reduce=True)" for name in ("max", "min", "amax", "amin", "cummax", "cummin")),
    *(f"type(td.{name}(0))" for name in ("max", "min", "cummax", "cummin")),
    "td.max(0).values.lock_().is_locked",
    *(f"td.{name}({args})" for name in ("amax", "amin") for args in ("", "0", "1, True", "2", "reduce=True", "'feature'")),
    *(f"td.{name}({args})" for name in ("cummax", "cummin") for args in ("0", "-1", "2", "", "None", "'feature'")),
    "td.cummax(0, return_indices=False)",
    "named.cummin(1)",
    "deep.max(0)",
    "deep.amax(0)",
    *(f"td.logsumexp({args})" for args in ("", "0", "(0, 1)", "[0, 1]", "0, True", "2", "'feature'", "keepdim=True")),
    "out = td.logsumexp(0).zero_(); td.logsumexp(0, out=out) is out",
    "named.logsumexp(1)",
    *(f"(td > 0).{name}({args})" for name in ("all", "any") for args in ("", "0", "-1", "2", "(0, 1)", "'feature'")),
    "flat.select().all(), flat.select().any()",
    *(f"torch.{name}(td, 0)" for name in ("sum", "mean", "std", "var")),
    *(f"torch.{name}(td, dim=(0, 1), keepdim=True)" for name in ("sum", "mean", "std", "var")),
    "torch.sum(td, dtype=torch.double)",
    "torch.std(td, 0, correction=0)",
    "torch.sum(td, 5)",
]

_FEATURE = "amax, amin, max and min also over features"

DIFFERS = {
    "td.max((0, 1))": "a place along several dimensions has no meaning",
    "td.min((0, 1))": "a place along several dimensions has no meaning",
    **{f"td.{name}('feature')": _FEATURE for name in ("amax", "amin", "max", "min")},
    "deep.max(0)": "nested nodes keep their batch dimensions",
    "deep.amax(0)": "nested nodes keep their batch dimensions",
}
