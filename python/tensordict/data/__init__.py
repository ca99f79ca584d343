"""What a training loop needs around its data."""

from tensordict.data.collate import collate

__all__ = ["collate"]
