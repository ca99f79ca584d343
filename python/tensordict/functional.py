"""Functions on tensordicts (a public module of the reference)."""

from tensordict._convert.functions import make_tensordict
from tensordict.data.collate import collate

__all__ = ["collate", "make_tensordict"]
