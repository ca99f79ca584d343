"""The rules of docs/architecture.md, read off the sources: imports go one way, files and functions stay small.

    python tests/test_architecture.py       prints the lines by folder and the waist

A rule is a function from a source to what is wrong in it. None has a list of exceptions. Each has a source that breaks
it, below, so that a rule which no longer finds anything fails.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "python" / "tensordict"

MOST_LINES = 800
MOST_FUNCTION_LINES = 40
# Of the methods of the waist: those that every container writes, and all that one may write.
MOST_ABSTRACT = 15
MOST_WAIST_METHODS = 25
# Lines outside of the folders of containers that ask whether one is a stack or holds objects.
MOST_QUESTIONS = 30

# Where the containers are. Their files know their own kinds; all others go by the waist.
CONTAINERS = ("_lazy/", "_nontensor/", "_tensorclass/", "_views/", "_module/", "_td.py", "typedtensordict.py")

# From the bottom up. A name is a module of `tensordict`, or a folder, in which a file may have a layer of its own; one that is
# not listed is a facade: it may import everything, and no module of a layer may import it.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("_core", "_reexport", "_old.names"),
    ("_types",),
    ("_kernel",),
    ("_leaves", "memmap"),
    ("_ops",),
    ("_io", "_convert", "_module", "_distributed"),
    ("base",),
    ("_td", "_views", "_module.swapped", "_lazy", "_persistent", "store"),
    ("_tensorclass",),
    ("_nontensor", "typedtensordict"),
    ("_torch", "_polyfills"),
    ("nn", "data"),
)
LAYER_OF = {name: level for level, names in enumerate(LAYERS) for name in names}
FACADE = len(LAYERS)


def layer_of(module: str) -> int:
    """The layer of a module, or of a name in one: that of the file, if it has one, else that of its folder."""
    parts = module.split(".")
    return LAYER_OF.get(".".join(parts[:2]), LAYER_OF.get(parts[0], FACADE))


# memory that is mapped (in the core, and handed to Python as a buffer), rows that are copied, tensors that are read (in
# several parts, which lie in a folder of that name), locks that a child replaces
UNSAFE_NAMES = ("memmap.rs", "rows.rs", "tensor.rs", "turn.rs")


@dataclass(frozen=True)
class Source:
    """A file: its path below the package or below `rust/`, and its text."""

    path: str
    text: str

    @property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @property
    def module(self) -> str:
        """The dotted name below `tensordict`, empty for the package itself."""
        return self.path.removesuffix(".py").removesuffix("__init__").strip("/").replace("/", ".")


# Reading Python.


def is_type_only(node: ast.AST) -> bool:
    """Whether the statement is `if TYPE_CHECKING:`, whose body never runs."""
    return isinstance(node, ast.If) and ast.unparse(node.test).split(".")[-1] == "TYPE_CHECKING"


def running(node: ast.AST, into_functions: bool = True) -> Iterator[ast.AST]:
    """The nodes below `node` that run: all but type-only imports and, where not wanted, the bodies of functions."""
    for child in ast.iter_child_nodes(node):
        if is_type_only(child):
            continue
        yield child
        if into_functions or not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield from running(child, into_functions)


def absolute(node: ast.ImportFrom, source: Source) -> str:
    """The module that a `from` import names, with the dots of a relative import resolved."""
    if not node.level:
        return node.module or ""
    parents = ["tensordict", *filter(None, source.module.split("."))]
    if source.path.endswith("__init__.py"):
        parents.append("")
    base = parents[: len(parents) - node.level]
    return ".".join([*base, *filter(None, [node.module])])


def imported(nodes: Iterator[ast.AST], source: Source) -> Iterator[str]:
    """The modules, and the names in them, that import statements among the nodes ask for."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{absolute(node, source)}.{alias.name}" for alias in node.names)


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every function and method."""
    return (node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))


def calls(node: ast.AST, name: str) -> Iterator[ast.Call]:
    """The calls of the plain function `name` below a node."""
    for child in ast.walk(node):
        if isinstance(child, ast.Call) and isinstance(child.func, ast.Name) and child.func.id == name:
            yield child


# Rules for Python.


def imports_go_down(source: Source) -> Iterator[str]:
    """A module imports its own layer and those below; upward only through `_reexport`."""
    own = layer_of(source.module)
    if source.module == "_reexport":
        return
    for name in imported(running(source.tree), source):
        package, _, rest = name.partition(".")
        if package == "tensordict" and layer_of(rest) > own:
            yield f"imports {name}, which is above it"


def only_native_imports_core(source: Source) -> Iterator[str]:
    """The extension module has one door."""
    if source.module != "_kernel.native":
        yield from (
            f"imports {name}; only _kernel/native.py does"
            for name in imported(ast.walk(source.tree), source)
            if name.startswith("tensordict._core")
        )


def files_are_short(source: Source) -> Iterator[str]:
    """A file has at most 800 lines."""
    lines = len(source.text.splitlines())
    if lines > MOST_LINES:
        yield f"has {lines} lines, {MOST_LINES} are the limit"


def functions_are_short(source: Source) -> Iterator[str]:
    """A function has at most 40 lines, its docstring and its decorators not counted."""
    for function in functions(source.tree):
        documented = ast.get_docstring(function, clean=False) is not None
        docstring = function.body[0] if documented else None
        lines = (function.end_lineno or 0) - function.lineno + 1
        if docstring is not None:
            lines -= (docstring.end_lineno or 0) - docstring.lineno + 1
        if lines > MOST_FUNCTION_LINES:
            yield f"{function.name} has {lines} lines, {MOST_FUNCTION_LINES} are the limit"


def methods_are_written(source: Source) -> Iterator[str]:
    """No method is set on a class in a loop: it could not be found by searching for its name."""
    loops = (ast.For, ast.AsyncFor, ast.While, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
    for loop in ast.walk(source.tree):
        if isinstance(loop, loops):
            for call in calls(loop, "setattr"):
                target = ast.unparse(call.args[0]) if call.args else ""
                if re.fullmatch(r"(\w+\.)*([A-Z]\w*|_[A-Z]\w*|cls|klass|__class__)|type\(.*\)|sys\.modules\[.*\]", target):
                    yield f"line {call.lineno}: setattr on {target} in a loop"


def names_are_written(source: Source) -> Iterator[str]:
    """No name of a module is made through `globals()`."""
    yield from (f"line {call.lineno}: globals()" for call in calls(source.tree, "globals"))


def nothing_is_patched(source: Source) -> Iterator[str]:
    """Nothing of another package is replaced."""
    foreign = set()
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            foreign |= {a.asname or a.name.split(".")[0] for a in node.names if not a.name.startswith("tensordict")}
        elif isinstance(node, ast.ImportFrom) and not absolute(node, source).startswith("tensordict"):
            foreign |= {alias.asname or alias.name for alias in node.names}
    for node in ast.walk(source.tree):
        target = node.args[0] if isinstance(node, ast.Call) and is_setattr(node) else None
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, (ast.Store, ast.Del)):
            target = node.value
        while isinstance(target, ast.Attribute):
            target = target.value
        if isinstance(target, ast.Name) and target.id in foreign:
            yield f"line {target.lineno}: sets an attribute of {target.id}"


def is_setattr(call: ast.Call) -> bool:
    """Whether the call sets or deletes an attribute by its name."""
    return isinstance(call.func, ast.Name) and call.func.id in {"setattr", "delattr"} and bool(call.args)


def eager_and_compiled_are_one(source: Source) -> Iterator[str]:
    """Only the hook that registers the polyfills may ask whether code is compiled."""
    if source.module != "_polyfills":
        for node in ast.walk(source.tree):
            name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
            if re.fullmatch(r"is_(dynamo_)?compiling", name):
                yield f"line {node.lineno}: {name}"


def dynamo_is_not_loaded(source: Source) -> Iterator[str]:
    """Importing a module does not import `torch._dynamo`."""
    top = list(running(source.tree, into_functions=False))
    for name in imported(iter(top), source):
        if name.startswith(("torch._dynamo", "torch._inductor")):
            yield f"imports {name} when it is imported"
    for node in top:
        if isinstance(node, ast.Attribute) and ast.unparse(node).startswith("torch._dynamo"):
            yield f"line {node.lineno}: reads torch._dynamo when it is imported"


# Rules for Rust.


def rust_code(text: str, tests: bool = True) -> str:
    """Rust without comments and strings and, where not wanted, without its `#[cfg(test)]` modules."""
    noise = r'//[^\n]*|/\*.*?\*/|r(#*)".*?"\1|"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])\''
    code = re.sub(noise, lambda m: "" if m[0].startswith("/") else '""', text, flags=re.DOTALL)
    while not tests and (found := re.search(r"#\[cfg\(test\)\]\s*mod \w+\s*\{", code)):
        depth, end = 1, found.end()
        while depth and end < len(code):
            depth += {"{": 1, "}": -1}.get(code[end], 0)
            end += 1
        code = code[: found.start()] + code[end:]
    return code


def unsafe_is_in_few_files(source: Source) -> Iterator[str]:
    """Only the files that touch raw memory hold unsafe code."""
    *folders, name = source.path.split("/")
    if name not in UNSAFE_NAMES and "tensor" not in folders and re.search(r"\bunsafe(_code)?\b", rust_code(source.text)):
        yield "holds unsafe code"


def loops_enter_the_pool(source: Source) -> Iterator[str]:
    """Only the schedule names rayon, whose loops would use its global pool outside of ours."""
    if "/src/" in source.path and source.path != "core/src/schedule.rs":
        for found in re.finditer(r"\brayon\b|\.(into_)?par_\w+\(", rust_code(source.text)):
            yield f"has {found[0]}"


def cells_are_set_at_once(source: Source) -> Iterator[str]:
    """The binding has no cells of PyO3, which let the interpreter lock go half made: a forked child would wait for ever."""
    if source.path.startswith("python/"):
        cells = r"\bPyOnceLock\b|\bpyo3::intern\b|\bderive\([^)]*FromPyObject|\bGILOnceCell\b"
        for found in re.finditer(cells, rust_code(source.text)):
            yield f"has {found[0]}"


def locks_are_not_inherited(source: Source) -> Iterator[str]:
    """No lock of the core is a static: a child could inherit it locked, which is why there is `Turn`.

    The binding takes its locks with the GIL held, which who forks from Python has.
    """
    locks = r"\bstatic\s+\w+\s*:[^;=]*\b(Mutex|RwLock|Condvar|OnceLock|LazyLock)\b"
    if source.path.startswith("core/"):
        yield from (f"has {found[0]}" for found in re.finditer(locks, rust_code(source.text, tests=False)))


def errors_are_returned(source: Source) -> Iterator[str]:
    """No unwrap, expect or panic outside of tests and benchmarks."""
    if "/src/" in source.path:
        for found in re.finditer(r"\.(unwrap|expect)\(|\b(panic|todo|unimplemented)!", rust_code(source.text, tests=False)):
            yield f"has {found[0]} outside of its tests"


PYTHON_RULES = (
    imports_go_down,
    only_native_imports_core,
    files_are_short,
    functions_are_short,
    methods_are_written,
    names_are_written,
    nothing_is_patched,
    eager_and_compiled_are_one,
    dynamo_is_not_loaded,
)
RUST_RULES = (
    files_are_short,
    unsafe_is_in_few_files,
    cells_are_set_at_once,
    loops_enter_the_pool,
    locks_are_not_inherited,
    errors_are_returned,
)
SIZE_RULES = (files_are_short, functions_are_short)


# The sources.


def sources(folder: Path, suffix: str) -> list[Source]:
    """The files of a folder, named from it."""
    paths = sorted(path for path in folder.rglob(f"*{suffix}") if "target" not in path.relative_to(folder).parts)
    return [Source(path.relative_to(folder).as_posix(), path.read_text()) for path in paths]


def broken(rule: Callable[[Source], Iterator[str]], files: list[Source]) -> list[str]:
    """What a rule finds in the files, each with its path."""
    return [f"{source.path}: {finding}" for source in files for finding in rule(source)]


def named(rule: Callable[[Source], Iterator[str]]) -> str:
    return rule.__name__


@pytest.mark.parametrize("rule", PYTHON_RULES, ids=named)
def test_package(rule: Callable[[Source], Iterator[str]]) -> None:
    assert broken(rule, sources(PACKAGE, ".py")) == []


@pytest.mark.parametrize("rule", RUST_RULES, ids=named)
def test_rust(rule: Callable[[Source], Iterator[str]]) -> None:
    assert broken(rule, sources(ROOT / "rust", ".rs")) == []


@pytest.mark.parametrize("folder", ["tests", "benches", "examples", "tools"])
@pytest.mark.parametrize("rule", SIZE_RULES, ids=named)
def test_other_python(rule: Callable[[Source], Iterator[str]], folder: str) -> None:
    assert broken(rule, sources(ROOT / folder, ".py")) == []


def test_sources_are_found() -> None:
    """The tests above read something."""
    assert sources(PACKAGE, ".py")
    assert sources(ROOT / "rust", ".rs")


# The waist.


WAIST = "_ops/waist.py"


def methods(class_: ast.ClassDef) -> Iterator[ast.FunctionDef]:
    """The private methods that a class body defines; not those for type checkers alone."""
    for node in class_.body:
        if isinstance(node, ast.FunctionDef) and re.fullmatch(r"_[a-z]\w*", node.name):
            yield node


def classes(source: Source) -> Iterator[ast.ClassDef]:
    return (node for node in ast.walk(source.tree) if isinstance(node, ast.ClassDef))


def marked(function: ast.FunctionDef, *words: str) -> bool:
    """Whether a decorator of the function has one of the words in it."""
    return any(word in ast.unparse(decorator) for decorator in function.decorator_list for word in words)


def declared() -> ast.ClassDef:
    """The class that declares the waist."""
    (found,) = classes(Source(WAIST, (PACKAGE / WAIST).read_text()))
    return found


def waist() -> tuple[list[str], list[str]]:
    """The methods that a container has to write, and those that it may write."""
    found = list(methods(declared()))
    must = [method.name for method in found if marked(method, "abstractmethod")]
    return must, [method.name for method in found if not marked(method, "abstract", "final", "property")]


def state() -> set[str]:
    """The attributes and properties that the waist declares beside its methods, and what is made of them all."""
    found = {node.name for node in ast.walk(declared()) if isinstance(node, ast.FunctionDef)}
    for node in ast.walk(declared()):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found


def undeclared() -> Iterator[str]:
    """The private methods of containers that modules below these call, and the waist does not declare."""
    package = sources(PACKAGE, ".py")
    known = {*waist()[0], *waist()[1], *state()}
    written: dict[str, set[str]] = {}
    for source in package:
        for class_ in classes(source) if source.path.startswith(CONTAINERS) else ():
            for method in methods(class_):
                written.setdefault(method.name, set()).add(class_.name)
    shared = {name for name, owners in written.items() if len(owners) > 1} - known
    for source in package:
        if layer_of(source.module) >= LAYER_OF["base"] or source.path.startswith(CONTAINERS):
            continue
        own = {method.name for class_ in classes(source) for method in methods(class_)}
        for node in ast.walk(source.tree):
            if (
                isinstance(node, ast.Attribute)
                and node.attr in shared - own
                and not ast.unparse(node.value).lstrip("_")[0].isupper()
            ):
                yield f"{source.path}, line {node.lineno}: {node.attr} of {sorted(written[node.attr])}"


def questions() -> list[str]:
    """The lines that ask whether a container is a stack, or holds objects, outside of the folders of containers."""
    names = r"\._(stacked|is_non_tensor)\b|\bis_non_tensor\(|[(,] *is_non_tensor\b"
    asked = re.compile(names + r"|isinstance\(.*\b(LazyStacked|NonTensor)")
    return [
        f"{source.path}: {line.strip()}"
        for source in sources(PACKAGE, ".py")
        if not source.path.startswith(CONTAINERS)
        for line in source.text.splitlines()
        if asked.search(line) and not re.match(r"\s*(def|class|from|import|>>>|#)", line)
    ]


def test_waist_is_narrow() -> None:
    must, may = waist()
    assert 0 < len(must) <= MOST_ABSTRACT, must
    assert len(must) + len(may) <= MOST_WAIST_METHODS, (must, may)


def test_waist_is_whole() -> None:
    assert list(undeclared()) == []


def test_kinds_are_not_asked_for() -> None:
    found = questions()
    assert 0 < len(found) <= MOST_QUESTIONS, found


def test_import_does_not_load_dynamo() -> None:
    """Importing the installed package loads neither the compiler nor what only some of its users need."""
    script = "import sys, tensordict; print([m for m in ('torch._dynamo', 'torch._inductor') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# Each rule finds what breaks it.

BREAKS: list[tuple[Callable[[Source], Iterator[str]], str, str]] = [
    (imports_go_down, "_kernel/index.py", "from tensordict.base import TensorDictBase"),
    (imports_go_down, "_kernel/index.py", "def late():\n    from .._td import TensorDict"),
    (imports_go_down, "_kernel/index.py", "from tensordict import TensorDict"),
    (imports_go_down, "base.py", "from . import utils"),
    (imports_go_down, "_ops/__init__.py", "from ..base import TensorDictBase"),
    (only_native_imports_core, "_io/memmap.py", "from tensordict._core import Map"),
    (only_native_imports_core, "_kernel/__init__.py", "from .. import _core"),
    (files_are_short, "base.py", "x = 1\n" * 801),
    (functions_are_short, "base.py", "def f():\n" + "    x = 1\n" * 40),
    (methods_are_written, "base.py", "for name in names:\n    setattr(TensorDict, name, make(name))"),
    (methods_are_written, "base.py", "[setattr(cls, name, make(name)) for name in names]"),
    (names_are_written, "base.py", "globals()['x'] = 1"),
    (nothing_is_patched, "base.py", "import torch\ntorch.Tensor.td = 1"),
    (nothing_is_patched, "base.py", "from torch import nn\nsetattr(nn.Module, 'td', 1)"),
    (eager_and_compiled_are_one, "base.py", "import torch\nif torch.compiler.is_compiling():\n    pass"),
    (dynamo_is_not_loaded, "base.py", "import torch._dynamo"),
    (dynamo_is_not_loaded, "base.py", "import torch\nx = torch._dynamo.config"),
    (unsafe_is_in_few_files, "core/src/key.rs", "fn f() { unsafe { g() } }"),
    (loops_enter_the_pool, "core/src/writer.rs", "use rayon::prelude::*;"),
    (loops_enter_the_pool, "core/src/writer.rs", "fn f() { x.into_par_iter().for_each(g) }"),
    (locks_are_not_inherited, "core/src/writer.rs", "static MAKING: Mutex<()> = Mutex::new(());"),
    (cells_are_set_at_once, "python/src/swap.rs", "static FOUND: PyOnceLock<u8> = PyOnceLock::new();"),
    (cells_are_set_at_once, "python/src/swap.rs", "use pyo3::intern;"),
    (cells_are_set_at_once, "python/src/swap.rs", "#[derive(Clone, FromPyObject)]\nstruct S;"),
    (errors_are_returned, "core/src/key.rs", "fn f() { g().unwrap(); }"),
    (errors_are_returned, "core/src/key.rs", '#[cfg(test)]\nmod tests { fn t() {} }\nfn f() { panic!("no") }'),
]

HOLDS: list[tuple[Callable[[Source], Iterator[str]], str, str]] = [
    (imports_go_down, "_td.py", "from ._kernel import native\nfrom tensordict.base import TensorDictBase"),
    (imports_go_down, "_kernel/a.py", "if TYPE_CHECKING:\n    from tensordict.base import TensorDictBase"),
    (imports_go_down, "_kernel/a.py", "from tensordict import _reexport, _types"),
    (imports_go_down, "_reexport.py", "def f():\n    from tensordict._td import TensorDict"),
    (imports_go_down, "utils.py", "from tensordict.nn import TensorDictModule"),
    (only_native_imports_core, "_kernel/native.py", "from tensordict._core import Map"),
    (functions_are_short, "base.py", 'def f():\n    """' + "x\n" * 50 + '"""\n    return 1'),
    (methods_are_written, "base.py", "for name in names:\n    setattr(module, name, value)"),
    (nothing_is_patched, "base.py", "import torch\nself.device = torch.device('cpu')"),
    (dynamo_is_not_loaded, "base.py", "def f():\n    import torch._dynamo"),
    (unsafe_is_in_few_files, "core/src/rows.rs", "unsafe fn f() {}"),
    (cells_are_set_at_once, "python/src/swap.rs", "use crate::once::intern;"),
    (loops_enter_the_pool, "core/src/schedule.rs", "use rayon::prelude::*;"),
    (locks_are_not_inherited, "core/src/writer.rs", "struct S { lock: Mutex<()> }\nstatic MAKING: Turn<()> = Turn::new(f);"),
    (unsafe_is_in_few_files, "core/src/key.rs", '// unsafe\nconst S: &str = "unsafe \\" unsafe";'),
    (
        errors_are_returned,
        "core/src/key.rs",
        "fn f() { g().unwrap_or(1); }\n#[cfg(test)]\nmod tests { fn t() { g().unwrap() } }",
    ),
]


@pytest.mark.parametrize(("rule", "path", "text"), BREAKS)
def test_rule_finds(rule: Callable[[Source], Iterator[str]], path: str, text: str) -> None:
    assert list(rule(Source(path, dedent(text))))


@pytest.mark.parametrize(("rule", "path", "text"), HOLDS)
def test_rule_allows(rule: Callable[[Source], Iterator[str]], path: str, text: str) -> None:
    assert not list(rule(Source(path, dedent(text))))


# The report.


def lines_by_folder() -> Counter[str]:
    """Lines of each folder; of the package and the crates, each folder below them for itself."""
    lines: Counter[str] = Counter()
    for folder in ("python", "rust", "tests", "benches", "examples", "tools"):
        for suffix in (".py", ".rs"):
            for source in sources(ROOT / folder, suffix):
                parts = Path(folder, source.path).parent.parts
                lines["/".join(parts[:3])] += len(source.text.splitlines())
    return lines


def main() -> None:
    """Prints the report."""
    lines = lines_by_folder()
    for folder, number in sorted(lines.items()):
        print(f"{folder:32} {number:6,}")
    print(f"{'total':32} {lines.total():6,}\n")
    must, may = waist()
    print(f"waist, {len(must)} methods that a container writes (at most {MOST_ABSTRACT}):", ", ".join(must))
    print(f"{len(may)} that it may write (at most {MOST_WAIST_METHODS} together):", ", ".join(may))
    print(f"{len(questions())} lines ask for a kind (at most {MOST_QUESTIONS})")


if __name__ == "__main__":
    main()
