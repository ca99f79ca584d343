"""Comparisons for tests, old import paths, what is not allowed."""

SETUP = """
import tensordict.utils, tensordict.base, tensordict.tensordict
from tensordict import _pytree, _torch_func, _C
from tensordict.utils import Buffer, logger as _logger, timeit
u, b = tensordict.utils, tensordict.base
a = torch.arange(6.0).reshape(3, 2)
c = torch.arange(3)
td = TensorDict({"a": a, "b": {"c": c}}, [3], names=["t"])
"""

CASES = [
    "assert_close(td, td.clone())",
    "assert_close(td, td + 1)",
    "assert_close(td, TensorDict({'a': a}))",
    "assert_close(td, TensorDict({'a': a}), intersection=True)",
    "assert_close(td, td.to_dict())",
    "assert_close(a, a)",
    "assert_close(td.double(), td)",
    "assert_close(td + 0.1, td.float(), atol=1, rtol=0)",
    "assert_close(td, td, atol=1)",
    "assert_close(td * float('nan'), td * float('nan'))",
    "assert_close(td * float('nan'), td * float('nan'), equal_nan=False)",
    "assert_close(TensorDict({'a': {'b': a}}), TensorDict({'a': a}))",
    "assert_allclose_td is assert_close, u.assert_close is assert_close",
    "bool(td)",
    "hash(td)",
    "{td: 1}",
    "u._unravel_key_to_tuple(('a', ('b',))), u._unravel_key_to_tuple(1), u._unravel_key_to_tuple('a')",
    "_C.unravel_keys(('a', ('b',))), _C.unravel_key_list(['a', ('b',)])",
    "_C.unravel_keys(['a'])",
    "u._getitem_batch_size((3, 2), (0,)), u._getitem_batch_size((3, 2), slice(2))",
    "list(u._zip_strict([1], [2]))",
    "list(u._zip_strict([1], [2, 3]))",
    "u._maybe_correct_neg_dim(-1, (3, 2)), u._maybe_correct_neg_dim(1, (3, 2)), u._maybe_correct_neg_dim(-1, None, ndim=2)",
    "u._maybe_correct_neg_dim(2, (3, 2))",
    "u._maybe_correct_neg_dim(-3, (3, 2))",
    "u._is_seq_of_nested_key(['a', ('b', 'c')]), u._is_seq_of_nested_key([1]), u._is_seq_of_nested_key(3)",
    "u._is_nested_key('a'), u._is_nested_key(('a', 'b')), u._is_nested_key(())",
    "sorted(u._STR_DTYPE_TO_DTYPE)",
    "sorted(map(str, u._DTYPE_TO_STR_DTYPE.values()))",
    "u._NUMPY_TO_TORCH_DTYPE_DICT == {v: k for k, v in u._TORCH_TO_NUMPY_DTYPE_DICT.items()}",
    "[u._encode_key_for_filesystem(k) for k in ('a', 'a/b', '', '.', 'a b', '%')]",
    "[u._decode_key_from_filesystem(k) for k in ('a', 'a%2Fb', '%2E', '%25')]",
    "u._strtobool('yes'), u._strtobool('OFF')",
    "u._strtobool('perhaps')",
    "u._LOCK_ERROR",
    "b._GENERIC_NESTED_ERR",
    "u._KEY_ERROR",
    "u._shape(a), u._prod([2, 3])",
    "b._default_is_leaf(TensorDict), b._default_is_leaf(torch.Tensor), b._is_leaf_nontensor(torch.Tensor)",
    "b._is_tensor_collection(TensorDict), b._is_tensor_collection(torch.Tensor)",
    "isinstance(Buffer(a), Buffer), Buffer is torch.nn.Buffer",
    "_pytree._tensordict_unflatten(*_pytree._tensordict_flatten(td))",
    "[key.key for key, value in _pytree._td_flatten_with_keys(td)[0]]",
    "_torch_func._stack([td, td], 0)",
    "torch.abs in _torch_func.TD_HANDLED_FUNCTIONS",
    "tensordict.tensordict.TensorDict is TensorDict, tensordict.tensordict.NO_DEFAULT is b.NO_DEFAULT",
    "_logger.name, _logger.level, _logger.propagate",
    "with timeit('x'): pass\ntimeit.erase(); timeit._REG['x']",
    "timeit('f')(len)('abc')",
    "td.empty(recurse=True, batch_size=[3])",
    "td.empty(recurse=True, batch_size=[])",
    "td.empty(recurse=True, batch_size=[3, 4])",
    "td.empty(recurse=True, batch_size=[2])",
    "td.empty(recurse=True, names=['z'])",
    "td.empty(batch_size=[3, 4])",
    "td.empty(device='cpu', recurse=True)",
]
