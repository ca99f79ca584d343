"""The rows of the table: each prepares, and yields the work with a tensordict and, where there is one, the plain way.

It runs in a process of its own: `python rows.py SECONDS [TEXT]` prints the seconds of each row as JSON.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Work = Callable[[], object]


def tree(function: Callable[..., Any], *trees: dict[str, Any]) -> dict[str, Any]:
    """The function over the leaves of nested dicts: what a tensordict saves its user from."""
    first, *rest = trees
    return {
        key: tree(function, value, *(other[key] for other in rest))
        if isinstance(value, dict)
        else function(value, *(other[key] for other in rest))
        for key, value in first.items()
    }


def nested(rows: int = 3) -> dict[str, Any]:
    """A hundred leaves in ten groups."""
    return {f"group{i}": {f"leaf{j}": torch.randn(rows, 4) for j in range(10)} for i in range(10)}


def flat(leaves: int = 10, rows: int = 3) -> dict[str, Any]:
    """Leaves on one level."""
    return {f"leaf{j}": torch.randn(rows, 4) for j in range(leaves)}


def construct() -> Iterator[Work]:
    source = nested()
    yield lambda: TensorDict(source, [3])
    yield lambda: tree(lambda leaf: leaf, source)


def get_nested() -> Iterator[Work]:
    source = nested()
    td = TensorDict(source, [3])
    yield lambda: td["group3", "leaf3"]
    yield lambda: source["group3"]["leaf3"]


def set_flat() -> Iterator[Work]:
    source, value = flat(), torch.randn(3, 4)
    td = TensorDict(source, [3])
    yield lambda: td.set("leaf3", value)
    yield lambda: source.__setitem__("leaf3", value)


def indexed(index: Callable[[], object]) -> Callable[[], Iterator[Work]]:
    """A row that indexes a hundred leaves."""

    def row() -> Iterator[Work]:
        source, at = nested(), index()
        td = TensorDict(source, [3])
        yield lambda: td[at]
        yield lambda: tree(lambda leaf: leaf[at], source)

    return row


def clone() -> Iterator[Work]:
    source = nested()
    td = TensorDict(source, [3])
    yield lambda: td.clone()
    yield lambda: tree(torch.clone, source)


def apply() -> Iterator[Work]:
    source = nested()
    td = TensorDict(source, [3])
    yield lambda: td.apply(torch.neg)
    yield lambda: tree(torch.neg, source)


def lerp_() -> Iterator[Work]:
    source, end = nested(), nested()
    td, other = TensorDict(source, [3]), TensorDict(end, [3])
    yield lambda: td.lerp_(other, 0.1)
    yield lambda: tree(lambda leaf, to: leaf.lerp_(to, 0.1), source, end)


def joined(name: str) -> Callable[[], Iterator[Work]]:
    """A row that joins a hundred tensordicts of ten leaves."""

    def row() -> Iterator[Work]:
        sources = [flat() for _ in range(100)]
        tds = [TensorDict(source, [3]) for source in sources]
        join = getattr(torch, name)
        yield lambda: getattr(TensorDict, name)(tds, 0)
        yield lambda: {key: join([source[key] for source in sources]) for key in sources[0]}

    return row


def to_module() -> Iterator[Work]:
    layer = torch.nn.TransformerEncoderLayer(16, 2, 16, batch_first=True)
    net = torch.nn.TransformerEncoder(layer, 12, enable_nested_tensor=False)
    params = TensorDict.from_module(net).detach().clone()

    def swap() -> None:
        with params.to_module(net):
            pass

    yield swap


def save() -> Iterator[Work]:
    source = flat(500, 64)
    td = TensorDict(source, [64])
    folder = Path(tempfile.mkdtemp(dir=TEMPORARY))
    yield lambda: td.save(folder / "td")
    yield lambda: torch.save(source, folder / "plain")


def load() -> Iterator[Work]:
    source = flat(500, 64)
    folder = Path(tempfile.mkdtemp(dir=TEMPORARY))
    TensorDict(source, [64]).save(folder / "td")
    torch.save(source, folder / "plain")
    yield lambda: TensorDict.load_memmap(folder / "td")
    yield lambda: torch.load(folder / "plain")


def consolidate() -> Iterator[Work]:
    source = {f"leaf{i}": torch.randn(256) for i in range(2000)}
    td = TensorDict(source)
    yield lambda: td.consolidate()


def read_rows() -> Iterator[Work]:
    source = flat(10, 20_000)
    index = torch.randint(20_000, (1024,))
    mapped = TensorDict(source, [20_000]).memmap(tempfile.mkdtemp(dir=TEMPORARY))
    yield lambda: mapped[index]
    yield lambda: tree(lambda leaf: leaf[index], source)


def lazily_stacked() -> tuple[Any, list[dict[str, Any]]]:
    """A lazy stack of a hundred tensordicts of ten leaves, and the dicts that they are of."""
    sources = [flat() for _ in range(100)]
    return tensordict.lazy_stack([TensorDict(source, [3]) for source in sources]), sources


def get_of_stack() -> Iterator[Work]:
    stack, sources = lazily_stacked()
    yield lambda: stack.get("leaf3")
    yield lambda: torch.stack([source["leaf3"] for source in sources])


def rows_of_stack() -> Iterator[Work]:
    stack, sources = lazily_stacked()
    index = torch.arange(0, 100, 2)
    yield lambda: stack[index]
    yield lambda: [sources[place] for place in index.tolist()]


def loop_over_stack() -> Iterator[Work]:
    stack, sources = lazily_stacked()
    yield lambda: [part["leaf3"] for part in stack]
    yield lambda: [source["leaf3"] for source in sources]


def tensorclass(work: Callable[[Any, Any], Work]) -> Callable[[], Iterator[Work]]:
    """A row that does the same with a tensorclass of four fields and, instead of plain dicts, with a tensordict."""

    def row() -> Iterator[Work]:
        def make_class(**fields: Any) -> Any:
            return Fields(**fields, batch_size=[3])

        def make_tensordict(**fields: Any) -> Any:
            return TensorDict(fields, batch_size=[3])

        for make, access in ((make_class, attributes), (make_tensordict, items)):
            yield work(make, access)

    class Fields(tensordict.TensorClass):
        a: torch.Tensor
        b: torch.Tensor
        c: torch.Tensor
        d: torch.Tensor

    attributes = (lambda node: node.c, lambda node, value: setattr(node, "c", value))
    items = (lambda node: node["c"], lambda node, value: node.__setitem__("c", value))
    return row


def four() -> dict[str, Any]:
    """Four leaves."""
    return {key: torch.randn(3, 4) for key in "abcd"}


def construct_class(make: Any, access: Any) -> Work:
    source = four()
    return lambda: make(**source)


def read_class(make: Any, access: Any) -> Work:
    node, (read, _) = make(**four()), access
    return lambda: read(node)


def write_class(make: Any, access: Any) -> Work:
    node, (_, write), value = make(**four()), access, torch.randn(3, 4)
    return lambda: write(node, value)


def samples() -> list[dict[str, Any]]:
    """256 samples of four leaves, of 10 to 60 steps."""
    return [{f"leaf{j}": torch.randn(10 + i % 51, 8) for j in range(4)} for i in range(256)]


def padded() -> Iterator[Work]:
    sources = samples()
    tds = [TensorDict(source, [len(source["leaf0"])]) for source in sources]
    pad = torch.nn.utils.rnn.pad_sequence
    yield lambda: tensordict.pad_sequence(tds)
    yield lambda: {key: pad([source[key] for source in sources], batch_first=True) for key in sources[0]}


def collated() -> Iterator[Work]:
    sources = samples()
    tds = [TensorDict(source) for source in sources]
    pad = torch.nn.utils.rnn.pad_sequence
    keys = dict.fromkeys(sources[0], 0.0)
    yield lambda: tensordict.collate(tds, pad_keys=keys)
    yield lambda: {key: pad([source[key] for source in sources], batch_first=True) for key in sources[0]}


ROWS: dict[str, Callable[[], Iterator[Work]]] = {
    "construct 100 leaves": construct,
    "get a nested leaf": get_nested,
    "set a leaf": set_flat,
    "td[0], 100 leaves": indexed(lambda: 0),
    "td[:2], 100 leaves": indexed(lambda: slice(2)),
    "td[index], 100 leaves": indexed(lambda: torch.tensor([2, 0])),
    "td[mask], 100 leaves": indexed(lambda: torch.tensor([True, False, True])),
    "clone, 100 leaves": clone,
    "apply, 100 leaves": apply,
    "lerp_, 100 leaves": lerp_,
    "stack 100 x 10 leaves": joined("stack"),
    "cat 100 x 10 leaves": joined("cat"),
    "to_module, 144 parameters": to_module,
    "save 500 leaves": save,
    "load 500 leaves": load,
    "consolidate 2,000 leaves": consolidate,
    "1,024 rows of 10 mapped leaves": read_rows,
    "lazy stack of 100, get": get_of_stack,
    "lazy stack of 100, td[index]": rows_of_stack,
    "lazy stack of 100, loop": loop_over_stack,
    "construct a tensorclass (*)": lambda: tensorclass(construct_class)(),
    "read a field (*)": lambda: tensorclass(read_class)(),
    "assign a field (*)": lambda: tensorclass(write_class)(),
    "pad_sequence, 256 x 4 leaves": padded,
    "collate with padding, 256 x 4": collated,
}


def seconds(work: Work, budget: float) -> float:
    """Seconds of one call: the best of five rounds that share the budget."""
    work()
    start = time.perf_counter()
    work()
    calls = max(1, int(budget / 5 / max(time.perf_counter() - start, 1e-7)))
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(calls):
            work()
        best = min(best, (time.perf_counter() - start) / calls)
    return best


def measure(budget: float, text: str) -> dict[str, list[float]]:
    """The seconds of each row: with a tensordict, and the plain way."""
    torch.set_num_threads(1)
    return {name: [seconds(work, budget) for work in prepare()] for name, prepare in ROWS.items() if text in name}


if __name__ == "__main__":
    # Here and not above: what the import costs is a row too.
    import torch

    start = time.perf_counter()
    import tensordict
    from tensordict import TensorDict

    imported = time.perf_counter() - start
    with tempfile.TemporaryDirectory() as TEMPORARY:
        times = measure(float(sys.argv[1]), sys.argv[2])
    print(json.dumps({"import, after torch": [imported], **times}))
