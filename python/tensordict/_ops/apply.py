"""Applying a function to every leaf."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from typing import Any

from torch import Size, Tensor
from typing_extensions import Self

from tensordict._kernel.errors import _KeyThroughLeafError, batch_mismatch
from tensordict._kernel.native import all_fit, all_tensors
from tensordict._kernel.registry import default_is_leaf, is_branch
from tensordict._ops.coerce import as_device, as_size, coerce
from tensordict._ops.trees import restacked
from tensordict._ops.waist import Waist
from tensordict._types import NO_DEFAULT, Path, TensorCollection


class _Apply:
    """One application: what it calls, and how it builds the results."""

    __slots__ = (
        "batch_size",
        "default",
        "device",
        "filter_empty",
        "fn",
        "inplace",
        "is_leaf",
        "names",
        "nested_keys",
        "with_key",
    )

    def __init__(self, fn: Callable[..., Any], **options: Any) -> None:
        self.fn = fn
        self.batch_size = options["batch_size"]
        self.device = options["device"]
        self.names = options["names"]
        self.default = options["default"]
        self.inplace: bool = options["inplace"]
        self.filter_empty: bool | None = options["filter_empty"]
        self.is_leaf: Callable[[type], bool] = options["is_leaf"]
        self.with_key: bool = options["with_key"]
        self.nested_keys: bool = options["nested_keys"]

    def _is_divided(self, node: Any, out: Any) -> bool:
        """Whether the results for a node are those for its members."""
        return self.batch_size is None and node._stacked and (out is None or out._stacked)

    def node(self, node: Any, others: tuple[Any, ...], path: Path, out: Any) -> Any:
        """The result for `node`, or None where it has no entries and is to be left out."""
        if self._is_divided(node, out):
            return self._members(node, others, path, out)
        target = out if out is not None else self._start(node)
        fields = target._fields()
        changed = False
        for key, value in node._entries().items():
            beside = tuple([self._beside(other, key, value) for other in others])
            if isinstance(value, TensorCollection) and not self.is_leaf(type(value)):
                below = None if out is None else fields.get(key)
                result = self.node(value, beside, (*path, key), below)
            else:
                result = self._call(path, key, value, beside)
            if result is not None:
                changed = True
                self._store(target, key, result, out is not None)
        if not changed and self._drops(node):
            return None
        return target

    def simple(self, node: Any) -> Any:
        """`node` for the common case: no other trees, no keys, nothing to write into."""
        if self._is_divided(node, None):
            members = node._pieces()
            return self._stack_of(node, members, [self.simple(part) for part in members.values()])
        fn, is_leaf, entries = self.fn, self.is_leaf, node._entries()
        batch_size = node.batch_size if self.batch_size is None else self.batch_size
        bare = (node.device if self.device is NO_DEFAULT else self.device) is None
        values = list(entries.values())
        if bare and is_leaf is default_is_leaf and all_tensors(values):
            results = list(map(fn, values))
            if results and all_fit(results, batch_size):
                fields = dict(zip(entries, results))
                same = self.batch_size is None and self.device is NO_DEFAULT and self.names is NO_DEFAULT
                return node._from_pieces(fields) if same else self._start(node, fields)
        else:
            results = [
                fn(value) if not isinstance(value, TensorCollection) or is_leaf(type(value)) else self.simple(value)
                for value in values
            ]
        fields = self._checked(node, zip(entries, results), batch_size, bare)
        if not fields and self._drops(node):
            return None
        return self._start(node, fields)

    def _members(self, node: Any, others: tuple[Any, ...], path: Path, out: Any) -> Any:
        """The result for a stack, member by member."""
        default = self.default
        members = node._pieces()
        beside = [
            node._pieces_of(other, members) if isinstance(other, TensorCollection) else repeat(default) for other in others
        ]
        rows = zip(members.values(), zip(*beside) if beside else repeat(()))
        into = repeat(None) if out is None else node._pieces_of(out, members)
        results = [self.node(part, row, path, target) for (part, row), target in zip(rows, into)]
        if out is not None:
            return None if results and all([result is None for result in results]) else out
        return self._stack_of(node, members, results)

    def _stack_of(self, node: Any, members: dict[int, Any], results: list[Any]) -> Any:
        """The results for the members of a stack as one; None where none of them has entries and they are left out."""
        made = restacked(node, members, results)
        if made is not None and self.names is not NO_DEFAULT:
            made._adopt_names(self.names)
        return made

    def _checked(self, node: Any, results: Iterable[tuple[str, Any]], batch_size: Size, bare: bool) -> dict[str, Any]:
        """The entries of those results that are there, each as an entry of `node` has to be."""
        dims, fitting = len(batch_size), None
        fields: dict[str, Any] = {}
        for key, result in results:
            if type(result) is Tensor and bare and not result.is_nested:
                shape = result.shape
                if shape != fitting:  # leaves often share their shape
                    if shape[:dims] != batch_size:
                        raise batch_mismatch(key, batch_size, shape)
                    fitting = shape
            elif result is None:
                continue
            elif not isinstance(result, TensorCollection):
                result = coerce(self._start(node), key, result)
            fields[key] = result
        return fields

    def _drops(self, node: Any) -> bool:
        """Whether a node without results is left out: if asked, and else if it had entries before."""
        if not is_branch(node):
            return False
        return bool(node._fields()) if self.filter_empty is None else self.filter_empty

    def _start(self, node: Any, fields: dict[str, Any] | None = None) -> Any:
        """The result for `node`, of `fields` or still empty."""
        fields = {} if fields is None else fields
        batch_size = node.batch_size if self.batch_size is None else self.batch_size
        device = node.device if self.device is NO_DEFAULT else self.device
        names = node._names if self.names is NO_DEFAULT and self.batch_size is None else self.names
        if names is NO_DEFAULT or names is None:
            return node._rebuild(fields, batch_size, device)
        return node._rebuild(fields, batch_size, device, [*names, *[None] * (len(batch_size) - len(names))])

    def _beside(self, other: Any, key: str, value: Any) -> Any:
        if other is None or other is self.default:
            return self.default
        if self.default is NO_DEFAULT:
            return other._get_str(key)
        try:
            return other._get_str(key)
        except (KeyError, _KeyThroughLeafError):
            return self.default

    def _call(self, path: Path, key: str, value: Any, beside: tuple[Any, ...]) -> Any:
        if not self.with_key:
            return self.fn(value, *beside)
        name = (*path, key) if self.nested_keys and path else key
        return self.fn(name, value, *beside)

    def _store(self, target: Any, key: str, result: Any, existing: bool) -> None:
        if isinstance(result, TensorCollection):
            if target._fields().get(key) is not result:
                target._set_str(key, result)
            return
        current = target._fields().get(key) if existing else None
        if current is result:
            return
        if self.inplace and isinstance(current, Tensor):
            target.set_(key, result)
        elif existing and target.is_locked:
            target.set(key, result)  # raises
        else:
            target._set_str(key, coerce(target, key, result))


class ApplyOps(Waist):
    """`apply` and its relatives."""

    __slots__ = ()

    def apply(
        self,
        fn: Callable[..., Any],
        *others: Any,
        batch_size: Any = None,
        device: Any = NO_DEFAULT,
        names: Any = NO_DEFAULT,
        inplace: bool = False,
        default: Any = NO_DEFAULT,
        filter_empty: bool | None = None,
        propagate_lock: bool = False,
        call_on_nested: bool = False,
        is_leaf: Callable[[type], bool] | None = None,
        out: Any = None,
        **constructor_kwargs: Any,
    ) -> Any:
        """A tensordict of the results of `fn(leaf, *leaves_of_others)` for each leaf.

        Args:
            fn: called with each leaf; where it returns None the entry is left out.
            *others: tensordicts whose leaves of the same keys are passed too.
            batch_size: the batch size of the result and of all nodes in it; that of this tensordict if not given.
            device: the device label of the result; that of this tensordict if not given.
            names: names of the batch dimensions of the result.
            inplace: write the results into the leaves of this tensordict, and return it; None where there are no results.
            default: passed for a leaf that one of `others` lacks.
            filter_empty: leave out nodes without results; not given, those that had entries before.
            propagate_lock: lock the result if this tensordict is locked.
            call_on_nested: call `fn` with the entries of the first level, nodes included.
            is_leaf: which classes of entries `fn` is called with.
            out: a tensordict whose entries become the results.

        Raises:
            KeyError: one of `others` lacks a key, and there is no default.
            RuntimeError: a result does not fit the batch size.
        """
        leaf = is_leaf or ((lambda cls: True) if call_on_nested else default_is_leaf)
        options = {
            "batch_size": batch_size,
            "device": device,
            "names": names,
            "default": default,
            "filter_empty": filter_empty,
        }
        return _run(self, fn, others, options, (inplace, out, propagate_lock), leaf, False, False)

    def as_tensor(self) -> Self:
        """A tensordict of the same leaves, each as its `as_tensor` method gives it where it has one; locked as this one is."""
        return self.apply(
            lambda leaf: leaf.as_tensor() if hasattr(leaf, "as_tensor") else leaf, propagate_lock=True, filter_empty=False
        )

    def _fast_apply(
        self,
        fn: Callable[..., Any],
        *others: Any,
        named: bool = False,
        nested_keys: bool = False,
        filter_empty: bool | None = False,
        num_threads: int = 0,
        checked: bool = True,
        **options: Any,
    ) -> Any:
        """`apply`, or `named_apply` with `named`, under the name that libraries call; results are always checked.

        With `num_threads` above 1 the function runs in so many threads; what it raises is raised here.
        """
        if num_threads > 1:
            options.update(filter_empty=filter_empty, nested_keys=True)

            def keyed(key: Any, *args: Any) -> Any:
                if not named:
                    return fn(*args)
                return fn(key if nested_keys or type(key) is str else key[-1], *args)

            taken = _in_threads(keyed, num_threads, lambda collect: self.named_apply(collect, *others, **options))
            return self.named_apply(taken, *others, **options)
        if named:
            return self.named_apply(fn, *others, nested_keys=nested_keys, filter_empty=filter_empty, **options)
        return self.apply(fn, *others, filter_empty=filter_empty, **options)

    def named_apply(
        self,
        fn: Callable[..., Any],
        *others: Any,
        nested_keys: bool = False,
        batch_size: Any = None,
        device: Any = NO_DEFAULT,
        names: Any = NO_DEFAULT,
        inplace: bool = False,
        default: Any = NO_DEFAULT,
        filter_empty: bool | None = None,
        propagate_lock: bool = False,
        call_on_nested: bool = False,
        is_leaf: Callable[[type], bool] | None = None,
        out: Any = None,
        **constructor_kwargs: Any,
    ) -> Any:
        """`apply` of `fn(key, leaf, *leaves_of_others)`; the key is the last part, or all of it with `nested_keys`."""
        leaf = is_leaf or ((lambda cls: True) if call_on_nested else default_is_leaf)
        options = {
            "batch_size": batch_size,
            "device": device,
            "names": names,
            "default": default,
            "filter_empty": filter_empty,
        }
        return _run(self, fn, others, options, (inplace, out, propagate_lock), leaf, True, nested_keys)

    def apply_(self, fn: Callable[..., Any], *others: Any, **kwargs: Any) -> Self:
        """`apply` that writes the results into the leaves of this tensordict, and returns it."""
        self.apply(fn, *others, inplace=True, **kwargs)
        return self


def _in_threads(fn: Callable[..., Any], threads: int, each: Callable[[Callable[..., Any]], Any]) -> Callable[..., Any]:
    """A function that gives, by its key, what `fn` gives for all that `each` calls it with: computed before, in threads."""
    calls: list[tuple[Any, ...]] = []

    def collect(*args: Any) -> None:
        calls.append(args)

    each(collect)
    results: dict[Any, list[Any]] = {}
    with ThreadPoolExecutor(threads) as pool:
        for args, result in zip(calls, pool.map(lambda args: fn(*args), calls)):
            results.setdefault(args[0], []).append(result)
    left = {key: iter(found) for key, found in results.items()}

    def replay(key: Any, *args: Any) -> Any:
        for result in left.get(key, ()):
            return result
        raise RuntimeError("the entries of the tensordict were changed while a function was applied to them in threads")

    return replay


def _run(
    node: Any,
    fn: Callable[..., Any],
    others: tuple[Any, ...],
    options: dict[str, Any],
    target: tuple[bool, Any, bool],
    is_leaf: Callable[[type], bool],
    with_key: bool,
    nested_keys: bool,
) -> Any:
    inplace, out, propagate_lock = target
    if options["batch_size"] is not None:
        options["batch_size"] = as_size(options["batch_size"])
    if options["names"] is not NO_DEFAULT and options["names"] is not None:
        size = node.batch_size if options["batch_size"] is None else options["batch_size"]
        if len(options["names"]) != len(size):
            raise ValueError(f"there must be a name, or None, for each dimension of {size}; got {options['names']}")
    if options["device"] is not NO_DEFAULT:
        options["device"] = as_device(options["device"])
    into = node if inplace else out
    plan = _Apply(fn, **options, inplace=inplace, is_leaf=is_leaf, with_key=with_key, nested_keys=nested_keys)
    result = plan.node(node, others, (), into) if others or with_key or into is not None else plan.simple(node)
    if into is not None:
        return None if result is None else into
    if propagate_lock and result is not None and node.is_locked:
        result.lock_()
    return result
