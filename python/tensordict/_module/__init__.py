"""Modules: their parameters as a tensordict, and a tensordict in the place of their parameters."""
