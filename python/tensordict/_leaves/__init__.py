"""Kinds of leaves that are no dense batch of tensors: ragged ones, and those without a batch."""
