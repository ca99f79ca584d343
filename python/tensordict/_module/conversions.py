"""Parameters and buffers of a module as a tensordict, and a tensordict as those of a module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from tensordict._kernel.errors import LOCKED
from tensordict._kernel.native import module_fields, swap_in, swap_out
from tensordict._ops.join import stack_tensordicts
from tensordict._ops.trees import collect, leaves_like, map_leaves, refill
from tensordict._ops.waist import Waist
from tensordict._reexport import lazy_stack, plain_tensordict, swapped
from tensordict._types import TensorCollection


def module_tree(module: nn.Module, as_module: bool, lock: bool, use_state_dict: bool, filter_empty: bool) -> Any:
    """The tensordict of a module's parameters and buffers (see `ModuleConversions.from_module`)."""
    if as_module:
        raise NotImplementedError("as_module=True gives TensorDictParams, which this version does not have yet")
    if not use_state_dict:
        out = plain_tensordict(module_fields(module, filter_empty))
    else:
        out = plain_tensordict(dict(module.state_dict())).unflatten_keys(".")
    return out.lock_() if lock else out


def stacked_trees(
    modules: tuple[nn.Module, ...], as_module: bool, lock: bool, use_state_dict: bool, lazy: bool, expand: bool
) -> Any:
    """The parameters and buffers of several modules, one after the other (see `ModuleConversions.from_modules`)."""
    if not modules:
        raise RuntimeError("from_modules takes at least one module, got none")
    trees = [module_tree(module, as_module, False, use_state_dict, True) for module in modules]
    out = lazy_stack(trees) if lazy else _dense_trees(trees, expand)
    return out.lock_() if lock else out


def _dense_trees(trees: list[Any], expand: bool) -> Any:
    """The stack of the trees of several modules, whose parameters are new ones."""
    stacked = stack_tensordicts([map_leaves(tree, lambda leaf: leaf.data) for tree in trees])
    leaves: list[Any] = []
    made = collect(stacked, leaves)
    columns = zip(*(leaves_like(made, tree) for tree in trees))
    return refill(made, iter([_as_one(list(column), leaf, expand) for column, leaf in zip(columns, leaves)]))


def _as_one(column: list[Any], stacked: Tensor, expand: bool) -> Tensor:
    """The stack of a leaf of several modules: a parameter if they are; a view of the one that all have, with `expand`."""
    first = column[0]
    if expand and all([leaf is first for leaf in column]):
        return first.expand(len(column), *first.shape)
    if not isinstance(first, nn.Parameter):
        return stacked
    return nn.Parameter(stacked, requires_grad=any([leaf.requires_grad for leaf in column]))


class ModuleConversions(Waist):
    """`from_module`, `from_modules`, `to_module`."""

    __slots__ = ()

    @classmethod
    def from_module(
        cls,
        module: nn.Module,
        as_module: bool = False,
        lock: bool = False,
        use_state_dict: bool = False,
        filter_empty: bool = True,
    ) -> Any:
        """The parameters and buffers of a module, nested as its submodules are.

        The leaves are the parameters and buffers themselves, with an empty batch size.

        Args:
            module: the module.
            as_module: give them as a module of their own.
            lock: lock the result.
            use_state_dict: take the tensors of `module.state_dict()`, which runs its hooks, leaves out buffers that are
                not persistent, and detaches the rest.
            filter_empty: leave out submodules that have neither parameters nor buffers.

        >>> import torch
        >>> from tensordict import TensorDict
        >>> net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU())
        >>> params = TensorDict.from_module(net)
        >>> list(params.keys(True, True))
        [('0', 'weight'), ('0', 'bias')]
        >>> params["0", "weight"] is net[0].weight
        True
        """
        return module_tree(module, as_module, lock, use_state_dict, filter_empty)

    @classmethod
    def from_modules(
        cls,
        *modules: nn.Module,
        as_module: bool = False,
        lock: bool = True,
        use_state_dict: bool = False,
        lazy_stack: bool = False,
        expand_identical: bool = False,
    ) -> Any:
        """The parameters and buffers of modules of one architecture, stacked: for ensembles, with `torch.vmap`.

        The batch size is the number of modules. Parameters are copied into new ones, which require a gradient if those of
        one module do; buffers are copied.

        Args:
            *modules: the modules.
            as_module: give them as a module of their own.
            lock: lock the result.
            use_state_dict: as for `from_module`.
            lazy_stack: give a lazy stack of the modules' own parameters and buffers, which may be of unlike shapes.
            expand_identical: give a view, not a copy, of a parameter or buffer that is the same one in all modules.

        Raises:
            RuntimeError: there is no module, or the shapes or names differ and the stack is not lazy.

        >>> import torch
        >>> from tensordict import TensorDict
        >>> nets = [torch.nn.Linear(3, 1) for _ in range(4)]
        >>> params = TensorDict.from_modules(*nets)
        >>> def call(params, x):
        ...     with params.to_module(nets[0]):
        ...         return nets[0](x)
        >>> torch.vmap(call, (0, None))(params, torch.ones(5, 3)).shape
        torch.Size([4, 5, 1])
        """
        return stacked_trees(modules, as_module, lock, use_state_dict, lazy_stack, expand_identical)

    def to_module(
        self,
        module: nn.Module,
        *,
        inplace: bool | None = None,
        return_swap: bool = True,
        swap_dest: Any = None,
        use_state_dict: bool = False,
        non_blocking: bool = False,
        preserve_module_state: bool = True,
        memo: Any = None,
    ) -> Any:
        """Puts the leaves into a module, and gives what the module had; as a context manager, for the time of a block.

        At the end of the block the module has what it had before, whatever happened in the block. What the block put in
        the place of a leaf is then in this tensordict. Entries of the module that this tensordict does not have stay.

        Args:
            module: a module with a parameter, buffer or submodule for each entry.
            inplace: copy the values into the tensors of the module, which stay.
            return_swap: give a tensordict of what was there; else `None`.
            swap_dest: a tensordict of the same structure that gets what was there, and is the result.
            use_state_dict: go through `module.load_state_dict`, which runs its hooks.
            non_blocking: for the copies of `inplace`.
            preserve_module_state: keep parameters parameters: a plain tensor that does not require a gradient is wrapped in
                one that shares its memory and requires a gradient as the old one does. Buffers stay buffers. Else a plain
                tensor in the place of a parameter is a mere attribute, which `module.parameters()` does not list.

        Raises:
            KeyError: the module has nothing of the name of an entry. The module is as it was then.
            RuntimeError: with `inplace`, a value does not fit the shape of its tensor. The module is as it was then.

        >>> import torch
        >>> from tensordict import TensorDict
        >>> net = torch.nn.Linear(2, 1)
        >>> zeros = TensorDict.from_module(net).data.clone().zero_()
        >>> with zeros.to_module(net):
        ...     net(torch.ones(2)).item()
        0.0
        >>> isinstance(net.weight, torch.nn.Parameter), bool((net.weight == 0).any())
        (True, False)
        """
        if inplace or use_state_dict or swap_dest is not None or memo is not None or not return_swap:
            _check_options(inplace, use_state_dict, swap_dest, memo)
            if inplace:
                out, undo = _copy_in(self, module, non_blocking)
            else:
                out, undo = _exchange(self, module, use_state_dict, preserve_module_state)
            if swap_dest is not None:
                out = _fill(swap_dest, out, undo)
            return out if return_swap else None
        return swapped(swap_in(self, module, preserve_module_state), module)


def _check_options(inplace: bool | None, use_state_dict: bool, swap_dest: Any, memo: Any) -> None:
    if memo is not None:
        raise RuntimeError("memo cannot be passed to the public to_module anymore.")
    if use_state_dict and inplace is not None:
        raise RuntimeError("inplace argument cannot be passed when use_state_dict=True.")
    if swap_dest is not None and swap_dest.is_locked:
        raise RuntimeError(LOCKED)


Undo = Callable[[Any], None]


def _exchange(node: Any, module: nn.Module, use_state_dict: bool, preserve: bool) -> tuple[Any, Undo]:
    if not use_state_dict:
        swap = swap_in(node, module, preserve)
        return swapped(swap, module), lambda result: swap_out(swap)
    state = {".".join(path): value.detach() for path, value in _leaves(node, ())}
    unknown = state.keys() - module.state_dict().keys()
    if unknown:
        raise KeyError(f"the state of the module {type(module).__name__} has no entries {sorted(unknown)}")
    # The module's own tensors, put in their own places: the plan then knows what to put back.
    own = plain_tensordict(module_fields(module, True)).select(*[path for path, _ in _leaves(node, ())], strict=False)
    swap = swap_in(own, module, True)
    try:
        module.load_state_dict(state, strict=False, assign=True)
    except BaseException:
        swap_out(swap)
        raise
    return swapped(swap, module), lambda result: swap_out(swap)


def _leaves(node: Any, above: tuple[str, ...]) -> list[tuple[tuple[str, ...], Any]]:
    found: list[tuple[tuple[str, ...], Any]] = []
    for key, value in node._entries().items():
        if isinstance(value, TensorCollection):
            found += _leaves(value, (*above, key))
        else:
            found.append(((*above, key), value))
    return found


def _fill(dest: Any, source: Any, undo: Undo) -> Any:
    """Stores the leaves of `source` in the nodes of `dest`; undoes all where one is missing or does not fit."""
    done: list[tuple[Any, str, Any]] = []
    try:
        places = []
        for path, value in _leaves(source, ()):
            node = dest
            for key in path[:-1]:
                node = node._get_str(key)
            places.append((node, path[-1], value))
        for node, key, value in places:
            before = node._fields().get(key)
            node._set_str(key, value)
            done.append((node, key, before))
    except BaseException:
        for node, key, before in reversed(done):
            if before is None:
                node.del_(key)
            else:
                node._set_str(key, before)
        undo(source)
        raise
    dest._rare["last_op"] = ("to_module", (undo,), None)
    return dest


def _copy_in(node: Any, module: nn.Module, non_blocking: bool) -> tuple[Any, Undo]:
    """Copies the leaves into the tensors of the module; gives copies of what was there."""
    pairs = _targets(node, module)
    for path, _, target, value in pairs:
        fits = len(value.shape) <= len(target.shape) and all(
            mine in (1, theirs) for mine, theirs in zip(reversed(value.shape), reversed(target.shape))
        )
        if not fits:
            raise RuntimeError(
                f"the value of shape {tuple(value.shape)} at key {path} does not fit the tensor of shape "
                f"{tuple(target.shape)} of the module"
            )
    old = [target.clone() for _, _, target, _ in pairs]
    targets = [target for _, _, target, _ in pairs]
    try:
        _copy(targets, [value for *_, value in pairs], non_blocking)
    except BaseException:
        _copy(targets, old, False)
        raise
    out = plain_tensordict({})
    for (path, *_), value in zip(pairs, old):
        out.set(path, value)

    def undo(result: Any) -> None:
        now = [target.clone() for target in targets]
        _copy(targets, old, non_blocking)
        for (path, holder, _, _), value in zip(pairs, now):
            holder._set_str(path[-1], value)

    out._rare["last_op"] = ("to_module", (undo,), None)
    return out, undo


def _copy(targets: list[Tensor], values: list[Tensor], non_blocking: bool) -> None:
    with torch.no_grad():
        for target, value in zip(targets, values):
            target.copy_(value, non_blocking=non_blocking)


def _targets(node: Any, module: nn.Module) -> list[tuple[tuple[str, ...], Any, Tensor, Tensor]]:
    """For each leaf its path, the node that holds it, the tensor of the module, and the leaf; a shared module once."""
    found: list[tuple[tuple[str, ...], Any, Tensor, Tensor]] = []
    seen = set()

    def walk(node: Any, module: nn.Module, above: tuple[str, ...]) -> None:
        if module in seen:
            return
        seen.add(module)
        for key, value in node._entries().items():
            if isinstance(value, TensorCollection):
                if module._modules.get(key) is None:
                    raise KeyError(f"the module {type(module).__name__} has no submodule {key}")
                walk(value, module._modules[key], (*above, key))  # type: ignore[arg-type]
                continue
            target = getattr(module, key, None)
            if not isinstance(target, Tensor):
                raise KeyError(f"the module {type(module).__name__} has no tensor {key}")
            found.append(((*above, key), node, target, value))

    walk(node, module, ())
    return found


def from_module(
    module: nn.Module,
    as_module: bool = False,
    lock: bool = True,
    use_state_dict: bool = False,
    filter_empty: bool = True,
) -> Any:
    """The parameters and buffers of a module, locked (see `TensorDict.from_module`)."""
    return module_tree(module, as_module, lock, use_state_dict, filter_empty)


def from_modules(
    *modules: nn.Module,
    as_module: bool = False,
    lock: bool = True,
    use_state_dict: bool = False,
    lazy_stack: bool = False,
    expand_identical: bool = False,
) -> Any:
    """The parameters and buffers of several modules, stacked (see `TensorDict.from_modules`)."""
    return stacked_trees(modules, as_module, lock, use_state_dict, lazy_stack, expand_identical)
