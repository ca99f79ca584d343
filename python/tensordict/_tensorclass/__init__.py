"""Tensorclasses: dataclasses of tensors that share batch dimensions."""
