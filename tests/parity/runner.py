"""Runs the programs beside it on whichever `tensordict` is importable and writes down what they gave.

    python runner.py OUT.json [PACKAGE_FOLDER]

A program is a file of `programs/` with `SETUP`, a text that makes the inputs, and `CASES`, texts that use them. Each
case starts from a fresh `SETUP`. Written down are the value of its last expression, what it printed, the class of what
it raised, and the inputs afterwards; of a tensor its values, dtype, shape and which input's memory it uses; of a
tensordict its fields in order, batch size, names, device and lock.
"""

import ast
import contextlib
import importlib.util
import io
import json
import sys
import types
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch

import tensordict

PROGRAMS = Path(__file__).parent / "programs"


def load(path):
    """The module of a program file."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def is_node(value):
    return tensordict.is_tensor_collection(value) and not isinstance(value, type)


def entries(node):
    """The entries of a node; of a lazy stack its members, by their numbers."""
    members = getattr(node, "tensordicts", None)
    return node.items() if members is None else enumerate(members)


def storage(tensor):
    """Where the memory of a tensor is; None for one without memory of its own."""
    try:
        return tensor.untyped_storage().data_ptr() or None
    except (NotImplementedError, RuntimeError):
        return None


class Inputs:
    """The tensors and tensordicts of the inputs by name, to recognise them in a result."""

    def __init__(self, names):
        self.nodes = []
        self.tensors = []
        for name, value in names.items():
            self.add(name, value)

    def add(self, name, value):
        if is_node(value):
            self.nodes.append((name, value))
            for key, inner in entries(value):
                self.add(f"{name}.{key}", inner)
        elif isinstance(value, torch.Tensor):
            self.tensors.append((name, value, storage(value)))

    def same_node(self, node):
        return [name for name, value in self.nodes if value is node]

    def same_memory(self, tensor):
        """Names of the inputs in the same memory, with the distance in bytes."""
        at = storage(tensor)
        if at is None:
            return []
        sharing = [(name, value) for name, value, base in self.tensors if base == at]
        # An empty tensor has no address.
        return [[name, tensor.data_ptr() - value.data_ptr() if tensor.numel() else 0] for name, value in sharing]


class Dump:
    """Values as JSON."""

    def __init__(self, inputs):
        self.inputs = inputs

    def __call__(self, value):
        if is_node(value):
            return self.node(value)
        if isinstance(value, torch.Tensor):
            return self.tensor(value)
        if isinstance(value, (torch.Size, tuple, list)):
            return {type(value).__name__: [self(item) for item in value]}
        if isinstance(value, Mapping):
            return {"mapping": [[str(key), self(item)] for key, item in value.items()]}
        if hasattr(value, "__iter__") and not isinstance(value, (str, type)):
            return {"iterable": [self(item) for item in value]}
        return {type(value).__name__: str(value)} if not callable(value) else {"callable": type(value).__name__}

    def tensor(self, tensor):
        values = None if tensor.device.type == "meta" else str(tensor.detach().tolist())
        return {
            "tensor": type(tensor).__name__,
            "shape": list(tensor.shape),
            "dtype": str(tensor.dtype),
            "device": str(tensor.device),
            "requires_grad": tensor.requires_grad,
            "values": values,
            "memory of": self.inputs.same_memory(tensor),
        }

    def node(self, node):
        return {
            "node": type(node).__name__,
            "is": self.inputs.same_node(node),
            "batch_size": list(node.batch_size),
            "names": list(node.names) if node.names else None,
            "device": str(node.device),
            "locked": node.is_locked,
            "fields": [[key, self(value)] for key, value in entries(node)],
        }


def run(setup, case):
    """What one case gives."""
    torch.manual_seed(0)
    space = {"torch": torch, "tensordict": tensordict}
    space.update({name: getattr(tensordict, name) for name in tensordict.__all__})
    known = set(space)
    exec(setup, space)
    names = {name: value for name, value in space.items() if name not in known and not callable(value)}
    names = {name: value for name, value in names.items() if not isinstance(value, types.ModuleType) and name[0] != "_"}
    dump = Dump(Inputs(names))
    result = {}
    body = ast.parse(case).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile(ast.Module(body, []), "<case>", "exec"), space)
            if last is not None:
                result["value"] = dump(eval(compile(ast.Expression(last.value), "<case>", "eval"), space))
    except Exception as error:
        # What catches it: packages name their own subclasses as they like.
        caught_by = [base.__name__ for base in type(error).__mro__ if base.__module__ == "builtins"]
        result = {"error": caught_by, "message": str(error)}
    result["printed"] = printed.getvalue()
    result["inputs"] = {name: dump(value) for name, value in names.items() if not isinstance(value, Iterator)}
    return result


def main(out, folder=None):
    """Runs all programs; `folder` is where `tensordict` must come from."""
    if folder is not None and not Path(tensordict.__file__).is_relative_to(Path(folder).resolve()):
        raise SystemExit(f"wanted the tensordict of {folder}, got {tensordict.__file__}")
    results = {}
    for path in sorted(PROGRAMS.glob("*.py")):
        program = load(path)
        for case in program.CASES:
            results[f"{path.stem}: {case}"] = run(program.SETUP, case)
    Path(out).write_text(json.dumps(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
