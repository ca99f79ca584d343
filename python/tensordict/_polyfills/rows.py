"""Twins of the row functions."""

TWINS: list[tuple[object, object]] = []
