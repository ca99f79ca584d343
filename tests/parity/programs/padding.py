"""Padding to a common length, collating with padding, and what of nested leaves both packages do."""

SETUP = """
import tensordict as package
from tensordict import is_tensor_collection

def ordered(value):
    "The reference leaves the order of the keys to the hashes of strings."
    if isinstance(value, tuple):
        return tuple(map(ordered, value))
    if not is_tensor_collection(value):
        return value
    out = value.empty()
    for key in sorted(value.keys()):
        out.set(key, ordered(value.get(key)))
    return out

def pad_sequence(*args, **kwargs):
    return ordered(package.pad_sequence(*args, **kwargs))

def collate(batch, **kwargs):
    return batch if package.collate(batch, **kwargs) is batch else ordered(package.collate(batch, **kwargs))

short = TensorDict({"x": torch.ones(2, 3), "n": {"y": torch.arange(2)}}, [2], names=["t"])
long = TensorDict({"x": torch.full((4, 3), 2.0), "n": {"y": torch.arange(4)}}, [4], names=["t"])
wide = [TensorDict({"x": torch.ones(2, size)}, [2]) for size in (3, 5)]
both = [TensorDict({"x": torch.ones(2, size)}, [2, size]) for size in (3, 5)]
samples = [TensorDict({"x": torch.ones(size, 2), "s": torch.tensor(size)}) for size in (1, 3)]
"""

CASES = [
    "pad_sequence([short, long])",
    "pad_sequence([short, long], return_mask=True)",
    "pad_sequence([short, long], return_mask='m')",
    "pad_sequence([short, long], return_mask=('q', 'm'))",
    "pad_sequence([short, long], padding_side='left', return_mask=True)",
    "pad_sequence([short, long], padding_side='up')",
    "pad_sequence([short, long], padding_value=-1.5)",
    "pad_sequence([short, long], padding_value={'x': -1.0})",
    "pad_sequence([short, long], padding_value={'q': -1.0})",
    "pad_sequence([short, long], pad_dim=2)",
    "pad_sequence([short, long], pad_dim=-2)",
    "pad_sequence([short, long.exclude('x')])",
    "pad_sequence([short])",
    "pad_sequence([])",
    "pad_sequence((short.lock_(), long.lock_()))",
    "pad_sequence(wide, 1, return_mask=True)",
    "pad_sequence(wide, -1, return_mask=True)",
    "pad_sequence(both, -1, return_mask=True)",
    "pad_sequence(both)",
    "pad_sequence([TensorDict({'s': torch.ones(())})])",
    "pad_sequence([TensorDict({}, [2]), TensorDict({}, [3])], return_mask=True)",
    "pad_sequence([TensorDict({'x': torch.ones(2, 3), 's': torch.ones(3)}), TensorDict({'x': torch.ones(4, 3), "
    "'s': torch.ones(3)})], return_mask=True)",
    "collate(samples, pad_keys={'x': -1.0})",
    "collate(samples, pad_keys={'x': -1.0}, mask_key='m')",
    "collate(samples, pad_keys={'x': -1.0}, mask_key=('m', 'k'))",
    "collate(samples, pad_keys={'q': -1.0})",
    "collate(samples, pad_keys={'s': -1.0, 'x': 0.0})",
    "collate(samples, nested_keys=['q'])",
    "collate(samples, pad_keys={'x': 0.0}, nested_keys=['x'])",
    "collate(samples, mask_key='m')",
    "collate(samples, pad_keys={'x': 0.0}, mask_key='s')",
    "collate([short, short], pad_keys={'x': 0.0})",
    "collate([(sample, 1) for sample in samples], pad_keys={'x': 0.0})",
    "collate([], pad_keys={'x': 0.0})",
    "collate(samples[0], pad_keys={'x': 0.0})",
    "[part.tolist() for part in collate(samples, nested_keys=['x'])['x'].unbind()]",
    "collate(samples, nested_keys=['x']).to_padded_tensor(-1.0)",
    "collate(samples, nested_keys=['x']).to_padded_tensor(mask_key='m')",
]
