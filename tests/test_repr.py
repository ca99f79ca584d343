"""The printed forms. The expected texts were written down from what the reference prints."""

import math

import pytest
import torch

from tensordict import MemoryMappedTensor, TensorDict, get_printoptions, parse_tensor_dict_string, set_printoptions

LONG = {"compact": False}


def shown(td, **options):
    with set_printoptions(**options):
        return repr(td)


def leaf(tensor, **options):
    """The printed line of one leaf, all else hidden, in the long form."""
    hidden = {"show_batch_size": False, "verbose": False, "show_shape": False, "compact": False}
    text = shown(TensorDict({"x": tensor}), **(hidden | options))
    return text.removeprefix("TensorDict(\n    fields={\n        x: ").removesuffix("})")


def nested():
    return TensorDict({"a": torch.ones(3, 4), "b": {"c": torch.arange(3), "d": TensorDict({}, [3])}}, [3])


COMPACT = {
    "TensorDict(batch_size=[], fields={})": lambda: TensorDict(),
    "TensorDict(batch_size=[2], fields={})": lambda: TensorDict({}, [2]),
    "TensorDict(batch_size=[3], fields={a: f32[4], b: {c: i64[], d: {}}})": nested,
    "TensorDict(batch_size=[3], device=cpu, fields={a: f32[4]})": lambda: TensorDict(
        {"a": torch.ones(3, 4)}, [3], device="cpu"
    ),
    "TensorDict(batch_size=[3], fields={a: f32[4]@meta, b: f32[]})": lambda: TensorDict(
        {"a": torch.ones(3, 4, device="meta"), "b": torch.ones(3)}, [3]
    ),
    "TensorDict(batch_size=[3], device=meta, fields={a: f32[4]})": lambda: TensorDict(
        {"a": torch.ones(3, 4, device="meta")}, [3], device="meta"
    ),
    "TensorDict(batch_size=[3], fields={n: {x: f32[4]}})": lambda: TensorDict(
        {"n": TensorDict({"x": torch.ones(3, 4)}, [3], device="cpu")}, [3]
    ),
    "TensorDict(batch_size=[3], fields={n: [4]{x: f32[]}})": lambda: TensorDict(
        {"n": TensorDict({"x": torch.ones(3, 4)}, [3, 4])}, [3], names=["t"]
    ),
    "TensorDict(batch_size=[], fields={n: [3,4]{x: f32[]}})": lambda: TensorDict(
        {"n": TensorDict({"x": torch.ones(3, 4)}, [3, 4])}, []
    ),
    "TensorDict(batch_size=[3,4], fields={a: {z: f32[5]}})": lambda: TensorDict(
        {"a": TensorDict({"z": torch.ones(3, 4, 5)}, [3, 4])}, [3, 4]
    ),
    "TensorDict(batch_size=[3], fields={a: f32[], b: f32[], c: f32[]})": lambda: TensorDict(
        {"a": torch.nn.Parameter(torch.ones(3)), "b": torch.ones(3).share_memory_(), "c": torch.ones(3)}, [3]
    ).lock_(),
    # 80 columns and 81, in one line and in two, and deeper.
    "TensorDict(batch_size=[3], fields={m: {aaaaaaaaaaaaaaaaaaaaa: f32[]}, o: f32[]})": lambda: TensorDict(
        {"m": {"a" * 21: torch.ones(3)}, "o": torch.ones(3)}, [3]
    ),
    """\
TensorDict(batch_size=[3], fields={
    m: {aaaaaaaaaaaaaaaaaaaaaa: f32[]},
    o: f32[]})""": lambda: TensorDict({"m": {"a" * 22: torch.ones(3)}, "o": torch.ones(3)}, [3]),
    """\
TensorDict(batch_size=[3], fields={
    n: {x: {aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa: f32[]}}})""": lambda: TensorDict(
        {"n": {"x": {"a" * 57: torch.ones(3)}}}, [3]
    ),
    """\
TensorDict(batch_size=[3], fields={
    n: {
        x: {
            aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa: f32[]}}})""": lambda: TensorDict(
        {"n": {"x": {"a" * 58: torch.ones(3)}}}, [3]
    ),
    """\
TensorDict(batch_size=[3], fields={
    n: {x: {aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa: f32[]}},
    y: {q: f32[]},
    z: f32[]})""": lambda: TensorDict(
        {"n": {"x": {"a" * 58: torch.ones(3)}}, "z": torch.ones(3), "y": {"q": torch.ones(3)}}, [3]
    ),
    """\
TensorDict(batch_size=[3], fields={
    k0: f32[0],
    k10: f32[10],
    k11: f32[11],
    k1: f32[1],
    k2: f32[2],
    k3: f32[3],
    k4: f32[4],
    k5: f32[5],
    k6: f32[6],
    k7: f32[7],
    k8: f32[8],
    k9: f32[9]})""": lambda: TensorDict({f"k{i}": torch.ones(3, i) for i in range(12)}, [3]),
    """\
TensorDict(batch_size=[2], fields={
    aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa: {}})""": lambda: TensorDict(
        {"a" * 90: TensorDict({}, [2])}, [2]
    ),
}


@pytest.mark.parametrize("text", COMPACT)
def test_compact(text):
    td = COMPACT[text]()
    assert repr(td) == text
    assert str(td) == text
    assert f"{td}" == text


def test_deep_nesting_breaks_only_where_it_must():
    td = TensorDict({"x": torch.ones(2, 1)}, [2])
    for i in range(8):
        td = TensorDict({f"k{i}": td, f"s{i}": torch.ones(2, i)}, [2])
    assert repr(td) == (
        """\
TensorDict(batch_size=[2], fields={
    k7: {
        k6: {
            k5: {
                k4: {
                    k3: {
                        k2: {k1: {k0: {x: f32[1]}, s0: f32[0]}, s1: f32[1]},
                        s2: f32[2]},
                    s3: f32[3]},
                s4: f32[4]},
            s5: f32[5]},
        s6: f32[6]},
    s7: f32[7]})"""
    )


CODES = {
    "uint8": "u8",
    "int8": "i8",
    "int64": "i64",
    "uint16": "u16",
    "float16": "f16",
    "bfloat16": "bf16",
    "float64": "f64",
    "complex32": "c32",
    "complex128": "c128",
    "bool": "bool",
    "float8_e5m2": "f8_e5m2",
    "float8_e4m3fnuz": "f8_e4m3fnuz",
    "uint1": "u1",
    "int4": "i4",
    "bits1x8": "bits1x8",
    "quint4x2": "qu4x2",
}


@pytest.mark.filterwarnings("ignore:ComplexHalf", "ignore:torch.quantize_per_tensor")
@pytest.mark.parametrize("name", CODES)
def test_dtype_codes(name):
    td = TensorDict({"a": torch.empty(2, dtype=getattr(torch, name))}, [2])
    assert repr(td) == f"TensorDict(batch_size=[2], fields={{a: {CODES[name]}[]}})"


def test_long():
    assert shown(nested(), **LONG) == (
        """\
TensorDict(
    fields={
        a: Tensor(shape=torch.Size([3, 4]), device=cpu, dtype=torch.float32, is_shared=False),
        b: TensorDict(
            fields={
                c: Tensor(shape=torch.Size([3]), device=cpu, dtype=torch.int64, is_shared=False),
                d: TensorDict(
                    fields={
                    },
                    batch_size=torch.Size([3]),
                    device=None,
                    is_shared=False)},
            batch_size=torch.Size([3]),
            device=None,
            is_shared=False)},
    batch_size=torch.Size([3]),
    device=None,
    is_shared=False)"""
    )


def test_long_shared():
    assert shown(TensorDict({"n": {"x": torch.ones(3, 4)}}, [3]).share_memory_(), **LONG) == (
        """\
TensorDict(
    fields={
        n: TensorDict(
            fields={
                x: Tensor(shape=torch.Size([3, 4]), device=cpu, dtype=torch.float32, is_shared=True)},
            batch_size=torch.Size([3]),
            device=None,
            is_shared=True)},
    batch_size=torch.Size([3]),
    device=None,
    is_shared=True)"""
    )


def test_long_mapped():
    assert shown(TensorDict({"n": {"x": torch.ones(3, 4)}}, [3]).memmap_(), **LONG) == (
        """\
TensorDict(
    fields={
        n: TensorDict(
            fields={
                x: MemoryMappedTensor(shape=torch.Size([3, 4]), device=cpu, dtype=torch.float32, is_shared=True)},
            batch_size=torch.Size([3]),
            device=cpu,
            is_shared=False)},
    batch_size=torch.Size([3]),
    device=cpu,
    is_shared=False)"""
    )


def test_all_hidden():
    hidden = {name: False for name in get_printoptions() if name.startswith("show_")}
    assert shown(TensorDict({"a": torch.ones(3)}), **hidden) == "TensorDict(\n    fields={\n        a: Tensor()})"
    assert shown(TensorDict(), **hidden) == "TensorDict(\n    fields={\n    })"
    assert shown(TensorDict({}, [2], device="cpu"), show_batch_size=False) == "TensorDict(device=cpu, fields={})"


def test_attributes_of_leaves():
    base = torch.ones(4, 6)
    assert leaf(base, show_shape=True) == "Tensor(shape=torch.Size([4, 6]))"
    assert leaf(base, show_field_device=True) == "Tensor(device=cpu)"
    assert leaf(base, show_dtype=True) == "Tensor(dtype=torch.float32)"
    assert leaf(base, show_field_is_shared=True) == "Tensor(is_shared=False)"
    assert leaf(base, show_grad=True) == "Tensor(requires_grad=False)"
    assert leaf(torch.nn.Parameter(base), show_grad=True) == "Parameter(requires_grad=True)"
    assert leaf(base, show_is_contiguous=True) == "Tensor(is_contiguous=True)"
    assert leaf(base.t(), show_is_contiguous=True) == "Tensor(is_contiguous=False)"
    assert leaf(base, show_is_view=True) == "Tensor(is_view=False)"
    assert leaf(base[::2], show_is_view=True) == "Tensor(is_view=True)"
    assert leaf(base[0], show_storage_size=True) == "Tensor(storage_size=96)"
    assert leaf(MemoryMappedTensor.from_tensor(base), show_dtype=True) == "MemoryMappedTensor(dtype=torch.float32)"


SUMMARIES = {
    "[]": torch.zeros(0),
    "mean=0, std=nan": torch.zeros(1),
    "mean=1, std=0": torch.ones(3, 4),
    "mean=1.37, std=1.37": torch.arange(3) * 1.37,
    "mean=684.3, std=395.7": torch.arange(1000) * 1.37,
    "mean=1.367, std=1.367": (torch.arange(3) * 1.37).to(torch.bfloat16),
    "mean=1.375, std=1.375": (torch.arange(3) * 1.37).to(torch.float8_e4m3fn),
    "mean=3e+38, std=0": torch.full((10000,), 3e38),
    "mean=1, std=1e-05": torch.tensor([1.00001, 1.00002, 1.00003], dtype=torch.float64),
    "mean=-3.123, std=0": torch.tensor([-3.123456789] * 2),
    "mean=1+0j, std=2.828": torch.tensor([1 + 2j, 1 - 2j]),
    "min=0, max=12": torch.arange(13),
    "min=False, max=True": torch.tensor([True, False]),
    "min=200, max=200": torch.tensor([200], dtype=torch.uint8),
    "min=-9223372036854775808, max=9223372036854775807": torch.tensor([-(2**63), 2**63 - 1]),
}


@pytest.mark.parametrize("text", SUMMARIES)
def test_plain_shows_the_values_in_two_numbers(text):
    assert leaf(SUMMARIES[text], plain=True) == f"Tensor({text})"


def test_plain_reads_dtypes_without_a_minimum():
    assert leaf(torch.tensor([7, 3], dtype=torch.uint16), plain=True) == "Tensor(min=3, max=7)"
    assert leaf(torch.tensor([2**64 - 1], dtype=torch.uint64), plain=True) == f"Tensor(min={2**64 - 1}, max={2**64 - 1})"


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_leaves_that_refuse_questions_still_print():
    meta = TensorDict({"x": torch.ones(3, device="meta")}, [3])
    assert "Tensor(shape=torch.Size([3]), ?)" in shown(meta, plain=True, verbose=False)
    sparse = TensorDict({"x": torch.ones(2, 3).to_sparse()}, [2])
    assert repr(sparse) == "TensorDict(batch_size=[2], fields={x: f32[3]})"
    assert "Tensor(is_shared=None, storage_size=?)" in shown(
        sparse, verbose=False, show_shape=False, show_field_is_shared=True, show_storage_size=True
    )
    ragged = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.strided)
    assert repr(TensorDict({"x": ragged})) == "TensorDict(batch_size=[], fields={x: f32[2,-1]})"


def test_vmap():
    texts = []

    def note(td):
        texts.append(repr(td))
        texts.append(shown(td, verbose=False, show_field_is_shared=True, plain=True))
        return td

    torch.vmap(note)(TensorDict({"x": torch.ones(3, 4)}, [3, 4]))
    assert texts[0] == "TensorDict(batch_size=[4], fields={x: f32[]})"
    assert "x: Tensor(shape=torch.Size([4]), is_shared=None, ?)" in texts[1]


def test_grad_wrappers():
    texts = []

    def note(x):
        texts.append(shown(TensorDict({"x": x}), verbose=False, show_field_is_shared=True))
        return x.sum()

    torch.func.grad(note)(torch.ones(3))
    assert "x: Tensor(shape=torch.Size([3]), is_shared=None)" in texts[0]


def test_fake_tensors():
    fake = pytest.importorskip("torch._subclasses.fake_tensor")
    with fake.FakeTensorMode():
        td = TensorDict({"x": torch.ones(3, device="cuda"), "y": torch.ones(3)}, [3])
        assert repr(td) == "TensorDict(batch_size=[3], fields={x: f32[]@cuda:0, y: f32[]})"
        assert "x: FakeTensor(shape=torch.Size([3]), ?)" in shown(td, plain=True, verbose=False)


class TestSortKeys:
    td = TensorDict({"b": torch.ones(3), "a": {"z": torch.ones(3), "y": torch.ones(3)}, "ab": torch.ones(3)}, [3])

    @pytest.mark.parametrize("order", ["insertion", None, "unheard of"])
    def test_insertion(self, order):
        assert (
            shown(self.td, sort_keys=order)
            == "TensorDict(batch_size=[3], fields={\n    b: f32[],\n    a: {z: f32[], y: f32[]},\n    ab: f32[]})"
        )

    def test_function_of_the_line(self):
        assert (
            shown(self.td, sort_keys=lambda line: -len(line))
            == "TensorDict(batch_size=[3], fields={\n    a: {z: f32[], y: f32[]},\n    ab: f32[],\n    b: f32[]})"
        )

    def test_alphabetical_sorts_lines(self):
        keys = ["a", "a: ", "a:", "ab", "B", "_c", "1", "a b", "a!", "A", "é", "a,b"]
        text = repr(TensorDict({key: torch.ones(3) for key in keys}, [3]))
        lines = [line.strip() for line in text.splitlines()[1:]]
        assert [line[: line.rindex(": ")] for line in lines] == [
            *("1", "A", "B", "_c", "a b", "a!", "a,b", "a: ", "a", "a:", "ab", "é")
        ]


class TestOptions:
    def test_defaults(self):
        assert get_printoptions() == {
            "show_batch_size": True,
            "show_device": True,
            "show_is_shared": True,
            "show_shape": True,
            "show_field_device": True,
            "show_dtype": True,
            "show_field_is_shared": True,
            "show_grad": False,
            "show_is_contiguous": False,
            "show_is_view": False,
            "show_storage_size": False,
            "plain": False,
            "sort_keys": "alphabetical",
            "compact": True,
            "html": True,
        }

    @pytest.mark.parametrize("name", ["show_batch_size", "show_device", "show_dtype", "sort_keys", "html"])
    def test_compact_keeps(self, name):
        with set_printoptions(**{name: get_printoptions()[name]}):
            assert get_printoptions()["compact"] is True

    @pytest.mark.parametrize(
        "name",
        [
            *("show_is_shared", "show_shape", "show_field_device", "show_field_is_shared", "show_grad"),
            *("show_is_contiguous", "show_is_view", "show_storage_size", "plain"),
        ],
    )
    @pytest.mark.parametrize("value", [True, False])
    def test_naming_a_detail_asks_for_the_long_form(self, name, value):
        before = get_printoptions()
        with set_printoptions(**{name: value}):
            assert get_printoptions() == before | {name: value, "compact": False}
        with set_printoptions(**{name: value, "compact": True}):
            assert get_printoptions() == before | {name: value}
        assert get_printoptions() == before

    def test_verbose(self):
        assert shown(nested(), verbose=False) == "TensorDict(batch_size=[3], fields={a: [4], b: {c: [], d: {}}})"
        assert shown(nested(), verbose=False, show_dtype=True) == repr(nested())
        assert shown(nested(), verbose=True) == repr(nested())

    def test_unknown(self):
        with pytest.raises(TypeError, match=r"Unknown printoptions: \{'aa', 'zz'\}. Valid options: \['compact', 'html'"):
            set_printoptions(zz=1, show_dtype=False, aa=3)

    def test_set_and_leave(self):
        before = get_printoptions()
        choice = set_printoptions(show_dtype=False)
        assert get_printoptions() == before
        choice.set()
        assert get_printoptions() == before | {"show_dtype": False}
        choice.__exit__(None, None, None)
        assert get_printoptions() == before

    def test_decorator(self):
        @set_printoptions(verbose=False)
        def text():
            return repr(nested())

        assert text() == text() == "TensorDict(batch_size=[3], fields={a: [4], b: {c: [], d: {}}})"
        assert repr(nested()).startswith("TensorDict(batch_size=[3], fields={a: f32[4]")

    def test_one_choice_entered_twice_restores(self):
        before = get_printoptions()
        choice = set_printoptions(show_dtype=False)
        with choice, choice:
            pass
        assert get_printoptions() == before


DIM = '<span style="opacity:0.7">'
LIST = '<ul style="list-style:none;margin:0;padding-left:1.5em">'


class TestHtml:
    def test_tree(self):
        assert nested()._repr_html_() == (
            '<div style="font-family:monospace;line-height:1.4"><details open><summary><b>TensorDict</b> '
            f"{DIM}batch_size=[3]</span></summary>{LIST}<li>a: {DIM}f32[4]</span></li><li><details open><summary>b: "
            f"{DIM}2 entries</span></summary>{LIST}<li>c: {DIM}i64[]</span></li><li><details open><summary>d: "
            f"{DIM}0 entries</span></summary>{LIST}</ul></details></li></ul></details></li></ul></details></div>"
        )

    def test_header(self):
        td = TensorDict({"n": {"x": torch.ones(3, 4)}}, [3], names=["<t>"], device="cpu")
        html = td._repr_html_()
        assert f"<b>TensorDict</b> {DIM}batch_size=[3], names=[&lt;t&gt;], device=cpu</span>" in html
        assert f"n: {DIM}1 entry</span>" in html
        with set_printoptions(show_batch_size=False):
            assert f"<b>TensorDict</b> {DIM}device=cpu</span>" in td._repr_html_()

    def test_batch_size_beyond_the_parents(self):
        td = TensorDict({"n": TensorDict({"x": torch.ones(3, 4)}, [3, 4])}, [3])
        assert f"n: {DIM}[4] 1 entry</span>" in td._repr_html_()

    def test_keys_are_escaped(self):
        td = TensorDict({"x<y&'\"z": torch.ones(2)}, [2])
        assert f"<li>x&lt;y&amp;&#x27;&quot;z: {DIM}f32[]</span></li>" in td._repr_html_()
        with set_printoptions(compact=False):
            assert "        x&lt;y&amp;&#x27;&quot;z: Tensor(" in td._repr_html_()

    def test_long_form_is_text(self):
        with set_printoptions(compact=False):
            assert nested()._repr_html_() == f"<pre>{nested()!r}</pre>"

    def test_off(self):
        with set_printoptions(html=False):
            assert nested()._repr_html_() is None


class TestParse:
    @pytest.mark.parametrize("options", [{}, LONG, {"show_device": False}])
    @pytest.mark.parametrize(
        "make",
        [
            TensorDict,
            nested,
            lambda: TensorDict({"a": torch.zeros(2, 3, dtype=torch.bfloat16)}, [2], device="cpu"),
            lambda: TensorDict({"n": TensorDict({"x": torch.ones(3, 4)}, [3, 4], device="cpu")}, [3]),
            lambda: TensorDict({"n": {"x": torch.ones(3, device="meta")}, "y": torch.ones(3)}, [3]),
            lambda: TensorDict({f"key {i}": torch.ones(3, i) for i in range(20)}, [3]),
        ],
    )
    def test_round_trip(self, make, options):
        with set_printoptions(**options):
            text = repr(make())
            assert repr(parse_tensor_dict_string(text)) == text

    def test_zeros(self):
        td = parse_tensor_dict_string("TensorDict(batch_size=[3], fields={b: f32[2], a: {c: bool[]}})")
        assert list(td.keys(True, True)) == ["b", ("a", "c")]
        assert torch.equal(td["b"], torch.zeros(3, 2))
        assert torch.equal(td["a", "c"], torch.zeros(3, dtype=torch.bool))
        assert not td.is_locked

    @pytest.mark.filterwarnings("ignore:ComplexHalf")
    @pytest.mark.parametrize("code", CODES.values())
    def test_dtypes(self, code):
        if code.startswith("q"):
            return  # torch makes no zeros of these
        text = f"TensorDict(batch_size=[3], fields={{a: {code}[]}})"
        assert repr(parse_tensor_dict_string(text)) == text

    @pytest.mark.parametrize(
        "text",
        [
            *(
                "",
                "foo",
                "TensorDict(",
                "TensorDict(fields={a: f32[]})",
                "TensorDict(batch_size=[-3], fields={a: f32[]})",
            ),
            "TensorDict(batch_size=[3], fields={a: x32[]})",
            "TensorDict(batch_size=[3], fields={a: [4]})",
            "TensorDict(batch_size=[3], fields={a: str})",
            "TensorDict(batch_size=[3], fields={a: f32[]",
            "TensorDict(batch_size=[3], fields={a: Sub{b: f32[]}})",
            "TensorDict(batch_size=[__import__('os').getcwd()], fields={a: f32[]})",
            "LazyStackedTensorDict(batch_size=[2], stack_dim=0, fields={a: f32[-1]})",
            "TensorDict(\n    fields={\n        a: Tensor(device=cpu)},\n    batch_size=torch.Size([3]))",
        ],
    )
    def test_unreadable(self, text):
        with pytest.raises(ValueError, match=r"(?i)cannot|not found"):
            parse_tensor_dict_string(text)

    def test_wrong_type(self):
        with pytest.raises(TypeError):
            parse_tensor_dict_string(3)

    def test_shape_against_batch_size(self):
        text = shown(TensorDict({"a": torch.ones(4)}, [4]), compact=False).replace(
            "batch_size=torch.Size([4])", "batch_size=torch.Size([3])"
        )
        with pytest.raises(RuntimeError):
            parse_tensor_dict_string(text)


def test_printing_does_not_touch_values():
    class Guarded(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            name = getattr(func, "__name__", "")
            assert name not in ("item", "tolist", "mean", "std", "min", "max", "__bool__"), name
            return super().__torch_function__(func, types, args, kwargs or {})

    td = TensorDict({"x": torch.full((2,), math.nan).as_subclass(Guarded)}, [2])
    assert "Guarded(shape=torch.Size([2])" in shown(td, show_grad=True, show_is_view=True, show_storage_size=True)


class TestHooks:
    """What later containers override, with the texts that the reference prints for such containers."""

    class LazyStackedTensorDict(TensorDict):
        __slots__ = ()

        _repr_names = ("stack_dim",)
        stack_dim = 0

    class M(TensorDict):
        __slots__ = ()
        _repr_sorts = False

    def test_subclass(self):
        inner = self.M({"z": torch.ones(2, 3, 4), "x": torch.ones(2, 3)}, [2, 3])
        assert repr(inner) == "M(batch_size=[2,3], fields={z: f32[4], x: f32[]})"
        assert repr(TensorDict({"l": inner}, [2])) == "TensorDict(batch_size=[2], fields={l: M[3]{z: f32[4], x: f32[]}})"
        assert f"l: {DIM}M[3] 2 entries</span>" in TensorDict({"l": inner}, [2])._repr_html_()

    def test_attributes(self):
        stack = self.LazyStackedTensorDict({"a": torch.ones(2, 3)}, [2])
        assert repr(stack) == "LazyStackedTensorDict(batch_size=[2], stack_dim=0, fields={a: f32[3]})"
        assert shown(stack, show_device=False, show_is_shared=False).endswith(
            "    batch_size=torch.Size([2]),\n    stack_dim=0)"
        )
        assert f"<b>LazyStackedTensorDict</b> {DIM}batch_size=[2], stack_dim=0</span>" in stack._repr_html_()
