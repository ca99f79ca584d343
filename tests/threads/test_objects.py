"""Threads that write objects into one mapped tensordict: the folder holds in the end what memory does."""

import threading

import torch

from tensordict import TensorDict


def together(*works):
    errors = []

    def run(work):
        try:
            work()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_rows_of_text(tmp_path):
    for number in range(4):
        mapped = torch.stack([TensorDict({"a": torch.zeros(2), "t": str(row)}) for row in range(16)]).memmap(
            tmp_path / str(number)
        )

        def write(first, mapped=mapped):
            for row in range(first, 16, 4):
                mapped[row] = TensorDict({"a": torch.full((2,), float(row)), "t": f"row {row}"})

        together(*[lambda first=first: write(first) for first in range(4)])
        found = TensorDict.load_memmap(tmp_path / str(number))
        assert list(found["t"]) == [f"row {row}" for row in range(16)]
        assert found["a"][:, 0].tolist() == list(range(16))


def test_one_object(tmp_path):
    for number in range(4):
        mapped = TensorDict({"s": "first", "n": {"s": "first"}}).memmap_(tmp_path / str(number))

        def write(who, mapped=mapped):
            for step in range(5):
                mapped.update_({"s": f"{who} {step}"})
                mapped["n"].update_({"s": f"{who} {step}"})

        together(*[lambda who=who: write(who) for who in range(4)])
        found = TensorDict.load_memmap(tmp_path / str(number))
        assert (found["s"], found["n", "s"]) == (mapped["s"], mapped["n", "s"])


def test_levels_that_are_made_by_several(tmp_path):
    for number in range(4):
        mapped = TensorDict({"a": torch.zeros(3)}, [3]).memmap_(tmp_path / str(number))

        def make(who, mapped=mapped):
            for step in range(4):
                mapped.make_memmap(("sub", f"{who} {step}"), (3,)).fill_(10 * who + step)

        together(*[lambda who=who: make(who) for who in range(4)])
        found = TensorDict.load_memmap(tmp_path / str(number))
        for tree in (mapped, found):
            assert {key: value.tolist() for key, value in tree["sub"].items()} == {
                f"{who} {step}": [10 * who + step] * 3 for who in range(4) for step in range(4)
            }
