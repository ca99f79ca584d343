import pytest
import torch

from tensordict import MemoryMappedTensor

OPERATIONS = {
    "add": lambda t: t + 1,
    "row": lambda t: t[0],
    "columns": lambda t: t[:, 1:] * 2,
    "gather": lambda t: t[torch.tensor([1, 0])],
    "view": lambda t: t.view(-1),
    "unbind": lambda t: t.unbind(0)[1],
    "split": lambda t: t.split(1)[1],
    "sum": lambda t: t.sum(),
    "clone": lambda t: t.clone(),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_mapped_input_compiles_to_one_graph(name, tmp_path):
    operation = OPERATIONS[name]
    rows = MemoryMappedTensor.from_tensor(torch.arange(6.0).view(2, 3), filename=tmp_path / "rows")
    torch._dynamo.reset()
    found = torch.compile(operation, fullgraph=True, backend="eager")(rows)
    expected = operation(rows)
    assert type(found) is type(expected)
    assert torch.equal(found.as_subclass(torch.Tensor), expected.as_subclass(torch.Tensor))


def test_an_in_place_operation_reaches_the_file(tmp_path):
    rows = MemoryMappedTensor.zeros(3, filename=tmp_path / "rows")
    torch._dynamo.reset()
    torch.compile(lambda t: t.add_(2), fullgraph=True, backend="eager")(rows)
    assert MemoryMappedTensor.from_filename(tmp_path / "rows", torch.float32, [3]).tolist() == [2, 2, 2]
