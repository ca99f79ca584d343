import copy
import io
import os
import pickle
import signal
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.multiprocessing as mp
from torch import Tensor

from tensordict import MemoryMappedTensor, TensorDict
from tensordict._kernel.copies import copy_whole
from tensordict._kernel.native import map_anonymous, map_create, map_open

DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint16,
    torch.uint32,
    torch.uint64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.complex64,
    torch.complex128,
]
SHAPES = [(), (5,), (2, 3), (2, 0, 3), (0,), (2, 1, 3, 2)]


def same(left: Tensor, right: Tensor) -> bool:
    """Equal in dtype, shape and bytes."""
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    return left.contiguous().view(-1).view(torch.uint8).equal(right.contiguous().view(-1).view(torch.uint8))


def sample(shape, dtype):
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 2, shape, generator=generator).to(dtype)


@pytest.fixture(params=["file", "anonymous"])
def mapped(request, tmp_path):
    filename = tmp_path / "rows" if request.param == "file" else None
    return MemoryMappedTensor.from_tensor(torch.arange(24.0).view(4, 3, 2), filename=filename)


class TestMake:
    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    @pytest.mark.parametrize("shape", SHAPES, ids=str)
    @pytest.mark.parametrize("with_file", [True, False])
    def test_every_dtype_and_shape(self, tmp_path, dtype, shape, with_file):
        source = sample(shape, dtype)
        filename = tmp_path / "leaf" if with_file else None
        made = MemoryMappedTensor.from_tensor(source, filename=filename)
        assert type(made) is MemoryMappedTensor
        assert same(made, source)
        assert made.is_shared()
        if with_file:
            assert filename.stat().st_size == source.nbytes
            assert same(MemoryMappedTensor.from_filename(filename, dtype, shape), source)
            assert np.array_equal(np.fromfile(filename, np.uint8), source.contiguous().view(-1).view(torch.uint8).numpy())

    @pytest.mark.parametrize("name", ["empty", "zeros", "ones"])
    def test_constructors_take_shapes_in_all_forms(self, name, tmp_path):
        make = getattr(MemoryMappedTensor, name)
        expected = torch.ones(2, 3) if name == "ones" else torch.zeros(2, 3)
        for made in (make(2, 3), make((2, 3)), make([2, 3]), make(torch.Size([2, 3])), make(shape=(2, 3))):
            assert same(made, expected)
        assert make(2, dtype=torch.int8, device="cpu", filename=tmp_path / "a").dtype is torch.int8
        with pytest.raises(RuntimeError, match="already exists"):
            make(2, filename=tmp_path / "a")
        assert make(3, filename=tmp_path / "a", existsok=True).shape == (3,)
        with pytest.raises(TypeError):
            make()
        with pytest.raises(RuntimeError, match="CPU"):
            make(2, device="meta")
        with pytest.raises(RuntimeError, match="negative"):
            make(-1)

    def test_full(self):
        assert same(MemoryMappedTensor.full((2,), 3), torch.full((2,), 3.0))
        assert same(MemoryMappedTensor.full(2, 1, fill_value=3), torch.full((2, 1), 3.0))
        assert same(MemoryMappedTensor.full(shape=(), fill_value=3, dtype=torch.uint8), torch.tensor(3, dtype=torch.uint8))
        with pytest.raises(TypeError):
            MemoryMappedTensor.full((2,))
        with pytest.raises(TypeError):
            MemoryMappedTensor.full(2, 3)

    def test_likes(self, tmp_path):
        source = torch.arange(6).view(2, 3).t()
        assert same(MemoryMappedTensor.empty_like(source), torch.zeros(3, 2, dtype=torch.int64))
        assert same(MemoryMappedTensor.zeros_like(source), torch.zeros(3, 2, dtype=torch.int64))
        assert same(MemoryMappedTensor.ones_like(source), torch.ones(3, 2, dtype=torch.int64))
        made = MemoryMappedTensor.full_like(source, 7, filename=tmp_path / "a")
        assert same(made, torch.full((3, 2), 7))
        assert made.stride() == (2, 1)
        with pytest.raises(RuntimeError, match="already exists"):
            MemoryMappedTensor.zeros_like(source, filename=tmp_path / "a")
        assert MemoryMappedTensor.zeros_like(torch.ones(2, requires_grad=True)).requires_grad is False
        assert MemoryMappedTensor.ones_like(torch.ones(2, device="meta")).device.type == "cpu"

    def test_constructor(self, tmp_path):
        source = torch.ones(3)
        assert MemoryMappedTensor(source).data_ptr() == source.data_ptr()
        assert same(MemoryMappedTensor([1, 2]), torch.tensor([1.0, 2.0]))
        assert same(MemoryMappedTensor(source, index=0), torch.tensor(1.0))
        assert same(MemoryMappedTensor(source, shape=[1, 3], dtype=torch.int32), torch.ones(1, 3, dtype=torch.int32))
        written = MemoryMappedTensor(source, filename=tmp_path / "a")
        assert written.filename == str(tmp_path / "a")
        again = MemoryMappedTensor(written)
        assert again.filename == written.filename
        assert same(MemoryMappedTensor(written.untyped_storage(), dtype=torch.float32, shape=(3,)), source)
        with pytest.raises(ValueError, match="CPU"):
            MemoryMappedTensor([1], device="meta")

    def test_names_are_absolute(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        made = MemoryMappedTensor.from_tensor(torch.ones(2), filename="leaf")
        assert made.filename == str(tmp_path / "leaf")
        assert MemoryMappedTensor.from_filename(Path("leaf"), torch.float32, [2]).filename == made.filename
        assert MemoryMappedTensor.from_tensor(made, filename="leaf") is made

    def test_from_map_is_what_from_filename_makes(self, tmp_path):
        path = str(tmp_path / "leaf")
        for shape in SHAPES:
            map_create(path, 2 * torch.Size(shape).numel(), True)
            memory = map_open(path, 2 * torch.Size(shape).numel(), "r+")
            made = MemoryMappedTensor._from_map(memory, torch.bfloat16, shape, path)
            assert same(made, torch.zeros(shape, dtype=torch.bfloat16))
            assert made.is_leaf
            assert made.is_contiguous()
            assert made.filename == made.untyped_storage().filename == path


class TestFromTensor:
    def test_what_is_in_place_is_kept(self, tmp_path):
        anonymous = MemoryMappedTensor.zeros(3)
        assert MemoryMappedTensor.from_tensor(anonymous) is anonymous
        view = anonymous[:2]
        assert MemoryMappedTensor.from_tensor(view) is view
        filed = MemoryMappedTensor.from_tensor(anonymous, filename=tmp_path / "a")
        assert MemoryMappedTensor.from_tensor(filed, filename=tmp_path / "a") is filed
        copied = MemoryMappedTensor.from_tensor(filed)
        assert copied._filename is None
        assert copied.data_ptr() != filed.data_ptr()

    def test_another_file_is_asked_for_explicitly(self, tmp_path):
        filed = MemoryMappedTensor.from_tensor(torch.arange(3), filename=tmp_path / "a")
        with pytest.raises(RuntimeError, match="copy_existing"):
            MemoryMappedTensor.from_tensor(filed, filename=tmp_path / "b")
        assert not (tmp_path / "b").exists()
        copied = MemoryMappedTensor.from_tensor(filed, filename=tmp_path / "b", copy_existing=True)
        assert same(copied, torch.arange(3))
        copied.fill_(5)
        assert same(filed, torch.arange(3))

    def test_existing_files(self, tmp_path):
        first = MemoryMappedTensor.from_tensor(torch.ones(3), filename=tmp_path / "a")
        with pytest.raises(RuntimeError, match="already exists"):
            MemoryMappedTensor.from_tensor(torch.zeros(4), filename=tmp_path / "a")
        second = MemoryMappedTensor.from_tensor(torch.zeros(4), filename=tmp_path / "a", existsok=True)
        assert same(second, torch.zeros(4))
        assert same(first, torch.ones(3))
        assert [path.name for path in tmp_path.iterdir()] == ["a"]

    def test_a_link_is_not_written_through(self, tmp_path):
        (tmp_path / "target").write_bytes(b"unchanged")
        (tmp_path / "link").symlink_to(tmp_path / "target")
        with pytest.raises(RuntimeError, match="through symlink"):
            MemoryMappedTensor.from_tensor(torch.zeros(()), filename=tmp_path / "link", existsok=True)
        assert (tmp_path / "target").read_bytes() == b"unchanged"

    def test_shapes(self):
        assert same(MemoryMappedTensor.from_tensor(torch.ones(1), shape=[2, 3]), torch.ones(2, 3))
        assert same(MemoryMappedTensor.from_tensor(torch.ones(3), shape=[4], copy_data=False), torch.zeros(4))
        expanded = MemoryMappedTensor.from_tensor(torch.ones(1).expand(4))
        assert same(expanded, torch.ones(4))
        assert expanded.stride() == (1,)
        assert same(MemoryMappedTensor.from_tensor(torch.tensor([1j]).conj()), torch.tensor([complex(0, -1)]))

    @pytest.mark.parametrize(
        ("source", "error"),
        [
            (torch.ones(3, requires_grad=True), RuntimeError),
            (torch.ones(3, device="meta"), NotImplementedError),
            (torch.ones(3).to_sparse(), RuntimeError),
            (torch.nested.nested_tensor([torch.ones(2)], layout=torch.jagged), NotImplementedError),
            ([1, 2], AttributeError),
        ],
    )
    def test_what_cannot_be_mapped_makes_no_file(self, tmp_path, source, error):
        with pytest.raises(error):
            MemoryMappedTensor.from_tensor(source, filename=tmp_path / "a")
        with pytest.raises(RuntimeError):
            MemoryMappedTensor.from_tensor(torch.ones(3), shape=[4], filename=tmp_path / "a")
        assert list(tmp_path.iterdir()) == []


class TestFromFilename:
    def test_two_maps_are_one_memory(self, tmp_path):
        first = MemoryMappedTensor.zeros(3, filename=tmp_path / "a")
        second = MemoryMappedTensor.from_filename(tmp_path / "a", torch.float32, [3])
        second[1] = 5
        assert same(first, torch.tensor([0.0, 5.0, 0.0]))

    def test_a_read_only_map_keeps_what_is_written(self, tmp_path):
        first = MemoryMappedTensor.zeros(3, filename=tmp_path / "a")
        second = MemoryMappedTensor.from_filename(tmp_path / "a", torch.float32, [3], mode="r")
        first[0] = 1
        assert same(second, first)
        second.fill_(9)
        assert same(second, torch.full((3,), 9.0))
        assert same(first, torch.tensor([1.0, 0.0, 0.0]))
        assert same(pickle.loads(pickle.dumps(second)), first)

    def test_a_file_without_permission_is_read(self, tmp_path, monkeypatch):
        MemoryMappedTensor.ones(3, filename=tmp_path / "a")
        # The superuser may write every file.
        monkeypatch.setattr(sys.modules["tensordict.memmap"], "_is_writable", lambda path: False)
        made = MemoryMappedTensor.from_filename(tmp_path / "a", torch.float32, [3])
        made.fill_(2)
        assert np.fromfile(tmp_path / "a", np.float32).tolist() == [1, 1, 1]

    def test_part_index_and_mode(self, tmp_path):
        MemoryMappedTensor.from_tensor(torch.arange(6), filename=tmp_path / "a")
        assert same(MemoryMappedTensor.from_filename(tmp_path / "a", torch.int64, [2]), torch.arange(2))
        part = MemoryMappedTensor.from_filename(tmp_path / "a", torch.int64, [2, 3], index=(0, slice(1, None)))
        assert same(part, torch.tensor([1, 2]))
        assert part.filename == str(tmp_path / "a")
        with pytest.raises(ValueError, match="mode must be"):
            MemoryMappedTensor.from_filename(tmp_path / "a", torch.int64, [2], mode="w")

    def test_no_bytes_need_no_file(self, tmp_path):
        made = MemoryMappedTensor.from_filename(tmp_path / "none", torch.int64, [2, 0])
        assert same(made, torch.zeros(2, 0, dtype=torch.int64))


class TestFromStorage:
    def test_of_a_mapped_tensor(self, tmp_path):
        filed = MemoryMappedTensor.from_tensor(torch.arange(6), filename=tmp_path / "a")
        made = MemoryMappedTensor.from_storage(filed.untyped_storage(), shape=[2, 3], dtype=torch.int64)
        assert made.filename == filed.filename
        made[1, 2] = 9
        assert filed[5] == 9
        assert same(pickle.loads(pickle.dumps(made)), made)
        with pytest.raises(RuntimeError, match="mapped from"):
            MemoryMappedTensor.from_storage(filed.untyped_storage(), dtype=torch.int64, filename=tmp_path / "b")
        for shape in ([5], [7]):
            with pytest.raises(RuntimeError):
                MemoryMappedTensor.from_storage(filed.untyped_storage(), shape=shape, dtype=torch.int64)
        with pytest.raises(ValueError, match="CPU"):
            MemoryMappedTensor.from_storage(filed.untyped_storage(), device="meta")

    def test_of_a_plain_tensor(self):
        source = torch.ones(3)
        made = MemoryMappedTensor.from_storage(source.untyped_storage())
        made[0] = 4
        assert source[0] == 4
        assert made.is_shared() is False
        assert same(pickle.loads(pickle.dumps(made)), source)
        assert same(MemoryMappedTensor.from_storage(source.untyped_storage(), index=0), torch.tensor(4.0))


class TestHandlers:
    def test_two_tensors_on_one_memory(self):
        first = MemoryMappedTensor.zeros(2, 3)
        second = MemoryMappedTensor._from_handler(first._handler, torch.float32, [6], slice(3, None))
        second.fill_(1)
        assert same(first, torch.tensor([[0.0] * 3, [1.0] * 3]))
        for shape in ([5], [7]):
            with pytest.raises(RuntimeError, match="bytes"):
                MemoryMappedTensor._from_handler(first._handler, torch.float32, shape)

    def test_deprecated_names_warn(self, tmp_path):
        made = MemoryMappedTensor.zeros(2, 3)
        with pytest.warns(DeprecationWarning, match="is deprecated"):
            assert same(MemoryMappedTensor.from_handler(made._handler, torch.float32, [2, 3]), made)
        with pytest.warns(DeprecationWarning, match="is deprecated"):
            assert made[1:].index == slice(1, None)
        with pytest.warns(DeprecationWarning, match="is deprecated"):
            assert made[1:][0].parent_shape == (2, 3)

    def test_descriptors_are_closed(self):
        before = len(os.listdir("/proc/self/fd"))
        made = [MemoryMappedTensor.zeros(10) for _ in range(20)]
        views = [tensor.view(-1)[1:] for tensor in made]
        assert len(os.listdir("/proc/self/fd")) > before
        del made, views
        assert len(os.listdir("/proc/self/fd")) == before

    def test_without_a_file_there_is_no_name(self):
        with pytest.raises(RuntimeError, match="no file"):
            MemoryMappedTensor.zeros(1).filename  # noqa: B018

    @pytest.mark.parametrize("make", [lambda: MemoryMappedTensor.zeros(1), lambda: copy.deepcopy(MemoryMappedTensor.zeros(1))])
    def test_without_a_file_the_name_is_missing(self, make):
        made = make()
        assert not hasattr(made, "filename")
        assert getattr(made, "filename", None) is None


VIEWS = {
    "int": lambda t: t[0],
    "last": lambda t: t[-1],
    "slice": lambda t: t[1:3],
    "step": lambda t: t[::2],
    "ellipsis": lambda t: t[...],
    "none": lambda t: t[None],
    "tuple": lambda t: t[0, 1],
    "columns": lambda t: t[..., 0],
    "empty tuple": lambda t: t[()],
    "no rows": lambda t: t[4:],
    "twice": lambda t: t[1:][0],
    "thrice": lambda t: t[1:, None][..., 1][2, 0],
    "step twice": lambda t: t[::2][1:],
    "scalar tensor": lambda t: t[torch.tensor(1)],
    "numpy": lambda t: t[1:][np.int64(1)],
    "unbind": lambda t: t.unbind(0)[1],
    "unbind last": lambda t: t.unbind(-1)[1],
    "split": lambda t: t.split(3)[1],
    "split list": lambda t: t.split([1, 2], 1)[1],
    "chunk": lambda t: t.chunk(2, -2)[1],
    "torch.split": lambda t: torch.split(t, 2)[0],
    "iteration": lambda t: list(t)[2],
}
COPIES = {
    "list": lambda t: t[[0, 1]],
    "tensor": lambda t: t[torch.tensor([0, 1])],
    "mask": lambda t: t[torch.ones(4, dtype=torch.bool)],
    "true": lambda t: t[True],
    "mixed": lambda t: t[0, torch.tensor([0, 1])],
    "numpy": lambda t: t[np.array([0, 1])],
    "add": lambda t: t + 1,
    "reversed add": lambda t: 1 + t,
    "compare": lambda t: t == t,
    "stack": lambda t: torch.stack([t, t]),
    "cat": lambda t: torch.cat([t, t]),
    "clone": lambda t: t.clone(),
    "double": lambda t: t.double(),
    "zeros_like": lambda t: torch.zeros_like(t),
    "vmap": lambda t: torch.vmap(lambda x: x + 1)(t),
}
# Views of the memory, but plain tensors.
PLAIN_VIEWS = {
    "view": lambda t: t.view(-1),
    "reshape": lambda t: t.reshape(-1),
    "transpose": lambda t: t.transpose(0, 1),
    "unsqueeze": lambda t: t.unsqueeze(0),
    "narrow": lambda t: t.narrow(0, 1, 2),
    "torch.unbind": lambda t: torch.unbind(t)[1],
    "torch.chunk": lambda t: torch.chunk(t, 2)[1],
    "detach": lambda t: t.detach(),
    "data": lambda t: t.data,
}
SELF = {
    "contiguous": lambda t: t.contiguous(),
    "to": lambda t: t.to("cpu"),
    "float": lambda t: t.float(),
    "fill": lambda t: t.fill_(1),
    "add": lambda t: t.add_(1),
    "share": lambda t: t.share_memory_(),
    "out": lambda t: torch.stack([torch.ones(3, 2)] * 4, out=t),
    "cat out": lambda t: torch.cat([torch.ones(4, 3, 2)], out=t),
}


class TestOperations:
    @pytest.mark.parametrize("name", VIEWS)
    def test_views_stay_mapped(self, mapped, name):
        take = VIEWS[name]
        view = take(mapped)
        plain = mapped.clone()
        assert type(view) is MemoryMappedTensor
        assert same(view, take(plain))
        assert (view._filename, view._handler) == (mapped._filename, mapped._handler)
        assert view.is_shared()
        view.fill_(-1)
        take(plain).fill_(-1)
        assert same(mapped, plain)

    @pytest.mark.parametrize("name", VIEWS)
    def test_pickled_views_are_the_same_view(self, tmp_path, name):
        filed = MemoryMappedTensor.from_tensor(torch.arange(24.0).view(4, 3, 2), filename=tmp_path / "rows")
        view = VIEWS[name](filed)
        content = pickle.dumps(view)
        loaded = pickle.loads(content)
        assert type(loaded) is MemoryMappedTensor
        assert same(loaded, view)
        loaded.fill_(-3)
        expected = torch.arange(24.0).view(4, 3, 2)
        VIEWS[name](expected).fill_(-3)
        assert same(filed, expected)

    @pytest.mark.parametrize("name", COPIES)
    def test_copies_are_plain(self, mapped, name):
        copied = COPIES[name](mapped)
        assert type(copied) is Tensor
        assert copied.equal(COPIES[name](mapped.clone()))
        assert copied.is_shared() is False
        assert copied.untyped_storage().data_ptr() != mapped.untyped_storage().data_ptr()

    @pytest.mark.parametrize("name", PLAIN_VIEWS)
    def test_other_views_are_plain_and_on_the_memory(self, mapped, name):
        view = PLAIN_VIEWS[name](mapped)
        assert type(view) is Tensor
        assert view.is_shared()
        view.zero_()
        assert PLAIN_VIEWS[name](mapped).count_nonzero() == 0
        assert pickle.loads(pickle.dumps(view)).equal(view)
        assert copy.deepcopy(view).is_shared() is False

    @pytest.mark.parametrize("name", SELF)
    def test_in_place_operations_return_the_tensor(self, mapped, name):
        assert SELF[name](mapped) is mapped

    def test_gradients_flow_through_views(self, mapped):
        mapped.requires_grad_()
        mapped[1:][0, 1].sum().backward()
        assert type(mapped.grad) is Tensor
        assert mapped.grad.sum() == 2

    def test_repr(self):
        assert repr(MemoryMappedTensor.zeros(2, 1)) == "MemoryMappedTensor([[0.],\n                    [0.]])"

    def test_bad_dims(self, mapped):
        for name in ("unbind", "split", "chunk"):
            arguments = (3,) if name == "unbind" else (1, 3)
            with pytest.raises(IndexError):
                getattr(mapped, name)(*arguments)

    def test_no_parameter_is_made_of_it(self, mapped):
        with pytest.raises(RuntimeError):
            torch.nn.Parameter(mapped)


# torch says once that nested tensors are a prototype.
@pytest.mark.filterwarnings("ignore:.*nested tensors is in prototype")
class TestNested:
    sizes = torch.tensor([[2, 3], [2, 4], [3, 2]])

    def parts(self):
        return [torch.rand(size.tolist()) for size in self.sizes]

    @pytest.mark.parametrize("with_file", [True, False])
    def test_round_trip(self, tmp_path, with_file):
        parts = self.parts()
        source = torch.nested.nested_tensor(parts)
        made = MemoryMappedTensor.from_tensor(source, filename=tmp_path / "a" if with_file else None)
        assert type(made) is MemoryMappedTensor
        for part, expected in zip(made.unbind(), parts, strict=True):
            assert type(part) is MemoryMappedTensor
            assert same(part, expected)
        if with_file:
            loaded = pickle.loads(pickle.dumps(made))
            loaded[1].fill_(3)
            assert same(made[1], torch.full((2, 4), 3.0))
            assert same(pickle.loads(pickle.dumps(made[1])), made[1])
            assert same(pickle.loads(pickle.dumps(made[1][0])), made[1][0])
        assert same(copy.deepcopy(made)[2], made[2])

    def test_from_sizes(self):
        made = MemoryMappedTensor.ones(self.sizes, dtype=torch.int32)
        assert same(made[2], torch.ones(3, 2, dtype=torch.int32))
        flat = MemoryMappedTensor.from_tensor(torch.arange(10.0))
        nested = MemoryMappedTensor.from_storage(flat.untyped_storage(), shape=torch.tensor([[2, 2], [2, 3]]))
        assert same(nested[1], torch.arange(4.0, 10).view(2, 3))


class TestCopies:
    def test_pickles_hold_the_name(self, tmp_path):
        filed = MemoryMappedTensor.zeros(1000, filename=tmp_path / "a")
        content = pickle.dumps(filed)
        assert len(content) < 400
        loaded = pickle.loads(content)
        loaded[3] = 1
        assert filed[3] == 1
        os.remove(tmp_path / "a")
        with pytest.raises(FileNotFoundError):
            pickle.loads(content)
        assert not (tmp_path / "a").exists()

    def test_anonymous_memory_is_pickled_by_value(self):
        made = MemoryMappedTensor.from_tensor(torch.arange(6).view(2, 3))
        first, second = pickle.loads(pickle.dumps((made, made[1])))
        assert same(first, made)
        first[1] = 0
        assert same(second, torch.zeros(3, dtype=torch.int64))
        assert same(made[1], torch.tensor([3, 4, 5]))

    def test_torch_save(self, mapped):
        buffer = io.BytesIO()
        torch.save({"mapped": mapped, "plain": mapped.view(-1)}, buffer)
        buffer.seek(0)
        loaded = torch.load(buffer, weights_only=False)
        assert type(loaded["mapped"]) is MemoryMappedTensor
        assert same(loaded["mapped"], mapped)
        assert loaded["plain"].equal(mapped.view(-1))

    def test_copy_and_deepcopy(self, mapped):
        shared = copy.copy(mapped)
        shared[0] = -1
        assert same(mapped, shared)
        memo = {}
        deep = copy.deepcopy([mapped, mapped], memo)
        assert deep[0] is deep[1]
        assert type(deep[0]) is MemoryMappedTensor
        deep[0].zero_()
        assert same(mapped, shared)


def answer(received, sent):
    """Adds one to what comes in, in place, until `None` comes."""
    for tensor in iter(received.get, None):
        tensor += 1
        sent.put((type(tensor).__name__, tensor.is_shared()))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_other_processes_get_the_same_memory(tmp_path, method):
    context = mp.get_context(method)
    to_child, from_child = context.Queue(), context.Queue()
    child = context.Process(target=answer, args=(to_child, from_child))
    child.start()
    try:
        for filename in (tmp_path / "a", None):
            made = MemoryMappedTensor.from_tensor(torch.zeros(4, 3), filename=filename)
            expected = torch.zeros(4, 3)
            takes = [lambda t: t, lambda t: t[1:][:, 1], lambda t: t.view(-1)[2:5], lambda t: t.t()[0]]
            for take in takes:
                name = type(take(made)).__name__
                to_child.put(take(made))
                assert from_child.get(timeout=60) == (name, True)
                take(expected).add_(1)
                assert same(made, expected)
    finally:
        to_child.put(None)
        child.join(60)
    assert child.exitcode == 0


def fill(tensor, plain):
    tensor.fill_(1)
    plain[0] = 2


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_arguments_of_a_process_are_the_same_memory(tmp_path, method):
    for filename in (tmp_path / "a", None):
        made = MemoryMappedTensor.from_tensor(torch.zeros(4), filename=filename)
        child = mp.get_context(method).Process(target=fill, args=(made, made.view(2, 2)))
        child.start()
        child.join(60)
        assert child.exitcode == 0
        assert made.tolist() == [2, 2, 1, 1]


class Rows(torch.utils.data.Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index], self.rows[index].unsqueeze(0)


def test_workers_of_a_loader_send_rows(tmp_path):
    rows = MemoryMappedTensor.from_tensor(torch.arange(12.0).view(6, 2), filename=tmp_path / "a")
    loader = torch.utils.data.DataLoader(Rows(rows), batch_size=None, num_workers=1)
    for at, (row, plain) in enumerate(loader):
        assert row.filename == rows.filename
        assert same(row, rows[at])
        assert plain.equal(rows[at].unsqueeze(0))


def test_threads_make_and_index(tmp_path):
    made = MemoryMappedTensor.from_tensor(torch.arange(64).view(64, 1).expand(64, 8), filename=tmp_path / "a")
    failures = []

    def work():
        for at in range(64):
            own = MemoryMappedTensor.from_filename(tmp_path / "a", torch.int64, [64, 8])
            if not (own[at] == at).all() or not made[at].equal(own[at]):
                failures.append(at)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_memory_without_a_file_is_taken_as_it_is_written():
    """Much is asked for and one byte written, so one page is taken; who gets the descriptor cannot cut the memory off."""
    memory, descriptor = map_anonymous(256 << 20)
    tensor = torch.frombuffer(memory, dtype=torch.uint8)
    tensor[5] = 1
    assert tensor[5] == 1
    assert tensor[1 << 27] == 0
    # A page may be a large one.
    assert 0 < os.fstat(descriptor.fileno()).st_blocks * 512 <= 4 << 20
    with pytest.raises(PermissionError):
        os.ftruncate(descriptor.fileno(), 1)


QUANTIZED = [torch.qint8, torch.quint8, torch.qint32]


@pytest.mark.parametrize("dtype", QUANTIZED)
def test_quantized_tensors_have_no_place(dtype, tmp_path):
    """Their scales would be lost, and torch ends the process where it reads values without them."""
    for make in (MemoryMappedTensor.empty, MemoryMappedTensor.ones):
        for where in (None, tmp_path / "file"):
            with pytest.raises(NotImplementedError, match="scales"):
                make((3,), dtype=dtype, filename=where)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        td = TensorDict({"n": {"q": torch.quantize_per_tensor(torch.ones(3), 0.1, 0, dtype)}}, [3])
    for call in (td.memmap, td.memmap_like):
        with pytest.raises(ValueError, match=f'"q".*{dtype}'):
            call(tmp_path / "set")
    assert not list(tmp_path.iterdir())
    mapped = TensorDict({"a": torch.zeros(3)}, [3]).memmap_(tmp_path / "set")
    with pytest.raises(ValueError, match=f'"q".*{dtype}'):
        mapped.make_memmap("q", (3,), dtype=dtype)
    assert list(TensorDict.load_memmap(tmp_path / "set").keys()) == ["a"]
    meta = tmp_path / "set" / "meta.json"
    meta.write_text(meta.read_text().replace("torch.float32", str(dtype)))
    with pytest.raises(ValueError, match=str(dtype)):
        TensorDict.load_memmap(tmp_path / "set")


KILLED = """
import os, sys, torch
from tensordict import MemoryMappedTensor, TensorDict
class Fatal(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function is torch.Tensor.copy_:
            args[0][:10] = 2
            os.kill(os.getpid(), 9)
        return super().__torch_function__(function, types, args, kwargs or {})
MemoryMappedTensor.from_tensor(torch.full((1000,), 2.0).as_subclass(Fatal), filename=sys.argv[1], existsok=True)
"""


def test_a_file_is_replaced_by_its_content(tmp_path):
    """Whoever opens the file, also after a kill in the middle, finds the old content or the new one."""
    file = tmp_path / "file"
    old = MemoryMappedTensor.ones((1000,), filename=file)
    killed = subprocess.run([sys.executable, "-c", KILLED, str(file)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert (MemoryMappedTensor.from_filename(file, torch.float32, (1000,)) == 1).all()
    assert [found.name for found in tmp_path.iterdir()] == ["file"]
    new = MemoryMappedTensor.from_tensor(torch.full((1000,), 2.0), filename=file, existsok=True)
    assert (new == 2).all()
    assert (old == 1).all()
    assert new.filename == str(file)
    new[0] = 3
    assert MemoryMappedTensor.from_filename(file, torch.float32, (1000,))[0] == 3
    with pytest.raises(RuntimeError, match="exists"):
        MemoryMappedTensor.from_tensor(torch.zeros(3), filename=file)


class TestMemoryThatMoves:
    """The target of a copy stands in for a thread that exchanges the memory of the source meanwhile."""

    class Target:
        def __init__(self, moves: int) -> None:
            self.moves = moves
            self.copies = 0

        def copy_(self, source: torch.Tensor) -> None:
            self.copies += 1
            if self.copies <= self.moves:
                source.set_(source.clone())

    def test_the_copy_is_made_again(self) -> None:
        target = self.Target(2)
        copy_whole(target, torch.ones(3))  # type: ignore[arg-type]
        assert target.copies == 3

    def test_it_is_not_made_for_ever(self) -> None:
        with pytest.raises(RuntimeError, match="exchanged by another thread"):
            copy_whole(self.Target(1 << 30), torch.ones(3))  # type: ignore[arg-type]
