"""Operations on jagged leaves in compiled code, in one graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tensordict import TensorDict

MASK = torch.tensor([True, False])


@pytest.mark.parametrize("function", [
    lambda td: td + 1, lambda td: td * MASK, lambda td: td + td, lambda td: td.cos(), lambda td: td > 2,
])  # fmt: skip
def test_one_graph(function: Callable[[Any], Any]) -> None:
    leaf = torch.nested.nested_tensor_from_jagged(torch.arange(20.0).view(5, 4), torch.tensor([0, 2, 5]))
    td = TensorDict({"a": leaf, "b": torch.ones(2)}, [2])
    torch._dynamo.reset()
    found, wanted = torch.compile(function, fullgraph=True, backend="eager")(td), function(td)
    for one, two in zip(found["a"].unbind(), wanted["a"].unbind(), strict=True):
        assert torch.equal(one, two)
