"""Old names: the modules that programs import from where things once were, and one table of what they give.

The folder is on the path of the package: `_old/_C.py` is imported as `tensordict._C`.
"""
