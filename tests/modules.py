"""What tests say of modules."""

from __future__ import annotations

from torch import nn


def state(module: nn.Module) -> list[object]:
    """Every dict of every module, by identity and order, and the lists of the RNN modules."""
    found: list[object] = []
    for name, child in module.named_modules(remove_duplicate=False):
        for kind in ("_parameters", "_buffers"):
            found += [(name, kind, key, id(value)) for key, value in getattr(child, kind).items()]
        found += [(name, key) for key in child.__dict__]
        found += [(name, id(weight)) for weight in child.__dict__.get("_flat_weights", [])]
    return found
