"""Tensorclasses: fields, operations, errors."""

SETUP = """
import dataclasses, pickle
from typing import Any, Optional
from tensordict import TensorClass, is_tensorclass

class B(TensorClass):
    x: torch.Tensor
    y: Optional[torch.Tensor] = None

class Kid(B):
    w: torch.Tensor = None

class Cast(TensorClass["autocast"]):
    x: torch.Tensor
    b: B = None

class Fixed(TensorClass["frozen"]):
    x: torch.Tensor

b = B(torch.arange(3.0), batch_size=[3])
full = B(torch.arange(3.0), torch.ones(3, 2), batch_size=[3])
nested = B(torch.zeros(3), B(torch.ones(3), batch_size=[3]), batch_size=[3])
held = TensorDict({"b": full, "t": torch.ones(3)}, [3])
fixed = Fixed(torch.zeros(3), batch_size=[3])
"""

CASES = [
    "b.x, b.y",
    "b.nope",
    "b['x']",
    "b.get('x'), b.get('y'), b.get('y', 5)",
    "b.get('nope'), b.get('nope', 5), b.get(('x', 'k'), 'k')",
    "b.get('batch_size')",
    "list(b.keys()), list(full.keys())",
    "b.to_dict()",
    "held.to_dict()",
    "b.to_dict(retain_none=False)",
    "b.set('nope', torch.zeros(3))",
    "b.set('x', torch.ones(2))",
    "b.set('x', torch.ones(3)).x",
    "b.set('y', torch.ones(3)).y",
    "b.update({'x': torch.ones(3)}).x",
    "b.update({'k': torch.ones(3)})",
    "full.update({'y': None}).y",
    "b.update(x=torch.ones(3)).x",
    "b.update_({'x': torch.ones(3)}).x",
    "(b + 1).x, (5 - b).x, (-b).x, (b**2).x",
    "full[0].y, full[1:].x, full[torch.tensor([2, 0])].x, full[full.x > 0].y",
    "full.reshape(-1, 1).y.shape, full.unsqueeze(0).batch_size, full.expand(2, 3).y.shape",
    "torch.stack([full, full]).y.shape, torch.cat([full, full]).x",
    "torch.stack([b, full])",
    "full.select('x').y, full.exclude('x').x",
    "full.select('x', as_tensordict=True)",
    "full.apply(lambda t: t + 1).y",
    "full.sum().x, full.mean().y.shape",
    "(full == full).all(), (full == 0).x",
    "full.all(), full.any()",
    "type(full.to_tensordict()).__name__, sorted(full.to_tensordict().keys())",
    "type(full.clone()).__name__, full.clone().is_locked",
    "full.split(1)[0].x, [row.x for row in full.unbind(0)]",
    "full.lock_().is_locked",
    "bool(full)",
    "hash(full)",
    "len(full), [row.x for row in full]",
    "nested.y.x, nested.get(('y', 'x')), nested[0].y.x",
    "(nested + 1).y.x, nested.apply(lambda t: t * 2).y.x",
    "list(nested.keys(True, True))",
    "nested.flatten_keys()",
    "held['b', 'x'], held[0]['b'].y, held.reshape(3, 1)['b'].x",
    "sorted(map(str, held.keys(True, True)))",
    "held.flatten_keys('.')",
    "(held + 1)['b'].x",
    "held.clone()['b'].y",
    "type(held['b']).__name__, type(held.to_tensordict()['b']).__name__",
    "B()",
    "B(1, 2, 3, 4, 5)",
    "B(torch.zeros(4), batch_size=[3])",
    "B(3).x, B([1, 2, 3]).x, B(True).x",
    "B(torch.zeros(3), batch_size=[3], names=['a']).names",
    "B(torch.zeros(3), batch_size=[3], device='cpu').device",
    "B(torch.zeros(3), batch_size=3).batch_size",
    "B(torch.zeros(3), batch_size=[3], lock=True).is_locked",
    "Kid(torch.zeros(3)).w, Kid(torch.zeros(3), None, torch.ones(3)).w, [f.name for f in Kid.fields()]",
    "Cast(3.0).x, Cast(1, {'x': torch.ones(2)}).b.x",
    "Cast('a')",
    "fixed.is_locked, (fixed + 1).is_locked, fixed.clone().is_locked",
    "setattr(fixed, 'x', 1)",
    "fixed.update(x=torch.ones(3))",
    "fixed.set_('x', torch.ones(3)).x",
    "B.from_tensordict(TensorDict(x=torch.zeros(3), batch_size=[3])).x",
    "B.from_tensordict(TensorDict(w=torch.zeros(3)))",
    "B.from_tensordict({'x': torch.zeros(3)})",
    "B.from_dict({'x': torch.zeros(3), 'y': None}).y",
    "B.from_dict({'x': torch.zeros(3)}, batch_size=[3]).batch_size",
    "B.from_dict({'k': torch.zeros(3)})",
    "is_tensorclass(b), is_tensorclass(B), is_tensorclass(TensorDict)",
    "dataclasses.is_dataclass(B), [f.name for f in dataclasses.fields(B)]",
    "TensorClass['bad']",
    "TensorClass['autocast', 'nocast']",
    "torch.vmap(lambda t: t + 1)(full).y",
    "full.pop('y'), full.y",
    "full.del_('y').y",
    "full.setdefault('y', torch.zeros(3, 2)), b.setdefault('y', torch.zeros(3))",
]
