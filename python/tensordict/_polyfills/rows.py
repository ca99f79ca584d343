"""Twins of the row functions."""
TWINS: list = []
