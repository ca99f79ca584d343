"""Stacks that keep their members: containers whose elements along one batch dimension are tensordicts of their own."""

from tensordict._lazy.functions import dense_stack_tds, lazy_stack, maybe_dense_stack
from tensordict._lazy.stack import LazyStackedTensorDict
from tensordict._views.batch import (
    _CustomOpTensorDict,
    _PermutedTensorDict,
    _SqueezedTensorDict,
    _TransposedTensorDict,
    _UnsqueezedTensorDict,
    _ViewedTensorDict,
)

__all__ = [
    "LazyStackedTensorDict",
    "_CustomOpTensorDict",
    "_PermutedTensorDict",
    "_SqueezedTensorDict",
    "_TransposedTensorDict",
    "_UnsqueezedTensorDict",
    "_ViewedTensorDict",
    "dense_stack_tds",
    "lazy_stack",
    "maybe_dense_stack",
]
