"""Parameters of modules."""

SETUP = """
net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU(), torch.nn.BatchNorm1d(2))
params = TensorDict.from_module(net)
zero = params.data.clone().zero_()
x = torch.ones(3, 2)
"""

CASES = [
    "list(params.keys(True, True)), params.is_locked, params.batch_size, params.device",
    "TensorDict.from_module(net, filter_empty=False).keys()",
    "tensordict.from_module(net).is_locked",
    "TensorDict.from_module(net, use_state_dict=True)['0', 'weight'].requires_grad",
    "params['0', 'weight'] is net[0].weight",
    "zero.to_module(net)['0', 'weight'] is params['0', 'weight']",
    "(zero.to_module(net), type(net[0].weight).__name__, net[0].weight.requires_grad)[1:]",
    "(zero.to_module(net, preserve_module_state=False), list(net.state_dict()), net[0].weight is zero['0', 'weight'])[1:]",
    "zero.to_module(net, return_swap=False)",
    "(zero.to_module(net, inplace=True), net[0].weight is params['0', 'weight'], net[0].weight)[1:]",
    "zero.to_module(net, memo={})",
    "zero.to_module(net, True)",
    "zero.to_module(net, use_state_dict=True, inplace=True)",
    "zero.exclude(('0', 'weight')).to_module(net).keys(True, True)",
    "TensorDict({'nope': x}).to_module(net)",
    "TensorDict({'9': {'weight': x}}).to_module(net)",
    "TensorDict({'0': x}).to_module(net)",
    "TensorDict({'0': {'weight': {'a': x}}}).to_module(net)",
    "TensorDict.from_module(3)",
    "tensordict.unravel_key(('a', ('b',)))",
    "tensordict.unravel_key((('a',),))",
    "tensordict.unravel_key(('a', 1))",
    "tensordict.unravel_key(['a'])",
    "tensordict.unravel_key_list(['a', ('b', ('c',))])",
    "tensordict.unravel_key_list('a')",
    "tensordict.unravel_key_list([1])",
    "tensordict.unravel_key_to_tuple('a')",
    "tensordict.unravel_key_to_tuple(1)",
]
