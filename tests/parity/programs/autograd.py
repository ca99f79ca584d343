"""Gradients, moves, casts, addresses."""

SETUP = """
td = TensorDict({"a": torch.arange(6.0).reshape(3, 2).clone(), "b": {"c": torch.ones(3), "e": {}}}, [3])
locked = td.clone().lock_()
named = TensorDict({"a": torch.ones(3, 2), "n": {"x": torch.ones(3)}}, [3], names=["t"])
live = TensorDict({"a": torch.ones(3, 2), "b": {"c": torch.ones(3)}}, [3]).requires_grad_()
ints = TensorDict({"a": torch.ones(3, dtype=torch.int64), "b": torch.ones(3)}, [3])
ones = TensorDict({"a": torch.ones(3, 2), "b": {"c": torch.ones(3)}}, [3])
double = ones.double()
"""

_CASTS = "bfloat16 float16 half float32 float float64 double int8 int16 int32 int int64 uint8 uint16 bool complex64 complex128"
_TO = [
    "'cpu'",
    "'meta'",
    "torch.float64",
    "'meta', torch.float64",
    "'cpu', torch.float64, True",
    "device='meta'",
    "dtype=torch.float64",
    "None",
    "torch.ones(1, dtype=torch.double)",
    "other=double",
    "other=double, device='meta'",
    "'cpu', copy=True",
    "'nowhere'",
    "[]",
    "unknown=1",
    "'meta', True",
    "torch.float64, 'meta'",
    "'cpu', device='meta'",
    "dtype='float'",
    "'meta', non_blocking=True",
    "'cpu', num_threads=2",
    "torch.float64, True",
    "'meta', batch_size=[3]",
    "dtype=torch.half, cast_filter=lambda key, leaf: key == ('a',)",
    "None, torch.double",
]

CASES = [
    *(
        "td.requires_grad",
        "live.requires_grad",
        "td.requires_grad_() is td",
        "ints.requires_grad_()",
        "ints.requires_grad_(False)",
    ),
    *(
        "td.data",
        "locked.data",
        "named.data",
        "live.data.requires_grad",
        "td.data = td * 2",
        "locked.data = ones",
        "td.data = 1",
    ),
    *("td.data = td[:2]", "td.data = named", "td.data = ones", "live.data = ones * 3"),
    *("td.grad", "live.grad", "live.sum().backward(); live.grad", "live['a'].sum().backward(); live.grad", "td.grad = 1"),
    *("live.grad = ones; live['a'].grad", "live.grad = ones.select('a')", "live.grad = double"),
    *("live.grad = ones; live.zero_grad() is live, live.grad", "live.grad = ones; live.zero_grad(False); live.grad"),
    *("live.detach()", "locked.detach()", "named.detach()", "(live * 2).detach_()", "td.zero_grad() is td"),
    *("live.sum().backward()", "(live * 2).backward()", "(live * 2).backward(ones); live.grad", "td.backward()"),
    *("(live * 2).backward(torch.ones(3))", "(live * 2).backward(ones.select('a'))", "TensorDict().backward()"),
    *("(live * live).sum().backward(inputs=[live['a']]); live.grad", "(live * live).sum().backward(inputs=live); live.grad"),
    *("torch.autograd.grad((live * live).sum(), live)", "torch.autograd.grad(live * 2, live, ones)"),
    *(
        "torch.autograd.grad(live * 2, live)",
        "torch.autograd.grad(live.sum(), [live, live])",
        "torch.autograd.grad(td.sum(), td)",
    ),
    *("torch.autograd.grad(live.select('a').sum(), live, allow_unused=True)", "torch.autograd.grad(live * 2, live, live['a'])"),
    *(f"td.{name}()" for name in _CASTS.split()),
    *("locked.double()", "named.half()", "ints.double(cast_filter=lambda key, leaf: not leaf.is_floating_point())"),
    *("td.type(torch.float16)", "td.type('torch.DoubleTensor')", "td.type(torch.DoubleTensor)", "td.type(float)", "td.type()"),
    *("td.qint8()", "td.quint4x2(cast_filter=lambda key, leaf: False)", "td.float() is td", "td.float()"),
    *(f"td.to({args.strip()})" for args in _TO),
    *("td.to() is td", "td.to('cpu').to('cpu').device", "locked.to('meta')", "named.to('meta')", "td.cpu()", "td.cuda('meta')"),
    *("td.to('meta', inplace=True) is td", "td.to(torch.double, inplace=True)", "locked.to('meta', inplace=True)"),
    *("td.to('meta').to('cpu')", "td.cpu(non_blocking=True)", "td.is_cpu, td.is_meta, td.is_cuda, td.to('meta').is_meta"),
    *(
        "td.auto_device_() is td",
        "td.auto_device_()",
        "locked.auto_device_()",
        "td.to('cpu').clear_device_()",
        "td.device = 'cpu'",
    ),
    *("td.dtype, ints.dtype, TensorDict().dtype", "td.is_floating_point(), ints.is_floating_point()", "td.record_stream(None)"),
    *("td.pin_memory()", "td.pin_memory(inplace=True)", "td.to('meta').data_ptr()", "list(td.data_ptr().keys(True, True))"),
    *("td.data_ptr()['a'] == td['a'].data_ptr()", "td[1:].data_ptr(storage=True)['a'] == td['a'].data_ptr()"),
    *("TensorDict().data_ptr()", "td.bytes(), td.param_count(), ints.bytes()", "td.bytes(True)"),
    "x = torch.ones(3); t = TensorDict(a=x, b=x); t.bytes(count_duplicates=False), t.param_count(count_duplicates=False)",
]

DIFFERS = {
    "td.data = 1": "a value of another kind is a TypeError",
    "td.grad = 1": "a value of another kind is a TypeError",
}
