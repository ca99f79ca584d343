"""Where tensordicts meet torch: `torch.*` functions, pytrees and vmap."""

from tensordict._torch import function as function
from tensordict._torch import pointwise as pointwise
from tensordict._torch import pytree as pytree
from tensordict._torch import reductions as reductions
